//! The QoS application (RFC 5974).

use signalbox_core::Counter;
use signalbox_core::metrics::{Gauge, SESSIONS, Subsystem};
use signalbox_core::node::{Interface, NoRoute, Output, Route};
use signalbox_core::service::Indication;
use signalbox_core::{Changes, NslpId, ReserverId, SessionChange, Time};
pub(super) use signalbox_qos::engine::{Command, Config};
use signalbox_qos::engine::{Input, Output as Out, PROTOCOL, Qos, QosEvent, Refusal};

use crate::config::ConfigError;
use crate::protocol::{Composed, Context, GrantInput, Next, Protocol, Setup, Size};
use crate::routes::LookupsOf;

/// Boxed, since it is much larger than the events of other protocols.
pub(super) type Event = Box<QosEvent>;

/// The QoS application, as the node runs it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) engine: Qos,
}

impl Protocol for Instance {
    fn timer(&mut self, cx: &mut Context<'_>) {
        self.engine.handle(cx.now, Input::Timer, cx.resources);
    }

    fn interfaces(&mut self, cx: &mut Context<'_>, interfaces: &[Interface]) {
        self.engine.handle(cx.now, Input::Interfaces(interfaces), cx.resources);
    }

    fn route(&mut self, cx: &mut Context<'_>, id: u64, result: Result<Route, NoRoute>) {
        self.engine.handle(cx.now, Input::Route { id, result }, cx.resources);
    }

    fn reserver(&self) -> Option<ReserverId> {
        Some(PROTOCOL)
    }

    fn grant(&mut self, cx: &mut Context<'_>, input: GrantInput) {
        match input {
            GrantInput::Lost { key, grant, why } => {
                self.engine.handle(cx.now, Input::Lost { key, grant, why }, cx.resources);
            }
            // QoS never marks a request as reducible.
            GrantInput::Reduced { .. } => {}
        }
    }

    fn indication(&mut self, cx: &mut Context<'_>, indication: Indication<'_>) {
        self.engine.handle(cx.now, Input::Indication(indication), cx.resources);
    }

    fn next(&mut self, _: &mut Context<'_>) -> Option<Next> {
        self.engine.next().map(Next::from)
    }

    fn poll(&mut self, lookups: LookupsOf<'_>) -> Option<Output<'_, super::Event>> {
        Some(match self.engine.poll()? {
            Out::RouteLookup { id, query } => Output::RouteLookup { id: lookups.put(id), query },
            Out::Event { id, event } => Output::Event(super::Event::Qos { id, event: Box::new(event) }),
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
        Size { sessions: self.engine.session_count(), peers: None }
    }

    fn changes(&mut self) -> Option<&mut Changes<SessionChange>> {
        Some(self.engine.changes())
    }

    fn counters(&self, to: &mut Vec<Counter>) {
        to.extend(self.engine.counters().iter().map(Counter::of(Subsystem::protocol("qos"))));
    }

    fn gauges(&self, to: &mut Vec<Gauge>) {
        to.push(Gauge::new(&SESSIONS, &["qos"], self.engine.session_count().into()));
        to.extend(self.engine.tables().into_iter().flat_map(|table| Gauge::table("qos", table)));
    }
}

impl Composed for Instance {
    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        let foreign = |nslp: &NslpId| matches!(*nslp, NslpId::NONE | NslpId::NATFW);
        Self::claims(config).into_iter().find(foreign).map_or(Ok(()), |nslp| Err(ConfigError::QosNslp(nslp)))
    }

    fn claims(config: &Config) -> Vec<NslpId> {
        [Some(config.nslp), config.bypass_nslp].into_iter().flatten().collect()
    }

    fn new(config: Config, setup: &mut Setup) -> Result<Self, ConfigError> {
        Ok(Self { engine: Qos::new(config, setup.rng.array()) })
    }

    fn reload(&mut self, _: Time, config: Config) {
        self.engine.set_limits(&config);
    }

    fn command(&mut self, cx: &mut Context<'_>, id: u64, command: Command) {
        self.engine.handle(cx.now, Input::Command { id, command }, cx.resources);
    }

    fn not_running(_: &Command) -> Option<Event> {
        Some(Box::new(QosEvent::Refused(Refusal::NoApplication)))
    }
}
