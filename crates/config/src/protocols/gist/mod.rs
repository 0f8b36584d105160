//! `[gist]` and the tables below it.

mod associations;
mod peers;
mod tls;

use std::path::Path;
use std::time::Duration;

use signalbox_core::EntryRequest;
use signalbox_linux::IoConfig;
use signalbox_linux::stream::StreamConfig;
use signalbox_node::{GistConfig, gist};

use super::Protocol;
use crate::keys::Keys;
use crate::kind::{choice, duration, flag, number, per_second, size, text};

pub(super) const MEANING: &str = "GIST [RFC 5971]. Sections in brackets are those of the RFC.";

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// `[gist]`
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Gist {
    engine: gist::Config,
    streams: StreamConfig,
    tls: tls::TlsSection,
    peer_rules: Vec<peers::PeerRule>,
}

impl Gist {
    /// GIST's own keys.
    fn own(&mut self, keys: &mut Keys<'_>) {
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
        self.limits(keys);
    }

    fn limits(&mut self, keys: &mut Keys<'_>) {
        let config = &mut self.engine;
        keys.key(
            "message_rate",
            &mut config.dmode_rate,
            per_second(0..=u32::MAX),
            "Datagrams that this node sends; `\"0/s\"`: no limit. They should take at most 5 % of the slowest \
             interface: a message has at most `max_datagram_size` octets and usually 200. Where interfaces have a \
             `capacity`, the rate is lowered to 5 % of the smallest one [5.3.3].",
        );
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
            "Queries for applications of this node from one IPv4 address or IPv6 /64 (the address that the Response goes \
             to), a quarter of it in a burst; `\"0/s\"`: no limit. Further ones are dropped. A few addresses can share \
             one bucket [8.4].",
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
            "Most routing state records that Queries of peers at one IPv4 address or in one IPv6 /64 may create; 0: no \
             limit. Further Queries get no Response [8.4].",
        );
        keys.key("max_peers", &mut config.max_peers, number(1..=u32::MAX), "Most peers.");
    }
}

impl Protocol for Gist {
    fn declare(&mut self, keys: &mut Keys<'_>) {
        self.own(keys);
        let meaning = "Messaging associations (connection mode) [4.4, 5.7]. Without a port there are no associations: \
                       datagrams carry all messages, and messages that need reliability or security are refused. A port \
                       in use by another program does not stop the daemon. It does not propose the transport to peers, \
                       and tries the port again after 1 s, 2 s, and so on up to 64 s.";
        keys.table("associations", meaning, |keys| {
            associations::declare(&mut self.engine.associations, &mut self.streams, keys);
        });
        let tls_port = self.engine.associations.tls_port.is_some();
        keys.table("tls", tls::MEANING, |keys| self.tls.declare(keys));
        let message = "needs keys and certificates: write key_file and others in [gist.tls]";
        keys.check(!tls_port || self.tls.is_complete(), &["associations.tls_port"], message);
        keys.array("peer_rules", peers::MEANING, &mut self.peer_rules, Default::default, |keys, rule| {
            rule.declare(keys);
        });
        self.engine.associations.authorised = peers::database(&self.peer_rules);
    }

    fn read_files(&mut self, directory: &Path, keys: &mut Keys<'_>) {
        self.tls.read(directory, keys);
    }

    fn install(&self, node: &mut signalbox_node::Config) {
        node.gist = Some(GistConfig { engine: self.engine.clone(), channels: self.tls.channels() });
    }

    fn adapt(&self, io: &mut IoConfig, _: &mut [EntryRequest]) {
        let defaults = StreamConfig::default();
        io.streams = StreamConfig {
            tos: self.engine.dscp << 2,
            // What the engine hands over before it waits, and one message more, always fit.
            unsent_limit: defaults.unsent_limit.max(self.engine.associations.max_unsent.saturating_mul(2)),
            ..self.streams
        };
    }
}
