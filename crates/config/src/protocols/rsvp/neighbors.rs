//! Refresh reduction, Hello and integrity between neighbors.

use std::time::Duration;

use signalbox_node::rsvp::neighbor::{self, HelloConfig, IntegrityConfig, Reduction, Trust};

use crate::keys::Keys;
use crate::kind::{duration, flag, number, per_second, real, size};

const MINUTE: Duration = Duration::from_secs(60);

/// The three tables of a neighbor.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Neighbors {
    reduction: Reduction,
    says_hello: bool,
    hello: HelloConfig,
    protects: bool,
    trust: Trust,
    /// With what its keys say, whether or not they are in force.
    pub(super) integrity: IntegrityConfig,
}

impl Default for Neighbors {
    fn default() -> Self {
        Self {
            reduction: Reduction::default(),
            says_hello: false,
            // RFC 3209 has 5 ms, which is 200 messages a second with every neighbor.
            hello: HelloConfig { interval: Duration::from_secs(1), ..HelloConfig::default() },
            protects: false,
            trust: Trust::default(),
            integrity: IntegrityConfig { sending: true, receiving: true, ..IntegrityConfig::default() },
        }
    }
}

impl Neighbors {
    pub(super) fn declare(&mut self, keys: &mut Keys<'_>, whole: bool) {
        keys.key(
            "distant_hops",
            &mut self.trust.distant_hops,
            flag(),
            "Nodes without RSVP may lie between this node and a neighbor: messages with a lower TTL than their sender gave \
             them, and messages by another interface than that of their state, are accepted.",
        );
        keys.key(
            "any_source",
            &mut self.trust.any_source,
            flag(),
            "Messages whose IP source is not the address in their RSVP_HOP, or of a Path that of its sender, are accepted.",
        );
        keys.key(
            "any_destination",
            &mut self.trust.any_destination,
            flag(),
            "Paths that are addressed to this node instead of the destination of their session are accepted.",
        );
        let meaning = "Refresh reduction [RFC 2961], in use with neighbors that offer it.";
        keys.table("refresh_reduction", meaning, |keys| self.reduction(keys));
        let meaning = "Hello [RFC 3209 5].";
        keys.table("hello", meaning, |keys| self.hello(keys));
        let meaning = "Integrity [RFC 2747] with the keys of `[[keys]]`. Without it nothing is signed, and signatures are \
                       not looked at. `signalbox show rsvp neighbors` shows the keys in use and authentication failures.";
        keys.table("integrity", meaning, |keys| self.protection(keys, whole));
    }

    fn reduction(&mut self, keys: &mut Keys<'_>) {
        let reduction = &mut self.reduction;
        keys.key(
            "enabled",
            &mut reduction.reliable,
            flag(),
            "`false`: MESSAGE_IDs, acknowledgments, Bundles and Srefreshes are refused, as by a node without RFC 2961.",
        );
        keys.key(
            "summaries",
            &mut reduction.summary,
            flag(),
            "`false`: acknowledgments only: the node neither sends nor offers Bundles and summary refreshes.",
        );
        keys.key(
            "all_nodes_capable",
            &mut reduction.all_nodes_capable,
            flag(),
            "All nodes behind the interface support refresh reduction: Paths to groups are refreshed by summaries.",
        );
        keys.group("retry", |keys| {
            let range = Duration::from_millis(10)..=MINUTE;
            let meaning = "Rf: time until a message without acknowledgment is retransmitted.";
            keys.key("first", &mut reduction.first, duration(range), meaning);
            let mut growth = 1.0 + reduction.delta;
            let meaning = "1 + Delta: growth of the interval with each retransmission.";
            keys.key("factor", &mut growth, real(1.0..=11.0), meaning);
            reduction.delta = growth - 1.0;
            let meaning = "Rl: most transmissions of one message.";
            keys.key("attempts", &mut reduction.limit, number(1..=u8::MAX), meaning);
        });
        keys.key(
            "ack_delay",
            &mut reduction.ack_delay,
            duration(Duration::ZERO..=MINUTE),
            "How long an acknowledgment waits for a message that can carry it; below `retry.first`.",
        );
        keys.key(
            "multicast_ack_delay",
            &mut reduction.multicast_ack_delay,
            duration(Duration::ZERO..=MINUTE),
            "Longest random wait of an acknowledgment for a message that was sent to a group.",
        );
        keys.key(
            "bundle_delay",
            &mut reduction.bundle_delay,
            duration(Duration::ZERO..=MINUTE),
            "How long a refresh waits for others of the same Bundle.",
        );
        keys.key(
            "summary_delay",
            &mut reduction.summary_delay,
            duration(Duration::ZERO..=MINUTE),
            "How long a summary refresh waits for others of the same Srefresh.",
        );
        keys.key(
            "max_summaries",
            &mut reduction.summaries,
            number(0..=u8::MAX),
            "Number of summary refreshes after which the complete message is sent once [RFC 2961 5.5].",
        );
        keys.key(
            "max_packet_size",
            &mut reduction.largest,
            size(256..=65_000),
            "Size of the largest Bundle or Srefresh.",
        );
        let message = "not below retry.first: neighbors would send everything twice; write a shorter time, such as \"10ms\"";
        keys.check(reduction.ack_delay < reduction.first, &["ack_delay", "retry.first"], message);
    }

