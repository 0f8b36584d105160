//! Policies, topologies and requests at random: hosts ask a firewall or a NAT by the real engines, its kernel gets the octets
//! of the real code, and whatever passes has to be allowed. The judge knows docs/natfw.md, the rules and who asked for what; it
//! looks at one packet at a time, not at what a request covers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::{Pinhole, PinholeId};
use signalbox_linux::pinhole::Pinholes;
use signalbox_node::natfw::{self, ExposeRequest, Middlebox, OpenRequest, Options};
use signalbox_node::resources::config::{Action, Opening, RuleConfig};
use signalbox_node::{Command, Config, Node};
use signalbox_sim::{Boot, Family, LinkConfig, NodeId, Sim};

use crate::draw::{Draw, draws, processors};
use crate::kernel::{Fate, Kernel, Packet, TCP, Tuple, UDP};
use crate::octets::open;

const DRAWS: u64 = 1_000;
const LONG: Duration = Duration::from_secs(600);
/// Time in which a request is answered or ends.
const TRANSIT: Duration = Duration::from_secs(2);
/// The hosts: two inside, at different interfaces of the firewall, and one outside between them.
const INSIDE: [usize; 2] = [0, 2];
const HOSTS: usize = 3;

/// What a host asked for and still wants.
#[derive(Debug, Clone)]
struct Asked {
    by: usize,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Open {
        dst: IpAddr,
        protocol: u8,
        ports: [u16; 2],
        second: bool,
    },
    /// To be reached at a port, by one sender if the edge opens for it.
    Expose {
        protocol: u8,
        port: u16,
        second: bool,
        sender: Option<IpAddr>,
    },
}

/// A rule as an operator writes it.
#[derive(Debug, Clone)]
struct Rule {
    allows: bool,
    opens: Vec<Opening>,
    from: Option<IpAddr>,
    /// A protocol, and the ports of it.
    service: Option<(u8, [u16; 2])>,
    destination: Option<IpAddr>,
}

impl Rule {
    fn draw(draw: &mut Draw, hosts: &[IpAddr]) -> Self {
        let all = [Opening::Outward, Opening::Inward, Opening::Inward, Opening::Between, Opening::Reserve];
        let first = port(draw);
        Self {
            allows: draw.percent(55),
            opens: (0..=draw.below(2)).map(|_| draw.one(&all)).collect(),
            from: draw.percent(40).then(|| draw.one(hosts)),
            service: draw.percent(80).then(|| {
                let last = first + u16::try_from(draw.below(3)).unwrap();
                (draw.one(&[UDP, UDP, TCP]), [first, last])
            }),
            destination: draw.percent(25).then(|| draw.one(hosts)),
        }
    }

    fn config(&self) -> RuleConfig {
        let net = |address: &IpAddr| format!("{address}/32").parse().unwrap();
        let ports = |[first, last]: [u16; 2]| format!("{first}-{last}").parse().unwrap();
        RuleConfig {
            opens: self.opens.clone(),
            from: self.from.iter().map(net).collect(),
            protocol: self.service.iter().map(|(protocol, _)| *protocol).collect(),
            ports: self.service.iter().map(|(_, range)| ports(*range)).collect(),
            destination: self.destination.iter().map(net).collect(),
            ..RuleConfig::new("", if self.allows { Action::Allow } else { Action::Deny })
        }
    }

    /// Whether the rule is about a packet of this direction, of which one asked.
    fn is_about(&self, opening: Opening, from: IpAddr, packet: &Tuple) -> bool {
        self.opens.contains(&opening)
            && self.from.is_none_or(|address| address == from)
            && self.service.is_none_or(|(protocol, [first, last])| {
                protocol == packet.protocol && (first..=last).contains(&packet.dst_port)
            })
            && self.destination.is_none_or(|address| address == packet.dst)
    }
}

fn port(draw: &mut Draw) -> u16 {
    5000 + u16::try_from(draw.below(4)).unwrap()
}

/// The octets and packets of one firewall after the other.
struct Enforcer {
    kernel: Arc<Mutex<Kernel>>,
    pinholes: Pinholes,
    held: BTreeMap<PinholeId, Pinhole>,
}

