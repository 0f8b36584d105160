//! The record of a session.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::pinhole::{OpenerId, PinholeId};
use signalbox_core::service::{RecvMessage, SiiHandle, StateHandle};
use signalbox_core::shares::source;
use signalbox_core::slab::Key;
use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{Direction, Flow, IfIndex, Mri, SessionId, Time};
use signalbox_resources::RequestedBy;

use super::event::Granted;
use super::plan::Plan;
use crate::wire::{DataTerminal, ExternalAddress, FlowInfo, Message, Part, Publication};

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
pub(super) struct Request {
    pub(super) flow: Flow,
    pub(super) direction: Direction,
    pub(super) efi: FlowInfo,
    pub(super) proxy: bool,
    pub(super) extend: bool,
    /// Objects that a usual CREATE does not have.
    pub(super) objects: Option<Box<Objects>>,
}

/// Objects of a request that a usual CREATE does not have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Objects {
    pub(super) terminal: Option<DataTerminal>,
    pub(super) icmp_types: Box<[u8]>,
    pub(super) nonce: Option<u32>,
    /// The value of a publication, or nothing.
    pub(super) publication: Box<[u8]>,
}

impl Request {
    pub(super) fn of(message: &Message<'_>, mri: &Mri) -> Option<Self> {
        let objects = Objects {
            terminal: message.terminal,
            icmp_types: icmp_types(message).into(),
            nonce: message.nonce,
            publication: publication(message).into(),
        };
        let request = Self::new(mri, message.efi?, objects);
        Some(Self { proxy: message.proxy, extend: message.extend, ..request })
    }

    /// A request that is not in proxy mode.
    pub(super) fn new(mri: &Mri, efi: FlowInfo, objects: Objects) -> Self {
        let objects = (objects != Objects::default()).then(|| Box::new(objects));
        Self { flow: Flow::of(mri), direction: mri.direction(), efi, proxy: false, extend: false, objects }
    }

    /// Whether a message asks for the same. It does not allocate, because each refresh is compared.
    pub(super) fn is_asked_by(&self, message: &Message<'_>, mri: &Mri) -> bool {
        message.efi == Some(self.efi)
            && (message.proxy, message.extend) == (self.proxy, self.extend)
            && mri.direction() == self.direction
            && self.flow.is_of(mri)
            && (message.terminal, message.nonce) == (self.terminal(), self.nonce())
            && icmp_types(message) == self.icmp_types()
            && publication(message) == self.publication_octets()
    }

    pub(super) fn mri(&self) -> Mri {
        self.flow.mri(self.direction)
    }

    pub(super) fn terminal(&self) -> Option<DataTerminal> {
        self.objects.as_ref().and_then(|objects| objects.terminal)
    }

    pub(super) fn icmp_types(&self) -> &[u8] {
        self.objects.as_ref().map_or(&[], |objects| &objects.icmp_types)
    }

    pub(super) fn nonce(&self) -> Option<u32> {
        self.objects.as_ref().and_then(|objects| objects.nonce)
    }

    /// The value of its publication, or nothing.
    pub(super) fn publication_octets(&self) -> &[u8] {
        self.objects.as_ref().map_or(&[], |objects| &objects.publication)
    }

    pub(super) fn publication(&self) -> Option<Publication<'_>> {
        Publication::of(self.publication_octets())
    }
}

fn publication<'a>(message: &Message<'a>) -> &'a [u8] {
    message.publication.map_or(&[], |publication| publication.octets())
}

fn icmp_types<'a>(message: &Message<'a>) -> &'a [u8] {
    message.icmp_types.map_or(&[], |types| types.types())
}

/// Who a session belongs to at this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Another node; its requests arrive here.
    Peer,
    /// A user of this node.
    Command(u64),
    /// A front end of this node, in the place of a host inside.
    Host(u64),
    /// This edge, for the EXTERNAL in proxy mode of this key.
    Proxy(Key),
}

