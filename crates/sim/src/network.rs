//! Nodes, links, addresses and routes of a network, without the engines.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::BTreeMap;

use signalbox_core::node::{Interface, NoRoute, Prefix, Route, RouteQuery};
use signalbox_core::{IfIndex, Random, Time};

use crate::config::{Family, Impairment, LinkConfig, LinkId, NextHop, NodeId};
use crate::packet::Packet;
use crate::routing::{self, Edge, NO_PATH};
use crate::seed::{Purpose, stream};

/// Index of the loopback interface. It comes first, as in Linux; links follow.
const LOOPBACK: IfIndex = IfIndex(1);
const LOOPBACK_MTU: u32 = 65_536;

/// A test's filter of packets. Its parameters are the time, the sending node and the packet; it returns true
/// to drop the packet.
pub(crate) type Filter = Box<dyn FnMut(Time, NodeId, &Packet) -> bool>;

pub(crate) struct Network {
    seed: u64,
    hosts: Vec<Host>,
    links: Vec<Link>,
    owners: BTreeMap<IpAddr, NodeId>,
    /// By destination node: the port of each node towards it, once it was needed.
    paths: Vec<Option<Box<[u32]>>>,
}

struct Host {
    name: String,
    ports: Vec<Port>,
    extra: Vec<IpAddr>,
    routes: Vec<(Prefix, NextHop)>,
    /// Whether it forwards packets to others.
    forwards: bool,
}

/// A node's end of a link.
struct Port {
    /// Name of the interface.
    name: String,
    link: LinkId,
    end: usize,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
}

impl Port {
    const fn address(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => IpAddr::V4(self.v4),
            Family::V6 => IpAddr::V6(self.v6),
        }
    }
}

pub(crate) struct Link {
    /// Node at each end, and the link's position among that node's ports.
    ends: [(NodeId, u32); 2],
    up: bool,
    mtu: u32,
    cost: u32,
    /// Impairment, by sending end.
    pub(crate) impairment: [Impairment; 2],
    /// Random generator, by sending end.
    pub(crate) random: [Random; 2],
    pub(crate) captured: bool,
    pub(crate) filter: Option<Filter>,
}

impl Link {
    pub(crate) const fn node(&self, end: usize) -> NodeId {
        self.ends[end].0
    }
}

/// Next step of a packet at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// The node itself is the destination.
    Local,
    /// The packet leaves by this link, from this end of it.
    Out { link: LinkId, end: usize },
}

/// A node whose routes changed, and the destinations of these routes.
pub(crate) type RouteChange = (NodeId, Prefix);