impl Enforcer {
    fn new() -> Self {
        let local = (0..HOSTS).map(|at| [10, 0, 0, u8::try_from(4 * at + 1).unwrap()].into()).collect();
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

struct World {
    sim: Sim<Node>,
    firewall: NodeId,
    hosts: Vec<NodeId>,
    addresses: Vec<IpAddr>,
    edge: bool,
    rules: Vec<Rule>,
    asked: BTreeMap<u64, Asked>,
    /// The reservations of receivers so far. What a sender opened while one stood outlives it.
    reserved: Vec<Asked>,
    /// Flows that began, as they arrived and as they left.
    flows: Vec<(Tuple, Tuple)>,
}

fn host() -> natfw::Config {
    natfw::Config { reliable: false, min_lifetime: Duration::from_secs(1), ..natfw::Config::default() }
}

impl World {
    fn new(seed: u64, draw: &mut Draw) -> Self {
        let mut sim = Sim::with_seed(seed);
        let edge = draw.percent(50);
        let middlebox = if draw.percent(60) { Middlebox::Firewall } else { Middlebox::Nat };
        // Each link has its own net, and the firewall the first address of it.
        let addresses: Vec<IpAddr> =
            (0..HOSTS).map(|at| [10, 0, 0, u8::try_from(4 * at + 2).unwrap()].into()).collect();
        let rules: Vec<_> = (0..draw.below(5)).map(|_| Rule::draw(draw, &addresses)).collect();
        let mut config = config(natfw::Config {
            middlebox,
            edge,
            inside: INSIDE.map(|at| format!("eth{at}")).to_vec(),
            outside: vec!["eth1".to_owned()],
            // A NAT shuffles its ports when it starts; these are few, so that a draw does not consist of that.
            first_port: 40000,
            last_port: 40255,
            ..host()
        });
        config.resources.rules = rules.iter().map(Rule::config).collect();
        let made = move |boot: Boot| Node::new(config.clone(), boot.seed).unwrap();
        let firewall = sim.add_engine("firewall", made);
        let hosts: Vec<_> = (0..HOSTS)
            .map(|at| {
                let made = |boot: Boot| Node::new(config_of_host(), boot.seed).unwrap();
                let host = sim.add_engine(format!("h{at}"), made);
                sim.link(firewall, host, &LinkConfig::default());
                host
            })
            .collect();
        let seen: Vec<_> = hosts.iter().map(|host| sim.address(*host, Family::V4)).collect();
        assert_eq!(seen, addresses);
        let (asked, reserved, flows) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { sim, firewall, hosts, addresses, edge, rules, asked, reserved, flows }
    }

    /// A host asks for something, or ends what it asked for.
    fn ask(&mut self, draw: &mut Draw, id: u64) {
        if draw.percent(25)
            && let Some((id, asked)) = self.asked.pop_first()
        {
            self.command(asked.by, id, natfw::Command::Close);
            return;
        }
        let protocol = draw.one(&[UDP, UDP, TCP]);
        let options =
            Options { second_port: draw.percent(40), proxy: draw.percent(30), ..Options::default() };
        let second = options.second_port;
        if draw.percent(25) {
            let by = draw.one(&INSIDE);
            let (port, outside) = (port(draw), self.addresses[1]);
            let sender = options.proxy.then(|| self.addresses[if draw.percent(70) { 1 } else { 2 - by }]);
            let asked = Asked { by, what: What::Expose { protocol, port, second, sender } };
            self.reserved.push(asked.clone());
            self.asked.insert(id, asked);
            let request = ExposeRequest {
                address: None,
                protocol,
                port,
                from: sender.map(Prefix::host),
                from_port: None,
                towards: outside,
                path_coupled: false,
                block: false,
                bindings: false,
                options,
            };
            return self.command(by, id, natfw::Command::Expose(request));
        }
        let by = usize::try_from(draw.below(HOSTS as u64)).unwrap();
        let mut to = usize::try_from(draw.below(HOSTS as u64)).unwrap();
        if to == by {
            to = if by == 1 { draw.one(&INSIDE) } else { 1 };
        }
        let (dst, ports) = (self.addresses[to], [port(draw), port(draw)]);
        self.asked.insert(id, Asked { by, what: What::Open { dst, protocol, ports, second } });
        let [src_port, dst_port] = ports.map(Some);
        let request = OpenRequest { src: None, dst, protocol: Some(protocol), src_port, dst_port, options };
        self.command(by, id, natfw::Command::Open(request));
    }

    fn command(&mut self, by: usize, id: u64, command: natfw::Command) {
        self.sim.command(self.hosts[by], Command::Natfw { id, command });
    }

    fn holes(&self) -> BTreeMap<PinholeId, Pinhole> {
        let holes = self.sim.pinholes(self.firewall);
        holes.filter_map(|(id, pinhole)| Some((id?, pinhole.clone()))).collect()
    }

    /// A packet near what a host asked for, or the answer to one that passed.
    fn packet(&self, draw: &mut Draw) -> Packet {
        if !self.flows.is_empty() && draw.percent(15) {
            return Packet::new(draw.one(&self.flows).1.answer(), [0; 8]);
        }
        let mut tuple = Tuple {
            src: draw.one(&self.addresses),
            dst: draw.one(&self.addresses),
            protocol: draw.one(&[UDP, TCP]),
            src_port: port(draw),
            dst_port: port(draw),
        };
        let holes: Vec<_> = self.holes().into_values().collect();
        if !holes.is_empty() && draw.percent(85) {
            let filter = draw.one(&holes).packets;
            let up = u16::from(draw.percent(50));
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

    /// The direction of a flow; `None`: no rule opens such a flow.
    fn opening(&self, src: IpAddr, dst: IpAddr) -> Option<Opening> {
        let inside = |address| INSIDE.iter().any(|at| self.addresses[*at] == address);
        match (inside(src), inside(dst)) {
            (true, false) => Some(Opening::Outward),
            (false, true) => Some(Opening::Inward),
            (true, true) => Some(Opening::Between),
            (false, false) => None,
        }
    }

    /// What the first rule about a packet says, in one of its forms; `None`: there is no such rule.
    fn ruled(&self, opening: Opening, from: IpAddr, arrived: &Tuple, left: &Tuple) -> Option<bool> {
        let forms = [arrived, left];
        let about = |rule: &&Rule| forms.iter().any(|form| rule.is_about(opening, from, form));
        self.rules.iter().find(about).map(|rule| rule.allows)
    }

    /// Whether a host inside asked for packets like this one, and is allowed to.
    fn invites(&self, opening: Opening, arrived: &Tuple, left: &Tuple, opened: bool) -> bool {
        let mut all = self.reserved.iter().filter(|_| opened).chain(self.asked.values());
        all.any(|Asked { by, what }| {
            let What::Expose { protocol, port, second, sender } = what else { return false };
            let own = self.addresses[*by];
            // A sender that asks is invited by any reservation; the edge opens for the one that the receiver names.
            (opened || self.edge && *sender == Some(arrived.src))
                && (own, *protocol) == (left.dst, left.protocol)
                && (*port..=*port + u16::from(*second)).contains(&left.dst_port)
                && self.ruled(Opening::Reserve, own, arrived, left) != Some(false)
                && (opened || self.ruled(opening, own, arrived, left).unwrap_or(opening == Opening::Inward))
        })
    }

    /// Whether the first packet of a flow may pass.
    fn allows(&self, arrived: &Tuple, left: &Tuple) -> bool {
        let Some(opening) = self.opening(arrived.src, left.dst) else { return false };
        let asked = self.asked.values().any(|Asked { by, what }| match what {
            What::Open { dst, protocol, ports, second } => {
                let up = [false, *second].map(u16::from);
                (self.addresses[*by], *dst, *protocol) == (arrived.src, arrived.dst, arrived.protocol)
                    && up.iter().any(|up| ports.map(|port| port + up) == [arrived.src_port, arrived.dst_port])
            }
            What::Expose { .. } => false,
        });
        let opened = asked
            && self.ruled(opening, arrived.src, arrived, left).unwrap_or_else(|| match opening {
                Opening::Outward => true, // its own address
                Opening::Inward => self.invites(opening, arrived, left, true),
                _ => false,
            });
        opened || opening != Opening::Outward && self.invites(opening, arrived, left, false)
    }

    /// Compares what became of a packet with the policy.
    fn judge(&mut self, packet: &Packet, fate: &Fate) -> Result<(), String> {
        let Fate::Passed(left) = fate else { return Ok(()) };
        let (arrived, left) = (packet.tuple(), left.tuple());
        let answers = self.flows.iter().find(|(_, other)| other.answer() == arrived);
        let answers = answers.filter(|(first, _)| first.answer() == left);
        if answers.is_some_and(|(first, left)| self.allows(first, left)) {
            return Ok(());
        }
        if self.allows(&arrived, &left) {
            self.flows.push((arrived, left));
            return Ok(());
        }
        let (asked, rules, holes) = (&self.asked, &self.rules, self.holes());
        Err(format!("{arrived:?} leaves as {left:?}\nasked: {asked:#?}\nrules: {rules:#?}\nopen: {holes:#?}"))
    }
}

fn config(natfw: natfw::Config) -> Config {
    Config { ping: None, natfw: Some(natfw), ..Config::default() }
}

fn config_of_host() -> Config {
    let mut config = config(host());
    config.resources.trusted = vec!["0.0.0.0/0".parse().unwrap()];
    config
}

#[test]
fn what_passes_was_allowed() {
    draws(DRAWS, processors(), Enforcer::new, |enforcer, seed, counts| {
        let draw = &mut Draw::new(seed, 3);
        let mut world = World::new(seed, draw);
        for id in 0..2 + draw.below(3) {
            world.ask(draw, id);
            world.sim.run_for(TRANSIT);
            enforcer.follow(world.holes());
            for _ in 0..8 {
                let packet = world.packet(draw);
                let fate = enforcer.kernel.lock().unwrap().forward(&packet);
                world.judge(&packet, &fate)?;
                let passed = matches!(fate, Fate::Passed(_));
                *if passed { &mut counts.passed } else { &mut counts.dropped } += 1;
            }
        }
        enforcer.follow(BTreeMap::new());
        enforcer.kernel.lock().unwrap().forget();
        Ok(())
    });
}
