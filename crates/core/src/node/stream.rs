//! Streams between nodes, as their driver knows them.

use core::fmt;

#[cfg(doc)]
use super::Output;

/// Id of a stream, never used twice. It is odd for streams that the node opens and even for streams that the
/// driver accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StreamId(pub u64);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.0)
    }
}

/// Transport of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum StreamKind {
    /// A TCP connection: octets, written by [`Output::StreamWrite`].
    #[default]
    Tcp,
    /// An SCTP association of the kernel: messages, sent by [`Output::StreamMessage`].
    Sctp,
}

impl StreamKind {
    /// The usual name of the protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Sctp => "SCTP",
        }
    }
}

/// Reason why a stream failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum StreamError {
    /// The peer's host refused the connection: no process listens at the port.
    Refused,
    /// The peer or its host reset the connection.
    Reset,
    /// The peer did not answer in time.
    TimedOut,
    /// No route exists, or a router reported the peer as unreachable.
    Unreachable,
    /// Another process uses the port.
    AddressInUse,
    /// Any other failure; the driver counts or logs it.
    Other,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "connection refused",
            Self::Reset => "connection reset",
            Self::TimedOut => "connection timed out",
            Self::Unreachable => "unreachable",
            Self::AddressInUse => "address in use",
            Self::Other => "failed",
        })
    }
}
