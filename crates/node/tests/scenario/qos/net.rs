//! Networks of nodes with QoS, and functions that read their reservations.

use core::time::Duration;

use signalbox_core::Time;
use signalbox_core::node::{Input, NodeEngine, Output};
use signalbox_gist::apd::{Apd, Verdict};
use signalbox_gist::engine::AssociationConfig;
use signalbox_node::qos::{self, Flow, Granted, QosEvent, QosRequest, ReserveRequest};
use signalbox_node::resources::Config as Resources;
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{Boot, Family, LinkConfig, LinkId, NodeId, Sim, topology};

use crate::kernel::Kernel;
use crate::net::WALL_US;
use crate::one_hop::OneHop;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// The capacity of every link, 10 Mbit/s, and its reservable share in octets a second.
pub(crate) const CAPACITY: &str = "10mbit";
pub(crate) const SHARE: u64 = 937_500;

/// A node whose requests to the kernel are checked: the reservations at an interface never exceed its share.
pub(crate) struct Host {
    pub(crate) node: Node,
    name: NodeId,
    kernel: Kernel,
    /// Its Data messages have GIST hop count 1.
    pub(crate) one_hop: Option<OneHop>,
}

impl Host {
    pub(crate) fn new(boot: Boot, config: Config) -> Self {
        let node = Node::new(config, boot.seed).unwrap();
        Self { node, name: boot.node, kernel: Kernel::default(), one_hop: None }
    }
}

impl NodeEngine for Host {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Time, input: Input<'_, Command>) {
        self.kernel.answers(&input);
        self.node.handle(now, input);
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        let output = self.node.poll()?;
        self.kernel.take_request(self.name, &output, |_| SHARE);
        Some(match &mut self.one_hop {
            Some(one_hop) => one_hop.rewrite(output),
            None => output,
        })
    }

    fn entries(&self) -> Vec<signalbox_core::EntryRequest> {
        self.node.entries()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.node.next_deadline()
    }
}

/// The transport of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Datagrams,
    Tcp,
}

pub(crate) const MODES: [Mode; 2] = [Mode::Datagrams, Mode::Tcp];

/// The default settings of GIST and of the application, with links of 10 Mbit/s.
pub(crate) fn config(mode: Mode) -> Config {
    let resources = Resources { preemption: true, ..Resources::of_link("*", CAPACITY.parse().unwrap()) };
    let mut config = Config {
        wall_clock_us: WALL_US,
        ping: None,
        qos: Some(qos::Config { reliable: mode == Mode::Tcp, ..qos::Config::default() }),
        resources,
        ..Config::default()
    };
    crate::net::gist(&mut config).associations = AssociationConfig {
        tcp_port: (mode == Mode::Tcp).then_some(270),
        always: mode == Mode::Tcp,
        authorised: Apd::new(4096, Verdict::Allow),
        ..AssociationConfig::default()
    };
    config
}

pub(crate) struct Net {
    pub(crate) sim: Sim<Host>,
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) links: Vec<LinkId>,
}

impl Net {
    /// Nodes in a row, one for each configuration.
    pub(crate) fn row(seed: u64, configs: Vec<Config>) -> Self {
        let mut sim = Sim::new(seed);
        let mut nodes = Vec::new();
        for (n, config) in configs.into_iter().enumerate() {
            nodes.push(sim.add_engine(format!("n{n}"), move |boot| Host::new(boot, config.clone())));
        }
        let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
        Self { sim, nodes, links }
    }

    /// Four nodes in a row.
    pub(crate) fn chain(seed: u64, mode: Mode) -> Self {
        Self::row(seed, vec![config(mode); 4])
    }

    pub(crate) fn last(&self) -> NodeId {
        self.nodes[self.nodes.len() - 1]
    }

    /// The flow, UDP from the first node to the last.
    pub(crate) fn flow(&self) -> Flow {
        let dst = self.sim.address(self.last(), Family::V4);
        Flow { protocol: Some(17), dst_port: Some(5004), ..Flow::to(dst) }
    }

