//! Multicast: members of groups, and the routes that a test sets.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use signalbox_core::IfIndex;
use signalbox_core::node::{Input, NodeEngine};

use super::Sim;
use crate::config::{LinkId, NodeId};
use crate::packet::Packet;

/// Multicast state of a node.
#[derive(Default)]
pub(super) struct Multicast {
    groups: BTreeSet<IpAddr>,
    /// Routes by group and source.
    routes: BTreeMap<(IpAddr, IpAddr), Branches>,
    /// Groups and sources that the engine asked for and whose changes are reported to it.
    asked: BTreeSet<(IpAddr, IpAddr)>,
}

#[derive(Clone, Default)]
struct Branches {
    iif: IfIndex,
    oifs: Vec<IfIndex>,
}

impl Multicast {
    pub(super) fn ask(&mut self, group: IpAddr, source: IpAddr) {
        self.asked.insert((group, source));
    }

    pub(super) fn remove(&mut self, group: IpAddr, source: IpAddr) {
        self.asked.remove(&(group, source));
    }

    pub(super) fn clear_asked(&mut self) {
        self.asked.clear();
    }
}

impl<N: NodeEngine> Sim<N> {
    /// Makes the node a member of the group.
    pub fn join(&mut self, node: NodeId, group: IpAddr) {
        self.nodes[node.at()].multicast.groups.insert(group);
    }

    /// Ends [`Sim::join`].
    pub fn leave(&mut self, node: NodeId, group: IpAddr) {
        self.nodes[node.at()].multicast.groups.remove(&group);
    }

    /// Sets the node's route for packets from `source` to `group`, and reports it to the engine if the engine
    /// asked for it. Packets come in by `iif` (`None`: the node is their source) and leave by `oifs`. An
    /// empty `oifs` removes the route.
    ///
    /// # Panics
    /// It panics if the node is not at one of the links.
    pub fn set_multicast_route(
        &mut self,
        node: NodeId,
        group: IpAddr,
        source: IpAddr,
        iif: Option<LinkId>,
        oifs: &[LinkId],
    ) {
        let branches = Branches {
            iif: iif.map_or(IfIndex::NONE, |link| self.ifindex(node, link)),
            oifs: oifs.iter().map(|link| self.ifindex(node, *link)).collect(),
        };
        let state = &mut self.nodes[node.at()].multicast;
        if branches.oifs.is_empty() {
            state.routes.remove(&(group, source));
        } else {
            state.routes.insert((group, source), branches);
        }
        if state.asked.contains(&(group, source)) {
            self.report_multicast(node, group, source);
        }
    }

    /// Reports the present route to the engine.
    pub(super) fn report_multicast(&mut self, node: NodeId, group: IpAddr, source: IpAddr) {
        let route = self.nodes[node.at()].multicast.routes.get(&(group, source)).cloned();
        let Branches { iif, oifs } = route.unwrap_or_default();
        self.drive(node, Input::Multicast { group, source, iif, oifs: &oifs });
    }

    /// Handles a multicast packet at a node: it is intercepted by its Router Alert as in Linux, or delivered
    /// to a member and forwarded.
    pub(super) fn arrive_multicast(&mut self, node: NodeId, ifindex: IfIndex, mut packet: Packet) {
        let state = &self.nodes[node.at()].multicast;
        let key = (packet.dst.ip(), packet.src.ip());
        let member = state.groups.contains(&key.0);
        let oifs =
            state.routes.get(&key).filter(|route| route.iif == ifindex).map(|route| route.oifs.clone());
        let interceptor = self.interceptor(node, &packet, (ifindex, true, None)).filter(|_| !member);
        if let Some(entry) = interceptor {
            self.counters.intercepted += 1;
            return self.drive(node, Input::Packet(packet.received_by(entry, ifindex)));
        }
        if member {
            self.deliver(node, ifindex, &packet);
        }
        let Some(oifs) = oifs else {
            self.counters.unrouted += u64::from(!member);
            return;
        };
        if packet.ttl <= 1 {
            self.counters.ttl_expired += 1;
            return;
        }
        packet.ttl -= 1;
        for oif in oifs {
            if let Some((link, end)) =
                self.network.port(node, oif).filter(|(link, _)| self.network.is_up(*link))
            {
                self.counters.forwarded += 1;
                self.carry(link, end, packet.clone());
            }
        }
    }
}
