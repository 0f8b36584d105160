//! Shortest paths over the links that are up.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::config::NodeId;

/// An edge from one node: where it leads, what it costs, and by which of the node's interfaces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edge {
    pub(crate) to: NodeId,
    pub(crate) cost: u32,
    /// Position among the interfaces of the node at the far end of the edge, leading back.
    pub(crate) back: u32,
}

/// No path.
pub(crate) const NO_PATH: u32 = u32::MAX;

/// For each node, the position of its interface towards `destination`, or [`NO_PATH`]. Of equally short ways
/// the one found from the node with the lower number, by its first interface, is taken.
pub(crate) fn towards<I: Iterator<Item = Edge>>(
    destination: NodeId,
    nodes: usize,
    edges: impl Fn(NodeId) -> I,
) -> Box<[u32]> {
    let mut interface = vec![NO_PATH; nodes].into_boxed_slice();
    let mut distance = vec![u64::MAX; nodes];
    let mut open = BinaryHeap::from([Reverse((0, destination))]);
    distance[destination.at()] = 0;
    while let Some(Reverse((far, node))) = open.pop() {
        if far > distance[node.at()] {
            continue;
        }
        for edge in edges(node) {
            let farther = far + u64::from(edge.cost.max(1));
            if farther < distance[edge.to.at()] {
                distance[edge.to.at()] = farther;
                interface[edge.to.at()] = edge.back;
                open.push(Reverse((farther, edge.to)));
            }
        }
    }
    interface
}
