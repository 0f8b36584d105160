//! Policies, zones, topologies, requests, tokens, reloads and restarts at random: hosts ask firewalls and NATs by the real engines of
//! NATFW or of CASP, their kernels get the octets of the real code, and whatever passes has to be allowed.
//!
//! `signalbox reserve --pinhole` has no draws of its own: the command asks NATFW to open the path as `signalbox pinhole open` does, and a
//! reservation of bandwidth opens nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::{Pinhole, PinholeId};
use signalbox_node::casp::{self, NatfwConfig, NatfwRole};
use signalbox_node::natfw::{self, Middlebox};
use signalbox_node::{Command, Config, Node};
use signalbox_sim::{Boot, Family, LinkConfig, NodeId, Sim};

use crate::draw::{Counts, Draw, draws, processors};
use crate::enforcer::Enforcer;
use crate::judge::{By, Crossing, Judge};
use crate::kernel::{Fate, Packet, TCP, Tuple, UDP};
use crate::network::{Network, Role};
use crate::rules::{Policy, port};
use crate::written::Writer;

const DRAWS: u64 = 1_000;
/// Half of the time in which a request is answered or ends.
const TRANSIT: Duration = Duration::from_secs(1);
/// Zones that interfaces can get, beside those of their sides.
pub(crate) const ZONES: [&str; 2] = ["a", "b"];
/// Most firewalls that a packet comes to.
const MOST_CROSSED: usize = 4;

/// How hosts ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Natfw,
    Casp,
}

/// A firewall, with its present configuration.
pub(crate) struct Firewall {
    pub(crate) node: NodeId,
    pub(crate) config: Rc<RefCell<Config>>,
}

pub(crate) struct World {
    pub(crate) sim: Sim<Node>,
    pub(crate) firewalls: Vec<Firewall>,
    pub(crate) hosts: Vec<NodeId>,
    /// The host whose messages the test writes, if there is one.
    pub(crate) writer: Option<Writer>,
    pub(crate) judge: Judge,
    /// Packets of requests that ended or changed.
    pub(crate) past: Vec<Tuple>,
    /// Where hosts can be reached that asked for it.
    pub(crate) external: Vec<(IpAddr, u16)>,
}

fn natfw() -> natfw::Config {
    natfw::Config { reliable: false, min_lifetime: Duration::from_secs(1), ..natfw::Config::default() }
}

/// The configuration of a host.
fn host(protocol: Protocol, refresh: Option<Duration>, written: bool) -> Config {
    let mut config = match protocol {
        Protocol::Natfw => {
            let natfw = natfw::Config { refresh: refresh.unwrap_or(natfw().refresh), ..natfw() };
            Config { ping: None, natfw: Some(natfw).filter(|_| !written), ..Config::default() }
        }
        Protocol::Casp => with_casp(refresh, (!written).then(NatfwConfig::default)),
    };
    config.resources.trusted = ["0.0.0.0/0", "::/0"].map(|all| all.parse().unwrap()).to_vec();
    config
}

fn with_casp(refresh: Option<Duration>, natfw: Option<NatfwConfig>) -> Config {
    let mut casp = casp::Config { natfw, ..casp::Config::default() };
    casp.engine.refresh = refresh.unwrap_or(casp.engine.refresh);
    // Without them a flow of IPv6 has no ports.
    casp.engine.private_flows = true;
    Config { casp: Some(casp), ..Config::empty() }
}

/// The name of an interface.
pub(crate) fn interface(number: usize) -> String {
    format!("eth{number}")
}

/// The configuration of a firewall or NAT without its policy.
fn firewall(protocol: Protocol, network: &Network, at: usize) -> Config {
    let place = &network.places[at];
    let (outside, inside): (Vec<_>, Vec<_>) =
        (0..network.interfaces()).partition(|one| place.outside.contains(one));
    let [inside, outside] = [inside, outside].map(|all| all.into_iter().map(interface).collect());
    // A NAT shuffles its ports when it starts; these are few, so that a draw does not consist of that.
    let (edge, first_port, last_port) = (place.edge, 40000, 40255);
    match protocol {
        Protocol::Natfw => {
            let (middlebox, mappings) = match place.role {
                Role::Firewall => (Middlebox::Firewall, Vec::new()),
                Role::Nat => (Middlebox::Nat, Vec::new()),
                Role::TwiceNat => (Middlebox::TwiceNat, network.mappings(at)),
            };
            let natfw = natfw::Config { middlebox, edge, inside, outside, mappings, ..natfw() };
            let natfw = natfw::Config { first_port, last_port, ..natfw };
            Config { ping: None, natfw: Some(natfw), ..Config::default() }
        }
        Protocol::Casp => {
            let role = if place.role == Role::Nat { NatfwRole::Nat } else { NatfwRole::Firewall };
            let default = NatfwConfig::default();
            let natfw = NatfwConfig { role, border: edge, inside, outside, first_port, last_port, ..default };
            with_casp(None, Some(natfw))
        }
    }
}

