//! A random network with random sessions, the actions of their users, and the faults in it.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::SessionId;
use signalbox_core::node::NodeEngine;
use signalbox_core::rng::Random;
use signalbox_node::casp::{
    self, Command as CaspCommand, Event as CaspEvent, FlowId, PingRequest, RequestOf, SendRequestOf,
    SeriesEvent, SessionView, Transport,
};
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{Impairment, LinkConfig, LinkId, NodeId, Sim};

use crate::net::{WALL_US, make};

/// Refresh interval; the lifetime is three times as long.
pub(crate) const REFRESH: Duration = Duration::from_secs(2);
/// The client of another process whose sessions they are.
const CLIENT: u8 = 200;

pub(super) const BAD: Impairment = Impairment {
    delay: Duration::from_millis(5),
    jitter: Duration::from_millis(20),
    loss: 0.1,
    duplication: 0.1,
};

/// Faults in addition to those of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Storm {
    /// Nodes restart.
    Restarts,
    /// Nodes fail and return later.
    Crashes,
    /// Routes change.
    Routes,
}

/// A user's session.
#[derive(Debug, Clone)]
struct Wish {
    id: SessionId,
    from: NodeId,
    to: NodeId,
    flow: FlowId,
    /// Times that the initiator changed its address.
    moves: u8,
    closed: bool,
}

pub(crate) struct World {
    pub(crate) sim: Sim<Node>,
    storm: Storm,
    nodes: Vec<NodeId>,
    /// Those with CASP. The others are routers and hosts as everywhere.
    pub(crate) hosts: Vec<NodeId>,
    links: Vec<LinkId>,
    wishes: Vec<Wish>,
    random: Random,
    pub(crate) moved: u64,
    /// Pings without state so far: their identifiers count from [`PINGS`].
    pings: u64,
}

/// The first identifier of pings.
const PINGS: u64 = 1000;

pub(super) fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[usize::try_from(random.range(0..from.len() as u64)).unwrap()]
}

/// The nodes at the ends of each link: a tree, and further links where routes change.
pub(super) fn links(random: &mut Random, count: usize, storm: Storm) -> Vec<(usize, usize)> {
    let mut pairs: Vec<(usize, usize)> =
        (1..count).map(|at| (usize::try_from(random.range(0..at as u64)).unwrap(), at)).collect();
    if storm == Storm::Routes {
        for _ in 0..3 {
            let mut end = || usize::try_from(random.range(0..count as u64)).unwrap();
            let (a, b) = (end(), end());
            if a < b && !pairs.contains(&(a, b)) {
                pairs.push((a, b));
            }
        }
    }
    pairs
}

/// Injects one fault. True if the node has to restart, which its users take part in.
pub(super) fn fault<E: NodeEngine>(
    sim: &mut Sim<E>,
    random: &mut Random,
    storm: Storm,
    node: NodeId,
    link: LinkId,
) -> bool {
    match random.range(0..6) {
        0 => return true,
        1 if storm == Storm::Crashes => sim.crash(node),
        2 if storm == Storm::Crashes => sim.power_off(node),
        3 | 4 if storm == Storm::Routes => {
            let cost = u32::try_from(1 + random.range(0..5)).unwrap();
            sim.set_cost(link, cost);
        }
        5 if storm == Storm::Routes => {
            let up = random.chance(0.5);
            sim.set_link_up(link, up);
        }
        _ => {}
    }
    false
}

/// The address of a node that is on no link; each node has several, so that it can move from one to another.
fn address(node: NodeId, which: u8, v4: bool) -> IpAddr {
    let host = 256 * u32::from(which) + node.0 + 1;
    if v4 {
        IpAddr::V4(Ipv4Addr::from(0xc633_6400 + host))
    } else {
        IpAddr::V6(Ipv6Addr::from((0xfd01 << 112) | u128::from(host)))
    }
}

/// The flow after a number of moves. Each has another port or label, so that none comes back.
fn flow(from: NodeId, to: NodeId, moves: u8, port: u16, v4: bool) -> FlowId {
    let port = port + 100 * u16::from(moves);
    match (address(from, moves % 3, v4), address(to, 0, v4)) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            FlowId::V4Ports { src, dst, src_port: port, dst_port: 9, protocol: 17 }
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => FlowId::V6Label { src, dst, label: port.into() },
        _ => panic!("one version"),
    }
}

