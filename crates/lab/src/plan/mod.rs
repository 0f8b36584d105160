//! The plan: what has to be made for a scenario. Names, addresses and routes of its network, the configurations of its daemons,
//! and what the texts of the scenario mean in this network. Nothing is made here.

pub(crate) mod certificates;
pub(crate) mod configuration;
pub(crate) mod places;
pub(crate) mod subset;

use signalbox_units::{BitRate, Percent, Span};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::language::{Certificate, Family, Link, Prefix, Routing, Scenario, merge};
use crate::protocols::{self, Protocol};

/// The names of all namespaces of the lab begin with it.
pub(crate) const NAMESPACE_PREFIX: &str = "sbx-";

/// The parts of a lab.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The scenario's name, which is the lab's.
    pub(crate) name: String,
    pub(crate) nodes: Vec<PlannedNode>,
    pub(crate) links: Vec<PlannedLink>,
    /// Files beside the daemons' configurations, by name.
    pub(crate) files: Vec<(String, String)>,
}

/// A namespace and what is in it.
#[derive(Debug, Clone)]
pub(crate) struct PlannedNode {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) forward: bool,
    pub(crate) daemon: bool,
    /// The protocols that its daemon runs, by their names.
    pub(crate) protocols: protocols::Set,
    pub(crate) certificate: Option<Certificate>,
    /// The ruleset of its operator.
    pub(crate) nftables: Option<String>,
    /// Commands that change its network before the daemon starts.
    pub(crate) setup: Vec<String>,
    /// The program that sets its routes.
    pub(crate) routing: Option<Routing>,
    pub(crate) config: toml::Table,
    pub(crate) interfaces: Vec<PlannedInterface>,
    pub(crate) routes: Vec<PlannedRoute>,
}

/// One end of a link.
#[derive(Debug, Clone)]
pub(crate) struct PlannedInterface {
    pub(crate) name: String,
    pub(crate) address: Prefix,
    /// Index of the link.
    pub(crate) link: usize,
    /// Index of the node at the other end, and its address there.
    pub(crate) peer: (usize, IpAddr),
}

/// A pair of interfaces that are joined.
#[derive(Debug, Clone)]
pub(crate) struct PlannedLink {
    pub(crate) name: String,
    /// The two ends: index of the node, name of the interface there.
    pub(crate) ends: [(usize, String); 2],
    pub(crate) rate: Option<BitRate>,
    /// The share that can be reserved.
    pub(crate) reservable: Option<String>,
    /// Reservations at each end that have a queue of their own.
    pub(crate) per_flow_queues: u16,
    pub(crate) delay: Option<Span>,
    pub(crate) loss: Percent,
}

/// The next hop of packets to a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedRoute {
    pub(crate) to: Prefix,
    pub(crate) via: IpAddr,
    pub(crate) metric: u32,
    /// The file has it; otherwise it is the shortest path.
    pub(crate) given: bool,
}

/// A link of the path from one node to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leg {
    /// Index of the link.
    pub(crate) link: usize,
    /// Index of the node that the packet leaves.
    pub(crate) from: usize,
    /// Index of the node that it reaches.
    pub(crate) to: usize,
}

/// Returns the name of a node's namespace.
pub(crate) fn namespace(lab: &str, node: &str) -> String {
    format!("{NAMESPACE_PREFIX}{lab}-{node}")
}

/// Whether a namespace can be of a lab. That of another lab, whose name continues this one's, has a hyphen more: nodes have
/// no hyphen.
pub(crate) fn is_of(lab: &str, namespace: &str) -> bool {
    let node = namespace
        .strip_prefix(NAMESPACE_PREFIX)
        .and_then(|name| name.strip_prefix(lab))
        .and_then(|name| name.strip_prefix('-'));
    node.is_some_and(|node| !node.contains('-'))
}

