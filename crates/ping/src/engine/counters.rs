//! Counters of the application.

use signalbox_core::metrics::{
    Family, MESSAGES_DROPPED, MESSAGES_FORWARDED, MESSAGES_RECEIVED, MESSAGES_SENT, MESSAGES_UNWATCHED,
    TABLE_FULL,
};

/// Results of the requests of this node.
const PROBES: Family =
    Family::counter("ping_probes", &["result"], "Requests of this node that ended, by result.");

signalbox_core::counters! {
    /// Counts of the Ping application since its start.
    pub struct Counters {
        /// Requests received, including those that are forwarded.
        requests_received: u64 => MESSAGES_RECEIVED { type: "request" },
        /// Replies received, including those that are forwarded.
        replies_received: u64 => MESSAGES_RECEIVED { type: "reply" },
        /// Requests sent as initiator.
        probes_sent: u64 => MESSAGES_SENT { type: "request" },
        /// Requests of this node whose reply was received in time.
        probes_answered: u64 => PROBES { result: "answered" },
        /// Requests of this node without reply, for any reason.
        probes_lost: u64 => PROBES { result: "lost" },
        /// Requests forwarded to the next node.
        requests_relayed: u64 => MESSAGES_FORWARDED { type: "request" },
        /// Replies forwarded to the previous node.
        replies_relayed: u64 => MESSAGES_FORWARDED { type: "reply" },
        /// Requests answered at the end of their flow.
        turned_at_end: u64 => MESSAGES_SENT { type: "reply" },
        /// Requests returned to their initiator because they could not be forwarded.
        turned_early: u64 => MESSAGES_SENT { type: "early_reply" },
        /// Requests forwarded without waiting for their status, because too many wait.
        unwatched: u64 => MESSAGES_UNWATCHED,
        /// Messages dropped because their GIST hop count is used up.
        hop_limit: u64 => MESSAGES_DROPPED { reason: "hops_exceeded" },
        /// Replies dropped because no request of this node waits for them, for example duplicates.
        unexpected_replies: u64 => MESSAGES_DROPPED { reason: "unexpected_reply" },
        /// Replies whose padding differs from that of the request; their requests count as lost.
        damaged_replies: u64 => MESSAGES_DROPPED { reason: "damaged_reply" },
        /// Messages dropped because they are requests received from downstream, replies received from upstream, or of unknown kind.
        misdirected: u64 => MESSAGES_DROPPED { reason: "misdirected" },
        /// Messages dropped because they are malformed or of an unknown version.
        malformed: u64 => MESSAGES_DROPPED { reason: "malformed" },
        /// Messages dropped because the table of messages is full.
        overload: u64 => TABLE_FULL { table: "messages" },
    }
}
