//! What a protocol is to the node that composes it.
//!
//! A protocol is an engine behind [`Protocol`], which the loop of the node uses, and [`Composed`], by which it is made and
//! has types of its own. The node gives it inputs by [`Protocol::handle`]. Then it asks for outputs until no protocol has one:
//! [`Protocol::next`] names who takes the next output, and [`Composed::poll`] gives it to the driver, or [`Protocol::pass`]
//! to another protocol. Then it asks [`Protocol::next_deadline`].
//!
//! No method has a default. What a protocol does not take it says: its match over [`Input`] names each variant, and each
//! other method says what does not apply, such as `false` for [`Protocol::takes`]. A new variant or method is an error of the
//! compiler in each protocol.
//!
//! A protocol of another crate runs in a node by [`Extended`](crate::Extended), alone or with protocols of the suite.
//! `examples/trail` is such a crate.
//!
//! **Contract.** A protocol does no I/O, has no clock and draws no random numbers but from [`Setup::rng`]: the same inputs
//! at the same times give the same outputs. Input of the network never panics. No method can fail: what is wrong with an input is
//! counted, or reported by an event. Only settings are refused, with [`ConfigError`]. Times are [`Time`], which
//! never runs backwards. Rates are in octets a second. Wall-clock times are in microseconds since 1970.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use signalbox_core::handover::Entries;
use signalbox_core::metrics::Gauge;
use signalbox_core::node::{
    Interface, NoRoute, Output, Prefix, Route, StreamError, StreamId, StreamKind, TransmitError,
};
use signalbox_core::packet::Received;
use signalbox_core::pinhole::{OpenerId, PinholeError, PinholeId, Translation};
use signalbox_core::rng::Random;
use signalbox_core::service::{Indication, Request};
use signalbox_core::{
    Changes, Counter, Entry, EntryRequest, IfIndex, NslpId, ReserverId, SessionChange, Time,
};
use signalbox_natfw::engine::{HostEvent, HostRequest};
use signalbox_resources::{GrantId, LostWhy, Resources};

use crate::config::ConfigError;
use crate::protocols::ProtocolId;
pub use crate::routes::ProtocolLookups;

/// What a protocol works with while it handles one input.
#[derive(Debug)]
pub struct Context<'a> {
    /// The time of the input.
    pub now: Time,
    /// Admission control of the node.
    pub resources: &'a mut Resources,
}

