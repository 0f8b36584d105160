//! Policies, zones, topologies, requests, tokens and reloads at random: hosts ask a firewall or a NAT by the real engines, its
//! kernel gets the octets of the real code, and whatever passes has to be allowed. The judge knows docs/natfw.md, the rules and who
//! asked for what; it looks at one packet at a time, not at what a request covers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::{Pinhole, PinholeId};
use signalbox_linux::pinhole::Pinholes;
use signalbox_node::natfw::{self, ExposeRequest, Middlebox, OpenRequest, Options};
use signalbox_node::resources::config::Opening;
use signalbox_node::{Command, Config, Node};
use signalbox_sim::{Boot, Family, LinkConfig, NodeId, Sim};

use crate::draw::{Draw, draws, processors};
use crate::kernel::{Fate, Kernel, Packet, TCP, Tuple, UDP};
use crate::octets::open;
use crate::rules::{Policy, Rule, Token, covers, port, valid};

const DRAWS: u64 = 1_000;
const LONG: Duration = Duration::from_secs(600);
/// Time in which a request is answered or ends.
const TRANSIT: Duration = Duration::from_secs(2);
/// The hosts, each at an interface of its own: the second one is outside. Some draws have one host less.
pub(crate) const OUTSIDE: usize = 1;
const HOSTS: usize = 4;
/// Zones that interfaces can get, beside those of their sides.
pub(crate) const ZONES: [&str; 2] = ["a", "b"];

/// What a host asked for and still wants.
#[derive(Debug, Clone)]
struct Asked {
    by: usize,
    what: What,
    token: Option<Token>,
    /// The number of the policy at that time.
    at: usize,
}

