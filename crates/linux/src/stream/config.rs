//! Limits, timeouts, marking and counters of streams.

use signalbox_core::metrics::Family;
use std::time::Duration;

use crate::scope::Scope;

/// The configuration of streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamConfig {
    /// Time that a connection may take to come up.
    pub connect_timeout: Duration,
    /// Time for which written octets may stay unacknowledged (TCP_USER_TIMEOUT, RFC 5482). It also limits how long a
    /// peer may keep its window shut, so it must not be shorter than the longest pause of a reader that is to survive.
    pub user_timeout: Duration,
    /// Time that an orderly close may take. Octets that are not delivered then are dropped.
    pub close_timeout: Duration,
    /// TOS octet or traffic class of every packet. TCP sets the ECN bits itself.
    pub tos: u8,
    /// Packet mark, visible to this machine only: [`crate::IoConfig::own_mark`]; 0: none.
    pub mark: u32,
    /// The VRF of the connections: [`crate::IoConfig::scope`].
    pub scope: Scope,
    /// Most accepted connections at a time; further ones are reset.
    pub accept_limit: u32,
    /// Most accepted connections at a time from one source, an IPv4 address or an IPv6 /64; further ones are reset.
    pub accept_limit_per_source: u32,
    /// Most octets of one stream that wait for the kernel. A stream with more is reset.
    pub unsent_limit: usize,
    /// Most octets of all streams together that wait for the kernel.
    pub unsent_limit_total: usize,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            user_timeout: Duration::from_secs(30),
            close_timeout: Duration::from_secs(10),
            tos: 0,
            mark: 0,
            scope: Scope::default(),
            accept_limit: 4096,
            accept_limit_per_source: 16,
            unsent_limit: 8 << 20,
            unsent_limit_total: 256 << 20,
        }
    }
}

/// Changes of connections.
const STREAM_EVENTS: Family = Family::counter(
    "stream_events",
    &["event"],
    "Changes of the TCP and kernel SCTP connections of associations.",
);
/// Octets received.
const STREAM_RECEIVED_BYTES: Family =
    Family::counter("stream_received_bytes", &[], "Octets received over connections of associations.")
        .of_unit("bytes");
/// Octets sent.
const STREAM_SENT_BYTES: Family =
    Family::counter("stream_sent_bytes", &[], "Octets sent over connections of associations.")
        .of_unit("bytes");

signalbox_core::counters! {
    /// The counters of streams.
    pub struct StreamCounters {
        /// Connections accepted.
        accepted: u64 => STREAM_EVENTS { event: "accepted" },
        /// Connections reset at once because of the limit on open connections, in total or of that address.
        accept_limited: u64 => STREAM_EVENTS { event: "accept_limited" },
        /// Times that the kernel had no descriptor or memory for a connection that a peer opened.
        accept_failed: u64 => STREAM_EVENTS { event: "accept_failed" },
        /// Connections opened by this node that were established.
        connected: u64 => STREAM_EVENTS { event: "connected" },
        /// Connections opened by this node that could not be established.
        connect_failed: u64 => STREAM_EVENTS { event: "connect_failed" },
        /// Connections closed by their peer in order.
        ended: u64 => STREAM_EVENTS { event: "ended" },
        /// Connections that failed after they were established.
        broken: u64 => STREAM_EVENTS { event: "broken" },
        /// Connections closed by this node before the peer acknowledged the last octets.
        closed_unacknowledged: u64 => STREAM_EVENTS { event: "closed_unacknowledged" },
        /// Connections reset because more octets waited to be sent than the limit allows.
        unsent_limited: u64 => STREAM_EVENTS { event: "unsent_limited" },
        /// Octets received.
        octets_received: u64 => STREAM_RECEIVED_BYTES,
        /// Octets passed to the kernel.
        octets_sent: u64 => STREAM_SENT_BYTES,
        /// Send calls; each passes on everything that was written to a stream since the last one.
        flushes: u64,
    }
}
