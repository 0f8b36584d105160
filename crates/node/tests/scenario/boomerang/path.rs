//! Single sessions on a network with two routes; the far end is a plain host.
//!
//! ```text
//!           r2
//!         /    \\
//! s --- r1      r4 --- d         the route over r2 is the shorter one
//!         \\    /
//!           r3
//! ```

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::IfIndex;
use signalbox_core::hops::Path;
use signalbox_core::node::Prefix;
use signalbox_node::boomerang::{self, BoomerangEvent, Command, Rates, Reason, Refusal};
use signalbox_node::resources::{Config as Resources, Rate, config::LinkConfig as Capacity};
use signalbox_node::{Config, Event};
use signalbox_sim::{Family, LinkConfig, LinkId, NextHop, NodeId, Packet, Sim};

use super::net::{Host, command, held, request};
use super::world::World;
use crate::net::FAMILIES;

const SECOND: Duration = Duration::from_secs(1);
/// Three quarters of 10 Mbit/s, octets a second.
const SHARE: u64 = 937_500;

struct Net {
    sim: Sim<Host>,
    /// The nodes s, r1, r2, r3, r4, d.
    nodes: [NodeId; 6],
    /// The links s–r1, r1–r2, r2–r4, r1–r3, r3–r4, r4–d.
    links: [LinkId; 6],
}

impl Net {
    /// `prover` demands a proof.
    fn new(prover: Option<&str>) -> Self {
        let mut sim = Sim::new(7);
        let nodes = ["s", "r1", "r2", "r3", "r4", "d"].map(|name| {
            if name == "d" {
                return sim.add_router(name);
            }
            let engine = boomerang::Config { prove: prover == Some(name), ..boomerang::Config::default() };
            let config = Config {
                boomerang: Some(engine),
                resources: Resources {
                    links: vec![Capacity::new("*", Some(Rate(SHARE / 3 * 4)))],
                    ..Resources::default()
                },
                ..Config::empty()
            };
            let shares: BTreeMap<IfIndex, u64> = (1..6).map(|n| (IfIndex(n), SHARE)).collect();
            sim.add_engine(name, move |boot| Host::new(boot, config.clone(), shares.clone()))
        });
        let [s, r1, r2, r3, r4, d] = nodes;
        let mut link = |a, b| sim.link(a, b, &LinkConfig::default());
        let links = [link(s, r1), link(r1, r2), link(r2, r4), link(r1, r3), link(r3, r4), link(r4, d)];
        sim.set_cost(links[3], 5);
        sim.set_cost(links[4], 5);
        sim.run_for(Duration::ZERO);
        Self { sim, nodes, links }
    }

    /// The way back from r4 leads over r3.
    fn bend(&mut self) {
        let [s, _, _, r3, r4, _] = self.nodes;
        for family in FAMILIES {
            let back = Prefix::host(self.sim.address(s, family));
            self.sim.set_route(r4, back, NextHop::Link(self.links[4]));
            self.sim.set_route(r3, back, NextHop::Link(self.links[3]));
        }
    }

    fn far_end(&self, family: Family) -> IpAddr {
        self.sim.address(self.nodes[5], family)
    }

    /// Session 1 of s, to the plain host.
    fn open(&mut self, family: Family, forward: u32, reverse: u32) {
        let request = request(self.far_end(family), 5004, &[(forward, reverse)]);
        command(&mut self.sim, self.nodes[0], 1, Command::Open(request));
    }

    /// Links by which each node reserves, by direction, of the nodes s, r1, r2, r3 and r4.
    fn reserved(&self, reverse: bool) -> [Option<LinkId>; 5] {
        let held = held(&self.sim, &self.nodes);
        [0, 1, 2, 3, 4].map(|at| {
            let node = self.nodes[at];
            let ifindexes = held.keys().filter(|(n, _, _, back)| *n == node && *back == reverse);
            let ifindexes: Vec<IfIndex> = ifindexes.map(|(_, ifindex, ..)| *ifindex).collect();
            assert!(ifindexes.len() < 2, "{held:?}");
            // Only links of this node are asked for their number.
            let ends: [&[usize]; 5] = [&[0], &[0, 1, 3], &[1, 2], &[3, 4], &[2, 4, 5]];
            let links = ends[at].iter().map(|link| self.links[*link]);
            links.into_iter().find(|link| ifindexes.contains(&self.sim.ifindex(node, *link)))
        })
    }

    fn events(&self) -> Vec<BoomerangEvent> {
        let events = self.sim.events().iter().filter_map(|happened| match &happened.event {
            Event::Boomerang { event, .. } => Some(event.clone()),
            _ => None,
        });
        events.collect()
    }

    fn counters(&self, at: usize) -> boomerang::Counters {
        *self.sim.engine(self.nodes[at]).unwrap().node.boomerang().unwrap().counters()
    }
}

/// BOOM-1-01, BOOM-1-03, BOOM-F4.2-02: one loop reserves both directions, although the way back is another one; the far end
/// is a host that answers pings.
#[test]
fn one_loop_reserves_both_ways() {
    for family in FAMILIES {
        let mut net = Net::new(None);
        net.bend();
        net.sim.capture_all();
        net.open(family, 64_000, 32_000);
        net.sim.run_for(SECOND);
        let rates = Rates { forward: 64_000, reverse: 32_000 };
        assert_eq!(
            net.events(),
            [BoomerangEvent::Reserved { rates, refresh: 30, loops: 1, path: Path::default() }]
        );
        let [a, b, c, d, e, f] = net.links.map(Some);
        assert_eq!(net.reserved(false), [a, b, c, None, f]);
        assert_eq!(net.reserved(true), [None, a, None, d, e]);
        assert_eq!(net.sim.captured().count(), 8, "four links there, four back");
        command(&mut net.sim, net.nodes[0], 1, Command::Close);
        net.sim.run_for(SECOND);
        assert_eq!(World::left(&net.sim), None);
        assert_eq!(net.events().last(), Some(&BoomerangEvent::Closed { confirmed: false }));
        assert_eq!(net.sim.captured().count(), 16);
    }
}

