//! RSVP (RFC 2205).

use core::net::IpAddr;

use signalbox_core::Counter;
use signalbox_core::handover::Entries;
use signalbox_core::metrics::{Gauge, PEERS, SESSIONS, Subsystem};
use signalbox_core::node::{Interface, NoRoute, Output, Prefix, Route};
use signalbox_core::packet::{ROUTER_ALERT_RSVP_V6, Received, Transmit};
use signalbox_core::{
    AlertRule, Changes, Entry, EntryRequest, IfIndex, Intercept, Interfaces, Match, ReserverId,
    SessionChange, Time, Unproved,
};
use signalbox_rsvp::engine::neighbour;
pub(super) use signalbox_rsvp::engine::{Command, Config};
use signalbox_rsvp::engine::{Input, InterfaceConfig, Output as Out, PROTOCOL, Refused, Rsvp, RsvpEvent};

use crate::config::ConfigError;
use crate::protocol::{Composed, Context, GrantInput, MulticastRoute, Next, Protocol, Setup, Size};
use crate::routes::LookupsOf;

/// IP protocol 46 (RFC 2205 §3.3).
const ENTRY: Entry = Entry::Ip(46);
/// UDP port of replies to a diagnosis: IANA's for RSVP.
const REPLIES: Entry = Entry::Udp(3455);

/// Boxed, since it is much larger than the events of other protocols.
pub(super) type Event = Box<RsvpEvent>;

/// The messages that make or end state: Path, Resv, PathTear, ResvTear, Bundle, Srefresh.
const MAKE_STATE: [u32; 6] = [1, 2, 5, 6, 12, 15];

/// The messages whose source has to be where they come from: a Path has that of the sender, the others that of a hop.
fn unproved(config: &Config) -> Unproved {
    let compared = |own: &neighbour::Interface| {
        !own.trust.any_source && !own.trust.distant_hops && !own.integrity.receiving
    };
    let everywhere = &config.neighbours.interface;
    let named = |(name, own): (&String, &InterfaceConfig)| {
        (name.clone(), compared(own.neighbours.as_ref().unwrap_or(everywhere)))
    };
    let of_type = |kind: u32| Match { offset: 0, mask: 0x00ff_0000, value: kind << 16 };
    Unproved {
        matches: MAKE_STATE.map(of_type).to_vec(),
        at: Interfaces { named: config.interfaces.iter().map(named).collect(), others: compared(everywhere) },
    }
}

/// RSVP, as the node runs it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) engine: Rsvp,
}

impl Protocol for Instance {
    fn set_wall_clock(&mut self, wall_clock_us: u64) {
        self.engine.set_wall_clock(wall_clock_us);
    }

    fn timer(&mut self, cx: &mut Context<'_>) {
        self.engine.handle(cx.now, Input::Timer, cx.resources);
    }

    fn interfaces(&mut self, cx: &mut Context<'_>, interfaces: &[Interface]) {
        self.engine.handle(cx.now, Input::Interfaces(interfaces), cx.resources);
    }

    fn packet(&mut self, cx: &mut Context<'_>, packet: Received<'_>) {
        if packet.entry == ENTRY {
            self.engine.handle(cx.now, Input::Packet(packet.into()), cx.resources);
        }
    }

    fn route(&mut self, cx: &mut Context<'_>, id: u64, result: Result<Route, NoRoute>) {
        self.engine.handle(cx.now, Input::Route { id, result }, cx.resources);
    }

    fn route_changed(&mut self, cx: &mut Context<'_>, prefix: Prefix) {
        self.engine.handle(cx.now, Input::RouteChanged(prefix), cx.resources);
    }

    fn neighbour_moved(&mut self, cx: &mut Context<'_>, ifindex: IfIndex, address: IpAddr) {
        self.engine.handle(cx.now, Input::NeighbourMoved { ifindex, address }, cx.resources);
    }

    fn multicast(&mut self, cx: &mut Context<'_>, route: MulticastRoute<'_>) {
        let MulticastRoute { group, source, iif, oifs } = route;
        self.engine.handle(cx.now, Input::Multicast { group, source, iif, oifs }, cx.resources);
    }

    fn reserver(&self) -> Option<ReserverId> {
        Some(PROTOCOL)
    }

    fn grant(&mut self, cx: &mut Context<'_>, input: GrantInput) {
        let input = match input {
            GrantInput::Lost { key, grant, why } => Input::Lost { key, grant, why },
            GrantInput::Reduced { key, grant, rate } => Input::Reduced { key, grant, rate },
        };
        self.engine.handle(cx.now, input, cx.resources);
    }

