//! RSVP: path, reservation and blockade state (RFC 2205), with refresh reduction and Hello or without.
//!
//! At no time a node requests more of its kernel than the share of a link. Some lifetimes after the faults each node has
//! the path state and the reservation that the users requested and no other. A receiver that can be served is served
//! although a larger request is refused again and again. When the users close, no state is left anywhere. A deadlock is
//! a request that is not granted in the end.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::IfIndex;
use signalbox_node::resources::intserv::TSpec;
use signalbox_node::resources::{Config as Resources, Rate, config::LinkConfig as Capacity};
use signalbox_node::rsvp::{
    self, Filter, FlowRequest, FlowSpec, ReserveRequest, Selector, SenderRequest, Session, SessionKind, Style,
};
use signalbox_node::{Command, Config};
use signalbox_rsvp::engine::neighbor::HelloConfig;
use signalbox_rsvp::wire::MessageType;
use signalbox_sim::explore::Model;
use signalbox_sim::{Boot, Family, LinkConfig, LinkId, NodeId, Packet, Sim, topology};

use crate::explored;
use crate::host::Host;

const REFRESH: Duration = Duration::from_secs(1);
/// Lifetime of state: (K + 0.5) · 1.5 · R.
const LIFETIME: Duration = Duration::from_millis(5250);
/// The blockade factor Kb.
const BLOCKADE: u32 = 4;
/// Time from the last fault until all conditions hold, as in the campaign of `tests/scenario/rsvp`.
const RECOVERY: Duration = Duration::from_millis(5250 * 2 + 4000 + 1500 * 4);

/// The extensions of all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Plain,
    Reduction,
    Hello,
}

fn config(variant: Variant, shares: &[u64]) -> Config {
    let mut config = rsvp::Config { blockade_multiplier: BLOCKADE, ..rsvp::Config::default() };
    config.interface.refresh = REFRESH;
    config.interface.repair_delay = Duration::ZERO;
    let neighbors = &mut config.neighbors.interface;
    neighbors.reduction.reliable = variant == Variant::Reduction;
    neighbors.reduction.first = REFRESH / 10;
    let hello = HelloConfig { interval: REFRESH / 2, ..HelloConfig::default() };
    neighbors.hello = (variant == Variant::Hello).then_some(hello);
    let named = shares.iter().zip(0..);
    let links = named.map(|(share, port)| Capacity::new(&format!("eth{port}"), Some(Rate(share / 3 * 4))));
    let resources = Resources { links: links.collect(), ..Resources::default() };
    Config { rsvp: Some(config), resources, ..Config::empty() }
}

/// Adds a node with these shares of its links, in octets a second.
fn add(sim: &mut Sim<Host>, variant: Variant, shares: &'static [u64]) -> NodeId {
    let config = config(variant, shares);
    let by_index: BTreeMap<IfIndex, u64> = (2..).map(IfIndex).zip(shares.iter().copied()).collect();
    let make = move |boot: Boot| Host::new(boot, config.clone(), by_index.clone());
    sim.add_engine(format!("n{}", sim.nodes().count()), make)
}

fn tspec(rate: f32) -> TSpec {
    TSpec::new(rate, rate / 10.0 + 1500.0, f32::INFINITY, 64, 1500).unwrap()
}

fn command(sim: &mut Sim<Host>, node: NodeId, command: rsvp::Command) {
    sim.command(node, Command::Rsvp { id: 1, command });
}

fn announce(sim: &mut Sim<Host>, node: NodeId, session: Session) {
    let template = sender(sim, node);
    let sender = SenderRequest::new(template, tspec(1_000_000.0));
    command(sim, node, rsvp::Command::Session(session));
    command(sim, node, rsvp::Command::Sender(sender));
}

fn sender(sim: &Sim<Host>, node: NodeId) -> Filter {
    Filter { src: sim.address(node, Family::V4), selector: Selector::Port(4000) }
}

