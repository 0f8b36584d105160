//! `[gist]` and the tables below it.

mod associations;
mod part;
mod peers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use signalbox_core::EntryRequest;
use signalbox_linux::IoConfig;
use signalbox_linux::stream::StreamConfig;
use signalbox_node::resources::units::Net;
use signalbox_node::{GistConfig, gist};

use super::Protocol;
use super::tls::TlsSection;
use crate::keys::Keys;
use crate::kind::{choice, duration, flag, list, network, number, per_second, size, text};
use crate::openings::open;

pub(super) const MEANING: &str = "GIST [RFC 5971]. Sections in brackets are those of the RFC.";

/// What `[gist.tls]` is.
const TLS_MEANING: &str = "What `tls_port` needs: PEM files, with paths relative to the directory of the configuration. Either certificates and \
     their trust anchors, or raw public keys. The files are read at the start, by `--check`, and at each reload (SIGHUP): \
     the associations that are set up afterwards use what they hold then.";

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// `[gist]`
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Gist {
    engine: gist::Config,
    streams: StreamConfig,
    tls: TlsSection,
    peer_rules: Vec<peers::PeerRule>,
    parts: BTreeMap<String, part::Part>,
}

impl Gist {
    /// The keys, certificates and revocation lists of TLS; `None`: there is no TLS.
    pub(crate) const fn tls(&self) -> Option<&signalbox_node::Tls> {
        self.tls.content()
    }

