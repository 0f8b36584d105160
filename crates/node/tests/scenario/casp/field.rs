//! What the campaigns of CASP have in common: a random network, the faults in it, and when its state is judged.

use core::time::Duration;

use signalbox_core::node::NodeEngine;
use signalbox_core::rng::Random;
use signalbox_sim::{Impairment, LinkConfig, LinkId, NodeId, Sim};

/// Refresh interval; the lifetime is three times as long.
pub(crate) const REFRESH: Duration = Duration::from_secs(2);
/// Time from the end of the faults until every session has been refreshed: TCP tries again after a pause that doubles, a
/// minute at most, and a discovery takes up to 15.5 s.
const REFRESHED: Duration = Duration::from_secs(80);

const BAD: Impairment = Impairment {
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

/// A random network.
pub(crate) struct Field<E: NodeEngine> {
    pub(crate) sim: Sim<E>,
    storm: Storm,
    /// The nodes with CASP.
    pub(crate) hosts: Vec<NodeId>,
    /// The links with the nodes at their ends.
    links: Vec<(LinkId, [NodeId; 2])>,
    pub(super) random: Random,
    /// Addresses that nodes and users left for others.
    pub(crate) moved: u64,
}

impl<E: NodeEngine> Field<E> {
    /// Joins `nodes` by links; `hosts` are those with CASP.
    pub(super) fn new(
        mut sim: Sim<E>,
        random: Random,
        storm: Storm,
        (nodes, pairs): (&[NodeId], &[(usize, usize)]),
        hosts: Vec<NodeId>,
    ) -> Self {
        let link = |(a, b): &(usize, usize)| {
            let ends = [nodes[*a], nodes[*b]];
            (sim.link(ends[0], ends[1], &LinkConfig::impaired(BAD)), ends)
        };
        let links = pairs.iter().map(link).collect();
        Self { sim, storm, hosts, links, random, moved: 0 }
    }

    /// Gives each node an address that it keeps, to which flows go.
    pub(super) fn add_lasting_addresses(&mut self) {
        for node in &self.hosts {
            self.sim.add_address(*node, format!("198.51.100.{}", node.0 + 1).parse().unwrap());
        }
    }

    /// A host, and another one.
    pub(super) fn pair(&mut self) -> (NodeId, NodeId) {
        let from = pick(&mut self.random, &self.hosts);
        let others: Vec<NodeId> = self.hosts.iter().copied().filter(|node| *node != from).collect();
        (from, pick(&mut self.random, &others))
    }

    /// A node gets another address on one of its links.
    pub(super) fn change_address(&mut self, node: NodeId) {
        let own: Vec<LinkId> =
            self.links.iter().filter(|(_, ends)| ends.contains(&node)).map(|(link, _)| *link).collect();
        let link = pick(&mut self.random, &own);
        self.moved += 1;
        let address = format!("10.99.{}.{}", self.moved, node.0 + 1);
        self.sim.set_address_on(node, link, address.parse().unwrap());
    }

    fn pause(&mut self) {
        let pause = Duration::from_millis(200 + self.random.range(0..2500));
        self.sim.run_for(pause);
    }

    /// Injects one fault. The result is a node that has to restart, which its users take part in.
    fn fault(&mut self) -> Option<NodeId> {
        let Self { sim, random, storm, hosts, links, .. } = self;
        let node = pick(random, hosts);
        let (link, _) = pick(random, links);
        match random.range(0..6) {
            0 => return Some(node),
            1 if *storm == Storm::Crashes => sim.crash(node),
            2 if *storm == Storm::Crashes => sim.power_off(node),
            3 | 4 if *storm == Storm::Routes => {
                let cost = u32::try_from(1 + random.range(0..5)).unwrap();
                sim.set_cost(link, cost);
            }
            5 if *storm == Storm::Routes => {
                let up = random.chance(0.5);
                sim.set_link_up(link, up);
            }
            _ => {}
        }
        None
    }

    /// Ends the faults of links. Routes and addresses stay as they are. The result are the nodes that are off.
    fn end_faults(&mut self) -> Vec<NodeId> {
        for (link, _) in &self.links {
            self.sim.set_link_up(*link, true);
            self.sim.set_impairment(*link, Impairment::default());
        }
        self.hosts.iter().copied().filter(|node| self.sim.engine(*node).is_none()).collect()
    }
}

/// A network with users, and what must be true of its state.
pub(crate) trait Users {
    type Engine: NodeEngine;

    fn field(&mut self) -> &mut Field<Self::Engine>;

    /// A new user begins.
    fn open(&mut self);

    /// Does a random action of a user.
    fn act(&mut self);

    /// Restarts a node; its users ask again.
    fn restart(&mut self, node: NodeId);

    /// What the present paths lack.
    fn missing(&mut self) -> Option<String>;

    /// What is there for no user, or beside a path.
    fn surplus(&mut self) -> Option<String>;

    /// The fault, the seed, and the state of all nodes.
    fn says(&self, fault: &str) -> String;

    /// Begins `users` sessions, and lets users act under faults. Then the faults end.
    fn storm(&mut self, users: u32) {
        for _ in 0..users {
            self.open();
        }
        for _ in 0..10 {
            self.field().pause();
            if let Some(node) = self.field().fault() {
                self.restart(node);
            }
            self.act();
        }
        self.field().pause();
        for node in self.field().end_faults() {
            self.restart(node);
        }
    }

    /// Waits until nothing is missing: [`REFRESHED`] at most.
    fn refreshed(&mut self) {
        let mut missing = Some("nothing was judged".to_owned());
        for _ in 0..REFRESHED.as_secs() {
            self.field().sim.run_for(Duration::from_secs(1));
            missing = self.missing();
            if missing.is_none() {
                break;
            }
        }
        self.passes(missing);
    }

    /// After this time nothing is missing, and nothing is left over.
    fn stands(&mut self, hold: Duration) {
        self.field().sim.run_for(hold);
        let fault = self.missing().or_else(|| self.surplus());
        self.passes(fault);
    }

    /// Fails if there is a fault.
    fn passes(&self, fault: Option<String>) {
        if let Some(fault) = fault {
            panic!("{}", self.says(&fault));
        }
    }
}
