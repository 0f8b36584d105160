//! Policies, zones, topologies, requests, tokens and reloads at random: hosts ask a firewall or a NAT by the real engines of NATFW or of
//! CASP, its kernel gets the octets of the real code, and whatever passes has to be allowed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::{Pinhole, PinholeId};
use signalbox_linux::pinhole::Pinholes;
use signalbox_node::casp::{self, NatfwConfig, NatfwRole};
use signalbox_node::natfw::{self, Middlebox};
use signalbox_node::{Command, Config, Node};
use signalbox_sim::{Boot, Family, LinkConfig, NodeId, Sim};

use crate::draw::{Draw, draws, processors};
use crate::judge::Judge;
use crate::kernel::{Fate, Kernel, Packet, TCP, Tuple, UDP};
use crate::octets::open;
use crate::rules::{Policy, port};
use crate::written::Writer;

const DRAWS: u64 = 1_000;
const LONG: Duration = Duration::from_secs(600);
/// Half of the time in which a request is answered or ends.
const TRANSIT: Duration = Duration::from_secs(1);
/// The hosts, each at an interface of its own: the second one is outside. Some draws have one host less.
pub(crate) const OUTSIDE: usize = 1;
const HOSTS: usize = 4;
/// Zones that interfaces can get, beside those of their sides.
pub(crate) const ZONES: [&str; 2] = ["a", "b"];

/// How hosts ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Natfw,
    Casp,
}

/// The octets and packets of one firewall after the other.
struct Enforcer {
    kernel: Arc<Mutex<Kernel>>,
    pinholes: Pinholes,
    held: BTreeMap<PinholeId, Pinhole>,
}

impl Enforcer {
    fn new() -> Self {
        let local = [false, true].into_iter().flat_map(|ipv6| addresses(ipv6, HOSTS, 1)).collect();
        let (kernel, pinholes) = open(Kernel::new(local));
        Self { kernel, pinholes, held: BTreeMap::new() }
    }

    /// Brings the kernel to what the engine asked for.
    fn follow(&mut self, wanted: BTreeMap<PinholeId, Pinhole>) {
        for id in self.held.keys().filter(|id| !wanted.contains_key(id)) {
            self.pinholes.release(*id);
        }
        for (id, pinhole) in &wanted {
            if self.held.get(id) != Some(pinhole) {
                self.pinholes.request(*id, pinhole.clone(), LONG);
            }
        }
        self.held = wanted;
        for (id, result) in self.pinholes.flush() {
            if result.is_err() {
                self.held.remove(&id);
            }
        }
    }
}

/// The addresses of one end of each link, numbered as in the simulator.
fn addresses(ipv6: bool, links: usize, end: u8) -> Vec<IpAddr> {
    let numbers = 0..u8::try_from(links).unwrap();
    let address = |number: u8| match ipv6 {
        true => [0xfd00, 0, 0, number.into(), 0, 0, 0, end.into()].into(),
        false => [10, 0, 0, 4 * number + end].into(),
    };
    numbers.map(address).collect()
}

pub(crate) struct World {
    pub(crate) sim: Sim<Node>,
    firewall: NodeId,
    /// The configuration of the firewall.
    config: Config,
    pub(crate) hosts: Vec<NodeId>,
    /// The host whose messages the test writes, if there is one.
    pub(crate) writer: Option<Writer>,
    pub(crate) judge: Judge,
    /// Packets of requests that ended or changed.
    pub(crate) past: Vec<Tuple>,
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

/// The configuration of a firewall, or of a NAT for IPv4, between this number of hosts.
fn firewall(draw: &mut Draw, protocol: Protocol, edge: bool, ipv6: bool, hosts: usize) -> Config {
    let is_nat = draw.percent(40) && !ipv6;
    let inside = (0..hosts).filter(|at| *at != OUTSIDE).map(|at| format!("eth{at}")).collect();
    let outside = vec![format!("eth{OUTSIDE}")];
    // A NAT shuffles its ports when it starts; these are few, so that a draw does not consist of that.
    let (first_port, last_port) = (40000, 40255);
    match protocol {
        Protocol::Natfw => {
            let middlebox = if is_nat { Middlebox::Nat } else { Middlebox::Firewall };
            let natfw = natfw::Config { middlebox, edge, inside, outside, first_port, last_port, ..natfw() };
            Config { ping: None, natfw: Some(natfw), ..Config::default() }
        }
        Protocol::Casp => {
            let role = if is_nat { NatfwRole::Nat } else { NatfwRole::Firewall };
            let default = NatfwConfig::default();
            let natfw = NatfwConfig { role, border: edge, inside, outside, first_port, last_port, ..default };
            with_casp(None, Some(natfw))
        }
    }
}

impl World {
    fn new(seed: u64, draw: &mut Draw) -> Self {
        let mut sim = Sim::with_seed(seed);
        let protocol = if draw.percent(60) { Protocol::Natfw } else { Protocol::Casp };
        let (edge, ipv6) = (draw.percent(50), draw.percent(30));
        // Each link has its own net, and the firewall the first address of it.
        let number = HOSTS - usize::from(draw.percent(60));
        let addresses = addresses(ipv6, number, 2);
        let policy = Policy::draw(draw, &addresses);
        let mut config = firewall(draw, protocol, edge, ipv6, number);
        config.resources = policy.config();
        let of_firewall = config.clone();
        let made = move |boot: Boot| Node::new(of_firewall.clone(), boot.seed).unwrap();
        let firewall = sim.add_engine("firewall", made);
        // Some hosts refresh in each step.
        let refresh = draw.percent(20).then_some(Duration::from_secs(1));
        // It writes messages for IPv4.
        let writer = (!ipv6 && draw.percent(40))
            .then(|| Writer::new(usize::try_from(draw.below(number as u64)).unwrap()));
        let written = writer.as_ref().map(|writer| writer.at);
        let hosts: Vec<_> = (0..number)
            .map(|at| {
                let config = host(protocol, refresh, written == Some(at));
                let made = move |boot: Boot| Node::new(config.clone(), boot.seed).unwrap();
                let host = sim.add_engine(format!("h{at}"), made);
                sim.link(firewall, host, &LinkConfig::default());
                host
            })
            .collect();
        let family = if ipv6 { Family::V6 } else { Family::V4 };
        let seen: Vec<_> = hosts.iter().map(|host| sim.address(*host, family)).collect();
        assert_eq!(seen, addresses);
        let judge = Judge {
            protocol,
            addresses,
            edge,
            policies: vec![policy],
            asked: BTreeMap::new(),
            reserved: Vec::new(),
            flows: Vec::new(),
        };
        let mut world = Self { sim, firewall, config, hosts, writer, judge, past: Vec::new() };
        world.register();
        if protocol == Protocol::Casp {
            world.accept(draw);
        }
        world
    }

