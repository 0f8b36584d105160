//! The contract between a node (all its engines, without I/O) and the driver that runs it.
//!
//! **Drain invariant.** After each [`NodeEngine::handle`], call [`NodeEngine::poll`] until it returns `None`,
//! then call [`NodeEngine::next_deadline`]. Extra polls have no effect. Time never runs backwards. A driver
//! answers each [`Output::RouteLookup`] with one [`Input::Route`] of the same id, at once or later.
//!
//! **Streams** are TCP connections, or SCTP associations of a kernel that supports SCTP. The driver owns the
//! sockets; the node decides when they are opened, read and closed. Each stream that the node opened or the
//! driver accepted ends with exactly one of [`Input::StreamClosed`] and [`Output::StreamClose`]. After either
//! of them the id is invalid. The two can cross: a driver ignores outputs for a stream that it has just
//! reported closed, and a node ignores inputs for a stream that it has closed.
//!
//! **Reservations** are in the kernel. The node chooses their ids. An [`Output::Reserve`] with the id of an
//! installed reservation changes it. The driver answers each with one [`Input::Reserved`], at once or later;
//! the answers for one id come in the order of the requests. [`Output::Release`] is not answered; requests
//! for that id that came before it may still be answered. No reservation is installed when a node starts, and
//! its driver removes all of them when it stops, or keeps them for a bounded time for the node that comes after it.
//!
//! **Pinholes** are in the kernel of a firewall or NAT. The node chooses their ids; each names the protocol that owns it.
//! An [`Output::OpenPinhole`] makes the pinhole of its id what it says, whether none of that id is there, another one, or
//! the same one, which then lasts longer. The driver answers each with one [`Input::PinholeOpened`], at once or later; the answers for one id come in the order of
//! the requests. [`Output::ClosePinhole`] is not answered; requests for that id that came before it may still be answered.
//! The driver answers each [`Output::FindFlow`] with one [`Input::FlowFound`] of the same id, at once or later.
//! The kernel removes a pinhole by itself when its lifetime ends, whether the node runs or not. So pinholes of a former
//! process can be there when a node starts; their ids mean nothing to it.

mod stream;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use crate::entry::{Entry, EntryRequest};
use crate::id::IfIndex;
use crate::packet::{ReceivedOf, Transmit};
use crate::pinhole::{Pinhole, PinholeError, PinholeId, Translation};
use crate::time::Time;
use crate::traffic::{FlowFilter, Reservation, ReservationId, ReserveError};

pub use stream::{StreamError, StreamId, StreamKind};

/// A driver reports the octets that it holds of a stream at the latest when the kernel took this number of octets since
/// the last [`InputOf::StreamDrained`]. A node that counts what it writes after each report, and waits at twice this
/// number or later, never waits for a report that does not come.
pub const REPORT_EVERY: usize = 16 << 10;

/// A borrowed input, as engines take it. `C` is the node's own command type.
pub type Input<'a, C> = InputOf<&'a [u8], &'a [Interface], &'a [IfIndex], C>;

/// An owned input, as a recording gives it.
pub type OwnedInput<C> = InputOf<Vec<u8>, Vec<Interface>, Vec<IfIndex>, C>;

