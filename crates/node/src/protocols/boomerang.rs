//! Boomerang (draft-bergkvist-boomerang-spec-00).

use signalbox_boomerang::engine::{Boomerang, ENTRY, INTERPRETED, Input, Output as Out, PROTOCOL, Rejected};
pub(super) use signalbox_boomerang::engine::{BoomerangEvent as Event, Command, Config};
use signalbox_core::Counter;
use signalbox_core::metrics::{Gauge, SESSIONS, Subsystem};
use signalbox_core::node::Output;
use signalbox_core::packet::Received;
use signalbox_core::{
    AlertRule, Changes, Entry, EntryRequest, Intercept, Interfaces, SessionChange, Time, Unproved,
};

use crate::config::ConfigError;
use crate::protocol::{
    self, Composed, Context, GrantInput, MulticastRoute, Needs, Next, Owners, Protocol, ProtocolLookups,
    Restart, Setup, Size,
};

/// Boomerang, as the node runs it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) engine: Boomerang,
}

impl Protocol for Instance {
    fn handle(&mut self, cx: &mut Context<'_>, input: protocol::Input<'_>) {
        let input = match input {
            protocol::Input::Timer => Input::Timer,
            protocol::Input::Interfaces(interfaces) => Input::Interfaces(interfaces),
            protocol::Input::WallClock(wall_clock_us) => return self.engine.set_wall_clock(wall_clock_us),
            protocol::Input::Packet(packet) => Input::Packet(packet),
            protocol::Input::TransmitFailed { dst, .. } => Input::NotSent(dst),
            protocol::Input::Route { id, result } => Input::Route { id, result },
            protocol::Input::RouteChanged(prefix) => Input::RouteChanged(prefix),
            protocol::Input::NeighborMoved { ifindex, address } => Input::NeighborMoved { ifindex, address },
            protocol::Input::Multicast(MulticastRoute { group, source, iif, oifs }) => {
                Input::Multicast { group, source, iif, oifs }
            }
            protocol::Input::Grant(GrantInput::Lost { key, grant, why }) => Input::Lost { key, grant, why },
            // Boomerang never marks a request as reducible, so no part of a grant is taken.
            protocol::Input::Grant(GrantInput::Reduced { .. })
            | protocol::Input::Rules
            | protocol::Input::LinkSpeeds(_)
            | protocol::Input::Undeliverable { .. }
            | protocol::Input::Stream(_)
            | protocol::Input::PinholeOpened { .. }
            | protocol::Input::FlowFound { .. }
            | protocol::Input::Indication(_)
            | protocol::Input::Request(_)
            | protocol::Input::HostRequest { .. }
            | protocol::Input::HostEvent { .. }
            | protocol::Input::Handover(_)
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
        None
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
        Size { sessions: self.engine.session_count(), peers: None }
    }

    fn changes(&mut self) -> Option<&mut Changes<SessionChange>> {
        Some(self.engine.changes())
    }

    fn counters(&self, to: &mut Vec<Counter>) {
        to.extend(self.engine.counters().iter().map(Counter::of(Subsystem::protocol("boomerang"))));
    }

    fn gauges(&self, to: &mut Vec<Gauge>) {
        to.push(Gauge::new(&SESSIONS, &["boomerang"], self.engine.session_count().into()));
        to.extend(self.engine.tables().into_iter().flat_map(|table| Gauge::table("boomerang", table)));
    }
}

impl Composed for Instance {
    const NAME: &'static str = "boomerang";

    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        Ok(config.validated()?)
    }

    /// ICMP Echo with the magic number. The reply of a host without Boomerang has no Router Alert, so none is demanded.
    /// Messages of other types and versions stay in the kernel, and so do those that come in by interfaces without trust, and,
    /// where neither a proof of return nor an HMAC is demanded, those that do not come from where their source is.
    fn needs(config: &Config) -> Needs {
        let intercept = Intercept::passing(AlertRule::NotRequired, INTERPRETED.to_vec());
        let named = config.trusted.iter().map(|(name, trusted)| (name.clone(), *trusted)).collect();
        let entry = EntryRequest::local(ENTRY, Subsystem::part("boomerang_io", "boomerang"));
        let entry = EntryRequest {
            interfaces: Interfaces { named, others: config.trusted_elsewhere },
            unproved: (!config.prove && !config.integrity.require).then(Unproved::default),
            ..entry.with_intercept(intercept)
        };
        Needs { applications: Vec::new(), ports: Vec::new(), entries: vec![entry] }
    }

    fn new(mut config: Config, setup: &mut Setup) -> Result<Self, ConfigError> {
        config.wall_clock_us = setup.wall_clock_us;
        Ok(Self { engine: Boomerang::new(config, setup.rng.array())? })
    }

    fn reload(&mut self, now: Time, config: Config) {
        if let Err(error) = self.engine.set_limits(now, &config) {
            tracing::warn!(%error, "limits of Boomerang ignored");
        }
        if let Err(error) = self.engine.set_integrity(config.integrity) {
            tracing::warn!(%error, "keys of Boomerang ignored");
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
            Out::Send(packet) => Output::Transmit(packet),
            Out::RouteLookup { id, query } => Output::RouteLookup { id: lookups.put(id), query },
            Out::MulticastLookup { group, source } => Output::MulticastLookup { group, source },
            Out::MulticastRelease { group, source } => Output::MulticastRelease { group, source },
            Out::Event { id, event: of } => Output::Event(event(id, of)),
        })
    }

    fn not_running(_: &Command) -> Option<Event> {
        Some(Event::Rejected(Rejected::NotRunning))
    }
}
