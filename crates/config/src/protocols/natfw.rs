//! `[natfw]`, and `natfw` in tables of interfaces.

use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::NslpId;
use signalbox_node::natfw::{Config, Mapping, Middlebox};
use signalbox_node::resources::units::Ports;

use super::sides::{Side, Sides};
use super::{Openings, Protocol, Protocols};
use crate::keys::Keys;
use crate::kind::{address, choice, duration, flag, list, number, ports};
use crate::openings::open;

pub(super) const MEANING: &str = "The NAT and firewall application of GIST [RFC 5973]: passages through firewalls and NATs on the path of a flow \
     ([natfw.md](natfw.md)). Sections in brackets are those of the RFC. Who may open what is decided by rules with `opens` in \
     `[policy]`.";

const MAPPINGS: &str = "Hosts behind a twice-NAT: the address by which each side knows the host. The node changes messages by them; the \
                        translation of packets is the twice-NAT's own.";

const DAY: Duration = Duration::from_secs(86_400);
const SECOND: Duration = Duration::from_secs(1);

/// `[natfw]`
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Natfw {
    engine: Config,
    external: Option<IpAddr>,
    ports: Ports,
    wished_ports: Ports,
    mappings: Vec<MappingEntry>,
    sides: Sides,
}

/// `[[natfw.mappings]]`
#[derive(Debug, Clone, PartialEq, Default)]
struct MappingEntry {
    inside: Option<IpAddr>,
    outside: Option<IpAddr>,
}

impl Default for Natfw {
    fn default() -> Self {
        let engine = Config::default();
        let ports = Ports { from: engine.first_port, to: engine.last_port };
        let wished_ports = Ports { from: engine.first_wish, to: engine.last_wish };
        Self { engine, external: None, ports, wished_ports, mappings: Vec::new(), sides: Sides::default() }
    }
}

impl Natfw {
    /// The external ports that a NAT gives out.
    pub(super) fn external_ports(&self) -> Option<Ports> {
        (self.engine.middlebox == Middlebox::Nat).then_some(self.ports)
    }
}

impl Natfw {
    /// What the node is on the path of data, and its addresses.
    fn role(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.engine;
        keys.key(
            "nslp_id",
            &mut config.nslp.0,
            number(1..=u16::MAX),
            "NSLPID of its messages, the same on all nodes; 33 is registered for it.",
        );
        let message = "belongs to another application: write 33, which is registered for NATFW";
        keys.check(config.nslp != NslpId::QOS, &["nslp_id"], message);
        keys.key(
            "role",
            &mut config.middlebox,
            choice(&[
                ("none", Middlebox::None),
                ("firewall", Middlebox::Firewall),
                ("nat", Middlebox::Nat),
                ("twice-nat", Middlebox::TwiceNat),
            ]),
            "What the node is on the path of data: a host or router without rules, a firewall, a NAT, or the signaling part \
             of a twice-NAT.",
        );
        keys.key(
            "edge",
            &mut config.edge,
            flag(),
            "The node is the outermost firewall or NAT of its network: requests to be reached (EXTERNAL) end here [3.7.2].",
        );
        keys.group("nat", |keys| {
            let meaning = "External address of a NAT, IPv4.";
            let absent = "the first IPv4 address of the first outside interface";
            keys.option("address", &mut self.external, address(), absent, meaning);
            let v4 = self.external.is_none_or(|external| external.is_ipv4());
            keys.check(v4, &["address"], "NATs have IPv4 only: write an IPv4 address");
            let meaning = "External ports of a NAT. They must be used by nothing else, `net.ipv4.ip_local_port_range` \
                           included.";
            keys.key("ports", &mut self.ports, ports(), meaning);
            keys.check(self.ports.from > 0, &["ports"], "0 is no port: write a range from 1 on");
            let meaning = "External ports that a host inside may wish for, beside `ports`, if a rule with `opens = [\"publish\"]` lets it be \
                           reached by strangers. Packets to such a port reach the host instead of this node: leave ports of services of this \
                           node out.";
            keys.key("wished_ports", &mut self.wished_ports, ports(), meaning);
            keys.check(self.wished_ports.from > 0, &["wished_ports"], "0 is no port: write a range from 1 on");
        });
        let new = MappingEntry::default;
        keys.array("mappings", MAPPINGS, &mut self.mappings, new, |keys, mapping| {
            let meaning = "The address by which hosts inside know it.";
            keys.needed("inside", &mut mapping.inside, address(), meaning);
            let meaning = "The address by which hosts outside know it.";
            keys.needed("outside", &mut mapping.outside, address(), meaning);
        });
    }

    /// Refreshes and lifetimes.
    fn times(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.engine;
        keys.key(
            "refresh",
            &mut config.refresh,
            duration(SECOND..=DAY),
            "Time between two refreshes of requests of this host, R [3.4]. Their lifetime is 5.25 · R.",
        );
        keys.key(
            "retry",
            &mut config.retry,
            duration(Duration::from_millis(10)..=DAY),
            "First wait for a RESPONSE to a request of this host; it doubles with each repetition.",
        );
        keys.key(
            "min_lifetime",
            &mut config.min_lifetime,
            duration(SECOND..=DAY),
            "Shortest lifetime that this node accepts; shorter ones are refused.",
        );
        keys.key(
            "max_lifetime",
            &mut config.max_lifetime,
            duration(SECOND..=DAY * 365),
            "Longest lifetime that this node accepts.",
        );
        let fits = config.min_lifetime <= config.max_lifetime;
        keys.check(fits, &["min_lifetime", "max_lifetime"], "longer than max_lifetime: write a shorter time");
        keys.key(
            "longer_lifetime",
            &mut config.refuse_long,
            choice(&[("lower", false), ("refuse", true)]),
            "Requests with a longer lifetime than `max_lifetime`: the lifetime is lowered, or they are refused.",
        );
        keys.key(
            "hold",
            &mut config.hold,
            duration(Duration::from_secs(30)..=DAY),
            "How long a session stays after a NOTIFY without a request that confirms it [3.2.8].",
        );
    }