/// A RESPONSE that waits until the kernel has the rule.
#[derive(Debug, Clone, Default)]
pub(super) struct Answer {
    pub(super) msn: u32,
    pub(super) lifetime: u32,
    pub(super) external: Option<ExternalAddress>,
    /// Port and addresses of NATFW_EXTERNAL_BINDING.
    pub(super) bindings: Option<(Option<u16>, Vec<u8>)>,
    /// It is that of this node, not of one further on.
    pub(super) own: bool,
    /// The nodes further on that granted it; empty if they do not say it.
    pub(super) hops: Vec<u8>,
    /// Objects of unknown type with AB=10 that came with it (§4.2).
    pub(super) forwarded: Vec<u8>,
}

/// The pinhole of the session with this key.
pub(super) const fn pinhole_id(key: Key) -> PinholeId {
    OpenerId::NATFW.pinhole(key.to_u64())
}

/// The peers of a session and the routing state of its requests. A handle can have any value, so no value means that
/// it is absent. Bits say which handles are set: optional handles would take twice the octets.
#[derive(Debug, Default)]
pub(super) struct Peers {
    previous: u64,
    previous_state: u64,
    next: u64,
    /// The interface of the last request.
    ifindex: u32,
    present: u8,
    /// Routers that the last request passed since the peer that sent it.
    routers: u8,
}

const PREVIOUS: u8 = 1;
const PREVIOUS_STATE: u8 = 2;
const NEXT: u8 = 4;
/// The peer towards the initiator had the session at the node before this one, and has not refreshed it since.
const FORMER: u8 = 8;
/// The RESPONSE to the last request shall name the nodes that granted it.
const LISTS: u8 = 16;
/// A node that does not take part in the list is before this one.
const AFTER_GAP: u8 = 32;

impl Peers {
    /// The peer towards the initiator.
    pub(super) fn previous(&self) -> Option<SiiHandle> {
        (self.present & PREVIOUS != 0).then_some(SiiHandle(self.previous))
    }

    /// The routing state of the peer towards the initiator.
    pub(super) fn previous_state(&self) -> Option<StateHandle> {
        (self.present & PREVIOUS_STATE != 0).then_some(StateHandle(self.previous_state))
    }

    /// The peer towards the responder.
    pub(super) fn next(&self) -> Option<SiiHandle> {
        (self.present & NEXT != 0).then_some(SiiHandle(self.next))
    }

    pub(super) fn set_previous(&mut self, peer: Option<SiiHandle>, state: Option<StateHandle>) {
        let present = self.present & NEXT;
        self.present = present
            | if peer.is_some() { PREVIOUS } else { 0 }
            | if state.is_some() { PREVIOUS_STATE } else { 0 };
        self.previous = peer.map_or(0, |peer| peer.0);
        self.previous_state = state.map_or(0, |state| state.0);
    }

    /// Keeps what a list of nodes needs to know of a request that came from the peer towards the initiator.
    pub(super) fn note_list(&mut self, received: &RecvMessage<'_>, message: &Message<'_>) {
        let gap = received.ip_distance > 0 || !message.neighbor;
        self.present = self.present & !(LISTS | AFTER_GAP)
            | if message.hops.is_some() { LISTS } else { 0 }
            | if gap { AFTER_GAP } else { 0 };
        (self.ifindex, self.routers) = (received.ifindex.0, received.ip_distance);
    }

    /// Whether the RESPONSE to the last request shall name the nodes that granted it.
    pub(super) const fn lists(&self) -> bool {
        self.present & LISTS != 0
    }

    /// The interface of the last request, whether a node that does not take part is before this one, and how many routers are.
    pub(super) const fn before(&self) -> (IfIndex, bool, u8) {
        (IfIndex(self.ifindex), self.present & AFTER_GAP != 0, self.routers)
    }

    /// The peers of a session of the node before this one: GIST knows none of them.
    pub(super) fn former() -> Self {
        Self { present: FORMER, ..Self::default() }
    }

    /// Whether the session is of the node before this one, and no peer has refreshed it since.
    pub(super) const fn are_former(&self) -> bool {
        self.present & FORMER != 0
    }

