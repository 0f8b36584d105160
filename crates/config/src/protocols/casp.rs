//! `[casp]` and the tables below it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use signalbox_core::{Entry, EntryRequest, ReserverId};
use signalbox_linux::IoConfig;
use signalbox_node::casp::{
    Config, DNS, DnsConfig, EngineConfig, Mechanism, NatfwConfig, NatfwRole, QosConfig, QosSegment,
    Transport, is_domain,
};
use signalbox_node::resources::units::{Net, Ports};

use super::sides::{Side, Sides};
use super::tls::TlsSection;
use super::{Openings, Protocol, Protocols};
use crate::keys::Keys;
use crate::kind::{address, choice, duration, flag, list, network, number, per_second, ports, size, text};
use crate::openings::open;

pub(super) const MEANING: &str = "CASP (draft-schulzrinne-nsis-casp-01, [casp.md](casp.md)). Without `kernel.intercept` the node takes no Scout Requests of \
     others, but finds its own next nodes.";

/// What `[casp.dns]` is.
const DNS_MEANING: &str = "Discovery by DNS, for the rules of `[[casp.towards]]` with the mechanism `\"dns\"`: the next node is a server of the \
                           destination's domain, which need not be on the path (SRV records, RFC 2782).";

/// What `[casp.qos]` is.
const QOS_MEANING: &str =
    "The QoS client: reservations along the path of a session (draft-schulzrinne-nsis-casp-qos-01).";

/// What `[[casp.qos.segments]]` is.
const SEGMENTS_MEANING: &str = "A segment of the path that this node belongs to, or whose border it is: requests have a LOCAL object inside, with the DSCP of a \
     local network ([casp.md](casp.md#segments-the-dscp-of-a-local-network)).";

/// What `[casp.natfw]` is.
const NATFW_MEANING: &str = "The client for firewalls and NATs: passages for the flow of a session (draft-tschofenig-nsis-casp-midcom-01). Who may open what \
     is decided by rules with `opens` in `[policy]`.";

/// What `[casp.tls]` is.
const TLS_MEANING: &str = "What the transport `\"tls\"` needs, as in `[gist.tls]`. With it the node takes TLS connections at `ports.tls`. The files \
     are read at the start, by `--check`, and at each reload (SIGHUP).";

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);
/// Experimental values of the Router Alert with IPv6 (RFC 5350).
const EXPERIMENTAL: std::ops::RangeInclusive<u16> = 65_503..=65_534;

const TRANSPORTS: &[(&str, Transport)] =
    &[("tcp", Transport::Tcp), ("tls", Transport::Tls), ("sctp", Transport::Sctp), ("udp", Transport::Udp)];

/// A mechanism of the configuration; `Static` has its address and `Dns` its domain in a key of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Static,
    Dns,
    Routing,
    Scout,
}

const WAYS: &[(&str, Way)] =
    &[("static", Way::Static), ("dns", Way::Dns), ("routing", Way::Routing), ("scout", Way::Scout)];

/// Resolvers of DNS: two have their turn within a discovery.
const RESOLVERS: usize = 3;

/// A client of this node that the configuration chooses. Every node has the Ping client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    Qos,
    Natfw,
}

const CLIENTS: &[(&str, Client)] = &[("qos", Client::Qos), ("natfw", Client::Natfw)];

/// What a node with the client for firewalls and NATs is.
const ROLES: &[(&str, NatfwRole)] =
    &[("host", NatfwRole::Host), ("firewall", NatfwRole::Firewall), ("nat", NatfwRole::Nat)];

/// `[casp]`
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Casp {
    engine: EngineConfig,
    clients: Vec<Client>,
    qos: QosConfig,
    natfw: NatfwConfig,
    sides: Sides,
    discovery: Vec<Way>,
    towards: Vec<Towards>,
    resolvers: Vec<IpAddr>,
    sctp: bool,
    intercept: bool,
    tls: TlsSection,
}

