//! Many small networks, each from its own seed. Users make, change and release reservations under faults: loss,
//! reordering, duplication, kernels that refuse, nodes that restart or fail, route changes. `SIGNALBOX_SEEDS` in the
//! environment is the number of networks; `SIGNALBOX_SEED` runs one of them alone.
//!
//! At every moment the reservations that a node requests of its kernel stay within each link's share: [`Host`] checks
//! each request. After the faults and [`RECOVERY`], every reservation that its user was granted is installed at every
//! node of the present path. That holds for the reservations of a failed receiver, too: its neighbor expires a
//! lifetime after the last refresh, which is less than [`RECOVERY`], and tears down the rest of the path, up to the
//! sender's user. If a tear was lost, its sender does not refresh any more, so the next node expires as soon. Only
//! nodes that may be off the path send no tear; the state behind them ends hop by hop, one lifetime each. After that,
//! the reservations on each link are exactly those that users hold there. Timers are shorter than those of the RFC, all
//! in proportion.

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
use signalbox_sim::{Captured, Family, Impairment, LinkConfig, LinkId, NodeId, Sim, StreamConfig};

use super::net::{Host, Mode, SHARE, events_of, qos_sessions};
use crate::after_end::{self, EndCounts};
use crate::one_hop::OneHop;
use crate::parts::run_part;

/// Number of seeds, unless the environment variable is set.
const SEEDS: u64 = 900;
/// Validity of GIST's routing state, and the application's refresh period.
const VALIDITY: Duration = Duration::from_secs(6);
const REFRESH: Duration = Duration::from_secs(2);
/// Time after which a stream or an association without an answer is given up.
const GIVE_UP: Duration = Duration::from_secs(3);
/// Lifetime of a reservation: (3 + 0.5) · 1.5 · R.
const LIFETIME: Duration = Duration::from_millis(10_500);
/// Time from the end of the faults until every live reservation is complete: GIST finds the present peers, the next
/// refresh finds the nodes without state, and their requests are granted or given up.
const RECOVERY: Duration = Duration::from_secs(6 + 3 + 3 + 5);

const BAD: Impairment = Impairment {
    delay: Duration::from_millis(5),
    jitter: Duration::from_millis(20),
    loss: 0.15,
    duplication: 0.1,
};

/// Faults in addition to those of packets and kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Storm {
    /// Nodes restart.
    Restarts,
    /// Nodes fail and return later, or are bypassed meanwhile.
    Crashes,
    /// Route changes.
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

/// The request of a user, and the session that it may have.
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
    /// The port of the flow, which is different for each request.
    fn port(&self) -> u16 {
        u16::try_from(self.id).unwrap() + 10_000
    }
}

/// Octets a second by node, interface, and port of the flow.
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

