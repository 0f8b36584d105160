//! A random network with random sessions, the actions of its users, and the faults in it.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use signalbox_core::IfIndex;
use signalbox_core::rng::Random;
use signalbox_core::traffic::ReserveError;
use signalbox_node::resources::{Config as Resources, Rate, config::LinkConfig as Capacity};
use signalbox_node::rsvp::{
    self, Filter, FlowRequest, ReserveRequest, Selector, SenderRequest, Session, SessionKind, Staged, Style,
};
use signalbox_node::{Command, Config};
use signalbox_rsvp::engine::neighbor::{Algorithm, HelloConfig, KeyUse};
use signalbox_rsvp::engine::{IntegrityKey, Secret};
use signalbox_sim::{Family, Impairment, LinkConfig, LinkId, NodeId, Sim};

use super::net::Host;
use super::spec::Spec;
use crate::after_end::{Path, StateRequests};
use crate::net::WALL_US;

/// The refresh period R; all other timers are in proportion to those of the RFCs.
pub(crate) const REFRESH: Duration = Duration::from_secs(1);
/// The blockade factor Kb.
pub(crate) const BLOCKADE: u32 = 4;

const BAD: Impairment = Impairment {
    delay: Duration::from_millis(5),
    jitter: Duration::from_millis(20),
    loss: 0.15,
    duplication: 0.1,
};

/// Faults in addition to those of packets and kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Storm {
    /// Nodes restart.
    Restarts,
    /// Nodes fail and return later, or are bypassed meanwhile.
    Crashes,
    /// Route changes.
    Routes,
}

/// The extensions that the nodes of a network use, and whether the capacity of its links is sufficient for all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variant {
    pub(crate) reduction: bool,
    pub(crate) hello: bool,
    pub(crate) integrity: bool,
    pub(crate) staged: bool,
    /// Staged timers repeat tears too.
    pub(crate) tears: bool,
    /// The links cannot carry all requests, and all flowspecs can be compared.
    pub(crate) tight: bool,
}

/// A possible sender of a session; the port distinguishes several senders at one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Actor {
    pub(crate) node: NodeId,
    pub(crate) port: u16,
}

/// A receiver's request: with FF for each sender, otherwise once for all of these (with WF: for any).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wish {
    pub(crate) flows: Vec<(Vec<Actor>, Spec)>,
}

/// A session and the present requests of its users.
#[derive(Debug, Clone)]
pub(crate) struct Play {
    pub(crate) number: u64,
    pub(crate) family: Family,
    pub(crate) style: Style,
    pub(crate) guaranteed: bool,
    /// The receiver's node; `None`: multicast.
    pub(crate) dest: Option<NodeId>,
    pub(crate) session: Session,
    /// All possible senders.
    pub(crate) cast: Vec<Actor>,
    /// The present senders and their traffic.
    pub(crate) senders: BTreeMap<Actor, Spec>,
    /// The present receivers and their requests.
    pub(crate) sinks: BTreeMap<NodeId, Option<Wish>>,
}

impl Play {
    pub(crate) fn sender_id(&self, actor: Actor) -> u64 {
        self.number * 1000 + 100 + u64::from(actor.port % 100)
    }

    pub(crate) fn sink_id(&self) -> u64 {
        self.number * 1000
    }
}

/// The path of a sender's data.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tree {
    /// The egress links by node.
    pub(crate) out: BTreeMap<NodeId, BTreeSet<LinkId>>,
    /// The previous node and link by node.
    pub(crate) from: BTreeMap<NodeId, (NodeId, LinkId)>,
}

type MulticastRoute = (Option<LinkId>, Vec<LinkId>);

