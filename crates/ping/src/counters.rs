//! What Ping counts.

signalbox_core::counters! {
    /// What the Ping application counts.
    pub struct Counters {
        /// Requests sent as initiator.
        probes_sent: u64,
        /// Replies to them that came in time.
        probes_answered: u64,
        /// Requests given up as initiator, for whatever reason.
        probes_lost: u64,
        /// Requests passed on to the next node.
        requests_relayed: u64,
        /// Replies passed on to the previous node.
        replies_relayed: u64,
        /// Requests turned round where their flow ends.
        turned_at_end: u64,
        /// Requests turned round because they could not go on.
        turned_early: u64,
        /// Requests passed on without watching their fate, because too many are watched.
        unwatched: u64,
        /// Messages whose GIST hop count is used up; dropped.
        hop_limit: u64,
        /// Replies for this node that nobody waits for (any more), duplicates among them; dropped.
        unexpected_replies: u64,
        /// Replies whose padding is not what the request had; given up.
        damaged_replies: u64,
        /// Requests that came upstream, replies that came downstream, and unknown kinds; dropped.
        misdirected: u64,
        /// Messages that are malformed or of an unknown version; dropped.
        malformed: u64,
        /// Messages dropped because the output table is full.
        overload: u64,
    }
}
