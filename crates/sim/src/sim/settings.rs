//! Settings that a test can change during a run: links, routes, interception, captures.

use core::time::Duration;

use signalbox_core::node::{NodeEngine, Prefix};
use signalbox_core::{Entry, Time};

use super::Sim;
use crate::config::{Impairment, LinkId, NextHop, NodeId};
use crate::packet::Packet;
use crate::stream::StreamConfig;

impl<N: NodeEngine> Sim<N> {
    /// Sets whether the node's engine receives packets that pass by, according to the interception rules of
    /// its entries. At first it is on.
    pub fn set_interception(&mut self, node: NodeId, on: bool) {
        self.nodes[node.at()].interception = on;
    }

    /// Sets whether the node's driver opens this port of entry if the engine asks for it. At first it is on.
    /// If it is off, the node is a hop without support for the protocol.
    pub fn set_entry(&mut self, node: NodeId, entry: Entry, on: bool) {
        let closed = &mut self.nodes[node.at()].closed;
        if on {
            closed.remove(&entry);
        } else {
            closed.insert(entry);
        }
    }

    /// Sets the impairment of the link in both directions, from now on.
    pub fn set_impairment(&mut self, link: LinkId, impairment: Impairment) {
        self.network.link_mut(link).impairment = [impairment; 2];
    }

    /// Takes a link down or up. The engines at both ends are notified, the paths in use are computed again,
    /// and nodes whose routes changed are notified of that. Packets in transit still arrive.
    pub fn set_link_up(&mut self, link: LinkId, up: bool) {
        if self.network.is_up(link) == up {
            return;
        }
        let changes = self.network.set_up(link, up);
        self.report_ends(link);
        self.report_routes(changes);
    }

    /// Changes the cost of the link for shortest paths. Nodes whose routes changed are notified.
    pub fn set_cost(&mut self, link: LinkId, cost: u32) {
        let changes = self.network.set_cost(link, cost);
        self.report_routes(changes);
    }

    /// Sets a route at one node, which precedes all shortest paths, and notifies its engine.
    pub fn set_route(&mut self, node: NodeId, prefix: Prefix, hop: NextHop) {
        self.network.set_route(node, prefix, Some(hop));
        self.report_routes(vec![(node, prefix)]);
    }

    /// Removes a route that was set, and notifies the node's engine.
    pub fn remove_route(&mut self, node: NodeId, prefix: Prefix) {
        self.network.set_route(node, prefix, None);
        self.report_routes(vec![(node, prefix)]);
    }

    /// Sets the delay of answers to route lookups. At first it is zero: the answer comes at once, though not
    /// within the same input.
    pub fn set_lookup_delay(&mut self, delay: Duration) {
        self.lookup_delay = delay;
    }

    /// Sets the limit on the events of one run (20 million at first). A run that needs more panics.
    pub fn set_step_limit(&mut self, steps: u64) {
        self.step_limit = steps;
    }

    /// Sets the behaviour of streams from now on.
    ///
    /// # Panics
    /// It panics if the segment size or the window is 0.
    pub fn set_stream_config(&mut self, config: StreamConfig) {
        assert!(config.segment > 0 && config.window > 0, "segments need an octet (seed {})", self.seed);
        self.streams.config = config;
    }

    /// Occupies the port as another program would: the node's engine cannot listen at it.
    pub fn occupy_port(&mut self, node: NodeId, port: u16) {
        self.streams.listen(node, port);
    }

    /// Captures the link's packets in the log from now on.
    pub fn capture(&mut self, link: LinkId) {
        self.network.link_mut(link).captured = true;
    }

    /// Captures the packets of all present links in the log from now on.
    pub fn capture_all(&mut self) {
        self.network.links().for_each(|link| self.capture(link));
    }

    /// Sets a filter for the packets on the link. `drop` gets the time, the sending node and the packet, and
    /// returns true to drop the packet.
    pub fn set_filter(&mut self, link: LinkId, drop: impl FnMut(Time, NodeId, &Packet) -> bool + 'static) {
        self.network.link_mut(link).filter = Some(Box::new(drop));
    }
}
