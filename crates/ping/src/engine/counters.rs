//! Counters of the application.

signalbox_core::counters! {
    /// Counts of the Ping application since its start.
    pub struct Counters {
        /// Requests sent as initiator.
        probes_sent: u64,
        /// Replies to them that came in time.
        probes_answered: u64,
        /// Requests of this node without reply, for any reason.
        probes_lost: u64,
        /// Requests sent on to the next node.
        requests_relayed: u64,
        /// Replies sent on to the previous node.
        replies_relayed: u64,
        /// Requests answered at the end of their flow.
        turned_at_end: u64,
        /// Requests returned to their initiator because they could not be sent on.
        turned_early: u64,
        /// Requests sent on without waiting for their status, because too many wait.
        unwatched: u64,
        /// Messages dropped because their GIST hop count is used up.
        hop_limit: u64,
        /// Replies dropped because no request of this node waits for them, for example duplicates.
        unexpected_replies: u64,
        /// Replies with other padding than the request; their requests count as lost.
        damaged_replies: u64,
        /// Messages dropped because they are requests that came upstream, replies that came downstream, or of unknown kind.
        misdirected: u64,
        /// Messages dropped because they are malformed or of an unknown version.
        malformed: u64,
        /// Messages dropped because the table of messages is full.
        overload: u64,
    }
}