impl World {
    pub(crate) fn new(seed: u64, storm: Storm) -> Self {
        let mut sim = Sim::new(seed);
        let mut random = sim.random(1);
        let count = 3 + usize::try_from(random.range(0..4)).unwrap();
        let pairs = links(&mut random, count, storm);
        let transport = pick(&mut random, &[Transport::Tcp, Transport::Tcp, Transport::Udp]);
        let (mut nodes, mut hosts) = (Vec::new(), Vec::new());
        for n in 0..count {
            if n >= 2 && random.chance(0.2) {
                nodes.push(sim.add_router(format!("n{n}")));
                continue;
            }
            let mut casp = casp::Config::default();
            casp.engine.refresh = REFRESH;
            casp.engine.transport = transport;
            let config = Config { wall_clock_us: WALL_US, casp: Some(casp), ..Config::empty() };
            let node = sim.add_engine(format!("n{n}"), move |boot| make(boot, config.clone()));
            hosts.push(node);
            nodes.push(node);
        }
        let links =
            pairs.iter().map(|(a, b)| sim.link(nodes[*a], nodes[*b], &LinkConfig::impaired(BAD))).collect();
        for node in &nodes {
            for which in 0..3 {
                sim.add_address(*node, address(*node, which, true));
                sim.add_address(*node, address(*node, which, false));
            }
        }
        sim.run_for(Duration::ZERO);
        let mut world =
            Self { sim, storm, nodes, hosts, links, wishes: Vec::new(), random, moved: 0, pings: 0 };
        world.hosts.clone().into_iter().for_each(|node| world.register(node));
        world
    }

    fn register(&mut self, node: NodeId) {
        self.command(node, CaspCommand::Register { client: CLIENT, stateless: true });
    }

    fn command(&mut self, node: NodeId, command: CaspCommand) {
        if self.sim.engine(node).is_some() {
            self.sim.command(node, Command::Casp { id: 1, command });
        }
    }

    /// A new user opens a session.
    pub(crate) fn open(&mut self) {
        let from = pick(&mut self.random, &self.hosts);
        let others: Vec<NodeId> = self.nodes.iter().copied().filter(|node| *node != from).collect();
        let to = pick(&mut self.random, &others);
        let port = u16::try_from(self.wishes.len()).unwrap() + 10_000;
        let flow = flow(from, to, 0, port, self.random.chance(0.7));
        let id = self.random.session_id();
        self.wishes.push(Wish { id, from, to, flow, moves: 0, closed: false });
        self.ask(self.wishes.len() - 1);
    }

    fn ask(&mut self, at: usize) {
        let Wish { id, from, flow, .. } = self.wishes[at].clone();
        let send = SendRequestOf { hold: true, ..SendRequestOf::new(Some(id), flow, b"session"[..].into()) };
        self.command(from, CaspCommand::Request(RequestOf::Send(send)));
    }

    fn close_one(&mut self, at: usize) {
        self.wishes[at].closed = true;
        let Wish { id, from, flow, .. } = self.wishes[at].clone();
        self.command(from, CaspCommand::Request(RequestOf::Hold { session: id, flow, on: false }));
        let (tear_down, data) = (true, None);
        let send = SendRequestOf { tear_down, ..SendRequestOf::new(Some(id), flow, b""[..].into()) };
        let send = SendRequestOf { data, ..send };
        self.command(from, CaspCommand::Request(RequestOf::Send(send)));
    }

    /// Does a random action of a user.
    pub(crate) fn whim(&mut self) {
        let at = usize::try_from(self.random.range(0..self.wishes.len() as u64)).unwrap();
        let wish = self.wishes[at].clone();
        match self.random.range(0..5) {
            0 => self.close_one(at),
            1 | 2 if !wish.closed && wish.moves < 8 => {
                let port = u16::try_from(at).unwrap() + 10_000;
                let to = flow(wish.from, wish.to, wish.moves + 1, port, wish.flow.src().is_ipv4());
                (self.wishes[at].flow, self.wishes[at].moves) = (to, wish.moves + 1);
                self.moved += 1;
                let request = RequestOf::Move { session: wish.id, from: wish.flow, to };
                self.command(wish.from, CaspCommand::Request(request));
            }
            3 if self.wishes.len() < 10 => self.open(),
            4 => drop(self.ping(3)),
            _ => {}
        }
    }

    /// Pings without state from a host to another one. The result is the identifier, and the nodes with CASP behind the first one.
    pub(crate) fn ping(&mut self, count: u32) -> (u64, usize) {
        let from = pick(&mut self.random, &self.hosts);
        let others: Vec<NodeId> = self.hosts.iter().copied().filter(|node| *node != from).collect();
        let to = pick(&mut self.random, &others);
        let dst = address(to, 0, self.random.chance(0.7));
        let id = PINGS + self.pings;
        self.pings += 1;
        let request = PingRequest { count: Some(count), record_route: true, ..PingRequest::to(dst) };
        if self.sim.engine(from).is_some() {
            self.sim.command(from, Command::Casp { id, command: CaspCommand::Ping(request) });
        }
        let path = self.sim.path(from, dst).map_or(0, |path| {
            let passed = path.into_iter().map(|(node, _)| node).chain([to]);
            passed.filter(|node| *node != from && self.hosts.contains(node)).count()
        });
        (id, path)
    }

    /// The number of nodes in the last reply to pings.
    pub(crate) fn replied(&self, id: u64) -> Option<usize> {
        self.sim.events().iter().rev().find_map(|one| match &one.event {
            Event::Casp { id: own, event: CaspEvent::Ping(SeriesEvent::Reply { nodes, .. }) }
                if *own == id =>
            {
                Some(nodes.len())
            }
            _ => None,
        })
    }