fn reserve(
    sim: &mut Sim<Host>,
    node: NodeId,
    session: Session,
    (style, senders): (Style, Vec<Filter>),
    rate: f32,
) {
    let flows = vec![FlowRequest { flowspec: FlowSpec { tspec: tspec(rate), rspec: None }, senders }];
    command(sim, node, rsvp::Command::Session(session));
    let request = ReserveRequest { style, flows, confirm: true, policy: Box::default() };
    command(sim, node, rsvp::Command::Reserve(request));
}

/// Rates of the reservations in a kernel, by link.
fn rates(sim: &Sim<Host>, node: NodeId) -> Vec<(IfIndex, u64)> {
    let mut rates: Vec<_> = sim.reservations(node).map(|(_, one)| (one.ifindex, one.rate())).collect();
    rates.sort_unstable();
    rates
}

/// State that is left at a node.
fn left(sim: &Sim<Host>) -> Option<String> {
    sim.nodes().find_map(|node| {
        let host = &sim.engine(node)?.node;
        let rsvp = host.rsvp()?;
        if sim.reservations(node).next().is_some() || host.resources().reservations().next().is_some() {
            return Some(format!("{node} holds reservations"));
        }
        let counts = (rsvp.sessions(), rsvp.senders(), rsvp.reservations());
        (counts != (0, 0, 0) || !rsvp.holds_nothing()).then(|| format!("{node} holds {counts:?}"))
    })
}

/// All users close, and all state ends: what no tear removes lives for a lifetime.
fn ends(sim: &mut Sim<Host>) -> Result<(), String> {
    for node in sim.nodes() {
        command(sim, node, rsvp::Command::Close);
    }
    sim.wait(LIFETIME * 2, |sim| left(sim).is_none());
    left(sim).map_or(Ok(()), Err)
}

fn name(packet: &Packet) -> String {
    packet.payload.get(1).map_or_else(String::new, |kind| format!("{:?}", MessageType(*kind)))
}

/// When faults happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// From the first message on.
    Start,
    /// While the reservation stands.
    Refresh,
    /// From when the sender closes.
    SenderCloses,
    /// From when the receiver closes.
    ReceiverCloses,
}

/// A sender at the first node of a row, and a receiver at the last one.
struct Row {
    nodes: u32,
    variant: Variant,
    phase: Phase,
    duration: Duration,
}

const SHARES: &[u64] = &[750_000; 2];
const RATE: f32 = 30_000.0;

impl Row {
    fn session(sim: &Sim<Host>) -> Session {
        let dest = sim.nodes().last().map(|node| sim.address(node, Family::V4)).unwrap();
        Session { dest, protocol: 17, kind: SessionKind::Ports, port: 5004 }
    }

    fn ends_of(sim: &Sim<Host>) -> [NodeId; 2] {
        [NodeId(0), sim.nodes().last().unwrap()]
    }

    fn users(sim: &mut Sim<Host>, only: impl Fn(NodeId) -> bool) {
        let (session, [first, last]) = (Self::session(sim), Self::ends_of(sim));
        if only(first) {
            announce(sim, first, session);
        }
        if only(last) {
            let senders = vec![sender(sim, first)];
            reserve(sim, last, session, (Style::Ff, senders), RATE);
        }
    }

    /// The fault in the state of the session, if there is one.
    fn whole(sim: &Sim<Host>) -> Result<(), String> {
        let [first, last] = Self::ends_of(sim);
        for node in sim.nodes() {
            let host = sim.engine(node).ok_or("a node is down")?;
            let views: Vec<_> = host.node.rsvp_sessions().collect();
            let [view] = &views[..] else { return Err(format!("{node} has {} sessions", views.len())) };
            if view.senders.len() != 1 || view.reservations.len() != 1 {
                let (senders, reservations) = (view.senders.len(), view.reservations.len());
                return Err(format!("{node} has {senders} senders and {reservations} reservations"));
            }
            let rates = rates(sim, node);
            let wanted = if node == last { 0 } else { 1 };
            if rates.len() != wanted || rates.iter().any(|(_, rate)| *rate != 30_000) {
                return Err(format!("the kernel of {node} holds {rates:?}"));
            }
            if host.node.resources().reservations().count() != wanted {
                return Err(format!("admission control of {node} differs"));
            }
        }
        let [sender, receiver] = [first, last].map(|node| sim.engine(node).unwrap().known(1));
        if sender.reserved.is_none() || receiver.senders.len() != 1 {
            return Err("a user does not have the last event".to_owned());
        }
        if !sender.refused.is_empty() || !receiver.refused.is_empty() {
            return Err("a user is refused".to_owned());
        }
        Ok(())
    }
}

