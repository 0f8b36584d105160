//! A random network with random sessions, the actions of its users, and the faults in it.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use signalbox_core::node::Prefix;
use signalbox_core::rng::Random;
use signalbox_core::traffic::ReserveError;
use signalbox_core::{IfIndex, Time};
use signalbox_node::Config;
use signalbox_node::boomerang::{self, Command, Rates, SessionState};
use signalbox_node::resources::{Config as Resources, Rate, config::LinkConfig as Capacity};
use signalbox_sim::{Family, Impairment, LinkConfig, LinkId, NextHop, NodeId, Sim};

use super::net::{Held, Host, Sums, command, held, octets, request, sums, totals};
use crate::net::WALL_US;

/// Refresh interval, seconds.
pub(crate) const REFRESH: u8 = 2;

const BAD: Impairment = Impairment {
    delay: Duration::from_millis(5),
    jitter: Duration::from_millis(20),
    loss: 0.15,
    duplication: 0.1,
};

/// Octets a second by which an aggregate and the sum of its members may differ: each rate is rounded up.
const ROUNDING: u64 = 32;

/// Faults in addition to those of packets and kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Storm {
    /// Nodes restart.
    Restarts,
    /// Nodes fail and return later, or are bypassed meanwhile.
    Crashes,
    /// Route changes, also of one direction alone.
    Routes,
}

/// A user's request.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) id: u64,
    from: NodeId,
    to: NodeId,
    family: Family,
    rates: Vec<(u32, u32)>,
    /// When its user left.
    closed: Option<Time>,
}

impl Wish {
    /// The port of the flow, which is different for each request.
    fn port(&self) -> u16 {
        u16::try_from(self.id).unwrap() + 10_000
    }
}

pub(crate) struct World {
    pub(crate) sim: Sim<Host>,
    pub(crate) storm: Storm,
    /// All nodes, and those with Boomerang. The others are routers and hosts as everywhere.
    nodes: Vec<NodeId>,
    pub(crate) hosts: Vec<NodeId>,
    links: Vec<LinkId>,
    /// The two ends of each link.
    ends: BTreeMap<LinkId, [NodeId; 2]>,
    pub(crate) wishes: Vec<Wish>,
    /// Some nodes propose aggregates or adopt them.
    pub(crate) aggregates: bool,
    random: Random,
}

fn pick<T: Copy>(random: &mut Random, from: &[T]) -> T {
    from[usize::try_from(random.range(0..from.len() as u64)).unwrap()]
}

/// Pairs that connect all nodes: a tree, and at most `extra` further pairs, all different.
fn pairs(random: &mut Random, count: usize, extra: usize) -> Vec<(usize, usize)> {
    let all: Vec<usize> = (0..count).collect();
    let mut pairs: Vec<(usize, usize)> = (1..count).map(|at| (pick(random, &all[..at]), at)).collect();
    for _ in 0..extra {
        let (a, b) = (pick(random, &all), pick(random, &all));
        if a != b && !pairs.contains(&(a, b)) && !pairs.contains(&(b, a)) {
            pairs.push((a, b));
        }
    }
    pairs
}

