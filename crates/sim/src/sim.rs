//! The simulation itself: engines, events in the order of time, and the methods for tests.

mod event;
mod hold;
mod multicast;
mod pinholes;
mod reservations;
mod run;
mod settings;
mod streams;

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use signalbox_core::node::{Input, Interface, NoRoute, NodeEngine, TransmitError};
use signalbox_core::traffic::{Reservation, ReservationId, ReserveError};
use signalbox_core::{Entry, EntryRequest, IfIndex, Random, Time};

use crate::config::{LinkConfig, LinkId, NodeId};
use crate::network::{Network, NextStep};
use crate::packet::{Captured, Packet};
use crate::seed::{Purpose, seed_from_environment, stream};
use crate::stream::Streams;
use event::{Occurrence, Queued};
use hold::Hold;
pub(crate) use hold::{Held, HeldId, Kind};
use multicast::Multicast;
use pinholes::Pinholes;

/// Limit on the events of one run. Beyond it, the simulation assumes that an engine is in an endless loop.
const MOST_STEPS: u64 = 20_000_000;

signalbox_core::counters! {
    /// Counters of packets and streams.
    pub struct Counters {
        /// Packets put on links, forwarded ones included.
        carried: u64,
        /// Packets lost at random or dropped by a filter.
        lost: u64,
        /// Packets that arrived twice.
        duplicated: u64,
        /// Packets that routers forwarded.
        forwarded: u64,
        /// Packets intercepted for an engine.
        intercepted: u64,
        /// Packets delivered to an engine at their destination.
        delivered: u64,
        /// Echo Requests that a node answered as any host does, because no engine of it receives them.
        echoed: u64,
        /// Other packets at a destination that does not receive their entry.
        unreceived: u64,
        /// Packets dropped because their TTL had run out.
        ttl_expired: u64,
        /// Packets dropped in transit because no route existed.
        unrouted: u64,
        /// Packets of other nodes dropped by a firewall or NAT that has no pinhole for them.
        blocked: u64,
        /// Packets dropped in transit because they were larger than the MTU and must not be fragmented.
        too_big: u64,
        /// Streams that engines opened.
        streams_opened: u64,
        /// Ends of streams that failed.
        streams_failed: u64,
        /// Segments of octets that streams carried, each counted once.
        stream_segments: u64,
        /// Signals of streams that were retransmitted.
        stream_retransmissions: u64,
    }
}

/// Parameters for a node's new engine.
#[derive(Debug, Clone, Copy)]
pub struct Boot {
    /// The node.
    pub node: NodeId,
    /// Seed of the engine. Each restart has another one.
    pub seed: [u8; 32],
    /// Time at which it starts; the engine's time continues from there.
    pub now: Time,
}

/// An event of an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Happened<E> {
    /// Time of the event.
    pub at: Time,
    /// Node of the engine.
    pub node: NodeId,
    /// The event.
    pub event: E,
}

/// A network of nodes in virtual time.
///
/// Routes depend on the destination only. Routes that the test set come first (longest prefix), then the nets
/// of the node's own links, then the shortest path to the node that has the address. The network runs no
/// routing protocol and routing has no delay: the routes of all nodes change at the same time.
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
    /// The messages that an exploration holds.
    hold: Option<Hold>,
}

type Factory<N> = Box<dyn FnMut(Boot) -> N>;

struct Node<N> {
    factory: Option<Factory<N>>,
    engine: Option<N>,
    /// Number of restarts, so that an answer to an old engine does not reach its successor.
    incarnation: u32,
    interception: bool,
    /// Entries that the engine which was started last asks for.
    entries: Vec<EntryRequest>,
    /// Entries that the driver does not open.
    closed: BTreeSet<Entry>,
    multicast: Multicast,
    timer: Option<Time>,
    /// Whether the node is off: it neither forwards nor answers.
    off: bool,
    /// Reservations in the node's kernel. They survive a crash of the engine, as kernel state does, but not
    /// its next start.
    reservations: BTreeMap<ReservationId, Reservation>,
    /// Result of the kernel for requests to reserve.
    reserve_result: Result<(), ReserveError>,
    pinholes: Pinholes,
}