/// BOOM-F4.2-04, BOOM-F4.2-10, BOOM-G17-02: the message comes back and names the node that refused, and what was reserved in
/// front of it is released at once.
#[test]
fn a_refusal_leaves_nothing_behind() {
    let mut net = Net::new(None);
    let [_, _, r2, _, r4, _] = net.nodes;
    // Of the links on the way, only the one from r2 to r4 is full, so that no other node lowers the rate.
    let other = request(net.sim.address_on(r4, net.links[2], Family::V4), 6000, &[(7_000_000, 0)]);
    command(&mut net.sim, r2, 9, Command::Open(other));
    net.sim.run_for(SECOND);
    net.sim.take_events();
    net.open(Family::V4, 1_000_000, 1_000_000);
    net.sim.run_for(SECOND);
    let node = Some(net.sim.address_on(r2, net.links[2], Family::V4));
    let offer = Rates { forward: 500_000, reverse: 1_000_000 };
    let refused = Refusal { offer, node, reason: Reason::Resources, note: None };
    assert_eq!(net.events(), [BoomerangEvent::Refused(refused)]);
    assert!(held(&net.sim, &net.nodes).keys().all(|(_, _, port, _)| *port == 6000));
}

/// Pings without the magic number never reach an engine, and are answered.
#[test]
fn pings_pass() {
    let mut net = Net::new(None);
    let [s, ..] = net.nodes;
    let dst = (net.far_end(Family::V4), 0).into();
    let src = (net.sim.address(s, Family::V4), 0).into();
    let payload = [8, 0, 0, 0, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8];
    net.sim.send(s, Packet { protocol: 1, ..Packet::new(src, dst, payload) }).unwrap();
    net.sim.run_for(SECOND);
    let counters = net.sim.counters();
    assert_eq!((counters.intercepted, counters.delivered, counters.echoed), (0, 0, 1));
}

/// BOOM-F3.6.1-01, BOOM-F6.1-02: a router whose daemon has crashed forwards the messages. When it is back, it reserves with the next refresh.
#[test]
fn a_dead_daemon_is_no_obstacle() {
    let mut net = Net::new(None);
    let [_, _, r2, ..] = net.nodes;
    net.open(Family::V6, 64_000, 0);
    net.sim.run_for(SECOND);
    net.sim.crash(r2);
    net.sim.run_for(SECOND * 200);
    assert_eq!(net.events().len(), 1, "{:?}", net.events());
    net.sim.restart(r2);
    assert!(net.reserved(false)[2].is_none());
    net.sim.run_for(SECOND * 30);
    assert!(net.reserved(false)[2].is_some());
}

/// BOOM-F3.5-03: the next message reserves on the new path, and what the old one holds expires.
#[test]
fn a_reservation_moves_with_the_route() {
    let mut net = Net::new(None);
    net.open(Family::V4, 64_000, 64_000);
    net.sim.run_for(SECOND);
    net.sim.set_cost(net.links[3], 1);
    net.sim.set_cost(net.links[4], 1);
    net.sim.set_cost(net.links[1], 5);
    net.sim.run_for(SECOND * 30);
    let [a, _, c, d, e, f] = net.links.map(Some);
    assert_eq!(net.reserved(false), [a, d, c, e, f]);
    net.sim.run_for(SECOND * 105);
    assert_eq!(net.reserved(false), [a, d, None, e, f]);
    assert_eq!(net.reserved(true), [None, a, None, d, e]);
    assert_eq!(net.events().len(), 1);
}

/// The address of an interface that is down belongs to its node: replies to it arrive by another way.
#[test]
fn a_session_survives_its_first_link() {
    for family in FAMILIES {
        let mut net = Net::new(None);
        let [s, _, _, r3, ..] = net.nodes;
        net.sim.link(s, r3, &LinkConfig::default());
        net.open(family, 64_000, 64_000);
        net.sim.run_for(SECOND);
        let [a, b, c, _, e, f] = net.links.map(Some);
        assert_eq!(net.reserved(false), [a, b, c, None, f]);
        net.sim.set_link_up(net.links[0], false);
        net.sim.run_for(SECOND * 300);
        assert_eq!(net.events().len(), 1, "{:?}", net.events());
        assert_eq!(net.reserved(false)[1..], [None, None, e, f]);
        assert_eq!(net.counters(0).hops_exceeded, 0);
    }
}

/// BOOM-G10-02, BOOM-3.2.1-16: a node that demands a proof has other numbers after a restart, which have options of their own.
/// The session begins the proof again, and its user does not notice.
#[test]
fn a_proof_begins_again() {
    let mut net = Net::new(Some("r1"));
    let [_, r1, ..] = net.nodes;
    net.open(Family::V4, 64_000, 64_000);
    net.sim.run_for(SECOND);
    let rates = Rates { forward: 64_000, reverse: 64_000 };
    assert_eq!(
        net.events(),
        [BoomerangEvent::Reserved { rates, refresh: 30, loops: 2, path: Path::default() }]
    );
    for _ in 0..3 {
        net.sim.restart(r1);
        net.sim.run_for(SECOND * 31);
        assert_eq!(net.events().len(), 1, "{:?}", net.events());
        assert_eq!((net.counters(1).created, net.reserved(false)[1]), (2, Some(net.links[1])));
    }
}
