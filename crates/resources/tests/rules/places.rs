//! The places for reservations at a link, and how many a neighbor gets of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_core::IfIndex;
use signalbox_core::traffic::TrafficSpec;
use signalbox_resources::config::LinkConfig;
use signalbox_resources::request::{Neighbor, Proof, RequestedBy};
use signalbox_resources::{Config, GrantRequest, Rate, Requester, Resources};

use crate::support::{ETH1, NOW, admit, config, link, refusal, request_of, reserved, start};

const PLACES: u32 = 1024;

fn host(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 1, 0, last).into()
}

/// A request of 8 bit/s that arrived by this neighbor, whatever address it contains.
fn small(port: u16, neighbor: IpAddr) -> GrantRequest {
    let request = request_of(port, 1);
    let neighbor = Neighbor { address: neighbor, ifindex: IfIndex(3), proof: Proof::Link };
    let claimed = Some(host(u8::try_from(port % 200).unwrap()));
    let requester = Requester::new(RequestedBy::Neighbor(neighbor), None, claimed);
    GrantRequest { requester, traffic: TrafficSpec { rate: 1, ..request.traffic }, ..request }
}

fn places(limit: u32) -> Config {
    let link = LinkConfig { max_reservations: Some(limit), ..link("eth1", 10) };
    Config { links: vec![link], ..config() }
}

fn flood(resources: &mut Resources, neighbor: IpAddr, ports: core::ops::Range<u16>) -> usize {
    ports.filter(|port| resources.admit(NOW, &small(*port, neighbor)).is_ok()).count()
}

/// One neighbor asks for more than all places: others still find theirs, and what is given back is free again.
#[test]
fn a_neighbor_leaves_places_for_others() {
    let mut resources = start(places(PLACES));
    assert_eq!(flood(&mut resources, host(1), 1..2000), 768);
    let why = refusal(&mut resources, &small(2000, host(1)));
    assert!(why.contains("this neighbor has 768 of 1024"), "{why}");
    assert_eq!(resources.counters().refused_full, 1999 - 768 + 1);
    for other in 2..60 {
        let ports = 3000 + u16::from(other) * 10;
        assert_eq!(flood(&mut resources, host(other), ports..ports + 10), 4, "{other}");
    }
    // The addresses of an IPv6 /64 are one neighbor.
    let v6 = |host| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host));
    assert!((1..=10).filter(|n| resources.admit(NOW, &small(9000 + n, v6(*n))).is_ok()).count() == 4);
}

#[test]
fn a_change_needs_no_other_place_and_an_end_frees_one() {
    let mut resources = start(places(PLACES));
    let mut grants: Vec<_> =
        (1..=768).map(|port| admit(&mut resources, &small(port, host(1))).grant).collect();
    let faster =
        GrantRequest { traffic: TrafficSpec { rate: 2, ..small(1, host(1)).traffic }, ..small(1, host(1)) };
    assert!(resources.modify(NOW, grants[0], &faster).is_ok());
    assert!(resources.admit(NOW, &small(1000, host(1))).is_err());
    resources.release(grants.pop().unwrap());
    admit(&mut resources, &small(1000, host(1)));
    assert!(resources.admit(NOW, &small(1001, host(1))).is_err());
    // All leave, and a reload between does not lose count.
    resources.reload(NOW, places(PLACES)).unwrap();
    assert!(resources.admit(NOW, &small(1001, host(1))).is_err());
    resources.reload(NOW, places(4 * PLACES)).unwrap();
    assert_eq!(flood(&mut resources, host(1), 2000..6000), 3072 - 768);
}

/// Many small reservations use up the rate before the places.
#[test]
fn a_small_reservation_counts_for_the_least_rate() {
    let link = LinkConfig { min_rate: Rate(12_500), max_reservations: Some(PLACES), ..link("eth1", 10) };
    let mut resources = start(Config { links: vec![link], ..config() });
    assert_eq!(flood(&mut resources, host(1), 1..1000), 100);
    assert_eq!(reserved(&resources), 1_250_000);
    let why = refusal(&mut resources, &small(2000, host(2)));
    assert!(why.contains("share"), "{why}");
    // A larger one counts for what it is.
    let mut resources = start(Config {
        links: vec![LinkConfig { min_rate: Rate(12_500), ..crate::support::link("eth1", 10) }],
        ..config()
    });
    admit(&mut resources, &request_of(1, 3));
    assert_eq!(resources.links_from(ETH1).next().unwrap().reserved, 375_000);
}
