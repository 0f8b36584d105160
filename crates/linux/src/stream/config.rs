//! Limits, timeouts, marking and counters of streams.

use std::time::Duration;

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
    /// Packet mark, visible to this machine only: [`crate::IoConfig::own_mark`].
    pub mark: u32,
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
            accept_limit: 4096,
            accept_limit_per_source: 16,
            unsent_limit: 8 << 20,
            unsent_limit_total: 256 << 20,
        }
    }
}

signalbox_core::counters! {
    /// The counters of streams.
    pub struct StreamCounters {
        /// Connections accepted.
        accepted: u64,
        /// Connections reset at once because as many were open as may be, in total or from that address.
        accept_limited: u64,
        /// Times that the kernel had no descriptor or memory for a connection that waited.
        accept_failed: u64,
        /// Connections opened by this node that came up.
        connected: u64,
        /// Connections opened by this node that did not come up.
        connect_failed: u64,
        /// Connections ended by their peer in an orderly way.
        ended: u64,
        /// Connections that broke.
        broken: u64,
        /// Connections closed by this node whose last octets the peer may not have got.
        closed_unacknowledged: u64,
        /// Connections reset because more waited to be sent than may.
        unsent_limited: u64,
        /// Octets received.
        octets_received: u64,
        /// Octets handed to the kernel.
        octets_sent: u64,
        /// Send calls' worth of writes: each hands on all that was written to a stream since the last.
        flushes: u64,
    }
}
