//! The names of the protocols of the suite, what users ask of them, and what they report. The order is the same everywhere: that in
//! which outputs are taken.

use core::fmt;

use signalbox_core::IfIndex;
use signalbox_resources::GrantId;

#[cfg(feature = "test-protocol")]
use super::beacon;
use super::{Config, boomerang, casp, gist, gist_nat, mapping, natfw, ping, qos, rsvp};
use crate::composition::Place;
use crate::protocol::Composed;

/// A protocol that a node can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ProtocolId {
    /// GIST with its messaging associations (RFC 5971).
    Gist,
    /// The Ping application.
    Ping,
    /// The QoS application (RFC 5974).
    Qos,
    /// RSVP (RFC 2205).
    Rsvp,
    /// Boomerang (draft-bergkvist-boomerang-spec-00).
    Boomerang,
    /// The NATFW application (RFC 5973).
    Natfw,
    /// The GIST-aware NAT gateway (RFC 5971 section 7.2).
    GistNat,
    /// CASP (draft-schulzrinne-nsis-casp-01).
    Casp,
    /// The front end for hosts that ask by PCP (RFC 6887) and NAT-PMP (RFC 6886).
    Mapping,
    /// The test protocol.
    #[cfg(feature = "test-protocol")]
    Beacon,
}

impl ProtocolId {
    /// All protocols, in their order.
    pub const ALL: &'static [Self] = &[
        Self::Gist,
        Self::Ping,
        Self::Qos,
        Self::Rsvp,
        Self::Boomerang,
        Self::Natfw,
        Self::GistNat,
        Self::Casp,
        Self::Mapping,
        #[cfg(feature = "test-protocol")]
        Self::Beacon,
    ];

    /// The name in configurations, counters and log lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gist => gist::Instance::NAME,
            Self::Ping => ping::Instance::NAME,
            Self::Qos => qos::Instance::NAME,
            Self::Rsvp => rsvp::Instance::NAME,
            Self::Boomerang => boomerang::Instance::NAME,
            Self::Natfw => natfw::Instance::NAME,
            Self::GistNat => gist_nat::Instance::NAME,
            Self::Casp => casp::Instance::NAME,
            Self::Mapping => mapping::Instance::NAME,
            #[cfg(feature = "test-protocol")]
            Self::Beacon => beacon::Instance::NAME,
        }
    }

    /// Its place in a node.
    pub(crate) const fn place(self) -> Place {
        Place::nth(self as usize)
    }

    /// The protocol of the suite that has this place.
    pub(crate) fn at(place: Place) -> Option<Self> {
        Self::ALL.get(place.index()).copied()
    }
}

// The place of a protocol is its number in `ALL`.
const _: () = {
    let mut at = 0;
    while at < ProtocolId::ALL.len() {
        assert!(ProtocolId::ALL[at] as usize == at, "ALL has the order of the variants");
        at += 1;
    }
};

impl fmt::Display for ProtocolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a user asks of a node. In the variant of a protocol, `id` is the driver's identifier of what is asked for, which is given
/// back with each event, and `command` is what is wanted of the protocol.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[allow(missing_docs, reason = "the variants of protocols are alike")]
#[rustfmt::skip]
pub enum Command {
    Gist { id: u64, command: gist::Command },
    Ping { id: u64, command: ping::Command },
    Qos { id: u64, command: qos::Command },
    Rsvp { id: u64, command: rsvp::Command },
    Boomerang { id: u64, command: boomerang::Command },
    Natfw { id: u64, command: natfw::Command },
    GistNat { id: u64, command: gist_nat::Command },
    Casp { id: u64, command: casp::Command },
    Mapping { id: u64, command: mapping::Command },
    #[cfg(feature = "test-protocol")]
    Beacon { id: u64, command: beacon::Command },
    /// Ends a reservation for an administrator. Its protocol informs the others. `grant` is what admission control holds.
    DeleteReservation { grant: GrantId },
    /// Other settings for admission control and the protocols: those of [`Config::changed_from`]. Each takes what it can while it
    /// runs.
    Reload(Box<Config>),
    /// Corrects the wall clock: microseconds since 1970 at [`Time::ZERO`](signalbox_core::Time::ZERO).
    WallClock(u64),
    /// The speeds of links by interface, as the kernel knows them, in octets a second. Those of other links are not known.
    LinkSpeeds(Vec<(IfIndex, u64)>),
    /// The node stops. It comes after [`Node::hand_over`](crate::Node::hand_over). The protocols report to neighbors what ends with
    /// the node. `handed_over`: the next node gets what was written.
    Stop { handed_over: bool },
}

/// What a protocol reports to a user. `id` is the identifier that the command carried, and `event` is what happened.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[allow(missing_docs, reason = "the variants of protocols are alike")]
#[rustfmt::skip]
pub enum Event {
    Gist { id: u64, event: gist::Event },
    Ping { id: u64, event: ping::Event },
    Qos { id: u64, event: qos::Event },
    Rsvp { id: u64, event: rsvp::Event },
    Boomerang { id: u64, event: boomerang::Event },
    Natfw { id: u64, event: natfw::Event },
    GistNat { id: u64, event: gist_nat::Event },
    Casp { id: u64, event: casp::Event },
    Mapping { id: u64, event: mapping::Event },
    #[cfg(feature = "test-protocol")]
    Beacon { id: u64, event: beacon::Event },
}

impl Command {
    /// The protocol that is asked, and the driver's identifier of what is asked for; `None`: no protocol is asked.
    const fn recipient(&self) -> Option<(ProtocolId, u64)> {
        match self {
            Self::Gist { id, .. } => Some((ProtocolId::Gist, *id)),
            Self::Ping { id, .. } => Some((ProtocolId::Ping, *id)),
            Self::Qos { id, .. } => Some((ProtocolId::Qos, *id)),
            Self::Rsvp { id, .. } => Some((ProtocolId::Rsvp, *id)),
            Self::Boomerang { id, .. } => Some((ProtocolId::Boomerang, *id)),
            Self::Natfw { id, .. } => Some((ProtocolId::Natfw, *id)),
            Self::GistNat { id, .. } => Some((ProtocolId::GistNat, *id)),
            Self::Casp { id, .. } => Some((ProtocolId::Casp, *id)),
            Self::Mapping { id, .. } => Some((ProtocolId::Mapping, *id)),
            #[cfg(feature = "test-protocol")]
            Self::Beacon { id, .. } => Some((ProtocolId::Beacon, *id)),
            Self::DeleteReservation { .. }
            | Self::Reload(_)
            | Self::WallClock(_)
            | Self::LinkSpeeds(_)
            | Self::Stop { .. } => None,
        }
    }

    /// The driver's identifier of what is asked for; `None`: no protocol is asked.
    #[must_use]
    pub fn id(&self) -> Option<u64> {
        self.recipient().map(|(_, id)| id)
    }

    /// The protocol that is asked.
    #[must_use]
    pub fn protocol(&self) -> Option<ProtocolId> {
        self.recipient().map(|(protocol, _)| protocol)
    }
}

impl Event {
    /// The identifier that the command carried.
    #[must_use]
    pub const fn id(&self) -> u64 {
        match self {
            Self::Gist { id, .. }
            | Self::Ping { id, .. }
            | Self::Qos { id, .. }
            | Self::Rsvp { id, .. }
            | Self::Boomerang { id, .. }
            | Self::Natfw { id, .. }
            | Self::GistNat { id, .. }
            | Self::Casp { id, .. }
            | Self::Mapping { id, .. } => *id,
            #[cfg(feature = "test-protocol")]
            Self::Beacon { id, .. } => *id,
        }
    }
}
