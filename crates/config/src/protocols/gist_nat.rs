//! `[gist_nat]`, and `gist_nat` in tables of interfaces.

use std::net::IpAddr;
use std::time::Duration;

use signalbox_node::gist_nat::{Config, Forward};
use signalbox_node::resources::units::Ports;

use super::sides::{Side, Sides};
use super::{Openings, Protocol, Protocols};
use crate::keys::Keys;
use crate::kind::{address, duration, flag, ip_protocol, number, per_second, ports};

pub(super) const MEANING: &str = "The GIST-aware NAT gateway [RFC 5971 section 7.2]: it translates what GIST messages carry, while the kernel translates \
     packets ([natfw.md](natfw.md#a-nat-that-signaling-passes)). It needs no other protocol.";

const FORWARDS: &str = "Hosts inside that are reached at external ports. Packets to these ports are translated when signaling for them has \
                        passed.";

const DAY: Duration = Duration::from_secs(86_400);

/// `[gist_nat]`
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GistNat {
    engine: Config,
    external: Option<IpAddr>,
    ports: Ports,
    forwards: Vec<ForwardEntry>,
    sides: Sides,
}

/// `[[gist_nat.forwards]]`
#[derive(Debug, Clone, PartialEq, Default)]
struct ForwardEntry {
    protocol: Option<u8>,
    ports: Option<Ports>,
    address: Option<IpAddr>,
    port: Option<u16>,
}

impl ForwardEntry {
    /// The setting of the engine, if it is one.
    fn forward(&self) -> Option<Forward> {
        let ports = self.ports?;
        let IpAddr::V4(address) = self.address? else { return None };
        Some(Forward {
            protocol: self.protocol?,
            first_port: ports.from,
            last_port: ports.to,
            address,
            port: self.port.unwrap_or(ports.from),
        })
    }

    fn declare(&mut self, keys: &mut Keys<'_>) {
        keys.needed("protocol", &mut self.protocol, ip_protocol(), "IP protocol.");
        keys.needed("ports", &mut self.ports, ports(), "External ports.");
        keys.needed("address", &mut self.address, address(), "Address of the host inside.");
        let meaning = "Port of the host for the first external port; the others follow.";
        keys.option("port", &mut self.port, number(1..=u16::MAX), "the same port", meaning);
        let v4 = self.address.is_none_or(|address| address.is_ipv4());
        keys.check(v4, &["address"], "the gateway has IPv4 only: write an IPv4 address");
        let fits = self.forward().is_none_or(|forward| {
            let config = Config { forwards: vec![forward], ..Config::default() };
            config.validated().is_ok()
        });
        keys.check(fits, &["ports"], "0 is no port, and the ports inside end at 65535: write other ports");
    }
}

impl Default for GistNat {
    fn default() -> Self {
        let engine = Config::default();
        let ports = Ports { from: engine.first_port, to: engine.last_port };
        Self { engine, external: None, ports, forwards: Vec::new(), sides: Sides::default() }
    }
}

impl Protocol for GistNat {
    fn reload(&mut self, new: &Self) {
        self.engine.take_limits(&new.engine);
    }

    fn declare(&mut self, keys: &mut Keys<'_>) {
        let meaning = "External address, IPv4.";
        let absent = "the first IPv4 address of the first outside interface";
        keys.option("address", &mut self.external, address(), absent, meaning);
        let v4 = self.external.is_none_or(|external| external.is_ipv4());
        keys.check(v4, &["address"], "the gateway has IPv4 only: write an IPv4 address");
        let meaning = "External ports of flows and of signaling. They must be used by nothing else, \
                       `net.ipv4.ip_local_port_range` included.";
        keys.key("ports", &mut self.ports, ports(), meaning);
        keys.check(self.ports.from > 0, &["ports"], "0 is no port: write a range from 1 on");
        let config = &mut self.engine;
        keys.key(
            "silent",
            &mut config.silent,
            flag(),
            "A Query from outside for which there is no host inside is discarded. `false`: its sender is informed that the \
             path ends here.",
        );
        keys.key(
            "reserve",
            &mut config.reserve,
            duration(Duration::from_secs(1)..=DAY),
            "Lifetime of a binding until the Response to its Query comes.",
        );
        keys.key(
            "max_lifetime",
            &mut config.max_lifetime,
            duration(Duration::from_secs(120)..=DAY * 365),
            "Longest lifetime of a binding without a refresh. It follows the validity time of the routing state, and is not \
             below two minutes [RFC 4787].",
        );
        keys.key(
            "max_bindings",
            &mut config.max_bindings,
            number(4..=1_000_000),
            "Most bindings; a quarter is kept for hosts that hold few.",
        );
        keys.key(
            "query_rate_per_source",
            &mut config.queries_of_source,
            per_second(0..=u32::MAX),
            "Most Queries that are translated for one source at one interface; `\"0/s\"`: no limit.",
        );
        keys.key("error_rate", &mut config.errors, per_second(1..=u32::MAX), "Most Errors that it sends.");
        keys.array("forwards", FORWARDS, &mut self.forwards, ForwardEntry::default, |keys, forward| {
            forward.declare(keys);
        });
    }

    fn has_parts(&self) -> bool {
        true
    }

    fn has_part(&self, interface: &str) -> bool {
        self.sides.has(interface)
    }

    fn interface(&mut self, name: &str, keys: &mut Keys<'_>) {
        let meaning = "The side of the GIST-aware NAT gateway that the interface is on. Signaling is translated from one side \
                       to the other.";
        self.sides.declare(name, keys, "none", meaning);
    }

    fn check(&self, _: &Protocols, keys: &mut Keys<'_>) {
        for (side, name) in [(Side::Inside, "inside"), (Side::Outside, "outside")] {
            let message = format!(
                "gist_nat needs an {name}: write gist_nat.side = \"{name}\" in [interfaces.NAME] of an interface"
            );
            keys.check(!self.sides.of(side).is_empty(), &["node.protocols"], &message);
        }
    }

    fn opens(&self) -> Openings {
        Openings::Bindings
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        let external = self.external.and_then(|external| match external {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(_) => None,
        });
        node.gist_nat = Some(Config {
            inside: self.sides.of(Side::Inside),
            outside: self.sides.of(Side::Outside),
            external,
            first_port: self.ports.from,
            last_port: self.ports.to,
            forwards: self.forwards.iter().filter_map(ForwardEntry::forward).collect(),
            ..self.engine.clone()
        });
    }
}