/// Connects the nodes to a random tree with at most this number of further links. No two links join the same nodes,
/// because the applications are not notified yet when a path moves from one such link to the other.
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
            // At least two nodes have the application.
            let kind = if n < 2 { 0 } else { random.range(0..8) };
            let mut config = config(mode, &mut random);
            config.qos = config.qos.filter(|_| kind < 6);
            // Random numbers of its own: what else is drawn stays the same.
            let one_hop = sim.random(1_000 + u32::try_from(n).unwrap()).chance(0.25);
            let name = format!("n{n}");
            let node = match kind {
                0..7 => sim.add_engine(name, move |boot| {
                    let mut host = Host::new(boot, config.clone());
                    host.one_hop = one_hop.then(OneHop::default);
                    host
                }),
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

    /// Does a random action of a user.
    fn act(&mut self) {
        let at = pick(&mut self.random, &(0..self.wanted.len()).collect::<Vec<_>>());
        let wanted = self.wanted[at];
        match self.random.range(0..6) {
            0 => {
                self.wanted[at].released = true;
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

    /// Injects one fault.
    fn inject_fault(&mut self) {
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

    /// Ends all faults.
    fn end_faults(&mut self) {
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

    /// The rate of the last grant that the user received.
    fn granted(&self, wanted: &Wanted) -> Option<u64> {
        let events = events_of(&self.sim, wanted.from, wanted.id);
        events.into_iter().rev().find_map(|event| match event {
            QosEvent::Granted(granted) | QosEvent::Rerouted(granted) => granted.quality.rate,
            _ => None,
        })
    }

    /// The reservations that users hold on the present paths, or an error in them.
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

    /// The reservations that the kernels hold.
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

    /// A reservation that its user holds and that is not installed.
    fn missing(&mut self) -> Option<String> {
        let expected = match self.expected() {
            Ok(expected) => expected,
            Err(fault) => return Some(fault),
        };
        let held = self.held();
        let missing: Vec<_> = expected.iter().filter(|(at, rate)| held.get(at) != Some(rate)).collect();
        (!missing.is_empty()).then(|| format!("missing {missing:?} of {expected:?} in {held:?}"))
    }

    /// A difference between the installed reservations and those that users hold.
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
        // Admission control counts the same reservations.
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

    /// All reservations are released while branches of former routes still hold some. The tears end them at every node of
    /// the present paths, and no node restores one: each node on a path belongs to the branch that its user holds.
    fn release_early(&mut self) {
        let on_paths = match self.expected() {
            Ok(expected) => expected,
            Err(fault) => panic!("{}", self.says(&fault)),
        };
        for wanted in self.wanted.clone() {
            self.command(&wanted, qos::Command::Release);
        }
        self.sim.run_for(Duration::from_secs(5));
        let mut stale = self.held();
        let kept: Vec<_> = on_paths.keys().filter(|at| stale.contains_key(at)).collect();
        assert!(kept.is_empty(), "{}", self.says(&format!("kept {kept:?}")));
        let hops = u32::try_from(self.hosts.len()).unwrap();
        for _ in 0..LIFETIME.as_secs() * u64::from(hops) {
            self.sim.run_for(Duration::from_secs(1));
            let now = self.held();
            let new: Vec<_> = now.keys().filter(|at| !stale.contains_key(at)).collect();
            assert!(new.is_empty(), "{}", self.says(&format!("restored {new:?}")));
            stale = now;
        }
        assert!(stale.is_empty(), "{}", self.says(&format!("left {stale:?}")));
    }

    /// Nothing that makes a reservation left a node after its tear.
    fn after_end(&self) -> EndCounts {
        let ends = |captured: &Captured| after_end::between(&self.sim, captured);
        match after_end::check(
            self.sim.captured(),
            after_end::StateRequests::new(),
            after_end::reservations,
            ends,
        ) {
            Ok(seen) => seen,
            Err(fault) => panic!("{}", self.says(&fault)),
        }
    }

    fn says(&self, fault: &str) -> String {
        format!("{fault}; {:?} {:?}, at {}, seed {}", self.mode, self.storm, self.sim.now(), self.sim.seed())
    }
}

fn run(seed: u64, storm: Storm, met: &mut EndCounts) {
    let mut world = World::new(seed, storm);
    world.sim.capture_all();
    for _ in 0..4 {
        world.reserve();
    }
    for _ in 0..8 {
        let pause = Duration::from_millis(300 + world.random.range(0..2500));
        world.sim.run_for(pause);
        world.inject_fault();
        world.act();
    }
    world.sim.run_for(Duration::from_secs(1));
    world.end_faults();
    world.sim.run_for(RECOVERY);
    if let Some(fault) = world.missing() {
        panic!("{}", world.says(&fault));
    }
    if seed % 4 == 3 {
        world.release_early();
        return met.add(world.after_end());
    }
    // Nodes that may be off the path refresh those behind them, each for a lifetime more than the one before.
    let hops = u32::try_from(world.hosts.len()).unwrap();
    world.sim.run_for(LIFETIME * hops);
    if let Some(fault) = world.fault() {
        panic!("{}", world.says(&fault));
    }
    // When all reservations are released, no state is left.
    for wanted in world.wanted.clone() {
        world.command(&wanted, qos::Command::Release);
    }
    let nothing = |sim: &Sim<Host>| sim.nodes().all(|node| sim.reservations(node).next().is_none());
    let gone = world.sim.wait(Duration::from_secs(5), nothing);
    assert!(gone, "{}", world.says(&format!("left {:?}", world.held())));
    let quiet = |sim: &Sim<Host>| sim.nodes().all(|node| qos_sessions(sim, node) == 0);
    let quiet = world.sim.wait(LIFETIME * hops + GIVE_UP, quiet);
    assert!(quiet, "{}", world.says("sessions are left"));
    met.add(world.after_end());
}

/// Every third seed, so that tests share the work.
fn campaign(part: u64, storm: Storm) {
    let mut met = EndCounts::default();
    if run_part(part, 3, SEEDS, |seed| run(seed, storm, &mut met)).is_some() {
        assert!(met.ends > 100, "{met:?}");
    }
    eprintln!("{storm:?}: {met:?}");
}

#[test]
fn nodes_that_start_anew_leave_what_users_hold() {
    campaign(0, Storm::Restarts);
}

#[test]
fn nodes_that_crash_leave_what_users_hold() {
    campaign(1, Storm::Crashes);
}

#[test]
fn paths_that_change_leave_what_users_hold() {
    campaign(2, Storm::Routes);
}
