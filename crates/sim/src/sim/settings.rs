//! How the network behaves from now on: links, routes, what nodes take, what is captured.

use core::time::Duration;

use signalbox_core::node::{NodeEngine, Prefix};
use signalbox_core::{Entry, Time};

use super::Sim;
use crate::config::{Impairment, LinkId, NextHop, NodeId};
use crate::packet::Packet;
use crate::stream::StreamConfig;

impl<N: NodeEngine> Sim<N> {
    /// Whether the node's engine receives packets that pass by, by the interception rules of its entries. On at first.
    pub fn set_interception(&mut self, node: NodeId, on: bool) {
        self.nodes[node.at()].interception = on;
    }

    /// Whether the node's driver opens this port of entry if the engine asks for it. On at first; off makes the node a hop
    /// that does not know the protocol.
    pub fn set_entry(&mut self, node: NodeId, entry: Entry, on: bool) {
        let closed = &mut self.nodes[node.at()].closed;
        if on {
            closed.remove(&entry);
        } else {
            closed.insert(entry);
        }
    }

    /// What the link does to packets in both directions, from now on.
    pub fn set_impairment(&mut self, link: LinkId, impairment: Impairment) {
        self.network.link_mut(link).impairment = [impairment; 2];
    }

    /// What the link does to packets that `from` sends.
    pub fn set_impairment_from(&mut self, link: LinkId, from: NodeId, impairment: Impairment) {
        let end = self.network.end_of(link, from);
        self.network.link_mut(link).impairment[end] = impairment;
    }

    /// Takes a link down or up. Both ends' engines hear of it, every path in use is found anew, and nodes whose
    /// routes changed hear of that. Packets under way still arrive.
    pub fn set_link_up(&mut self, link: LinkId, up: bool) {
        if self.network.is_up(link) == up {
            return;
        }
        let changes = self.network.set_up(link, up);
        self.tell_ends(link);
        self.tell_routes(changes);
    }

    /// Changes what the link adds to the length of paths; nodes whose routes changed hear of it.
    pub fn set_cost(&mut self, link: LinkId, cost: u32) {
        let changes = self.network.set_cost(link, cost);
        self.tell_routes(changes);
    }

    /// Sets a route at one node, before all shortest paths, and tells its engine.
    pub fn set_route(&mut self, node: NodeId, prefix: Prefix, hop: NextHop) {
        self.network.set_route(node, prefix, Some(hop));
        self.tell_routes(vec![(node, prefix)]);
    }

    /// Removes a route that was set, and tells the node's engine.
    pub fn remove_route(&mut self, node: NodeId, prefix: Prefix) {
        self.network.set_route(node, prefix, None);
        self.tell_routes(vec![(node, prefix)]);
    }

    /// Answers route lookups after this time. Zero at first: at once, though not within the same input.
    pub fn set_lookup_delay(&mut self, delay: Duration) {
        self.lookup_delay = delay;
    }

    /// Most events of one run (20 million at first); a run that needs more panics.
    pub fn set_step_limit(&mut self, steps: u64) {
        self.step_limit = steps;
    }

    /// How streams behave from now on.
    ///
    /// # Panics
    /// If no segment would have an octet.
    pub fn set_stream_config(&mut self, config: StreamConfig) {
        assert!(config.segment > 0 && config.window > 0, "segments need an octet (seed {})", self.seed);
        self.streams.config = config;
    }

    /// Lets another program have the port: the node's engine will not be able to listen there.
    pub fn occupy_port(&mut self, node: NodeId, port: u16) {
        self.streams.listen(node, port);
    }

    /// Puts the link's packets into the log from now on.
    pub fn capture(&mut self, link: LinkId) {
        self.network.link_mut(link).captured = true;
    }

    /// Puts the packets of all present links into the log from now on.
    pub fn capture_all(&mut self) {
        self.network.links().for_each(|link| self.capture(link));
    }

    /// Lets `drop` see each packet on the link, with the time and its sender: true takes it out.
    pub fn set_filter(&mut self, link: LinkId, drop: impl FnMut(Time, NodeId, &Packet) -> bool + 'static) {
        self.network.link_mut(link).filter = Some(Box::new(drop));
    }

    /// Removes the link's filter.
    pub fn clear_filter(&mut self, link: LinkId) {
        self.network.link_mut(link).filter = None;
    }
}