impl World {
    pub(crate) fn new(seed: u64, draw: &mut Draw) -> Self {
        Self::with(seed, draw, true)
    }

    /// With one firewall.
    #[cfg(feature = "namespace-tests")]
    pub(crate) fn single(seed: u64, draw: &mut Draw) -> Self {
        Self::with(seed, draw, false)
    }

    fn with(seed: u64, draw: &mut Draw, two: bool) -> Self {
        let mut sim = Sim::with_seed(seed);
        let protocol = if draw.percent(60) { Protocol::Natfw } else { Protocol::Casp };
        let ipv6 = draw.percent(30);
        let network = Network::draw(draw, ipv6, two, protocol == Protocol::Natfw);
        let policies: Vec<_> = (0..network.places.len()).map(|at| Policy::draw(draw, &network, at)).collect();
        let firewalls: Vec<_> = policies
            .iter()
            .enumerate()
            .map(|(at, policy)| {
                let mut config = firewall(protocol, &network, at);
                config.resources = policy.config();
                let config = Rc::new(RefCell::new(config));
                let of_firewall = Rc::clone(&config);
                let made = move |boot: Boot| Node::new(of_firewall.borrow().clone(), boot.seed).unwrap();
                Firewall { node: sim.add_engine(format!("firewall{at}"), made), config }
            })
            .collect();
        // Some hosts refresh in each step.
        let refresh = draw.percent(20).then_some(Duration::from_secs(1));
        let number = network.hosts.len();
        let writer =
            draw.percent(40).then(|| Writer::new(usize::try_from(draw.below(number as u64)).unwrap()));
        let written = writer.as_ref().map(|writer| writer.at);
        let hosts: Vec<_> = (0..number)
            .map(|at| {
                let config = host(protocol, refresh, written == Some(at));
                let made = move |boot: Boot| Node::new(config.clone(), boot.seed).unwrap();
                let host = sim.add_engine(format!("h{at}"), made);
                let firewall = firewalls[network.place_of(at)].node;
                let link = sim.link(firewall, host, &LinkConfig::default());
                sim.set_interface_name(firewall, link, interface(at));
                host
            })
            .collect();
        if let [one, other] = &firewalls[..] {
            let link = sim.link(one.node, other.node, &LinkConfig::default());
            [one, other]
                .into_iter()
                .for_each(|end| sim.set_interface_name(end.node, link, interface(number)));
        }
        let family = if ipv6 { Family::V6 } else { Family::V4 };
        let seen: Vec<_> = hosts.iter().map(|host| sim.address(*host, family)).collect();
        assert_eq!(seen, network.hosts);
        let between = firewalls.iter().map(|firewall| firewall.node);
        let named = network.named().into_iter().filter(|_| network.twice().is_some());
        for (node, address) in hosts.iter().copied().chain(between).zip(named) {
            // Packets to an alias take the way of those to the node itself.
            sim.add_address(node, network.alias(address));
        }
        let judge = Judge::new(protocol, network, policies);
        let (past, external) = (Vec::new(), Vec::new());
        let mut world = Self { sim, firewalls, hosts, writer, judge, past, external };
        world.register();
        if protocol == Protocol::Casp {
            world.accept(draw);
        }
        world.sim.run_for(Duration::ZERO);
        world
    }

    /// Another policy is in force at a firewall from now on.
    pub(crate) fn reload(&mut self, at: usize, policy: Policy) {
        let Firewall { node, config } = &self.firewalls[at];
        config.borrow_mut().resources = policy.config();
        self.sim.command(*node, Command::Reload(Box::new(config.borrow().clone())));
        self.judge.changed(at, policy);
    }

    /// Lets requests be answered or end, and brings the kernels to what the engines ask for.
    pub(crate) fn settle(&mut self, enforcers: &mut [Enforcer]) {
        for _ in 0..2 {
            self.sim.run_for(TRANSIT);
            self.receive();
        }
        self.judge.expire(self.sim.now());
        for (at, enforcer) in (0..self.firewalls.len()).zip(enforcers) {
            enforcer.follow(self.sim.now(), self.holes(at));
        }
    }

    pub(crate) fn holes(&self, at: usize) -> BTreeMap<PinholeId, Pinhole> {
        let holes = self.sim.pinholes(self.firewalls[at].node);
        holes.filter_map(|(id, pinhole)| Some((id?, pinhole.clone()))).collect()
    }

    fn all_holes(&self) -> Vec<Pinhole> {
        (0..self.firewalls.len()).flat_map(|at| self.holes(at).into_values()).collect()
    }

