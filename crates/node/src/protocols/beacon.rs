//! The test protocol: a datagram that each node with the protocol intercepts, counts and passes on, and that the last one
//! answers. It shows how a protocol of the suite is added: with this file, and its lines beside those of
//! the other protocols.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use signalbox_core::Counter;
use signalbox_core::metrics::{Gauge, Subsystem};
use signalbox_core::node::{NoRoute, Output, Prefix, Route, RouteQuery};
use signalbox_core::packet::{Received, Transmit, router_alert_v4, router_alert_v6};
use signalbox_core::pinhole::{OpenerId, Pinhole};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{AlertRule, Changes, Entry, EntryRequest, Intercept, Match, SessionChange, Time};

use crate::config::ConfigError;
use crate::protocol::{
    Composed, Context, Input, Needs, Next, Owners, Protocol, ProtocolLookups, Restart, Setup, Size,
};

const PORT: u16 = 32_727;
const ENTRY: Entry = Entry::Udp(PORT);
const OPENER: OpenerId = OpenerId(240);
/// Time between two beacons of the settings.
const INTERVAL: Duration = Duration::from_millis(200);
const MAGIC: u32 = u32::from_be_bytes(*b"BCN1");
const ANSWER: u8 = 1;

/// Settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Config {
    /// A beacon goes to this address every 200 ms.
    pub to: Option<IpAddr>,
}

/// What a user asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Command {
    /// Send a beacon to this address.
    Send(IpAddr),
    /// Let packets to this address pass for one minute.
    Open(IpAddr),
}

/// What a user gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Event {
    /// The beacon was answered after this number of nodes, the last one included.
    Answered(u8),
    /// No node sent it: there is no route, or the protocol does not run here.
    NotSent,
    /// Whether the kernel lets the packets pass.
    Opened(bool),
}

signalbox_core::counters! {
    /// Counters of the test protocol.
    pub struct Counters {
        /// Beacons sent for users.
        sent: u64,
        /// Beacons passed on.
        passed_on: u64,
        /// Beacons answered.
        answered: u64,
        /// Answers received.
        answers: u64,
        /// Nodes on the path of the last beacon that was answered.
        nodes: u64,
    }
}

/// Magic number, kind, count of nodes, the user's identifier: 14 octets.
#[derive(Debug, Clone, Copy)]
struct Beacon {
    kind: u8,
    nodes: u8,
    id: u64,
}

impl Beacon {
    fn parse(payload: &[u8]) -> Option<Self> {
        let (magic, rest) = payload.split_first_chunk::<4>()?;
        let ([kind, nodes], rest) = rest.split_first_chunk::<2>()?;
        let id = u64::from_be_bytes(*rest.first_chunk()?);
        (u32::from_be_bytes(*magic) == MAGIC).then_some(Self { kind: *kind, nodes: *nodes, id })
    }

    fn octets(self) -> Vec<u8> {
        let mut octets = MAGIC.to_be_bytes().to_vec();
        octets.extend([self.kind, self.nodes]);
        octets.extend(self.id.to_be_bytes());
        octets
    }
}

#[derive(Debug)]
enum Queued {
    Lookup(u64, IpAddr),
    Packet { src: IpAddr, dst: IpAddr, ttl: u8, beacon: Beacon },
    Open(u64, IpAddr),
    Event(u64, Event),
}

/// The test protocol, as the node runs it.
#[derive(Debug, Default)]
pub(crate) struct Instance {
    to: Option<IpAddr>,
    next_beacon: Time,
    addresses: Vec<IpAddr>,
    /// Destinations of beacons that wait for their route.
    waiting: BTreeMap<u64, IpAddr>,
    queue: VecDeque<Queued>,
    /// Payload and options of the packet that was given out last.
    given: (Vec<u8>, Vec<u8>),
    counters: Counters,
}

impl Instance {
    fn timer(&mut self, cx: &mut Context<'_>) {
        if let Some(to) = self.to
            && self.next_beacon <= cx.now
        {
            self.next_beacon = cx.now + INTERVAL;
            self.command(cx, 0, Command::Send(to));
        }
    }

    fn packet(&mut self, packet: Received<'_>) {
        let Some(mut beacon) = Beacon::parse(packet.payload) else { return };
        let (src, dst) = (packet.src.ip(), packet.dst.ip());
        if beacon.kind == ANSWER {
            self.counters.answers += 1;
            self.counters.nodes = beacon.nodes.into();
            return self.queue.push_back(Queued::Event(beacon.id, Event::Answered(beacon.nodes)));
        }
        beacon.nodes = beacon.nodes.saturating_add(1);
        if self.addresses.contains(&dst) {
            self.counters.answered += 1;
            let beacon = Beacon { kind: ANSWER, ..beacon };
            self.queue.push_back(Queued::Packet { src: dst, dst: src, ttl: 64, beacon });
        } else if packet.ttl > 1 {
            self.counters.passed_on += 1;
            self.queue.push_back(Queued::Packet { src, dst, ttl: packet.ttl - 1, beacon });
        }
    }

    fn route(&mut self, id: u64, result: Result<Route, NoRoute>) {
        let Some(dst) = self.waiting.remove(&id) else { return };
        self.queue.push_back(match result {
            Ok(Route { src, .. }) => {
                self.counters.sent += 1;
                Queued::Packet { src, dst, ttl: 64, beacon: Beacon { kind: 0, nodes: 0, id } }
            }
            Err(_) => Queued::Event(id, Event::NotSent),
        });
    }
}

