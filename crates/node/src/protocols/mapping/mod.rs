//! The front end for programs that do not signal: a server of PCP (RFC 6887) and NAT-PMP (RFC 6886).
//!
//! What a host asks for goes to NATFW ([`Next::Protocol`]), as if the host itself had sent an EXTERNAL. `path` translates between the two
//! engines, `probe` finds the address by which hosts outside reach mappings.
//!
//! Nothing in a request proves who sent it. So the route to its source is looked up first: it has to leave by the interface by which
//! the request came in.

mod path;
mod probe;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use signalbox_core::entry::Interfaces;
use signalbox_core::handover::Entries;
use signalbox_core::metrics::{Gauge, SESSIONS, Subsystem};
use signalbox_core::node::{NoRoute, Output, Route, RouteQuery};
use signalbox_core::packet::{Received, ReceivedOf};
use signalbox_core::pinhole::PinholeId;
use signalbox_core::{Changes, Counter, Entry, EntryRequest, SessionChange, Time};
pub(super) use signalbox_mapping::engine::{Command, Event};
use signalbox_mapping::engine::{Dropped, Input, Mapper, Next as Taker, Output as Out};
use signalbox_mapping::wire::SERVER_PORT;
use signalbox_natfw::engine::HostRequest;

use self::path::Path;
use self::probe::Probe;
use super::ProtocolId;
use crate::config::ConfigError;
use crate::protocol::{
    self, Composed, Context, Needs, Next, Owners, Protocol, ProtocolLookups, Restart, Setup, Size,
};

pub(super) use MappingConfig as Config;

/// A start takes over what was written so long ago at most.
const LONGEST: Duration = Duration::from_secs(60);

/// Most requests that wait for the routes to their sources.
const WAITING: usize = 64;

/// Settings of the front end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct MappingConfig {
    /// Settings of the server.
    pub engine: signalbox_mapping::engine::Config,
    /// An address behind the edge of the network: requests travel towards it (RFC 5973 Appendix A).
    pub towards: Ipv4Addr,
    /// The same for hosts with IPv6 addresses.
    pub towards_v6: Ipv6Addr,
}

impl Default for MappingConfig {
    /// The addresses are for documentation: a message that no node takes reaches no host.
    fn default() -> Self {
        Self {
            engine: signalbox_mapping::engine::Config::default(),
            towards: Ipv4Addr::new(192, 0, 2, 1),
            towards_v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        }
    }
}

impl MappingConfig {
    /// The address towards which a request for this host travels.
    const fn towards(&self, host: IpAddr) -> IpAddr {
        match host {
            IpAddr::V4(_) => IpAddr::V4(self.towards),
            IpAddr::V6(_) => IpAddr::V6(self.towards_v6),
        }
    }
}

/// An output that is not the engine's own.
#[derive(Debug)]
enum Own {
    Lookup(u64, RouteQuery),
    Host(u64, Option<Box<HostRequest>>),
}

/// The front end, as the node runs it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) engine: Mapper,
    config: Config,
    path: Path,
    probe: Probe,
    /// Requests that wait for the routes to their sources.
    waiting: BTreeMap<u64, ReceivedOf<Vec<u8>>>,
    next_lookup: u64,
    own: VecDeque<Own>,
    /// Microseconds since 1970 at [`Time::ZERO`].
    wall_clock_us: u64,
}

impl Instance {
    /// Microseconds since 1970.
    fn unix_us(&self, now: Time) -> u64 {
        let since = u64::try_from(now.since(Time::ZERO).as_micros()).unwrap_or(u64::MAX);
        self.wall_clock_us.saturating_add(since)
    }

    /// Takes what the front end before this one left: how lease keys are made, when it wrote that, and what its server had.
    fn take_over(&mut self, now: Time, mut entries: Entries) {
        let first = entries.take().and_then(|entry| {
            let (secret, time) = entry.split_first_chunk::<16>()?;
            Some((*secret, u64::from_be_bytes(time.try_into().ok()?)))
        });
        let Some((secret, written)) = first else {
            return tracing::debug!(reason = "damaged", "mappings of the predecessor dropped");
        };
        self.path = Path::new(secret);
        let elapsed = Duration::from_micros(self.unix_us(now).saturating_sub(written)).min(LONGEST);
        self.engine.handle(now, Input::Handover { entries, elapsed });
    }