impl Plan {
    /// Plans everything that the scenario leaves open.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let index: BTreeMap<&str, usize> =
            scenario.nodes.iter().enumerate().map(|(i, node)| (node.name.as_ref().as_str(), i)).collect();
        let mut nodes: Vec<PlannedNode> = scenario
            .nodes
            .iter()
            .map(|node| {
                let mut config = scenario.config.clone();
                merge(&mut config, &node.config);
                PlannedNode {
                    name: node.name.as_ref().clone(),
                    namespace: namespace(&scenario.name, node.name.as_ref()),
                    forward: node.forward,
                    daemon: node.daemon,
                    protocols: node.protocols.clone(),
                    certificate: node.certificate,
                    nftables: node.nftables.clone(),
                    setup: node.setup.clone(),
                    routing: node.routing,
                    config,
                    interfaces: Vec::new(),
                    routes: Vec::new(),
                }
            })
            .collect();
        let used: BTreeSet<_> = scenario
            .links
            .iter()
            .filter_map(|link| link.addresses.as_ref())
            .map(|addresses| addresses.as_ref()[0].network())
            .collect();
        let mut networks = (1..=u16::MAX)
            .map(|n| automatic(scenario.family, n))
            .filter(|[a, _]| !used.contains(&a.network()));
        let mut links = Vec::with_capacity(scenario.links.len());
        for (i, link) in scenario.links.iter().enumerate() {
            // The file has far fewer links than there are networks.
            let given = link.addresses.as_ref().map(|addresses| *addresses.as_ref());
            let Some(addresses) = given.or_else(|| networks.next()) else { continue };
            let ends = [index[link.ends[0].as_ref().as_str()], index[link.ends[1].as_ref().as_str()]];
            let names = [interface_name(link, 1), interface_name(link, 0)];
            for (end, other) in [(0, 1), (1, 0)] {
                nodes[ends[end]].interfaces.push(PlannedInterface {
                    name: names[end].clone(),
                    address: addresses[end],
                    link: i,
                    peer: (ends[other], addresses[other].address),
                });
            }
            let [a, b] = names;
            links.push(PlannedLink {
                name: link.name(),
                ends: [(ends[0], a), (ends[1], b)],
                rate: link.rate,
                reservable: link.reservable.clone(),
                per_flow_queues: link.per_flow_queues,
                delay: link.delay.as_ref().map(|delay| *delay.as_ref()),
                loss: link.loss,
            });
        }
        let files = scenario.files.clone().into_iter().collect();
        let mut plan = Self { name: scenario.name.clone(), nodes, links, files };
        for node in 0..plan.nodes.len() {
            plan.nodes[node].routes = plan.routes(scenario, &index, node);
        }
        plan
    }

    /// Returns the index of the node with this name.
    pub(crate) fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// Returns the index of the link with this name.
    pub(crate) fn link(&self, name: &str) -> Option<usize> {
        self.links.iter().position(|link| link.name == name)
    }

    /// Returns the address by which other nodes reach a node: that of its first interface.
    pub(crate) fn address(&self, node: usize) -> Option<IpAddr> {
        self.nodes.get(node)?.interfaces.first().map(|interface| interface.address.address)
    }

    /// Returns the source address of a node for packets to `to`.
    pub(crate) fn source(&self, node: usize, to: IpAddr) -> Option<IpAddr> {
        let leg = self.next(node, to)?;
        let interface = self.nodes[node].interfaces.iter().find(|interface| interface.link == leg.link)?;
        Some(interface.address.address)
    }

    /// Returns a text in which `{NODE}` is replaced by the address of that node.
    pub(crate) fn with_addresses(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some(address) = self.address(index) {
                text = text.replace(&format!("{{{}}}", node.name), &address.to_string());
            }
        }
        text
    }

    /// Returns the node that has an address.
    pub(crate) fn owner(&self, address: IpAddr) -> Option<usize> {
        self.nodes.iter().position(|node| node.has(address))
    }

    /// Returns the links that a packet to an address passes, by the routes; none when it does not arrive.
    pub(crate) fn path(&self, from: usize, to: IpAddr) -> Vec<Leg> {
        let mut legs = Vec::new();
        let mut at = from;
        while !self.nodes[at].has(to) {
            match self.next(at, to) {
                Some(leg) if legs.len() < self.nodes.len() => {
                    legs.push(leg);
                    at = leg.to;
                }
                _ => return Vec::new(),
            }
        }
        legs
    }

    /// Returns the link between two neighbors.
    pub(crate) fn leg(&self, from: usize, to: usize) -> Option<Leg> {
        let interface = self.nodes.get(from)?.interfaces.iter().find(|interface| interface.peer.0 == to)?;
        Some(Leg { link: interface.link, from, to })
    }

    fn next(&self, node: usize, to: IpAddr) -> Option<Leg> {
        let here = &self.nodes[node];
        let leg =
            |interface: &PlannedInterface| Leg { link: interface.link, from: node, to: interface.peer.0 };
        let attached = here.interfaces.iter().find(|interface| interface.address.contains(to));
        if let Some(interface) = attached {
            return (interface.peer.1 == to).then(|| leg(interface));
        }
        let routes = here.routes.iter().filter(|route| route.to.contains(to));
        let route = routes.max_by_key(|route| (route.to.length, Reverse(route.metric)))?;
        here.interfaces.iter().find(|interface| interface.peer.1 == route.via).map(leg)
    }

    /// Returns the file's routes of a node, and the shortest route to every other network.
    fn routes(&self, scenario: &Scenario, index: &BTreeMap<&str, usize>, node: usize) -> Vec<PlannedRoute> {
        let via = |peer: usize| {
            self.nodes[node].interfaces.iter().find(|i| i.peer.0 == peer).map(|interface| interface.peer.1)
        };
        let mut routes: Vec<PlannedRoute> = scenario
            .routes
            .iter()
            .filter(|route| index[route.node.as_ref().as_str()] == node)
            .filter_map(|route| {
                let via = via(index[route.via.as_ref().as_str()])?;
                Some(PlannedRoute { to: route.to, via, metric: route.metric, given: true })
            })
            .collect();
        // Breadth first from here, links in the file's order; only routers are passed through.
        let mut first: Vec<Option<usize>> = vec![None; self.nodes.len()];
        let mut seen = BTreeSet::from([node]);
        let mut queue = VecDeque::from([node]);
        let mut networks: BTreeSet<_> =
            self.nodes[node].interfaces.iter().map(|interface| interface.address.network()).collect();
        // A route with a metric waits for the loss of another one.
        networks.extend(routes.iter().filter(|route| route.metric == 0).map(|route| route.to.network()));
        while let Some(at) = queue.pop_front() {
            for interface in &self.nodes[at].interfaces {
                let network = interface.address.network();
                if let Some(first) = first[at]
                    && networks.insert(network)
                    && let Some(via) = via(first)
                {
                    let to = Prefix { address: network.0, length: network.1 };
                    routes.push(PlannedRoute { to, via, metric: 0, given: false });
                }
            }
            if at != node && !self.nodes[at].forward {
                continue;
            }
            for interface in &self.nodes[at].interfaces {
                let peer = interface.peer.0;
                if seen.insert(peer) {
                    first[peer] = first[at].or(Some(peer));
                    queue.push_back(peer);
                }
            }
        }
        routes
    }
}

