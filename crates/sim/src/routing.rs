//! Shortest paths over the links that are up.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::config::NodeId;

/// An edge from one node: its far end, its cost, and the interface by which it leads back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edge {
    pub(crate) to: NodeId,
    pub(crate) cost: u32,
    /// Position of the edge among the interfaces of the node at its far end.
    pub(crate) back: u32,
}

/// Value for a node that has no path.
pub(crate) const NO_PATH: u32 = u32::MAX;

/// For each node, the position of its interface towards `destination`, or [`NO_PATH`]. Among paths of equal
/// length, it chooses the one found from the node with the lowest number, by its first interface.
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
