//! The record of a session.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::{Endpoint, OpenerId, PinholeId};
use signalbox_core::service::{SiiHandle, StateHandle};
use signalbox_core::slab::Key;
use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{FlowFilter, Mri, SessionId, Time};
use signalbox_resources::Passage;

use super::event::Granted;
use super::external::Receiver;
use crate::wire::{DataTerminal, ExternalAddress, FlowInfo, Message};

/// The message that made the session, and that refreshes and deletes it (RFC 5973 §3.7.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Kind {
    /// CREATE.
    Create,
    /// EXTERNAL.
    External,
}

/// The state of a session (RFC 5973 §3.2.8). The state Dead has no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum State {
    /// A RESPONSE is awaited.
    Pending,
    /// The request was answered.
    Established,
    /// A NOTIFY was received; a new request is awaited.
    Transitory,
}

/// The request of a session, as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) mri: Mri,
    pub(super) efi: FlowInfo,
    pub(super) terminal: Option<DataTerminal>,
    pub(super) icmp_types: Box<[u8]>,
    pub(super) nonce: Option<u32>,
    pub(super) proxy: bool,
    pub(super) extend: bool,
}

impl Asked {
    pub(super) fn of(message: &Message<'_>, mri: Mri) -> Option<Self> {
        Some(Self {
            mri,
            efi: message.efi?,
            terminal: message.terminal,
            icmp_types: message.icmp_types.map_or(&[][..], |types| types.types()).into(),
            nonce: message.nonce,
            proxy: message.proxy,
            extend: message.extend,
        })
    }

    /// The packets whose passage a request asks for.
    pub(super) fn packets(&self, kind: Kind) -> FlowFilter {
        let terminal = self.terminal.filter(|_| kind == Kind::External);
        let towards =
            terminal.and_then(|terminal| Some(Receiver::of(&self.mri, &terminal)?.packets(&terminal)));
        towards.unwrap_or_else(|| FlowFilter::from(&self.mri))
    }
}

/// What this node does with the requests of a session.
#[derive(Debug)]
pub(super) struct Plan {
    /// MRI and NATFW_DTINFO of the request that is sent on.
    pub(super) mri: Mri,
    pub(super) terminal: Option<DataTerminal>,
    /// This node sends the RESPONSE.
    pub(super) answers: bool,
    /// Requests are sent on.
    pub(super) forwards: bool,
    /// A rule becomes active when the request succeeds.
    pub(super) installs: bool,
    /// A lease of external ports, which the session holds.
    pub(super) lease: Option<Key>,
    pub(super) passage: Option<Passage>,
    /// External address that a RESPONSE of this node carries.
    pub(super) external: Option<ExternalAddress>,
    /// External address of this NAT for NATFW_EXTERNAL_BINDING, if it is not the edge.
    pub(super) binding: Option<ExternalAddress>,
    /// What later CREATEs are matched with, if the request is an EXTERNAL for a host inside (RFC 5973 §3.8).
    pub(super) reserved: Option<Reserved>,
}

/// A receiver inside that others may reach, or must not reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reserved {
    /// The receiver as others address it: the external address and port of a NAT, else its own.
    pub(super) address: IpAddr,
    pub(super) port: Option<u16>,
    pub(super) protocol: Option<u8>,
    /// The receiver itself.
    pub(super) inside: Endpoint,
    /// The senders that are meant.
    pub(super) senders: Prefix,
    pub(super) sender_port: Option<u16>,
    pub(super) spi: Option<u32>,
    pub(super) second: bool,
    pub(super) blocks: bool,
}

impl Plan {
    /// Requests are only sent on or, at the end, answered.
    pub(super) const fn plain(mri: Mri, terminal: Option<DataTerminal>, answers: bool) -> Self {
        Self {
            mri,
            terminal,
            answers,
            forwards: !answers,
            installs: false,
            lease: None,
            passage: None,
            external: None,
            binding: None,
            reserved: None,
        }
    }

    /// Whether packets and messages are processed in the same way by another plan.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.mri == other.mri
            && self.terminal == other.terminal
            && self.lease == other.lease
            && self.reserved == other.reserved
            && (self.answers, self.forwards, self.installs) == (other.answers, other.forwards, other.installs)
    }
}

/// Who a session belongs to at this node.
#[derive(Debug)]
pub(super) enum Origin {
    /// Another node; its requests arrive here.
    Peer,
    /// A user of this node.
    Command(u64),
    /// This edge, for the EXTERNAL in proxy mode of this key.
    Proxy(Key),
}

