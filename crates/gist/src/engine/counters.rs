//! Counters of the engine.

signalbox_core::counters! {
    /// Counts of one GIST engine since its start.
    pub struct Counters {
        /// Queries sent, retransmissions and refreshes included.
        queries_sent: u64,
        /// Queries sent again because no Response came in time.
        queries_retransmitted: u64,
        /// Queries received for a signaling application of this node.
        queries_received: u64,
        /// Queries discarded by the rate limit of their source.
        queries_limited: u64,
        /// Responses sent, retransmissions included.
        responses_sent: u64,
        /// Responses that matched a Query of this node.
        responses_received: u64,
        /// Responses discarded because they matched no Query.
        responses_stray: u64,
        /// Confirms sent.
        confirms_sent: u64,
        /// Confirms that installed or refreshed routing state.
        confirms_received: u64,
        /// Confirms ignored because their state was already confirmed.
        confirms_duplicate: u64,
        /// Data messages sent.
        data_sent: u64,
        /// Data messages delivered to signaling applications.
        data_received: u64,
        /// Data messages delivered without a check against routing state: Q-mode or explicitly routed.
        data_unchecked: u64,
        /// Data messages for which there was no routing state.
        data_without_state: u64,
        /// Data messages dropped because they were received before the Response.
        data_early: u64,
        /// Error messages sent.
        errors_sent: u64,
        /// Error messages not sent because of the rate limit.
        errors_suppressed: u64,
        /// Error messages that could not be sent: no address to send to, or too large.
        errors_unsendable: u64,
        /// Error messages that matched state of this node.
        errors_received: u64,
        /// Error messages discarded because they matched no state.
        errors_stray: u64,
        /// Queries and Q-mode Data forwarded because this node does not have their application, or it declined to peer.
        forwarded: u64,
        /// Intercepted datagrams forwarded unchanged because they are not GIST messages for this node.
        passed_on: u64,
        /// Datagrams not forwarded because their IP TTL was used up.
        ttl_expired: u64,
        /// Datagrams to this node dropped because they lack the magic number.
        no_magic: u64,
        /// Messages that could not be parsed.
        malformed: u64,
        /// Messages whose GIST hop count was used up.
        hops_exceeded: u64,
        /// Directly addressed messages for an application that this node does not have.
        unknown_nslp: u64,
        /// Messages whose MRI failed a validation check.
        mri_rejected: u64,
        /// Messages whose NLI differs from their IP source although S=1: a NAT that is not GIST-aware is on the path.
        untranslated: u64,
        /// Upstream Queries from a peer more than one IP hop away.
        ttl_rejected: u64,
        /// Messages whose Query-Cookie or Responder-Cookie did not verify.
        cookies_invalid: u64,
        /// Messages ignored because the state of their session does not allow them.
        unexpected: u64,
        /// Candidate Q-mode packets discarded by the interception rate limit.
        intercept_limited: u64,
        /// Messages delayed or dropped by the D-mode rate limit.
        dmode_limited: u64,
        /// Querying state machines that ended because no Response was received.
        no_response: u64,
        /// Responding state machines that ended because no Confirm was received.
        no_confirm: u64,
        /// Pieces of routing state installed.
        installed: u64,
        /// Pieces of routing state that expired or were removed.
        removed: u64,
        /// Changes of a peer shown by a Response, Query or Confirm.
        peer_changed: u64,
        /// Routes looked up again after a change.
        route_checks: u64,
        /// Sessions rerouted because their route changed.
        routes_followed: u64,
        /// Route changes deferred by the hold-down of their destination.
        routes_held: u64,
        /// Route changes without hold-down because the table of hold-downs was full.
        holds_full: u64,
        /// Sessions not created because the table of sessions was full.
        sessions_full: u64,
        /// State not installed, and Queries not answered, because their source had reached its limit.
        source_full: u64,
        /// State not installed because the table of peers was full.
        peers_full: u64,
        /// Messages not queued because a queue was full.
        queue_full: u64,
        /// Queries forwarded without a peering decision because too many were pending.
        checks_full: u64,
        /// Route lookups not made because too many were pending.
        lookups_full: u64,
        /// Peering decisions that were too late or repeated.
        checks_stale: u64,
        /// Requests of signaling applications refused.
        requests_refused: u64,
        /// Datagrams that the driver could not send.
        transmit_failed: u64,
        /// Messaging associations established: opened by this node, or confirmed by the peer that opened them.
        associations_opened: u64,
        /// Channels that peers opened.
        associations_accepted: u64,
        /// Channels that peers opened and that were refused: too many at a time, or a transport not offered.
        associations_limited: u64,
        /// Messaging associations not created because the table was full.
        associations_full: u64,
        /// Messaging associations that could not be set up.
        associations_not_connected: u64,
        /// Handshakes ended or deferred by the retry delay of the peer.
        associations_waiting: u64,
        /// Failed associations without retry delay because the table of delays was full.
        waits_full: u64,
        /// Messaging associations that were closed.
        associations_closed: u64,
        /// Messaging associations that failed, or whose peer did not answer.
        associations_failed: u64,
        /// Messaging associations aborted because too many octets of incomplete messages were waiting.
        associations_overrun: u64,
        /// Messaging associations, and Confirms over them, refused by the authorised peer database.
        associations_unauthorised: u64,
        /// Sessions ended because their peer is no longer authorised.
        sessions_unauthorised: u64,
        /// Messages of all types received over messaging associations.
        associated_received: u64,
        /// Data messages sent over messaging associations, or queued for them.
        associated_sent: u64,
        /// MA-Hello messages sent.
        hellos_sent: u64,
        /// MA-Hello messages received.
        hellos_received: u64,
        /// Messages refused because their session does not use the association.
        data_misdelivered: u64,
        /// Data messages dropped because their application was blocked.
        data_blocked: u64,
        /// Confirms with another Stack-Proposal than the Response: it was changed on the path.
        proposals_changed: u64,
    }
}