    /// All users leave.
    pub(crate) fn close(&mut self) {
        (0..self.wishes.len()).for_each(|at| self.close_one(at));
    }

    /// Restarts a node; its users ask again.
    fn restart(&mut self, node: NodeId) {
        self.sim.restart(node);
        self.register(node);
        for at in 0..self.wishes.len() {
            if self.wishes[at].from == node && !self.wishes[at].closed {
                self.ask(at);
            }
        }
    }

    /// Injects one fault.
    pub(crate) fn trouble(&mut self) {
        let node = pick(&mut self.random, &self.hosts);
        let link = pick(&mut self.random, &self.links);
        if fault(&mut self.sim, &mut self.random, self.storm, node, link) {
            self.restart(node);
        }
    }

    pub(crate) fn pause(&mut self) {
        let pause = Duration::from_millis(200 + self.random.range(0..2500));
        self.sim.run_for(pause);
    }

    /// Ends all faults. Routes stay as they are.
    pub(crate) fn heal(&mut self) {
        for link in self.links.clone() {
            self.sim.set_link_up(link, true);
            self.sim.set_impairment(link, Impairment::default());
        }
        for node in self.hosts.clone() {
            if self.sim.engine(node).is_none() {
                self.restart(node);
            }
        }
        // A user whose move met a node that was off asks again.
        for at in 0..self.wishes.len() {
            if !self.wishes[at].closed {
                self.ask(at);
            }
        }
    }

    /// The nodes with CASP on the present path of each live session.
    fn expected(&mut self) -> BTreeMap<(SessionId, FlowId), Vec<NodeId>> {
        let mut expected = BTreeMap::new();
        for wish in self.wishes.clone().into_iter().filter(|wish| !wish.closed) {
            let path = self.sim.path(wish.from, wish.flow.dst()).unwrap();
            let nodes = path.into_iter().map(|(node, _)| node).chain([wish.to]);
            let nodes = nodes.filter(|node| self.hosts.contains(node)).collect();
            expected.insert((wish.id, wish.flow), nodes);
        }
        expected
    }

    fn state(&self) -> BTreeMap<(SessionId, FlowId, NodeId), SessionView> {
        let mut state = BTreeMap::new();
        for node in &self.hosts {
            let Some(casp) = self.sim.engine(*node).and_then(Node::casp) else { continue };
            state.extend(casp.sessions().map(|one| ((one.session, one.flow, *node), one)));
        }
        state
    }

    fn is_of(&self, node: NodeId, address: Option<IpAddr>) -> bool {
        let all = self.sim.interfaces(node);
        address.is_some_and(|address| all.iter().any(|one| one.addresses.contains(&address)))
    }

    /// State of a live session that is missing on its present path, or leads elsewhere.
    pub(crate) fn missing(&mut self) -> Option<String> {
        let (expected, state) = (self.expected(), self.state());
        for ((id, flow), nodes) in expected {
            for pair in nodes.windows(2) {
                let there = state.get(&(id, flow, pair[0]));
                let newest = there.and_then(|one| one.next.iter().find(|branch| branch.newest));
                if !self.is_of(pair[1], newest.and_then(|branch| branch.peer)) {
                    return Some(format!("{id} {flow}: {} has {there:?}, not towards {}", pair[0], pair[1]));
                }
                let there = state.get(&(id, flow, pair[1]));
                let newest = there.and_then(|one| one.previous.iter().find(|branch| branch.newest));
                if !self.is_of(pair[0], newest.and_then(|branch| branch.peer)) {
                    return Some(format!("{id} {flow}: {} has {there:?}, not from {}", pair[1], pair[0]));
                }
            }
            if !nodes.iter().all(|node| state.contains_key(&(id, flow, *node))) {
                return Some(format!("{id} {flow}: not at all of {nodes:?}"));
            }
        }
        None
    }

    /// State of no live session, or beside its present path.
    pub(crate) fn surplus(&mut self) -> Option<String> {
        let expected = self.expected();
        let state = self.state();
        let is_known = |id, flow, node: &NodeId| {
            expected.get(&(id, flow)).is_some_and(|nodes: &Vec<NodeId>| nodes.contains(node))
        };
        let mut keys = state.keys();
        let (id, flow, node) = keys.find(|(id, flow, node)| !is_known(*id, *flow, node))?;
        Some(format!("{node} keeps {id} {flow}: {:?}", state.get(&(*id, *flow, *node))))
    }

    pub(crate) fn says(&self, fault: &str) -> String {
        let seed = self.sim.seed();
        let mut text = format!("{fault}\nseed {seed}\n");
        for node in &self.hosts {
            let Some(casp) = self.sim.engine(*node).and_then(Node::casp) else { continue };
            text += &format!("{node}: {:?}\n", casp.counters());
            casp.walk_peers(0, |peer| {
                text += &format!("  {peer:?}\n");
                true
            });
        }
        for wish in &self.wishes {
            text += &format!("{wish:?}\n");
        }
        text
    }

    pub(crate) fn live(&self) -> usize {
        self.wishes.iter().filter(|wish| !wish.closed).count()
    }
}
