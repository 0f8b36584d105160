//! A network whose hosts are reached by its edge: receivers reserve, senders outside open the way, edges open it for senders
//! without the application, and receivers block senders.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::Verdict;
use signalbox_node::natfw::{self, ExposeRequest, Middlebox, NatfwEvent, OpenRequest, Options, State};
use signalbox_node::resources::config::{Action, Opening, RuleConfig};
use signalbox_node::{Config, Node};
use signalbox_sim::{Family, NodeId, Packet, Sim};

use super::super::net::{Kind, Net, events, expose, open};
use super::{HOLD, LIFETIME, RECOVERY, World, campaign, settings};

/// The edge, from the outside.
const EDGE: usize = 1;
/// The first port of the sender: each request has its own.
const SENDER: u16 = 20_000;
/// The first port of the receiver.
const RECEIVER: u16 = 6000;

/// How a receiver is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It reserves, and the sender opens.
    Opened,
    /// It reserves, and the edge opens in proxy mode.
    Proxy,
    /// As `Opened`, and it blocks the sender as well.
    Blocked,
}

/// A port of the receiver that the sender wants to reach.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    number: u16,
    way: Way,
    /// The address and port that the sender opened the way to.
    to: Option<SocketAddr>,
}

impl Wanted {
    const fn source(&self) -> u16 {
        SENDER + self.number
    }

    fn id(&self, of: u64) -> u64 {
        u64::from(self.number) * 3 + of
    }

    /// Identifier of the reservation, at the receiver.
    fn reservation(&self) -> u64 {
        self.id(0)
    }

    /// Identifier of the block, at the receiver.
    fn block(&self) -> u64 {
        self.id(1)
    }

    /// Identifier of the request of the sender.
    fn sender(&self) -> u64 {
        self.id(2)
    }
}

struct Edge {
    world: World,
    wanted: Vec<Wanted>,
}

/// A host outside opens only what a host inside has reserved.
fn invited(at: usize, config: &mut Config) {
    if at == EDGE {
        config.resources.trusted = Vec::new();
        config.resources.rules = vec![RuleConfig {
            opens: vec![Opening::Reserve, Opening::Block],
            ..RuleConfig::new("hosts inside", Action::Allow)
        }];
    }
    settings(config);
}

impl Edge {
    fn new(seed: u64) -> Self {
        let mut random = Sim::<Node>::new(seed).random(1);
        let mut any = || if random.chance(0.5) { Middlebox::Nat } else { Middlebox::Firewall };
        let edge = any();
        let inner = [Kind::Right(any()), Kind::Right(any())];
        let inner = &inner[..usize::try_from(random.range(0..3)).unwrap()];
        let kinds = [&[Kind::Host, Kind::Edge(edge)], inner, &[Kind::Host]].concat();
        let net = Net::with(seed, &kinds, invited);
        Self { world: World::new(net, &kinds, random, |hole| hole.packets.src_port), wanted: Vec::new() }
    }

    /// Whether senders can be blocked: a NAT lets nothing in by itself, and refuses.
    fn blocks(&self) -> bool {
        let engines = self.world.boxes.iter().filter_map(|node| self.world.net.sim.engine(*node)?.natfw());
        engines.into_iter().all(|natfw| natfw.config().middlebox == Middlebox::Firewall)
    }

    /// The sender, and the receiver's own address.
    fn ends(&self, wanted: &Wanted) -> (SocketAddr, SocketAddr) {
        let (net, last) = (&self.world.net, self.world.net.last());
        let src = SocketAddr::new(net.address(0, Family::V4), wanted.source());
        (src, SocketAddr::new(net.address(last, Family::V4), RECEIVER + wanted.number))
    }

    /// An EXTERNAL of the receiver.
    fn external(&mut self, wanted: &Wanted, id: u64, change: impl FnOnce(&mut ExposeRequest, Prefix)) {
        let (src, _) = self.ends(wanted);
        let mut request = ExposeRequest { port: RECEIVER + wanted.number, ..expose(src.ip()) };
        change(&mut request, Prefix::host(src.ip()));
        self.world.command(self.world.net.last(), id, natfw::Command::Expose(request));
    }

