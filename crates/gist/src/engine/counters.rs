//! What GIST counts.

signalbox_core::counters! {
    /// Counts of one GIST engine since its start.
    pub struct Counters {
        /// Queries sent, retransmissions and refreshes included.
        queries_sent: u64,
        /// Queries sent again because no Response came in time.
        queries_retransmitted: u64,
        /// Queries that belong to a signaling application of this node.
        queries_received: u64,
        /// Queries discarded because too many of their source came.
        queries_limited: u64,
        /// Responses sent, retransmissions included.
        responses_sent: u64,
        /// Responses that matched one of our Queries.
        responses_received: u64,
        /// Responses that matched no Query; discarded.
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
        /// Data messages that came before the Response; dropped.
        data_early: u64,
        /// Error messages sent.
        errors_sent: u64,
        /// Error messages not sent because the limit for errors was reached.
        errors_suppressed: u64,
        /// Error messages that could not be sent: no address to send to, or too large.
        errors_unsendable: u64,
        /// Error messages that matched state of this node.
        errors_received: u64,
        /// Error messages that matched nothing; discarded.
        errors_stray: u64,
        /// Queries and Q-mode Data forwarded because their application is not here or declined.
        forwarded: u64,
        /// Intercepted datagrams that are no GIST message to be processed here; passed on unchanged.
        passed_on: u64,
        /// Datagrams to be passed on whose IP TTL had run out; dropped.
        ttl_expired: u64,
        /// Datagrams to this node without the magic number; dropped silently.
        no_magic: u64,
        /// Messages that could not be understood.
        malformed: u64,
        /// Messages with a GIST hop count that had run out.
        hops_exceeded: u64,
        /// Directly addressed messages for an application that is not here.
        unknown_nslp: u64,
        /// Messages whose MRI failed a validation check.
        mri_rejected: u64,
        /// Messages whose NLI differs from their IP source although S=1: a NAT that does not know GIST.
        untranslated: u64,
        /// Upstream Queries that came from further than one IP hop away.
        ttl_rejected: u64,
        /// Messages whose Query-Cookie or Responder-Cookie did not verify.
        cookies_invalid: u64,
        /// Messages not allowed by the state of their session; ignored.
        unexpected: u64,
        /// Candidate Q-mode packets discarded by the interception limit.
        intercept_limited: u64,
        /// Messages of ours held back or dropped by the D-mode rate limit.
        dmode_limited: u64,
        /// Querying state machines that gave up because no Response came.
        no_response: u64,
        /// Responding state machines that gave up because no Confirm came.
        no_confirm: u64,
        /// Pieces of routing state installed.
        installed: u64,
        /// Pieces of routing state that expired or were removed.
        removed: u64,
        /// Changes of a peer seen in a Response, Query or Confirm.
        peer_changed: u64,
        /// Routes looked up again after a change.
        route_checks: u64,
        /// Sessions that left another way than before, because their route changed.
        routes_followed: u64,
        /// Changes of routes that wait because the same destination's route changed a short while ago.
        routes_held: u64,
        /// Changes of routes that were followed without a hold-down because too many destinations have one.
        holds_full: u64,
        /// Sessions not created because the table of sessions was full.
        sessions_full: u64,
        /// State not installed, and Queries not answered, because their source has as much state as it may have.
        source_full: u64,
        /// State not installed because the table of peers was full.
        peers_full: u64,
        /// Messages not queued because a queue was full.
        queue_full: u64,
        /// Queries forwarded unasked because too many peering decisions were pending.
        checks_full: u64,
        /// Route lookups not made because too many were pending.
        lookups_full: u64,
        /// Peering decisions that came too late or twice.
        checks_stale: u64,
        /// Requests of signaling applications refused.
        requests_refused: u64,
        /// Datagrams that the driver could not send.
        transmit_failed: u64,
        /// Messaging associations that came up, opened by this node or confirmed by the peer that opened them.
        associations_opened: u64,
        /// Channels that peers opened.
        associations_accepted: u64,
        /// Channels that peers opened and that were refused: too many at a time, or a transport not offered.
        associations_limited: u64,
        /// Messaging associations not made because the table was full.
        associations_full: u64,
        /// Messaging associations that could not be set up.
        associations_not_connected: u64,
        /// Handshakes given up or put off because an association with the same peer failed a short while ago.
        associations_waiting: u64,
        /// Failures of associations that were not remembered because too many peers wait.
        waits_full: u64,
        /// Messaging associations that ended in order.
        associations_closed: u64,
        /// Messaging associations that broke, or whose peer was silent.
        associations_failed: u64,
        /// Messaging associations given up because too many octets of incomplete messages were waiting.
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
        /// Messages over an association that their session does not use; refused.
        data_misdelivered: u64,
        /// Data messages dropped because their application takes none now.
        data_blocked: u64,
        /// Confirms whose Stack-Proposal is not the one of our Response: somebody in between changed it.
        proposals_changed: u64,
    }
}
