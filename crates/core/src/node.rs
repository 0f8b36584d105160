//! The contract between a node (the sans-IO whole) and whoever drives it.
//!
//! **Drain invariant.** After each [`NodeEngine::handle`], call [`NodeEngine::poll`] until it returns `None`,
//! then ask [`NodeEngine::next_deadline`]. Extra polls are no-ops. Time never runs backwards. A driver that
//! is asked for a route answers with [`Input::Route`] of the same id, at once or later.
//!
//! **Streams** are TCP connections, or SCTP associations of a kernel that speaks it. The driver owns the sockets and the node decides what becomes of them: each
//! one that the node opened or the driver accepted ends in exactly one of [`Input::StreamClosed`] and
//! [`Output::StreamClose`], and after either its id means nothing to the other side. A driver ignores what the
//! node says of a stream that it has just reported closed; a node ignores what the driver still had to say of
//! one that it has closed.
//!
//! **Reservations** are in the kernel, by the name that the node gave them. [`Output::Reserve`] of a name that stands
//! changes it; each one is answered by one [`Input::Reserved`], at once or later, and of several under way for one
//! name the answers come in their order. [`Output::Release`] is not answered, and what was under way for that name
//! may still be. A node that starts finds none standing; none is left when its driver stops.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

use crate::entry::{Entry, EntryRequest};
use crate::id::IfIndex;
use crate::packet::{ReceivedOf, Transmit};
use crate::time::Time;
use crate::traffic::{Reservation, ReservationId, ReserveError};

/// What comes in, borrowed: what engines take. `C` is the node's own command type.
pub type Input<'a, C> = InputOf<&'a [u8], &'a [Interface], &'a [IfIndex], C>;

/// What comes in, owned: what a recording gives.
pub type OwnedInput<C> = InputOf<Vec<u8>, Vec<Interface>, Vec<IfIndex>, C>;

/// What comes in. `O` holds octets, `L` the list of interfaces, `X` a list of interface numbers, `C` is the node's own
/// command type.
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
    /// Nothing but the time: a deadline is due.
    Timer,
    /// A packet arrived.
    Packet(ReceivedOf<O>),
    /// The node's interfaces and addresses, whole; given once at the start and again after each change.
    Interfaces(L),
    /// The answer to [`Output::RouteLookup`] of the same id.
    Route {
        /// The id that the lookup carried.
        id: u64,
        /// The route, or why there is none.
        result: Result<Route, NoRoute>,
    },
    /// Routes to these destinations may have changed.
    RouteChanged(Prefix),
    /// A packet to this destination could not be sent.
    TransmitFailed {
        /// The entry by which it was to leave.
        entry: Entry,
        /// Where it was to go.
        dst: IpAddr,
        /// Why it did not.
        error: TransmitError,
    },
    /// Somebody connected to a listener.
    StreamAccepted {
        /// Its name, even; the driver chooses it.
        stream: StreamId,
        /// What it runs over; with the port it tells which listener.
        kind: StreamKind,
        /// Our address.
        local: SocketAddr,
        /// Who connected.
        peer: SocketAddr,
    },
    /// [`Output::StreamOpen`] succeeded.
    StreamConnected {
        /// Which stream.
        stream: StreamId,
        /// Our address, with the port that was chosen.
        local: SocketAddr,
    },
    /// Octets of a stream, in order, split anyhow; never none. Of [`StreamKind::Sctp`],
    /// one whole message.
    StreamOctets {
        /// Which stream.
        stream: StreamId,
        /// What the peer wrote.
        #[cfg_attr(feature = "serde", serde(with = "crate::octets::text"))]
        octets: O,
    },
    /// What the driver holds of what was written changed: given after a write that the kernel did not take whole,
    /// and whenever it falls after that. So long as it is not given, nothing is held.
    StreamDrained {
        /// Which stream.
        stream: StreamId,
        /// Octets written that the driver still holds because the kernel's buffer is full.
        unsent: usize,
    },
    /// A stream is no more, or never came to be. What its peer wrote before has been given.
    StreamClosed {
        /// Which stream.
        stream: StreamId,
        /// Why; `None`: the peer ended it orderly.
        error: Option<StreamError>,
        /// Octets that were written may not have reached the peer.
        unacknowledged: bool,
    },
    /// [`Output::StreamListen`] failed: nobody will connect to this port.
    ListenFailed {
        /// Of which kind.
        kind: StreamKind,
        /// Which port.
        port: u16,
        /// Why.
        error: StreamError,
    },
    /// The kernel's multicast route: the answer to [`Output::MulticastLookup`], and again after each change of it.
    Multicast {
        /// The group.
        group: IpAddr,
        /// Who sends to it.
        source: IpAddr,
        /// Interface by which such packets must come in; [`IfIndex::NONE`] where the source is this node, and where
        /// there is no route.
        iif: IfIndex,
        /// Interfaces by which they go out; empty: none. Where the source is this node and forwards nothing, the
        /// one by which it sends.
        oifs: X,
    },
    /// The answer to [`Output::Reserve`] of the same id.
    Reserved {
        /// Which reservation.
        id: ReservationId,
        /// Whether it stands in the kernel as asked; if not, what stood there before stands still.
        result: Result<(), ReserveError>,
    },
    /// Somebody asks the node for something.
    Command(C),
}

