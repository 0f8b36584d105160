//! What the application counts.

use signalbox_core::metrics::{
    MESSAGES_DROPPED, MESSAGES_RECEIVED, MESSAGES_SENT, MESSAGES_UNANSWERED, MESSAGES_UNWATCHED,
    OBJECTS_DROPPED, RATE_LIMITED, RESERVATION_EVENTS, RETRANSMISSIONS, ROUTE_EVENTS, STATES_SUMMARIZED,
    TABLE_FULL,
};

use crate::wire::{Message, MessageType};

signalbox_core::counters! {
    /// What the QoS application counts.
    pub struct Counters {
        /// RESERVEs received with a QSPEC: they make, change or refresh a reservation. Of all types those that are dropped count
        /// too, unless they are malformed.
        reserves_received: u64 => MESSAGES_RECEIVED { type: "reserve" },
        /// RESERVEs received that refresh without a QSPEC.
        reduced_refreshes_received: u64 => MESSAGES_RECEIVED { type: "reduced_refresh" },
        /// RESERVEs received that tear down.
        tears_received: u64 => MESSAGES_RECEIVED { type: "tear" },
        /// QUERYs received.
        queries_received: u64 => MESSAGES_RECEIVED { type: "query" },
        /// RESPONSEs received.
        responses_received: u64 => MESSAGES_RECEIVED { type: "response" },
        /// NOTIFYs received.
        notifies_received: u64 => MESSAGES_RECEIVED { type: "notify" },
        /// RESERVEs sent that make or change a reservation.
        reserves_sent: u64 => MESSAGES_SENT { type: "reserve" },
        /// RESERVEs sent that refresh with a QSPEC.
        full_refreshes_sent: u64 => MESSAGES_SENT { type: "full_refresh" },
        /// RESERVEs sent that refresh without a QSPEC.
        reduced_refreshes_sent: u64 => MESSAGES_SENT { type: "reduced_refresh" },
        /// Sessions refreshed or torn down by a summary message sent, in addition to its first session.
        summarised: u64 => STATES_SUMMARIZED,
        /// RESERVEs sent that tear down.
        tears_sent: u64 => MESSAGES_SENT { type: "tear" },
        /// QUERYs sent, including forwarded ones.
        queries_sent: u64 => MESSAGES_SENT { type: "query" },
        /// RESPONSEs sent, including forwarded ones.
        responses_sent: u64 => MESSAGES_SENT { type: "response" },
        /// NOTIFYs sent.
        notifies_sent: u64 => MESSAGES_SENT { type: "notify" },
        /// Requests sent again because no RESPONSE was received.
        retransmissions: u64 => RETRANSMISSIONS,
        /// Requests given up because no RESPONSE was received.
        gave_up: u64 => MESSAGES_UNANSWERED,
        /// Reservations granted here, including changes.
        granted: u64 => RESERVATION_EVENTS { event: "granted" },
        /// Reservations refused here by admission control or policy.
        refused: u64 => RESERVATION_EVENTS { event: "refused" },
        /// Refreshes of reservations.
        refreshed: u64 => RESERVATION_EVENTS { event: "refreshed" },
        /// Reservations torn down by a message.
        torn_down: u64 => RESERVATION_EVENTS { event: "torn_down" },
        /// Reservations that expired without a refresh.
        expired: u64 => RESERVATION_EVENTS { event: "expired" },
        /// Reservations lost: preempted, or their interface or the kernel failed.
        lost: u64 => RESERVATION_EVENTS { event: "lost" },
        /// Changes of a session's peer.
        peer_changes: u64 => ROUTE_EVENTS { event: "peer_changed" },
        /// Reservations set up on a new path after a route change.
        rerouted: u64 => ROUTE_EVENTS { event: "repaired" },
        /// Reservations given back because the route has left this node: the next peer has another previous peer, and that of this
        /// node does not answer.
        left: u64 => ROUTE_EVENTS { event: "left" },
        /// Messages that are malformed; dropped or answered with an error.
        malformed: u64 => MESSAGES_DROPPED { reason: "malformed" },
        /// Messages without verified routing state; dropped (key `accept_stateless`).
        unverified: u64 => MESSAGES_DROPPED { reason: "unverified" },
        /// Messages that no authenticated channel protects, where `secure` demands it; dropped.
        insecure: u64 => MESSAGES_DROPPED { reason: "insecure" },
        /// Messages of another message routing method than path-coupled.
        unknown_mri: u64 => MESSAGES_DROPPED { reason: "unknown_routing_method" },
        /// RESERVEs for a session that is reserved in the other direction.
        wrong_direction: u64 => MESSAGES_DROPPED { reason: "wrong_direction" },
        /// RESERVEs whose RSN is older than that of the installed reservation; dropped.
        old_rsn: u64 => MESSAGES_DROPPED { reason: "old_rsn" },
        /// RESERVEs from a former peer of the session; dropped.
        old_peer: u64 => MESSAGES_DROPPED { reason: "old_peer" },
        /// Refreshes and tears of unknown sessions.
        unknown_session: u64 => MESSAGES_DROPPED { reason: "unknown_session" },
        /// Refreshes of sessions that were torn down; dropped.
        after_tear: u64 => MESSAGES_DROPPED { reason: "after_tear" },
        /// RESPONSEs that match no request of this node; dropped.
        stray_responses: u64 => MESSAGES_DROPPED { reason: "stray_response" },
        /// NOTIFYs for unknown sessions; dropped.
        stray_notifies: u64 => MESSAGES_DROPPED { reason: "stray_notify" },
        /// RESERVEs and QUERYs refused because this node sent or forwarded them: the routes form a circle.
        returned: u64 => MESSAGES_DROPPED { reason: "returned" },
        /// QUERYs of other nodes refused because a request of this node has the same RII.
        rii_conflicts: u64 => MESSAGES_DROPPED { reason: "rii_conflict" },
        /// Messages dropped because the message to which they are bound was not received in time.
        unsynchronised: u64 => MESSAGES_DROPPED { reason: "unsynchronized" },
        /// Refreshes not forwarded because they arrived too often, and messages without state of peers that preserve no hop
        /// count.
        rate_limited: u64 => RATE_LIMITED { limit: "refreshes" },
        /// Messages dropped because their GIST hop count is used up.
        hop_limit: u64 => MESSAGES_DROPPED { reason: "hops_exceeded" },
        /// Messages with an object of a type that is private to this suite, but of another content: they are processed without it.
        foreign_objects: u64 => OBJECTS_DROPPED { object: "private" },
        /// Messages forwarded without waiting for their status, because too many wait.
        unwatched: u64 => MESSAGES_UNWATCHED,
        /// Messages dropped because a table is full.
        overload: u64 => TABLE_FULL { table: "any" },
        /// RESERVEs and QUERYs refused, and messages that wait dropped, because their long objects find no room (key
        /// `max_contents_size`).
        contents_full: u64 => TABLE_FULL { table: "contents" },
    }
}

impl Counters {
    /// Counts a message that was received.
    pub(super) fn received(&mut self, message: &Message<'_>) {
        let counter = match message.kind {
            _ if message.is_tear() => &mut self.tears_received,
            MessageType::RESERVE if message.qspec.is_none() => &mut self.reduced_refreshes_received,
            MessageType::RESERVE => &mut self.reserves_received,
            MessageType::QUERY => &mut self.queries_received,
            MessageType::RESPONSE => &mut self.responses_received,
            _ => &mut self.notifies_received,
        };
        *counter += 1;
    }
}