    /// Looks up the route to the source of a request. What would be dropped anyway costs no lookup.
    fn receive(&mut self, now: Time, packet: Received<'_>) {
        if !self.engine.accepts(&packet) {
            return self.engine.handle(now, Input::Packet(packet));
        }
        if self.waiting.len() >= WAITING {
            let (client, why) = (packet.src, Dropped::Overload);
            return self.engine.handle(now, Input::Dropped { client, why });
        }
        let id = self.next_lookup;
        self.next_lookup += 1;
        let Received { entry, src, dst, ifindex, ttl, tos, options, payload } = packet;
        let (options, payload) = (options.to_vec(), payload.to_vec());
        let kept = ReceivedOf { entry, src, dst, ifindex, ttl, tos, options, payload };
        self.waiting.insert(id, kept);
        let query = RouteQuery { src: Some(dst.ip()), ..RouteQuery::to(src.ip()) };
        self.own.push_back(Own::Lookup(id, query));
    }

    /// Gives a request to the engine if the route to its source leaves by the interface by which it came in.
    fn routed(&mut self, now: Time, id: u64, result: Result<Route, NoRoute>) {
        let Some(packet) = self.waiting.remove(&id) else { return };
        if result.is_ok_and(|route| !route.local && route.ifindex == packet.ifindex) {
            return self.engine.handle(now, Input::Packet(packet.as_received()));
        }
        let (client, why) = (packet.src, Dropped::Elsewhere);
        self.engine.handle(now, Input::Dropped { client, why });
    }

    /// Lets the probe do what is due, and tells the engine what it found.
    fn probe(&mut self, now: Time, act: impl FnOnce(&mut Probe) -> Option<Option<Ipv4Addr>>) {
        if let Some(outside) = act(&mut self.probe) {
            self.engine.handle(now, Input::Outside(outside));
        }
        if let Some(request) = self.probe.ask(now, &self.config) {
            self.own.push_back(Own::Host(probe::ID, Some(Box::new(request))));
        }
    }
}

impl Protocol for Instance {
    fn handle(&mut self, cx: &mut Context<'_>, input: protocol::Input<'_>) {
        let now = cx.now;
        match input {
            protocol::Input::Timer => {
                self.engine.handle(now, Input::Timer);
                self.probe(now, |probe| probe.timer(now));
            }
            protocol::Input::Interfaces(interfaces) => {
                self.engine.handle(now, Input::Interfaces(interfaces));
                let served = &self.config.engine;
                let from = served.translates.then(|| probe::place(interfaces, &served.interfaces)).flatten();
                if self.probe.is_elsewhere(from) {
                    self.own.push_back(Own::Host(probe::ID, None));
                }
                self.probe(now, |probe| probe.start(from));
            }
            protocol::Input::Packet(packet) => self.receive(now, packet),
            protocol::Input::Route { id, result } => self.routed(now, id, result),
            protocol::Input::HostEvent { id: probe::ID, event } => {
                self.probe(now, |probe| probe.answered(now, &event));
            }
            protocol::Input::HostEvent { id, event } => {
                if let Some(input) = self.path.answered(id, event) {
                    self.engine.handle(now, input);
                }
            }
            protocol::Input::Handover(entries) => self.take_over(now, entries),
            protocol::Input::WallClock(wall_clock_us) => self.wall_clock_us = wall_clock_us,
            protocol::Input::Rules
            | protocol::Input::LinkSpeeds(_)
            | protocol::Input::TransmitFailed { .. }
            | protocol::Input::Undeliverable { .. }
            | protocol::Input::RouteChanged(_)
            | protocol::Input::NeighborMoved { .. }
            | protocol::Input::Multicast(_)
            | protocol::Input::Stream(_)
            | protocol::Input::Grant(_)
            | protocol::Input::PinholeOpened { .. }
            | protocol::Input::FlowFound { .. }
            | protocol::Input::Indication(_)
            | protocol::Input::Request(_)
            | protocol::Input::HostRequest { .. }
            | protocol::Input::Stop { .. } => {}
        }
    }

