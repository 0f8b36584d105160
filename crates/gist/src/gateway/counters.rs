//! Counters of the gateway.

use signalbox_core::metrics::{
    Family, MESSAGES_DROPPED, MESSAGES_FORWARDED, MESSAGES_SENT, MESSAGES_UNSENT, RATE_LIMITED, TABLE_FULL,
};

/// Changes of bindings.
const BINDING_EVENTS: Family = Family::counter(
    "gist_nat_bindings",
    &["event"],
    "Changes of the bindings of the GIST-aware NAT gateway.",
);
/// Messages that are dropped because nothing shows that they may pass.
const FOREIGN: Family = Family::counter(
    "gist_nat_foreign",
    &["reason"],
    "Messages between the sides of the gateway that it dropped because it could not verify them, by reason.",
);

signalbox_core::counters! {
    /// Counts of one gateway since its start.
    pub struct Counters {
        /// Queries translated.
        queries: u64 => MESSAGES_FORWARDED { type: "query" },
        /// Q-mode Data translated.
        data: u64 => MESSAGES_FORWARDED { type: "q_mode_data" },
        /// Responses with an entry of this gateway.
        responses: u64 => MESSAGES_FORWARDED { type: "response" },
        /// Errors with an entry of this gateway.
        errors: u64 => MESSAGES_FORWARDED { type: "error" },
        /// Error messages of this gateway.
        errors_sent: u64 => MESSAGES_SENT { type: "error" },
        /// Error messages not sent because of the rate limit.
        errors_suppressed: u64 => RATE_LIMITED { limit: "errors" },
        /// Error messages that could not be sent.
        errors_unsendable: u64 => MESSAGES_UNSENT { reason: "error_unsendable" },
        /// Queries discarded by the rate limit of their source.
        queries_limited: u64 => RATE_LIMITED { limit: "queries_of_source" },
        /// Messages whose IP TTL was used up.
        ttl_expired: u64 => MESSAGES_DROPPED { reason: "ttl_expired" },
        /// Messages whose hop count was used up.
        hops_exceeded: u64 => MESSAGES_DROPPED { reason: "hops_exceeded" },
        /// Messages that could not be parsed.
        malformed: u64 => MESSAGES_DROPPED { reason: "malformed" },
        /// Messages whose MRI cannot be translated.
        untranslatable: u64 => MESSAGES_DROPPED { reason: "untranslatable" },
        /// Queries with another source than they name: a NAT that is not GIST-aware is between, or the source is forged.
        untranslated: u64 => MESSAGES_DROPPED { reason: "untranslated" },
        /// Queries that have passed too many NATs.
        too_deep: u64 => MESSAGES_DROPPED { reason: "too_many_nats" },
        /// Messages that exceed the MTU after the translation.
        too_large: u64 => MESSAGES_DROPPED { reason: "too_large" },
        /// Queries from outside for which there is no host inside.
        no_forward: u64 => MESSAGES_DROPPED { reason: "no_binding" },
        /// Answers to a Query whose binding has ended, or that the kernel refused.
        binding_gone: u64 => MESSAGES_DROPPED { reason: "binding_gone" },
        /// Packets to this node that are not for the gateway.
        not_for_gateway: u64 => MESSAGES_DROPPED { reason: "not_for_gateway" },
        /// Packets discarded because the gateway has no external address.
        no_address: u64 => MESSAGES_DROPPED { reason: "no_address" },
        /// Messages without an authentic entry of this gateway, and Queries from outside that are not for its external address.
        foreign_forged: u64 => FOREIGN { reason: "no_own_entry" },
        /// Answers that came from another side than their Query went to.
        foreign_link: u64 => FOREIGN { reason: "wrong_link" },
        /// Responses with the entry of another Query.
        foreign_cookie: u64 => FOREIGN { reason: "wrong_cookie" },
        /// Bindings made.
        made: u64 => BINDING_EVENTS { event: "made" },
        /// Bindings that became active by a Response.
        activated: u64 => BINDING_EVENTS { event: "activated" },
        /// Bindings that expired.
        expired: u64 => BINDING_EVENTS { event: "expired" },
        /// Bindings that the kernel refused.
        refused: u64 => BINDING_EVENTS { event: "refused" },
        /// Bindings not made because another host has the same packets.
        conflicts: u64 => BINDING_EVENTS { event: "conflict" },
        /// Bindings towards a host inside that were not opened, because a packet of another host asked for them.
        other_host: u64 => BINDING_EVENTS { event: "other_host" },
        /// Flows that the kernel translated already when their signaling began.
        adopted: u64 => BINDING_EVENTS { event: "adopted" },
        /// Flows that the kernel translates to another host than the configuration says.
        contradictions: u64 => BINDING_EVENTS { event: "contradiction" },
        /// Bindings not made because the table is full.
        bindings_full: u64 => TABLE_FULL { table: "bindings" },
        /// Bindings not made because what is left of the table is for other hosts.
        bindings_of_host: u64 => TABLE_FULL { table: "bindings_of_host" },
        /// Bindings not made because what is left of the table is for other interfaces.
        bindings_of_interface: u64 => TABLE_FULL { table: "bindings_of_interface" },
        /// Bindings without a Response that ended because another one needed their place.
        evicted: u64 => BINDING_EVENTS { event: "evicted" },
        /// Messages dropped because too many wait for the kernel's answer about one binding, or about flows.
        waiting_full: u64 => TABLE_FULL { table: "waiting" },
        /// Bindings not made because no external port was found.
        ports_full: u64 => TABLE_FULL { table: "ports" },
    }
}