/// An input of a node. `O` holds octets, `L` the list of interfaces, `X` a list of interface numbers, and `C`
/// is the node's own command type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case", deny_unknown_fields))]
#[cfg_attr(
    feature = "serde",
    serde(bound(
        serialize = "O: AsRef<[u8]>, L: serde::Serialize, X: serde::Serialize, C: serde::Serialize",
        deserialize = "O: From<Vec<u8>>, L: serde::Deserialize<'de>, X: serde::Deserialize<'de>, \
                       C: serde::Deserialize<'de>"
    ))
)]
pub enum InputOf<O, L, X, C> {
    /// A deadline is due. The input carries nothing but the time.
    Timer,
    /// A packet arrived.
    Packet(ReceivedOf<O>),
    /// The complete list of the node's interfaces and addresses. It comes once at the start and after each
    /// change.
    Interfaces(L),
    /// The answer to [`Output::RouteLookup`] of the same id.
    Route {
        /// The id of the lookup.
        id: u64,
        /// The route, or the reason why no route exists.
        result: Result<Route, NoRoute>,
    },
    /// Routes to these destinations may have changed.
    RouteChanged(Prefix),
    /// The kernel sends what goes to a neighbor to another link-layer address than before, and no route changes: another router may
    /// have its place (VRRP, RFC 5798). Anybody on the link can forge that. So it is only a reason to ask who is there; a driver
    /// limits its rate for each interface.
    #[cfg_attr(feature = "serde", serde(rename = "neighbor-moved"))]
    NeighborMoved {
        /// The link.
        ifindex: IfIndex,
        /// Address of the neighbor.
        address: IpAddr,
    },
    /// A packet to this destination could not be sent.
    TransmitFailed {
        /// The port of entry of the packet.
        entry: Entry,
        /// Destination of the packet.
        dst: IpAddr,
        /// Reason of the failure.
        error: TransmitError,
    },
    /// A router or host reported by ICMP that it cannot deliver a packet of an entry that asks for such reports
    /// ([`EntryRequest::reports`](crate::EntryRequest::reports)). Anybody can forge such a report.
    Undeliverable {
        /// The port of entry of the packet.
        entry: Entry,
        /// Destination of the packet.
        dst: IpAddr,
        /// The payload of the packet, as far as the report quotes it.
        #[cfg_attr(feature = "serde", serde(with = "crate::octets::text"))]
        quoted: O,
    },
    /// A peer connected to a listener.
    StreamAccepted {
        /// Id of the stream. It is even; the driver chooses it.
        stream: StreamId,
        /// Transport of the stream. Together with the port it identifies the listener.
        kind: StreamKind,
        /// Local address.
        local: SocketAddr,
        /// Address of the peer.
        peer: SocketAddr,
    },
    /// [`Output::StreamOpen`] succeeded.
    StreamConnected {
        /// Id of the stream.
        stream: StreamId,
        /// Local address, with the port that the kernel chose.
        local: SocketAddr,
    },
    /// Octets of a stream, in order, in pieces of any size, at least one octet. With [`StreamKind::Sctp`] it
    /// is one whole message.
    StreamOctets {
        /// Id of the stream.
        stream: StreamId,
        /// Octets that the peer wrote.
        #[cfg_attr(feature = "serde", serde(with = "crate::octets::text"))]
        octets: O,
    },
    /// The number of octets that the driver holds now, after all writes so far. This input comes after a write that
    /// the kernel did not take whole, whenever the number falls afterwards, and at the latest when the kernel took
    /// [`REPORT_EVERY`] octets since the last such input. Before the first one the driver holds no octets.
    StreamDrained {
        /// Id of the stream.
        stream: StreamId,
        /// Octets written that the driver still holds because the kernel's buffer is full.
        unsent: usize,
    },
    /// A stream has ended, or could not be opened. All octets that its peer wrote before have already been
    /// given.
    StreamClosed {
        /// Id of the stream.
        stream: StreamId,
        /// Reason; `None`: the peer closed the stream normally.
        error: Option<StreamError>,
        /// Whether octets that were written may not have reached the peer.
        unacknowledged: bool,
    },
    /// [`Output::StreamListen`] failed: no peer can connect to this port.
    ListenFailed {
        /// Transport of the listener.
        kind: StreamKind,
        /// Port of the listener.
        port: u16,
        /// Reason of the failure.
        error: StreamError,
    },
    /// The kernel's multicast route. It answers [`Output::MulticastLookup`] and comes again after each change
    /// of the route.
    Multicast {
        /// The group.
        group: IpAddr,
        /// Address of the sender.
        source: IpAddr,
        /// Interface by which packets from the source must arrive. It is [`IfIndex::NONE`] if the source is
        /// this node or if no route exists.
        iif: IfIndex,
        /// Interfaces by which packets are forwarded; the list may be empty. If the source is this node and it
        /// forwards nothing, the list holds the interface by which the node sends.
        oifs: X,
    },
    /// The answer to [`Output::Reserve`] of the same id.
    Reserved {
        /// Id of the reservation.
        id: ReservationId,
        /// Whether the kernel installed it as requested. If it did not, the previous reservation of that id
        /// stays installed.
        result: Result<(), ReserveError>,
    },
    /// The answer to [`Output::OpenPinhole`] of the same id.
    PinholeOpened {
        /// Id of the pinhole.
        id: PinholeId,
        /// Whether the kernel has it as requested. If it has not, the previous pinhole of that id stays.
        result: Result<(), PinholeError>,
    },
    /// The answer to [`Output::FindFlow`] of the same id.
    FlowFound {
        /// Id of the question.
        id: PinholeId,
        /// How the kernel translates the flow; `None`: it does not know the flow, or does not translate it.
        translation: Option<Translation>,
    },
    /// What the node that ran before in this place left ([`crate::handover`]). It comes at most once, after the first
    /// [`InputOf::Interfaces`].
    Handover(#[cfg_attr(feature = "serde", serde(with = "crate::octets::text"))] O),
    /// A command from a user of the node.
    Command(C),
}

impl<C> OwnedInput<C> {
    /// Calls `take` with the input in the form that engines take.
    pub fn give<T>(self, take: impl FnOnce(Input<'_, C>) -> T) -> T {
        match self {
            Self::Timer => take(Input::Timer),
            Self::Packet(packet) => take(Input::Packet(packet.as_received())),
            Self::Interfaces(interfaces) => take(Input::Interfaces(&interfaces)),
            Self::Route { id, result } => take(Input::Route { id, result }),
            Self::RouteChanged(prefix) => take(Input::RouteChanged(prefix)),
            Self::NeighborMoved { ifindex, address } => take(Input::NeighborMoved { ifindex, address }),
            Self::TransmitFailed { entry, dst, error } => take(Input::TransmitFailed { entry, dst, error }),
            Self::Undeliverable { entry, dst, quoted } => {
                take(Input::Undeliverable { entry, dst, quoted: &quoted })
            }
            Self::StreamAccepted { stream, kind, local, peer } => {
                take(Input::StreamAccepted { stream, kind, local, peer })
            }
            Self::StreamConnected { stream, local } => take(Input::StreamConnected { stream, local }),
            Self::StreamOctets { stream, octets } => take(Input::StreamOctets { stream, octets: &octets }),
            Self::StreamDrained { stream, unsent } => take(Input::StreamDrained { stream, unsent }),
            Self::StreamClosed { stream, error, unacknowledged } => {
                take(Input::StreamClosed { stream, error, unacknowledged })
            }
            Self::ListenFailed { kind, port, error } => take(Input::ListenFailed { kind, port, error }),
            Self::Multicast { group, source, iif, oifs } => {
                take(Input::Multicast { group, source, iif, oifs: &oifs })
            }
            Self::Reserved { id, result } => take(Input::Reserved { id, result }),
            Self::PinholeOpened { id, result } => take(Input::PinholeOpened { id, result }),
            Self::FlowFound { id, translation } => take(Input::FlowFound { id, translation }),
            Self::Handover(octets) => take(Input::Handover(&octets)),
            Self::Command(command) => take(Input::Command(command)),
        }
    }
}

/// An output of a node. `E` is the node's own event type.
#[derive(Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Output<'a, E> {
    /// Send this packet.
    Transmit(Transmit<'a>),
    /// Find the route that a packet of this flow would take.
    RouteLookup {
        /// Id to return with the answer.
        id: u64,
        /// The packet whose route is needed.
        query: RouteQuery,
    },
    /// Accept streams at this port, at every address. It follows the first [`Input::Interfaces`]; after
    /// [`Input::ListenFailed`] it is repeated some time later.
    StreamListen {
        /// Transport of the listener.
        kind: StreamKind,
        /// Port of the listener.
        port: u16,
    },
    /// Open a stream.
    StreamOpen {
        /// Id of the stream. It is odd; the node chooses it and never uses an id twice.
        stream: StreamId,
        /// Transport of the stream.
        kind: StreamKind,
        /// Source address.
        local: IpAddr,
        /// Destination address.
        peer: SocketAddr,
    },
    /// Write to a stream that is connected. A write never blocks: the driver holds the octets that the kernel
    /// does not take. The node limits their number by means of [`Input::StreamDrained`].
    StreamWrite {
        /// Id of the stream.
        stream: StreamId,
        /// Octets to write.
        #[cfg_attr(feature = "serde", serde(with = "crate::octets::text"))]
        octets: &'a [u8],
    },
    /// Send a message over a connected stream of [`StreamKind::Sctp`]. As with [`Output::StreamWrite`], the
    /// driver holds the octets that the kernel does not take.
    StreamMessage {
        /// Id of the stream.
        stream: StreamId,
        /// Number of the SCTP stream. Messages of one number keep their order; the driver maps the numbers to
        /// the SCTP streams that both ends have.
        sctp_stream: u16,
        /// Lifetime of the message, after which it is abandoned if the peer supports that (PR-SCTP, RFC
        /// 3758); `None`: unlimited.
        lifetime: Option<Duration>,
        /// The whole message.
        #[cfg_attr(feature = "serde", serde(with = "crate::octets::text"))]
        octets: &'a [u8],
    },
    /// Stop or resume reading; at first reading is on. A driver that has read octets already may still
    /// deliver them.
    StreamRead {
        /// Id of the stream.
        stream: StreamId,
        /// Whether to read.
        on: bool,
    },
    /// Close a stream. The driver gives no more inputs for it.
    StreamClose {
        /// Id of the stream.
        stream: StreamId,
        /// Whether to discard the octets not yet sent and reset the connection. Otherwise they are sent
        /// first.
        abort: bool,
    },
    /// Find the multicast route of packets from `source` to `group`, and report each change of it.
    MulticastLookup {
        /// The group.
        group: IpAddr,
        /// Address of the sender.
        source: IpAddr,
    },
    /// Do not report changes of this multicast route any more.
    MulticastRelease {
        /// The group.
        group: IpAddr,
        /// Address of the sender.
        source: IpAddr,
    },
    /// Install a reservation, or change the one that has this id.
    Reserve {
        /// Id of the reservation; the node chooses it.
        id: ReservationId,
        /// The complete reservation.
        reservation: &'a Reservation,
    },
    /// Remove a reservation. It has no effect if no reservation has this id.
    Release {
        /// Id of the reservation.
        id: ReservationId,
    },
    /// Open a pinhole, change the one that has this id, or prolong it.
    OpenPinhole {
        /// Id of the pinhole.
        id: PinholeId,
        /// What it does, complete.
        pinhole: Pinhole,
        /// Time after which the kernel removes it by itself.
        lifetime: Duration,
    },
    /// Remove a pinhole, and end the flows that it let in. It has no effect if no pinhole has this id.
    ClosePinhole {
        /// Id of the pinhole.
        id: PinholeId,
    },
    /// Find out whether the kernel translates a flow already.
    FindFlow {
        /// Id of the question; the protocol chooses the key, apart from those of its pinholes.
        id: PinholeId,
        /// Packets of one direction of the flow as they arrive, with both addresses and ports.
        packets: FlowFilter,
    },
    /// An event for a user of the node.
    Event(E),
}

/// A node: all its engines behind one interface.
pub trait NodeEngine {
    /// Commands of the node's users.
    type Command;
    /// Events for the node's users.
    type Event;