/// `[[casp.towards]]`
#[derive(Debug, Clone, PartialEq, Default)]
struct Towards {
    to: Vec<Net>,
    discovery: Vec<Way>,
    next: Option<IpAddr>,
    domain: String,
    transport: Option<Transport>,
}

impl Default for Casp {
    fn default() -> Self {
        let engine = EngineConfig::default();
        let discovery = vec![Way::Routing, Way::Scout];
        Self {
            engine,
            clients: Vec::new(),
            qos: QosConfig::default(),
            natfw: NatfwConfig::default(),
            sides: Sides::default(),
            discovery,
            towards: Vec::new(),
            resolvers: Vec::new(),
            sctp: false,
            intercept: true,
            tls: TlsSection::default(),
        }
    }
}

impl Towards {
    fn declare(&mut self, keys: &mut Keys<'_>) {
        let meaning = "Prefixes: of a flow's destination for `discovery`, of the next node for `transport`.";
        keys.key("to", &mut self.to, list(network()), meaning);
        let meaning = "Mechanisms for these destinations, in their order; empty: those of `casp.discovery`.";
        keys.key("discovery", &mut self.discovery, list(choice(WAYS)), meaning);
        keys.option(
            "next",
            &mut self.next,
            address(),
            "none",
            "The next node of the mechanism `\"static\"`.",
        );
        let fits = self.next.is_some() == self.discovery.contains(&Way::Static);
        keys.check(fits, &["next", "discovery"], "`next` and the mechanism \"static\" belong together");
        let meaning = "The domain of the mechanism `\"dns\"`: its SRV records name the servers, at `_casp._tcp`, `_casps._tcp` (TLS), \
                       `_casp._sctp` or `_casp._udp` by `casp.transport`.";
        keys.key("domain", &mut self.domain, text(255), meaning);
        let fits = self.domain.is_empty() != self.discovery.contains(&Way::Dns);
        keys.check(fits, &["domain", "discovery"], "`domain` and the mechanism \"dns\" belong together");
        let fits = self.domain.is_empty() || is_domain(&self.domain);
        keys.check(fits, &["domain"], "not a domain: write a name such as \"example.net\"");
        let meaning = "Transport of messages to nodes with these addresses.";
        keys.option(
            "transport",
            &mut self.transport,
            choice(TRANSPORTS),
            "that of `casp.transport`",
            meaning,
        );
    }

    fn mechanisms(&self) -> Vec<Mechanism> {
        let one = |way: &Way| match way {
            Way::Static => self.next.map(Mechanism::Static),
            Way::Dns => Some(Mechanism::External(DNS)),
            Way::Routing => Some(Mechanism::Routing),
            Way::Scout => Some(Mechanism::Scout),
        };
        self.discovery.iter().filter_map(one).collect()
    }
}

impl Casp {
    /// The keys, certificates and revocation lists of TLS; `None`: there is no TLS.
    pub(crate) const fn tls(&self) -> Option<&signalbox_node::Tls> {
        self.tls.content()
    }

    fn uses(&self, transport: Transport) -> bool {
        let mut others = self.towards.iter().filter_map(|towards| towards.transport);
        self.engine.transport == transport || others.any(|one| one == transport)
    }

    fn times(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.engine;
        let meaning = "Refresh interval of the sessions of this node. State expires after three of them.";
        keys.key("refresh", &mut config.refresh, duration(SECOND..=DAY), meaning);
        let mut longest = Duration::from_secs(config.max_timeout.into());
        let meaning = "Longest lifetime without refresh that this node grants, in whole seconds.";
        keys.key("max_lifetime", &mut longest, duration(SECOND..=DAY), meaning);
        config.max_timeout = u32::try_from(longest.as_secs()).unwrap_or(u32::MAX);
        let meaning = "Messages of own sessions contain their lifetime. Without it the lifetime is 30 s.";
        keys.key("send_lifetime", &mut config.send_timeout, flag(), meaning);
        let meaning = "Refreshes of own sessions make each node of the path discover its next node again.";
        keys.key("rediscover", &mut config.rediscover, flag(), meaning);
        let meaning = "How long a client may take to decide about a message, after which it goes on.";
        keys.key("decision_timeout", &mut config.verdict, duration(Duration::from_millis(10)..=DAY), meaning);
        let meaning = "How long a connection may take to be established.";
        keys.key("connect_timeout", &mut config.connect, duration(SECOND..=DAY), meaning);
        let meaning = "How long a connection is kept without messages.";
        keys.key("idle_after", &mut config.idle, duration(SECOND..=DAY), meaning);
    }

