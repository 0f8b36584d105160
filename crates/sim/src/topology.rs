//! Helpers that join nodes.

use signalbox_core::node::NodeEngine;

use crate::config::{LinkConfig, LinkId, NodeId};
use crate::sim::Sim;

/// Number of the [`Sim::random`] generator that [`connected`] uses.
const STREAM: u32 = u32::MAX;

/// Joins each node with the next. Returns the links in order.
pub fn chain<N: NodeEngine>(sim: &mut Sim<N>, nodes: &[NodeId], config: &LinkConfig) -> Vec<LinkId> {
    nodes.windows(2).map(|pair| sim.link(pair[0], pair[1], config)).collect()
}

/// Joins each node with the next, and the last with the first.
pub fn ring<N: NodeEngine>(sim: &mut Sim<N>, nodes: &[NodeId], config: &LinkConfig) -> Vec<LinkId> {
    let mut links = chain(sim, nodes, config);
    if let [first, _, .., last] = nodes {
        links.push(sim.link(*last, *first, config));
    }
    links
}

/// Joins all nodes at random: each with one of those before it, then `extra` random pairs (a node paired
/// with itself gets no link). The choice follows from the seed of the simulation.
pub fn connected<N: NodeEngine>(
    sim: &mut Sim<N>,
    nodes: &[NodeId],
    extra: usize,
    config: &LinkConfig,
) -> Vec<LinkId> {
    let mut random = sim.random(STREAM);
    let mut below = |n: usize| usize::try_from(random.range(0..n as u64)).unwrap_or(0);
    let mut links = Vec::with_capacity(nodes.len() + extra);
    for (at, node) in nodes.iter().enumerate().skip(1) {
        links.push(sim.link(nodes[below(at)], *node, config));
    }
    for _ in 0..extra {
        let (a, b) = (below(nodes.len()), below(nodes.len()));
        if a != b {
            links.push(sim.link(nodes[a], nodes[b], config));
        }
    }
    links
}