    /// Handles one input at `now`.
    fn handle(&mut self, now: Time, input: Input<'_, Self::Command>);
    /// The next output, if any; its octets are valid until the next call.
    fn poll(&mut self) -> Option<Output<'_, Self::Event>>;
    /// Time at which [`Input::Timer`] is due next; `None` if no deadline is set.
    fn next_deadline(&self) -> Option<Time>;

    /// The ports of entry that the driver opens for the node. They stay the same during the node's lifetime.
    fn entries(&self) -> Vec<EntryRequest> {
        Vec::new()
    }
}

/// A network interface of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Interface {
    /// Kernel number.
    pub ifindex: IfIndex,
    /// Name, for display.
    pub name: String,
    /// Whether packets can pass.
    pub up: bool,
    /// Largest IP packet it carries, in octets.
    pub mtu: u32,
    /// Whether the interface is a tunnel: its packets travel inside other packets, and no neighbor on the
    /// same link answers.
    #[cfg_attr(feature = "serde", serde(default))]
    pub tunnel: bool,
    /// Its addresses, loopback and link-local ones included.
    pub addresses: Vec<IpAddr>,
}

/// A destination prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Prefix {
    /// Number of significant bits: 0–32 or 0–128.
    pub addr: IpAddr,
    /// Bits that count: 0–32 or 0–128.
    pub len: u8,
}

impl Prefix {
    /// The prefix of this one address.
    #[must_use]
    pub const fn host(addr: IpAddr) -> Self {
        Self { addr, len: if addr.is_ipv4() { 32 } else { 128 } }
    }