    fn qos(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.qos;
        let meaning = "Most sessions in which this node takes part in reservations.";
        keys.key("max_sessions", &mut config.max_sessions, number(1..=u32::MAX), meaning);
        let meaning = "Requests that crossed a hop without channel security are refused.";
        keys.key("refuse_unsecure", &mut config.refuse_unsecure, flag(), meaning);
        let meaning = "After a change of the path, requests of a known session are accepted from a new previous node over a \
                       connection without TLS. Without it they are refused there, and the reservation ends.";
        keys.key("merge_unauthenticated", &mut config.merge_unauthenticated, flag(), meaning);
        let meaning = "As the receiver of a flow this node answers a reservation by one for the opposite flow, as large, over the \
                       same nodes. Both end with the session of the source.";
        keys.key("reserve_opposite", &mut config.reserve_opposite, flag(), meaning);
        let none = || QosSegment {
            scope: 1,
            interfaces: Vec::new(),
            nodes: Vec::new(),
            dscp: None,
            map: Vec::new(),
            outside: 0,
        };
        keys.array("segments", SEGMENTS_MEANING, &mut config.segments, none, segment);
        let problem = config.problem();
        keys.check(problem.is_none(), &["segments"], "at most 16 segments, each with a scope of its own");
    }

    fn natfw(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.natfw;
        let meaning = "`\"host\"`: users of this node ask for passages, and accept them. `\"firewall\"`: it opens passages of others \
                       too. `\"nat\"`: it also translates the sources of IPv4 flows that leave the inside.";
        keys.key("role", &mut config.role, choice(ROLES), meaning);
        keys.group("nat", |keys| {
            let mut external = config.external.map(IpAddr::V4);
            let absent = "the first IPv4 address of the first outside interface";
            keys.option("address", &mut external, address(), absent, "External address of a NAT, IPv4.");
            let v4 = external.is_none_or(|external| external.is_ipv4());
            keys.check(v4, &["address"], "NATs have IPv4 only: write an IPv4 address");
            config.external = external.and_then(|external| match external {
                IpAddr::V4(v4) => Some(v4),
                IpAddr::V6(_) => None,
            });
            let mut range = Ports { from: config.first_port, to: config.last_port };
            let meaning = "External ports of a NAT. They must be used by nothing else, `net.ipv4.ip_local_port_range` \
                           included.";
            keys.key("ports", &mut range, ports(), meaning);
            keys.check(range.from > 0, &["ports"], "0 is no port: write a range from 1 on");
            (config.first_port, config.last_port) = (range.from, range.to);
            let meaning = "A request whose wish for an external address or port cannot be met gets another one. `false`: it is refused.";
            keys.key("substitutes", &mut config.substitutes, flag(), meaning);
        });
        let meaning = "Most sessions in which this node takes part in passages.";
        keys.key("max_sessions", &mut config.max_sessions, number(1..=u32::MAX), meaning);
        let meaning = "Requests of hops that TLS does not authenticate are refused.";
        keys.key("require_authentication", &mut config.require_authentication, flag(), meaning);
        let meaning = "Requests from outside without a token that this node verifies are refused. Its keys are those of `[[keys]]` for \
                       tokens.";
        keys.key("require_token", &mut config.require_token, flag(), meaning);
        let meaning = "This firewall is the border of its network: requests from inside whose scope is the local network end here.";
        keys.key("border", &mut config.border, flag(), meaning);
        let meaning = "Name of the network, for requests whose scope is a domain.";
        keys.key("domain", &mut config.domain, text(255), meaning);
        let meaning = "Requests that do not name their application are refused.";
        keys.key("require_application_id", &mut config.require_application_id, flag(), meaning);
    }