impl<C> OwnedInput<C> {
    /// Hands the input to `take` in the form that engines take.
    pub fn give<T>(self, take: impl FnOnce(Input<'_, C>) -> T) -> T {
        match self {
            Self::Timer => take(Input::Timer),
            Self::Packet(packet) => take(Input::Packet(packet.as_received())),
            Self::Interfaces(interfaces) => take(Input::Interfaces(&interfaces)),
            Self::Route { id, result } => take(Input::Route { id, result }),
            Self::RouteChanged(prefix) => take(Input::RouteChanged(prefix)),
            Self::TransmitFailed { entry, dst, error } => take(Input::TransmitFailed { entry, dst, error }),
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
            Self::Command(command) => take(Input::Command(command)),
        }
    }
}

/// What goes out. `E` is the node's own event type.
#[derive(Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Output<'a, E> {
    /// Send this packet.
    Transmit(Transmit<'a>),
    /// Find the route that a packet of this flow would take.
    RouteLookup {
        /// To be given back with the answer.
        id: u64,
        /// Which packet.
        query: RouteQuery,
    },
    /// Accept streams at this port, at every address. Said after the first [`Input::Interfaces`], and again some
    /// time after [`Input::ListenFailed`].
    StreamListen {
        /// Of which kind.
        kind: StreamKind,
        /// Which port.
        port: u16,
    },
    /// Open a stream.
    StreamOpen {
        /// Its name, odd; the node chooses it and takes none twice.
        stream: StreamId,
        /// What it shall run over.
        kind: StreamKind,
        /// Source address.
        local: IpAddr,
        /// Where to.
        peer: SocketAddr,
    },
    /// Write to a stream that is connected. It never blocks: the driver holds what the kernel does not take,
    /// and the node bounds that by [`Input::StreamDrained`].
    StreamWrite {
        /// Which stream.
        stream: StreamId,
        /// What to write.
        #[cfg_attr(feature = "serde", serde(with = "crate::octets::text"))]
        octets: &'a [u8],
    },
    /// Send a message over a stream of [`StreamKind::Sctp`] that is connected. As with [`Output::StreamWrite`], the
    /// driver holds what the kernel does not take.
    StreamMessage {
        /// Which stream.
        stream: StreamId,
        /// Messages of one lane keep their order; the driver folds lanes onto the SCTP streams that both ends have.
        lane: u16,
        /// Given up after so long, if the peer can do that (PR-SCTP, RFC 3758); `None`: never.
        lifetime: Option<Duration>,
        /// The message, whole.
        #[cfg_attr(feature = "serde", serde(with = "crate::octets::text"))]
        octets: &'a [u8],
    },
    /// Stop or go on reading, on at first. A driver that has read already may still give a little.
    StreamRead {
        /// Which stream.
        stream: StreamId,
        /// Whether to read.
        on: bool,
    },
    /// The node is done with a stream; the driver says nothing more of it.
    StreamClose {
        /// Which stream.
        stream: StreamId,
        /// Drop what was written and reset the connection; otherwise what was written goes out first.
        abort: bool,
    },
    /// Find the multicast route of packets from `source` to `group`, and tell whenever it changes.
    MulticastLookup {
        /// The group.
        group: IpAddr,
        /// Who sends to it.
        source: IpAddr,
    },
    /// Install a reservation, or change the one that has this id.
    Reserve {
        /// Its name; the node chooses it.
        id: ReservationId,
        /// What it shall be, whole.
        reservation: &'a Reservation,
    },
    /// Remove a reservation. Nothing happens if there is none.
    Release {
        /// Which one.
        id: ReservationId,
    },
    /// Something that a user of the node waits for.
    Event(E),
}

/// A node: every engine of the suite behind one door.
pub trait NodeEngine {
    /// What users ask of it.
    type Command;
    /// What it tells users.
    type Event;

