//! Events for the log: one for each state transition and one for each dropped message.
//!
//! These are macros, so that the target of an event is the module that reports it and a filter can select it. All
//! fields are evaluated only if a subscriber takes the event.

/// Reports a message that is discarded. `$arrival` has its source; `$subject`, if given, has its session.
macro_rules! dropped {
    ($arrival:expr, $reason:expr) => {
        tracing::debug!(peer = %$arrival.src, reason = $reason, "message dropped")
    };
    ($arrival:expr, $subject:expr, $reason:expr) => {
        tracing::debug!(
            session = %$subject.session, peer = %$arrival.src, reason = $reason, "message dropped"
        )
    };
}

/// Reports that one direction of a record changed its state (RFC 5971 §6.2, §6.3), if it is no longer `$from`.
macro_rules! transition {
    ($peers:expr, $record:expr, $direction:expr, $from:expr, $reason:expr) => {{
        let half = $record.half($direction);
        if half.state != $from {
            tracing::debug!(
                session = %$record.session,
                nslp = $record.nslp.0,
                direction = ?$direction,
                peer = $peers.logged(half.peer),
                from = ?$from,
                to = ?half.state,
                reason = $reason,
                "routing state changed"
            );
        }
    }};
}

/// Reports that a messaging association changed its state (RFC 5971 §6.4).
macro_rules! association_transition {
    ($association:expr, $to:ident, $reason:expr) => {
        tracing::debug!(
            channel = $association.channel.0,
            peer = %$association.remote,
            transport = ?$association.transport,
            from = %$association.state.logged(),
            to = ?AssociationState::$to,
            reason = $reason,
            "messaging association changed"
        )
    };
}
