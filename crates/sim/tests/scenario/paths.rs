//! Shortest paths and topologies, compared with the simplest algorithm.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use signalbox_sim::{Family, LinkConfig, NodeId, Packet, Sim, topology};

use crate::toy::{MAGIC, Toy};

const TTL: u8 = 64;

/// The length of the shortest path between each two nodes (Floyd–Warshall).
fn distances(nodes: usize, links: &[(usize, usize, u32)]) -> Vec<Vec<u32>> {
    let mut far = vec![vec![u32::MAX / 2; nodes]; nodes];
    for (at, row) in far.iter_mut().enumerate() {
        row[at] = 0;
    }
    for &(a, b, cost) in links {
        far[a][b] = far[a][b].min(cost);
        far[b][a] = far[a][b];
    }
    for by in 0..nodes {
        let through = far[by].clone();
        for row in &mut far {
            let there = row[by];
            for (to, on) in row.iter_mut().zip(&through) {
                *to = (*to).min(there + on);
            }
        }
    }
    far
}

/// Sends a packet from each node to each other node and takes those that arrive: from, to, TTL.
fn reached(sim: &mut Sim<Toy>, nodes: &[NodeId]) -> BTreeSet<(NodeId, NodeId, u8)> {
    let mut reached = BTreeSet::new();
    for &from in nodes {
        for &to in nodes.iter().filter(|to| **to != from) {
            let ends = [from, to].map(|n| (sim.address(n, Family::V6), 270).into());
            sim.take_events();
            if sim.send(from, Packet { ttl: TTL, ..Packet::new(ends[0], ends[1], MAGIC) }).is_err() {
                continue;
            }
            sim.run_for(Duration::from_secs(1));
            for happened in sim.take_events() {
                if let crate::toy::Event::Received { ttl, .. } = happened.event {
                    assert_eq!(happened.node, to);
                    reached.insert((from, to, ttl));
                }
            }
        }
    }
    reached
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// In any network, with any link down, each reachable node is reached, by a shortest path.
    #[test]
    fn packets_take_a_shortest_path(
        count in 2u32..9,
        pairs in prop::collection::vec((0usize..9, 0usize..9), 1..14),
        down in 0usize..14,
    ) {
        let mut sim = Sim::new(3);
        let nodes = sim.add_engines(count, Toy::new);
        // Loopback addresses, so that paths lead to nodes and not to one of their links.
        for node in &nodes {
            sim.add_address(*node, format!("fd01::{:x}", node.0 + 1).parse().unwrap());
        }
        let pairs = pairs.into_iter().map(|(a, b)| (a % nodes.len(), b % nodes.len())).filter(|(a, b)| a != b);
        let pairs: Vec<_> = pairs.collect();
        let links: Vec<_> =
            pairs.iter().map(|(a, b)| sim.link(nodes[*a], nodes[*b], &LinkConfig::default())).collect();
        for broken in [None, Some(down % links.len().max(1))] {
            if let Some(link) = broken.and_then(|at| links.get(at)) {
                sim.set_link_up(*link, false);
            }
            let whole = pairs.iter().enumerate().filter(|(at, _)| Some(*at) != broken);
            let far = distances(nodes.len(), &whole.map(|(_, (a, b))| (*a, *b, 1)).collect::<Vec<_>>());
            let mut expected = BTreeSet::new();
            for (from, row) in nodes.iter().zip(&far) {
                for (to, hops) in nodes.iter().zip(row).filter(|(_, hops)| (1..99).contains(*hops)) {
                    expected.insert((*from, *to, TTL + 1 - u8::try_from(*hops).unwrap()));
                }
            }
            prop_assert_eq!(reached(&mut sim, &nodes), expected);
        }
    }

    /// Random topologies are connected, whatever the seed.
    #[test]
    fn random_topologies_are_connected(seed: u64, count in 1u32..12, extra in 0usize..6) {
        let mut sim = Sim::new(seed);
        let nodes = sim.add_engines(count, Toy::new);
        let links = topology::connected(&mut sim, &nodes, extra, &LinkConfig::default());
        prop_assert!(links.len() + 1 >= nodes.len() && links.len() < nodes.len() + extra);
        if count > 1 {
            prop_assert_eq!(reached(&mut sim, &nodes).len(), nodes.len() * (nodes.len() - 1));
        }
    }
}

#[test]
fn the_cheaper_way_around_is_taken() {
    let mut sim = Sim::new(1);
    let nodes = sim.add_engines(3, Toy::new);
    let dear = LinkConfig { cost: 3, ..LinkConfig::default() };
    sim.link(nodes[0], nodes[2], &dear);
    topology::chain(&mut sim, &nodes, &LinkConfig::default());
    for node in &nodes {
        sim.add_address(*node, format!("fd01::{:x}", node.0 + 1).parse().unwrap());
    }
    assert!(reached(&mut sim, &nodes).contains(&(nodes[0], nodes[2], TTL - 1)));
}
