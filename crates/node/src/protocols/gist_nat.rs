//! The GIST-aware NAT gateway (RFC 5971 §7.2.2, §7.2.3).

use signalbox_core::handover::Entries;
use signalbox_core::metrics::{Gauge, Subsystem};
use signalbox_core::node::Output;
use signalbox_core::packet::Received;
use signalbox_core::pinhole::{OpenerId, PinholeId};
use signalbox_core::{Changes, Counter, Entry, SessionChange, Time};
pub(super) use signalbox_gist::gateway::Config;
use signalbox_gist::gateway::{Gateway, Input, Output as Out};

use crate::config::ConfigError;
use crate::protocol::{
    self, Composed, Context, Needs, Next, Owners, Protocol, ProtocolLookups, Restart, Setup, Size,
};

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
    fn handle(&mut self, cx: &mut Context<'_>, input: protocol::Input<'_>) {
        let input = match input {
            protocol::Input::Timer => Input::Timer,
            protocol::Input::Interfaces(interfaces) => Input::Interfaces(interfaces),
            protocol::Input::Packet(packet) => Input::Datagram(packet),
            protocol::Input::PinholeOpened { id, result } => Input::Opened { id, result },
            protocol::Input::FlowFound { id, translation } => Input::Found { id, translation },
            protocol::Input::Handover(entries) => return self.engine.take_over(cx.now, entries),
            protocol::Input::WallClock(_)
            | protocol::Input::Rules
            | protocol::Input::LinkSpeeds(_)
            | protocol::Input::TransmitFailed { .. }
            | protocol::Input::Undeliverable { .. }
            | protocol::Input::Route { .. }
            | protocol::Input::RouteChanged(_)
            | protocol::Input::NeighborMoved { .. }
            | protocol::Input::Multicast(_)
            | protocol::Input::Stream(_)
            | protocol::Input::Grant(_)
            | protocol::Input::Indication(_)
            | protocol::Input::Request(_)
            | protocol::Input::HostRequest { .. }
            | protocol::Input::HostEvent { .. }
            | protocol::Input::Stop { .. } => return,
        };
        self.engine.handle(cx.now, input);
    }

    fn prepare(&self, _: &[(Entry, &[u8])]) -> bool {
        false
    }

    fn owners(&self) -> Owners {
        Owners { reserver: None, opener: Some(OpenerId::GIST_NAT) }
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    /// It never answers [`Next::Gist`].
    fn pass(&mut self, _: &mut Context<'_>, _: &mut dyn Protocol) {}

    fn flush(&mut self) -> bool {
        false
    }

    fn changes(&mut self) -> Option<&mut Changes<SessionChange>> {
        None
    }

    fn takes(&self, now: Time, packet: &Received<'_>) -> bool {
        self.engine.takes(now, packet)
    }

    fn next(&mut self, _: &mut Context<'_>) -> Option<Next> {
        self.engine.has_output().then_some(Next::Driver)
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

impl Restart for Instance {
    fn hand_over(&self, now: Time, to: &mut Entries) {
        self.engine.hand_over(now, to);
    }

    fn leaves(&self, id: PinholeId) -> bool {
        self.engine.leaves(id)
    }

    /// Its pinholes are no passages of admission control.
    fn record_stop(&self, _: &mut Context<'_>, _: u32, _: bool) -> Option<u32> {
        None
    }
}

impl Composed for Instance {
    const NAME: &'static str = "gist_nat";

    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        Ok(config.validated()?)
    }

    fn needs(config: &Config) -> Needs {
        Needs { applications: Vec::new(), ports: Vec::new(), entries: vec![Gateway::entry(config)] }
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

    fn poll<E>(&mut self, _: ProtocolLookups<'_>, _: impl FnOnce(u64, Event) -> E) -> Option<Output<'_, E>> {
        Some(match self.engine.poll()? {
            Out::Transmit(packet) => Output::Transmit(packet),
            Out::Open { id, pinhole, lifetime } => Output::OpenPinhole { id, pinhole, lifetime },
            Out::Close { id } => Output::ClosePinhole { id },
            Out::Find { id, packets } => Output::FindFlow { id, packets },
        })
    }

    fn not_running(command: &Command) -> Option<Event> {
        match *command {}
    }
}