impl World {
    pub(crate) fn new(seed: u64, storm: Storm) -> Self {
        let mut sim = Sim::new(seed);
        let mut random = sim.random(1);
        let tight = random.chance(0.5);
        let count = 3 + usize::try_from(random.range(0..5)).unwrap();
        let pairs = pairs(&mut random, count, if storm == Storm::Restarts { 0 } else { 3 });
        let plain: Vec<bool> = (0..count).map(|n| n >= 2 && random.chance(0.2)).collect();
        // One node of the path demands proofs, in each direction.
        let prover = random.chance(0.4).then(|| usize::try_from(random.range(0..count as u64)).unwrap());
        let aggregates = random.chance(0.5);
        let (mut nodes, mut hosts) = (Vec::new(), Vec::new());
        for (n, only_forwards) in plain.iter().enumerate() {
            let name = format!("n{n}");
            if *only_forwards {
                nodes.push(sim.add_router(name));
                continue;
            }
            let ports = pairs.iter().filter(|(a, b)| *a == n || *b == n).count();
            let mut share = || if tight { 3 * (10_000 + random.range(0..30_000)) } else { 75_000_000 };
            let shares: Vec<u64> = (0..ports).map(|_| share()).collect();
            let links = shares.iter().zip(0..);
            let links =
                links.map(|(share, port)| Capacity::new(&format!("eth{port}"), Some(Rate(share / 3 * 4))));
            let engine = boomerang::Config {
                refresh: REFRESH,
                max_refresh: pick(&mut random, &[REFRESH, 60]),
                prove: prover == Some(n),
                aggregates: boomerang::Aggregation {
                    propose: aggregates && random.chance(0.7),
                    members: 2,
                    adopt: aggregates && random.chance(0.8),
                    from_elsewhere: aggregates,
                    ..boomerang::Aggregation::default()
                },
                ..boomerang::Config::default()
            };
            let config = Config {
                wall_clock_us: WALL_US,
                boomerang: Some(engine),
                resources: Resources { links: links.collect(), ..Resources::default() },
                ..Config::empty()
            };
            let by_index: BTreeMap<IfIndex, u64> = (2..).map(IfIndex).zip(shares).collect();
            let node = sim.add_engine(name, move |boot| Host::new(boot, config.clone(), by_index.clone()));
            hosts.push(node);
            nodes.push(node);
        }
        let mut ends = BTreeMap::new();
        for (a, b) in pairs {
            let pair = [nodes[a], nodes[b]];
            ends.insert(sim.link(pair[0], pair[1], &LinkConfig::impaired(BAD)), pair);
        }
        let links = ends.keys().copied().collect();
        for node in &nodes {
            sim.add_address(*node, IpAddr::V4((0xc000_0201 + node.0).into()));
            sim.add_address(*node, IpAddr::V6((0xfd01 << 112 | (u128::from(node.0) + 1)).into()));
        }
        // The engines start here.
        sim.run_for(Duration::ZERO);
        Self { sim, storm, nodes, hosts, links, ends, wishes: Vec::new(), aggregates, random }
    }

    /// Pairs of rates in decreasing order.
    fn rates(&mut self) -> Vec<(u32, u32)> {
        let random = &mut self.random;
        let mut rate = || 1 + u32::try_from(random.range(0..300_000)).unwrap();
        let (forward, reverse) = (rate(), rate());
        match random.range(0..5) {
            0 => vec![(forward, 0)],
            1 => vec![(0, reverse)],
            2 => vec![(forward, reverse), (forward / 2, reverse), (forward / 4, reverse / 2)],
            _ => vec![(forward, reverse)],
        }
    }

    /// A new user asks for a reservation.
    pub(crate) fn open(&mut self) {
        let from = pick(&mut self.random, &self.hosts);
        let others: Vec<NodeId> = self.nodes.iter().copied().filter(|node| *node != from).collect();
        let wish = Wish {
            id: self.wishes.len() as u64,
            from,
            to: pick(&mut self.random, &others),
            family: if self.random.chance(0.7) { Family::V4 } else { Family::V6 },
            rates: self.rates(),
            closed: None,
        };
        self.wishes.push(wish);
        self.ask(self.wishes.len() - 1);
    }

    fn ask(&mut self, at: usize) {
        let wish = self.wishes[at].clone();
        let far_end = self.sim.address(wish.to, wish.family);
        let request = request(far_end, wish.port(), &wish.rates);
        command(&mut self.sim, wish.from, wish.id, Command::Open(request));
    }

    /// Does a random action of a user.
    pub(crate) fn act(&mut self) {
        let at = usize::try_from(self.random.range(0..self.wishes.len() as u64)).unwrap();
        let (id, from) = (self.wishes[at].id, self.wishes[at].from);
        match self.random.range(0..6) {
            0 => {
                self.wishes[at].closed = Some(self.sim.now());
                command(&mut self.sim, from, id, Command::Close);
            }
            1 | 2 if self.wishes[at].closed.is_none() => {
                let (forward, reverse) = self.rates()[0];
                self.wishes[at].rates = vec![(forward, reverse)];
                command(&mut self.sim, from, id, Command::Change(Rates { forward, reverse }));
            }
            3 | 4 if self.wishes.len() < 12 => self.open(),
            _ => {}
        }
    }

