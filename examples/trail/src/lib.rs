//! Trail: a protocol outside of the suite, composed into a node.
//!
//! A user asks for a trail to an address. The node sends a mark there, and repeats it. Each node with the protocol on the way
//! intercepts the mark, notes the trail for a lifetime, and sends the mark on; the destination answers with the count of
//! nodes. So a trail is soft state, as in the protocols of the suite: who no longer hears of it forgets it.
//!
//! The README beside this crate explains it in steps. A node that runs it alone:
//!
//! ```
//! use signalbox_core::node::NodeEngine;
//! use signalbox_example_trail::{Config, Trail};
//! use signalbox_node::{Extended, Node};
//!
//! let suite = signalbox_node::Config::empty();
//! let node: Node<Extended<Trail>> = Node::extended(suite, Config::default(), [7; 32])?;
//! assert_eq!(node.entries().len(), 1, "the driver opens one port");
//! # Ok::<(), signalbox_node::ConfigError>(())
//! ```

mod wire;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use signalbox_core::metrics::{Gauge, SESSIONS, Subsystem};
use signalbox_core::node::{NoRoute, Output, Route, RouteQuery};
use signalbox_core::packet::{Received, Transmit, router_alert_v4, router_alert_v6};
use signalbox_core::{
    AlertRule, Changes, Counter, Entry, EntryRequest, Intercept, Match, SessionChange, Time,
};
use signalbox_node::ConfigError;
use signalbox_node::protocol::{
    Composed, Context, Input, Needs, Next, Owners, Protocol, ProtocolLookups, Restart, Setup, Size,
};

use wire::{Kind, MAGIC, Message};

/// Settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The UDP port of the protocol, the same on all nodes.
    pub port: u16,
    /// Time after which a node forgets a trail of which it no longer hears, at least one second. The sender repeats its marks three times
    /// in it.
    pub lifetime: Duration,
    /// Most trails of others that the node notes.
    pub limit: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { port: 32_726, lifetime: Duration::from_secs(30), limit: 1000 }
    }
}

/// What a user asks. The identifier of the command is the number of the trail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Keep a trail to this address.
    Start(IpAddr),
    /// Repeat it no longer.
    Stop,
}

/// What a user gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// This number of nodes notes the trail, the destination included. It comes again when the number changes.
    Reached(u8),
    /// There is no route to the destination. The node tries again.
    NoRoute,
}

signalbox_core::counters! {
    /// Counters of the protocol.
    pub struct Counters {
        /// Marks of this node's own trails that were sent.
        marks_sent: u64,
        /// Marks of others that were noted.
        marks_noted: u64,
        /// Marks of others that were not noted, because the limit is reached.
        marks_refused: u64,
        /// Trails of others that were forgotten.
        expired: u64,
    }
}

/// A trail of another node: the address of its sender, and the sender's number.
type Key = (IpAddr, u64);

/// What waits for its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// The next mark of a trail of this node.
    Mark(u64),
    /// The end of a trail of another node.
    End(Key),
}

/// A trail of this node.
#[derive(Debug)]
struct Own {
    dst: IpAddr,
    next_mark: Time,
    /// The count of the last answer.
    nodes: Option<u8>,
}

#[derive(Debug)]
enum Queued {
    Lookup(u64, IpAddr),
    Packet { src: IpAddr, dst: IpAddr, ttl: u8, message: Message },
    Event(u64, Event),
}

/// The protocol, as a node runs it.
#[derive(Debug)]
pub struct Trail {
    config: Config,
    addresses: Vec<IpAddr>,
    own: BTreeMap<u64, Own>,
    /// Trails of others, with the time at which each ends.
    noted: BTreeMap<Key, Time>,
    timers: BTreeSet<(Time, Due)>,
    queue: VecDeque<Queued>,
    /// Payload and options of the packet that was given out last: its octets are lent to the driver.
    given: (Vec<u8>, Vec<u8>),
    counters: Counters,
}

impl Trail {
    /// The trails of others that this node notes: address of the sender, and the sender's number.
    pub fn noted(&self) -> impl Iterator<Item = (IpAddr, u64)> {
        self.noted.keys().copied()
    }