    fn opens_passages(&self) -> bool {
        self.clients.contains(&Client::Natfw) && self.natfw.role.opens()
    }

    fn ports(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.engine;
        keys.group("ports", |keys| {
            let port = || number(1..=u16::MAX);
            keys.key("messages", &mut config.port, port(), "Port of messages over TCP, SCTP and UDP.");
            keys.key("tls", &mut config.tls_port, port(), "Port of messages over TLS.");
            keys.key("scout", &mut config.scout_port, port(), "UDP port of scout.");
        });
        let [messages, tls, scout] = [config.port, config.tls_port, config.scout_port];
        let distinct = messages != tls && messages != scout;
        let names = ["ports.messages", "ports.tls", "ports.scout"];
        keys.check(distinct, &names, "used twice: write three different ports");
        let meaning =
            "Value of the Router Alert of Scout Requests over IPv6, an experimental one [RFC 5350].";
        keys.key("router_alert_ipv6", &mut config.router_alert_v6, number(EXPERIMENTAL), meaning);
    }

    fn limits(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.engine;
        let any = || per_second(0..=u32::MAX);
        let meaning =
            "Messages of one source at one interface over UDP; more are dropped. `\"0/s\"`: no limit.";
        keys.key("source_rate", &mut config.rate, any(), meaning);
        let meaning =
            "Messages without state of one node that are sent on; more are dropped. `\"0/s\"`: no limit.";
        keys.key("stateless_rate", &mut config.stateless_rate, any(), meaning);
        let meaning = "Scout Requests of one source at one interface that are answered. `\"0/s\"`: no limit.";
        keys.key("answer_rate", &mut config.answer_rate, any(), meaning);
        let meaning = "Scout Requests of all sources that are answered. `\"0/s\"`: no limit.";
        keys.key("total_answer_rate", &mut config.total_answer_rate, any(), meaning);
        let many = || number(1..=u32::MAX);
        let meaning = "Most sessions of which this node has state. One with two flows counts twice.";
        keys.key("max_sessions", &mut config.max_sessions, many(), meaning);
        keys.key("max_connections", &mut config.max_connections, many(), "Most connections.");
        let meaning = "Most discoveries at one time, and most messages without state that wait for one.";
        keys.key("max_searches", &mut config.max_searches, many(), meaning);
        let meaning = "Octets of messages that wait for a next node or a connection, of all sessions.";
        keys.key("max_waiting_size", &mut config.max_waiting, size(1..=u32::MAX), meaning);
        let meaning = "Octets of messages whose end has not come, of all connections. A quarter is for sources that hold little.";
        keys.key("max_incomplete_size", &mut config.max_incomplete, size(1024..=u32::MAX), meaning);
        let meaning = "Most messages that wait for the decision of a client; a quarter is for nodes with few. Their octets \
                       count for max_waiting_size.";
        keys.key("max_held", &mut config.max_held, many(), meaning);
        let meaning = "Longest message.";
        keys.key("max_message_size", &mut config.max_message, size(1024..=1 << 24), meaning);
        let meaning = "Octets that a connection may hold. Further messages to its node are dropped.";
        keys.key("max_unsent_size", &mut config.max_unsent, size(32 << 10..=usize::MAX), meaning);
        let meaning =
            "The same for all connections together. A quarter is for nodes to which little is unsent.";
        keys.key("max_total_unsent_size", &mut config.max_unsent_total, size(1 << 20..=u32::MAX), meaning);
    }
}

