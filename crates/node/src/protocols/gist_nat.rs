//! The GIST-aware NAT gateway (RFC 5971 §7.2.2, §7.2.3).

use signalbox_core::handover::Entries;
use signalbox_core::metrics::{Gauge, Subsystem};
use signalbox_core::node::{Interface, Output};
use signalbox_core::packet::Received;
use signalbox_core::pinhole::{OpenerId, PinholeError, PinholeId, Translation};
use signalbox_core::{Counter, EntryRequest, Time};
pub(super) use signalbox_gist::gateway::Config;
use signalbox_gist::gateway::{Gateway, Input, Output as Out};

use crate::config::ConfigError;
use crate::protocol::{Composed, Context, Next, Protocol, Setup, Size};
use crate::routes::LookupsOf;

/// The gateway has no commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Command {}

/// The gateway has no events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Event {}

/// The gateway, as the node runs it. It shares GIST's port of entry with GIST, if the node runs both: it takes the messages
/// that pass from one side of the NAT to the other.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) engine: Gateway,
}

impl Protocol for Instance {
    fn timer(&mut self, cx: &mut Context<'_>) {
        self.engine.handle(cx.now, Input::Timer);
    }

    fn interfaces(&mut self, cx: &mut Context<'_>, interfaces: &[Interface]) {
        self.engine.handle(cx.now, Input::Interfaces(interfaces));
    }

    fn takes(&self, now: Time, packet: &Received<'_>) -> bool {
        self.engine.takes(now, packet)
    }

    fn packet(&mut self, cx: &mut Context<'_>, packet: Received<'_>) {
        self.engine.handle(cx.now, Input::Datagram(packet));
    }

    fn opener(&self) -> Option<OpenerId> {
        Some(OpenerId::GIST_NAT)
    }

    fn hand_over(&self, now: Time, to: &mut Entries) {
        self.engine.hand_over(now, to);
    }

    fn leaves(&self, id: PinholeId) -> bool {
        self.engine.leaves(id)
    }

    fn take_over(&mut self, cx: &mut Context<'_>, entries: Entries) {
        self.engine.take_over(cx.now, entries);
    }

    fn pinhole(&mut self, cx: &mut Context<'_>, id: PinholeId, result: Result<(), PinholeError>) {
        self.engine.handle(cx.now, Input::Opened { id, result });
    }

    fn flow(&mut self, cx: &mut Context<'_>, id: PinholeId, translation: Option<Translation>) {
        self.engine.handle(cx.now, Input::Found { id, translation });
    }

    fn next(&mut self, _: &mut Context<'_>) -> Option<Next> {
        self.engine.has_output().then_some(Next::Driver)
    }

    fn poll(&mut self, _: LookupsOf<'_>) -> Option<Output<'_, super::Event>> {
        Some(match self.engine.poll()? {
            Out::Transmit(packet) => Output::Transmit(packet),
            Out::Open { id, pinhole, lifetime } => Output::OpenPinhole { id, pinhole, lifetime },
            Out::Close { id } => Output::ClosePinhole { id },
            Out::Find { id, packets } => Output::FindFlow { id, packets },
        })
    }

    fn next_deadline(&self) -> Option<Time> {
        self.engine.next_deadline()
    }

    fn size(&self) -> Size {
        Size::default()
    }

    fn counters(&self, to: &mut Vec<Counter>) {
        to.extend(self.engine.counters().iter().map(Counter::of(Subsystem::protocol("gist_nat"))));
    }

    fn gauges(&self, to: &mut Vec<Gauge>) {
        to.extend(self.engine.tables().into_iter().flat_map(|table| Gauge::table("gist_nat", table)));
    }
}

impl Composed for Instance {
    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        Ok(config.validated()?)
    }

    fn entries(config: &Config) -> Vec<EntryRequest> {
        vec![Gateway::entry(config)]
    }

    fn new(mut config: Config, setup: &mut Setup) -> Result<Self, ConfigError> {
        config.hosted.extend(&setup.applications);
        config.own_ports.extend(&setup.ports);
        Ok(Self { engine: Gateway::new(config, setup.rng.array())? })
    }

    fn reload(&mut self, now: Time, config: Config) {
        if let Err(error) = self.engine.set_limits(now, &config) {
            tracing::warn!(%error, "limits of the gateway ignored");
        }
    }

    fn command(&mut self, _: &mut Context<'_>, _: u64, command: Command) {
        match command {}
    }

    fn not_running(command: &Command) -> Option<Event> {
        match *command {}
    }
}