/// An input of a protocol: one of the driver, of admission control, or of another protocol.
///
/// Inputs without another word in their documentation come to each protocol of the node.
#[derive(Debug)]
pub enum Input<'a> {
    /// A deadline of the node is due, of this protocol or of another one.
    Timer,
    /// The interfaces of the node, whole; given at the start and after each change.
    Interfaces(&'a [Interface]),
    /// The wall clock was corrected: microseconds since 1970 at [`Time::ZERO`].
    WallClock(u64),
    /// The rules of admission control changed. The protocol judges again what it holds by them, beside reservations.
    Rules,
    /// The speeds of links that the kernel knows, in octets a second; given after interfaces have changed.
    LinkSpeeds(&'a [(IfIndex, u64)]),
    /// A packet arrived by a port of entry of this protocol.
    Packet(Received<'a>),
    /// A packet could not be sent by a port of entry of this protocol. Of an entry that two protocols share, this and
    /// [`Input::Undeliverable`] come to the one that did not ask for [sharing](EntryRequest::shared).
    TransmitFailed {
        /// The port of entry.
        entry: Entry,
        /// Destination of the packet.
        dst: IpAddr,
        /// Reason of the failure.
        error: TransmitError,
    },
    /// ICMP reported that a packet of a port of entry of this protocol cannot be delivered. It comes for entries that ask for
    /// [reports](EntryRequest::reports). Anybody can forge it.
    Undeliverable {
        /// The part of the payload that the report quotes.
        quoted: &'a [u8],
    },
    /// The answer to a route lookup of this protocol.
    Route {
        /// The protocol's identifier of the lookup.
        id: u64,
        /// The route, or the reason why no route exists.
        result: Result<Route, NoRoute>,
    },
    /// Routes to these destinations may have changed.
    RouteChanged(Prefix),
    /// Another router may have the place of a neighbor, at the same address of the same link. Anybody on the link can forge it.
    NeighborMoved {
        /// The link.
        ifindex: IfIndex,
        /// Address of the neighbor.
        address: IpAddr,
    },
    /// A multicast route, looked up by this protocol or another one, or changed.
    Multicast(MulticastRoute<'a>),
    /// Something happened to a stream of this protocol: one that it opened, under an odd number that it chose itself, or
    /// one that a peer opened to a port at which it listens.
    Stream(StreamInput<'a>),
    /// Admission control took something from a grant whose owner has the [`Owners::reserver`] of this protocol.
    Grant(GrantInput),
    /// The kernel's answer to a pinhole that this protocol asked for.
    PinholeOpened {
        /// The pinhole.
        id: PinholeId,
        /// Whether the kernel has it as requested.
        result: Result<(), PinholeError>,
    },
    /// How the kernel translates a flow that this protocol asked about.
    FlowFound {
        /// The question.
        id: PinholeId,
        /// `None`: the kernel does not know the flow, or does not translate it.
        translation: Option<Translation>,
    },
    /// GIST has something for the signaling application that this protocol is (RFC 5971 Appendix B).
    Indication(Indication<'a>),
    /// A signaling application asks GIST for something (RFC 5971 Appendix B). Only GIST gets it.
    Request(Request<'a>),
    /// The front end of hosts that do not signal asks for something in the place of one. Only NATFW gets it.
    HostRequest {
        /// The front end's identifier of what it asks for.
        id: u64,
        /// What is to stand; `None`: nothing any more.
        request: Option<HostRequest>,
    },
    /// What becomes of such a request. Only the front end gets it.
    HostEvent {
        /// The front end's identifier of what it asked for.
        id: u64,
        /// What happened.
        event: HostEvent,
    },
    /// What [`Restart::hand_over`] of the protocol with this name wrote in the node before this one.
    Handover(Entries),
    /// The node stops. The protocol reports to neighbors what ends with the node.
    Stop {
        /// The next node gets what [`Restart::hand_over`] wrote.
        handed_over: bool,
    },
}

/// The kernel's multicast route of one source and group.
#[derive(Debug, Clone, Copy)]
pub struct MulticastRoute<'a> {
    /// The group.
    pub group: IpAddr,
    /// Address of the sender.
    pub source: IpAddr,
    /// Interface by which the packets must come in; [`IfIndex::NONE`] if the source is this node, or there is no route.
    pub iif: IfIndex,
    /// Interfaces by which they go out.
    pub oifs: &'a [IfIndex],
}

/// What happened to a stream of the protocol, or to a port that it listens at.
#[derive(Debug, Clone, Copy)]
pub enum StreamInput<'a> {
    /// A peer connected.
    Accepted {
        /// Number of the stream, which the driver chose.
        stream: StreamId,
        /// Its transport.
        kind: StreamKind,
        /// Local address.
        local: SocketAddr,
        /// Address of the peer.
        peer: SocketAddr,
    },
    /// A stream that this protocol opened is connected.
    Connected {
        /// Number of the stream.
        stream: StreamId,
        /// Local address, with the port that the kernel chose.
        local: SocketAddr,
    },
    /// Octets that the peer wrote, in order, at least one; with SCTP, one whole message.
    Octets {
        /// Number of the stream.
        stream: StreamId,
        /// The octets.
        octets: &'a [u8],
    },
    /// The number of octets that the driver holds now, after all writes so far.
    Drained {
        /// Number of the stream.
        stream: StreamId,
        /// Octets that were written and that the kernel did not take yet.
        unsent: usize,
    },
    /// The stream has ended, or could not be opened.
    Closed {
        /// Number of the stream.
        stream: StreamId,
        /// Reason; `None`: the peer closed it normally.
        error: Option<StreamError>,
        /// Whether octets that were written may not have reached the peer.
        unacknowledged: bool,
    },
    /// No peer can connect to a port.
    ListenFailed {
        /// Transport of the listener.
        kind: StreamKind,
        /// Its port.
        port: u16,
    },
}

/// Admission control took something from the owner of a grant.
#[derive(Debug, Clone, Copy)]
pub enum GrantInput {
    /// The grant is no more.
    Lost {
        /// The key that the protocol gave with its request.
        key: u64,
        /// The grant.
        grant: GrantId,
        /// Why it ended.
        why: LostWhy,
    },
    /// A part of the grant was taken for a stronger request (RFC 4495). It comes for requests that allow it.
    Reduced {
        /// The key that the protocol gave with its request.
        key: u64,
        /// The grant.
        grant: GrantId,
        /// The rate that is left, in octets a second.
        rate: u64,
    },
}

/// How much state a protocol has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    /// Sessions.
    pub sessions: u32,
    /// Peers or neighbors, if the protocol keeps them.
    pub peers: Option<u32>,
}

/// Who takes the next output of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The driver: [`Composed::poll`] gives the output.
    Driver,
    /// GIST: [`Protocol::pass`] gives it a request. Only a protocol that has [`Needs::applications`] answers this: its node has GIST.
    Gist,
    /// The signaling application of this number: [`Protocol::pass`] gives it an indication. Only GIST answers this.
    Application(NslpId),
    /// This protocol of the suite, which is no signaling application of the one that answers: [`Protocol::pass`] gives it
    /// [`Input::HostRequest`] or [`Input::HostEvent`]. Only NATFW and the front end of hosts that do not signal answer this, each
    /// names the other one, and a node that runs the front end runs both.
    Protocol(ProtocolId),
    /// There is no output yet, but the protocol did something that counts as an exchange: ask again.
    Worked,
}

/// The names under which a protocol owns things of the node. No two protocols of a node have the same: what the kernel and
/// admission control answer goes to the first one. Numbers from 240 belong to no protocol of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owners {
    /// The owner that it gives its reservations; `None`: it makes no reservations.
    pub reserver: Option<ReserverId>,
    /// The owner that it gives its pinholes; `None`: it opens no pinholes.
    pub opener: Option<OpenerId>,
}

impl Owners {
    /// A protocol that makes no reservations and opens no pinholes.
    pub const NEITHER: Self = Self { reserver: None, opener: None };
}

/// A protocol that the node runs, as the loop of the node sees it.
///
/// Outputs are taken in two steps, so that octets are lent without a copy: [`Protocol::next`] names who takes the next
/// output, then [`Composed::poll`] gives it to the driver, or [`Protocol::pass`] to another protocol.
pub trait Protocol: fmt::Debug {
    /// Handles one input. What the protocol does not take it names in its match, and ignores.
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>);

    /// Whether it takes this packet, which arrived by a port of entry that it shares with another protocol
    /// ([`EntryRequest::shared`]). A protocol that shares no entry is not asked; it answers `true`.
    fn takes(&self, now: Time, packet: &Received<'_>) -> bool;

    /// Reads the state that packets will need which the node gives it next, so that they wait for memory at the same time. It
    /// changes nothing. Each has its port of entry and its octets, as the driver has them. Without packets it only answers.
    ///
    /// False: its state fits into the caches, and it read nothing.
    fn prepare(&self, packets: &[(Entry, &[u8])]) -> bool;

    /// The names under which it owns things. They stay the same.
    fn owners(&self) -> Owners;

    /// What it leaves when the node stops; `None`: nothing, its state comes back with the messages of its neighbors.
    fn restart(&self) -> Option<&dyn Restart>;

    /// Who takes the next output; `None`: there is none. An answer other than [`Next::Worked`] stands until
    /// [`Composed::poll`], [`Protocol::pass`] or the next input.
    fn next(&mut self, cx: &mut Context<'_>) -> Option<Next>;

    /// Gives the next output to the protocol that takes it, by [`Protocol::handle`] with [`Input::Request`] or
    /// [`Input::Indication`], or as [`Next::Protocol`] says. Only who answers [`Next::Gist`], [`Next::Application`] or
    /// [`Next::Protocol`] is asked.
    fn pass(&mut self, cx: &mut Context<'_>, to: &mut dyn Protocol);

    /// No protocol has an output: what was held back to leave together is queued now. True if [`Protocol::next`] has an output now.
    fn flush(&mut self) -> bool;

    /// When [`Input::Timer`] is due; `None` while nothing waits.
    fn next_deadline(&self) -> Option<Time>;

    /// How much state it has. It costs the same whatever the answer is. Only a node of the suite alone is asked for it.
    fn size(&self) -> Size;

    /// The list of its sessions that appear and disappear; `None`: it has no sessions that can be watched. Only a node of the suite
    /// alone has a watch.
    fn changes(&mut self) -> Option<&mut Changes<SessionChange>>;

    /// Appends its counters.
    fn counters(&self, to: &mut Vec<Counter>);

    /// Appends its gauges. It must not walk a table.
    fn gauges(&self, to: &mut Vec<Gauge>);
}

/// What a protocol leaves when its node stops.
pub trait Restart {
    /// Writes what the node that starts in place of this one needs, when this one ends as planned. It may walk over all state.
    fn hand_over(&self, now: Time, to: &mut Entries);

    /// Whether a pinhole stays in the kernel for the node that starts in place of this one, because [`Restart::hand_over`] has
    /// written what it is for. A protocol that opens no pinholes is not asked; it answers `false`.
    fn leaves(&self, id: PinholeId) -> bool;

    /// Records the end of passages, from a place in their table on. `left`: not of those that [stay](Self::leaves). The result
    /// is the place that follows; `None`: there are no more, or the protocol has no passages.
    fn record_stop(&self, cx: &mut Context<'_>, from: u32, left: bool) -> Option<u32>;
}

/// What a protocol is made with, apart from its settings.
#[derive(Debug)]
pub struct Setup {
    /// Microseconds since 1970 at [`Time::ZERO`].
    pub wall_clock_us: u64,
    /// The smallest capacity that a link is configured with, in octets a second; 0: none is.
    pub slowest_link: u64,
    /// The numbers of the signaling applications of the node.
    pub applications: Vec<NslpId>,
    /// The ports at which the node listens, for datagrams and streams.
    pub ports: Vec<u16>,
    /// Seeds are drawn from it.
    pub rng: Random,
}

/// What a protocol needs of the node and its driver with certain settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// The numbers of signaling applications of GIST that it is. The node then needs GIST.
    pub applications: Vec<NslpId>,
    /// The ports at which it listens for streams. No other protocol may listen there.
    pub ports: Vec<u16>,
    /// The ports of entry by which its packets come in and leave.
    pub entries: Vec<EntryRequest>,
}

impl Needs {
    /// The needs of signaling applications: GIST has the packets.
    #[must_use]
    pub const fn of_applications(applications: Vec<NslpId>) -> Self {
        Self { applications, ports: Vec::new(), entries: Vec::new() }
    }
}

/// A protocol with its types, and how it is made.
pub trait Composed: Protocol + Sized {
    /// Its name in log lines and in what [`Restart::hand_over`] wrote: lower case. No two protocols of a node have one name.
    const NAME: &'static str;

    /// Its settings.
    type Config;
    /// What users ask of it.
    type Command;
    /// What it reports to users.
    type Event;

    /// Checks every range of the settings.
    ///
    /// # Errors
    /// The first setting that is out of its range; a protocol of another crate says it by [`ConfigError::Other`].
    fn validate(config: &Self::Config) -> Result<(), ConfigError>;

    /// What it needs with these settings, also with those that [`Self::validate`] refuses. The answer for the same settings is the
    /// same.
    fn needs(config: &Self::Config) -> Needs;

    /// A protocol without state.
    ///
    /// # Errors
    /// A setting that [`Self::validate`] refuses, and keys or certificates that cannot be used.
    fn new(config: Self::Config, setup: &mut Setup) -> Result<Self, ConfigError>;

    /// Takes what it can of other settings: limits and rates, keys, certificates and revocation lists. The others stay, and
    /// need a restart.
    fn reload(&mut self, now: Time, config: Self::Config);

    /// A user asks for something. `id` comes back with each event.
    fn command(&mut self, cx: &mut Context<'_>, id: u64, command: Self::Command);

    /// The next output, which is the driver's. Its octets are valid until the next call. The identifier of a route lookup is
    /// one that `lookups` gave; `event` makes the event of the node, of the identifier of the command and the event of the protocol.
    ///
    /// It is called after [`Next::Driver`] only, and then gives an output: `None` would end the outputs of all protocols until the
    /// next input. [`Output::Reserve`] and [`Output::Release`] are those of [`Context::resources`]: no protocol gives them. It listens
    /// by [`Output::StreamListen`] at its [`Needs::ports`]. Streams that it opens have odd numbers below 2^56, each used once.
    fn poll<E>(
        &mut self,
        lookups: ProtocolLookups<'_>,
        event: impl FnOnce(u64, Self::Event) -> E,
    ) -> Option<Output<'_, E>>;

    /// What a user gets who asks for something on a node that does not run the protocol; `None`: nothing.
    fn not_running(command: &Self::Command) -> Option<Self::Event>;
}
