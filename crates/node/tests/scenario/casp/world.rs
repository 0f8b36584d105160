//! A random network with random sessions, the actions of their users, and the faults in it.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::SessionId;
use signalbox_node::casp::{
    self, Command as CaspCommand, Event as CaspEvent, FlowId, PingRequest, RequestOf, SendRequestOf,
    SeriesEvent, SessionView, Transport,
};
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{NodeId, Sim};

use super::field::{Field, REFRESH, Storm, Users, links, pick};
use crate::net::{WALL_US, make};

/// The client of another process whose sessions they are.
const CLIENT: u8 = 200;

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
    /// Its hosts are the nodes with CASP. The others are routers and hosts as everywhere.
    pub(crate) field: Field<Node>,
    nodes: Vec<NodeId>,
    wishes: Vec<Wish>,
    /// Pings without state so far: their identifiers count from [`PINGS`].
    pings: u64,
}

/// The first identifier of pings.
const PINGS: u64 = 1000;

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
        for node in &nodes {
            for which in 0..3 {
                sim.add_address(*node, address(*node, which, true));
                sim.add_address(*node, address(*node, which, false));
            }
        }
        let mut field = Field::new(sim, random, storm, (&nodes, &pairs), hosts);
        field.sim.run_for(Duration::ZERO);
        let mut world = Self { field, nodes, wishes: Vec::new(), pings: 0 };
        world.field.hosts.clone().into_iter().for_each(|node| world.register(node));
        world
    }

    fn register(&mut self, node: NodeId) {
        self.command(node, CaspCommand::Register { client: CLIENT, stateless: true });
    }

    fn command(&mut self, node: NodeId, command: CaspCommand) {
        if self.field.sim.engine(node).is_some() {
            self.field.sim.command(node, Command::Casp { id: 1, command });
        }
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

    /// Pings without state from a host to another one. The result is the identifier, and the nodes with CASP behind the first one.
    pub(crate) fn ping(&mut self, count: u32) -> (u64, usize) {
        let from = pick(&mut self.field.random, &self.field.hosts);
        let others: Vec<NodeId> = self.field.hosts.iter().copied().filter(|node| *node != from).collect();
        let to = pick(&mut self.field.random, &others);
        let dst = address(to, 0, self.field.random.chance(0.7));
        let id = PINGS + self.pings;
        self.pings += 1;
        let request = PingRequest { count: Some(count), record_route: true, ..PingRequest::to(dst) };
        if self.field.sim.engine(from).is_some() {
            self.field.sim.command(from, Command::Casp { id, command: CaspCommand::Ping(request) });
        }
        let path = self.field.sim.path(from, dst).map_or(0, |path| {
            let passed = path.into_iter().map(|(node, _)| node).chain([to]);
            passed.filter(|node| *node != from && self.field.hosts.contains(node)).count()
        });
        (id, path)
    }

    /// The number of nodes in the last reply to pings.
    pub(crate) fn replied(&self, id: u64) -> Option<usize> {
        self.field.sim.events().iter().rev().find_map(|one| match &one.event {
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

    /// The nodes with CASP on the present path of each live session.
    fn expected(&mut self) -> BTreeMap<(SessionId, FlowId), Vec<NodeId>> {
        let mut expected = BTreeMap::new();
        for wish in self.wishes.clone().into_iter().filter(|wish| !wish.closed) {
            let path = self.field.sim.path(wish.from, wish.flow.dst()).unwrap();
            let nodes = path.into_iter().map(|(node, _)| node).chain([wish.to]);
            let nodes = nodes.filter(|node| self.field.hosts.contains(node)).collect();
            expected.insert((wish.id, wish.flow), nodes);
        }
        expected
    }

    fn state(&self) -> BTreeMap<(SessionId, FlowId, NodeId), SessionView> {
        let mut state = BTreeMap::new();
        for node in &self.field.hosts {
            let Some(casp) = self.field.sim.engine(*node).and_then(Node::casp) else { continue };
            state.extend(casp.sessions().map(|one| ((one.session, one.flow, *node), one)));
        }
        state
    }

    fn is_of(&self, node: NodeId, address: Option<IpAddr>) -> bool {
        let all = self.field.sim.interfaces(node);
        address.is_some_and(|address| all.iter().any(|one| one.addresses.contains(&address)))
    }

    pub(crate) fn live(&self) -> usize {
        self.wishes.iter().filter(|wish| !wish.closed).count()
    }

    /// Users whose move met a node that was off ask again.
    pub(crate) fn ask_again(&mut self) {
        for at in 0..self.wishes.len() {
            if !self.wishes[at].closed {
                self.ask(at);
            }
        }
    }
}

impl Users for World {
    type Engine = Node;

    fn field(&mut self) -> &mut Field<Node> {
        &mut self.field
    }

    fn open(&mut self) {
        let from = pick(&mut self.field.random, &self.field.hosts);
        let others: Vec<NodeId> = self.nodes.iter().copied().filter(|node| *node != from).collect();
        let to = pick(&mut self.field.random, &others);
        let port = u16::try_from(self.wishes.len()).unwrap() + 10_000;
        let flow = flow(from, to, 0, port, self.field.random.chance(0.7));
        let id = self.field.random.session_id();
        self.wishes.push(Wish { id, from, to, flow, moves: 0, closed: false });
        self.ask(self.wishes.len() - 1);
    }

    fn act(&mut self) {
        let at = usize::try_from(self.field.random.range(0..self.wishes.len() as u64)).unwrap();
        let wish = self.wishes[at].clone();
        match self.field.random.range(0..5) {
            0 => self.close_one(at),
            1 | 2 if !wish.closed && wish.moves < 8 => {
                let port = u16::try_from(at).unwrap() + 10_000;
                let to = flow(wish.from, wish.to, wish.moves + 1, port, wish.flow.src().is_ipv4());
                (self.wishes[at].flow, self.wishes[at].moves) = (to, wish.moves + 1);
                self.field.moved += 1;
                let request = RequestOf::Move { session: wish.id, from: wish.flow, to };
                self.command(wish.from, CaspCommand::Request(request));
            }
            3 if self.wishes.len() < 10 => self.open(),
            4 => drop(self.ping(3)),
            _ => {}
        }
    }

    fn restart(&mut self, node: NodeId) {
        self.field.sim.restart(node);
        self.register(node);
        for at in 0..self.wishes.len() {
            if self.wishes[at].from == node && !self.wishes[at].closed {
                self.ask(at);
            }
        }
    }

    fn missing(&mut self) -> Option<String> {
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

    fn surplus(&mut self) -> Option<String> {
        let expected = self.expected();
        let state = self.state();
        let is_known = |id, flow, node: &NodeId| {
            expected.get(&(id, flow)).is_some_and(|nodes: &Vec<NodeId>| nodes.contains(node))
        };
        let mut keys = state.keys();
        let (id, flow, node) = keys.find(|(id, flow, node)| !is_known(*id, *flow, node))?;
        Some(format!("{node} keeps {id} {flow}: {:?}", state.get(&(*id, *flow, *node))))
    }

    fn says(&self, fault: &str) -> String {
        let seed = self.field.sim.seed();
        let mut text = format!("{fault}\nseed {seed}\n");
        for node in &self.field.hosts {
            let Some(casp) = self.field.sim.engine(*node).and_then(Node::casp) else { continue };
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
}
