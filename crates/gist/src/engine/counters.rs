//! Counters of the engine.

use signalbox_core::metrics::{
    ASSOCIATION_EVENTS, Family, MESSAGES_DROPPED, MESSAGES_FORWARDED, MESSAGES_RECEIVED, MESSAGES_SENT,
    MESSAGES_UNSENT, RATE_LIMITED, RETRANSMISSIONS, ROUTE_EVENTS, TABLE_FULL,
};

/// Handshakes without result.
const HANDSHAKES_FAILED: Family = Family::counter(
    "gist_handshakes_failed",
    &["reason"],
    "State machines that ended because a message of the handshake was not received.",
);
/// Changes of routing state.
const ROUTING_STATE_EVENTS: Family =
    Family::counter("gist_routing_state_events", &["event"], "Changes of GIST's message routing state.");
/// Messages over associations.
const ASSOCIATION_MESSAGES: Family = Family::counter(
    "gist_association_messages",
    &["direction"],
    "Messages received and sent over messaging associations.",
);

signalbox_core::counters! {
    /// Counts of one GIST engine since its start.
    pub struct Counters {
        /// Queries sent, including retransmissions and refreshes.
        queries_sent: u64 => MESSAGES_SENT { type: "query" },
        /// Queries sent again because no Response was received in time.
        queries_retransmitted: u64 => RETRANSMISSIONS,
        /// Queries received for a signaling application of this node.
        queries_received: u64 => MESSAGES_RECEIVED { type: "query" },
        /// Queries discarded by the rate limit of their source.
        queries_limited: u64 => RATE_LIMITED { limit: "queries_of_source" },
        /// Responses sent, including retransmissions.
        responses_sent: u64 => MESSAGES_SENT { type: "response" },
        /// Responses that matched a Query of this node.
        responses_received: u64 => MESSAGES_RECEIVED { type: "response" },
        /// Responses discarded because they matched no Query.
        responses_stray: u64 => MESSAGES_DROPPED { reason: "stray_response" },
        /// Confirms sent.
        confirms_sent: u64 => MESSAGES_SENT { type: "confirm" },
        /// Confirms that installed or refreshed routing state.
        confirms_received: u64 => MESSAGES_RECEIVED { type: "confirm" },
        /// Confirms ignored because their state was already confirmed.
        confirms_duplicate: u64 => MESSAGES_DROPPED { reason: "duplicate_confirm" },
        /// Data messages sent.
        data_sent: u64 => MESSAGES_SENT { type: "data" },
        /// Data messages delivered to signaling applications.
        data_received: u64 => MESSAGES_RECEIVED { type: "data" },
        /// Data messages delivered without a check against routing state, because they came in Q-mode or with explicit routing.
        data_unchecked: u64,
        /// Data messages for which there was no routing state.
        data_without_state: u64 => MESSAGES_DROPPED { reason: "no_routing_state" },
        /// Data messages dropped because they were received before the Response.
        data_early: u64 => MESSAGES_DROPPED { reason: "early_data" },
        /// Error messages sent.
        errors_sent: u64 => MESSAGES_SENT { type: "error" },
        /// Error messages sent after a planned restart, about sessions of the node before it.
        peers_informed: u64 => ROUTING_STATE_EVENTS { event: "missing_after_restart" },
        /// Error messages not sent because of the rate limit.
        errors_suppressed: u64 => RATE_LIMITED { limit: "errors" },
        /// Error messages that could not be sent: no address to send to, or too large.
        errors_unsendable: u64 => MESSAGES_UNSENT { reason: "error_unsendable" },
        /// Error messages that matched state of this node.
        errors_received: u64 => MESSAGES_RECEIVED { type: "error" },
        /// Error messages discarded because they matched no state.
        errors_stray: u64 => MESSAGES_DROPPED { reason: "stray_error" },
        /// Queries and Q-mode Data forwarded because this node does not run their application, or the application declined to peer.
        forwarded: u64 => MESSAGES_FORWARDED { type: "q_mode" },
        /// Intercepted datagrams forwarded unchanged because they are not GIST messages for this node.
        passed_on: u64 => MESSAGES_FORWARDED { type: "foreign" },
        /// Datagrams not forwarded because their IP TTL was used up.
        ttl_expired: u64 => MESSAGES_DROPPED { reason: "ttl_expired" },
        /// Datagrams to this node dropped because they lack the magic number.
        no_magic: u64 => MESSAGES_DROPPED { reason: "no_magic" },
        /// Messages that could not be parsed.
        malformed: u64 => MESSAGES_DROPPED { reason: "malformed" },
        /// Messages whose GIST hop count was used up.
        hops_exceeded: u64 => MESSAGES_DROPPED { reason: "hops_exceeded" },
        /// Directly addressed messages for an application that this node does not run.
        unknown_nslp: u64 => MESSAGES_DROPPED { reason: "unknown_nslp" },
        /// Messages whose MRI failed a validation check.
        mri_rejected: u64 => MESSAGES_DROPPED { reason: "bad_mri" },
        /// Messages whose NLI differs from their IP source although S=1: a NAT that is not GIST-aware is on the path.
        untranslated: u64 => MESSAGES_DROPPED { reason: "untranslated" },
        /// Upstream Queries from a peer more than one IP hop away.
        ttl_rejected: u64 => MESSAGES_DROPPED { reason: "distant_peer" },
        /// Messages whose Query-Cookie or Responder-Cookie did not verify.
        cookies_invalid: u64 => MESSAGES_DROPPED { reason: "bad_cookie" },
        /// Messages ignored because the state of their session does not allow them.
        unexpected: u64 => MESSAGES_DROPPED { reason: "unexpected" },
        /// Candidate Q-mode packets discarded by the interception rate limit.
        intercept_limited: u64 => RATE_LIMITED { limit: "interception" },
        /// Messages delayed or dropped by the D-mode rate limit.
        dmode_limited: u64 => RATE_LIMITED { limit: "d_mode" },
        /// Querying state machines that ended because no Response was received.
        no_response: u64 => HANDSHAKES_FAILED { reason: "no_response" },
        /// Responding state machines that ended because no Confirm was received.
        no_confirm: u64 => HANDSHAKES_FAILED { reason: "no_confirm" },
        /// Pieces of routing state installed.
        installed: u64 => ROUTING_STATE_EVENTS { event: "installed" },
        /// Pieces of routing state that expired or were removed.
        removed: u64 => ROUTING_STATE_EVENTS { event: "removed" },
        /// Changes of a peer shown by a Response, Query or Confirm.
        peer_changed: u64 => ROUTE_EVENTS { event: "peer_changed" },
        /// Routes looked up again after a change.
        route_checks: u64 => ROUTE_EVENTS { event: "checked" },
        /// Sessions rerouted because their route changed.
        routes_followed: u64 => ROUTE_EVENTS { event: "rerouted" },
        /// Refreshes before their time, because another router may have the place of the next hop.
        neighbors_followed: u64 => ROUTE_EVENTS { event: "neighbor_moved" },
        /// Route changes deferred by the hold-down of their destination.
        routes_held: u64 => ROUTE_EVENTS { event: "held_down" },
        /// Route changes without hold-down because the table of hold-downs was full.
        holds_full: u64 => TABLE_FULL { table: "hold_downs" },
        /// Sessions not created because the table of sessions was full.
        sessions_full: u64 => TABLE_FULL { table: "sessions" },
        /// State not installed, and Queries not answered, because their source had reached its limit.
        source_full: u64 => TABLE_FULL { table: "sessions_of_source" },
        /// State not installed because the table of peers was full.
        peers_full: u64 => TABLE_FULL { table: "peers" },
        /// Messages not queued because a queue was full.
        queue_full: u64 => TABLE_FULL { table: "messages" },
        /// Queries forwarded without a peering decision because too many were pending.
        checks_full: u64 => TABLE_FULL { table: "peering_checks" },
        /// Route lookups not made because too many were pending.
        lookups_full: u64 => TABLE_FULL { table: "route_lookups" },
        /// Peering decisions that arrived too late or twice.
        checks_stale: u64,
        /// Requests of signaling applications that were refused.
        requests_refused: u64,
        /// Datagrams that the driver could not send.
        transmit_failed: u64 => MESSAGES_UNSENT { reason: "transmit_failed" },
        /// Messaging associations established: opened by this node, or confirmed by the peer that opened them.
        associations_opened: u64 => ASSOCIATION_EVENTS { event: "opened" },
        /// Channels that peers opened.
        associations_accepted: u64 => ASSOCIATION_EVENTS { event: "accepted" },
        /// Channels that peers opened and that were refused: too many at a time, or a transport not offered.
        associations_limited: u64 => ASSOCIATION_EVENTS { event: "refused" },
        /// Messaging associations not created because the table was full.
        associations_full: u64 => TABLE_FULL { table: "associations" },
        /// Messaging associations that could not be set up.
        associations_not_connected: u64 => ASSOCIATION_EVENTS { event: "not_connected" },
        /// Handshakes ended or deferred by the retry delay of the peer.
        associations_waiting: u64 => ASSOCIATION_EVENTS { event: "retry_delayed" },
        /// Failed associations without retry delay because the table of delays was full.
        waits_full: u64 => TABLE_FULL { table: "retry_delays" },
        /// Messaging associations that were closed.
        associations_closed: u64 => ASSOCIATION_EVENTS { event: "closed" },
        /// Messaging associations that failed, or whose peer did not answer.
        associations_failed: u64 => ASSOCIATION_EVENTS { event: "failed" },
        /// Messaging associations aborted because too many octets of incomplete messages were waiting.
        associations_overrun: u64 => ASSOCIATION_EVENTS { event: "overrun" },
        /// Messaging associations, and Confirms over them, refused by the authorised peer database.
        associations_unauthorized: u64 => ASSOCIATION_EVENTS { event: "unauthorized" },
        /// Sessions ended because their peer is no longer authorised.
        sessions_unauthorized: u64 => ROUTING_STATE_EVENTS { event: "unauthorized" },
        /// Messages of all types received over messaging associations.
        associated_received: u64 => ASSOCIATION_MESSAGES { direction: "received" },
        /// Data messages sent over messaging associations, or queued for them.
        associated_sent: u64 => ASSOCIATION_MESSAGES { direction: "sent" },
        /// MA-Hello messages sent.
        hellos_sent: u64 => MESSAGES_SENT { type: "ma_hello" },
        /// MA-Hello messages received.
        hellos_received: u64 => MESSAGES_RECEIVED { type: "ma_hello" },
        /// Messages refused because their session does not use the association.
        data_misdelivered: u64 => MESSAGES_DROPPED { reason: "wrong_association" },
        /// Data messages dropped because their application was blocked.
        data_blocked: u64 => MESSAGES_DROPPED { reason: "application_blocked" },
        /// Confirms with another Stack-Proposal than the Response: it was changed on the path.
        proposals_changed: u64 => MESSAGES_DROPPED { reason: "changed_proposal" },
    }
}
