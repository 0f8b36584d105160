//! The QoS application (RFC 5974).

use signalbox_core::Counter;
use signalbox_core::metrics::{Gauge, SESSIONS, Subsystem};
use signalbox_core::node::Output;
use signalbox_core::packet::Received;
use signalbox_core::{Changes, Entry, NslpId, SessionChange, Time};
pub(super) use signalbox_qos::engine::{Command, Config};
use signalbox_qos::engine::{Input, Output as Out, PROTOCOL, Qos, QosEvent, Refusal};

use crate::config::ConfigError;
use crate::protocol::{
    self, Composed, Context, GrantInput, Needs, Next, Owners, Protocol, ProtocolLookups, Restart, Setup, Size,
};

/// Boxed, since it is much larger than the events of other protocols.
pub(super) type Event = Box<QosEvent>;

/// The QoS application, as the node runs it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) engine: Qos,
}

impl Protocol for Instance {
    fn handle(&mut self, cx: &mut Context<'_>, input: protocol::Input<'_>) {
        let input = match input {
            protocol::Input::Timer => Input::Timer,
            protocol::Input::Interfaces(interfaces) => Input::Interfaces(interfaces),
            protocol::Input::Route { id, result } => Input::Route { id, result },
            protocol::Input::Grant(GrantInput::Lost { key, grant, why }) => Input::Lost { key, grant, why },
            protocol::Input::Indication(indication) => Input::Indication(indication),
            // QoS never marks a request as reducible, so no part of a grant is taken.
            protocol::Input::Grant(GrantInput::Reduced { .. })
            | protocol::Input::WallClock(_)
            | protocol::Input::Rules
            | protocol::Input::LinkSpeeds(_)
            | protocol::Input::Packet(_)
            | protocol::Input::TransmitFailed { .. }
            | protocol::Input::Undeliverable { .. }
            | protocol::Input::RouteChanged(_)
            | protocol::Input::NeighborMoved { .. }
            | protocol::Input::Multicast(_)
            | protocol::Input::Stream(_)
            | protocol::Input::PinholeOpened { .. }
            | protocol::Input::FlowFound { .. }
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

    fn flush(&mut self) -> bool {
        false
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
    const NAME: &'static str = "qos";

    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        let foreign = |nslp: &NslpId| matches!(*nslp, NslpId::NONE | NslpId::NATFW);
        Self::needs(config)
            .applications
            .into_iter()
            .find(foreign)
            .map_or(Ok(()), |nslp| Err(ConfigError::QosNslp(nslp)))
    }

    fn needs(config: &Config) -> Needs {
        Needs::of_applications([Some(config.nslp), config.bypass_nslp].into_iter().flatten().collect())
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

    fn poll<E>(
        &mut self,
        lookups: ProtocolLookups<'_>,
        event: impl FnOnce(u64, Event) -> E,
    ) -> Option<Output<'_, E>> {
        Some(match self.engine.poll()? {
            Out::RouteLookup { id, query } => Output::RouteLookup { id: lookups.put(id), query },
            Out::Event { id, event: of } => Output::Event(event(id, Box::new(of))),
            Out::Request(_) => {
                debug_assert!(false, "the request is GIST's");
                return None;
            }
        })
    }

    fn not_running(_: &Command) -> Option<Event> {
        Some(Box::new(QosEvent::Refused(Refusal::NoApplication)))
    }
}
