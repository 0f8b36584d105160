//! `[mapping]`

use std::net::IpAddr;
use std::time::Duration;

use signalbox_node::MappingConfig;
use signalbox_node::natfw::Middlebox;
use signalbox_node::resources::units::Net;

use super::sides::Side;
use super::{Openings, Protocol, Protocols};
use crate::keys::Keys;
use crate::kind::{address, choice, duration, list, network, number, per_second, text};

pub(super) const MEANING: &str = "Programs that do not signal ask this node for a port, by PCP [RFC 6887] and NAT-PMP [RFC 6886] at UDP port 5351, and \
     `natfw` opens every firewall and NAT of the path for them ([mapping.md](mapping.md)). Who may have a port is decided by rules with \
     `opens` in `[policy]`; without a rule all are refused.";

const DAY: Duration = Duration::from_secs(86_400);
const SECOND: Duration = Duration::from_secs(1);

/// Most filters that a message of NATFW has room for.
const FILTERS: usize = 8;

/// A protocol by which programs ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    Pcp,
    NatPmp,
}

const PROTOCOLS: &[(&str, Asking)] = &[("pcp", Asking::Pcp), ("nat-pmp", Asking::NatPmp)];

/// `[mapping]`
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mapping {
    node: MappingConfig,
    protocols: Vec<Asking>,
    from: Vec<Net>,
    towards: IpAddr,
    towards_v6: IpAddr,
}

impl Default for Mapping {
    fn default() -> Self {
        let node = MappingConfig::default();
        let (towards, towards_v6) = (IpAddr::V4(node.towards), IpAddr::V6(node.towards_v6));
        Self { node, protocols: vec![Asking::Pcp, Asking::NatPmp], from: Vec::new(), towards, towards_v6 }
    }
}

impl Mapping {
    /// Where requests are taken, and where they lead.
    fn places(&mut self, keys: &mut Keys<'_>) {
        keys.key(
            "protocols",
            &mut self.protocols,
            list(choice(PROTOCOLS)),
            "The protocols by which programs may ask; one at least. NAT-PMP is spoken where `natfw.role` is `nat`.",
        );
        let message = "empty: write one at least, or take mapping out of node.protocols";
        keys.check(!self.protocols.is_empty(), &["protocols"], message);
        keys.key(
            "interfaces",
            &mut self.node.engine.interfaces,
            list(text(15)),
            "Names of the interfaces at which requests are taken. Each has `natfw.side = \"inside\"`. What comes in by others is \
             dropped without an answer.",
        );
        keys.key(
            "from",
            &mut self.from,
            list(network()),
            "Hosts that may ask; empty: all behind these interfaces. Whoever asks is behind the interface by which the request comes \
             in: the route to its address leads there.",
        );
        keys.key(
            "towards",
            &mut self.towards,
            address(),
            "An IPv4 address behind the outermost NAT of the path. Requests for a port travel towards it, as far as that NAT [RFC 5973 \
             appendix A]. The default belongs to no host; the routes to the outside have to contain it.",
        );
        keys.check(self.towards.is_ipv4(), &["towards"], "write an IPv4 address");
        keys.key("towards_v6", &mut self.towards_v6, address(), "The same for hosts with IPv6 addresses.");
        keys.check(self.towards_v6.is_ipv6(), &["towards_v6"], "write an IPv6 address");
    }

    fn times(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.node.engine;
        keys.key(
            "min_lifetime",
            &mut config.min_lifetime,
            duration(SECOND..=DAY),
            "Shortest lifetime of a mapping that PCP asks for; a shorter one is raised [RFC 6887 section 15].",
        );
        keys.key(
            "max_lifetime",
            &mut config.max_lifetime,
            duration(SECOND..=DAY),
            "Longest lifetime of a mapping; a longer one is lowered.",
        );
        let fits = config.min_lifetime <= config.max_lifetime;
        keys.check(fits, &["min_lifetime", "max_lifetime"], "longer than max_lifetime: write a shorter time");
        keys.key(
            "patience",
            &mut config.patience,
            duration(SECOND..=Duration::from_secs(60)),
            "How long a request waits for the nodes of the path. Then the program is told that the network failed.",
        );
        keys.key(
            "repair",
            &mut config.repair,
            duration(SECOND..=Duration::from_secs(600)),
            "How long a mapping that the path lost is asked for again before the program is told.",
        );
    }

