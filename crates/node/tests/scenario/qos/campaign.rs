//! Many small networks, each from its own seed, in which users reserve and change their minds while everything goes
//! wrong: loss, reordering, duplication, kernels that refuse, nodes that start anew or die, paths that change.
//! `SIGNALBOX_SEEDS` in the environment is how many; `SIGNALBOX_SEED` runs one of them alone.
//!
//! At every moment what a node asks its kernel for stays within each link's share: [`Host`] looks at each word. After the
//! storm and [`RECOVERY`], every reservation that its user believes in stands at every node of the path that its packets
//! take now. That holds for what a receiver reserved and its death ended, too: the node beside it expires a lifetime after
//! the last refresh, which is less than [`RECOVERY`], and tears down what is further on, up to the sender's user. A tear that
//! the storm swallowed came from a node that does not refresh any more: the next one expires as soon. Only nodes that may
//! be off the path tear nothing down; state behind these ends hop by hop, a lifetime each. After that, what is installed
//! on each link is exactly what believed-in reservations hold there. Timers are shorter than the RFC's, all in proportion.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::IfIndex;
use signalbox_core::rng::Random;
use signalbox_core::traffic::ReserveError;
use signalbox_node::qos::{
    self, Flow, Priority, QosEvent, QosRequest, QueryRequest, ReserveRequest, SessionView,
};
use signalbox_node::{Command, Config};
use signalbox_sim::{
    Family, Impairment, LinkConfig, LinkId, NodeId, Sim, StreamConfig, seed_from_environment,
};

use super::net::{Host, Mode, SHARE, heard, qos_sessions};

/// How many seeds, unless the environment says otherwise.
const SEEDS: u64 = 900;
/// Validity of GIST's routing state, and the application's refresh period.
const VALIDITY: Duration = Duration::from_secs(6);
const REFRESH: Duration = Duration::from_secs(2);
/// What a stream or an association without answer is given.
const GIVE_UP: Duration = Duration::from_secs(3);
/// (3 + 0.5) · 1.5 · R.
const LIFETIME: Duration = Duration::from_millis(10_500);
/// From the end of the storm until everything that lives is whole: GIST finds the peers of today, the next refresh finds
/// who forgot, and what is asked for then is granted or given up.
const RECOVERY: Duration = Duration::from_secs(6 + 3 + 3 + 5);

const BAD: Impairment = Impairment {
    delay: Duration::from_millis(5),
    jitter: Duration::from_millis(20),
    loss: 0.15,
    duplication: 0.1,
};

/// What may go wrong beside packets and kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Storm {
    /// Nodes start anew.
    Restarts,
    /// Nodes die and come back later, or are bypassed meanwhile.
    Crashes,
    /// Paths change.
    Routes,
}

fn config(mode: Mode, random: &mut Random) -> Config {
    let mut config = super::net::config(mode);
    let gist = crate::net::gist(&mut config);
    gist.validity = VALIDITY;
    gist.inactivity = VALIDITY;
    gist.t1 = Duration::from_millis(200);
    gist.t2 = Duration::from_secs(1);
    gist.attempts = 4;
    gist.hold_down = Duration::from_millis(200);
    gist.hold_down_max = GIVE_UP;
    gist.associations.hold_time = GIVE_UP;
    gist.associations.setup_timeout = GIVE_UP;
    gist.associations.idle_after = Duration::from_secs(1);
    config.qos = Some(qos::Config {
        reliable: mode == Mode::Tcp,
        refresh: REFRESH,
        request_retry: Duration::from_millis(500),
        retry_max: Duration::from_secs(5),
        forced_refresh_interval: Duration::from_millis(200),
        relay_timeout: Duration::from_secs(1),
        summary: if random.chance(0.5) { 4 } else { 0 },
        acknowledged_refresh: random.chance(0.3),
        reduced_refresh: random.chance(0.8),
        ..qos::Config::default()
    });
    config
}

/// What a user wanted, and may have.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    id: u64,
    from: NodeId,
    to: NodeId,
    family: Family,
    receiver: bool,
    bidirectional: bool,
    released: bool,
}

impl Wanted {
    /// Each has a port of its own, by which its packets are known.
    fn port(&self) -> u16 {
        u16::try_from(self.id).unwrap() + 10_000
    }
}

