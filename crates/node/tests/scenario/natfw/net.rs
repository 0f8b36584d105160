//! Networks with firewalls and NATs.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use signalbox_gist::apd::{Apd, Verdict};
use signalbox_gist::engine::AssociationConfig;
use signalbox_node::natfw::{
    self, ExposeRequest, Granted, Middlebox, NatfwEvent, OpenRequest, Options, SessionView,
};
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{Boot, Family, LinkConfig, LinkId, NodeId, Packet, Sim, topology};

use crate::net::{WALL_US, gist};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// The time between two refreshes, and the lifetime that follows from it: 5.25 times as long (RFC 5973 §3.4).
pub(crate) const REFRESH: Duration = Duration::from_secs(8);
pub(crate) const LIFETIME: Duration = Duration::from_secs(42);

/// The port of the sender, and that of the receiver.
pub(crate) const FROM: u16 = 5000;
pub(crate) const TO: u16 = 6000;

/// What a node is on the path of data. The first interface of a middlebox is on its left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A host with the application.
    Host,
    /// A host without it, but with GIST.
    Plain,
    /// A firewall or NAT whose inside is on its left.
    Left(Middlebox),
    /// A firewall or NAT whose inside is on its right.
    Right(Middlebox),
    /// The same at the border of its network, where EXTERNAL messages end.
    Edge(Middlebox),
}

impl Kind {
    /// Whether packets of others pass by a pinhole only.
    pub(crate) const fn drops(self) -> bool {
        !matches!(self, Self::Host | Self::Plain)
    }

    pub(crate) fn config(self) -> Config {
        let side = |left: bool| vec![if left { "eth0" } else { "eth1" }.to_owned()];
        let middlebox_config = |middlebox, left, edge| natfw::Config {
            middlebox,
            edge,
            inside: side(left),
            outside: side(!left),
            ..host()
        };
        let natfw = match self {
            Self::Host => Some(host()),
            Self::Plain => None,
            Self::Left(middlebox) => Some(middlebox_config(middlebox, true, false)),
            Self::Right(middlebox) => Some(middlebox_config(middlebox, false, false)),
            Self::Edge(middlebox) => Some(middlebox_config(middlebox, false, true)),
        };
        let mut config = Config { wall_clock_us: WALL_US, ping: None, natfw, ..Config::default() };
        // Everybody may open everything; other tests are about the rules.
        config.resources.trusted = vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
        gist(&mut config).associations = AssociationConfig {
            tcp_port: Some(270),
            always: true,
            authorised: Apd::new(4096, Verdict::Allow),
            ..AssociationConfig::default()
        };
        config
    }
}

fn host() -> natfw::Config {
    natfw::Config { refresh: REFRESH, min_lifetime: SECOND, ..natfw::Config::default() }
}

pub(crate) struct Net {
    pub(crate) sim: Sim<Node>,
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) links: Vec<LinkId>,
    /// Packets of data so far: each has its own content.
    sent: u32,
}

impl Net {
    /// Nodes in a row.
    pub(crate) fn row(seed: u64, kinds: &[Kind]) -> Self {
        Self::with(seed, kinds, |_, _| {})
    }

    /// Nodes in a row whose settings a test changes.
    pub(crate) fn with(seed: u64, kinds: &[Kind], change: impl Fn(usize, &mut Config)) -> Self {
        let mut net = Self { sim: Sim::new(seed), nodes: Vec::new(), links: Vec::new(), sent: 0 };
        for kind in kinds {
            net.node(*kind, &change);
        }
        net.links = topology::chain(&mut net.sim, &net.nodes, &LinkConfig::default());
        net.links.iter().for_each(|link| net.sim.capture(*link));
        net
    }

    /// Another node, on the way between two nodes of the row. Its first interface leads to the first of them.
    pub(crate) fn add_between(
        &mut self,
        kind: Kind,
        between: [usize; 2],
        link: &LinkConfig,
        change: impl Fn(usize, &mut Config),
    ) {
        let node = self.node(kind, &change);
        for other in between {
            let link = self.sim.link(self.nodes[other], node, link);
            self.sim.capture(link);
            self.links.push(link);
        }
    }

    fn node(&mut self, kind: Kind, change: &impl Fn(usize, &mut Config)) -> NodeId {
        let (n, mut config) = (self.nodes.len(), kind.config());
        change(n, &mut config);
        let made = move |boot: Boot| Node::new(config.clone(), boot.seed).unwrap();
        let node = self.sim.add_engine(format!("n{n}"), made);
        self.sim.set_drops(node, kind.drops());
        self.nodes.push(node);
        node
    }

    pub(crate) fn address(&self, node: usize, family: Family) -> IpAddr {
        self.sim.address(self.nodes[node], family)
    }

    /// The address of a node on its right.
    pub(crate) fn right(&self, node: usize, family: Family) -> IpAddr {
        self.sim.address_on(self.nodes[node], self.links[node], family)
    }

    /// The address of a node on its left.
    pub(crate) fn left(&self, node: usize, family: Family) -> IpAddr {
        self.sim.address_on(self.nodes[node], self.links[node - 1], family)
    }

    pub(crate) const fn last(&self) -> usize {
        self.nodes.len() - 1
    }

    pub(crate) fn run(&mut self, seconds: u32) {
        self.sim.run_for(SECOND * seconds);
    }

    pub(crate) fn command(&mut self, node: usize, id: u64, command: natfw::Command) {
        self.sim.command(self.nodes[node], Command::Natfw { id, command });
    }

    /// CREATE for the flow from a node to an address and port.
    pub(crate) fn open(&mut self, node: usize, id: u64, to: SocketAddr) {
        self.command(node, id, natfw::Command::Open(open(to, Options::default())));
    }