    fn hand_over(&self, now: Time, to: &mut Entries) {
        self.engine.hand_over(now, to);
    }

    fn take_over(&mut self, cx: &mut Context<'_>, entries: Entries) {
        self.engine.handle(cx.now, Input::Handover(entries), cx.resources);
    }

    fn next(&mut self, _: &mut Context<'_>) -> Option<Next> {
        self.engine.has_output().then_some(Next::Driver)
    }

    fn poll(&mut self, lookups: LookupsOf<'_>) -> Option<Output<'_, super::Event>> {
        Some(match self.engine.poll()? {
            Out::Send(packet) => Output::Transmit(packet.into()),
            Out::Reply { src, dst, tos, payload } => Output::Transmit(Transmit {
                entry: REPLIES,
                src,
                dst,
                ifindex: None,
                gateway: None,
                ttl: 64,
                tos,
                dont_fragment: false,
                flow_label: 0,
                unproved: true,
                options: &[],
                payload,
            }),
            Out::RouteLookup { id, query } => Output::RouteLookup { id: lookups.put(id), query },
            Out::MulticastLookup { group, source } => Output::MulticastLookup { group, source },
            Out::MulticastRelease { group, source } => Output::MulticastRelease { group, source },
            Out::Event { id, event } => Output::Event(super::Event::Rsvp { id, event: Box::new(event) }),
        })
    }

    fn next_deadline(&self) -> Option<Time> {
        self.engine.next_deadline()
    }

    fn size(&self) -> Size {
        Size { sessions: self.engine.session_count(), peers: Some(self.engine.neighbours().count()) }
    }

    fn changes(&mut self) -> Option<&mut Changes<SessionChange>> {
        Some(self.engine.changes())
    }

    fn counters(&self, to: &mut Vec<Counter>) {
        to.extend(self.engine.counters().iter().map(Counter::of(Subsystem::protocol("rsvp"))));
        let neighbors = Subsystem::part("rsvp_neighbors", "rsvp");
        to.extend(self.engine.neighbours().counters().iter().map(Counter::of(neighbors)));
    }

    fn gauges(&self, to: &mut Vec<Gauge>) {
        let neighbors = self.engine.neighbours().table().size;
        to.push(Gauge::new(&SESSIONS, &["rsvp"], self.engine.session_count().into()));
        to.push(Gauge::new(&PEERS, &["rsvp"], neighbors.into()));
        to.extend(self.engine.tables().into_iter().flat_map(|table| Gauge::table("rsvp", table)));
    }
}

impl Composed for Instance {
    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        Ok(config.validated()?)
    }

    /// IP protocol 46 with RSVP's Router Alert (RFC 2205 §3.3, RFC 2711 §2.1), and the port by which replies to a
    /// diagnosis leave (RFC 2745 §6).
    fn entries(config: &Config) -> Vec<EntryRequest> {
        let alert = AlertRule::Value { ipv4: 0, ipv6: ROUTER_ALERT_RSVP_V6 };
        let intercept = Intercept::passing(alert, Vec::new());
        let entry = EntryRequest::local(ENTRY, Subsystem::part("rsvp_io", "rsvp")).with_intercept(intercept);
        vec![
            EntryRequest { unproved: Some(unproved(config)), ..entry },
            EntryRequest::send_only(REPLIES, Subsystem::part("rsvp_udp_io", "rsvp")),
        ]
    }

    fn new(mut config: Config, setup: &mut Setup) -> Result<Self, ConfigError> {
        // Sequence numbers of INTEGRITY grow across restarts (RFC 2747 §3).
        config.neighbours.set_wall_clock(setup.wall_clock_us);
        config.wall_clock_us = setup.wall_clock_us;
        Ok(Self { engine: Rsvp::new(config, setup.rng.array())? })
    }

    fn reload(&mut self, now: Time, config: Config) {
        if let Err(error) = self.engine.set_limits(now, &config) {
            tracing::warn!(%error, "limits of RSVP ignored");
        }
        if let Err(error) = self.engine.set_keys(config.keys) {
            tracing::warn!(%error, "keys of RSVP ignored");
        }
    }

    fn command(&mut self, cx: &mut Context<'_>, id: u64, command: Command) {
        self.engine.handle(cx.now, Input::Command { id, command }, cx.resources);
    }

    fn not_running(_: &Command) -> Option<Event> {
        Some(Box::new(RsvpEvent::Refused(Refused::NotRunning)))
    }
}
