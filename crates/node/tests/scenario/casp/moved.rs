//! Reservations whose path changes, or whose source gets another address.

use core::time::Duration;

use signalbox_node::Node;
use signalbox_node::casp::{Command as CaspCommand, QosConfig, ReservationEvent, ReserveRequest};
use signalbox_sim::{Family, LinkConfig, LinkId, NodeId, Sim};

use super::reserve::{SECOND, add, casp, events, granted, held, reserve, to};

/// Merges of branches need no authenticated connection here.
fn merging() -> Option<QosConfig> {
    Some(QosConfig { merge_unauthenticated: true, ..QosConfig::default() })
}

/// The routers r2 and r3 lie side by side between r1 and r4. The path leads over r2.
struct Diamond {
    sim: Sim<Node>,
    /// s, r1, r2, r3, r4, d.
    nodes: [NodeId; 6],
    /// s-r1, r1-r2, r2-r4, r1-r3, r3-r4, r4-d.
    links: [LinkId; 6],
}

impl Diamond {
    fn new() -> Self {
        Self::with(merging())
    }

    fn with(qos: Option<QosConfig>) -> Self {
        let mut sim = Sim::new(13);
        let nodes = ["s", "r1", "r2", "r3", "r4", "d"].map(|name| add(&mut sim, name, qos.clone()));
        let [s, r1, r2, r3, r4, d] = nodes;
        let mut link = |a, b| sim.link(a, b, &LinkConfig::default());
        let links = [link(s, r1), link(r1, r2), link(r2, r4), link(r1, r3), link(r3, r4), link(r4, d)];
        sim.set_cost(links[3], 5);
        sim.set_cost(links[4], 5);
        sim.run_for(Duration::ZERO);
        Self { sim, nodes, links }
    }

    /// What the nodes hold for the links, in the order of the links.
    fn held(&self) -> [u64; 6] {
        let from = [0, 1, 2, 1, 3, 4];
        core::array::from_fn(|n| held(&self.sim, self.nodes[from[n]], self.links[n]))
    }

    /// The same for the data of the opposite direction.
    fn held_back(&self) -> [u64; 6] {
        let from = [1, 2, 4, 3, 4, 5];
        core::array::from_fn(|n| held(&self.sim, self.nodes[from[n]], self.links[n]))
    }
}

/// CASPQOS-7-01: after a change of the route the node where it changes sends the request on over the new branch
/// at once, and the node where the branches meet releases the old one.
#[test]
fn a_reservation_follows_the_route() {
    let mut net = Diamond::new();
    let dst = net.sim.address(net.nodes[5], Family::V4);
    reserve(&mut net.sim, net.nodes[0], 1, to(dst, 1, 20_000));
    assert_eq!(net.held(), [20_000, 20_000, 20_000, 0, 0, 20_000]);
    net.sim.run_for(SECOND * 10);
    net.sim.set_cost(net.links[3], 1);
    net.sim.set_cost(net.links[4], 1);
    net.sim.set_cost(net.links[1], 5);
    net.sim.run_for(SECOND * 2);
    assert_eq!(net.held(), [20_000, 0, 0, 20_000, 20_000, 20_000]);
    net.sim.run_for(SECOND * 300);
    assert_eq!(net.held(), [20_000, 0, 0, 20_000, 20_000, 20_000]);
    assert_eq!(granted(&net.sim, 1), 1, "{:?}", events(&net.sim, 1));
    let [_, _, r2, ..] = net.nodes;
    assert_eq!(net.sim.engine(r2).unwrap().casp().unwrap().session_count(), 0);
}

/// CASPQOS-1-05, CASPQOS-1-06, CASPQOS-7-01: both directions follow the route, in one request or by the receiver's own.
#[test]
fn both_directions_follow_the_route() {
    for bidirectional in [true, false] {
        let qos = Some(QosConfig { reserve_opposite: !bidirectional, ..merging().unwrap() });
        let mut net = Diamond::with(qos);
        let dst = net.sim.address(net.nodes[5], Family::V4);
        let request = ReserveRequest { bidirectional, ..to(dst, 1, 20_000) };
        reserve(&mut net.sim, net.nodes[0], 1, request);
        let near = [20_000, 20_000, 20_000, 0, 0, 20_000];
        net.sim.run_for(SECOND * 10);
        assert_eq!([net.held(), net.held_back()], [near; 2]);
        net.sim.set_cost(net.links[3], 1);
        net.sim.set_cost(net.links[4], 1);
        net.sim.set_cost(net.links[1], 5);
        net.sim.set_cost(net.links[2], 5);
        let far = [20_000, 0, 0, 20_000, 20_000, 20_000];
        net.sim.run_for(SECOND * 3);
        assert_eq!([net.held(), net.held_back()], [far; 2], "{bidirectional}");
        net.sim.run_for(SECOND * 300);
        assert_eq!([net.held(), net.held_back()], [far; 2], "{bidirectional}");
        casp(&mut net.sim, net.nodes[0], 1, CaspCommand::Close);
        net.sim.run_for(SECOND * 2);
        assert_eq!([net.held(), net.held_back()], [[0; 6]; 2], "{bidirectional}");
    }
}

