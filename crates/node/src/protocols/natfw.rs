//! The NAT and firewall application (RFC 5973).

use signalbox_core::Counter;
use signalbox_core::handover::Entries;
use signalbox_core::metrics::{Gauge, SESSIONS, Subsystem};
use signalbox_core::node::Output;
use signalbox_core::packet::Received;
use signalbox_core::pinhole::{OpenerId, PinholeId};
use signalbox_core::{Changes, Entry, NslpId, SessionChange, Time};
pub(super) use signalbox_natfw::engine::{Command, Config, NatfwEvent as Event};
use signalbox_natfw::engine::{Input, Natfw, Output as Out, Refusal};

use super::ProtocolId;
use crate::config::ConfigError;
use crate::protocol::{
    self, Composed, Context, Needs, Next, Owners, Protocol, ProtocolLookups, Restart, Setup, Size,
};

/// The NATFW application, as the node runs it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) engine: Natfw,
}

impl Protocol for Instance {
    fn handle(&mut self, cx: &mut Context<'_>, input: protocol::Input<'_>) {
        let input = match input {
            protocol::Input::Timer => Input::Timer,
            protocol::Input::Interfaces(interfaces) => Input::Interfaces(interfaces),
            protocol::Input::Rules => Input::Rules,
            protocol::Input::Route { id, result } => Input::Route { id, result },
            protocol::Input::PinholeOpened { id, result } => Input::Opened { id, result },
            protocol::Input::Indication(indication) => Input::Indication(indication),
            protocol::Input::Handover(entries) => Input::Handover(entries),
            protocol::Input::HostRequest { id, request } => Input::Host { id, request },
            protocol::Input::Stop { handed_over } => Input::Stop { handed_over },
            protocol::Input::WallClock(_)
            | protocol::Input::LinkSpeeds(_)
            | protocol::Input::Packet(_)
            | protocol::Input::TransmitFailed { .. }
            | protocol::Input::Undeliverable { .. }
            | protocol::Input::RouteChanged(_)
            | protocol::Input::NeighborMoved { .. }
            | protocol::Input::Multicast(_)
            | protocol::Input::Stream(_)
            | protocol::Input::Grant(_)
            | protocol::Input::FlowFound { .. }
            | protocol::Input::Request(_)
            | protocol::Input::HostEvent { .. } => return,
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
        Owners { reserver: None, opener: Some(OpenerId::NATFW) }
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    fn flush(&mut self) -> bool {
        false
    }

    fn next(&mut self, _: &mut Context<'_>) -> Option<Next> {
        if self.engine.is_for_host() {
            return Some(Next::Protocol(ProtocolId::Mapping));
        }
        self.engine.next().map(Next::from)
    }

    fn pass(&mut self, cx: &mut Context<'_>, to: &mut dyn Protocol) {
        match self.engine.poll() {
            Some(Out::Request(request)) => to.handle(cx, protocol::Input::Request(request)),
            Some(Out::Host { id, event }) => to.handle(cx, protocol::Input::HostEvent { id, event }),
            Some(Out::RouteLookup { .. } | Out::Open { .. } | Out::Close { .. } | Out::Event { .. })
            | None => {
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
        to.extend(self.engine.counters().iter().map(Counter::of(Subsystem::protocol("natfw"))));
    }

    fn gauges(&self, to: &mut Vec<Gauge>) {
        to.push(Gauge::new(&SESSIONS, &["natfw"], self.engine.session_count().into()));
        to.extend(self.engine.tables().into_iter().flat_map(|table| Gauge::table("natfw", table)));
    }
}

impl Restart for Instance {
    fn hand_over(&self, now: Time, to: &mut Entries) {
        self.engine.hand_over(now, to);
    }

    fn leaves(&self, id: PinholeId) -> bool {
        self.engine.leaves(id)
    }

    fn record_stop(&self, cx: &mut Context<'_>, from: u32, left: bool) -> Option<u32> {
        self.engine.record_stop(from, left, cx.resources)
    }
}

impl Composed for Instance {
    const NAME: &'static str = "natfw";

    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        if matches!(config.nslp, NslpId::NONE | NslpId::QOS) {
            return Err(ConfigError::NatfwNslp(config.nslp));
        }
        Ok(config.validated()?)
    }

    fn needs(config: &Config) -> Needs {
        Needs::of_applications(vec![config.nslp])
    }

    fn new(config: Config, setup: &mut Setup) -> Result<Self, ConfigError> {
        Ok(Self { engine: Natfw::new(config, setup.rng.array()) })
    }

    fn reload(&mut self, _: Time, config: Config) {
        if let Err(error) = self.engine.set_limits(&config) {
            tracing::warn!(%error, "limits of NATFW ignored");
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
            Out::RouteLookup { id, query } => Output::RouteLookup { id: lookups.put(id), query },
            Out::Open { id, pinhole, lifetime } => Output::OpenPinhole { id, pinhole, lifetime },
            Out::Close { id } => Output::ClosePinhole { id },
            Out::Event { id, event: of } => Output::Event(event(id, of)),
            Out::Request(_) | Out::Host { .. } => {
                debug_assert!(false, "requests are GIST's, and events of hosts the front end's");
                return None;
            }
        })
    }

    fn not_running(command: &Command) -> Option<Event> {
        match command {
            Command::Open(_) | Command::Expose(_) => Some(Event::Refused(Refusal::NoApplication)),
            Command::Close | Command::Delete(_) => None,
        }
    }
}