#[derive(Debug, Clone)]
enum What {
    Open {
        /// Sometimes that of another host.
        src: IpAddr,
        dst: IpAddr,
        protocol: u8,
        ports: [u16; 2],
        second: bool,
    },
    /// To be reached at a port, by one sender if the edge opens for it.
    Expose { protocol: u8, port: u16, second: bool, sender: Option<IpAddr> },
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
    /// The configuration of the firewall.
    config: Config,
    hosts: Vec<NodeId>,
    addresses: Vec<IpAddr>,
    edge: bool,
    /// The policies so far; the last one is in force.
    policies: Vec<Policy>,
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
        let number = HOSTS - usize::from(draw.percent(60));
        let addresses: Vec<IpAddr> =
            (0..number).map(|at| [10, 0, 0, u8::try_from(4 * at + 2).unwrap()].into()).collect();
        let policy = Policy::draw(draw, &addresses);
        let mut config = config(natfw::Config {
            middlebox,
            edge,
            inside: (0..number).filter(|at| *at != OUTSIDE).map(|at| format!("eth{at}")).collect(),
            outside: vec![format!("eth{OUTSIDE}")],
            // A NAT shuffles its ports when it starts; these are few, so that a draw does not consist of that.
            first_port: 40000,
            last_port: 40255,
            ..host()
        });
        config.resources = policy.config();
        let of_firewall = config.clone();
        let made = move |boot: Boot| Node::new(of_firewall.clone(), boot.seed).unwrap();
        let firewall = sim.add_engine("firewall", made);
        // Some hosts refresh in each step.
        let refresh = if draw.percent(20) { Duration::from_secs(1) } else { host().refresh };
        let hosts: Vec<_> = (0..number)
            .map(|at| {
                let made = move |boot: Boot| Node::new(config_of_host(refresh), boot.seed).unwrap();
                let host = sim.add_engine(format!("h{at}"), made);
                sim.link(firewall, host, &LinkConfig::default());
                host
            })
            .collect();
        let seen: Vec<_> = hosts.iter().map(|host| sim.address(*host, Family::V4)).collect();
        assert_eq!(seen, addresses);
        let (asked, reserved, flows) = (BTreeMap::new(), Vec::new(), Vec::new());
        let policies = vec![policy];
        Self { sim, firewall, config, hosts, addresses, edge, policies, asked, reserved, flows }
    }

    /// Another policy is in force from now on.
    fn reload(&mut self, draw: &mut Draw) {
        let policy = Policy::draw(draw, &self.addresses);
        self.config.resources = policy.config();
        self.sim.command(self.firewall, Command::Reload(Box::new(self.config.clone())));
        self.policies.push(policy);
    }

    /// One of the hosts inside.
    fn inner(&self, draw: &mut Draw) -> usize {
        let all: Vec<_> = (0..self.hosts.len()).filter(|at| *at != OUTSIDE).collect();
        draw.one(&all)
    }

    /// A host asks for something, or ends what it asked for, or an operator changes the policy.
    fn ask(&mut self, draw: &mut Draw, id: u64) {
        if draw.percent(15) {
            return self.reload(draw);
        }
        if draw.percent(25)
            && let Some((id, asked)) = self.asked.pop_first()
        {
            self.command(asked.by, id, natfw::Command::Close);
            return;
        }
        let protocol = draw.one(&[UDP, UDP, TCP]);
        let (token, at) = (Token::draw(draw, &self.addresses), self.policies.len() - 1);
        let options = Options {
            second_port: draw.percent(40),
            proxy: draw.percent(30),
            token: token.as_ref().map(Token::attributes),
            ..Options::default()
        };
        let second = options.second_port;
        if draw.percent(25) {
            let by = self.inner(draw);
            let (port, outside) = (port(draw), self.addresses[OUTSIDE]);
            let from = if draw.percent(70) { OUTSIDE } else { self.inner(draw) };
            let sender = (options.proxy && from != by).then(|| self.addresses[from]);
            let asked = Asked { by, what: What::Expose { protocol, port, second, sender }, token, at };
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
        let number = self.hosts.len() as u64;
        let [by, mut to] = [(); 2].map(|()| usize::try_from(draw.below(number)).unwrap());
        if to == by {
            to = if by == OUTSIDE { self.inner(draw) } else { OUTSIDE };
        }
        let (dst, ports) = (self.addresses[to], [port(draw), port(draw)]);
        let other = draw.percent(15).then(|| draw.one(&self.addresses)).filter(|other| *other != dst);
        let src = other.unwrap_or(self.addresses[by]);
        self.asked
            .insert(id, Asked { by, what: What::Open { src, dst, protocol, ports, second }, token, at });
        let [src_port, dst_port] = ports.map(Some);
        let request = OpenRequest { src: other, dst, protocol: Some(protocol), src_port, dst_port, options };
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

    /// The host with an address.
    fn host_at(&self, address: IpAddr) -> Option<usize> {
        self.addresses.iter().position(|one| *one == address)
    }

    /// The direction of a flow; `None`: no rule opens such a flow.
    fn opening(&self, src: IpAddr, dst: IpAddr) -> Option<Opening> {
        let inside = |address| self.host_at(address).is_some_and(|at| at != OUTSIDE);
        match (inside(src), inside(dst)) {
            (true, false) => Some(Opening::Outward),
            (false, true) => Some(Opening::Inward),
            (true, true) => Some(Opening::Between),
            (false, false) => None,
        }
    }

    /// What the first rule of a policy about a packet says, in one of its forms; `None`: there is no such rule. A sender asks for its
    /// packets, or the one that `receives` them.
    fn ruled(
        &self,
        policy: &Policy,
        opening: Opening,
        (from, receives, token): (IpAddr, bool, &Option<Token>),
        [arrived, left]: [&Tuple; 2],
    ) -> Option<bool> {
        let [of_asker, src, dst] =
            [from, arrived.src, left.dst].map(|address| policy.zone(self.host_at(address)));
        // The zone of another host is not that of the one that asks for it.
        let known = opening == Opening::Reserve || receives || src == of_asker;
        let zones = [Some(src).filter(|_| known), Some(dst)];
        let about = |rule: &&Rule| {
            let mut forms = [arrived, left].into_iter();
            rule.is_between(zones)
                && (!rule.token || token.is_some())
                && forms.any(|form| rule.is_about(opening, from, form))
        };
        policy.rules.iter().find(about).map(|rule| rule.allows)
    }

    /// Whether a host inside asked for packets like this one, and is allowed to by a policy: that of now or, for a sender that asks,
    /// that of the time of the host's request.
    fn invites(&self, policy: &Policy, opening: Opening, forms: [&Tuple; 2], opened: bool) -> bool {
        let [arrived, left] = forms;
        let mut all = self.reserved.iter().filter(|_| opened).chain(self.asked.values());
        all.any(|Asked { by, what, token, at }| {
            let What::Expose { protocol, port, second, sender } = what else { return false };
            let own = self.addresses[*by];
            let asker = (own, true, token);
            let allowed =
                |policy| self.ruled(policy, Opening::Reserve, asker, forms) != Some(false) && valid(token);
            // A sender that asks is invited by any reservation; the edge opens for the one that the receiver names.
            (opened || self.edge && *sender == Some(arrived.src))
                && (own, *protocol) == (left.dst, left.protocol)
                && (*port..=*port + u16::from(*second)).contains(&left.dst_port)
                && allowed(&self.policies[*at])
                && (opened
                    || allowed(policy)
                        && covers(token, forms)
                        && self.ruled(policy, opening, asker, forms).unwrap_or(opening == Opening::Inward))
        })
    }

    /// Whether the first packet of a flow may pass: all policies since the request allow it.
    fn allows(&self, arrived: &Tuple, left: &Tuple) -> bool {
        let Some(opening) = self.opening(arrived.src, left.dst) else { return false };
        let forms = [arrived, left];
        let opened = self.asked.values().any(|Asked { by, what, token, at }| {
            let What::Open { src, dst, protocol, ports, second } = what else { return false };
            let (up, own) = ([false, *second].map(u16::from), self.addresses[*by]);
            let asked = (*src, *dst, *protocol) == (arrived.src, arrived.dst, arrived.protocol)
                && up.iter().any(|up| ports.map(|port| port + up) == [arrived.src_port, arrived.dst_port]);
            let by_policy = |policy| {
                self.ruled(policy, opening, (own, false, token), forms).unwrap_or_else(|| match opening {
                    Opening::Outward => own == *src,
                    Opening::Inward => self.invites(policy, opening, forms, true),
                    _ => false,
                })
            };
            // Nobody asks for a host of the other side.
            let same_side = (self.host_at(*src) == Some(OUTSIDE)) == (*by == OUTSIDE);
            asked
                && same_side
                && valid(token)
                && covers(token, forms)
                && self.policies[*at..].iter().all(by_policy)
        });
        let now = self.policies.last().unwrap();
        opened || opening != Opening::Outward && self.invites(now, opening, forms, false)
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
        let (asked, rules, holes) = (&self.asked, &self.policies, self.holes());
        Err(format!("{arrived:?} leaves as {left:?}\nasked: {asked:#?}\nrules: {rules:#?}\nopen: {holes:#?}"))
    }
}

fn config(natfw: natfw::Config) -> Config {
    Config { ping: None, natfw: Some(natfw), ..Config::default() }
}

fn config_of_host(refresh: Duration) -> Config {
    let mut config = config(natfw::Config { refresh, ..host() });
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
