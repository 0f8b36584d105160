//! Boomerang (draft-bergkvist-boomerang-spec-00).

use core::net::IpAddr;

use signalbox_boomerang::engine::{Boomerang, ENTRY, INTERPRETED, Input, Output as Out, PROTOCOL, Rejected};
pub(super) use signalbox_boomerang::engine::{BoomerangEvent as Event, Command, Config};
use signalbox_core::Counter;
use signalbox_core::metrics::{Gauge, SESSIONS, Subsystem};
use signalbox_core::node::{Interface, NoRoute, Output, Prefix, Route, TransmitError};
use signalbox_core::packet::Received;
use signalbox_core::{
    AlertRule, Changes, Entry, EntryRequest, IfIndex, Intercept, Interfaces, ReserverId, SessionChange, Time,
    Unproved,
};

use crate::config::ConfigError;
use crate::protocol::{Composed, Context, GrantInput, MulticastRoute, Next, Protocol, Setup, Size};
use crate::routes::LookupsOf;

/// Boomerang, as the node runs it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) engine: Boomerang,
}

impl Protocol for Instance {
    fn timer(&mut self, cx: &mut Context<'_>) {
        self.engine.handle(cx.now, Input::Timer, cx.resources);
    }

    fn interfaces(&mut self, cx: &mut Context<'_>, interfaces: &[Interface]) {
        self.engine.handle(cx.now, Input::Interfaces(interfaces), cx.resources);
    }

    fn set_wall_clock(&mut self, wall_clock_us: u64) {
        self.engine.set_wall_clock(wall_clock_us);
    }

    fn packet(&mut self, cx: &mut Context<'_>, packet: Received<'_>) {
        self.engine.handle(cx.now, Input::Packet(packet), cx.resources);
    }

    fn transmit_failed(&mut self, cx: &mut Context<'_>, _: Entry, dst: IpAddr, _: TransmitError) {
        self.engine.handle(cx.now, Input::NotSent(dst), cx.resources);
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
        match input {
            GrantInput::Lost { key, grant, why } => {
                self.engine.handle(cx.now, Input::Lost { key, grant, why }, cx.resources);
            }
            // Boomerang never marks a request as reducible.
            GrantInput::Reduced { .. } => {}
        }
    }

    fn next(&mut self, _: &mut Context<'_>) -> Option<Next> {
        self.engine.has_output().then_some(Next::Driver)
    }

    fn poll(&mut self, lookups: LookupsOf<'_>) -> Option<Output<'_, super::Event>> {
        Some(match self.engine.poll()? {
            Out::Send(packet) => Output::Transmit(packet),
            Out::RouteLookup { id, query } => Output::RouteLookup { id: lookups.put(id), query },
            Out::MulticastLookup { group, source } => Output::MulticastLookup { group, source },
            Out::MulticastRelease { group, source } => Output::MulticastRelease { group, source },
            Out::Event { id, event } => Output::Event(super::Event::Boomerang { id, event }),
        })
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
    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        Ok(config.validated()?)
    }

    /// ICMP Echo with the magic number. The reply of a host without Boomerang has no Router Alert, so none is demanded.
    /// Messages of other types and versions stay in the kernel, and so do those that come in by interfaces without trust, and,
    /// where neither a proof of return nor an HMAC is demanded, those that do not come from where their source is.
    fn entries(config: &Config) -> Vec<EntryRequest> {
        let intercept = Intercept::passing(AlertRule::NotRequired, INTERPRETED.to_vec());
        let named = config.trusted.iter().map(|(name, trusted)| (name.clone(), *trusted)).collect();
        let entry = EntryRequest::local(ENTRY, Subsystem::part("boomerang_io", "boomerang"));
        vec![EntryRequest {
            interfaces: Interfaces { named, others: config.trusted_elsewhere },
            unproved: (!config.prove && !config.integrity.require).then(Unproved::default),
            ..entry.with_intercept(intercept)
        }]
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

    fn not_running(_: &Command) -> Option<Event> {
        Some(Event::Rejected(Rejected::NotRunning))
    }
}