    /// EXTERNAL of the last node for its port, towards the first.
    pub(crate) fn expose(&mut self, id: u64, change: impl FnOnce(&mut ExposeRequest)) {
        let towards = self.address(0, Family::V4);
        let mut request = expose(towards);
        change(&mut request);
        self.command(self.last(), id, natfw::Command::Expose(request));
    }

    pub(crate) fn close(&mut self, node: usize, id: u64) {
        self.command(node, id, natfw::Command::Close);
    }

    /// The events that a user received, in order.
    pub(crate) fn events(&self, node: usize, id: u64) -> Vec<&NatfwEvent> {
        events(&self.sim, self.nodes[node], id)
    }

    /// Waits for the grant of a request.
    pub(crate) fn granted(&mut self, node: usize, id: u64) -> Granted {
        let at = self.nodes[node];
        let granted = |sim: &Sim<Node>| {
            events(sim, at, id).into_iter().find_map(|event| match event {
                NatfwEvent::Granted(granted) => Some(granted.clone()),
                _ => None,
            })
        };
        let came = self.sim.wait(SECOND * 20, |sim| granted(sim).is_some());
        assert!(came, "{:?}", self.sim.events());
        granted(&self.sim).unwrap()
    }

    /// Waits for the last event of a request, and gives it as text.
    pub(crate) fn ended(&mut self, node: usize, id: u64) -> String {
        let at = self.nodes[node];
        let failure = |sim: &Sim<Node>| {
            events(sim, at, id).into_iter().find_map(|event| match event {
                NatfwEvent::Failed(failure) => Some(failure.to_string()),
                NatfwEvent::Refused(refusal) => Some(refusal.to_string()),
                _ => None,
            })
        };
        let came = self.sim.wait(SECOND * 100, |sim| failure(sim).is_some());
        assert!(came, "{:?}", self.sim.events());
        failure(&self.sim).unwrap()
    }

    /// Sends a packet of data from a node. Returns its ends as they are when it arrives at another node, the last one on its
    /// way; `None`: it is dropped on the way.
    pub(crate) fn sends(&mut self, from: usize, packet: Packet) -> Option<(usize, SocketAddr, SocketAddr)> {
        self.sent += 1;
        let content = self.sent.to_be_bytes().to_vec();
        let unreceived = self.sim.counters().unreceived;
        self.sim.send(self.nodes[from], Packet { payload: content.clone(), ..packet }).unwrap();
        self.sim.run_for(Duration::from_millis(200));
        let last = self.sim.captured().filter(|seen| seen.packet.payload == content).last()?;
        let node = self.nodes.iter().position(|node| *node == last.to).unwrap();
        // It arrived if its last node is its destination, where no program receives it.
        (self.sim.counters().unreceived > unreceived).then_some((node, last.packet.src, last.packet.dst))
    }

    /// Whether a UDP packet arrives as it was sent.
    pub(crate) fn passes(&mut self, from: usize, src: SocketAddr, dst: SocketAddr) -> bool {
        self.sends(from, Packet::new(src, dst, [])).is_some_and(|(_, s, d)| (s, d) == (src, dst))
    }

    /// The number of pinholes in each node's kernel.
    pub(crate) fn holes(&self) -> Vec<usize> {
        self.nodes.iter().map(|node| self.sim.pinholes(*node).count()).collect()
    }

    /// Waits until the kernels have these numbers of pinholes.
    pub(crate) fn expect_holes(&mut self, limit: Duration, expected: &[usize]) {
        let nodes = self.nodes.clone();
        let count = move |sim: &Sim<Node>| nodes.iter().map(|n| sim.pinholes(*n).count()).collect::<Vec<_>>();
        let came = self.sim.wait(limit, |sim| count(sim) == expected);
        assert!(came, "{:?}, not {expected:?}; {:?}", count(&self.sim), self.sim.events());
    }

    /// A counter of the application at one node.
    pub(crate) fn counter(&self, node: usize, name: &str) -> u64 {
        self.sim.engine(self.nodes[node]).map_or(0, |node| node.counter("natfw", name))
    }
}

/// A CREATE for UDP from the port [`FROM`].
pub(crate) fn open(to: SocketAddr, options: Options) -> OpenRequest {
    OpenRequest {
        src: None,
        dst: to.ip(),
        protocol: Some(17),
        src_port: Some(FROM),
        dst_port: Some(to.port()),
        options,
    }
}

/// An EXTERNAL for UDP to the port [`TO`].
pub(crate) fn expose(towards: IpAddr) -> ExposeRequest {
    ExposeRequest {
        address: None,
        protocol: 17,
        port: TO,
        from: None,
        from_port: None,
        towards,
        path_coupled: false,
        block: false,
        publish: None,
        bindings: false,
        options: Options::default(),
    }
}

pub(crate) fn events(sim: &Sim<Node>, node: NodeId, id: u64) -> Vec<&NatfwEvent> {
    sim.events()
        .iter()
        .filter(|happened| happened.node == node)
        .filter_map(|happened| match &happened.event {
            Event::Natfw { id: of, event } if *of == id => Some(event),
            _ => None,
        })
        .collect()
}

/// The sessions of a node.
pub(crate) fn sessions(sim: &Sim<Node>, node: NodeId) -> Vec<SessionView> {
    let mut all = Vec::new();
    if let Some(engine) = sim.engine(node).and_then(Node::natfw) {
        let mut from = Some(0);
        while let Some(at) = from {
            from = engine.walk(sim.now(), at, |session| {
                all.push(session);
                true
            });
        }
    }
    all
}