/// By node, interface, and port of the flow: octets a second.
type Held = BTreeMap<(NodeId, IfIndex, u16), u64>;

struct World {
    sim: Sim<Host>,
    mode: Mode,
    storm: Storm,
    /// Nodes with the application.
    hosts: Vec<NodeId>,
    links: Vec<LinkId>,
    wanted: Vec<Wanted>,
    random: Random,
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[usize::try_from(random.range(0..from.len() as u64)).unwrap()]
}

/// A random network in which each node reaches each other: a tree, and so many links more at most. No two join the same
/// nodes: of a path that moves from one of these to the other the nodes' applications hear nothing yet.
fn connect(sim: &mut Sim<Host>, random: &mut Random, nodes: &[NodeId], extra: usize) -> Vec<LinkId> {
    let mut pairs = Vec::new();
    for at in 1..nodes.len() {
        pairs.push((pick(random, &nodes[..at]), nodes[at]));
    }
    for _ in 0..extra {
        let (a, b) = (pick(random, nodes), pick(random, nodes));
        if a != b && !pairs.contains(&(a, b)) && !pairs.contains(&(b, a)) {
            pairs.push((a, b));
        }
    }
    pairs.into_iter().map(|(a, b)| sim.link(a, b, &LinkConfig::impaired(BAD))).collect()
}

impl World {
    fn new(seed: u64, storm: Storm) -> Self {
        let mut sim = Sim::new(seed);
        sim.set_stream_config(StreamConfig {
            connect_timeout: GIVE_UP,
            give_up: GIVE_UP,
            ..StreamConfig::default()
        });
        let mut random = sim.random(1);
        let mode = if random.chance(0.5) { Mode::Datagrams } else { Mode::Tcp };
        let count = 3 + random.range(0..5);
        let (mut nodes, mut hosts) = (Vec::new(), Vec::new());
        for n in 0..count {
            // Two nodes have the application for certain.
            let kind = if n < 2 { 0 } else { random.range(0..8) };
            let mut config = config(mode, &mut random);
            config.qos = config.qos.filter(|_| kind < 6);
            let name = format!("n{n}");
            let node = match kind {
                0..7 => sim.add_engine(name, move |boot| Host::new(boot, config.clone())),
                _ => sim.add_router(name),
            };
            hosts.extend((kind < 6).then_some(node));
            nodes.push(node);
        }
        let extra = if storm == Storm::Restarts { 0 } else { 3 };
        let links = connect(&mut sim, &mut random, &nodes, extra);
        Self { sim, mode, storm, hosts, links, wanted: Vec::new(), random }
    }

    fn request(&mut self, wanted: &Wanted) -> ReserveRequest {
        let src: IpAddr = self.sim.address(wanted.from, wanted.family);
        let dst = self.sim.address(wanted.to, wanted.family);
        let flow = Flow {
            src: Some(src),
            protocol: Some(17),
            src_port: Some(wanted.port()),
            dst_port: Some(wanted.port()),
            ..Flow::to(dst)
        };
        let rate = SHARE / 10 + self.random.range(0..SHARE / 2);
        let level = u16::try_from(self.random.range(0..3)).unwrap();
        let priority = self.random.chance(0.5).then_some(Priority { preemption: level, defending: level });
        ReserveRequest {
            receiver_initiated: wanted.receiver,
            bidirectional: wanted.bidirectional,
            priority,
            ..ReserveRequest::new(flow, QosRequest::rate(rate))
        }
    }

    fn reserve(&mut self) {
        let from = pick(&mut self.random, &self.hosts);
        let others: Vec<_> = self.hosts.iter().copied().filter(|node| *node != from).collect();
        let kind = self.random.range(0..4);
        let wanted = Wanted {
            id: self.wanted.len() as u64,
            from,
            to: pick(&mut self.random, &others),
            family: if self.random.chance(0.5) { Family::V4 } else { Family::V6 },
            receiver: kind == 1,
            bidirectional: kind == 2,
            released: false,
        };
        self.wanted.push(wanted);
        let request = self.request(&wanted);
        self.command(&wanted, qos::Command::Reserve(Box::new(request)));
    }