impl PlannedNode {
    /// Whether its daemon runs a protocol.
    pub(crate) fn runs(&self, protocol: &dyn Protocol) -> bool {
        self.protocols.contains(protocol.name())
    }

    /// Whether its daemon runs a protocol that makes reservations, which the kernel keeps.
    pub(crate) fn reserves(&self) -> bool {
        protocols::all().any(|protocol| self.runs(protocol) && protocol.reserves_by(&self.config))
    }

    /// Whether an interface has the address.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.interfaces.iter().any(|interface| interface.address.address == address)
    }
}

/// Returns the name of a link's interface towards its end number `end`.
fn interface_name(link: &Link, end: usize) -> String {
    format!("to-{}", link.ends[end].as_ref())
}

/// Returns the two addresses of the automatic network number `n`: `10.x.y.0/24` or `fd00:0:0:n::/64`.
fn automatic(family: Family, n: u16) -> [Prefix; 2] {
    let [high, low] = n.to_be_bytes();
    match family {
        Family::Ipv4 => {
            [1, 2].map(|host| Prefix { address: Ipv4Addr::new(10, high, low, host).into(), length: 24 })
        }
        Family::Ipv6 => [1, 2]
            .map(|host| Prefix { address: Ipv6Addr::new(0xfd00, 0, 0, n, 0, 0, 0, host).into(), length: 64 }),
    }
}