impl Network {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed, hosts: Vec::new(), links: Vec::new(), owners: BTreeMap::new(), paths: Vec::new() }
    }

    pub(crate) fn add_host(&mut self, name: String) -> NodeId {
        let id = NodeId(u32::try_from(self.hosts.len()).expect("fewer than 2^32 nodes"));
        self.hosts.push(Host {
            name,
            ports: Vec::new(),
            extra: Vec::new(),
            routes: Vec::new(),
            forwards: true,
        });
        self.paths.iter_mut().for_each(|p| *p = None);
        self.paths.push(None);
        id
    }

    pub(crate) fn add_link(
        &mut self,
        a: NodeId,
        b: NodeId,
        config: &LinkConfig,
    ) -> (LinkId, Vec<RouteChange>) {
        let number = u32::try_from(self.links.len()).expect("fewer than 2^32 links");
        let id = LinkId(number);
        let mut ends = [(a, 0), (b, 0)];
        for (end, host) in (0u8..).zip(&mut ends) {
            let node = host.0;
            // Each link has one net: a /30 of 10.0.0.0/8 and a /64 of fd00::/16.
            let v4 = Ipv4Addr::from_bits(0x0a00_0000 + number * 4 + 1 + u32::from(end));
            let v6 = Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(number) << 64 | (u128::from(end) + 1));
            let ports = &mut self.hosts[node.at()].ports;
            host.1 = u32::try_from(ports.len()).expect("fewer than 2^32 ports");
            let name = format!("eth{}", ports.len());
            ports.push(Port { name, link: id, end: usize::from(end), v4, v6 });
            self.owners.insert(IpAddr::V4(v4), node);
            self.owners.insert(IpAddr::V6(v6), node);
        }
        self.links.push(Link {
            ends,
            up: true,
            mtu: config.mtu,
            cost: config.cost,
            impairment: [config.impairment; 2],
            random: [
                stream(self.seed, Purpose::Link, number, 0),
                stream(self.seed, Purpose::Link, number, 1),
            ],
            captured: false,
            filter: None,
        });
        (id, self.recompute())
    }

    pub(crate) fn add_address(&mut self, node: NodeId, addr: IpAddr) {
        self.hosts[node.at()].extra.push(addr);
        self.owners.insert(addr, node);
    }

    /// Gives the interface at this end of the link another name.
    pub(crate) fn set_interface_name(&mut self, link: LinkId, end: usize, name: String) {
        self.port_mut(link, end).name = name;
    }

    /// Replaces the address of the same IP version at this end of the link. Returns the routes that changed.
    pub(crate) fn set_address(&mut self, link: LinkId, end: usize, addr: IpAddr) -> Vec<RouteChange> {
        let port = self.port_mut(link, end);
        let old = match addr {
            IpAddr::V4(v4) => IpAddr::V4(core::mem::replace(&mut port.v4, v4)),
            IpAddr::V6(v6) => IpAddr::V6(core::mem::replace(&mut port.v6, v6)),
        };
        let node = self.link(link).node(end);
        // Another interface may have it by now.
        let kept = self.hosts[node.at()].ports.iter().any(|port| port.address(family_of(old)) == old);
        if self.owners.get(&old) == Some(&node) && !kept {
            self.owners.remove(&old);
        }
        self.owners.insert(addr, node);
        (0..self.hosts.len())
            .filter_map(|at| u32::try_from(at).ok().map(NodeId))
            .flat_map(|node| [old, addr].map(|addr| (node, Prefix::host(addr))))
            .collect()
    }

    fn port_mut(&mut self, link: LinkId, end: usize) -> &mut Port {
        let (node, position) = self.link(link).ends[end];
        &mut self.hosts[node.at()].ports[position as usize]
    }

    /// Whether the node forwards packets to others.
    pub(crate) fn forwards(&self, node: NodeId) -> bool {
        self.hosts[node.at()].forwards
    }

    pub(crate) fn set_forwards(&mut self, node: NodeId, on: bool) -> Vec<RouteChange> {
        self.hosts[node.at()].forwards = on;
        self.recompute()
    }

    pub(crate) fn name(&self, node: NodeId) -> &str {
        &self.hosts[node.at()].name
    }

    pub(crate) fn link(&self, link: LinkId) -> &Link {
        &self.links[link.at()]
    }

    pub(crate) fn link_mut(&mut self, link: LinkId) -> &mut Link {
        &mut self.links[link.at()]
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..u32::try_from(self.links.len()).unwrap_or(u32::MAX)).map(LinkId)
    }

    /// The end of `link` at `node`.
    pub(crate) fn end_of(&self, link: LinkId, node: NodeId) -> usize {
        match self.link(link).ends {
            [(a, _), _] if a == node => 0,
            [_, (b, _)] if b == node => 1,
            _ => panic!("{node} is not at {link} (seed {})", self.seed),
        }
    }

    pub(crate) fn ifindex(&self, link: LinkId, end: usize) -> IfIndex {
        IfIndex(self.link(link).ends[end].1 + LOOPBACK.0 + 1)
    }

    /// The name of an interface of a node; `None` for the loopback interface and unknown numbers.
    pub(crate) fn interface_name(&self, node: NodeId, ifindex: IfIndex) -> Option<&str> {
        let position = ifindex.0.checked_sub(LOOPBACK.0 + 1)?;
        self.hosts[node.at()].ports.get(position as usize).map(|port| port.name.as_str())
    }

    /// The link and end of an interface number; `None` for the loopback interface and unknown numbers.
    pub(crate) fn port(&self, node: NodeId, ifindex: IfIndex) -> Option<(LinkId, usize)> {
        let position = ifindex.0.checked_sub(LOOPBACK.0 + 1)?;
        self.hosts[node.at()].ports.get(position as usize).map(|p| (p.link, p.end))
    }

    pub(crate) fn is_up(&self, link: LinkId) -> bool {
        self.link(link).up
    }

    pub(crate) fn mtu(&self, link: LinkId) -> u32 {
        self.link(link).mtu
    }

    /// The node's address: an extra address if it has any, otherwise that of its first link.
    pub(crate) fn address(&self, node: NodeId, family: Family) -> Option<IpAddr> {
        let host = &self.hosts[node.at()];
        let extra = host.extra.iter().find(|a| a.is_ipv4() == (family == Family::V4)).copied();
        extra.or_else(|| host.ports.first().map(|p| p.address(family)))
    }

    pub(crate) fn address_on(&self, link: LinkId, end: usize, family: Family) -> IpAddr {
        let (node, position) = self.link(link).ends[end];
        self.hosts[node.at()].ports[position as usize].address(family)
    }

    pub(crate) fn interfaces(&self, node: NodeId) -> Vec<Interface> {
        let host = &self.hosts[node.at()];
        let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        addresses.extend(&host.extra);
        let loopback = Interface {
            ifindex: LOOPBACK,
            name: "lo".to_owned(),
            up: true,
            mtu: LOOPBACK_MTU,
            tunnel: false,
            addresses,
        };
        let ports = host.ports.iter().enumerate().map(|(position, port)| {
            let link_local = 0xfe80 << 112 | u128::from(node.0) << 16 | (position as u128 + 1);
            Interface {
                ifindex: self.ifindex(port.link, port.end),
                name: port.name.clone(),
                up: self.is_up(port.link),
                mtu: self.mtu(port.link),
                tunnel: false,
                addresses: vec![
                    IpAddr::V4(port.v4),
                    IpAddr::V6(port.v6),
                    IpAddr::V6(Ipv6Addr::from_bits(link_local)),
                ],
            }
        });
        core::iter::once(loopback).chain(ports).collect()
    }

    /// The next step of a packet to `dst` at `node`. It is the node itself, else the longest prefix among the
    /// routes that were set, else a link whose net contains `dst`, else the shortest path to the owner of
    /// `dst`.
    pub(crate) fn next_step(&mut self, node: NodeId, dst: IpAddr) -> Result<NextStep, NoRoute> {
        let owner = self.owners.get(&dst).copied();
        if owner == Some(node) || dst.is_loopback() {
            return Ok(NextStep::Local);
        }
        let host = &self.hosts[node.at()];
        let set = host.routes.iter().filter(|(prefix, hop)| {
            prefix.contains(dst) && !matches!(hop, NextHop::Link(link) if !self.is_up(*link))
        });
        match set.max_by_key(|(prefix, _)| prefix.len) {
            Some((_, NextHop::Link(link))) => {
                return Ok(NextStep::Out { link: *link, end: self.end_of(*link, node) });
            }
            Some((_, NextHop::Unreachable)) => return Err(NoRoute::Unreachable),
            Some((_, NextHop::Prohibited)) => return Err(NoRoute::Prohibited),
            None => {}
        }
        let on_link = host
            .ports
            .iter()
            .find(|p| self.is_up(p.link) && self.address_on(p.link, 1 - p.end, family_of(dst)) == dst);
        if let Some(port) = on_link {
            return Ok(NextStep::Out { link: port.link, end: port.end });
        }
        let owner = owner.ok_or(NoRoute::Unreachable)?;
        if self.paths[owner.at()].is_none() {
            self.paths[owner.at()] = Some(self.paths_to(owner));
        }
        let position = self.paths[owner.at()].as_ref().map_or(NO_PATH, |p| p[node.at()]);
        let port = self.hosts[node.at()].ports.get(position as usize).ok_or(NoRoute::Unreachable)?;
        Ok(NextStep::Out { link: port.link, end: port.end })
    }

    /// The answer to a node's question.
    pub(crate) fn lookup(&mut self, node: NodeId, query: &RouteQuery) -> Result<Route, NoRoute> {
        let ports = &self.hosts[node.at()].ports;
        let hidden = query.without.and_then(|without| {
            ports.iter().find(|port| self.ifindex(port.link, port.end) == without).map(|port| port.link)
        });
        let Some(link) = hidden.filter(|link| self.is_up(*link)) else { return self.route(node, query.dst) };
        // As if the link were down.
        let owner = self.owners.get(&query.dst).copied();
        let paths = owner.and_then(|owner| self.paths[owner.at()].take());
        self.link_mut(link).up = false;
        let answer = self.route(node, query.dst);
        self.link_mut(link).up = true;
        if let Some(owner) = owner {
            self.paths[owner.at()] = paths;
        }
        answer
    }

    /// [`Network::next_step`] in the form of the kernel's answer.
    pub(crate) fn route(&mut self, node: NodeId, dst: IpAddr) -> Result<Route, NoRoute> {
        Ok(match self.next_step(node, dst)? {
            NextStep::Local => {
                Route { ifindex: LOOPBACK, src: dst, gateway: None, mtu: LOOPBACK_MTU, local: true }
            }
            NextStep::Out { link, end } => {
                let family = family_of(dst);
                let peer = self.address_on(link, 1 - end, family);
                Route {
                    ifindex: self.ifindex(link, end),
                    src: self.address_on(link, end, family),
                    gateway: (peer != dst).then_some(peer),
                    mtu: self.mtu(link),
                    local: false,
                }
            }
        })
    }

    /// Replaces the route for exactly this prefix; `None` removes it.
    pub(crate) fn set_route(&mut self, node: NodeId, prefix: Prefix, hop: Option<NextHop>) {
        if let Some(NextHop::Link(link)) = hop {
            let _ = self.end_of(link, node); // panics if the node is not at the link
        }
        let routes = &mut self.hosts[node.at()].routes;
        routes.retain(|(p, _)| *p != prefix);
        routes.extend(hop.map(|hop| (prefix, hop)));
    }

    pub(crate) fn set_up(&mut self, link: LinkId, up: bool) -> Vec<RouteChange> {
        self.link_mut(link).up = up;
        let mut changes = Vec::new();
        for (node, _) in self.link(link).ends {
            let set = self.hosts[node.at()].routes.iter();
            changes.extend(set.filter(|(_, hop)| *hop == NextHop::Link(link)).map(|(p, _)| (node, *p)));
            // The routes to the link's own addresses change even if no path to them was computed.
            let end = self.end_of(link, node);
            for family in [Family::V4, Family::V6] {
                changes.push((node, Prefix::host(self.address_on(link, 1 - end, family))));
            }
        }
        changes.extend(self.recompute());
        changes
    }

    pub(crate) fn set_cost(&mut self, link: LinkId, cost: u32) -> Vec<RouteChange> {
        self.link_mut(link).cost = cost;
        self.recompute()
    }

    fn paths_to(&self, destination: NodeId) -> Box<[u32]> {
        routing::towards(destination, self.hosts.len(), |node| {
            // Paths pass only through nodes that forward.
            let passes = node == destination || self.forwards(node);
            let ports = self.hosts[node.at()].ports.iter();
            ports.filter(move |port| passes && self.is_up(port.link)).map(|port| {
                let link = self.link(port.link);
                let (to, back) = link.ends[1 - port.end];
                Edge { to, cost: link.cost, back }
            })
        })
    }

    /// Computes the used paths again, and returns the routes that changed.
    fn recompute(&mut self) -> Vec<RouteChange> {
        let mut changes = Vec::new();
        for at in 0..self.paths.len() {
            let Some(old) = self.paths[at].take() else { continue };
            let owner = NodeId(u32::try_from(at).unwrap_or(u32::MAX));
            let new = self.paths_to(owner);
            let host = &self.hosts[at];
            for node in
                (0u32..).zip(old.iter().zip(&new)).filter(|(_, (a, b))| a != b).map(|(n, _)| NodeId(n))
            {
                let links = host.ports.iter().flat_map(|p| [IpAddr::V4(p.v4), IpAddr::V6(p.v6)]);
                changes.extend(links.chain(host.extra.iter().copied()).map(|a| (node, Prefix::host(a))));
            }
            self.paths[at] = Some(new);
        }
        // Sorted by node, so that the order is fixed.
        changes.sort_by_key(|(node, prefix)| (*node, prefix.addr, prefix.len));
        changes
    }
}

pub(crate) const fn family_of(addr: IpAddr) -> Family {
    if addr.is_ipv4() { Family::V4 } else { Family::V6 }
}
