//! Reservations by the QoS client in networks without faults.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::traffic::TrafficSpec;
use signalbox_node::casp::{
    self, Command as CaspCommand, Event as CaspEvent, PathAmount, QosConfig, ReservationEvent,
    ReserveRefusal, ReserveRequest, Reserved,
};
use signalbox_node::resources::{Config as Resources, Rate, config::LinkConfig as Capacity};
use signalbox_node::{Command, Config, Event, Node};
use signalbox_sim::{Family, LinkConfig, LinkId, NodeId, Sim, topology};

use crate::net::{FAMILIES, WALL_US, make};

/// What can be reserved of each link, octets a second.
pub(super) const SHARE: u64 = 75_000;
pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) fn traffic(rate: u64) -> TrafficSpec {
    TrafficSpec { rate, burst: 3000, peak: None, min_policed: 64, max_packet: 1500 }
}

pub(super) fn config(qos: Option<QosConfig>) -> Config {
    Config {
        wall_clock_us: WALL_US,
        casp: Some(casp::Config { qos, ..casp::Config::default() }),
        resources: Resources {
            links: vec![Capacity::new("*", Some(Rate(SHARE / 3 * 4)))],
            ..Resources::default()
        },
        ..Config::empty()
    }
}

pub(super) fn add(sim: &mut Sim<Node>, name: &str, qos: Option<QosConfig>) -> NodeId {
    sim.add_engine(name, move |boot| make(boot, config(qos.clone())))
}

pub(super) fn casp(sim: &mut Sim<Node>, node: NodeId, id: u64, command: CaspCommand) {
    sim.command(node, Command::Casp { id, command });
}

pub(super) fn events(sim: &Sim<Node>, id: u64) -> Vec<&ReservationEvent> {
    let of = |event: &'_ Event| matches!(event, Event::Casp { id: own, .. } if *own == id);
    let events = sim.events().iter().filter(|one| of(&one.event));
    events
        .filter_map(|one| match &one.event {
            Event::Casp { event: CaspEvent::Reservation(event), .. } => Some(event),
            _ => None,
        })
        .collect()
}

pub(super) fn granted(sim: &Sim<Node>, id: u64) -> usize {
    events(sim, id).iter().filter(|event| matches!(event, ReservationEvent::Granted(_))).count()
}

/// What the kernel of a node has for a link, octets a second.
pub(super) fn held(sim: &Sim<Node>, node: NodeId, link: LinkId) -> u64 {
    let at = sim.ifindex(node, link);
    sim.reservations(node).filter(|(_, one)| one.ifindex == at).map(|(_, one)| one.traffic.rate).sum()
}

/// Flow number `n` to an address.
pub(super) fn to(dst: IpAddr, n: u16, rate: u64) -> ReserveRequest {
    let request = ReserveRequest::to(dst, traffic(rate));
    if dst.is_ipv4() {
        ReserveRequest { protocol: Some(17), dst_port: Some(n), ..request }
    } else {
        ReserveRequest { flow_label: Some(n.into()), ..request }
    }
}

pub(super) fn reserve(sim: &mut Sim<Node>, node: NodeId, id: u64, request: ReserveRequest) {
    casp(sim, node, id, CaspCommand::Reserve(Box::new(request)));
    sim.expect("the path grants it", SECOND * 30, |sim| granted(sim, id) == 1);
}

/// Each node of the path holds a reservation, over IPv4 and IPv6, until the user releases it; one that does not fit leaves
/// nothing. A node without the client passes its messages.
#[test]
fn a_path_reserves_and_releases() {
    for family in FAMILIES {
        let mut sim = Sim::new(11);
        let own = || Some(QosConfig::default());
        let nodes = [("s", own()), ("r1", own()), ("r2", None), ("d", own())]
            .map(|(name, qos)| add(&mut sim, name, qos));
        let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
        let dst = sim.address(nodes[3], family);
        reserve(&mut sim, nodes[0], 1, to(dst, 1, 20_000));
        // The refreshes keep it.
        sim.run_for(SECOND * 300);
        let all = |sim: &Sim<Node>| [0, 1, 2].map(|n| held(sim, nodes[n], links[n]));
        assert_eq!(all(&sim), [20_000, 20_000, 0]);
        casp(&mut sim, nodes[0], 2, CaspCommand::Reserve(Box::new(to(dst, 2, 60_000))));
        sim.run_for(SECOND);
        assert!(matches!(events(&sim, 2)[..], [ReservationEvent::Failed(_)]), "{:?}", events(&sim, 2));
        // What there is, down to a bound.
        let least = ReserveRequest { least: Some(10_000), ..to(dst, 3, 60_000) };
        casp(&mut sim, nodes[0], 3, CaspCommand::Query(Box::new(least)));
        sim.run_for(SECOND);
        match events(&sim, 3)[..] {
            [
                ReservationEvent::Started { .. },
                ReservationEvent::Available(PathAmount { amount: Some(Reserved { traffic, .. }), path }),
            ] => {
                // The node without the client is unknown, and before the destination.
                let unknown: Vec<u8> = path.hops.iter().map(|hop| hop.routers).collect();
                assert_eq!(
                    (&unknown[..], path.gaps, path.far_end),
                    (&[0, 0, 1][..], true, Some(true)),
                    "{path:?}"
                );
                assert!((54_900..=55_000).contains(&traffic.rate), "{traffic:?}");
            }
            ref other => panic!("{other:?}"),
        }
        assert_eq!(all(&sim), [20_000, 20_000, 0]);
        casp(&mut sim, nodes[0], 1, CaspCommand::Close);
        sim.run_for(SECOND);
        assert_eq!(events(&sim, 1).last(), Some(&&ReservationEvent::Released { confirmed: true }));
        assert_eq!(all(&sim), [0; 3]);
        for node in nodes {
            assert_eq!(sim.engine(node).unwrap().casp().unwrap().session_count(), 0, "{node}");
        }
    }
}