/// `[[casp.qos.segments]]`
fn segment(keys: &mut Keys<'_>, segment: &mut QosSegment) {
    let code_point = || number(0..=63u8);
    let meaning = "LOCAL objects with this scope are of the segment. A segment inside of another one has the higher number.";
    keys.key("scope", &mut segment.scope, number(0..=u8::MAX), meaning);
    let meaning = "Interfaces of this node that lead into the segment.";
    keys.key("interfaces", &mut segment.interfaces, list(text(15)), meaning);
    let mut nodes: Vec<Net> = segment.nodes.iter().copied().map(Net).collect();
    let meaning = "Addresses of the nodes of the segment that are neighbors of this one. What others send with the scope of the segment is \
                   taken out of the message. So is what these nodes send without TLS, unless `casp.protected` names them.";
    keys.key("nodes", &mut nodes, list(network()), meaning);
    segment.nodes = nodes.into_iter().map(|net| net.0).collect();
    let meaning = "DSCP that the node adds to requests that enter the segment here. The reserved packets have it inside.";
    keys.option("dscp", &mut segment.dscp, code_point(), "none", meaning);
    let meaning = "DSCP of packets that leave the segment here, if they had one of the segment.";
    keys.key("outside", &mut segment.outside, code_point(), meaning);
    let mut map: Vec<Mapped> = segment.map.iter().map(|(from, to)| Mapped { from: *from, to: *to }).collect();
    let meaning = "Another DSCP for flows that have a DSCP in the segment that they come from.";
    keys.array("map", meaning, &mut map, Mapped::default, |keys, mapped| {
        let meaning = "DSCP in the segment that the request comes from.";
        keys.key("from", &mut mapped.from, number(0..=63), meaning);
        keys.key("to", &mut mapped.to, number(0..=63), "DSCP in this segment.");
    });
    segment.map = map.into_iter().map(|mapped| (mapped.from, mapped.to)).collect();
}

/// `[[casp.qos.segments.map]]`
#[derive(Debug, Default)]
struct Mapped {
    from: u8,
    to: u8,
}

impl Protocol for Casp {
    fn reload(&mut self, new: &Self) {
        self.engine.take_limits(&new.engine);
        self.qos.max_sessions = new.qos.max_sessions;
        self.tls = self.tls.reloaded(&new.tls);
    }

