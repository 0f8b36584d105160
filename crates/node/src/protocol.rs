//! What a protocol is to the node that composes it.
//!
//! A protocol is an engine behind [`Protocol`]. The node gives it what it takes of the driver's inputs, and asks it for
//! outputs until it has none. What a protocol does not take it leaves to the default of the trait.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use signalbox_core::Counter;
use signalbox_core::handover::Entries;
use signalbox_core::metrics::Gauge;
use signalbox_core::node::{
    Interface, NoRoute, Output, Prefix, Route, StreamError, StreamId, StreamKind, TransmitError,
};
use signalbox_core::packet::Received;
use signalbox_core::pinhole::{OpenerId, PinholeError, PinholeId, Translation};
use signalbox_core::rng::Random;
use signalbox_core::service::{Indication, Request};
use signalbox_core::{Changes, Entry, EntryRequest, IfIndex, NslpId, ReserverId, SessionChange, Time};
use signalbox_resources::{GrantId, LostWhy, Resources};

use crate::config::ConfigError;
use crate::protocols::{Event, ProtocolId};
use crate::routes::LookupsOf;

/// What a protocol works with while it handles one input.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    /// The time of the input.
    pub(crate) now: Time,
    /// Admission control of the node.
    pub(crate) resources: &'a mut Resources,
}

/// The kernel's multicast route of one source and group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MulticastRoute<'a> {
    pub(crate) group: IpAddr,
    pub(crate) source: IpAddr,
    /// Interface by which the packets must come in.
    pub(crate) iif: IfIndex,
    /// Interfaces by which they go out.
    pub(crate) oifs: &'a [IfIndex],
}

/// What happened to a stream of the protocol, or to a port that it listens at.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StreamInput<'a> {
    Accepted { stream: StreamId, kind: StreamKind, local: SocketAddr, peer: SocketAddr },
    Connected { stream: StreamId, local: SocketAddr },
    Octets { stream: StreamId, octets: &'a [u8] },
    Drained { stream: StreamId, unsent: usize },
    Closed { stream: StreamId, error: Option<StreamError>, unacknowledged: bool },
    ListenFailed { kind: StreamKind, port: u16 },
}

/// Admission control took something from the owner of a grant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GrantInput {
    /// The grant is no more.
    Lost { key: u64, grant: GrantId, why: LostWhy },
    /// A part of the grant was taken for a stronger request (RFC 4495).
    Reduced { key: u64, grant: GrantId, rate: u64 },
}

/// How much state a protocol has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    /// Sessions.
    pub sessions: u32,
    /// Peers or neighbours, if the protocol keeps them.
    pub peers: Option<u32>,
}

/// Who takes the next output of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The driver: [`Protocol::poll`] gives the output.
    Driver,
    /// GIST: [`Protocol::pass`] gives it a request.
    Gist,
    /// The signaling application of this number: [`Protocol::pass`] gives it an indication.
    Application(NslpId),
    /// There is no output yet, but the protocol did something that counts as an exchange: ask again.
    Worked,
}

