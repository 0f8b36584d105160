//! The Ping application.

use signalbox_core::Counter;
use signalbox_core::metrics::{Gauge, Subsystem};
use signalbox_core::node::{Interface, NoRoute, Output, Route};
use signalbox_core::service::{self, Indication};
use signalbox_core::{NslpId, Time};
pub(super) use signalbox_ping::engine::{Command, Config, PingEvent as Event};
use signalbox_ping::engine::{Input, Output as Out, Ping, Refusal};

use crate::config::ConfigError;
use crate::protocol::{Composed, Context, Next, Protocol, Setup, Size};
use crate::routes::LookupsOf;

/// Ping, as the node runs it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) engine: Ping,
}

impl Protocol for Instance {
    fn set_wall_clock(&mut self, wall_clock_us: u64) {
        self.engine.set_wall_clock(wall_clock_us);
    }

    fn timer(&mut self, cx: &mut Context<'_>) {
        self.engine.handle(cx.now, Input::Timer);
    }

    fn interfaces(&mut self, cx: &mut Context<'_>, interfaces: &[Interface]) {
        self.engine.handle(cx.now, Input::Interfaces(interfaces));
    }

    fn route(&mut self, cx: &mut Context<'_>, id: u64, result: Result<Route, NoRoute>) {
        self.engine.handle(cx.now, Input::Route { id, result });
    }

    fn indication(&mut self, cx: &mut Context<'_>, indication: Indication<'_>) {
        self.engine.handle(cx.now, Input::Indication(indication));
    }

    fn next(&mut self, _: &mut Context<'_>) -> Option<Next> {
        self.engine.next().map(Next::from)
    }

    fn poll(&mut self, lookups: LookupsOf<'_>) -> Option<Output<'_, super::Event>> {
        Some(match self.engine.poll()? {
            Out::RouteLookup { id, query } => Output::RouteLookup { id: lookups.put(id), query },
            Out::Event { id, event } => Output::Event(super::Event::Ping { id, event }),
            Out::Request(_) => {
                debug_assert!(false, "the request is GIST's");
                return None;
            }
        })
    }

    fn pass(&mut self, cx: &mut Context<'_>, to: &mut dyn Protocol) {
        match self.engine.poll() {
            Some(Out::Request(request)) => to.request(cx, request),
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
    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        let taken = |nslp: &NslpId| matches!(*nslp, NslpId::NONE | NslpId::QOS | NslpId::NATFW);
        let nsis_is_ours = config.nsis.filter(|nsis| *nsis == config.nslp);
        let wrong = [Some(config.nslp), config.nsis].into_iter().flatten().find(taken).or(nsis_is_ours);
        wrong.map_or(Ok(()), |nslp| Err(ConfigError::PingNslp(nslp)))
    }

    fn claims(config: &Config) -> Vec<NslpId> {
        [Some(config.nslp), config.nsis].into_iter().flatten().collect()
    }

    fn new(mut config: Config, setup: &mut Setup) -> Result<Self, ConfigError> {
        config.wall_clock_us = setup.wall_clock_us;
        Ok(Self { engine: Ping::new(config, setup.rng.array()) })
    }

    fn command(&mut self, cx: &mut Context<'_>, id: u64, command: Command) {
        self.engine.handle(cx.now, Input::Command { id, command });
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