    fn reserve(&mut self, way: Way) -> Wanted {
        let wanted = Wanted { number: u16::try_from(self.wanted.len()).unwrap(), way, to: None };
        self.wanted.push(wanted);
        self.world.asked(wanted.source());
        self.external(&wanted, wanted.reservation(), |request, sender| {
            if way == Way::Proxy {
                request.from = Some(sender);
                request.from_port = Some(wanted.source());
                request.options = Options { proxy: true, ..Options::default() };
            }
        });
        wanted
    }

    /// The external address of a reservation, as it was granted last.
    fn reserved(&self, wanted: &Wanted) -> Option<SocketAddr> {
        let last = self.world.net.nodes[self.world.net.last()];
        let grants = events(&self.world.net.sim, last, wanted.reservation()).into_iter().rev();
        let external = grants.into_iter().find_map(|event| match event {
            NatfwEvent::Granted(granted) => granted.external,
            _ => None,
        })?;
        Some(SocketAddr::new(IpAddr::V4(external.0), external.1?))
    }

    /// The senders open the ways to what was reserved for them, and receivers block them.
    fn follow(&mut self) {
        for at in 0..self.wanted.len() {
            let wanted = self.wanted[at];
            if wanted.way == Way::Proxy || wanted.to.is_some() {
                continue;
            }
            let Some(to) = self.reserved(&wanted) else { continue };
            self.wanted[at].to = Some(to);
            self.world.asked(wanted.source());
            let request = OpenRequest { src_port: Some(wanted.source()), ..open(to, Options::default()) };
            self.world.command(0, wanted.sender(), natfw::Command::Open(request));
            if wanted.way == Way::Blocked && self.blocks() {
                self.external(&wanted, wanted.block(), |request, sender| {
                    request.from = Some(sender);
                    request.from_port = Some(wanted.source());
                    request.block = true;
                });
            }
        }
    }

    fn act(&mut self) {
        let at = self.world.below(self.wanted.len());
        let (wanted, last) = (self.wanted[at], self.world.net.last());
        let (node, id) = match self.world.random.range(0..6) {
            0 => (last, wanted.reservation()),
            1 => (last, wanted.block()),
            2 => (0, wanted.sender()),
            _ => {
                if self.wanted.len() < 8 {
                    let ways = [Way::Opened, Way::Proxy, Way::Blocked];
                    let way = ways[self.world.below(ways.len())];
                    self.reserve(way);
                }
                return;
            }
        };
        self.world.command(node, id, natfw::Command::Close);
    }

    /// The session that has a pinhole for a flow of the sender, and whether it allows it.
    fn sessions(&self, wanted: &Wanted) -> [(usize, u64, Verdict); 2] {
        let last = self.world.net.last();
        let allows = match wanted.way {
            Way::Proxy => (last, wanted.reservation()),
            Way::Opened | Way::Blocked => (0, wanted.sender()),
        };
        [(allows.0, allows.1, Verdict::Allow), (last, wanted.block(), Verdict::Deny)]
    }

    fn pass(&mut self, time: Duration) {
        let sessions: Vec<_> = self
            .wanted
            .iter()
            .flat_map(|wanted| self.sessions(wanted).map(|(node, id, _)| (wanted.source(), node, id)))
            .collect();
        self.world.pass(time, |world| {
            let held = sessions.iter().filter(|(_, node, id)| world.stands(*node, *id).is_some());
            held.map(|(source, ..)| *source).collect()
        });
    }