pub(crate) struct World {
    pub(crate) sim: Sim<Host>,
    pub(crate) storm: Storm,
    pub(crate) variant: Variant,
    /// Nodes with RSVP.
    pub(crate) hosts: Vec<NodeId>,
    pub(crate) links: Vec<LinkId>,
    /// The two ends of each link.
    pub(crate) ends: BTreeMap<LinkId, [NodeId; 2]>,
    /// Reservable octets a second by node and interface.
    pub(crate) shares: BTreeMap<(NodeId, IfIndex), u64>,
    pub(crate) plays: Vec<Play>,
    /// Links that are lost permanently.
    pub(crate) lost: BTreeSet<LinkId>,
    /// When users announced senders.
    pub(crate) path_requests: StateRequests<Path>,
    laid: BTreeMap<(NodeId, IpAddr, IpAddr), MulticastRoute>,
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

/// `gaps`: there are nodes without RSVP between others.
fn rsvp_config(variant: Variant, gaps: bool) -> rsvp::Config {
    let mut config = rsvp::Config { blockade_multiplier: BLOCKADE, ..rsvp::Config::default() };
    config.interface.refresh = REFRESH;
    config.interface.repair_delay = REFRESH / 15;
    let stages = Staged { first: REFRESH / 10, factor: 2.0, tears: variant.tears, ..Staged::default() };
    config.interface.staged = variant.staged.then_some(stages);
    let neighbors = &mut config.neighbors.interface;
    neighbors.trust.distant_hops = gaps;
    neighbors.reduction.reliable = variant.reduction;
    neighbors.reduction.first = REFRESH / 10;
    neighbors.reduction.multicast_ack_delay = REFRESH / 50;
    neighbors.reduction.summary_delay = REFRESH / 30;
    let hello = HelloConfig { interval: REFRESH / 4, ..HelloConfig::default() };
    neighbors.hello = variant.hello.then_some(hello);
    if variant.integrity {
        neighbors.integrity.sending = true;
        neighbors.integrity.receiving = true;
        neighbors.integrity.challenge = REFRESH / 5;
        config.keys = vec![IntegrityKey {
            id: 1,
            algorithm: Algorithm::HmacSha256,
            secret: Secret::new(*b"known to all"),
            usage: KeyUse::Both,
            interface: None,
            neighbor: None,
            from: 0,
            until: None,
        }];
    }
    config
}

impl World {
    pub(crate) fn new(seed: u64, storm: Storm) -> Self {
        let mut sim = Sim::new(seed);
        let mut random = sim.random(1);
        let variant = Variant {
            reduction: random.chance(0.5),
            hello: random.chance(0.2),
            integrity: random.chance(0.25),
            staged: random.chance(0.5),
            tears: seed.is_multiple_of(2),
            tight: random.chance(0.4),
        };
        let count = 3 + usize::try_from(random.range(0..6)).unwrap();
        let extra = if storm == Storm::Routes { 3 } else { 0 };
        let pairs = pairs(&mut random, count, extra);
        // At a hop without RSVP several next hops share an interface: a reservation there cannot serve one of them
        // only.
        let plain: Vec<bool> = (0..count).map(|n| n >= 3 && !variant.tight && random.chance(0.15)).collect();
        let mut ports: Vec<Vec<u64>> = vec![Vec::new(); count];
        for (a, b) in &pairs {
            for end in [*a, *b] {
                // The share is three quarters of the capacity of the link.
                let share = if variant.tight { 3 * (100_000 + random.range(0..400_000)) } else { 75_000_000 };
                ports[end].push(share);
            }
        }
        let (mut nodes, mut hosts) = (Vec::new(), Vec::new());
        for (n, ports) in ports.iter().enumerate() {
            let name = format!("n{n}");
            if plain[n] {
                nodes.push(sim.add_router(name));
                continue;
            }
            let named = ports.iter().zip(0..);
            let links =
                named.map(|(share, port)| Capacity::new(&format!("eth{port}"), Some(Rate(share / 3 * 4))));
            let config = Config {
                wall_clock_us: WALL_US,
                rsvp: Some(rsvp_config(variant, plain.contains(&true))),
                resources: Resources { links: links.collect(), ..Resources::default() },
                ..Config::empty()
            };
            let by_index: BTreeMap<IfIndex, u64> = (2..).map(IfIndex).zip(ports.iter().copied()).collect();
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
        let shares = nodes.iter().zip(&ports).flat_map(|(node, ports)| {
            (2..).map(IfIndex).zip(ports).map(|(ifindex, share)| ((*node, ifindex), *share))
        });
        let shares = shares.collect();
        // The address of a link that is down belongs to no node, and a sender with such an address uses that link.
        // These addresses stay.
        for node in &hosts {
            sim.add_address(*node, IpAddr::V4((0xc000_0201 + node.0).into()));
            sim.add_address(*node, IpAddr::V6((0xfd01 << 112 | (u128::from(node.0) + 1)).into()));
        }
        // The engines start here.
        sim.run_for(Duration::ZERO);
        Self {
            sim,
            storm,
            variant,
            hosts,
            links,
            ends,
            shares,
            plays: Vec::new(),
            lost: BTreeSet::new(),
            path_requests: StateRequests::new(),
            laid: BTreeMap::new(),
            random,
        }
    }

    /// A random request with this rate in octets a second.
    fn spec(&mut self, guaranteed: bool) -> Spec {
        let random = &mut self.random;
        if self.variant.tight {
            // Each request is larger than all smaller ones in all respects.
            let r = 10_000 * (1 + random.range(0..60));
            let service = guaranteed.then_some((r, 0));
            return Spec { r, b: r / 10 + 1500, p: None, m: 64, max: 1500, service };
        }
        let r = 1000 * (1 + random.range(0..100));
        let b = 1500 + 500 * random.range(0..10);
        let p = random.chance(0.5).then(|| r + 1000 * random.range(0..50));
        let max = 500 + 100 * u32::try_from(random.range(0..10)).unwrap();
        let m = 64 + 20 * u32::try_from(random.range(0..10)).unwrap();
        let rate = r + 1000 * random.range(0..50);
        let slack = 1000 * u32::try_from(random.range(0..3)).unwrap();
        Spec { r, b, p, m, max, service: guaranteed.then_some((rate, slack)) }
    }

    /// The traffic of a sender.
    fn traffic(&mut self) -> Spec {
        if self.variant.tight {
            return Spec { r: 1_000_000, b: 200_000, p: None, m: 64, max: 1500, service: None };
        }
        self.spec(false)
    }

    /// Opens a new session without users.
    pub(crate) fn open(&mut self) {
        let number = self.plays.len() as u64 + 1;
        let random = &mut self.random;
        let multicast = random.chance(0.6);
        let family = if random.chance(if multicast { 0.1 } else { 0.3 }) { Family::V6 } else { Family::V4 };
        let style = pick(random, &[Style::Ff, Style::Wf, Style::Se]);
        let guaranteed = random.chance(0.3);
        let dest = (!multicast).then(|| pick(random, &self.hosts));
        let others: Vec<NodeId> = self.hosts.iter().copied().filter(|node| Some(*node) != dest).collect();
        let mut cast = BTreeSet::new();
        let first = pick(random, &others);
        for _ in 0..1 + random.range(0..3) {
            // Where paths form circles, the reservations for several senders together form circles too, and the values
            // would refresh each other for ever. Therefore all senders are at one node.
            let circles = self.storm == Storm::Routes && multicast && style != Style::Ff;
            let node = if circles { first } else { pick(random, &others) };
            cast.insert(Actor { node, port: 4000 + u16::try_from(random.range(0..2)).unwrap() });
        }
        let address: IpAddr = match (dest, family) {
            (Some(node), family) => self.sim.address(node, family),
            (None, Family::V4) => IpAddr::V4((0xe800_0000 + u32::try_from(number).unwrap()).into()),
            (None, Family::V6) => IpAddr::V6((0xff3e << 112 | u128::from(number)).into()),
        };
        let port = 5000 + u16::try_from(number).unwrap();
        let session = Session { dest: address, protocol: 17, kind: SessionKind::Ports, port };
        let cast = cast.into_iter().collect();
        let (senders, sinks) = (BTreeMap::new(), BTreeMap::new());
        self.plays.push(Play { number, family, style, guaranteed, dest, session, cast, senders, sinks });
    }

    pub(crate) fn filter(&self, play: &Play, actor: Actor) -> Filter {
        Filter { src: self.sim.address(actor.node, play.family), selector: Selector::Port(actor.port) }
    }

    fn command(&mut self, node: NodeId, id: u64, command: rsvp::Command) {
        if self.sim.engine(node).is_some() {
            self.sim.command(node, Command::Rsvp { id, command });
        }
    }

    fn announce(&mut self, at: usize, actor: Actor) {
        let play = self.plays[at].clone();
        let request = SenderRequest {
            adspec: actor.port == 4000,
            ..SenderRequest::new(self.filter(&play, actor), play.senders[&actor].tspec())
        };
        let id = play.sender_id(actor);
        let state = (play.session, request.template);
        self.path_requests.entry((actor.node, state)).or_default().push(self.sim.now());
        self.command(actor.node, id, rsvp::Command::Session(play.session));
        self.command(actor.node, id, rsvp::Command::Sender(request));
    }

    /// Registers a receiver and makes its request.
    fn ask(&mut self, at: usize, node: NodeId) {
        let play = self.plays[at].clone();
        let id = play.sink_id();
        self.command(node, id, rsvp::Command::Session(play.session));
        let Some(wish) = &play.sinks[&node] else { return };
        let flows = wish.flows.iter().map(|(actors, spec)| FlowRequest {
            flowspec: spec.flowspec(),
            senders: actors.iter().map(|actor| self.filter(&play, *actor)).collect(),
        });
        let request = ReserveRequest {
            style: play.style,
            flows: flows.collect(),
            confirm: self.random.chance(0.3),
            policy: Box::default(),
        };
        self.command(node, id, rsvp::Command::Reserve(request));
    }

    fn wish(&mut self, at: usize) -> Wish {
        let Play { style, guaranteed, cast, .. } = self.plays[at].clone();
        let mut some: Vec<Actor> = cast.iter().copied().filter(|_| self.random.chance(0.7)).collect();
        if some.is_empty() {
            some.push(pick(&mut self.random, &cast));
        }
        let flows = match style {
            Style::Ff => some.into_iter().map(|actor| (vec![actor], self.spec(guaranteed))).collect(),
            Style::Se => vec![(some, self.spec(guaranteed))],
            Style::Wf => vec![(Vec::new(), self.spec(guaranteed))],
        };
        Wish { flows }
    }

    /// Does a random action of a user of a session.
    pub(crate) fn act(&mut self) {
        let at = usize::try_from(self.random.range(0..self.plays.len() as u64)).unwrap();
        let Play { dest, cast, senders, sinks, .. } = self.plays[at].clone();
        match self.random.range(0..10) {
            0..3 => {
                let actor = pick(&mut self.random, &cast);
                let traffic = self.traffic();
                self.plays[at].senders.insert(actor, traffic);
                self.announce(at, actor);
            }
            3 if !senders.is_empty() => {
                let actor = pick(&mut self.random, &senders.keys().copied().collect::<Vec<_>>());
                self.plays[at].senders.remove(&actor);
                let id = self.plays[at].sender_id(actor);
                self.command(actor.node, id, rsvp::Command::Close);
            }
            4 if !sinks.is_empty() => {
                let node = pick(&mut self.random, &sinks.keys().copied().collect::<Vec<_>>());
                self.plays[at].sinks.remove(&node);
                let id = self.plays[at].sink_id();
                self.command(node, id, rsvp::Command::Close);
                self.plant();
            }
            5 if !sinks.is_empty() => {
                let node = pick(&mut self.random, &sinks.keys().copied().collect::<Vec<_>>());
                let id = self.plays[at].sink_id();
                if self.plays[at].sinks.insert(node, None).flatten().is_some() {
                    self.command(node, id, rsvp::Command::ReleaseReservation);
                }
            }
            _ => {
                let node = dest.unwrap_or_else(|| pick(&mut self.random, &self.hosts));
                let wish = self.wish(at);
                self.plays[at].sinks.insert(node, Some(wish));
                self.plant();
                self.ask(at, node);
            }
        }
    }

    /// All users leave.
    pub(crate) fn close(&mut self) {
        for at in 0..self.plays.len() {
            let play = self.plays[at].clone();
            for actor in play.senders.keys() {
                self.command(actor.node, play.sender_id(*actor), rsvp::Command::Close);
            }
            for node in play.sinks.keys() {
                self.command(*node, play.sink_id(), rsvp::Command::Close);
            }
            self.plays[at].senders.clear();
            self.plays[at].sinks.clear();
        }
    }

    /// Restarts a node; its users register again.
    fn restart(&mut self, node: NodeId) {
        self.sim.restart(node);
        for at in 0..self.plays.len() {
            let play = self.plays[at].clone();
            for actor in play.senders.keys().filter(|actor| actor.node == node) {
                self.announce(at, *actor);
            }
            if play.sinks.contains_key(&node) {
                self.ask(at, node);
            }
        }
    }

    /// A node starts anew or senders change, and soon after that senders end: messages about them wait for others at that moment.
    pub(crate) fn hurry(&mut self) {
        let node = pick(&mut self.random, &self.hosts);
        if self.random.chance(0.5) {
            self.restart(node);
        }
        for ends in [false, true] {
            for at in 0..self.plays.len() {
                let cast = self.plays[at].cast.clone();
                for actor in cast {
                    let id = self.plays[at].sender_id(actor);
                    if self.random.chance(0.4) {
                        continue;
                    }
                    if !ends {
                        let traffic = self.traffic();
                        self.plays[at].senders.insert(actor, traffic);
                        self.announce(at, actor);
                    } else if self.plays[at].senders.remove(&actor).is_some() {
                        self.command(actor.node, id, rsvp::Command::Close);
                    }
                }
            }
            let pause = Duration::from_millis(self.random.range(0..120));
            self.sim.run_for(pause);
        }
    }

    /// Injects one fault.
    pub(crate) fn inject_fault(&mut self) {
        let node = pick(&mut self.random, &self.hosts);
        let link = pick(&mut self.random, &self.links);
        match self.random.range(0..7) {
            0 => self.restart(node),
            1 => self.sim.set_reserve_result(node, Err(ReserveError::Failed)),
            2 => self.sim.set_reserve_result(node, Ok(())),
            3 if self.storm >= Storm::Crashes => self.sim.crash(node),
            4 if self.storm >= Storm::Crashes => self.sim.power_off(node),
            5 if self.storm >= Storm::Routes => {
                let cost = u32::try_from(1 + self.random.range(0..5)).unwrap();
                self.sim.set_cost(link, cost);
                self.plant();
            }
            6 if self.storm >= Storm::Routes => {
                let up = self.random.chance(0.5);
                self.sim.set_link_up(link, up);
                self.plant();
            }
            _ => {}
        }
    }

    /// Whether all nodes are connected without these links.
    fn holds_together(&self, without: &BTreeSet<LinkId>) -> bool {
        let mut reached: BTreeSet<NodeId> = self.ends.values().take(1).flatten().copied().collect();
        for _ in 0..self.ends.len() {
            let used = self.ends.iter().filter(|(link, _)| !without.contains(link));
            let more: Vec<[NodeId; 2]> = used
                .map(|(_, ends)| *ends)
                .filter(|ends| ends.iter().any(|end| reached.contains(end)))
                .collect();
            reached.extend(more.into_iter().flatten());
        }
        self.ends.values().flatten().all(|end| reached.contains(end))
    }

    /// Ends all faults; some links that paths do not need stay lost.
    pub(crate) fn end_faults(&mut self) {
        for link in self.links.clone() {
            let mut lost = self.lost.clone();
            lost.insert(link);
            if self.storm >= Storm::Routes && self.random.chance(0.3) && self.holds_together(&lost) {
                self.lost = lost;
            }
            self.sim.set_link_up(link, !self.lost.contains(&link));
            self.sim.set_impairment(link, Impairment::default());
        }
        for node in self.hosts.clone() {
            self.sim.set_reserve_result(node, Ok(()));
            if self.sim.engine(node).is_none() {
                self.restart(node);
            }
        }
        self.plant();
    }

    /// The present path of an actor's data; to a multicast group that of the reverse paths.
    pub(crate) fn tree(&mut self, play: &Play, actor: Actor) -> Tree {
        let mut tree = Tree::default();
        if let Some(dest) = play.dest {
            let path = self.sim.path(actor.node, play.session.dest).unwrap_or_default();
            let ends: Vec<NodeId> = path.iter().skip(1).map(|(node, _)| *node).chain([dest]).collect();
            for ((node, link), next) in path.into_iter().zip(ends) {
                tree.out.entry(node).or_default().insert(link);
                tree.from.insert(next, (node, link));
            }
            return tree;
        }
        let src = self.sim.address(actor.node, play.family);
        for member in play.sinks.keys() {
            let path = self.sim.path(*member, src).unwrap_or_default();
            let ends: Vec<NodeId> = path.iter().skip(1).map(|(node, _)| *node).chain([actor.node]).collect();
            for ((node, link), before) in path.into_iter().zip(ends) {
                tree.out.entry(before).or_default().insert(link);
                tree.from.insert(node, (before, link));
            }
        }
        tree
    }

    /// Installs multicast routes for the present paths and members.
    fn plant(&mut self) {
        let mut wanted = BTreeMap::new();
        for play in self.plays.clone().iter().filter(|play| play.dest.is_none()) {
            for actor in &play.cast {
                let tree = self.tree(play, *actor);
                let src = self.sim.address(actor.node, play.family);
                for (node, links) in &tree.out {
                    let iif = tree.from.get(node).map(|(_, link)| *link);
                    let route: MulticastRoute = (iif, links.iter().copied().collect());
                    wanted.insert((*node, play.session.dest, src), route);
                }
            }
        }
        let gone: Vec<_> = self.laid.keys().filter(|key| !wanted.contains_key(key)).copied().collect();
        for (node, group, src) in gone {
            self.sim.set_multicast_route(node, group, src, None, &[]);
        }
        for (key, route) in &wanted {
            if self.laid.get(key) != Some(route) {
                self.sim.set_multicast_route(key.0, key.1, key.2, route.0, &route.1);
            }
        }
        self.laid = wanted;
    }

    /// Waits between two events.
    pub(crate) fn pause(&mut self) {
        let pause = Duration::from_millis(200 + self.random.range(0..1500));
        self.sim.run_for(pause);
    }
}