    fn timer(&mut self, now: Time) {
        while let Some((_, due)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.pop_first();
            match due {
                Due::Mark(id) => self.mark(now, id),
                Due::End(key) => {
                    self.noted.remove(&key);
                    self.counters.expired += 1;
                }
            }
        }
    }

    /// Looks up the route of a trail of this node, for its next mark.
    fn mark(&mut self, now: Time, id: u64) {
        let Some(own) = self.own.get_mut(&id) else { return };
        own.next_mark = now + self.config.lifetime / 3;
        self.timers.insert((own.next_mark, Due::Mark(id)));
        self.queue.push_back(Queued::Lookup(id, own.dst));
    }

    fn route(&mut self, id: u64, result: Result<Route, NoRoute>) {
        let Some(own) = self.own.get(&id) else { return };
        self.queue.push_back(match result {
            Ok(Route { src, .. }) => {
                self.counters.marks_sent += 1;
                let message = Message { kind: Kind::Mark, nodes: 0, trail: id };
                Queued::Packet { src, dst: own.dst, ttl: 64, message }
            }
            Err(_) => Queued::Event(id, Event::NoRoute),
        });
    }

    fn packet(&mut self, now: Time, packet: &Received<'_>) {
        let Some(mut message) = Message::parse(packet.payload) else { return };
        let (src, dst) = (packet.src.ip(), packet.dst.ip());
        // Each node of a link gets what is for a group: a mark that each of them sent on would multiply.
        if src.is_multicast() || src.is_unspecified() || dst.is_multicast() {
            return;
        }
        match message.kind {
            Kind::Answer => {
                let own = self.own.get_mut(&message.trail).filter(|own| own.dst == src);
                if own.is_some_and(|own| own.nodes.replace(message.nodes) != Some(message.nodes)) {
                    self.queue.push_back(Queued::Event(message.trail, Event::Reached(message.nodes)));
                }
            }
            Kind::Mark => {
                if self.note(now, (src, message.trail)) {
                    message.nodes = message.nodes.saturating_add(1);
                }
                if self.addresses.contains(&dst) {
                    let message = Message { kind: Kind::Answer, ..message };
                    self.queue.push_back(Queued::Packet { src: dst, dst: src, ttl: 64, message });
                } else if packet.ttl > 1 {
                    // It keeps the sender's address, so that it takes the way of the sender's packets.
                    self.queue.push_back(Queued::Packet { src, dst, ttl: packet.ttl - 1, message });
                }
            }
        }
    }

    /// Notes a trail of another node, or prolongs it. False: there are too many.
    fn note(&mut self, now: Time, key: Key) -> bool {
        if self.noted.len() >= self.config.limit && !self.noted.contains_key(&key) {
            self.counters.marks_refused += 1;
            return false;
        }
        let end = now + self.config.lifetime;
        if let Some(before) = self.noted.insert(key, end) {
            self.timers.remove(&(before, Due::End(key)));
        }
        self.timers.insert((end, Due::End(key)));
        self.counters.marks_noted += 1;
        true
    }
}

