//! The simulation itself: engines, events in order of time, and what tests ask.

mod event;
mod multicast;
mod reservations;
mod run;
mod settings;
mod streams;

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use signalbox_core::node::{Input, NoRoute, NodeEngine, TransmitError};
use signalbox_core::traffic::{Reservation, ReservationId, ReserveError};
use signalbox_core::{Entry, EntryRequest, IfIndex, Random, Time};

use crate::config::{LinkConfig, LinkId, NodeId};
use crate::network::{Network, Way};
use crate::packet::{Captured, Packet};
use crate::seed::{Purpose, seed_from_environment, stream};
use crate::stream::Streams;
use event::{Queued, What};
use multicast::Multicast;

/// Events of one run beyond which an engine is taken to be caught in a loop.
const MOST_STEPS: u64 = 20_000_000;

signalbox_core::counters! {
    /// What happened to packets.
    pub struct Counters {
        /// Packets put on links, forwarded ones included.
        carried: u64,
        /// Packets lost by chance or taken out by a filter.
        lost: u64,
        /// Packets carried twice.
        duplicated: u64,
        /// Packets that routers passed on.
        forwarded: u64,
        /// Packets taken out of forwarding for an engine.
        intercepted: u64,
        /// Packets delivered to an engine at their destination.
        delivered: u64,
        /// Packets at a destination where nothing listens.
        unheard: u64,
        /// Packets dropped because their TTL was used up.
        ttl_expired: u64,
        /// Packets dropped on the way for want of a route.
        unrouted: u64,
        /// Packets dropped on the way because they were larger than the MTU and not to be fragmented.
        too_big: u64,
        /// Streams that engines tried to open.
        streams_opened: u64,
        /// Ends of streams that failed.
        streams_failed: u64,
        /// Segments of octets that streams carried, each counted once.
        stream_segments: u64,
        /// Signals of streams that were sent again.
        stream_retransmissions: u64,
    }
}

/// What a node's engine is made from.
#[derive(Debug, Clone, Copy)]
pub struct Boot {
    /// The node.
    pub node: NodeId,
    /// A seed of its own, another one after each restart.
    pub seed: [u8; 32],
    /// When it starts; its time goes on from there.
    pub now: Time,
}

/// An event that an engine gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Happened<E> {
    /// When.
    pub at: Time,
    /// Whose.
    pub node: NodeId,
    /// What.
    pub event: E,
}

/// A network of nodes in virtual time.
///
/// Routes depend on the destination alone: those that were set come first (longest prefix), then the nets of
/// the node's own links, then the shortest path to the node that has the address. Routing has no protocol and
/// no delay of its own: all nodes change their minds at once.
pub struct Sim<N: NodeEngine> {
    seed: u64,
    now: Time,
    network: Network,
    nodes: Vec<Node<N>>,
    streams: Streams,
    started: bool,
    queue: BinaryHeap<Queued>,
    queued: u64,
    happened: Vec<Happened<N::Event>>,
    log: VecDeque<Captured>,
    counters: Counters,
    lookup_delay: Duration,
    step_limit: u64,
    steps: u64,
}

type Factory<N> = Box<dyn FnMut(Boot) -> N>;

struct Node<N> {
    factory: Option<Factory<N>>,
    engine: Option<N>,
    /// Counts restarts, so that answers to a dead engine do not reach its successor.
    incarnation: u32,
    interception: bool,
    /// What the engine that was started last asks of its driver.
    entries: Vec<EntryRequest>,
    /// Entries that the driver does not open.
    closed: BTreeSet<Entry>,
    multicast: Multicast,
    timer: Option<Time>,
    /// Neither forwards nor answers.
    off: bool,
    /// What its engines had installed; it outlives a crash, as kernel state does, but not the next start.
    reservations: BTreeMap<ReservationId, Reservation>,
    /// How its kernel answers.
    reserve_result: Result<(), ReserveError>,
}

