//! RSVP (RFC 2205).

use signalbox_core::Counter;
use signalbox_core::handover::Entries;
use signalbox_core::metrics::{Gauge, PEERS, SESSIONS, Subsystem};
use signalbox_core::node::Output;
use signalbox_core::packet::{ROUTER_ALERT_RSVP_V6, Received, Transmit};
use signalbox_core::pinhole::PinholeId;
use signalbox_core::{
    AlertRule, Changes, Entry, EntryRequest, Intercept, Interfaces, Match, SessionChange, Time, Unproved,
};
use signalbox_rsvp::engine::neighbor;
pub(super) use signalbox_rsvp::engine::{Command, Config};
use signalbox_rsvp::engine::{Input, InterfaceConfig, Output as Out, PROTOCOL, Refused, Rsvp, RsvpEvent};

use crate::config::ConfigError;
use crate::protocol::{
    self, Composed, Context, GrantInput, MulticastRoute, Needs, Next, Owners, Protocol, ProtocolLookups,
    Restart, Setup, Size,
};

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
    let compared = |own: &neighbor::Interface| {
        !own.trust.any_source && !own.trust.distant_hops && !own.integrity.receiving
    };
    let everywhere = &config.neighbors.interface;
    let named = |(name, own): (&String, &InterfaceConfig)| {
        (name.clone(), compared(own.neighbors.as_ref().unwrap_or(everywhere)))
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
    fn handle(&mut self, cx: &mut Context<'_>, input: protocol::Input<'_>) {
        let input = match input {
            protocol::Input::Timer => Input::Timer,
            protocol::Input::Interfaces(interfaces) => Input::Interfaces(interfaces),
            protocol::Input::WallClock(wall_clock_us) => return self.engine.set_wall_clock(wall_clock_us),
            protocol::Input::Packet(packet) if packet.entry == ENTRY => Input::Packet(packet.into()),
            protocol::Input::Route { id, result } => Input::Route { id, result },
            protocol::Input::RouteChanged(prefix) => Input::RouteChanged(prefix),
            protocol::Input::NeighborMoved { ifindex, address } => Input::NeighborMoved { ifindex, address },
            protocol::Input::Multicast(MulticastRoute { group, source, iif, oifs }) => {
                Input::Multicast { group, source, iif, oifs }
            }
            protocol::Input::Grant(GrantInput::Lost { key, grant, why }) => Input::Lost { key, grant, why },
            protocol::Input::Grant(GrantInput::Reduced { key, grant, rate }) => {
                Input::Reduced { key, grant, rate }
            }
            protocol::Input::Handover(entries) => Input::Handover(entries),
            // Replies to a diagnosis only leave by the other entry.
            protocol::Input::Packet(_)
            | protocol::Input::Rules
            | protocol::Input::LinkSpeeds(_)
            | protocol::Input::TransmitFailed { .. }
            | protocol::Input::Undeliverable { .. }
            | protocol::Input::Stream(_)
            | protocol::Input::PinholeOpened { .. }
            | protocol::Input::FlowFound { .. }
            | protocol::Input::Indication(_)
            | protocol::Input::Request(_)
            | protocol::Input::HostRequest { .. }
            | protocol::Input::HostEvent { .. }
            | protocol::Input::Stop { .. } => return,
        };
        self.engine.handle(cx.now, input, cx.resources);
    }

    fn takes(&self, _: Time, _: &Received<'_>) -> bool {
        true
    }

    fn prepare(&self, _: &[(Entry, &[u8])]) -> bool {
        false
    }

    fn owners(&self) -> Owners {
        Owners { reserver: Some(PROTOCOL), opener: None }
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    /// It never answers [`Next::Gist`].
    fn pass(&mut self, _: &mut Context<'_>, _: &mut dyn Protocol) {}

    fn flush(&mut self) -> bool {
        false
    }

    fn next(&mut self, _: &mut Context<'_>) -> Option<Next> {
        self.engine.has_output().then_some(Next::Driver)
    }

    fn next_deadline(&self) -> Option<Time> {
        self.engine.next_deadline()
    }

    fn size(&self) -> Size {
        Size { sessions: self.engine.session_count(), peers: Some(self.engine.neighbors().count()) }
    }

    fn changes(&mut self) -> Option<&mut Changes<SessionChange>> {
        Some(self.engine.changes())
    }

    fn counters(&self, to: &mut Vec<Counter>) {
        to.extend(self.engine.counters().iter().map(Counter::of(Subsystem::protocol("rsvp"))));
        let neighbors = Subsystem::part("rsvp_neighbors", "rsvp");
        to.extend(self.engine.neighbors().counters().iter().map(Counter::of(neighbors)));
    }

    fn gauges(&self, to: &mut Vec<Gauge>) {
        let neighbors = self.engine.neighbors().table().size;
        to.push(Gauge::new(&SESSIONS, &["rsvp"], self.engine.session_count().into()));
        to.push(Gauge::new(&PEERS, &["rsvp"], neighbors.into()));
        to.extend(self.engine.tables().into_iter().flat_map(|table| Gauge::table("rsvp", table)));
    }
}

impl Restart for Instance {
    fn hand_over(&self, now: Time, to: &mut Entries) {
        self.engine.hand_over(now, to);
    }

    fn leaves(&self, _: PinholeId) -> bool {
        false
    }

    fn record_stop(&self, _: &mut Context<'_>, _: u32, _: bool) -> Option<u32> {
        None
    }
}

impl Composed for Instance {
    const NAME: &'static str = "rsvp";

    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        Ok(config.validated()?)
    }

    /// IP protocol 46 with RSVP's Router Alert (RFC 2205 §3.3, RFC 2711 §2.1), and the port by which replies to a
    /// diagnosis leave (RFC 2745 §6).
    fn needs(config: &Config) -> Needs {
        let alert = AlertRule::Value { ipv4: 0, ipv6: ROUTER_ALERT_RSVP_V6 };
        let intercept = Intercept::passing(alert, Vec::new());
        let entry = EntryRequest::local(ENTRY, Subsystem::part("rsvp_io", "rsvp")).with_intercept(intercept);
        let entries = vec![
            EntryRequest { unproved: Some(unproved(config)), ..entry },
            EntryRequest::send_only(REPLIES, Subsystem::part("rsvp_udp_io", "rsvp")),
        ];
        Needs { applications: Vec::new(), ports: Vec::new(), entries }
    }

    fn new(mut config: Config, setup: &mut Setup) -> Result<Self, ConfigError> {
        // Sequence numbers of INTEGRITY grow across restarts (RFC 2747 §3).
        config.neighbors.set_wall_clock(setup.wall_clock_us);
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

    fn poll<E>(
        &mut self,
        lookups: ProtocolLookups<'_>,
        event: impl FnOnce(u64, Event) -> E,
    ) -> Option<Output<'_, E>> {
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
            Out::Event { id, event: of } => Output::Event(event(id, Box::new(of))),
        })
    }

    fn not_running(_: &Command) -> Option<Event> {
        Some(Box::new(RsvpEvent::Refused(Refused::NotRunning)))
    }
}