impl<N: NodeEngine> Sim<N> {
    /// An empty network; `SIGNALBOX_SEED` in the environment replaces `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::with_seed(seed_from_environment(seed))
    }

    /// An empty network with just this seed.
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        signalbox_core::invariant::panic_if_broken();
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
            hold: None,
        }
    }

    /// The seed of this run, for the messages of failed tests.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The present time.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// A random generator of this run for the test itself. Generators of different numbers are independent of
    /// each other and of everything else in the run.
    #[must_use]
    pub fn random(&self, number: u32) -> Random {
        stream(self.seed, Purpose::Topology, number, 0)
    }

    /// Adds a node that only forwards packets.
    pub fn add_router(&mut self, name: impl Into<String>) -> NodeId {
        self.add(name.into(), None)
    }

    /// Adds a node. `factory` makes its engine at the start of the run and at each restart.
    pub fn add_engine(
        &mut self,
        name: impl Into<String>,
        factory: impl FnMut(Boot) -> N + 'static,
    ) -> NodeId {
        self.add(name.into(), Some(Box::new(factory)))
    }

    /// Adds `count` nodes with engines from the same factory. Their numbers are their names.
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
            pinholes: Pinholes::default(),
        });
        let node = self.network.add_host(name);
        if self.started {
            self.boot(node);
        }
        node
    }

    /// Joins two nodes. Link number k has the nets 10.0.0.0/30 + 4k and fd00:0:0:k::/64. In each net `a` has
    /// the first address and `b` the second.
    ///
    /// # Panics
    /// It panics if both are the same node.
    pub fn link(&mut self, a: NodeId, b: NodeId, config: &LinkConfig) -> LinkId {
        assert_ne!(a, b, "a link joins two nodes (seed {})", self.seed);
        let (link, changes) = self.network.add_link(a, b, config);
        self.report_ends(link);
        self.report_routes(changes);
        link
    }

    /// Names the node's interface at this link. Without a name, interfaces are `eth0`, `eth1` and so on.
    pub fn set_interface_name(&mut self, node: NodeId, link: LinkId, name: impl Into<String>) {
        let end = self.network.end_of(link, node);
        self.network.set_interface_name(link, end, name.into());
        self.report_interfaces(node);
    }

    /// Replaces the node's address of the same IP version on this link. The address of the other end should be of the same
    /// net.
    pub fn set_address_on(&mut self, node: NodeId, link: LinkId, addr: IpAddr) {
        let end = self.network.end_of(link, node);
        let changes = self.network.set_address(link, end, addr);
        self.report_interfaces(node);
        self.report_routes(changes);
    }

    /// Sets whether the node forwards packets to others. At first each node does. Shortest paths pass only through nodes that
    /// forward.
    pub fn set_forwarding(&mut self, node: NodeId, on: bool) {
        let changes = self.network.set_forwards(node, on);
        self.report_routes(changes);
    }

    /// Gives the node an address of its own on its loopback interface.
    pub fn add_address(&mut self, node: NodeId, addr: IpAddr) {
        self.network.add_address(node, addr);
        self.report_interfaces(node);
    }

    /// The node's address: an added one if it has any, otherwise that on its first link.
    ///
    /// # Panics
    /// It panics if the node has no address.
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

    /// The interface number of the node's end of this link.
    #[must_use]
    pub fn ifindex(&self, node: NodeId, link: LinkId) -> IfIndex {
        self.network.ifindex(link, self.network.end_of(link, node))
    }

    /// The node's interfaces, as its engine has them.
    #[must_use]
    pub fn interfaces(&self, node: NodeId) -> Vec<Interface> {
        self.network.interfaces(node)
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

    /// Number of streams of which at least one end is still open.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// The log: the last 400,000 packets of the captured links, the oldest first.
    pub fn captured(&self) -> impl Iterator<Item = &Captured> {
        self.log.iter()
    }

    /// Injects a packet that arrives at `to` by this link now.
    pub fn inject(&mut self, link: LinkId, to: NodeId, packet: Packet) {
        let end = self.network.end_of(link, to);
        self.enqueue(self.now, Occurrence::Arrival { link, end, packet });
    }

    /// Sends a packet from a node, as any program on that node could do.
    ///
    /// # Errors
    /// It returns the error that the kernel would return at once.
    pub fn send(&mut self, node: NodeId, packet: Packet) -> Result<(), TransmitError> {
        self.originate(node, packet, None)
    }

    /// The path that a packet from `from` to `dst` would take now: each node that it leaves and the link by
    /// which it leaves it, in order. The path is empty if `dst` is an address of `from`.
    ///
    /// # Errors
    /// It returns the reason why the packet would not arrive; [`NoRoute::Failed`] for a routing loop.
    pub fn path(&mut self, from: NodeId, dst: IpAddr) -> Result<Vec<(NodeId, LinkId)>, NoRoute> {
        let (mut at, mut path) = (from, Vec::new());
        while let NextStep::Out { link, end } = self.network.next_step(at, dst)? {
            if path.len() >= self.nodes.len() {
                return Err(NoRoute::Failed);
            }
            path.push((at, link));
            at = self.network.link(link).node(1 - end);
        }
        Ok(path)
    }

    /// The node's engine, while it runs.
    #[must_use]
    pub fn engine(&self, node: NodeId) -> Option<&N> {
        self.nodes[node.at()].engine.as_ref()
    }

    /// Gives an engine a command now.
    ///
    /// # Panics
    /// It panics if the node runs no engine.
    pub fn command(&mut self, node: NodeId, command: N::Command) {
        self.input(node, Input::Command(command));
    }

    /// Gives an engine an input now.
    ///
    /// # Panics
    /// It panics if the node runs no engine.
    pub fn input(&mut self, node: NodeId, input: Input<'_, N::Command>) {
        self.start();
        assert!(self.engine(node).is_some(), "{node} runs no engine (seed {})", self.seed);
        self.drive(node, input);
    }

    /// Drops the node's engine with all its state. The node continues to forward as a plain router. The other
    /// ends of its streams are reset when they send the next time.
    pub fn crash(&mut self, node: NodeId) {
        self.start();
        self.streams.crash(node);
        let state = &mut self.nodes[node.at()];
        state.engine = None;
        state.timer = None;
    }

    /// Switches the node off: its engine is dropped, and it neither forwards nor answers. Routes still lead
    /// to it, and no other node is notified.
    pub fn power_off(&mut self, node: NodeId) {
        self.crash(node);
        self.nodes[node.at()].off = true;
    }

    /// Starts a new engine of the node with another seed, whether the old one ran, had crashed or was
    /// switched off.
    pub fn restart(&mut self, node: NodeId) {
        self.crash(node);
        self.nodes[node.at()].off = false;
        self.nodes[node.at()].incarnation += 1;
        self.boot(node);
    }

    /// Events that were not taken yet, in order.
    #[must_use]
    pub fn events(&self) -> &[Happened<N::Event>] {
        &self.happened
    }

    /// Takes the events of the engines.
    pub fn take_events(&mut self) -> Vec<Happened<N::Event>> {
        core::mem::take(&mut self.happened)
    }

    /// Counters of packets and streams since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Number of events handled since the start.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Runs the simulation until `end`, including the events at `end`.
    pub fn run_until(&mut self, end: Time) {
        self.run(end, |_| false);
    }

    /// Runs the simulation for this duration.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// Runs the simulation until `done` returns true, for at most `limit`. `done` is called after each event.
    /// Returns whether `done` returned true.
    pub fn wait(&mut self, limit: Duration, done: impl FnMut(&Self) -> bool) -> bool {
        self.run(self.now + limit, done)
    }

    /// Calls [`Sim::wait`] for an event that must happen.
    ///
    /// # Panics
    /// It panics if the event does not happen within `limit`; the message contains `event`, the time and the
    /// seed.
    pub fn expect(&mut self, event: &str, limit: Duration, done: impl FnMut(&Self) -> bool) {
        assert!(
            self.wait(limit, done),
            "{event}: not within {limit:?}, at {} (seed {})",
            self.now,
            self.seed
        );
    }

    fn run(&mut self, end: Time, mut done: impl FnMut(&Self) -> bool) -> bool {
        self.start();
        let first = self.steps;
        if done(self) {
            return true;
        }
        while self.queue.peek().is_some_and(|q| q.at <= end) {
            let Some(Queued { at, event, .. }) = self.queue.pop() else { break };
            self.now = at;
            if self.step(event) {
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
    /// Prints the seed of the run when a test fails.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("simulation failed at {}: run again with SIGNALBOX_SEED={}", self.now, self.seed);
        }
    }
}