/// The receiver reserves because the source asks for it, refreshes what stands, and releases it with the source. The source
/// cannot change the amount. If it fails, no node keeps anything.
#[test]
fn a_receiver_reserves_for_its_source() {
    for family in FAMILIES {
        let mut sim = Sim::new(13);
        let own = || Some(QosConfig::default());
        let nodes = [("s", own()), ("r1", own()), ("r2", None), ("d", own())]
            .map(|(name, qos)| add(&mut sim, name, qos));
        let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
        let dst = sim.address(nodes[3], family);
        let request = |n| ReserveRequest { receiver_initiated: true, ..to(dst, n, 20_000) };
        let all = |sim: &Sim<Node>| [0, 1, 2].map(|n| held(sim, nodes[n], links[n]));
        reserve(&mut sim, nodes[0], 1, request(1));
        sim.run_for(SECOND * 300);
        assert_eq!((all(&sim), events(&sim, 1).len()), ([20_000, 20_000, 0], 2), "{:?}", events(&sim, 1));
        let wanted = Reserved { traffic: traffic(10_000), guaranteed: None };
        casp(&mut sim, nodes[0], 1, CaspCommand::Change(wanted));
        sim.run_for(SECOND);
        assert_eq!(events(&sim, 1).last(), Some(&&ReservationEvent::Refused(ReserveRefusal::Receiver)));
        casp(&mut sim, nodes[0], 1, CaspCommand::Close);
        sim.run_for(SECOND);
        assert_eq!(events(&sim, 1).last(), Some(&&ReservationEvent::Released { confirmed: true }));
        assert_eq!(all(&sim), [0; 3]);
        reserve(&mut sim, nodes[0], 2, request(2));
        sim.crash(nodes[0]);
        sim.run_for(SECOND * 400);
        for node in &nodes[1..] {
            assert_eq!(sim.engine(*node).unwrap().casp().unwrap().session_count(), 0, "{node}");
            assert_eq!(sim.reservations(*node).count(), 0);
        }
    }
}

/// What the nodes of a chain hold for their links, first with the flow and then against it.
fn both_ways(sim: &Sim<Node>, nodes: &[NodeId], links: &[LinkId]) -> [Vec<u64>; 2] {
    let there = nodes.iter().zip(links).map(|(node, link)| held(sim, *node, *link)).collect();
    [there, nodes[1..].iter().zip(links).map(|(node, link)| held(sim, *node, *link)).collect()]
}

/// CASPQOS-1-05: both directions are held at each node that runs the client, kept by refreshes, changed, and released together.
#[test]
fn both_directions_are_reserved_and_released() {
    for family in FAMILIES {
        let mut sim = Sim::new(15);
        let own = Some(QosConfig::default());
        let nodes = [("s", true), ("r1", true), ("r2", false), ("d", true)]
            .map(|(name, has)| add(&mut sim, name, own.clone().filter(|_| has)));
        let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
        let dst = sim.address(nodes[3], family);
        reserve(&mut sim, nodes[0], 1, ReserveRequest { bidirectional: true, ..to(dst, 1, 20_000) });
        sim.run_for(SECOND * 300);
        let all = |rate| [vec![rate, rate, 0], vec![rate, 0, rate]];
        assert_eq!(both_ways(&sim, &nodes, &links), all(20_000));
        let wanted = Reserved { traffic: traffic(30_000), guaranteed: None };
        casp(&mut sim, nodes[0], 1, CaspCommand::Change(wanted));
        sim.run_for(SECOND);
        assert_eq!(both_ways(&sim, &nodes, &links), all(30_000));
        casp(&mut sim, nodes[0], 1, CaspCommand::Close);
        sim.run_for(SECOND);
        assert_eq!(both_ways(&sim, &nodes, &links), all(0));
    }
}