impl Protocol for Instance {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match input {
            Input::Timer => self.timer(cx),
            Input::Interfaces(interfaces) => {
                self.addresses =
                    interfaces.iter().flat_map(|interface| interface.addresses.iter().copied()).collect();
            }
            Input::Packet(packet) => self.packet(packet),
            Input::Route { id, result } => self.route(id, result),
            Input::PinholeOpened { id, result } => {
                self.queue.push_back(Queued::Event(id.key, Event::Opened(result.is_ok())));
            }
            Input::WallClock(_)
            | Input::Rules
            | Input::LinkSpeeds(_)
            | Input::TransmitFailed { .. }
            | Input::Undeliverable { .. }
            | Input::RouteChanged(_)
            | Input::NeighborMoved { .. }
            | Input::Multicast(_)
            | Input::Stream(_)
            | Input::Grant(_)
            | Input::FlowFound { .. }
            | Input::Indication(_)
            | Input::Request(_)
            | Input::HostRequest { .. }
            | Input::HostEvent { .. }
            | Input::Handover(_)
            | Input::Stop { .. } => {}
        }
    }

    fn takes(&self, _: Time, _: &Received<'_>) -> bool {
        true
    }

    fn prepare(&self, _: &[(Entry, &[u8])]) -> bool {
        false
    }

    fn owners(&self) -> Owners {
        Owners { reserver: None, opener: Some(OPENER) }
    }

    fn restart(&self) -> Option<&dyn Restart> {
        None
    }

    /// It never answers [`Next::Gist`].
    fn pass(&mut self, _: &mut Context<'_>, _: &mut dyn Protocol) {}

    fn flush(&mut self) -> bool {
        false
    }

    fn changes(&mut self) -> Option<&mut Changes<SessionChange>> {
        None
    }

    fn next(&mut self, _: &mut Context<'_>) -> Option<Next> {
        self.queue.front().map(|_| Next::Driver)
    }

    fn next_deadline(&self) -> Option<Time> {
        self.to.map(|_| self.next_beacon)
    }

    fn size(&self) -> Size {
        Size::default()
    }

    fn counters(&self, to: &mut Vec<Counter>) {
        to.extend(self.counters.iter().map(Counter::of(Subsystem::protocol("beacon"))));
    }

    fn gauges(&self, _: &mut Vec<Gauge>) {}
}

impl Composed for Instance {
    const NAME: &'static str = "beacon";

    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(_: &Config) -> Result<(), ConfigError> {
        Ok(())
    }

    fn needs(_: &Config) -> Needs {
        let intercept = Intercept::passing(AlertRule::Any, vec![Match::word(0, MAGIC)]);
        let entry =
            EntryRequest::local(ENTRY, Subsystem::part("beacon_io", "beacon")).with_intercept(intercept);
        Needs { applications: Vec::new(), ports: Vec::new(), entries: vec![entry] }
    }

    fn new(config: Config, _: &mut Setup) -> Result<Self, ConfigError> {
        Ok(Self { to: config.to, ..Self::default() })
    }

    fn reload(&mut self, _: Time, _: Config) {}

    fn command(&mut self, _: &mut Context<'_>, id: u64, command: Command) {
        match command {
            Command::Send(dst) => {
                self.waiting.insert(id, dst);
                self.queue.push_back(Queued::Lookup(id, dst));
            }
            Command::Open(dst) => self.queue.push_back(Queued::Open(id, dst)),
        }
    }

    fn poll<E>(
        &mut self,
        lookups: ProtocolLookups<'_>,
        event: impl FnOnce(u64, Event) -> E,
    ) -> Option<Output<'_, E>> {
        Some(match self.queue.pop_front()? {
            Queued::Lookup(id, dst) => {
                Output::RouteLookup { id: lookups.put(id), query: RouteQuery::to(dst) }
            }
            Queued::Packet { src, dst, ttl, beacon } => {
                let options = match (beacon.kind, dst) {
                    (ANSWER, _) => Vec::new(),
                    (_, IpAddr::V4(_)) => router_alert_v4(0).to_vec(),
                    (_, IpAddr::V6(_)) => router_alert_v6(0).to_vec(),
                };
                self.given = (beacon.octets(), options);
                Output::Transmit(Transmit {
                    entry: ENTRY,
                    src: SocketAddr::new(src, PORT),
                    dst: SocketAddr::new(dst, PORT),
                    ifindex: None,
                    gateway: None,
                    ttl,
                    tos: 0,
                    dont_fragment: false,
                    flow_label: 0,
                    unproved: false,
                    options: &self.given.1,
                    payload: &self.given.0,
                })
            }
            Queued::Open(id, dst) => {
                let packets = FlowFilter::between(Prefix::all_like(dst), Prefix::host(dst));
                let pinhole = Pinhole::allow(packets);
                Output::OpenPinhole { id: OPENER.pinhole(id), pinhole, lifetime: Duration::from_secs(60) }
            }
            Queued::Event(id, of) => Output::Event(event(id, of)),
        })
    }

    fn not_running(_: &Command) -> Option<Event> {
        Some(Event::NotSent)
    }
}