    /// A packet near what a host asks or asked for, or the answer to one that passed.
    pub(crate) fn packet(&self, draw: &mut Draw, mark: [u8; 8]) -> Packet {
        let Judge { flows, wanted, network, .. } = &self.judge;
        if !flows.is_empty() && draw.percent(15) {
            return Packet::new(draw.one(flows).1.answer(), mark);
        }
        let up = u16::from(draw.percent(50));
        let mut past: Vec<_> = self.past.iter().copied().filter(|_| draw.percent(50)).collect();
        if network.places.len() > 1 {
            past.extend(wanted.asked.values().flatten().filter_map(|asked| asked.what.packet()));
        }
        let near = if network.places.len() > 1 { 50 } else { 20 };
        if !past.is_empty() && draw.percent(near) {
            let past = draw.one(&past);
            let (src_port, dst_port) = (past.src_port + up, past.dst_port + up);
            return Packet::new(Tuple { src_port, dst_port, ..past }, mark);
        }
        let mut tuple = Tuple {
            src: draw.one(&network.hosts),
            dst: draw.one(&network.hosts),
            protocol: draw.one(&[UDP, TCP]),
            src_port: port(draw),
            dst_port: port(draw),
        };
        let holes = self.all_holes();
        if !holes.is_empty() && draw.percent(85) {
            let filter = draw.one(&holes).packets;
            let near = |port: Option<u16>, other: u16| port.map_or(other, |port| port + up);
            if filter.src == Prefix::host(filter.src.addr) && network.host_at(filter.src.addr).is_some() {
                tuple.src = filter.src.addr;
            }
            tuple.dst = filter.dst.addr;
            tuple.protocol = filter.protocol.unwrap_or(tuple.protocol);
            tuple.src_port = near(filter.src_port, tuple.src_port);
            tuple.dst_port = near(filter.dst_port, tuple.dst_port);
        }
        Packet::new(tuple, mark)
    }

    /// Sends a packet through the kernels, and judges each of them that lets it pass.
    fn cross(&mut self, packet: Packet, enforcers: &[Enforcer], counts: &mut Counts) -> Result<(), String> {
        let network = &self.judge.network;
        let first = packet.tuple();
        let mut at = network.place_of(network.host_at(first.src).unwrap());
        let (mut crossed, mut packet) = (Vec::new(), packet);
        let last = loop {
            let is_twice = network.places[at].role == Role::TwiceNat;
            let fate = if is_twice { network.translate(at, &packet) } else { enforcers[at].forward(&packet) };
            let Fate::Passed(left) = fate else { break None };
            let (arrived, passed) = (packet.tuple(), left.tuple());
            crossed.push((at, arrived, passed));
            match network.next(at, passed.dst) {
                Some(next) if crossed.len() < MOST_CROSSED => (at, packet) = (next, left),
                _ => break network.host_at(passed.dst).map(|_| passed),
            }
        };
        counts.both += u64::from(last.is_some() && crossed.len() > 1);
        *if last.is_some() { &mut counts.passed } else { &mut counts.dropped } += 1;
        for (at, arrived, left) in crossed {
            // A twice-NAT asks no policy.
            if self.judge.network.places[at].role == Role::TwiceNat {
                continue;
            }
            let judged = self.judge.judge(Crossing { at, first, arrived, left, last });
            let by = judged.map_err(|fault| format!("{fault}\nopen: {:#?}", self.all_holes()))?;
            counts.later += u64::from(self.judge.has_ended(at));
            counts.left += u64::from(by == By::Left);
        }
        if let Some(last) = last
            && !self.judge.flows.iter().any(|(_, other)| other.answer() == first)
        {
            self.judge.flows.push((first, last));
        }
        Ok(())
    }

    /// Sends some packets, and judges them.
    fn try_packets(
        &mut self,
        draw: &mut Draw,
        enforcers: &[Enforcer],
        counts: &mut Counts,
    ) -> Result<(), String> {
        for _ in 0..8 {
            let packet = self.packet(draw, [0; 8]);
            self.cross(packet, enforcers, counts)?;
        }
        Ok(())
    }
}

/// SEC-T25-01, SEC-T25-02, SEC-T29-01, SEC-T29-03: the draws find each of these rules where it is broken.
#[test]
fn what_passes_was_allowed() {
    let start = || [Enforcer::new(), Enforcer::new()];
    let counts = draws(DRAWS, processors(), start, |enforcers, seed, counts| {
        let draw = &mut Draw::new(seed, 3);
        let mut world = World::new(seed, draw);
        for (enforcer, place) in enforcers.iter_mut().zip(&world.judge.network.places) {
            enforcer.begin(place.own.clone());
        }
        // Who changes requests asks more often.
        let more = u64::from(world.writer.is_some());
        for id in 0..2 + more + draw.below(3) {
            world.ask(draw, id, enforcers);
            world.settle(enforcers);
            world.try_packets(draw, enforcers, counts)?;
        }
        enforcers.iter_mut().for_each(Enforcer::end);
        Ok(())
    });
    // So would draws in which nothing passes two firewalls, or one after a restart.
    assert!(counts.passed < DRAWS || [counts.both, counts.later].iter().all(|some| *some > 0));
}