impl Model for Row {
    type Engine = Host;

    fn network(&self) -> Sim<Host> {
        let mut sim = Sim::new(1);
        let nodes: Vec<_> = (0..self.nodes).map(|_| add(&mut sim, self.variant, SHARES)).collect();
        topology::chain(&mut sim, &nodes, &LinkConfig::default());
        sim.run_for(Duration::ZERO);
        Self::users(&mut sim, |_| true);
        if self.phase == Phase::Start {
            return sim;
        }
        sim.run_for(REFRESH / 2);
        Self::whole(&sim).unwrap();
        let [first, last] = Self::ends_of(&sim);
        match self.phase {
            Phase::Start | Phase::Refresh => {}
            Phase::SenderCloses => command(&mut sim, first, rsvp::Command::Close),
            Phase::ReceiverCloses => command(&mut sim, last, rsvp::Command::Close),
        }
        sim
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn restarted(&self, sim: &mut Sim<Host>, node: NodeId) {
        let [first, last] = Self::ends_of(sim);
        let closed = match self.phase {
            Phase::Start | Phase::Refresh => None,
            Phase::SenderCloses => Some(first),
            Phase::ReceiverCloses => Some(last),
        };
        Self::users(sim, |user| user == node && Some(user) != closed);
    }

    /// [`Host`] checks each request to a kernel.
    fn always(&self, _: &Sim<Host>) -> Result<(), String> {
        Ok(())
    }

    fn finally(&self, sim: &mut Sim<Host>) -> Result<(), String> {
        sim.run_for(RECOVERY);
        match self.phase {
            Phase::Start | Phase::Refresh => Self::whole(sim)?,
            Phase::SenderCloses | Phase::ReceiverCloses => {
                for node in sim.nodes() {
                    let reserved = sim.engine(node).unwrap().node.rsvp().unwrap().reservations();
                    // The receiver has its own request until it closes; no path is left for it.
                    if sim.reservations(node).next().is_some() || reserved > 0 {
                        return Err(format!("{node} holds {reserved} reservations"));
                    }
                }
            }
        }
        ends(sim)
    }

    fn name(&self, packet: &Packet) -> String {
        name(packet)
    }
}

/// A sender, a router, and two receivers of a multicast group. The larger request does not fit the sender's link.
///
/// ```text
/// n0 --- n1 --- n2   large
///          \--- n3   small
/// ```
struct Killer {
    style: Style,
    duration: Duration,
}

const SMALL: f32 = 20_000.0;
const LARGE: f32 = 200_000.0;
/// Share of the sender's link.
const NARROW: &[u64] = &[75_000];
const WIDE: &[u64] = &[750_000; 3];

impl Killer {
    const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(232, 1, 1, 1));
    const SESSION: Session =
        Session { dest: Self::GROUP, protocol: 17, kind: SessionKind::Ports, port: 5004 };

    fn users(&self, sim: &mut Sim<Host>, only: impl Fn(u32) -> bool) {
        if only(0) {
            announce(sim, NodeId(0), Self::SESSION);
        }
        let named = self.style != Style::Wf;
        for (node, rate) in [(2, LARGE), (3, SMALL)] {
            if only(node) {
                let senders = if named { vec![sender(sim, NodeId(0))] } else { Vec::new() };
                reserve(sim, NodeId(node), Self::SESSION, (self.style, senders), rate);
            }
        }
    }