    pub(super) fn set_next(&mut self, peer: Option<SiiHandle>) {
        self.present = self.present & !NEXT | if peer.is_some() { NEXT } else { 0 };
        self.next = peer.map_or(0, |peer| peer.0);
    }
}

/// The record of a session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) kind: Kind,
    pub(super) state: State,
    pub(super) request: Request,
    pub(super) plan: Plan,
    pub(super) peers: Peers,
    /// The address that asked for it: see [`Self::share`].
    pub(super) source: IpAddr,
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
    /// The session that an edge made for this EXTERNAL in proxy mode; the default key, which has no record: none is made.
    pub(super) secondary: Key,
    /// `None`: its requests are those of a peer.
    pub(super) local: Option<Box<Local>>,
    pub(super) link: Link,
}

/// What only the initiator of a session has.
#[derive(Debug)]
pub(super) struct Local {
    /// Who began it; no peer.
    pub(super) origin: Origin,
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
    /// Where an edge is to send a CREATE for this request: whether it has arrived.
    pub(super) proxied: Option<Proxied>,
}

/// The CREATE of the edge for an EXTERNAL in proxy mode that begins here (RFC 5973 §3.7.6.1).
#[derive(Debug)]
pub(super) enum Proxied {
    /// It has not arrived. The edge may have answered: what it granted, and how long its CREATE is waited for.
    Waits(Option<(Granted, Time)>),
    /// It has arrived: its session, which may have ended since.
    Through(Key),
}