    /// All users leave.
    pub(crate) fn close(&mut self) {
        let now = self.sim.now();
        for wish in self.wishes.clone() {
            command(&mut self.sim, wish.from, wish.id, Command::Close);
        }
        self.wishes.iter_mut().for_each(|wish| wish.closed = wish.closed.or(Some(now)));
    }

    /// Whether the user of a flow had left at a time.
    pub(crate) fn has_left(&self, port: u16, at: Time) -> bool {
        let wish = self.wishes.iter().find(|wish| wish.port() == port);
        wish.is_some_and(|wish| wish.closed.is_some_and(|closed| closed <= at))
    }

    /// Restarts a node; most of its users ask again.
    fn restart(&mut self, node: NodeId) {
        self.sim.restart(node);
        for at in 0..self.wishes.len() {
            if self.wishes[at].from == node && self.wishes[at].closed.is_none() && self.random.chance(0.7) {
                self.ask(at);
            }
        }
    }

    /// Routes towards one node that need not be those from it: shortest paths, but each direction of a link has a length
    /// of its own.
    fn bend(&mut self) {
        let target = pick(&mut self.random, &self.nodes);
        let mut lengths = BTreeMap::new();
        for (link, [a, b]) in &self.ends {
            for (from, to) in [(*a, *b), (*b, *a)] {
                lengths.insert((from, to, *link), 1 + self.random.range(0..100));
            }
        }
        let mut distance = BTreeMap::from([(target, (0, None))]);
        for _ in &self.nodes {
            for ((from, to, link), length) in &lengths {
                let Some((rest, _)) = distance.get(to).copied() else { continue };
                let here = distance.get(from).map_or(u64::MAX, |(here, _)| *here);
                if rest + length < here {
                    distance.insert(*from, (rest + length, Some(*link)));
                }
            }
        }
        let own_links = self.ends.iter().filter(|(_, ends)| ends.contains(&target));
        let mut addresses: BTreeSet<IpAddr> = BTreeSet::new();
        for family in [Family::V4, Family::V6] {
            addresses.insert(self.sim.address(target, family));
            addresses.extend(own_links.clone().map(|(link, _)| self.sim.address_on(target, *link, family)));
        }
        for (node, (_, link)) in distance {
            for address in &addresses {
                let Some(link) = link else { continue };
                self.sim.set_route(node, Prefix::host(*address), NextHop::Link(link));
            }
        }
    }

    /// Injects one fault.
    pub(crate) fn inject_fault(&mut self) {
        let node = pick(&mut self.random, &self.hosts);
        let link = pick(&mut self.random, &self.links);
        match self.random.range(0..8) {
            0 => self.restart(node),
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
            7 if self.storm >= Storm::Routes => self.bend(),
            _ => {}
        }
    }

    /// Waits between two events.
    pub(crate) fn pause(&mut self) {
        let pause = Duration::from_millis(200 + self.random.range(0..2500));
        self.sim.run_for(pause);
    }

    /// Ends all faults. Routes stay as they are.
    pub(crate) fn end_faults(&mut self) {
        for link in self.links.clone() {
            self.sim.set_link_up(link, true);
            self.sim.set_impairment(link, Impairment::default());
        }
        for node in self.hosts.clone() {
            self.sim.set_reserve_result(node, Ok(()));
            if self.sim.engine(node).is_none() {
                self.restart(node);
            }
        }
    }

    /// What live sessions hold on their present paths, the number of those whose way back is another one, and whether the
    /// users know it.
    pub(crate) fn expected(&mut self) -> Result<(Held, usize), String> {
        let mut expected = Held::new();
        let mut bent = 0;
        for wish in self.wishes.clone() {
            let host = self.sim.engine(wish.from).unwrap();
            let known = host.known.get(&wish.id).copied();
            let session =
                host.node.boomerang().unwrap().sessions().find(|session| session.id == Some(wish.id));
            let granted = session.as_ref().and_then(|session| session.granted);
            if granted != known {
                return Err(format!("{wish:?} knows {known:?}, the path granted {granted:?}"));
            }
            let Some(session) = session else { continue };
            let Some(rates) = granted.filter(|_| session.state == SessionState::Established) else {
                return Err(format!("{wish:?} waits for ever: {session:?}"));
            };
            let there = self.sim.path(wish.from, session.far_end).map_err(|error| format!("{error:?}"))?;
            let back = self.sim.path(wish.to, session.src).map_err(|error| format!("{error:?}"))?;
            let there_links: BTreeSet<LinkId> = there.iter().map(|(_, link)| *link).collect();
            bent += usize::from(back.iter().any(|(_, link)| !there_links.contains(link)));
            for (path, rate, reverse) in [(there, rates.forward, false), (back, rates.reverse, true)] {
                for (node, link) in path.into_iter().filter(|(node, _)| rate > 0 && self.hosts.contains(node))
                {
                    let place = (node, self.sim.ifindex(node, link), wish.port(), reverse);
                    expected.insert(place, octets(rate));
                }
            }
        }
        Ok((expected, bent))
    }

