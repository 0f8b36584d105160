//! A sender and a group whose data branch at two routers.
//!
//! ```text
//!            a         b
//!            |         |
//! s -------- r1 ------ r2 --- c
//! ```

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::IfIndex;
use signalbox_core::hops::Path;
use signalbox_core::node::Prefix;
use signalbox_node::boomerang::{self, BoomerangEvent, Command, Rates};
use signalbox_node::resources::{Config as Resources, Rate, config::LinkConfig as Capacity};
use signalbox_node::{Config, Event};
use signalbox_sim::{Family, LinkConfig, LinkId, NextHop, NodeId, Sim};

use super::net::{Host, command, held, request};
use super::world::World;

const SECOND: Duration = Duration::from_secs(1);
/// The interval of requests to a group.
const INTERVAL: Duration = Duration::from_secs(3);
/// Three quarters of 10 Mbit/s, octets a second.
const SHARE: u64 = 937_500;
const GROUP: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(232, 1, 1, 1));

struct Net {
    sim: Sim<Host>,
    /// The nodes s, r1, r2; the hosts a, b, c are plain.
    nodes: [NodeId; 3],
    /// The links s–r1, r1–a, r1–r2, r2–b, r2–c.
    links: [LinkId; 5],
}

impl Net {
    fn new() -> Self {
        let mut sim = Sim::new(11);
        let config = Config {
            boomerang: Some(boomerang::Config::default()),
            resources: Resources {
                links: vec![Capacity::new("*", Some(Rate(SHARE / 3 * 4)))],
                ..Resources::default()
            },
            ..Config::empty()
        };
        let shares: BTreeMap<IfIndex, u64> = (1..6).map(|n| (IfIndex(n), SHARE)).collect();
        let nodes = ["s", "r1", "r2"].map(|name| {
            let (config, shares) = (config.clone(), shares.clone());
            sim.add_engine(name, move |boot| Host::new(boot, config.clone(), shares.clone()))
        });
        let [a, b, c] = ["a", "b", "c"].map(|name| sim.add_router(name));
        let [s, r1, r2] = nodes;
        let mut link = |one, other| sim.link(one, other, &LinkConfig::default());
        let links = [link(s, r1), link(r1, a), link(r1, r2), link(r2, b), link(r2, c)];
        [a, b, c].into_iter().for_each(|host| sim.join(host, GROUP));
        sim.set_route(s, Prefix::host(GROUP), NextHop::Link(links[0]));
        sim.run_for(Duration::ZERO);
        let mut net = Self { sim, nodes, links };
        net.branch(1, 0, &[1, 2]);
        net
    }

    /// Lays the multicast route of a node over these links.
    fn branch(&mut self, node: usize, from: usize, to: &[usize]) {
        let source = self.sim.address(self.nodes[0], Family::V4);
        let to: Vec<LinkId> = to.iter().map(|link| self.links[*link]).collect();
        self.sim.set_multicast_route(self.nodes[node], GROUP, source, Some(self.links[from]), &to);
    }

    /// The links by which data have a reservation.
    fn reserved(&self) -> Vec<usize> {
        let held = held(&self.sim, &self.nodes);
        let senders = [(0, 0), (1, 1), (1, 2), (2, 3), (2, 4)];
        let is_held = |(node, link): &(usize, usize)| {
            let node = self.nodes[*node];
            let ifindex = self.sim.ifindex(node, self.links[*link]);
            held.keys().any(|(at, by, _, reverse)| (*at, *by, *reverse) == (node, ifindex, false))
        };
        senders.iter().filter(|one| is_held(one)).map(|(_, link)| *link).collect()
    }
}

/// BOOM-F5.3-04: each branch of a group has the reservation within one interval: after it was joined, and after its router
/// restarted. The reservation at a branch that was left expires. One message releases the tree.
#[test]
fn a_tree_is_reserved_as_it_grows() {
    let mut net = Net::new();
    net.branch(2, 2, &[3]);
    let [s, _, r2] = net.nodes;
    let open = Command::Open(request(GROUP, 5004, &[(64_000, 0)]));
    command(&mut net.sim, s, 1, open);
    net.sim.run_for(SECOND);
    assert_eq!(net.reserved(), [0, 1, 2, 3]);
    net.branch(2, 2, &[3, 4]);
    net.sim.run_for(INTERVAL);
    assert_eq!(net.reserved(), [0, 1, 2, 3, 4], "a new branch");
    net.sim.restart(r2);
    net.sim.run_for(INTERVAL);
    assert_eq!(net.reserved(), [0, 1, 2, 3, 4], "after a new start");
    net.branch(2, 2, &[4]);
    net.sim.run_for(INTERVAL * 4);
    assert_eq!(net.reserved(), [0, 1, 2, 4], "a branch that was left");
    command(&mut net.sim, s, 1, Command::Close);
    net.sim.run_for(SECOND);
    assert_eq!(World::left(&net.sim), None);
    let events: Vec<_> = net.sim.events().iter().map(|happened| happened.event.clone()).collect();
    let rates = Rates { forward: 64_000, reverse: 0 };
    let granted = BoomerangEvent::Reserved { rates, refresh: 3, loops: 1, path: Path::default() };
    let ended = BoomerangEvent::Closed { confirmed: false };
    assert_eq!(events, [granted, ended].map(|event| Event::Boomerang { id: 1, event }));
}