    fn declare(&mut self, keys: &mut Keys<'_>) {
        self.times(keys);
        self.ports(keys);
        let meaning = "Clients of this node in addition to Ping. Messages of other clients pass. `\"qos\"`: reservations. `\"natfw\"`: \
                       passages through firewalls.";
        keys.key("clients", &mut self.clients, list(choice(CLIENTS)), meaning);
        let meaning = "Transport of messages to other nodes. Nodes accept each other's connections over TCP, over TLS with \
                       `[casp.tls]`, and over SCTP with `sctp`. `\"udp\"`: datagrams for messages of at most 512 octets, \
                       TCP for others.";
        keys.key("transport", &mut self.engine.transport, choice(TRANSPORTS), meaning);
        let meaning = "Nodes may connect by SCTP: that of the kernel where it has SCTP, otherwise that of the daemon over raw \
                       sockets.";
        keys.key("sctp", &mut self.sctp, flag(), meaning);
        let meaning = "How the next node towards a destination is found, in this order. `\"routing\"`: the next hop of the \
                       routing table, if it is one of `neighbors`. `\"scout\"`: a Scout Request, which the first node \
                       with CASP on the way answers.";
        let common = &WAYS[2..];
        keys.key("discovery", &mut self.discovery, list(choice(common)), meaning);
        keys.check(
            !self.discovery.is_empty(),
            &["discovery"],
            "empty: write one mechanism, such as [\"scout\"]",
        );
        let mut neighbors: Vec<IpAddr> = self.engine.neighbors.iter().copied().collect();
        let meaning = "CASP nodes that are neighbors. Over UDP they need no cookie.";
        keys.key("neighbors", &mut neighbors, list(address()), meaning);
        self.engine.neighbors = neighbors.into_iter().collect();
        for (name, own, meaning) in [
            ("proxy", &mut self.engine.proxy, "Destinations for which this node is the end of the path."),
            ("peers", &mut self.engine.peers, "Nodes whose connections are accepted; empty: all."),
            (
                "protected",
                &mut self.engine.protected,
                "Nodes whose packets are protected by IPsec. Their channels count as secure.",
            ),
        ] {
            let mut nets: Vec<Net> = own.iter().copied().map(Net).collect();
            keys.key(name, &mut nets, list(network()), meaning);
            *own = nets.into_iter().map(|net| net.0).collect();
        }
        let meaning = "`false`: the kernel forwards Scout Requests of others. `kernel.intercept = false` has the same \
                       effect for all protocols.";
        keys.key("intercept", &mut self.intercept, flag(), meaning);
        let meaning = "The node takes part in delivery without state ([casp.md](casp.md#delivery-without-state)): RECORD_ROUTE and ROUTE of this \
                       suite. `false`: it keeps state for such messages too.";
        keys.key("stateless", &mut self.engine.stateless, flag(), meaning);
        let meaning = "An old branch is removed even if the new one crossed a hop without channel security.";
        keys.key("remove_unsecure", &mut self.engine.remove_unsecure, flag(), meaning);
        let meaning =
            "Flows over IPv6 with ports or an SPI are sent and accepted: C-Types 129 and 130 of this suite.";
        keys.key("private_flows", &mut self.engine.private_flows, flag(), meaning);
        let meaning = "Errors of this suite are sent to nodes.";
        keys.key("private_errors", &mut self.engine.private_errors, flag(), meaning);
        self.limits(keys);
        let meaning = "Rules for parts of the network; the first one whose prefixes match counts.";
        keys.array("towards", meaning, &mut self.towards, Default::default, |keys, one| one.declare(keys));
        keys.table("dns", DNS_MEANING, |keys| {
            let meaning = "Addresses of the resolvers, in the order in which they are asked: at most 3. Each may take 2 s. They \
                           are asked over TCP at port 53. If there are none, the daemon takes those of `/etc/resolv.conf` at its \
                           start.";
            keys.key("resolvers", &mut self.resolvers, list(address()), meaning);
            let fits = self.resolvers.len() <= RESOLVERS;
            keys.check(fits, &["resolvers"], "too many: write at most 3");
        });
        keys.table("qos", QOS_MEANING, |keys| self.qos(keys));
        keys.table("natfw", NATFW_MEANING, |keys| self.natfw(keys));
        keys.table("tls", TLS_MEANING, |keys| self.tls.declare(keys));
        let fits = !self.uses(Transport::Tls) || self.tls.is_complete();
        keys.check(
            fits,
            &["transport"],
            "needs keys and certificates: write key_file and others in [casp.tls]",
        );
        let fits = !self.uses(Transport::Sctp) || self.sctp;
        keys.check(fits, &["transport"], "SCTP is switched off: write sctp = true");
    }

    fn has_parts(&self) -> bool {
        true
    }

    fn has_part(&self, interface: &str) -> bool {
        self.sides.has(interface)
    }

    fn interface(&mut self, name: &str, keys: &mut Keys<'_>) {
        let meaning = "The side of a firewall or NAT that the interface is on. Interfaces without a side count as outside.";
        self.sides.declare(name, keys, "outside", meaning);
    }

