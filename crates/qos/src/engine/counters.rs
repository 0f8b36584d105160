//! What the application counts.

signalbox_core::counters! {
    /// What the QoS application counts.
    pub struct Counters {
        /// RESERVEs sent that make or change a reservation.
        reserves_sent: u64,
        /// RESERVEs sent that refresh with a QSPEC.
        full_refreshes_sent: u64,
        /// RESERVEs sent that refresh without a QSPEC.
        reduced_refreshes_sent: u64,
        /// Sessions refreshed or torn down beside the first of a summary message that was sent.
        summarised: u64,
        /// RESERVEs sent that tear down.
        tears_sent: u64,
        /// QUERYs sent, those that are passed on among them.
        queries_sent: u64,
        /// RESPONSEs sent, those that are passed on among them.
        responses_sent: u64,
        /// NOTIFYs sent.
        notifies_sent: u64,
        /// Requests sent again because no RESPONSE came.
        retransmissions: u64,
        /// Requests given up because no RESPONSE came.
        gave_up: u64,
        /// Reservations granted here, changes included.
        granted: u64,
        /// Reservations refused here by admission control or policy.
        refused: u64,
        /// Reservations that refreshes kept alive.
        refreshed: u64,
        /// Reservations torn down by a message.
        torn_down: u64,
        /// Reservations that nobody refreshed.
        expired: u64,
        /// Reservations lost: preempted, or their interface or the kernel failed.
        lost: u64,
        /// Peers that changed.
        peer_changes: u64,
        /// Routes repaired: the new path holds the reservation.
        rerouted: u64,
        /// Messages that are malformed; dropped or answered.
        malformed: u64,
        /// Messages without verified routing state; dropped (key `accept_stateless`).
        unverified: u64,
        /// Messages that no authenticated channel protects, where `secure` demands it; dropped.
        insecure: u64,
        /// Messages of a message routing method other than path-coupled.
        unknown_mri: u64,
        /// RESERVEs for a session that others reserve in the other direction.
        wrong_direction: u64,
        /// RESERVEs older than what is installed; dropped.
        old_rsn: u64,
        /// RESERVEs from a peer that is not the session's any more; dropped.
        old_peer: u64,
        /// Refreshes and tears of sessions that are not known.
        unknown_session: u64,
        /// Refreshes of sessions that are torn down; dropped.
        after_tear: u64,
        /// RESPONSEs that match nothing that is asked; dropped.
        stray_responses: u64,
        /// NOTIFYs for sessions that are not known; dropped.
        stray_notifies: u64,
        /// RIIs of others that are those of a request of this node.
        rii_conflicts: u64,
        /// Messages that waited in vain for the message they were bound to.
        unsynchronised: u64,
        /// Refreshes that were not passed on because they came too fast.
        rate_limited: u64,
        /// Messages whose GIST hop count is used up; dropped.
        hop_limit: u64,
        /// Messages passed on without watching their fate, because too many are watched.
        unwatched: u64,
        /// Messages dropped because a table is full.
        overload: u64,
    }
}
