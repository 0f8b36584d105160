//! Metric families of the sockets of entries.

use signalbox_core::metrics::Family;

/// Packets received.
pub(super) const DATAGRAMS_RECEIVED: Family = Family::counter(
    "datagrams_received",
    &["protocol", "transport"],
    "Packets received by the sockets of a protocol.",
);
/// Packets sent.
pub(super) const DATAGRAMS_SENT: Family = Family::counter(
    "datagrams_sent",
    &["protocol", "transport"],
    "Packets that the sockets of a protocol passed to the kernel.",
);
/// Packets lost at a socket.
pub(super) const DATAGRAMS_FAILED: Family = Family::counter(
    "datagrams_failed",
    &["protocol", "transport", "direction", "reason"],
    "Packets that could not be received or sent, by reason.",
);
/// Packets sent in one call.
pub(super) const DATAGRAMS_SEGMENTED: Family = Family::counter(
    "datagrams_segmented",
    &["protocol"],
    "Datagrams sent in one call with others to the same peer (UDP_SEGMENT).",
);
/// System calls.
pub(super) const SOCKET_CALLS: Family = Family::counter(
    "socket_calls",
    &["protocol", "direction"],
    "System calls that received or sent datagrams.",
);
