//! Counters of the engine.

use signalbox_core::metrics::{
    ASSOCIATION_EVENTS, Family, MESSAGES_DROPPED, MESSAGES_FORWARDED, MESSAGES_RECEIVED, MESSAGES_SENT,
    MESSAGES_UNANSWERED, MESSAGES_UNSENT, RATE_LIMITED, RETRANSMISSIONS, ROUTE_EVENTS, TABLE_FULL,
};

/// What happened to sessions.
const SESSION_EVENTS: Family =
    Family::counter("casp_session_events", &["event"], "Changes of the sessions of the messaging layer.");

signalbox_core::counters! {
    /// Counters of CASP.
    pub struct Counters {
        /// Signaling messages received.
        signaling_received: u64 => MESSAGES_RECEIVED { type: "signaling" },
        /// ERRORs received, which count as signaling too.
        errors_received: u64 => MESSAGES_RECEIVED { type: "error" },
        /// Scout Requests received.
        requests_received: u64 => MESSAGES_RECEIVED { type: "scout_request" },
        /// Scout Responses received.
        responses_received: u64 => MESSAGES_RECEIVED { type: "scout_response" },
        /// Signaling messages sent.
        signaling_sent: u64 => MESSAGES_SENT { type: "signaling" },
        /// Scout Requests sent.
        requests_sent: u64 => MESSAGES_SENT { type: "scout_request" },
        /// Scout Responses sent.
        responses_sent: u64 => MESSAGES_SENT { type: "scout_response" },
        /// ERRORs that this node made.
        errors_sent: u64 => MESSAGES_SENT { type: "error" },
        /// Messages sent on.
        forwarded: u64 => MESSAGES_FORWARDED { type: "signaling" },
        /// Messages without state sent on along the flow.
        stateless_forwarded: u64 => MESSAGES_FORWARDED { type: "stateless" },
        /// Messages without state sent on against the flow.
        stateless_returned: u64 => MESSAGES_FORWARDED { type: "stateless_reply" },
        /// Malformed messages.
        malformed: u64 => MESSAGES_DROPPED { reason: "malformed" },
        /// Messages with a TTD of zero.
        ttd_exceeded: u64 => MESSAGES_DROPPED { reason: "ttd_exceeded" },
        /// Messages against the flow, tear-downs and errors without state.
        no_state: u64 => MESSAGES_DROPPED { reason: "no_state" },
        /// Messages of a node that is no hop of the session.
        strangers: u64 => MESSAGES_DROPPED { reason: "stranger" },
        /// Messages over UDP of a node that proved nothing.
        unproved: u64 => MESSAGES_DROPPED { reason: "unproved" },
        /// Messages with a SCOUT_COOKIE_R that this node did not make.
        bad_cookies: u64 => MESSAGES_DROPPED { reason: "bad_cookie" },
        /// Messages of a session that came back to a node that sent them.
        loops: u64 => MESSAGES_DROPPED { reason: "loop" },
        /// Messages without state for a client that needs state.
        needs_state: u64 => MESSAGES_DROPPED { reason: "needs_state" },
        /// Messages without state that have passed as many nodes as a RECORD_ROUTE names.
        route_full: u64 => MESSAGES_DROPPED { reason: "route_full" },
        /// Messages without state to a node that their ROUTE names, and that has no connection with this one and is no neighbor.
        route_refused: u64 => MESSAGES_DROPPED { reason: "route" },
        /// Messages for a multicast destination.
        multicast: u64 => MESSAGES_DROPPED { reason: "multicast" },
        /// Scout Responses without a request, or with an address that no node can have.
        unexpected_responses: u64 => MESSAGES_DROPPED { reason: "unexpected_response" },
        /// Messages to a next hop that was not found.
        no_next_hop: u64 => MESSAGES_UNSENT { reason: "no_next_hop" },
        /// Messages to a node that could not be connected to.
        no_connection: u64 => MESSAGES_UNSENT { reason: "no_connection" },
        /// Messages of a session for which this NAT has no binding.
        untranslated: u64 => MESSAGES_UNSENT { reason: "untranslated" },
        /// Messages to a node that does not read what it was sent.
        peer_blocked: u64 => MESSAGES_UNSENT { reason: "peer_blocked" },
        /// Messages that were too many while a next hop or a connection was not known.
        waiting_full: u64 => TABLE_FULL { table: "waiting" },
        /// Sessions refused.
        sessions_full: u64 => TABLE_FULL { table: "sessions" },
        /// Connections refused.
        connections_full: u64 => TABLE_FULL { table: "connections" },
        /// Discoveries refused.
        searches_full: u64 => TABLE_FULL { table: "searches" },
        /// Messages without state that were too many while a next hop was not known.
        stateless_full: u64 => TABLE_FULL { table: "stateless" },
        /// Further branches of a session refused.
        branches_full: u64 => TABLE_FULL { table: "branches" },
        /// Messages that went on without the verdict of their client.
        held_full: u64 => TABLE_FULL { table: "held" },
        /// Messages over UDP of a source that sends too many.
        rate_limited: u64 => RATE_LIMITED { limit: "source" },
        /// Messages without state of a node that sends too many.
        stateless_limited: u64 => RATE_LIMITED { limit: "stateless" },
        /// Scout Requests that were not answered.
        answers_limited: u64 => RATE_LIMITED { limit: "scout_responses" },
        /// ERRORs that were not sent.
        errors_limited: u64 => RATE_LIMITED { limit: "errors" },
        /// Discoveries that a message asked for too soon.
        discovery_limited: u64 => RATE_LIMITED { limit: "discovery" },
        /// Scout Requests sent again.
        requests_repeated: u64 => RETRANSMISSIONS,
        /// Discoveries that found no node.
        no_next_node: u64 => MESSAGES_UNANSWERED,
        /// Sessions of which state was made.
        opened: u64 => SESSION_EVENTS { event: "opened" },
        /// Sessions that expired.
        expired: u64 => SESSION_EVENTS { event: "expired" },
        /// Sessions that were torn down.
        torn_down: u64 => SESSION_EVENTS { event: "torn_down" },
        /// Refreshes that this node made.
        refreshed: u64 => SESSION_EVENTS { event: "refreshed" },
        /// Further next hops of a session.
        next_branches: u64 => ROUTE_EVENTS { event: "next_hop" },
        /// Further previous hops of a session.
        previous_branches: u64 => ROUTE_EVENTS { event: "previous_hop" },
        /// Old branches that this node tore down.
        dead_branches: u64 => ROUTE_EVENTS { event: "branch_removed" },
        /// Discoveries before their time, because another router may have the place of the gateway.
        neighbors_followed: u64 => ROUTE_EVENTS { event: "neighbor_moved" },
        /// Connections established.
        connected: u64 => ASSOCIATION_EVENTS { event: "established" },
        /// Connections that failed.
        disconnected: u64 => ASSOCIATION_EVENTS { event: "failed" },
        /// Connections refused because of their node.
        refused_peers: u64 => ASSOCIATION_EVENTS { event: "refused" },
        /// Connections closed because a Length Header was wrong.
        framing: u64 => ASSOCIATION_EVENTS { event: "bad_framing" },
        /// Connections closed because too many octets of messages without an end were kept.
        incomplete: u64 => ASSOCIATION_EVENTS { event: "too_many_incomplete" },
    }
}