    /// Every address of the version of `addr`.
    #[must_use]
    pub const fn all_like(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(_) => Self { addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 0 },
            IpAddr::V6(_) => Self { addr: IpAddr::V6(Ipv6Addr::UNSPECIFIED), len: 0 },
        }
    }

    /// Whether `addr` is of the same IP version and its first `len` bits equal those of the prefix. A length
    /// beyond the size of the address stands for the whole address.
    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        match (self.addr, addr) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let differing = a.to_bits() ^ b.to_bits();
                differing.leading_zeros() >= u32::from(self.len.min(32))
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let differing = a.to_bits() ^ b.to_bits();
                differing.leading_zeros() >= u32::from(self.len.min(128))
            }
            _ => false,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

/// The packet whose route is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RouteQuery {
    /// Source address of the packet, if the route depends on it. It may belong to another node.
    pub src: Option<IpAddr>,
    /// Destination address.
    pub dst: IpAddr,
    /// IP protocol of the flow, if known.
    pub protocol: Option<u8>,
    /// Source port of the flow, if known.
    pub src_port: Option<u16>,
    /// Destination port of the flow, if known.
    pub dst_port: Option<u16>,
    /// TOS octet or traffic class.
    pub tos: u8,
    /// The interface by which the packets of the flow come in, if that is known: rules and multipath routes can depend on it.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub iif: Option<IfIndex>,
    /// The answer is the route that the packet would take without all routes by this interface. It does not depend on
    /// the source and the ports.
    pub without: Option<IfIndex>,
}