/// The user is informed when the new branch has no room, and nothing is left of the reservation.
#[test]
fn a_route_without_room_ends_the_reservation() {
    let mut net = Diamond::new();
    let [s, r1, ..] = net.nodes;
    let dst = net.sim.address(net.nodes[5], Family::V4);
    let r3 = net.sim.address_on(net.nodes[3], net.links[3], Family::V4);
    reserve(&mut net.sim, r1, 1, to(r3, 2, 60_000));
    reserve(&mut net.sim, s, 2, to(dst, 1, 20_000));
    net.sim.run_for(SECOND * 10);
    net.sim.set_cost(net.links[1], 20);
    net.sim.run_for(SECOND * 2);
    assert!(
        matches!(events(&net.sim, 2).last(), Some(ReservationEvent::Lost(_))),
        "{:?}",
        events(&net.sim, 2)
    );
    net.sim.run_for(SECOND * 100);
    assert_eq!(net.held(), [0, 0, 0, 60_000, 0, 0]);
}

/// CASPQOS-7-10: the source of the flow has another address, by another router. The session keeps its identifier, the shared
/// part of the path its reservation, and the old branch is released.
#[test]
fn a_reservation_follows_its_source() {
    follows_its_source(false);
}

/// CASPQOS-7-10, CASPQOS-7-11, CASPQOS-1-02: what the receiver of the data reserved follows their source too.
#[test]
fn a_reservation_of_the_receiver_follows_its_source() {
    follows_its_source(true);
}

fn follows_its_source(receiver_initiated: bool) {
    let mut sim = Sim::new(14);
    let nodes = ["s", "r1", "r2", "r3", "d"].map(|name| add(&mut sim, name, merging()));
    let [s, r1, r2, r3, d] = nodes;
    let mut link = |a, b| sim.link(a, b, &LinkConfig::default());
    let links = [link(s, r1), link(s, r2), link(r1, r3), link(r2, r3), link(r3, d)];
    sim.set_cost(links[1], 5);
    sim.run_for(Duration::ZERO);
    let dst = sim.address(d, Family::V4);
    reserve(&mut sim, s, 1, ReserveRequest { receiver_initiated, ..to(dst, 1, 20_000) });
    let all = |sim: &Sim<Node>| {
        let from = [s, s, r1, r2, r3];
        core::array::from_fn::<u64, 5, _>(|n| held(sim, from[n], links[n]))
    };
    assert_eq!(all(&sim), [20_000, 0, 20_000, 0, 20_000]);
    sim.run_for(SECOND * 10);
    sim.set_cost(links[0], 20);
    sim.run_for(SECOND * 10);
    sim.set_address_on(s, links[0], "10.99.0.1".parse().unwrap());
    sim.run_for(SECOND * 3);
    assert_eq!(all(&sim), [0, 20_000, 0, 20_000, 20_000]);
    let started: Vec<_> = events(&sim, 1)
        .into_iter()
        .filter_map(|event| match event {
            ReservationEvent::Started { session, flow } => Some((*session, flow.src())),
            _ => None,
        })
        .collect();
    let [(first, old), (second, new)] = started[..] else { panic!("{started:?}") };
    assert_eq!((first, new), (second, sim.address_on(s, links[1], Family::V4)));
    assert_ne!(old, new);
    let sources: Vec<_> = sim.reservations(r3).map(|(_, one)| one.filters[0].src.addr).collect();
    assert_eq!(sources, [new]);
    sim.run_for(SECOND * 300);
    assert_eq!(all(&sim), [0, 20_000, 0, 20_000, 20_000]);
    casp(&mut sim, s, 1, CaspCommand::Close);
    sim.run_for(SECOND);
    assert_eq!(all(&sim), [0; 5]);
    assert!(nodes.iter().all(|node| sim.engine(*node).unwrap().casp().unwrap().session_count() == 0));
}