    fn check(&self, all: &Protocols, keys: &mut Keys<'_>) {
        let inside = !self.sides.of(Side::Inside).is_empty();
        let message = "needs an inside: write casp.side = \"inside\" in [interfaces.NAME] of each interface towards the protected \
                       network";
        keys.check(inside || !self.opens_passages(), &["casp.natfw.role"], message);
        let nat = self.opens_passages() && self.natfw.role == NatfwRole::Nat;
        let outside = !self.sides.of(Side::Outside).is_empty() || self.natfw.external.is_some();
        let message = "\"nat\" needs an outside: write casp.side = \"outside\" in [interfaces.NAME], or nat.address in \
                       [casp.natfw]";
        keys.check(outside || !nat, &["casp.natfw.role"], message);
        let nat_ports = Ports { from: self.natfw.first_port, to: self.natfw.last_port };
        let both = nat
            && all
                .natfw
                .external_ports()
                .is_some_and(|other| nat_ports.from <= other.to && other.from <= nat_ports.to);
        let message = "used twice: write ranges without a common port, because each NAT gives out its own";
        keys.check(!both, &["casp.natfw.nat.ports", "natfw.nat.ports"], message);
        let own_ports = [Some(self.engine.port), self.tls.is_complete().then_some(self.engine.tls_port)];
        let both = all.gist.ports().any(|port| own_ports.contains(&Some(port)));
        let message = "a port of [gist] too: write another one, because both protocols listen there";
        keys.check(!both, &["casp.ports.messages", "casp.ports"], message);
    }

    fn opens(&self) -> Openings {
        match self.natfw.role {
            _ if !self.opens_passages() => Openings::Nothing,
            NatfwRole::Nat => Openings::Bindings,
            NatfwRole::Host | NatfwRole::Firewall => Openings::Passages,
        }
    }

    fn asks_for_passages(&self) -> bool {
        self.clients.contains(&Client::Natfw)
    }

    fn forgeable(&self) -> Option<&'static str> {
        (!self.engine.neighbors.is_empty()).then_some("proof = \"handshake\", and remove casp.neighbors")
    }

    fn reserver(&self) -> Option<ReserverId> {
        self.clients.contains(&Client::Qos).then_some(ReserverId::CASP)
    }

    fn openings(&self, keys: &mut Keys<'_>) {
        if self.engine.peers.is_empty() && !self.tls.is_complete() {
            let what = "any node can connect and make state: name the nodes in casp.peers, or use TLS";
            open(keys, &["casp.peers", "casp", "node.protocols"], what);
        }
        if self.engine.total_answer_rate == 0 {
            let what = "Scout Requests with forged sources are answered without limit: remove total_answer_rate, or write a rate";
            open(keys, &["casp.total_answer_rate"], what);
        }
    }

    fn read_files(&mut self, directory: &Path, keys: &mut Keys<'_>) {
        self.tls.read("casp.tls", directory, keys);
    }

    fn files(&self) -> Vec<PathBuf> {
        self.tls.files()
    }

    fn sides(&self) -> Option<&Sides> {
        self.opens_passages().then_some(&self.sides)
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        let mut engine = self.engine.clone();
        let common = Towards { discovery: self.discovery.clone(), ..Towards::default() };
        engine.mechanisms = common.mechanisms();
        for towards in &self.towards {
            for net in &towards.to {
                if !towards.discovery.is_empty() {
                    engine.discovery.push((net.0, towards.mechanisms()));
                }
                engine.transports.extend(towards.transport.map(|transport| (net.0, transport)));
            }
        }
        let qos = self.clients.contains(&Client::Qos).then(|| self.qos.clone());
        let natfw = self.clients.contains(&Client::Natfw).then(|| {
            let inside = self.sides.of(Side::Inside);
            NatfwConfig { inside, outside: self.sides.of(Side::Outside), ..self.natfw.clone() }
        });
        let domains = self.towards.iter().filter(|one| !one.domain.is_empty());
        let domains = domains.flat_map(|one| one.to.iter().map(|net| (net.0, one.domain.clone()))).collect();
        let dns = DnsConfig { resolvers: self.resolvers.clone(), domains };
        node.casp = Some(Config { dns, engine, channels: self.tls.channels(), sctp: self.sctp, qos, natfw });
    }

    fn adapt(&self, _: &mut IoConfig, entries: &mut [EntryRequest]) {
        if !self.intercept {
            let scout = Entry::Udp(self.engine.scout_port);
            entries.iter_mut().filter(|one| one.entry == scout).for_each(|one| one.intercept.clear());
        }
    }
}