    fn command(&mut self, wanted: &Wanted, command: qos::Command) {
        if self.sim.engine(wanted.from).is_some() {
            self.sim.command(wanted.from, Command::Qos { id: wanted.id, command });
        }
    }

    /// What a user does.
    fn whim(&mut self) {
        let one = pick(&mut self.random, &(0..self.wanted.len()).collect::<Vec<_>>());
        let wanted = self.wanted[one];
        match self.random.range(0..6) {
            0 => {
                self.wanted[one].released = true;
                self.command(&wanted, qos::Command::Release);
            }
            1 if !(wanted.released || wanted.receiver || wanted.bidirectional) => {
                let request = self.request(&wanted);
                self.command(&wanted, qos::Command::Reserve(Box::new(request)));
            }
            2 => {
                let request = self.request(&wanted);
                let query = QueryRequest::new(request.flow, request.qos);
                let id = 1_000_000 + self.random.range(0..1_000_000);
                if self.sim.engine(wanted.from).is_some() {
                    let command = qos::Command::Query(Box::new(query));
                    self.sim.command(wanted.from, Command::Qos { id, command });
                }
            }
            3 | 4 if self.wanted.len() < 12 => self.reserve(),
            _ => {}
        }
    }

    /// One thing that goes wrong.
    fn trouble(&mut self) {
        let node = pick(&mut self.random, &self.hosts);
        let link = pick(&mut self.random, &self.links);
        match self.random.range(0..7) {
            0 => self.sim.restart(node),
            1 => self.sim.set_reserve_result(node, Err(ReserveError::Failed)),
            2 => self.sim.set_reserve_result(node, Ok(())),
            3 if self.storm >= Storm::Crashes => self.sim.crash(node),
            4 if self.storm >= Storm::Crashes => self.sim.power_off(node),
            5 if self.storm >= Storm::Routes => {
                let cost = u32::try_from(1 + self.random.range(0..5)).unwrap();
                self.sim.set_cost(link, cost);
            }
            6 if self.storm >= Storm::Routes => {
                let up = self.random.chance(0.5);
                self.sim.set_link_up(link, up);
            }
            _ => {}
        }
    }

    /// Everything works again.
    fn heal(&mut self) {
        for link in self.links.clone() {
            self.sim.set_link_up(link, true);
            self.sim.set_impairment(link, Impairment::default());
        }
        for node in self.hosts.clone() {
            self.sim.set_reserve_result(node, Ok(()));
            if self.sim.engine(node).is_none() {
                self.sim.restart(node);
            }
        }
    }

    /// The user's own session, while it runs.
    fn view(&self, wanted: &Wanted) -> Option<SessionView> {
        let host = self.sim.engine(wanted.from)?;
        host.node.qos_sessions().find(|view| view.command == Some(wanted.id))
    }

    /// What the user was told last to have.
    fn granted(&self, wanted: &Wanted) -> Option<u64> {
        let heard = heard(&self.sim, wanted.from, wanted.id);
        heard.into_iter().rev().find_map(|event| match event {
            QosEvent::Granted(granted) | QosEvent::Rerouted(granted) => granted.quality.rate,
            _ => None,
        })
    }

    /// What users believe to hold where packets go now, or what is wrong with that.
    fn expected(&mut self) -> Result<Held, String> {
        let mut held = Held::new();
        for wanted in self.wanted.clone() {
            if self.view(&wanted).is_none() {
                continue;
            }
            let rate = self.granted(&wanted).ok_or_else(|| format!("{wanted:?} waits for ever"))?;
            let ends =
                [self.sim.address(wanted.from, wanted.family), self.sim.address(wanted.to, wanted.family)];
            let mut path = self.sim.path(wanted.from, ends[1]).unwrap();
            if wanted.bidirectional {
                path.extend(self.sim.path(wanted.to, ends[0]).unwrap());
            }
            for (node, link) in path {
                if self.hosts.contains(&node) {
                    held.insert((node, self.sim.ifindex(node, link), wanted.port()), rate);
                }
            }
        }
        Ok(held)
    }

    /// What the kernels hold.
    fn held(&self) -> Held {
        let mut held = Held::new();
        for node in &self.hosts {
            for (_, reservation) in self.sim.reservations(*node) {
                let port = reservation.filters[0].dst_port.unwrap();
                *held.entry((*node, reservation.ifindex, port)).or_default() += reservation.traffic.rate;
            }
        }
        held
    }