impl RouteQuery {
    /// A query for the route to `dst`, whatever the other fields of the packet are.
    #[must_use]
    pub const fn to(dst: IpAddr) -> Self {
        Self {
            src: None,
            dst,
            protocol: None,
            src_port: None,
            dst_port: None,
            tos: 0,
            iif: None,
            without: None,
        }
    }
}

/// A route: interface, source address and next hop of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Route {
    /// Outgoing interface.
    pub ifindex: IfIndex,
    /// This node's address on the outgoing interface.
    pub src: IpAddr,
    /// Next hop, if the destination is not on the link.
    pub gateway: Option<IpAddr>,
    /// Largest IP packet that the interface (or a known path limit) carries, in octets.
    pub mtu: u32,
    /// Whether the destination is this node.
    pub local: bool,
}

/// Reason why no route exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum NoRoute {
    /// No entry of the routing table covers the destination.
    Unreachable,
    /// An entry of the routing table forbids it.
    Prohibited,
    /// The lookup itself failed.
    Failed,
}

/// Reason why a packet was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum TransmitError {
    /// It exceeds the path's MTU, given in octets if known.
    TooBig(Option<u32>),
    /// No route, or the next hop does not answer.
    Unreachable,
    /// Any other failure; the driver counts it.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_contains_what_shares_its_bits() {
        let prefix = |text: &str, len| Prefix { addr: text.parse().unwrap(), len };
        let contains = |p: Prefix, text: &str| p.contains(text.parse().unwrap());
        assert!(contains(prefix("10.1.0.0", 16), "10.1.255.255"));
        assert!(!contains(prefix("10.1.0.0", 16), "10.2.0.0"));
        assert!(contains(prefix("fd00:1::", 32), "fd00:1:ffff::1"));
        assert!(!contains(prefix("fd00:1::", 32), "fd00:2::"));
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        assert!(Prefix::host(one).contains(one) && !contains(Prefix::host(one), "192.0.2.0"));
        assert!(Prefix::all_like(one).contains(one) && !contains(Prefix::all_like(one), "::1"));
        assert!(!contains(prefix("10.0.0.1", 200), "10.0.0.2"));
    }
}