    /// Takes one input at `now`.
    fn handle(&mut self, now: Time, input: Input<'_, Self::Command>);
    /// The next output, if any; its octets live until the next call.
    fn poll(&mut self) -> Option<Output<'_, Self::Event>>;
    /// When [`Input::Timer`] is due next; `None` while nothing waits.
    fn next_deadline(&self) -> Option<Time>;

    /// The ports of entry that its driver opens for it, the same as long as it lives.
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
    /// Name, for people.
    pub name: String,
    /// Whether packets can pass.
    pub up: bool,
    /// Largest IP packet it carries, in octets.
    pub mtu: u32,
    /// What it carries goes on inside other packets: no neighbour at the other end of a link answers for it.
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
    /// Network address.
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

    /// Whether `addr` is of this version and its first `len` bits are those of the prefix. A length beyond the
    /// address stands for all of it.
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

/// Which packet's route is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RouteQuery {
    /// Source address of the packet, if it matters; it may belong to another node.
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
}

impl RouteQuery {
    /// The route to `dst`, whatever else the packet says.
    #[must_use]
    pub const fn to(dst: IpAddr) -> Self {
        Self { src: None, dst, protocol: None, src_port: None, dst_port: None, tos: 0 }
    }
}

/// Where a packet would go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Route {
    /// Interface it would leave by.
    pub ifindex: IfIndex,
    /// This node's address on the way out.
    pub src: IpAddr,
    /// Next hop, if the destination is not on the link.
    pub gateway: Option<IpAddr>,
    /// Largest IP packet that the interface (or a known path limit) carries, in octets.
    pub mtu: u32,
    /// The destination is this node.
    pub local: bool,
}

/// Why there is no route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum NoRoute {
    /// No entry covers the destination.
    Unreachable,
    /// An entry forbids it.
    Prohibited,
    /// The lookup itself failed.
    Failed,
}

/// Why a datagram was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum TransmitError {
    /// It exceeds the path's MTU, given in octets if known.
    TooBig(Option<u32>),
    /// No route, or the next hop does not answer.
    Unreachable,
    /// Anything else; counted by the driver.
    Other,
}

/// The name of a stream, never used twice: odd for those that the node opens, even for those that the
/// driver accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StreamId(pub u64);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.0)
    }
}

/// What a stream runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum StreamKind {
    /// A TCP connection: octets, written by [`Output::StreamWrite`].
    #[default]
    Tcp,
    /// An SCTP association of the kernel: messages, sent by [`Output::StreamMessage`].
    Sctp,
}

impl StreamKind {
    /// As people call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Sctp => "SCTP",
        }
    }
}

/// Why a stream failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum StreamError {
    /// The peer's host answered, but nobody listens there.
    Refused,
    /// The peer or its host tore the connection down.
    Reset,
    /// The peer did not answer in time.
    TimedOut,
    /// No route, or a router said that the peer cannot be reached.
    Unreachable,
    /// Somebody else has the port.
    AddressInUse,
    /// Anything else; the driver counts or logs it.
    Other,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection refused",
            Self::Reset => "connection reset",
            Self::TimedOut => "connection timed out",
            Self::Unreachable => "unreachable",
            Self::AddressInUse => "address in use",
            Self::Other => "failed",
        })
    }
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