    /// Whatever a user believes in that does not stand.
    fn missing(&mut self) -> Option<String> {
        let expected = match self.expected() {
            Ok(expected) => expected,
            Err(fault) => return Some(fault),
        };
        let held = self.held();
        let missing: Vec<_> = expected.iter().filter(|(at, rate)| held.get(at) != Some(rate)).collect();
        (!missing.is_empty()).then(|| format!("missing {missing:?} of {expected:?} in {held:?}"))
    }

    /// Whatever differs from what users believe in.
    fn fault(&mut self) -> Option<String> {
        let expected = match self.expected() {
            Ok(expected) => expected,
            Err(fault) => return Some(fault),
        };
        let held = self.held();
        if held != expected {
            let stale: Vec<_> = held.iter().filter(|(at, rate)| expected.get(at) != Some(rate)).collect();
            let missing: Vec<_> = expected.iter().filter(|(at, rate)| held.get(at) != Some(rate)).collect();
            return Some(format!("stale {stale:?}, missing {missing:?}"));
        }
        // Admission control charges for the same.
        for node in &self.hosts {
            let host = self.sim.engine(*node)?;
            for link in host.node.resources().links() {
                let at = held.iter().filter(|((n, at, _), _)| n == node && *at == link.ifindex);
                let sum: u64 = at.map(|(_, rate)| rate).sum();
                if link.reserved != sum {
                    return Some(format!(
                        "{node} charges {} and holds {sum} at {}",
                        link.reserved, link.name
                    ));
                }
            }
        }
        None
    }

    fn says(&self, fault: &str) -> String {
        format!("{fault}; {:?} {:?}, at {}, seed {}", self.mode, self.storm, self.sim.now(), self.sim.seed())
    }
}

fn run(seed: u64, storm: Storm) {
    let mut world = World::new(seed, storm);
    for _ in 0..4 {
        world.reserve();
    }
    for _ in 0..8 {
        let pause = Duration::from_millis(300 + world.random.range(0..2500));
        world.sim.run_for(pause);
        world.trouble();
        world.whim();
    }
    world.sim.run_for(Duration::from_secs(1));
    world.heal();
    world.sim.run_for(RECOVERY);
    if let Some(fault) = world.missing() {
        panic!("{}", world.says(&fault));
    }
    // Nodes that may be off the path refresh those behind them, each for a lifetime more than the one before.
    let hops = u32::try_from(world.hosts.len()).unwrap();
    world.sim.run_for(LIFETIME * hops);
    if let Some(fault) = world.fault() {
        panic!("{}", world.says(&fault));
    }
    // When all are released nothing is left at all.
    for wanted in world.wanted.clone() {
        world.command(&wanted, qos::Command::Release);
    }
    let nothing = |sim: &Sim<Host>| sim.nodes().all(|node| sim.reservations(node).next().is_none());
    let gone = world.sim.wait(Duration::from_secs(5), nothing);
    assert!(gone, "{}", world.says(&format!("left {:?}", world.held())));
    let quiet = |sim: &Sim<Host>| sim.nodes().all(|node| qos_sessions(sim, node) == 0);
    let quiet = world.sim.wait(LIFETIME * hops + GIVE_UP, quiet);
    assert!(quiet, "{}", world.says("sessions are left"));
}

/// Every other seed, so that tests share the work.
fn campaign(part: u64, storm: Storm) {
    let seeds = std::env::var("SIGNALBOX_SEEDS").ok().map(|text| text.parse().unwrap());
    let alone = std::env::var_os("SIGNALBOX_SEED").map(|_| seed_from_environment(0));
    match alone {
        Some(seed) if seed % 3 == part => run(seed, storm),
        Some(_) => {}
        None => (0..seeds.unwrap_or(SEEDS)).filter(|seed| seed % 3 == part).for_each(|seed| run(seed, storm)),
    }
}

#[test]
fn nodes_that_start_anew_leave_what_users_hold() {
    campaign(0, Storm::Restarts);
}

#[test]
fn nodes_that_die_leave_what_users_hold() {
    campaign(1, Storm::Crashes);
}

#[test]
fn paths_that_change_leave_what_users_hold() {
    campaign(2, Storm::Routes);
}