impl<N: NodeEngine> Sim<N> {
    /// An empty network; `SIGNALBOX_SEED` in the environment replaces `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let seed = seed_from_environment(seed);
        Self {
            seed,
            now: Time::ZERO,
            network: Network::new(seed),
            nodes: Vec::new(),
            streams: Streams::new(seed),
            started: false,
            queue: BinaryHeap::new(),
            queued: 0,
            happened: Vec::new(),
            log: VecDeque::new(),
            counters: Counters::default(),
            lookup_delay: Duration::ZERO,
            step_limit: MOST_STEPS,
            steps: 0,
        }
    }

    /// The seed of this run, for messages of failure.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The time now.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// A random stream of this run for the test itself; streams of different numbers do not disturb each
    /// other, nor anything else in the run.
    #[must_use]
    pub fn random(&self, number: u32) -> Random {
        stream(self.seed, Purpose::Topology, number, 0)
    }

    /// Adds a node that only forwards.
    pub fn add_router(&mut self, name: impl Into<String>) -> NodeId {
        self.add(name.into(), None)
    }

    /// Adds a node whose engine `factory` makes: at the start of the run, and again at each restart.
    pub fn add_engine(
        &mut self,
        name: impl Into<String>,
        factory: impl FnMut(Boot) -> N + 'static,
    ) -> NodeId {
        self.add(name.into(), Some(Box::new(factory)))
    }

    /// Adds `count` nodes with engines from the same factory, named by their number.
    pub fn add_engines(
        &mut self,
        count: u32,
        factory: impl FnMut(Boot) -> N + Clone + 'static,
    ) -> Vec<NodeId> {
        (0..count).map(|_| self.add_engine(format!("n{}", self.nodes.len()), factory.clone())).collect()
    }

    fn add(&mut self, name: String, factory: Option<Factory<N>>) -> NodeId {
        self.nodes.push(Node {
            factory,
            engine: None,
            incarnation: 0,
            interception: true,
            entries: Vec::new(),
            closed: BTreeSet::new(),
            multicast: Multicast::default(),
            timer: None,
            off: false,
            reservations: BTreeMap::new(),
            reserve_result: Ok(()),
        });
        let node = self.network.add_host(name);
        if self.started {
            self.boot(node);
        }
        node
    }

    /// Joins two nodes. Link number k has the nets 10.0.0.0/30 + 4k and fd00:0:0:k::/64, `a` the first address
    /// of each and `b` the second.
    ///
    /// # Panics
    /// If both are the same node.
    pub fn link(&mut self, a: NodeId, b: NodeId, config: &LinkConfig) -> LinkId {
        assert_ne!(a, b, "a link joins two nodes (seed {})", self.seed);
        let (link, changes) = self.network.add_link(a, b, config);
        self.tell_ends(link);
        self.tell_routes(changes);
        link
    }

    /// Gives the node an address of its own on its loopback interface.
    pub fn add_address(&mut self, node: NodeId, addr: IpAddr) {
        self.network.add_address(node, addr);
        self.tell_interfaces(node);
    }

    /// The node's address: one that was added, else that on its first link.
    ///
    /// # Panics
    /// If the node has neither.
    #[must_use]
    pub fn address(&self, node: NodeId, family: crate::Family) -> IpAddr {
        let address = self.network.address(node, family);
        address.unwrap_or_else(|| panic!("{node} has no address (seed {})", self.seed))
    }

    /// The node's address on this link.
    #[must_use]
    pub fn address_on(&self, node: NodeId, link: LinkId, family: crate::Family) -> IpAddr {
        self.network.address_on(link, self.network.end_of(link, node), family)
    }

    /// The number that the node gives its end of this link.
    #[must_use]
    pub fn ifindex(&self, node: NodeId, link: LinkId) -> IfIndex {
        self.network.ifindex(link, self.network.end_of(link, node))
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self, node: NodeId) -> &str {
        self.network.name(node)
    }

    /// All links.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + use<N> {
        self.network.links()
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<N> {
        (0..u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)).map(NodeId)
    }

    /// Streams that at least one end still has.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// The log: the last 100,000 packets of the links captured, oldest first.
    pub fn captured(&self) -> impl Iterator<Item = &Captured> {
        self.log.iter()
    }

    /// Lets a packet, true or forged, arrive at `to` by this link now.
    pub fn inject(&mut self, link: LinkId, to: NodeId, packet: Packet) {
        let end = self.network.end_of(link, to);
        self.enqueue(self.now, What::Arrival { link, end, packet });
    }

    /// Sends a packet from a node as any program there could.
    ///
    /// # Errors
    /// As the kernel would answer at once.
    pub fn send(&mut self, node: NodeId, packet: Packet) -> Result<(), TransmitError> {
        self.originate(node, packet, None)
    }

    /// The way that a packet from `from` to `dst` would take now: each node that it leaves and by which link, in order.
    /// Empty if `dst` is the node itself.
    ///
    /// # Errors
    /// Why it would not get there; [`NoRoute::Failed`] if it went round in circles.
    pub fn path(&mut self, from: NodeId, dst: IpAddr) -> Result<Vec<(NodeId, LinkId)>, NoRoute> {
        let (mut at, mut path) = (from, Vec::new());
        while let Way::Out { link, end } = self.network.way(at, dst)? {
            if path.len() >= self.nodes.len() {
                return Err(NoRoute::Failed);
            }
            path.push((at, link));
            at = self.network.link(link).node(1 - end);
        }
        Ok(path)
    }

    /// The node's engine, while it lives.
    #[must_use]
    pub fn engine(&self, node: NodeId) -> Option<&N> {
        self.nodes[node.at()].engine.as_ref()
    }

    /// Gives an engine a command now.
    ///
    /// # Panics
    /// If the node has no engine or it is down.
    pub fn command(&mut self, node: NodeId, command: N::Command) {
        self.input(node, Input::Command(command));
    }

    /// Gives an engine any input now.
    ///
    /// # Panics
    /// If the node has no engine or it is down.
    pub fn input(&mut self, node: NodeId, input: Input<'_, N::Command>) {
        self.start();
        assert!(self.engine(node).is_some(), "{node} runs no engine (seed {})", self.seed);
        self.drive(node, input);
    }

    /// Drops the node's engine with all its state; the node forwards on as a plain router. The other ends of
    /// its streams hear of it when they send the next time.
    pub fn crash(&mut self, node: NodeId) {
        self.start();
        self.streams.crash(node);
        let state = &mut self.nodes[node.at()];
        state.engine = None;
        state.timer = None;
    }

    /// The node falls silent: its engine is dropped, and it neither forwards nor answers. Routes go on leading
    /// to it, and nobody is told.
    pub fn power_off(&mut self, node: NodeId) {
        self.crash(node);
        self.nodes[node.at()].off = true;
    }

    /// Makes the node's engine anew, from another seed, whether it ran, had crashed or was off.
    pub fn restart(&mut self, node: NodeId) {
        self.crash(node);
        self.nodes[node.at()].off = false;
        self.nodes[node.at()].incarnation += 1;
        self.boot(node);
    }

    /// What happened so far and was not taken, in order.
    #[must_use]
    pub fn events(&self) -> &[Happened<N::Event>] {
        &self.happened
    }

    /// Takes what happened so far.
    pub fn take_events(&mut self) -> Vec<Happened<N::Event>> {
        core::mem::take(&mut self.happened)
    }

    /// What happened to packets so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Events handled so far.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Lets time pass until `end`, with everything that happens up to and at it.
    pub fn run_until(&mut self, end: Time) {
        self.run(end, |_| false);
    }

    /// Lets so much time pass.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// Lets time pass until `done`, which is asked after each event, or for `limit`; whether `done` came.
    pub fn wait(&mut self, limit: Duration, done: impl FnMut(&Self) -> bool) -> bool {
        self.run(self.now + limit, done)
    }

    /// [`Sim::wait`] for what must come.
    ///
    /// # Panics
    /// If it does not come within `limit`; the message has `what`, the time and the seed.
    pub fn expect(&mut self, what: &str, limit: Duration, done: impl FnMut(&Self) -> bool) {
        assert!(self.wait(limit, done), "{what}: not within {limit:?}, at {} (seed {})", self.now, self.seed);
    }

    fn run(&mut self, end: Time, mut done: impl FnMut(&Self) -> bool) -> bool {
        self.start();
        let first = self.steps;
        if done(self) {
            return true;
        }
        while self.queue.peek().is_some_and(|q| q.at <= end) {
            let Some(Queued { at, what, .. }) = self.queue.pop() else { break };
            self.now = at;
            if self.step(what) {
                self.steps += 1;
                let limit = self.step_limit;
                assert!(self.steps - first <= limit, "{limit} steps and no end at {at} (seed {})", self.seed);
                if done(self) {
                    return true;
                }
            }
        }
        self.now = self.now.max(end);
        done(self)
    }
}

impl<N: NodeEngine> Drop for Sim<N> {
    /// Whatever a test fails by, the seed of its run is printed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("simulation failed at {}: run again with SIGNALBOX_SEED={}", self.now, self.seed);
        }
    }
}