/// Returns the plan of h1 - r1 - h2, for tests.
#[cfg(test)]
pub(crate) fn line() -> Plan {
    let text = "version = 2\nname = \"x\"\ndescription = \"three in a row\"\n\
                topology = { chain = [\"h1\", \"r1\", \"h2\"], all_links = { rate = \"10mbit\" } }\n";
    Plan::new(&crate::language::read("x.toml", text).unwrap_or_else(|error| panic!("{error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::read;

    const LINE: &str = r#"version = 2
name = "line"
description = "four in a row"
topology.chain = ["h1", "r1", "r2", "h2"]
"#;

    fn plan(text: &str) -> Plan {
        Plan::new(&read("line.toml", text).unwrap_or_else(|e| panic!("{e}")))
    }

    #[test]
    fn a_namespace_of_a_lab_with_a_longer_name_is_not_of_this_one() {
        assert!(is_of("gist-nat", &namespace("gist-nat", "h1")));
        assert!(!is_of("gist-nat", &namespace("gist-nat-tcp", "h1")));
        assert!(!is_of("gist-nat", "sbx-gist-natural"));
    }

    #[test]
    fn networks_and_routes_are_found() {
        let plan = plan(LINE);
        assert_eq!(plan.nodes[0].namespace, "sbx-line-h1");
        assert_eq!(plan.nodes[0].interfaces[0].name, "to-r1");
        let h2 = plan.address(3).expect("has one");
        assert_eq!(h2.to_string(), "10.0.3.2");
        assert_eq!(plan.source(0, h2).expect("there is a route").to_string(), "10.0.1.1");
        let nodes: Vec<_> = plan.path(0, h2).iter().map(|leg| (leg.from, leg.to)).collect();
        assert_eq!(nodes, [(0, 1), (1, 2), (2, 3)]);
        assert_eq!(plan.nodes[0].routes.len(), 2);
        assert_eq!(plan.owner(h2), Some(3));
    }

    #[test]
    fn hosts_do_not_forward_and_given_addresses_and_routes_go_first() {
        let closed = plan(&format!("{LINE}nodes.r1.forward = false\n"));
        assert!(closed.path(0, closed.address(3).expect("has one")).is_empty());

        let text = format!("{LINE}links.r1-r2.addresses = [\"10.0.1.8/24\", \"10.0.1.9/24\"]\n");
        let given =
            plan(&format!("{text}routes = [{{ node = \"h1\", to = \"0.0.0.0/0\", via = \"r1\" }}]\n"));
        assert_eq!(given.nodes[1].interfaces[1].address.to_string(), "10.0.1.8/24");
        assert_eq!(given.nodes[0].interfaces[0].address.to_string(), "10.0.2.1/24");
        assert_eq!(given.nodes[0].routes[0].to.to_string(), "0.0.0.0/0");
        assert_eq!(given.path(0, "192.0.2.1".parse().expect("an address")), Vec::new());
    }

    #[test]
    fn a_route_with_a_metric_stands_beside_the_one_that_is_used() {
        let text = format!(
            "{LINE}links.h1-r2 = {{}}\nroutes = [{{ node = \"h1\", to = \"10.0.3.0/24\", via = \"r1\", metric = 100 }}]\n"
        );
        let plan = plan(&text);
        let to_h2: Vec<_> =
            plan.nodes[0].routes.iter().filter(|r| r.to.to_string() == "10.0.3.0/24").collect();
        assert_eq!(to_h2.iter().map(|route| route.metric).collect::<Vec<_>>(), [100, 0]);
        let h2 = plan.address(3).expect("has one");
        assert_eq!(plan.path(0, h2).iter().map(|leg| leg.to).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn ipv6_networks() {
        let plan = plan(&LINE.replace("description", "family = \"ipv6\"\ndescription"));
        assert_eq!(plan.address(3).expect("has one").to_string(), "fd00:0:0:3::2");
    }
}
