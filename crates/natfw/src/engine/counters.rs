//! What the application counts.

use signalbox_core::metrics::{
    Family, MESSAGES_DROPPED, MESSAGES_RECEIVED, MESSAGES_SENT, MESSAGES_UNANSWERED, MESSAGES_UNWATCHED,
    OBJECTS_DROPPED, RETRANSMISSIONS, ROUTE_EVENTS, TABLE_FULL,
};

/// Rules of this node.
const RULES: Family = Family::counter(
    "natfw_rules",
    &["event"],
    "Policy rules of the NATFW application at this node, by what happened.",
);

signalbox_core::counters! {
    /// What the NATFW application counts.
    pub struct Counters {
        /// CREATEs received. Of all types those that are dropped count too, unless they are malformed or not verified.
        creates_received: u64 => MESSAGES_RECEIVED { type: "create" },
        /// EXTERNALs received.
        externals_received: u64 => MESSAGES_RECEIVED { type: "external" },
        /// RESPONSEs received.
        responses_received: u64 => MESSAGES_RECEIVED { type: "response" },
        /// NOTIFYs received.
        notifies_received: u64 => MESSAGES_RECEIVED { type: "notify" },
        /// CREATEs sent, including forwarded ones.
        creates_sent: u64 => MESSAGES_SENT { type: "create" },
        /// EXTERNALs sent, including forwarded ones.
        externals_sent: u64 => MESSAGES_SENT { type: "external" },
        /// RESPONSEs sent, including forwarded ones.
        responses_sent: u64 => MESSAGES_SENT { type: "response" },
        /// NOTIFYs sent, including forwarded ones.
        notifies_sent: u64 => MESSAGES_SENT { type: "notify" },
        /// Requests of this node that were sent again.
        retransmissions: u64 => RETRANSMISSIONS,
        /// Requests of this node that were given up because no RESPONSE was received.
        gave_up: u64 => MESSAGES_UNANSWERED,
        /// Rules that became active, including changed ones.
        opened: u64 => RULES { event: "activated" },
        /// Active rules that were refreshed.
        refreshed: u64 => RULES { event: "refreshed" },
        /// Requests refused by this node.
        refused: u64 => RULES { event: "refused" },
        /// Sessions that were deleted by their initiator.
        deleted: u64 => RULES { event: "deleted" },
        /// Sessions that expired without a refresh.
        expired: u64 => RULES { event: "expired" },
        /// Sessions that ended because of an error or a NOTIFY.
        ended: u64 => RULES { event: "ended" },
        /// Sessions of the node before this one that stand here.
        restored: u64 => RULES { event: "restored" },
        /// Sessions of the node before this one that ended because they are not allowed or not possible here.
        not_restored: u64 => RULES { event: "not_restored" },
        /// Rules that the kernel refused.
        kernel_refused: u64 => RULES { event: "kernel_refused" },
        /// Route changes that were reported to other nodes.
        route_changes: u64 => ROUTE_EVENTS { event: "peer_changed" },
        /// Requests refused because their GIST hop count is used up.
        hop_limit: u64 => MESSAGES_DROPPED { reason: "hops_exceeded" },
        /// Requests refused because this node forwarded them: the routes form a circle.
        returned: u64 => MESSAGES_DROPPED { reason: "returned" },
        /// Malformed messages; requests among them are answered.
        malformed: u64 => MESSAGES_DROPPED { reason: "malformed" },
        /// Messages without verified routing state.
        unverified: u64 => MESSAGES_DROPPED { reason: "unverified" },
        /// Messages that no authenticated channel protects, where `secure` demands it.
        insecure: u64 => MESSAGES_DROPPED { reason: "insecure" },
        /// Requests whose sequence number is not higher than that of the session, or than the last one of a session that ended of late.
        old_msn: u64 => MESSAGES_DROPPED { reason: "old_msn" },
        /// Requests of a node that is not the peer of the session, for another flow or to delete it.
        foreign: u64 => MESSAGES_DROPPED { reason: "foreign_session" },
        /// Requests received by the initiator of their session, or of another type than the session.
        misdirected: u64 => MESSAGES_DROPPED { reason: "misdirected" },
        /// Deletions of unknown sessions.
        unknown_session: u64 => MESSAGES_DROPPED { reason: "unknown_session" },
        /// RESPONSEs that match no request of their session.
        stray_responses: u64 => MESSAGES_DROPPED { reason: "stray_response" },
        /// NOTIFYs of unknown sessions, of nodes that are not peers of the session, without a messaging association, or
        /// in the wrong direction.
        stray_notifies: u64 => MESSAGES_DROPPED { reason: "stray_notify" },
        /// Messages with an object of a type that is private to this suite, but of another content: they are processed without it.
        foreign_objects: u64 => OBJECTS_DROPPED { object: "private" },
        /// Messages forwarded without waiting for their result, because too many wait.
        unwatched: u64 => MESSAGES_UNWATCHED,
        /// Sessions refused because the table is full, or what is left is for other sources.
        sessions_full: u64 => TABLE_FULL { table: "sessions" },
        /// Requests refused because no external port is left, or what is left is for other hosts.
        ports_full: u64 => TABLE_FULL { table: "ports" },
        /// Messages dropped because a table is full.
        overload: u64 => TABLE_FULL { table: "any" },
    }
}
