//! The Ping application.

use signalbox_core::Counter;
use signalbox_core::metrics::{Gauge, Subsystem};
use signalbox_core::node::Output;
use signalbox_core::packet::Received;
use signalbox_core::service;
use signalbox_core::{Changes, Entry, NslpId, SessionChange, Time};
pub(super) use signalbox_ping::engine::{Command, Config, PingEvent as Event};
use signalbox_ping::engine::{Input, Output as Out, Ping, Refusal};

use crate::config::ConfigError;
use crate::protocol::{
    self, Composed, Context, Needs, Next, Owners, Protocol, ProtocolLookups, Restart, Setup, Size,
};

/// Ping, as the node runs it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) engine: Ping,
}

impl Protocol for Instance {
    fn handle(&mut self, cx: &mut Context<'_>, input: protocol::Input<'_>) {
        let input = match input {
            protocol::Input::Timer => Input::Timer,
            protocol::Input::Interfaces(interfaces) => Input::Interfaces(interfaces),
            protocol::Input::WallClock(wall_clock_us) => return self.engine.set_wall_clock(wall_clock_us),
            protocol::Input::Route { id, result } => Input::Route { id, result },
            protocol::Input::Indication(indication) => Input::Indication(indication),
            protocol::Input::Rules
            | protocol::Input::LinkSpeeds(_)
            | protocol::Input::Packet(_)
            | protocol::Input::TransmitFailed { .. }
            | protocol::Input::Undeliverable { .. }
            | protocol::Input::RouteChanged(_)
            | protocol::Input::NeighborMoved { .. }
            | protocol::Input::Multicast(_)
            | protocol::Input::Stream(_)
            | protocol::Input::Grant(_)
            | protocol::Input::PinholeOpened { .. }
            | protocol::Input::FlowFound { .. }
            | protocol::Input::Request(_)
            | protocol::Input::HostRequest { .. }
            | protocol::Input::HostEvent { .. }
            | protocol::Input::Handover(_)
            | protocol::Input::Stop { .. } => return,
        };
        self.engine.handle(cx.now, input);
    }

    fn takes(&self, _: Time, _: &Received<'_>) -> bool {
        true
    }

    fn prepare(&self, _: &[(Entry, &[u8])]) -> bool {
        false
    }

    fn owners(&self) -> Owners {
        Owners::NEITHER
    }

    fn restart(&self) -> Option<&dyn Restart> {
        None
    }

    fn flush(&mut self) -> bool {
        false
    }

    fn changes(&mut self) -> Option<&mut Changes<SessionChange>> {
        None
    }

    fn next(&mut self, _: &mut Context<'_>) -> Option<Next> {
        self.engine.next().map(Next::from)
    }

    fn pass(&mut self, cx: &mut Context<'_>, to: &mut dyn Protocol) {
        match self.engine.poll() {
            Some(Out::Request(request)) => to.handle(cx, protocol::Input::Request(request)),
            Some(Out::RouteLookup { .. } | Out::Event { .. }) | None => {
                debug_assert!(false, "the output is the driver's");
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.engine.next_deadline()
    }

    fn size(&self) -> Size {
        Size { sessions: self.engine.running(), peers: None }
    }

    fn counters(&self, to: &mut Vec<Counter>) {
        to.extend(self.engine.counters().iter().map(Counter::of(Subsystem::protocol("ping"))));
    }

    fn gauges(&self, to: &mut Vec<Gauge>) {
        to.extend(self.engine.tables().into_iter().flat_map(|table| Gauge::table("ping", table)));
    }
}

impl Composed for Instance {
    const NAME: &'static str = "ping";

    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        let taken = |nslp: &NslpId| matches!(*nslp, NslpId::NONE | NslpId::QOS | NslpId::NATFW);
        let nsis_is_ours = config.nsis.filter(|nsis| *nsis == config.nslp);
        let wrong = [Some(config.nslp), config.nsis].into_iter().flatten().find(taken).or(nsis_is_ours);
        wrong.map_or(Ok(()), |nslp| Err(ConfigError::PingNslp(nslp)))
    }

    fn needs(config: &Config) -> Needs {
        Needs::of_applications([Some(config.nslp), config.nsis].into_iter().flatten().collect())
    }

    fn new(mut config: Config, setup: &mut Setup) -> Result<Self, ConfigError> {
        config.wall_clock_us = setup.wall_clock_us;
        Ok(Self { engine: Ping::new(config, setup.rng.array()) })
    }

    /// It has no settings that change while it runs.
    fn reload(&mut self, _: Time, _: Config) {}

    fn command(&mut self, cx: &mut Context<'_>, id: u64, command: Command) {
        self.engine.handle(cx.now, Input::Command { id, command });
    }

    fn poll<E>(
        &mut self,
        lookups: ProtocolLookups<'_>,
        event: impl FnOnce(u64, Event) -> E,
    ) -> Option<Output<'_, E>> {
        Some(match self.engine.poll()? {
            Out::RouteLookup { id, query } => Output::RouteLookup { id: lookups.put(id), query },
            Out::Event { id, event: of } => Output::Event(event(id, of)),
            Out::Request(_) => {
                debug_assert!(false, "the request is GIST's");
                return None;
            }
        })
    }

    fn not_running(command: &Command) -> Option<Event> {
        match command {
            Command::Start(_) => Some(Event::Refused(Refusal::NoApplication)),
            Command::Stop => None,
        }
    }
}

impl From<service::Next> for Next {
    fn from(next: service::Next) -> Self {
        match next {
            service::Next::Driver => Self::Driver,
            service::Next::Gist => Self::Gist,
        }
    }
}