    pub(crate) fn request(&self, rate: u64) -> ReserveRequest {
        ReserveRequest::new(self.flow(), QosRequest::rate(rate))
    }

    pub(crate) fn reserve(&mut self, id: u64, request: ReserveRequest) {
        self.command(self.nodes[0], id, qos::Command::Reserve(Box::new(request)));
    }

    pub(crate) fn command(&mut self, node: NodeId, id: u64, command: qos::Command) {
        self.sim.command(node, Command::Qos { id, command });
    }

    pub(crate) fn release(&mut self, id: u64) {
        self.command(self.nodes[0], id, qos::Command::Release);
    }

    pub(crate) fn run(&mut self, seconds: u64) {
        self.sim.run_for(SECOND * u32::try_from(seconds).unwrap());
    }

    /// The sum that each node's kernel holds, in octets a second.
    pub(crate) fn held(&self) -> Vec<u64> {
        held(&self.sim, &self.nodes)
    }

    /// Waits until the kernel of each node holds this rate.
    pub(crate) fn expect_held(&mut self, limit: u64, expected: &[u64]) {
        let nodes = self.nodes.clone();
        let limit = SECOND * u32::try_from(limit).unwrap();
        let came = self.sim.wait(limit, |sim| held(sim, &nodes) == expected);
        assert!(came, "{:?} is held and not {expected:?}; {:?}", self.held(), self.sim.events());
    }

    /// Waits until no node has a reservation or state.
    pub(crate) fn expect_nothing(&mut self, limit: u64) {
        self.expect_held(limit, &vec![0; self.nodes.len()]);
        let sessions = |sim: &Sim<Host>| sim.nodes().map(|node| qos_sessions(sim, node)).sum::<usize>();
        let gone = self.sim.wait(SECOND * 300, |sim| sessions(sim) == 0);
        assert!(gone, "{} sessions are left", sessions(&self.sim));
    }

    /// The events that the user at the first node received for a command, in order.
    pub(crate) fn events_of(&self, id: u64) -> Vec<&QosEvent> {
        events_of(&self.sim, self.nodes[0], id)
    }

    /// Waits until the user at the first node receives the grant of a command.
    pub(crate) fn granted(&mut self, id: u64, limit: u64) -> Granted {
        let granted = |sim: &Sim<Host>, node| {
            events_of(sim, node, id).into_iter().find_map(|event| match event {
                QosEvent::Granted(granted) => Some(granted.clone()),
                _ => None,
            })
        };
        let node = self.nodes[0];
        let came = self.sim.wait(SECOND * u32::try_from(limit).unwrap(), |sim| granted(sim, node).is_some());
        assert!(came, "{:?}", self.sim.events());
        granted(&self.sim, node).unwrap()
    }

    /// A counter of the application, summed over all nodes.
    pub(crate) fn total(&self, name: &str) -> u64 {
        let hosts = self.nodes.iter().filter_map(|node| self.sim.engine(*node));
        hosts.map(|host| host.node.counter("qos", name)).sum()
    }
}

pub(crate) fn held(sim: &Sim<Host>, nodes: &[NodeId]) -> Vec<u64> {
    nodes.iter().map(|node| sim.reservations(*node).map(|(_, r)| r.traffic.rate).sum()).collect()
}

pub(crate) fn events_of(sim: &Sim<Host>, node: NodeId, id: u64) -> Vec<&QosEvent> {
    sim.events()
        .iter()
        .filter(|happened| happened.node == node)
        .filter_map(|happened| match &happened.event {
            Event::Qos { id: of, event } if *of == id => Some(&**event),
            _ => None,
        })
        .collect()
}

pub(crate) fn qos_sessions(sim: &Sim<Host>, node: NodeId) -> usize {
    sim.engine(node).map_or(0, |host| host.node.qos_sessions().count())
}