    /// What live sessions hold that is not installed.
    pub(crate) fn missing(&mut self) -> Option<String> {
        let (expected, _) = match self.expected() {
            Ok(expected) => expected,
            Err(fault) => return Some(fault),
        };
        if self.aggregates {
            let less = |held: u64, expected: u64| held + ROUNDING < expected;
            return self.unlike(&expected, less);
        }
        let held = held(&self.sim, &self.hosts);
        let missing: Vec<_> = expected.iter().filter(|(at, rate)| held.get(at) != Some(rate)).collect();
        (!missing.is_empty()).then(|| format!("missing {missing:?} in {held:?}"))
    }

    /// A difference between what is installed and what live sessions hold.
    pub(crate) fn fault(&mut self) -> Option<String> {
        let (expected, _) = match self.expected() {
            Ok(expected) => expected,
            Err(fault) => return Some(fault),
        };
        if self.aggregates {
            let other = |held: u64, expected: u64| held.abs_diff(expected) > ROUNDING;
            return self.unlike(&expected, other).or_else(|| self.charged(&totals(&self.sim, &self.hosts)));
        }
        let held = held(&self.sim, &self.hosts);
        if held != expected {
            let stale: Vec<_> = held.iter().filter(|(at, rate)| expected.get(at) != Some(rate)).collect();
            let missing: Vec<_> = expected.iter().filter(|(at, rate)| held.get(at) != Some(rate)).collect();
            return Some(format!("stale {stale:?}, missing {missing:?}"));
        }
        self.charged(&sums(&held))
    }

    /// A link whose sum differs from what live sessions hold there.
    fn unlike(&self, expected: &Held, differs: impl Fn(u64, u64) -> bool) -> Option<String> {
        let (held, expected) = (totals(&self.sim, &self.hosts), sums(expected));
        let links: BTreeSet<_> = held.keys().chain(expected.keys()).collect();
        let at = |sums: &Sums, link| sums.get(link).copied().unwrap_or(0);
        let wrong: Vec<_> = links
            .into_iter()
            .map(|link| (link, at(&held, link), at(&expected, link)))
            .filter(|(_, held, expected)| differs(*held, *expected))
            .collect();
        (!wrong.is_empty()).then(|| format!("link, held and expected: {wrong:?}"))
    }

    /// A link at which admission control counts something else than the kernel has.
    fn charged(&self, held: &Sums) -> Option<String> {
        for node in &self.hosts {
            for link in self.sim.engine(*node)?.node.resources().links() {
                let sum = held.get(&(*node, link.ifindex)).copied().unwrap_or(0);
                if link.reserved != sum {
                    return Some(format!("{node} charges {}, holds {sum} at {}", link.reserved, link.name));
                }
            }
        }
        None
    }

    /// State that is left at any node.
    pub(crate) fn left(sim: &Sim<Host>) -> Option<String> {
        sim.nodes().find_map(|node| {
            let host = &sim.engine(node)?.node;
            let engine = host.boomerang()?;
            let flows = engine.flow_count() + engine.aggregate_count();
            let counts = (flows, engine.session_count(), host.resources().len());
            let any = counts != (0, 0, 0) || sim.reservations(node).next().is_some();
            any.then(|| format!("{node} holds {counts:?}"))
        })
    }

    pub(crate) fn says(&self, fault: &str) -> String {
        let (storm, seed) = (self.storm, self.sim.seed());
        format!("{fault}\n{storm:?}, at {}, seed {seed}; {:?}", self.sim.now(), self.wishes)
    }
}