    /// It shares its port with no other protocol.
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
        Some(self)
    }

    fn next(&mut self, _: &mut Context<'_>) -> Option<Next> {
        let natfw = Next::Protocol(ProtocolId::Natfw);
        let own = self.own.front().map(|own| match own {
            Own::Lookup(..) => Next::Driver,
            Own::Host(..) => natfw,
        });
        own.or_else(|| {
            Some(match self.engine.next()? {
                Taker::Driver => Next::Driver,
                Taker::Path => natfw,
            })
        })
    }

    fn pass(&mut self, cx: &mut Context<'_>, to: &mut dyn Protocol) {
        let (id, request) = match self.own.pop_front() {
            Some(Own::Host(id, request)) => (id, request.map(|request| *request)),
            Some(Own::Lookup(..)) => return debug_assert!(false, "a lookup is the driver's"),
            None => match self.engine.poll() {
                Some(Out::Open { id, wanted }) => (id.0, Some(self.path.open(id, &wanted, &self.config))),
                Some(Out::Close { id }) => (id.0, self.path.close(id)),
                Some(Out::Transmit(_) | Out::Event { .. }) | None => {
                    return debug_assert!(false, "the output is the driver's");
                }
            },
        };
        to.handle(cx, protocol::Input::HostRequest { id, request });
    }

    fn flush(&mut self) -> bool {
        false
    }

    fn next_deadline(&self) -> Option<Time> {
        self.engine.next_deadline().into_iter().chain(self.probe.next_deadline()).min()
    }

    fn size(&self) -> Size {
        Size { sessions: self.engine.len(), peers: None }
    }

    fn changes(&mut self) -> Option<&mut Changes<SessionChange>> {
        None
    }

    fn counters(&self, to: &mut Vec<Counter>) {
        to.extend(self.engine.counters().iter().map(Counter::of(Subsystem::protocol("mapping"))));
    }

    fn gauges(&self, to: &mut Vec<Gauge>) {
        to.push(Gauge::new(&SESSIONS, &["mapping"], self.engine.len().into()));
        to.extend(self.engine.tables().into_iter().flat_map(|table| Gauge::table("mapping", table)));
    }
}

impl Restart for Instance {
    fn hand_over(&self, now: Time, to: &mut Entries) {
        let mut first = self.path.secret().to_vec();
        first.extend(self.unix_us(now).to_be_bytes());
        to.push(&first);
        self.engine.hand_over(now, to);
    }

    fn leaves(&self, _: PinholeId) -> bool {
        false
    }

    /// Passages are those of NATFW.
    fn record_stop(&self, _: &mut Context<'_>, _: u32, _: bool) -> Option<u32> {
        None
    }
}

impl Composed for Instance {
    const NAME: &'static str = "mapping";

    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        Ok(config.engine.validated()?)
    }

    fn needs(config: &Config) -> Needs {
        let entry = EntryRequest::local(Entry::Udp(SERVER_PORT), Subsystem::protocol("mapping"));
        let named = config.engine.interfaces.iter().map(|name| (name.clone(), true)).collect();
        let interfaces = Interfaces { named, others: false };
        Needs {
            applications: Vec::new(),
            ports: Vec::new(),
            entries: vec![EntryRequest { interfaces, ..entry }],
        }
    }

    fn new(config: Config, setup: &mut Setup) -> Result<Self, ConfigError> {
        Ok(Self {
            engine: Mapper::new(config.engine.clone(), setup.rng.array()),
            config,
            path: Path::new(setup.rng.array()),
            probe: Probe::default(),
            waiting: BTreeMap::new(),
            next_lookup: 0,
            own: VecDeque::new(),
            wall_clock_us: setup.wall_clock_us,
        })
    }

    /// Its settings need a restart.
    fn reload(&mut self, _: Time, _: Config) {}

    fn command(&mut self, cx: &mut Context<'_>, id: u64, command: Command) {
        self.engine.handle(cx.now, Input::Command { id, command });
    }

    fn poll<E>(
        &mut self,
        lookups: ProtocolLookups<'_>,
        event: impl FnOnce(u64, Event) -> E,
    ) -> Option<Output<'_, E>> {
        if let Some(own) = self.own.pop_front() {
            return match own {
                Own::Lookup(id, query) => Some(Output::RouteLookup { id: lookups.put(id), query }),
                Own::Host(..) => {
                    debug_assert!(false, "the request is NATFW's");
                    None
                }
            };
        }
        match self.engine.poll()? {
            Out::Transmit(packet) => Some(Output::Transmit(packet)),
            Out::Event { id, event: of } => Some(Output::Event(event(id, of))),
            Out::Open { .. } | Out::Close { .. } => {
                debug_assert!(false, "the output is NATFW's");
                None
            }
        }
    }

    fn not_running(command: &Command) -> Option<Event> {
        match command {
            Command::Clear(_) => Some(Event::Unknown),
            Command::End => None,
        }
    }
}