impl Local {
    /// A session that begins here.
    pub(super) fn new(origin: Origin, lifetime: u32) -> Self {
        let (bindings, token) = (false, Box::default());
        let (retry, refresh, granted, proxied) = (None, None, None, None);
        Self { origin, lifetime, bindings, token, retry, refresh, granted, proxied }
    }
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
        let proxied = local.and_then(|local| match &local.proxied {
            Some(Proxied::Waits(Some((_, until)))) => Some(*until),
            Some(Proxied::Waits(None) | Proxied::Through(_)) | None => None,
        });
        [retry, refresh, proxied].into_iter().flatten().fold(self.expires, Time::min)
    }

    /// Whether the CREATE that an edge sends for it has not arrived in time.
    pub(super) fn waits_in_vain(&self, now: Time) -> bool {
        let proxied = self.local.as_ref().and_then(|local| local.proxied.as_ref());
        matches!(proxied, Some(Proxied::Waits(Some((_, until)))) if *until <= now)
    }

    /// Whether it is due to be refreshed.
    pub(super) fn is_refreshed(&self, now: Time) -> bool {
        self.local.as_ref().and_then(|local| local.refresh).is_some_and(|at| at <= now)
    }

    /// Whether its requests are made here.
    pub(super) const fn begins_here(&self) -> bool {
        self.local.is_some()
    }

    pub(super) fn origin(&self) -> Origin {
        self.local.as_ref().map_or(Origin::Peer, |local| local.origin)
    }

    /// The source whose share of the table it uses.
    pub(super) fn share(&self) -> IpAddr {
        source(self.source)
    }

    /// The source that caused its requests; `None`: a user of this node.
    pub(super) fn holder(&self) -> Option<IpAddr> {
        match self.origin() {
            Origin::Command(_) => None,
            Origin::Peer | Origin::Host(_) | Origin::Proxy(_) => Some(self.share()),
        }
    }

    /// Whether this NAT translates one end of its flow into this address, or from it.
    pub(super) fn is_bound_to(&self, address: IpAddr) -> bool {
        let (before, after) = (self.request.mri(), self.plan.mri());
        let translated = before != after && (after.src() == address || before.dst() == address);
        translated || self.plan.reserved().is_some_and(|reserved| reserved.address == address)
    }

    /// What this node did for the request, when it succeeded.
    pub(super) fn part(&self) -> Part {
        if let Some(published) = self.plan.published() {
            let inside = published.inside;
            if (inside.address, inside.port) == (published.address, published.port) {
                Part::Opened
            } else {
                Part::Translated
            }
        } else if let Some(reserved) = self.plan.reserved() {
            if reserved.blocks { Part::Blocked } else { Part::Reserved }
        } else if !self.plan.installs {
            if self.plan.forwards { Part::Passed } else { Part::End }
        } else if self.request.mri() == self.plan.mri() {
            Part::Opened
        } else {
            Part::Translated
        }
    }

    /// Whether a request is of the peer that has the session. That of a node before this one is known by what it proved there:
    /// the address at which it answers, and the name of its key.
    pub(super) fn is_of(&self, received: &RecvMessage<'_>) -> bool {
        if !self.peers.are_former() {
            return self.peers.previous() == received.sii;
        }
        let Some(passage) = &self.plan.passage else { return false };
        let requester = passage.requester();
        let address = match &requester.requested_by {
            RequestedBy::Neighbor(neighbor) => Some(neighbor.address),
            RequestedBy::Unknown | RequestedBy::LocalUser(_) | RequestedBy::Neighbors(_) => None,
        };
        received.sii.is_some()
            && address.is_some()
            && (address, &requester.peer) == (received.peer_address, &received.peer)
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
    use signalbox_core::PathCoupled;

    use super::*;
    use crate::wire::{IcmpTypes, MessageType, Wish};

    /// A session with its generation and the most that its entry of the index takes, and without the table of ports.
    #[test]
    fn a_session_takes_272_octets() {
        assert!(size_of::<Option<Session>>() + 4 + 12 <= 272, "{}", size_of::<Option<Session>>());
    }

    #[test]
    fn a_handle_may_be_any_number() {
        let mut peers = Peers::default();
        assert_eq!((peers.previous(), peers.previous_state(), peers.next()), (None, None, None));
        for number in [0, 1, u64::MAX] {
            let (peer, state) = (Some(SiiHandle(number)), Some(StateHandle(number)));
            peers.set_next(peer);
            peers.set_previous(None, state);
            assert_eq!((peers.previous(), peers.previous_state(), peers.next()), (None, state, peer));
            peers.set_previous(peer, None);
            peers.set_next(None);
            assert_eq!((peers.previous(), peers.previous_state(), peers.next()), (peer, None, None));
        }
    }

    #[test]
    fn a_request_that_differs_in_one_field_is_another_one() {
        let flow = PathCoupled::between([192, 0, 2, 1].into(), [198, 51, 100, 1].into());
        let mri = Mri::PathCoupled(flow);
        let (types, efi) = (Some(IcmpTypes::of(&[8])), Some(FlowInfo::ALLOW));
        let plain = Message { efi, ..Message::new(MessageType::CREATE) };
        let wish = Wish::default().octets();
        let requests = [
            (plain, mri),
            (Message { efi: Some(FlowInfo::DENY), ..plain }, mri),
            (Message { terminal: Some(DataTerminal::receiver(17, 0)), ..plain }, mri),
            (Message { icmp_types: types, ..plain }, mri),
            (Message { nonce: Some(0), ..plain }, mri),
            (Message { publication: Publication::of(&wish), ..plain }, mri),
            (Message { proxy: true, ..plain }, mri),
            (Message { extend: true, ..plain }, mri),
            (plain, mri.inverted()),
            (plain, Mri::PathCoupled(PathCoupled { spi: Some(0), ..flow })),
        ];
        for (at, (message, mri)) in requests.iter().enumerate() {
            let request = Request::of(message, mri).unwrap();
            assert_eq!(request.mri(), *mri);
            for (other, (message, mri)) in requests.iter().enumerate() {
                assert_eq!(request.is_asked_by(message, mri), at == other, "{at} {other}");
                assert_eq!(Request::of(message, mri).unwrap() == request, at == other, "{at} {other}");
            }
        }
    }

    /// NATFW-3.5-06
    #[test]
    fn numbers_compare_by_rfc_1982() {
        assert!(newer(1, 0) && !newer(0, 1) && !newer(5, 5));
        assert!(newer(0, u32::MAX) && newer(100, u32::MAX - 100));
        assert!(!newer(u32::MAX, 0));
        assert!(newer((1 << 31) - 1, 0) && !newer(1 << 31, 0) && !newer(0, 1 << 31));
    }
}
