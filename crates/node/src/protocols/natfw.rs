//! The NAT and firewall application (RFC 5973).

use signalbox_core::Counter;
use signalbox_core::handover::Entries;
use signalbox_core::metrics::{Gauge, SESSIONS, Subsystem};
use signalbox_core::node::{Interface, NoRoute, Output, Route};
use signalbox_core::pinhole::{OpenerId, PinholeError, PinholeId};
use signalbox_core::service::Indication;
use signalbox_core::{Changes, NslpId, SessionChange, Time};
pub(super) use signalbox_natfw::engine::{Command, Config, NatfwEvent as Event};
use signalbox_natfw::engine::{Input, Natfw, Output as Out, Refusal};

use crate::config::ConfigError;
use crate::protocol::{Composed, Context, Next, Protocol, Setup, Size};
use crate::routes::LookupsOf;

/// The NATFW application, as the node runs it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) engine: Natfw,
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

    fn rules(&mut self, cx: &mut Context<'_>) {
        self.engine.handle(cx.now, Input::Rules, cx.resources);
    }

    fn opener(&self) -> Option<OpenerId> {
        Some(OpenerId::NATFW)
    }

    fn stop(&mut self, cx: &mut Context<'_>, handed_over: bool) {
        self.engine.handle(cx.now, Input::Stop { handed_over }, cx.resources);
    }

    fn record_stop(&self, cx: &mut Context<'_>, from: u32, left: bool) -> Option<u32> {
        self.engine.record_stop(from, left, cx.resources)
    }

    fn hand_over(&self, now: Time, to: &mut Entries) {
        self.engine.hand_over(now, to);
    }

    fn leaves(&self, id: PinholeId) -> bool {
        self.engine.leaves(id)
    }

    fn take_over(&mut self, cx: &mut Context<'_>, entries: Entries) {
        self.engine.handle(cx.now, Input::Handover(entries), cx.resources);
    }

    fn pinhole(&mut self, cx: &mut Context<'_>, id: PinholeId, result: Result<(), PinholeError>) {
        self.engine.handle(cx.now, Input::Opened { id, result }, cx.resources);
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
            Out::Open { id, pinhole, lifetime } => Output::OpenPinhole { id, pinhole, lifetime },
            Out::Close { id } => Output::ClosePinhole { id },
            Out::Event { id, event } => Output::Event(super::Event::Natfw { id, event }),
            Out::Request(_) => {
                debug_assert!(false, "the request is GIST's");
                return None;
            }
        })
    }

    fn pass(&mut self, cx: &mut Context<'_>, to: &mut dyn Protocol) {
        match self.engine.poll() {
            Some(Out::Request(request)) => to.request(cx, request),
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

impl Composed for Instance {
    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        if matches!(config.nslp, NslpId::NONE | NslpId::QOS) {
            return Err(ConfigError::NatfwNslp(config.nslp));
        }
        Ok(config.validated()?)
    }

    fn claims(config: &Config) -> Vec<NslpId> {
        vec![config.nslp]
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

    fn not_running(command: &Command) -> Option<Event> {
        match command {
            Command::Open(_) | Command::Expose(_) => Some(Event::Refused(Refusal::NoApplication)),
            Command::Close | Command::Delete(_) => None,
        }
    }
}