    /// Another policy is in force from now on.
    pub(crate) fn reload(&mut self, draw: &mut Draw) {
        let policy = Policy::draw(draw, &self.judge.addresses);
        self.config.resources = policy.config();
        self.sim.command(self.firewall, Command::Reload(Box::new(self.config.clone())));
        self.judge.policies.push(policy);
    }

    /// Lets requests be answered or end.
    fn settle(&mut self) {
        for _ in 0..2 {
            self.sim.run_for(TRANSIT);
            self.receive();
        }
        self.judge.expire(self.sim.now());
    }

    fn holes(&self) -> BTreeMap<PinholeId, Pinhole> {
        let holes = self.sim.pinholes(self.firewall);
        holes.filter_map(|(id, pinhole)| Some((id?, pinhole.clone()))).collect()
    }

    /// A packet near what a host asks or asked for, or the answer to one that passed.
    fn packet(&self, draw: &mut Draw) -> Packet {
        let flows = &self.judge.flows;
        if !flows.is_empty() && draw.percent(15) {
            return Packet::new(draw.one(flows).1.answer(), [0; 8]);
        }
        let up = u16::from(draw.percent(50));
        if !self.past.is_empty() && draw.percent(20) {
            let past = draw.one(&self.past);
            let (src_port, dst_port) = (past.src_port + up, past.dst_port + up);
            return Packet::new(Tuple { src_port, dst_port, ..past }, [0; 8]);
        }
        let mut tuple = Tuple {
            src: draw.one(&self.judge.addresses),
            dst: draw.one(&self.judge.addresses),
            protocol: draw.one(&[UDP, TCP]),
            src_port: port(draw),
            dst_port: port(draw),
        };
        let holes: Vec<_> = self.holes().into_values().collect();
        if !holes.is_empty() && draw.percent(85) {
            let filter = draw.one(&holes).packets;
            let near = |port: Option<u16>, other: u16| port.map_or(other, |port| port + up);
            if filter.src != Prefix::all_like(filter.src.addr) {
                tuple.src = filter.src.addr;
            }
            tuple.dst = filter.dst.addr;
            tuple.protocol = filter.protocol.unwrap_or(tuple.protocol);
            tuple.src_port = near(filter.src_port, tuple.src_port);
            tuple.dst_port = near(filter.dst_port, tuple.dst_port);
        }
        Packet::new(tuple, [0; 8])
    }
}

/// SEC-T25-01, SEC-T25-02, SEC-T29-01, SEC-T29-03: the draws find each of these rules where it is broken.
#[test]
fn what_passes_was_allowed() {
    draws(DRAWS, processors(), Enforcer::new, |enforcer, seed, counts| {
        let draw = &mut Draw::new(seed, 3);
        let mut world = World::new(seed, draw);
        // Who changes requests asks more often.
        let more = u64::from(world.writer.is_some());
        for id in 0..2 + more + draw.below(3) {
            world.ask(draw, id);
            world.settle();
            enforcer.follow(world.holes());
            for _ in 0..8 {
                let packet = world.packet(draw);
                let fate = enforcer.kernel.lock().unwrap().forward(&packet);
                let judged = world.judge.judge(&packet, &fate);
                judged.map_err(|fault| format!("{fault}\nopen: {:#?}", world.holes()))?;
                let passed = matches!(fate, Fate::Passed(_));
                *if passed { &mut counts.passed } else { &mut counts.dropped } += 1;
            }
        }
        enforcer.follow(BTreeMap::new());
        enforcer.kernel.lock().unwrap().forget();
        Ok(())
    });
}
