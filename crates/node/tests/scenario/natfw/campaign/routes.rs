//! Two ways between two hosts, with a firewall or NAT on each. Links fail and return, and costs change, so that the flows take
//! the other way.

use core::time::Duration;

use signalbox_node::Node;
use signalbox_node::natfw::Middlebox;
use signalbox_sim::{LinkConfig, Sim};

use super::super::net::{Kind, Net};
use super::path::Paths;
use super::{World, campaign, settings};

/// Places of the nodes: host, router, first way, router, host, and the second way.
const FIRST: usize = 2;
const SECOND: usize = 5;

fn run(seed: u64) {
    let mut random = Sim::<Node>::new(seed).random(1);
    let way = match random.range(0..3) {
        0 => Kind::Left(Middlebox::Nat),
        1 => Kind::Right(Middlebox::Firewall),
        _ => Kind::Left(Middlebox::Firewall),
    };
    let kinds = [Kind::Host, Kind::Plain, way, Kind::Plain, Kind::Host];
    let mut net = Net::with(seed, &kinds, |_, config| settings(config));
    let longer = LinkConfig { cost: 2, ..LinkConfig::default() };
    net.add_between(way, [1, 3], &longer, |_, config| settings(config));
    let ways = [(FIRST, [1, 2]), (SECOND, [4, 5])];
    let kinds = [&kinds[..], &[way]].concat();
    let world = World::new(net, &kinds, random, |pinhole| pinhole.packets.dst_port);
    let nat = way == Kind::Left(Middlebox::Nat);
    let mut paths = Paths { world, wanted: Vec::new(), last: 4, nat };
    for _ in 0..3 {
        paths.open();
    }
    for _ in 0..8 {
        let pause = Duration::from_millis(300 + paths.world.random.range(0..2500));
        paths.pass(pause);
        let (_, links) = ways[paths.world.below(2)];
        let link = links[paths.world.below(2)];
        let link = paths.world.net.links[link];
        match paths.world.random.range(0..6) {
            0 | 1 => paths.world.net.sim.set_link_up(link, false),
            2 => paths.world.net.sim.set_link_up(link, true),
            3 | 4 => {
                let cost = 1 + u32::try_from(paths.world.random.range(0..4)).unwrap();
                links.into_iter().for_each(|at| {
                    let link = paths.world.net.links[at];
                    paths.world.net.sim.set_cost(link, cost);
                });
            }
            _ => paths.world.inject_fault(),
        }
        paths.act();
    }
    paths.pass(Duration::from_secs(1));
    // In the end the second way is the shorter one, or the first one.
    let (on, off) = if paths.world.random.chance(0.5) { (0, 1) } else { (1, 0) };
    for (way, cost) in [(on, 1), (off, 5)] {
        ways[way].1.into_iter().for_each(|at| {
            let link = paths.world.net.links[at];
            paths.world.net.sim.set_cost(link, cost);
        });
    }
    let on_path = paths.world.net.nodes[ways[on].0];
    paths.settle(&[on_path]);
}

#[test]
fn passages_follow_the_routes_and_leave_the_former_ones() {
    campaign(run);
}
