//! Counters of the engine.

use signalbox_core::metrics::{
    Family, MESSAGES_DROPPED, MESSAGES_FORWARDED, MESSAGES_RECEIVED, MESSAGES_SENT, MESSAGES_UNANSWERED,
    MESSAGES_UNSENT, RATE_LIMITED, RESERVATION_EVENTS, ROUTE_EVENTS, TABLE_FULL,
};

/// Effects of passing messages on the reservations of this node.
const UPDATES: Family = Family::counter(
    "boomerang_updates",
    &["effect"],
    "Messages interpreted as a node on the path, by their effect on the reservations of this node.",
);
/// What this node did with the options of aggregates.
const OPTIONS: Family = Family::counter(
    "boomerang_aggregation_options",
    &["action"],
    "Options of aggregates in messages, by action.",
);
/// Requests to groups that end here.
const GROUPS: Family = Family::counter(
    "boomerang_group_requests",
    &["result"],
    "Requests to multicast groups that this node does not forward, by what the path did with them.",
);
/// Messages that this node did not interpret.
const PASSED: Family = Family::counter(
    "boomerang_passed",
    &["reason"],
    "Messages forwarded without being interpreted, by reason.",
);

signalbox_core::counters! {
    /// Counters of Boomerang.
    pub struct Counters {
        /// Requests received.
        requests_received: u64 => MESSAGES_RECEIVED { type: "request" },
        /// Replies received.
        replies_received: u64 => MESSAGES_RECEIVED { type: "reply" },
        /// Requests sent as initiating node.
        requests_sent: u64 => MESSAGES_SENT { type: "request" },
        /// Replies sent as far-end node.
        replies_sent: u64 => MESSAGES_SENT { type: "reply" },
        /// Requests forwarded.
        requests_forwarded: u64 => MESSAGES_FORWARDED { type: "request" },
        /// Replies forwarded.
        replies_forwarded: u64 => MESSAGES_FORWARDED { type: "reply" },
        /// Messages that created a reservation.
        created: u64 => UPDATES { effect: "created" },
        /// Messages whose flow became a member of an aggregate of another node.
        joined: u64 => UPDATES { effect: "joined" },
        /// Messages that changed a reservation.
        changed: u64 => UPDATES { effect: "changed" },
        /// Messages that refreshed a reservation.
        refreshed: u64 => UPDATES { effect: "refreshed" },
        /// Messages that released a reservation.
        released: u64 => UPDATES { effect: "released" },
        /// Messages without effect: refused before this node, a query, a rate of 0 without a reservation.
        without_effect: u64 => UPDATES { effect: "nothing" },
        /// Messages that this node refused.
        refused: u64 => UPDATES { effect: "refused" },
        /// Messages of initiating nodes that have to prove first that they receive the replies.
        unproved: u64 => UPDATES { effect: "unproved" },
        /// Messages whose proof of return is wrong: outdated or guessed.
        wrong_proofs: u64 => UPDATES { effect: "wrong_proof" },
        /// Messages refused because too many wrong proofs came about their flow, of their source or by their interface.
        guesses_limited: u64 => RATE_LIMITED { limit: "wrong_proof" },
        /// Messages without effect, because a newer one of the same reservation was received: duplicates and replays.
        stale: u64 => UPDATES { effect: "stale" },
        /// Messages refused because their authentication is missing or wrong, or their time is not near.
        unauthenticated: u64 => UPDATES { effect: "unauthenticated" },
        /// Reservations that expired.
        expired: u64 => RESERVATION_EVENTS { event: "expired" },
        /// Reservations lost: preempted, or their interface or the kernel failed.
        lost: u64 => RESERVATION_EVENTS { event: "lost" },
        /// Aggregates of other nodes that this node adopted.
        adopted: u64 => RESERVATION_EVENTS { event: "adopted" },
        /// Aggregates of other nodes that expired.
        aggregates_expired: u64 => RESERVATION_EVENTS { event: "aggregate_expired" },
        /// Aggregation options that this node added to messages.
        options_added: u64 => OPTIONS { action: "added" },
        /// Aggregation options that this node did not add: the message would be too long, or has an option of unknown type.
        options_left_out: u64 => OPTIONS { action: "left_out" },
        /// Aggregation options taken out: own ones that came back, and those of strangers.
        options_removed: u64 => OPTIONS { action: "removed" },
        /// Aggregation options whose aggregate this node cannot adopt.
        options_ignored: u64 => OPTIONS { action: "ignored" },
        /// Requests to a group that end here, granted by the whole path.
        group_granted: u64 => GROUPS { result: "granted" },
        /// Requests to a group that end here, refused by a node of the path.
        group_refused: u64 => GROUPS { result: "refused" },
        /// Messages of another version or type, or malformed.
        unknown: u64 => PASSED { reason: "unknown" },
        /// Messages with a wrong checksum.
        checksum: u64 => PASSED { reason: "checksum" },
        /// Messages received by an untrusted interface.
        untrusted: u64 => PASSED { reason: "untrusted" },
        /// Messages dropped because their TTL is used up.
        hops_exceeded: u64 => MESSAGES_DROPPED { reason: "hops_exceeded" },
        /// Messages dropped because their source is not the address of a host, or of one link only.
        bad_source: u64 => MESSAGES_DROPPED { reason: "source" },
        /// ICMP errors sent about messages that this node dropped.
        errors_sent: u64 => MESSAGES_SENT { type: "icmp_error" },
        /// Destination Unreachables about requests of this node.
        unreachable: u64 => MESSAGES_RECEIVED { type: "unreachable" },
        /// ICMP errors that were not sent, because their receiver was sent too many.
        errors_limited: u64 => RATE_LIMITED { limit: "icmp_error" },
        /// Messages dropped because there is no route to their destination.
        no_route: u64 => MESSAGES_DROPPED { reason: "no_route" },
        /// Replies dropped because no session of this node waits for them.
        unexpected_replies: u64 => MESSAGES_DROPPED { reason: "unexpected_reply" },
        /// Replies dropped because their flow or KEY is not that of the session.
        invalid_replies: u64 => MESSAGES_DROPPED { reason: "invalid_reply" },
        /// Requests to this node that are not answered, because their initiating node wants no reply (NO_ECHO).
        not_echoed: u64 => MESSAGES_DROPPED { reason: "no_echo" },
        /// Requests of this node that were not sent, because they exceed the MTU of the first hop or of the route.
        too_large: u64 => MESSAGES_UNSENT { reason: "too_large" },
        /// Messages dropped because too many wait for a route.
        waiting_full: u64 => TABLE_FULL { table: "waiting" },
        /// Requests dropped because the table of multicast routes is full, or the rest of it is for others.
        groups_full: u64 => TABLE_FULL { table: "groups" },
        /// Messages refused because the table of reservations is full, or the rest of it is for others.
        flows_full: u64 => TABLE_FULL { table: "flows" },
        /// Aggregates not adopted because their table is full, or the rest of it is for others.
        aggregates_full: u64 => TABLE_FULL { table: "aggregates" },
        /// Flows that got a reservation of their own because the table of members is full.
        members_full: u64 => TABLE_FULL { table: "members" },
        /// Sessions refused because the table of sessions is full.
        sessions_full: u64 => TABLE_FULL { table: "sessions" },
        /// Messages dropped because their source sends too many.
        rate_limited: u64 => RATE_LIMITED { limit: "source" },
        /// Refreshes before their time, because another router may have the place of the gateway.
        neighbors_followed: u64 => ROUTE_EVENTS { event: "neighbor_moved" },
        /// Requests of this node without a reply in time.
        unanswered: u64 => MESSAGES_UNANSWERED,
    }
}