/// A RESPONSE that waits until the kernel has the rule.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) msn: u32,
    pub(super) lifetime: u32,
    pub(super) external: Option<ExternalAddress>,
    /// Port and addresses of NATFW_EXTERNAL_BINDING.
    pub(super) bindings: Option<(Option<u16>, Vec<u8>)>,
}

/// The pinhole of the session with this key.
pub(super) const fn pinhole_id(key: Key) -> PinholeId {
    OpenerId::NATFW.pinhole(key.to_u64())
}

/// The record of a session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) kind: Kind,
    pub(super) state: State,
    pub(super) origin: Origin,
    pub(super) asked: Asked,
    pub(super) plan: Plan,
    /// The peer towards the initiator, its routing state, and its address.
    pub(super) previous: Option<SiiHandle>,
    pub(super) previous_state: Option<StateHandle>,
    /// The source whose share of the table it uses.
    pub(super) source: IpAddr,
    /// The peer towards the responder.
    pub(super) next: Option<SiiHandle>,
    /// MSN of the newest request.
    pub(super) msn: u32,
    /// MSN of the oldest request that has no RESPONSE yet.
    pub(super) unanswered: Option<u32>,
    /// Lifetime in seconds that this node accepted for the newest request.
    pub(super) accepted: u32,
    /// When it becomes Dead without a further request or RESPONSE.
    pub(super) expires: Time,
    /// The rule is in the kernel.
    pub(super) active: bool,
    /// Answers of the kernel that are still to come.
    pub(super) kernel: u16,
    pub(super) waiting: Option<Box<Answer>>,
    /// The session that an edge made for this EXTERNAL in proxy mode.
    pub(super) secondary: Option<Key>,
    pub(super) local: Option<Box<Local>>,
    pub(super) link: Link,
}

/// What only the initiator of a session has.
#[derive(Debug, Default)]
pub(super) struct Local {
    /// Lifetime in seconds to request.
    pub(super) lifetime: u32,
    /// Ask for the addresses of the NATs.
    pub(super) bindings: bool,
    /// A SESSION_AUTH object for each request, or nothing.
    pub(super) token: Box<[u8]>,
    /// When an unanswered request is sent again, and the time to the next repetition.
    pub(super) retry: Option<(Time, Duration)>,
    /// When the session is refreshed.
    pub(super) refresh: Option<Time>,
    /// What the user was last informed of.
    pub(super) granted: Option<Granted>,
}

impl Timed for Session {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Session {
    /// The next time at which something is due.
    pub(super) fn deadline(&self) -> Time {
        let local = self.local.as_ref();
        let retry = local.and_then(|local| local.retry).map(|(at, _)| at);
        let refresh = local.and_then(|local| local.refresh);
        [retry, refresh].into_iter().flatten().fold(self.expires, Time::min)
    }

    /// Whether its requests are made here.
    pub(super) const fn begins_here(&self) -> bool {
        self.local.is_some()
    }

    /// Whether this NAT translates one end of its flow into this address, or from it.
    pub(super) fn is_bound_to(&self, address: IpAddr) -> bool {
        let (before, after) = (&self.asked.mri, &self.plan.mri);
        let translated = before != after && (after.src() == address || before.dst() == address);
        translated || self.plan.reserved.is_some_and(|reserved| reserved.address == address)
    }

    /// Whether a RESPONSE with this number answers a request that waits for one.
    pub(super) fn awaits(&self, msn: u32) -> bool {
        self.unanswered.is_some_and(|oldest| !newer(oldest, msn) && !newer(msn, self.msn))
    }
}

/// Whether a sequence number is higher than another (RFC 1982, 32 bits). Two numbers at the distance 2³¹ have no
/// order, so that neither is newer.
pub(super) const fn newer(this: u32, than: u32) -> bool {
    let distance = this.wrapping_sub(than);
    distance != 0 && distance < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NATFW-3.5-06
    #[test]
    fn numbers_compare_by_rfc_1982() {
        assert!(newer(1, 0) && !newer(0, 1) && !newer(5, 5));
        assert!(newer(0, u32::MAX) && newer(100, u32::MAX - 100));
        assert!(!newer(u32::MAX, 0));
        assert!(newer((1 << 31) - 1, 0) && !newer(1 << 31, 0) && !newer(0, 1 << 31));
    }
}