    /// The ports at which peers open associations.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        let associations = &self.engine.associations;
        [associations.tcp_port, associations.tls_port, associations.sctp_port].into_iter().flatten()
    }

    /// GIST's own keys.
    fn own_keys(&mut self, keys: &mut Keys<'_>) {
        self.state(keys);
        self.datagrams(keys);
        self.queries(keys);
        self.routes(keys);
        self.limits(keys);
    }

    /// Identity, routing state and cookies.
    fn state(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.engine;
        let mut identity = String::from_utf8_lossy(&config.identity).into_owned();
        keys.key(
            "peer_identity",
            &mut identity,
            text(255),
            "Peer-Identity in this node's Network-Layer-Information. Empty: 16 random octets, drawn at each start \
             [4.4.3]. It must be unique.",
        );
        config.identity = identity.into_bytes();
        keys.key(
            "state_validity",
            &mut config.validity,
            duration(SECOND..=49 * DAY),
            "Validity time of routing state that this node proposes and requires. State is refreshed before it ends \
             [4.4.4].",
        );
        keys.key(
            "inactivity",
            &mut config.inactivity,
            duration(SECOND..=49 * DAY),
            "How long a querying node refreshes state that no application uses.",
        );
        keys.group("retry", |keys| {
            let (least, minute) = (Duration::from_millis(10), Duration::from_secs(60));
            let meaning = "T1: first interval between Queries; it doubles with each retransmission [5.3.3].";
            keys.key("first", &mut config.t1, duration(least..=minute), meaning);
            let meaning = "T2: longest interval between Queries, from `retry.first`.";
            keys.key("max", &mut config.t2, duration(least..=DAY), meaning);
            let meaning = "Queries of one handshake until it fails.";
            keys.key("attempts", &mut config.attempts, number(1..=32), meaning);
            let fits = config.t1 <= config.t2;
            keys.check(
                fits,
                &["max", "first"],
                "shorter than retry.first: write a longer time, such as \"32s\"",
            );
        });
        keys.key(
            "state_installation",
            &mut config.installation,
            choice(&[
                ("immediate", gist::Installation::Immediate),
                ("confirmed", gist::Installation::Confirmed),
                ("delayed", gist::Installation::Delayed),
            ]),
            "When a responding node installs state [6.3]: `\"immediate\"`: on the Query, without a Confirm; \
             `\"confirmed\"`: on the Query, removed unless a Confirm arrives; `\"delayed\"`: on the Confirm, so that a \
             Query creates no state.",
        );
        keys.key(
            "cookie_period",
            &mut config.cookie_period,
            duration(SECOND..=Duration::MAX),
            "How long a cookie's secret is used; a cookie is valid for one to two periods.",
        );
        keys.key(
            "cookie_errors",
            &mut config.cookie_errors,
            flag(),
            "Answer a Confirm with an invalid cookie by an Error. It helps to find a fault of a peer, and lets forged Confirms \
             cause Errors to addresses of their sender's choice [8.5].",
        );
    }

    /// The headers and the size of the messages that this node sends.
    fn datagrams(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.engine;
        keys.key(
            "hop_count",
            &mut config.hops,
            number(1..=u8::MAX),
            "GIST hop count of messages that this node sends.",
        );
        keys.key(
            "ip_ttl",
            &mut config.ip_ttl,
            number(1..=u8::MAX),
            "IP TTL or hop limit of messages that this node sends.",
        );
        keys.key(
            "dscp",
            &mut config.dscp,
            number(0..=63),
            "DSCP of signaling: datagrams, TCP and SCTP. Queries of a flow whose MRI names a DSCP have that one \
             [5.8.1.2].",
        );
        keys.key(
            "max_datagram_size",
            &mut config.max_datagram,
            size(128..=1472),
            "Largest GIST message where the path MTU is not known [4.3.3].",
        );
    }

    /// Upstream state, interception and forwarding of Queries.
    fn queries(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.engine;
        keys.key(
            "upstream_tentative",
            &mut config.upstream_tentative,
            flag(),
            "A route change downstream makes the upstream state tentative as well. The repair then waits for one to two \
             times `retry.first`, or for the upstream peer's next Query [7.1.3].",
        );
        keys.key(
            "upstream_queries",
            &mut config.upstream_queries,
            flag(),
            "Send upstream Queries when an application sends upstream and there is no routing state [5.8.1.3]. Use it \
             where the next node upstream is one IP hop away on the route to the flow's source. Other nodes refuse such \
             Queries.",
        );
        keys.group("router_alert", |keys| {
            let mut required = !config.intercept_without_alert;
            let meaning = "The node takes passing packets only if they have a Router Alert. `false`: it also takes those \
                           without the option that have GIST's port, magic number and C-flag [5.3.2.1, 5.3.2.2].";
            keys.key("required", &mut required, flag(), meaning);
            config.intercept_without_alert = !required;
            let mut omitted: Vec<_> = config.without_router_alert.iter().copied().map(Net).collect();
            let meaning = "Flow destinations (IPv4) to which Queries and other Q-mode packets leave without a Router Alert. \
                           Name only networks on the way to which the next GIST node is known to take packets without \
                           the option: a Query that no node takes ends at the destination [5.3.2.1].";
            keys.key("omitted_towards", &mut omitted, list(network()), meaning);
            let all_v4 = omitted.iter().all(|net| net.0.addr.is_ipv4());
            let message = "a prefix is of IPv6, where the option is never left out: write IPv4 prefixes";
            keys.check(all_v4, &["omitted_towards"], message);
            config.without_router_alert = omitted.into_iter().map(|net| net.0).collect();
        });
        keys.group("min_prefix", |keys| {
            let meaning = "Shortest prefix of a flow's destination (IPv4) in a Query that this node forwards; others are \
                           refused (MRI Too Wild) [4.3.4].";
            keys.key("ipv4", &mut config.min_dst_prefix_v4, number(0..=32), meaning);
            keys.key("ipv6", &mut config.min_dst_prefix_v6, number(0..=128), "The same for IPv6.");
        });
    }

    /// Changes of routes, and decisions of applications.
    fn routes(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.engine;
        keys.group("route_damping", |keys| {
            let meaning = "A changed route is followed at once. The next change for the same destination is followed \
                           after this time, which doubles with each further change until the destination was stable for \
                           as long [7.1.3]. `\"0s\"`: no wait. Sessions whose interface went down never wait.";
            keys.key("first", &mut config.hold_down, duration(Duration::ZERO..=DAY), meaning);
            let meaning = "The longest such wait, from `route_damping.first`.";
            keys.key("max", &mut config.hold_down_max, duration(Duration::ZERO..=DAY), meaning);
            let fits = config.hold_down <= config.hold_down_max;
            let message = "shorter than route_damping.first: write a longer time, such as \"16s\"";
            keys.check(fits, &["max", "first"], message);
        });
        keys.key(
            "decision_timeout",
            &mut config.check_timeout,
            duration(Duration::from_millis(10)..=Duration::from_secs(60)),
            "How long GIST waits for the decision of an application about a peering. After it the node \
             acts as if the application had declined [4.3.2].",
        );
    }

    fn limits(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.engine;
        let mut rate = (!config.dmode_by_link).then_some(config.dmode_rate);
        keys.option(
            "message_rate",
            &mut rate,
            per_second(0..=u32::MAX),
            "5 % of the slowest link; 20000/s while no speed is known",
            "Datagrams that this node sends; `\"0/s\"`: no limit. A message has at most `max_datagram_size` octets and \
             usually 200. The speed of a link is its `capacity`, or else what the kernel knows (not of tunnels and `lo`). A \
             rate that is written here is lowered to 5 %, but never raised [5.3.3].",
        );
        config.dmode_by_link = rate.is_none();
        config.dmode_rate = rate.unwrap_or(gist::Config::default().dmode_rate);
        keys.key(
            "message_burst",
            &mut config.dmode_burst,
            number(1..=u32::MAX),
            "Messages that may leave at once after a pause.",
        );
        keys.key(
            "error_rate",
            &mut config.error_rate,
            per_second(0..=u32::MAX),
            "Error messages that this node sends; `\"0/s\"`: none.",
        );
        keys.key(
            "intercept_rate",
            &mut config.intercept_rate,
            per_second(0..=u32::MAX),
            "Intercepted packets that are examined; `\"0/s\"`: no limit [5.3.2.3].",
        );
        keys.key(
            "query_rate_per_source",
            &mut config.query_rate_per_source,
            per_second(0..=u32::MAX),
            "Queries for applications of this node by one interface from one IPv4 address or IPv6 /64 (the address that the \
             Response goes to), a quarter of it in a burst; `\"0/s\"`: no limit. Further ones are dropped. A few addresses \
             can share one bucket [8.4].",
        );
        keys.key(
            "max_sessions",
            &mut config.max_sessions,
            number(1..=u32::MAX),
            "Most sessions; further ones are refused and counted. Each takes less than 300 octets.",
        );
        keys.key(
            "max_sessions_per_source",
            &mut config.max_sessions_per_source,
            number(0..=u32::MAX),
            "Most routing state records that Queries of peers at one IPv4 address or in one IPv6 /64 may create; the last \
             quarter of max_sessions is for those that have few. 0: no limit, and no quarter for others. Further Queries get no \
             Response [8.4].",
        );
        keys.key("max_peers", &mut config.max_peers, number(1..=u32::MAX), "Most peers.");
    }
}