    fn hello(&mut self, keys: &mut Keys<'_>) {
        keys.key(
            "enabled",
            &mut self.says_hello,
            flag(),
            "Whether requests are sent, and those of known neighbors answered.",
        );
        let range = Duration::from_millis(1)..=Duration::from_secs(3600);
        let meaning = "Time between requests. RFC 3209 suggests 5 ms; on most links a second is enough.";
        keys.key("interval", &mut self.hello.interval, duration(range), meaning);
        let meaning =
            "Number of silent intervals after which a neighbor counts as lost: all state is sent again.";
        keys.key("misses", &mut self.hello.misses, real(1.0..=1000.0), meaning);
        let meaning = "Number of requests in a row with a wrong instance of this node after which a neighbor counts as \
                       lost.";
        keys.key("instance_mismatches", &mut self.hello.wrong, number(1..=u32::MAX), meaning);
    }

    fn protection(&mut self, keys: &mut Keys<'_>, whole: bool) {
        let integrity = &mut self.integrity;
        keys.key("enabled", &mut self.protects, flag(), "Whether `sign` and `require` are in force.");
        let meaning = "Messages are signed; a message for which there is no key is not sent.";
        keys.key("sign", &mut integrity.sending, flag(), meaning);
        let meaning = "Messages without a signature by a key of this node are discarded.";
        keys.key("require", &mut integrity.receiving, flag(), meaning);
        let meaning = "So many of the last sequence numbers may come out of order; `1`: none.";
        keys.key("window", &mut integrity.window, number(1..=64), meaning);
        let meaning = "A sender is accepted when it has answered a challenge, so that messages from before this node's \
                       start cannot be replayed.";
        keys.key("challenge", &mut integrity.handshake, flag(), meaning);
        let meaning = "Senders that answer no challenge are accepted too. An attacker can then replay their messages \
                       from before this node's start.";
        keys.key("accept_unchallenged", &mut integrity.without_handshake, flag(), meaning);
        let range = Duration::from_millis(10)..=MINUTE;
        let meaning = "Time until a challenge is repeated. It doubles with each repetition.";
        keys.key("challenge_interval", &mut integrity.challenge, duration(range), meaning);
        if whole {
            let meaning = "Challenges that the whole node answers; not in tables of interfaces.";
            keys.key("challenge_rate", &mut integrity.answers, per_second(1..=u32::MAX), meaning);
        }
    }

    /// The keys that relax a rule about who is a neighbor.
    pub(super) fn relaxed(&self) -> impl Iterator<Item = &'static str> {
        let Trust { distant_hops, any_source, any_destination, .. } = self.trust;
        let keys = [
            ("distant_hops", distant_hops),
            ("any_source", any_source),
            ("any_destination", any_destination),
        ];
        keys.into_iter().filter(|(_, given)| *given).map(|(key, _)| key)
    }

    /// What is signed and verified.
    pub(super) fn integrity(&self) -> IntegrityConfig {
        IntegrityConfig {
            sending: self.protects && self.integrity.sending,
            receiving: self.protects && self.integrity.receiving,
            ..self.integrity
        }
    }

    pub(super) fn engine(&self) -> neighbor::Interface {
        let reduction =
            Reduction { summary: self.reduction.reliable && self.reduction.summary, ..self.reduction };
        neighbor::Interface {
            reduction,
            hello: self.says_hello.then_some(self.hello),
            integrity: self.integrity(),
            trust: self.trust,
        }
    }
}

/// Limits of all neighbors together.
pub(super) fn limits(config: &mut neighbor::Config, keys: &mut Keys<'_>) {
    keys.key(
        "max_neighbors",
        &mut config.max_neighbors,
        number(0..=u32::MAX),
        "Most neighbors; a quarter is for links with few.",
    );
    keys.key(
        "max_message_ids",
        &mut config.max_names,
        number(0..=u32::MAX),
        "Most states with a MESSAGE_ID of a neighbor, and most with a MESSAGE_ID of this node.",
    );
    keys.key(
        "max_unacknowledged",
        &mut config.max_unacknowledged,
        number(0..=u32::MAX),
        "Most messages that wait for an acknowledgment.",
    );
    keys.key(
        "max_associations",
        &mut config.max_associations,
        number(0..=u32::MAX),
        "Most pairs of sender and key whose sequence numbers are kept.",
    );
}