/// A protocol that the node runs.
///
/// Outputs are taken in two steps, so that octets are lent without a copy: [`Protocol::next`] names who takes the next
/// output, then [`Protocol::poll`] gives it to the driver, or [`Protocol::pass`] to another protocol.
pub(crate) trait Protocol: fmt::Debug {
    /// Nothing but the time: a deadline is due.
    fn timer(&mut self, cx: &mut Context<'_>);

    /// The interfaces of the node, whole; given at the start and after each change.
    fn interfaces(&mut self, cx: &mut Context<'_>, interfaces: &[Interface]);

    /// The wall clock was corrected: microseconds since 1970 at [`Time::ZERO`].
    fn set_wall_clock(&mut self, _wall_clock_us: u64) {}

    /// The rules of admission control changed. It judges again what it holds by them, beside reservations.
    fn rules(&mut self, _: &mut Context<'_>) {}

    /// The speeds of links that the kernel knows, in octets a second; given after interfaces have changed.
    fn link_speeds(&mut self, _: &mut Context<'_>, _: &[(IfIndex, u64)]) {}

    /// Whether it takes this packet, which arrived by a port of entry that it shares with another protocol.
    fn takes(&self, _now: Time, _: &Received<'_>) -> bool {
        true
    }

    /// Whether [`Protocol::prepare`] is worth its time: the protocol has more state than the caches hold.
    fn is_large(&self) -> bool {
        false
    }

    /// Reads the state that packets will need which the node gives it next, so that they wait for memory at the same time. It
    /// changes nothing. Each has its port of entry and its octets, as the driver has them.
    fn prepare(&self, _: &[(Entry, &[u8])]) {}

    /// A packet arrived by a port of entry of this protocol.
    fn packet(&mut self, _: &mut Context<'_>, _: Received<'_>) {}

    /// A packet to this destination could not be sent by a port of entry of this protocol.
    fn transmit_failed(&mut self, _: &mut Context<'_>, _: Entry, _: IpAddr, _: TransmitError) {}

    /// ICMP reported that a packet of a port of entry of this protocol cannot be delivered. It quotes a part of the payload.
    fn undeliverable(&mut self, _: &mut Context<'_>, _quoted: &[u8]) {}

    /// The answer to a route lookup of this protocol.
    fn route(&mut self, _: &mut Context<'_>, _id: u64, _: Result<Route, NoRoute>) {}

    /// Routes to these destinations may have changed.
    fn route_changed(&mut self, _: &mut Context<'_>, _: Prefix) {}

    /// Another router may have the place of this neighbour, at the same address of the same link.
    fn neighbour_moved(&mut self, _: &mut Context<'_>, _: IfIndex, _: IpAddr) {}

    /// A multicast route, looked up or changed.
    fn multicast(&mut self, _: &mut Context<'_>, _: MulticastRoute<'_>) {}

    /// Something happened to a stream of this protocol: one that it opened, under an odd number that it chose itself, or
    /// one that a peer opened to a port at which it listens.
    fn stream(&mut self, _: &mut Context<'_>, _: StreamInput<'_>) {}

    /// The owner that it gives its reservations; `None`: it makes no reservations.
    fn reserver(&self) -> Option<ReserverId> {
        None
    }

    /// Something happened to a grant of this protocol.
    fn grant(&mut self, _: &mut Context<'_>, _: GrantInput) {}

    /// The owner that it gives its pinholes; `None`: it opens no pinholes.
    fn opener(&self) -> Option<OpenerId> {
        None
    }

    /// The kernel's answer to a pinhole of this protocol.
    fn pinhole(&mut self, _: &mut Context<'_>, _: PinholeId, _: Result<(), PinholeError>) {}

    /// How the kernel translates a flow that this protocol asked about.
    fn flow(&mut self, _: &mut Context<'_>, _: PinholeId, _: Option<Translation>) {}

    /// GIST has something for this signaling application (RFC 5971 Appendix B).
    fn indication(&mut self, _: &mut Context<'_>, _: Indication<'_>) {}

    /// A signaling application asks for something. Only GIST takes it.
    fn request(&mut self, _: &mut Context<'_>, _: Request<'_>) {}

    /// A signaling application of this number runs inside of the node. Only GIST takes it.
    fn register(&mut self, _: NslpId) {}

    /// The node stops: neighbors are told of what ends with it. `handed_over`: the next node gets what [`Self::hand_over`] wrote.
    fn stop(&mut self, _: &mut Context<'_>, _handed_over: bool) {}

    /// The node stops: records the end of passages, from a place in their table on. `left`: not of those that
    /// [stay](Self::leaves). The result is the place that follows.
    fn record_stop(&self, _: &mut Context<'_>, _from: u32, _left: bool) -> Option<u32> {
        None
    }

    /// Writes what the node that starts in place of this one needs, when this one ends as planned.
    fn hand_over(&self, _now: Time, _: &mut Entries) {}

    /// Whether a pinhole stays in the kernel for the node that starts in place of this one, because [`Protocol::hand_over`] has
    /// written what it is for.
    fn leaves(&self, _: PinholeId) -> bool {
        false
    }

    /// Takes what the protocol of the node before this one wrote.
    fn take_over(&mut self, _: &mut Context<'_>, _: Entries) {}

    /// Who takes the next output; `None`: there is none. An answer other than [`Next::Worked`] stands until
    /// [`Protocol::poll`], [`Protocol::pass`] or the next input.
    fn next(&mut self, cx: &mut Context<'_>) -> Option<Next>;

    /// The next output, which is the driver's. Its octets are valid until the next call. The identifier of a route lookup is
    /// one that `lookups` gave.
    fn poll(&mut self, lookups: LookupsOf<'_>) -> Option<Output<'_, Event>>;

    /// Gives the next output to the protocol that takes it. Only GIST and its signaling applications do that.
    fn pass(&mut self, _: &mut Context<'_>, _to: &mut dyn Protocol) {}

    /// No protocol has an output: what was held back to leave together is queued now. True if there was something.
    fn flush(&mut self) -> bool {
        false
    }

    /// When [`Protocol::timer`] is due; `None` while nothing waits.
    fn next_deadline(&self) -> Option<Time>;

    /// How much state it has. It costs the same whatever the answer is.
    fn size(&self) -> Size;

    /// The list of its sessions that appear and disappear; `None`: it has no sessions that can be watched.
    fn changes(&mut self) -> Option<&mut Changes<SessionChange>> {
        None
    }

    /// Appends its counters.
    fn counters(&self, to: &mut Vec<Counter>);

    /// Appends its gauges. It must not walk a table.
    fn gauges(&self, _: &mut Vec<Gauge>) {}
}

/// What a protocol is made with, apart from its settings.
#[derive(Debug)]
pub(crate) struct Setup {
    /// The protocol's own identifier.
    pub(crate) id: ProtocolId,
    /// Microseconds since 1970 at [`Time::ZERO`].
    pub(crate) wall_clock_us: u64,
    /// The smallest capacity that a link is configured with, in octets per second; 0: none is.
    pub(crate) slowest_link: u64,
    /// The numbers of the signaling applications of the node.
    pub(crate) applications: Vec<NslpId>,
    /// The ports at which the node listens, for datagrams and streams.
    pub(crate) ports: Vec<u16>,
    /// Seeds are drawn from it.
    pub(crate) rng: Random,
}

/// What the table of protocols needs of each: its types, and how it is made.
pub(crate) trait Composed: Protocol + Sized {
    /// Its settings.
    type Config;
    /// What users ask of it.
    type Command;
    /// What it reports to users.
    type Event;

    /// Checks every range of the settings.
    fn validate(config: &Self::Config) -> Result<(), ConfigError>;

    /// The numbers of signaling applications that it will have with these settings.
    fn claims(_: &Self::Config) -> Vec<NslpId> {
        Vec::new()
    }

    /// The ports at which it listens for streams with these settings.
    fn ports(_: &Self::Config) -> Vec<u16> {
        Vec::new()
    }

    /// The ports of entry that it needs with these settings.
    fn entries(_: &Self::Config) -> Vec<EntryRequest> {
        Vec::new()
    }

    /// A protocol without state.
    fn new(config: Self::Config, setup: &mut Setup) -> Result<Self, ConfigError>;

    /// Takes what it can of other settings: limits and rates, keys, certificates and revocation lists. The others stay, and
    /// need a restart.
    fn reload(&mut self, _: Time, _: Self::Config) {}

    /// A user asks for something. `id` comes back with each event.
    fn command(&mut self, cx: &mut Context<'_>, id: u64, command: Self::Command);

    /// What a user gets who asks for something on a node that does not run the protocol; `None`: nothing.
    fn not_running(command: &Self::Command) -> Option<Self::Event>;
}