impl Protocol for Trail {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match input {
            Input::Timer => self.timer(cx.now),
            Input::Interfaces(interfaces) => {
                self.addresses = interfaces.iter().flat_map(|one| one.addresses.iter().copied()).collect();
            }
            Input::Packet(packet) => self.packet(cx.now, &packet),
            Input::Route { id, result } => self.route(id, result),
            // Each mark looks its route up again, so a change of a route needs no more.
            Input::RouteChanged(_)
            | Input::WallClock(_)
            | Input::Rules
            | Input::LinkSpeeds(_)
            | Input::TransmitFailed { .. }
            | Input::Undeliverable { .. }
            | Input::NeighborMoved { .. }
            | Input::Multicast(_)
            | Input::Stream(_)
            | Input::Grant(_)
            | Input::PinholeOpened { .. }
            | Input::FlowFound { .. }
            | Input::Indication(_)
            | Input::Request(_)
            | Input::HostRequest { .. }
            | Input::HostEvent { .. }
            | Input::Handover(_)
            | Input::Stop { .. } => {}
        }
    }

    /// It shares its port with no other protocol.
    fn takes(&self, _: Time, _: &Received<'_>) -> bool {
        true
    }

    /// Its tables fit into the caches.
    fn prepare(&self, _: &[(Entry, &[u8])]) -> bool {
        false
    }

    fn owners(&self) -> Owners {
        Owners::NEITHER
    }

    /// A node that starts learns the trails from the next marks.
    fn restart(&self) -> Option<&dyn Restart> {
        None
    }

    fn next(&mut self, _: &mut Context<'_>) -> Option<Next> {
        self.queue.front().map(|_| Next::Driver)
    }

    /// It never answers [`Next::Gist`].
    fn pass(&mut self, _: &mut Context<'_>, _: &mut dyn Protocol) {}

    fn flush(&mut self) -> bool {
        false
    }

    fn next_deadline(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    fn size(&self) -> Size {
        Size { sessions: u32::try_from(self.noted.len()).unwrap_or(u32::MAX), peers: None }
    }

    fn changes(&mut self) -> Option<&mut Changes<SessionChange>> {
        None
    }

    fn counters(&self, to: &mut Vec<Counter>) {
        to.extend(self.counters.iter().map(Counter::of(Subsystem::protocol(Self::NAME))));
    }

    fn gauges(&self, to: &mut Vec<Gauge>) {
        to.push(Gauge::new(&SESSIONS, &[Self::NAME], self.size().sessions.into()));
    }
}

impl Composed for Trail {
    const NAME: &'static str = "trail";

    type Config = Config;
    type Command = Command;
    type Event = Event;

    fn validate(config: &Config) -> Result<(), ConfigError> {
        if config.lifetime < Duration::from_secs(1) {
            return Err(ConfigError::Other("trail.lifetime: at least 1 s".to_owned()));
        }
        Ok(())
    }

    /// One UDP port. A packet that passes by is intercepted if it has a Router Alert and the magic number.
    fn needs(config: &Config) -> Needs {
        let intercept = Intercept::passing(AlertRule::Any, vec![Match::word(0, MAGIC)]);
        let entry = EntryRequest::local(Entry::Udp(config.port), Subsystem::part("trail_io", Self::NAME));
        let entries = vec![entry.with_intercept(intercept)];
        Needs { applications: Vec::new(), ports: Vec::new(), entries }
    }

    fn new(config: Config, _: &mut Setup) -> Result<Self, ConfigError> {
        Ok(Self {
            config,
            addresses: Vec::new(),
            own: BTreeMap::new(),
            noted: BTreeMap::new(),
            timers: BTreeSet::new(),
            queue: VecDeque::new(),
            given: (Vec::new(), Vec::new()),
            counters: Counters::default(),
        })
    }

    /// The port stays until a restart: the driver has opened it.
    fn reload(&mut self, _: Time, config: Config) {
        self.config = Config { port: self.config.port, ..config };
    }

    fn command(&mut self, cx: &mut Context<'_>, id: u64, command: Command) {
        if let Some(own) = self.own.remove(&id) {
            self.timers.remove(&(own.next_mark, Due::Mark(id)));
        }
        match command {
            Command::Start(dst) => {
                self.own.insert(id, Own { dst, next_mark: cx.now, nodes: None });
                self.mark(cx.now, id);
            }
            Command::Stop => {}
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
            Queued::Packet { src, dst, ttl, message } => {
                let options = match (message.kind, dst) {
                    (Kind::Answer, _) => Vec::new(),
                    (Kind::Mark, IpAddr::V4(_)) => router_alert_v4(0).to_vec(),
                    (Kind::Mark, IpAddr::V6(_)) => router_alert_v6(0).to_vec(),
                };
                self.given = (message.octets(), options);
                Output::Transmit(Transmit {
                    entry: Entry::Udp(self.config.port),
                    src: SocketAddr::new(src, self.config.port),
                    dst: SocketAddr::new(dst, self.config.port),
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
            Queued::Event(id, of) => Output::Event(event(id, of)),
        })
    }

    /// A node without the protocol is no `Node<Extended<Trail>>`.
    fn not_running(_: &Command) -> Option<Event> {
        None
    }
}
