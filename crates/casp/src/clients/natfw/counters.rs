//! What the client counts.

use signalbox_core::metrics::{
    Family, MESSAGES_DROPPED, OBJECTS_DROPPED, RATE_LIMITED, RESERVATION_EVENTS, TABLE_FULL,
};

/// Requests of the client, by result.
const REQUESTS: Family =
    Family::counter("casp_natfw_requests", &["result"], "Requests of the firewall client, by result.");

signalbox_core::counters! {
    /// Counters of the client for firewalls and NATs.
    pub struct Counters {
        /// Requests whose rules the kernel has.
        granted: u64 => RESERVATION_EVENTS { event: "granted" },
        /// Requests that policy or kernel refused.
        refused: u64 => RESERVATION_EVENTS { event: "refused" },
        /// Requests that only prolonged rules.
        refreshed: u64 => RESERVATION_EVENTS { event: "refreshed" },
        /// Sessions whose rules policy, the kernel or an administrator withdrew.
        withdrawn: u64 => RESERVATION_EVENTS { event: "withdrawn" },
        /// Sessions whose rules a message removed.
        released: u64 => RESERVATION_EVENTS { event: "torn_down" },
        /// Sessions whose rules no message refreshed.
        expired: u64 => RESERVATION_EVENTS { event: "expired" },
        /// Requests whose RESPONSE did not pass in time.
        unanswered: u64 => REQUESTS { result: "unanswered" },
        /// Sessions that began with a refresh, about which who asked was informed.
        unknown: u64 => REQUESTS { result: "unknown" },
        /// Requests that came a second time.
        repeated: u64 => REQUESTS { result: "repeated" },
        /// Messages without a readable number.
        unreadable: u64 => MESSAGES_DROPPED { reason: "malformed" },
        /// Messages whose object of the type of the list is not a list: they are processed without it.
        foreign_objects: u64 => OBJECTS_DROPPED { object: "hops" },
        /// RELEASE and QUERY of nodes that do not own the session.
        strangers: u64 => MESSAGES_DROPPED { reason: "stranger" },
        /// Messages from the inside of a NAT that has no binding for their flow.
        unbound: u64 => MESSAGES_DROPPED { reason: "untranslated" },
        /// Further RESPONSEs to a request.
        duplicates: u64 => MESSAGES_DROPPED { reason: "duplicate" },
        /// Errors that were not sent.
        errors_limited: u64 => RATE_LIMITED { limit: "errors" },
        /// Sessions refused.
        sessions_full: u64 => TABLE_FULL { table: "sessions" },
        /// Requests for which a NAT had no external port.
        ports_full: u64 => TABLE_FULL { table: "ports" },
        /// Messages that could not wait for the route to their hop.
        waiting_full: u64 => TABLE_FULL { table: "waiting" },
    }
}