    /// Whether each link to the receiver of the small request has its reservation.
    fn serves(sim: &Sim<Host>) -> bool {
        let small = |node: u32, port: u32| {
            rates(sim, NodeId(node)).iter().any(|(at, rate)| *at == IfIndex(port) && *rate >= 20_000)
        };
        small(0, 2) && small(1, 4)
    }
}

impl Model for Killer {
    type Engine = Host;

    fn network(&self) -> Sim<Host> {
        let mut sim = Sim::new(1);
        let nodes = [NARROW, WIDE, WIDE, WIDE].map(|shares| add(&mut sim, Variant::Plain, shares));
        let join = |to: usize| (nodes[if to == 1 { 0 } else { 1 }], nodes[to]);
        let links: Vec<LinkId> =
            [1, 2, 3].map(join).into_iter().map(|(a, b)| sim.link(a, b, &LinkConfig::default())).collect();
        sim.run_for(Duration::ZERO);
        let source = sim.address(nodes[0], Family::V4);
        sim.set_multicast_route(nodes[0], Self::GROUP, source, None, &links[..1]);
        sim.set_multicast_route(nodes[1], Self::GROUP, source, Some(links[0]), &links[1..]);
        // The receivers request when the Path has reached them.
        self.users(&mut sim, |user| user == 0);
        sim.run_for(REFRESH / 10);
        self.users(&mut sim, |user| user != 0);
        sim
    }

    fn duration(&self) -> Duration {
        self.duration
    }

    fn restarted(&self, sim: &mut Sim<Host>, node: NodeId) {
        self.users(sim, |user| user == node.0);
    }

    /// [`Host`] checks each request to a kernel.
    fn always(&self, _: &Sim<Host>) -> Result<(), String> {
        Ok(())
    }

    fn finally(&self, sim: &mut Sim<Host>) -> Result<(), String> {
        sim.run_for(RECOVERY);
        // While a previous hop blocks the large part of a request, it may block the rest too.
        if !sim.wait(REFRESH * BLOCKADE * 2, Self::serves) {
            return Err("the small request is never served".to_owned());
        }
        // When the larger request ends, the smaller one stands alone.
        command(sim, NodeId(2), rsvp::Command::Close);
        sim.run_for(RECOVERY);
        let held: Vec<_> = sim.nodes().map(|node| rates(sim, node)).collect();
        let wanted = [vec![(IfIndex(2), 20_000)], vec![(IfIndex(4), 20_000)], Vec::new(), Vec::new()];
        if held != wanted {
            return Err(format!("the kernels hold {held:?}"));
        }
        ends(sim)
    }

    fn name(&self, packet: &Packet) -> String {
        name(packet)
    }
}

/// A row with faults in the first moments of a phase.
fn row(nodes: u32, variant: Variant, phase: Phase) -> Row {
    Row { nodes, variant, phase, duration: REFRESH * 2 }
}

fn all_phases(nodes: u32, variant: Variant, faults: u32) {
    for phase in [Phase::Start, Phase::Refresh, Phase::SenderCloses, Phase::ReceiverCloses] {
        let name = format!("RSVP, {nodes} nodes, {variant:?}, {phase:?}");
        let explored = explored(&name, &row(nodes, variant, phase), faults);
        assert!(explored.ends > 1, "{explored}");
    }
}

#[test]
fn two_nodes() {
    all_phases(2, Variant::Plain, 2);
}

#[test]
fn three_and_four_nodes() {
    all_phases(3, Variant::Plain, 1);
    all_phases(4, Variant::Plain, 1);
}

#[test]
fn refresh_reduction() {
    all_phases(2, Variant::Reduction, 1);
    all_phases(3, Variant::Reduction, 1);
}

#[test]
fn hello() {
    all_phases(2, Variant::Hello, 1);
}

/// The blockade of a request that is too large (RFC 2205 §2.5).
#[test]
fn a_large_request_does_not_stop_a_small_one() {
    for style in [Style::Ff, Style::Wf] {
        let killer = Killer { style, duration: REFRESH / 10 };
        explored(&format!("RSVP, blockade, {style:?}"), &killer, 1);
    }
}