    /// The ports of the senders whose packets a node allows or denies, each once.
    fn ports(&self, node: NodeId, verdict: Verdict) -> Vec<u16> {
        let holes = self.world.net.sim.pinholes(node).filter(|(_, hole)| hole.verdict == verdict);
        let mut ports: Vec<u16> = holes.filter_map(|(_, hole)| hole.packets.src_port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    fn fault(&mut self) -> Option<String> {
        let (mut allowed, mut denied) = (Vec::new(), Vec::new());
        for wanted in self.wanted.clone() {
            for (node, id, verdict) in self.sessions(&wanted) {
                match self.world.stands(node, id) {
                    None => {}
                    Some(State::Established) if verdict == Verdict::Allow => allowed.push(wanted.source()),
                    Some(State::Established) => denied.push(wanted.source()),
                    Some(other) => return Some(format!("{id} of {wanted:?} is {other:?}")),
                }
            }
            let (src, receiver) = self.ends(&wanted);
            let to = wanted.to.or_else(|| self.reserved(&wanted)).unwrap_or(receiver);
            // A NAT that lost its bindings may have given the external port to another reservation.
            let owners = self.wanted.iter().filter(|one| self.reserved(one) == Some(to));
            let owners: Vec<_> = owners.map(|one| self.ends(one).1).chain([receiver]).collect();
            let net = &mut self.world.net;
            let arrived = net.sends(0, Packet::new(src, to, [])).filter(|(at, ..)| *at == net.last());
            let open = allowed.contains(&wanted.source()) && !denied.contains(&wanted.source());
            if arrived.is_some() != open {
                return Some(format!("packets of {wanted:?} arrive as {arrived:?}"));
            }
            if let Some((_, from, receiver)) = arrived {
                if from != src || !owners.contains(&receiver) {
                    return Some(format!("packets of {wanted:?} arrive from {from} at {receiver}"));
                }
                let back = net.sends(net.last(), Packet::new(receiver, src, []));
                if back != Some((0, to, src)) {
                    return Some(format!("the answer to {wanted:?} arrives as {back:?}"));
                }
            }
        }
        self.world.boxes.iter().find_map(|node| {
            let edge = *node == self.world.net.nodes[EDGE];
            let open = (self.ports(*node, Verdict::Allow), self.ports(*node, Verdict::Deny));
            let right = (allowed.clone(), if edge { denied.clone() } else { Vec::new() });
            (open != right).then(|| format!("{open:?} are open and blocked, and {right:?} stand"))
        })
    }

    /// Ends all that users hold.
    fn close(&mut self) {
        for wanted in self.wanted.clone() {
            let last = self.world.net.last();
            self.world.command(0, wanted.sender(), natfw::Command::Close);
            self.world.command(last, wanted.reservation(), natfw::Command::Close);
            self.world.command(last, wanted.block(), natfw::Command::Close);
        }
    }
}

fn run(seed: u64) {
    let mut edge = Edge::new(seed);
    edge.reserve(Way::Opened);
    edge.reserve(Way::Proxy);
    edge.reserve(Way::Blocked);
    for _ in 0..10 {
        let pause = Duration::from_millis(300 + edge.world.random.range(0..2500));
        edge.pass(pause);
        edge.world.inject_fault();
        edge.follow();
        edge.act();
    }
    edge.pass(Duration::from_secs(1));
    edge.world.end_faults();
    edge.pass(RECOVERY);
    edge.pass(LIFETIME.max(HOLD));
    if let Some(fault) = edge.fault() {
        panic!("{}", edge.world.says(&fault));
    }
    // The network works: what is asked for now is granted, whatever happened before.
    let ways =
        if edge.blocks() { &[Way::Opened, Way::Proxy, Way::Blocked][..] } else { &[Way::Opened, Way::Proxy] };
    for way in ways {
        edge.reserve(*way);
    }
    edge.pass(Duration::from_secs(3));
    edge.follow();
    edge.pass(Duration::from_secs(5));
    for wanted in edge.wanted.clone().into_iter().rev().take(ways.len()) {
        let [(node, allows, _), (last, block, _)] = edge.sessions(&wanted);
        // What a block refuses does not stand.
        let (node, id) = if wanted.way == Way::Blocked { (last, block) } else { (node, allows) };
        let stands = edge.world.stands(node, id);
        assert_eq!(stands, Some(State::Established), "{}", edge.world.says(&format!("{wanted:?}")));
    }
    if let Some(fault) = edge.fault() {
        panic!("{}", edge.world.says(&fault));
    }
    edge.close();
    edge.world.expect_nothing();
}

#[test]
fn receivers_are_reached_as_they_asked_after_a_storm() {
    campaign(run);
}