/// CASPQOS-1-06: a receiver that is configured so reserves the opposite flow over the same nodes. If the source fails, both
/// directions end everywhere.
#[test]
fn a_receiver_reserves_the_opposite_flow() {
    let mut sim = Sim::new(16);
    let own = Some(QosConfig { reserve_opposite: true, ..QosConfig::default() });
    let nodes = [("s", true), ("r1", true), ("r2", false), ("d", true)]
        .map(|(name, has)| add(&mut sim, name, own.clone().filter(|_| has)));
    let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
    let dst = sim.address(nodes[3], Family::V4);
    for id in [1, 2] {
        reserve(&mut sim, nodes[0], id, to(dst, 1, 20_000));
        sim.run_for(SECOND * 300);
        assert_eq!(both_ways(&sim, &nodes, &links), [vec![20_000, 20_000, 0], vec![20_000, 0, 20_000]]);
        if id == 1 {
            casp(&mut sim, nodes[0], 1, CaspCommand::Close);
            sim.run_for(SECOND);
            assert_eq!(both_ways(&sim, &nodes, &links), [vec![0; 3], vec![0; 3]]);
        }
    }
    sim.crash(nodes[0]);
    sim.run_for(SECOND * 500);
    for node in &nodes[1..] {
        assert_eq!(sim.engine(*node).unwrap().casp().unwrap().session_count(), 0, "{node}");
        assert_eq!(sim.reservations(*node).count(), 0);
    }
}

/// CASPQOS-9-05: what is reserved in advance reaches the kernel at the start, and leaves it at the end.
#[test]
fn a_reservation_in_advance_begins_and_ends_by_itself() {
    let mut sim = Sim::new(17);
    let own = Some(QosConfig::default());
    let nodes = ["s", "r1", "d"].map(|name| add(&mut sim, name, own.clone()));
    let links = topology::chain(&mut sim, &nodes, &LinkConfig::default());
    let dst = sim.address(nodes[2], Family::V4);
    let at = |seconds: u64| WALL_US + seconds * 1_000_000;
    reserve(&mut sim, nodes[0], 1, ReserveRequest { time: Some((at(400), at(800))), ..to(dst, 1, 60_000) });
    casp(&mut sim, nodes[0], 2, CaspCommand::Reserve(Box::new(to(dst, 2, 60_000))));
    sim.run_for(SECOND);
    assert!(matches!(events(&sim, 2)[..], [ReservationEvent::Failed(_)]), "it is taken already");
    let mut until = |second: u64| {
        sim.run_for(Duration::from_micros(second * 1_000_000 - sim.now().as_micros()));
        (held(&sim, nodes[0], links[0]), held(&sim, nodes[1], links[1]))
    };
    assert_eq!(until(399), (0, 0));
    assert_eq!(until(401), (60_000, 60_000));
    assert_eq!(until(799), (60_000, 60_000));
    assert_eq!(until(801), (0, 0));
    assert_eq!(events(&sim, 1).last(), Some(&&ReservationEvent::Released { confirmed: true }));
}

#[test]
fn requests_that_cannot_be_are_refused() {
    let mut sim = Sim::new(12);
    let nodes = [add(&mut sim, "s", Some(QosConfig::default())), add(&mut sim, "d", None)];
    topology::chain(&mut sim, &nodes, &LinkConfig::default());
    let (v4, v6) = (sim.address(nodes[1], Family::V4), sim.address(nodes[1], Family::V6));
    let to = |dst| ReserveRequest::to(dst, traffic(1000));
    for (id, request, refusal) in [
        (1, to("224.0.0.5".parse().unwrap()), ReserveRefusal::Address),
        (2, to("203.0.113.77".parse().unwrap()), ReserveRefusal::NoRoute),
        (3, ReserveRequest { src: Some(v6), ..to(v4) }, ReserveRefusal::Address),
        (4, ReserveRequest { least: Some(2000), ..to(v4) }, ReserveRefusal::Traffic),
        (5, ReserveRequest { dst_port: Some(9), ..to(v6) }, ReserveRefusal::PrivateFlow),
        (6, ReserveRequest { flow_label: Some(9), ..to(v4) }, ReserveRefusal::Label),
    ] {
        casp(&mut sim, nodes[0], id, CaspCommand::Reserve(Box::new(request)));
        sim.run_for(SECOND);
        assert_eq!(events(&sim, id), [&ReservationEvent::Refused(refusal)]);
    }
    casp(&mut sim, nodes[1], 7, CaspCommand::Reserve(Box::new(to(v4))));
    sim.run_for(SECOND);
    assert_eq!(events(&sim, 7), [&ReservationEvent::Refused(ReserveRefusal::NotRunning)]);
}