    fn limits(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.node.engine;
        keys.key(
            "max_mappings",
            &mut config.max_mappings,
            number(4..=1_000_000),
            "Most mappings; a quarter is kept for hosts that have few.",
        );
        keys.key(
            "max_per_host",
            &mut config.max_of_host,
            number(1..=65_536),
            "Most mappings of one host; the addresses of an IPv6 /64 count as one.",
        );
        keys.key(
            "max_waiting",
            &mut config.max_waiting,
            number(1..=1024),
            "Most first requests of one host that wait for the path at one time.",
        );
        keys.key(
            "max_filters",
            &mut config.max_filters,
            number(1..=FILTERS),
            "Most FILTERs of one mapping: prefixes that may send.",
        );
        keys.key(
            "request_rate",
            &mut config.rate,
            per_second(0..=u32::MAX),
            "Most requests that are looked at; `\"0/s\"`: no limit, here and below.",
        );
        keys.key(
            "request_rate_per_host",
            &mut config.host_rate,
            per_second(0..=u32::MAX),
            "Most requests of one host that are looked at, a quarter of them at once. Others are dropped without an answer.",
        );
        keys.key(
            "exact_rate_per_host",
            &mut config.exact_rate,
            per_second(0..=u32::MAX),
            "Most requests of one host with PREFER_FAILURE, by which it could try all ports.",
        );
        keys.key(
            "path_rate",
            &mut config.open_rate,
            per_second(0..=u32::MAX),
            "Most requests for which other nodes of the path are asked.",
        );
        keys.key(
            "path_rate_per_host",
            &mut config.host_open_rate,
            per_second(0..=u32::MAX),
            "The same for one host, a quarter of them at once.",
        );
    }
}

impl Protocol for Mapping {
    fn declare(&mut self, keys: &mut Keys<'_>) {
        self.places(keys);
        self.times(keys);
        self.limits(keys);
    }

    fn check(&self, all: &Protocols, keys: &mut Keys<'_>) {
        let message = "mapping opens nothing by itself: write natfw.role = \"nat\" or \"firewall\"";
        keys.check(all.natfw.opens() != Openings::Nothing, &["node.protocols"], message);
        let interfaces = &self.node.engine.interfaces;
        let message = "needs an interface: write the names of those towards the hosts inside";
        keys.check(!interfaces.is_empty(), &["mapping.interfaces", "node.protocols"], message);
        let inside = all.natfw.sides().map(|sides| sides.of(Side::Inside)).unwrap_or_default();
        for name in interfaces.iter().filter(|name| !inside.contains(name)) {
            let message = format!(
                "{name} is not inside, and who is outside may not ask: write natfw.side = \"inside\" in [interfaces.{name}], or \
                 remove it"
            );
            keys.check(false, &["mapping.interfaces"], &message);
        }
    }

    fn needs_natfw(&self) -> bool {
        true
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        let mut config = self.node.clone();
        config.engine.pcp = self.protocols.contains(&Asking::Pcp);
        config.engine.nat_pmp = self.protocols.contains(&Asking::NatPmp);
        config.engine.from = self.from.iter().map(|net| net.0).collect();
        config.engine.translates = node.natfw.as_ref().is_some_and(|natfw| natfw.middlebox == Middlebox::Nat);
        if let (IpAddr::V4(v4), IpAddr::V6(v6)) = (self.towards, self.towards_v6) {
            (config.towards, config.towards_v6) = (v4, v6);
        }
        node.mapping = Some(config);
    }
}