    /// What requests may ask for, and how many there may be.
    fn requests(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.engine;
        keys.group("firewall", |keys| {
            let meaning = "Most low-order bits of the flow's source address that a request for a firewall may leave open.";
            keys.key("source_open_bits", &mut config.open_bits.source, number(0..=128), meaning);
            let meaning = "Most low-order bits of the destination address.";
            keys.key("destination_open_bits", &mut config.open_bits.destination, number(0..=128), meaning);
            let meaning = "Requests without a destination port are accepted by a firewall.";
            keys.key("any_port", &mut config.any_port, flag(), meaning);
            let meaning = "Requests without an IP protocol are accepted by a firewall.";
            keys.key("any_protocol", &mut config.any_protocol, flag(), meaning);
            let meaning = "Types of ICMP messages that a request may be for; empty: all. A request that names no types, for ICMP or for any \
                           protocol, is refused if this is not empty.";
            keys.key("icmp_types", &mut config.icmp_types, list(number(0..=u8::MAX)), meaning);
        });
        keys.key(
            "secure",
            &mut config.secure,
            flag(),
            "Messages are sent and accepted over authenticated channels only [5.2.1]; needs TLS.",
        );
        keys.key(
            "reliable",
            &mut config.reliable,
            flag(),
            "Messages are sent over messaging associations, if this node has a port in `[gist.associations]`; all nodes need one \
             then. Without a port they are datagrams. NOTIFYs always need associations, so without them ends and changes of routes \
             are noticed by refreshes only.",
        );
        keys.key(
            "max_sessions",
            &mut config.max_sessions,
            number(1..=u32::MAX),
            "Most sessions; a quarter is kept for sources that hold few.",
        );
        keys.key(
            "max_watched",
            &mut config.max_watched,
            number(1..=u32::MAX),
            "Most requests at one time whose delivery by GIST is watched.",
        );
    }
}

impl Protocol for Natfw {
    fn reload(&mut self, new: &Self) {
        self.engine.take_limits(&new.engine);
    }

    fn declare(&mut self, keys: &mut Keys<'_>) {
        self.role(keys);
        self.times(keys);
        self.requests(keys);
    }

    fn has_parts(&self) -> bool {
        true
    }

    fn has_part(&self, interface: &str) -> bool {
        self.sides.has(interface)
    }

    fn interface(&mut self, name: &str, keys: &mut Keys<'_>) {
        let meaning = "The side of a firewall or NAT that the interface is on. Interfaces without a side count as outside, \
                       where less is allowed.";
        self.sides.declare(name, keys, "outside", meaning);
    }

    fn check(&self, all: &Protocols, keys: &mut Keys<'_>) {
        let ping = NslpId(all.ping.nslp);
        let message = format!("{} is ping.nslp_id: write another number", ping.0);
        keys.check(self.engine.nslp != ping, &["natfw.nslp_id", "ping.nslp_id"], &message);
        if self.engine.middlebox == Middlebox::None {
            return;
        }
        let inside = !self.sides.of(Side::Inside).is_empty();
        let message = "needs an inside: write natfw.side = \"inside\" in [interfaces.NAME] of each interface towards the \
                       protected network";
        keys.check(inside, &["natfw.role"], message);
        let outside = !self.sides.of(Side::Outside).is_empty() || self.external.is_some();
        let nat = self.engine.middlebox == Middlebox::Nat;
        let message = "\"nat\" needs an outside: write natfw.side = \"outside\" in [interfaces.NAME], or nat.address in \
                       [natfw]";
        keys.check(outside || !nat, &["natfw.role"], message);
    }

    fn openings(&self, keys: &mut Keys<'_>) {
        let Config { any_port, any_protocol, open_bits, .. } = &self.engine;
        for (key, opened) in [
            ("any_port", *any_port),
            ("any_protocol", *any_protocol),
            ("source_open_bits", open_bits.source > 0),
            ("destination_open_bits", open_bits.destination > 0),
        ] {
            if opened {
                let what = "one request can open more than one flow: remove the key";
                open(keys, &[&format!("natfw.firewall.{key}")], what);
            }
        }
    }

    fn opens(&self) -> Openings {
        match self.engine.middlebox {
            Middlebox::None | Middlebox::TwiceNat => Openings::Nothing,
            Middlebox::Firewall => Openings::Passages,
            Middlebox::Nat => Openings::Bindings,
        }
    }

    fn asks_for_passages(&self) -> bool {
        true
    }

    fn sides(&self) -> Option<&Sides> {
        (self.opens() != Openings::Nothing).then_some(&self.sides)
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        let v4 = |external: IpAddr| match external {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(_) => None,
        };
        let mappings = self
            .mappings
            .iter()
            .filter_map(|own| Some(Mapping { inside: own.inside?, outside: own.outside? }));
        node.natfw = Some(Config {
            inside: self.sides.of(Side::Inside),
            outside: self.sides.of(Side::Outside),
            external: self.external.and_then(v4),
            first_port: self.ports.from,
            last_port: self.ports.to,
            first_wish: self.wished_ports.from,
            last_wish: self.wished_ports.to,
            mappings: mappings.collect(),
            ..self.engine.clone()
        });
    }

    fn needs_gist(&self) -> bool {
        true
    }

    fn nslps(&self) -> Vec<NslpId> {
        vec![self.engine.nslp]
    }
}