impl Protocol for Gist {
    fn reload(&mut self, new: &Self) {
        self.engine.take_limits(&new.engine);
        self.tls = self.tls.reloaded(&new.tls);
    }

    fn declare(&mut self, keys: &mut Keys<'_>) {
        self.own_keys(keys);
        let meaning = "Messaging associations (connection mode) [4.4, 5.7]. Without a port there are no associations: \
                       datagrams carry all messages, and messages that need reliability or security are refused. A port \
                       in use by another program does not stop the daemon. It does not propose the transport to peers, \
                       and tries the port again after 1 s, 2 s, and so on up to 64 s.";
        keys.table("associations", meaning, |keys| {
            associations::declare(&mut self.engine.associations, &mut self.streams, keys);
        });
        let tls_port = self.engine.associations.tls_port.is_some();
        keys.table("tls", TLS_MEANING, |keys| self.tls.declare(keys));
        let message = "needs keys and certificates: write key_file and others in [gist.tls]";
        keys.check(!tls_port || self.tls.is_complete(), &["associations.tls_port"], message);
        keys.array("peer_rules", peers::MEANING, &mut self.peer_rules, Default::default, |keys, rule| {
            rule.declare(keys);
        });
        self.engine.associations.authorised = peers::database(&self.peer_rules);
    }

    fn has_parts(&self) -> bool {
        true
    }

    fn has_part(&self, interface: &str) -> bool {
        self.parts.contains_key(interface)
    }

    fn interface(&mut self, name: &str, keys: &mut Keys<'_>) {
        let mut part = self.parts.get(name).cloned().unwrap_or_default();
        part.declare(keys);
        if keys.is_there() {
            self.parts.insert(name.to_owned(), part);
        }
    }

    fn unjudged(&self, _: bool) -> Option<(&'static str, &'static str, &'static str)> {
        let what = "messages of GIST that pass by with a Router Alert, also of applications (NSLPs) that do not run here";
        Some(("the hook forward", what, "to drop them at the hook input, write udp dport 270 drop"))
    }

    fn openings(&self, keys: &mut Keys<'_>) {
        if self.engine.cookie_errors {
            let what =
                "forged Confirms cause Errors to addresses of their sender's choice: remove cookie_errors";
            open(keys, &["gist.cookie_errors"], what);
        }
        if self.engine.intercept_without_alert {
            let what = "packets without a Router Alert are examined, which networks that drop the option let pass: remove \
                        router_alert.required";
            open(keys, &["gist.router_alert.required"], what);
        }
        if self.engine.upstream_queries {
            let what = "any node that an upstream Query reaches can become the peer upstream: remove upstream_queries";
            open(keys, &["gist.upstream_queries"], what);
        }
        if self.engine.dmode_rate == 0 {
            let what = "forged Queries make this node send without limit: write a rate, such as message_rate = \
                        \"20000/s\"";
            open(keys, &["gist.message_rate"], what);
        }
    }

    fn read_files(&mut self, directory: &Path, keys: &mut Keys<'_>) {
        self.tls.read("gist.tls", directory, keys);
    }

    fn files(&self) -> Vec<PathBuf> {
        self.tls.files()
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        let mut engine = self.engine.clone();
        for (name, part) in &self.parts {
            part.install(name, &mut engine);
        }
        node.gist = Some(GistConfig { engine, channels: self.tls.channels() });
    }

    fn adapt(&self, io: &mut IoConfig, _: &mut [EntryRequest]) {
        let (defaults, limits) = (StreamConfig::default(), &self.engine.associations);
        // What the engine hands over before it waits, and one message more of each association, always fit.
        let each = limits.max_unsent.saturating_mul(2);
        let least = usize::try_from(limits.max).unwrap_or(usize::MAX).saturating_mul(64 << 10);
        let total = limits.max_queued_total.saturating_add(each).saturating_add(least);
        io.streams = StreamConfig {
            tos: self.engine.dscp << 2,
            unsent_limit: defaults.unsent_limit.max(each),
            unsent_limit_total: defaults.unsent_limit_total.max(total),
            ..self.streams.clone()
        };
    }
}
