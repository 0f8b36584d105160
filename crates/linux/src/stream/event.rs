//! Events that streams report to their owner.

use std::fmt;
use std::net::SocketAddr;

use signalbox_core::node::{StreamError, StreamId, StreamKind};

/// Most octets of one event: the largest GIST message (RFC 5971 A.1: 65,535 words and the header).
const OCTETS: usize = 65_536 * 4 + 8;

/// A buffer for the octets of one event, allocated once and reused.
pub struct StreamBuffer(Vec<u8>);

impl StreamBuffer {
    /// Allocates the buffer: 256 KiB.
    #[must_use]
    pub fn new() -> Self {
        Self(vec![0; OCTETS])
    }

    pub(super) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    pub(super) fn first(&self, count: usize) -> &[u8] {
        self.0.get(..count).unwrap_or(&[])
    }
}

impl Default for StreamBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for StreamBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamBuffer").finish_non_exhaustive()
    }
}

/// An event of a stream; each is an input of the same name of [`signalbox_core::node::Input`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEvent<'a> {
    /// A listener accepted a connection.
    Accepted {
        /// The id of the stream, even.
        stream: StreamId,
        /// The transport protocol of the stream.
        kind: StreamKind,
        /// Our address, whose port identifies the listener.
        local: SocketAddr,
        /// The peer's address.
        peer: SocketAddr,
    },
    /// A stream that was opened is up.
    Connected {
        /// The id of the stream.
        stream: StreamId,
        /// Our address, with the chosen port.
        local: SocketAddr,
    },
    /// Octets of a stream, in order and split at any place, at least one. With SCTP, one complete message.
    Octets {
        /// The id of the stream.
        stream: StreamId,
        /// The octets from the peer.
        octets: &'a [u8],
    },
    /// The number of written octets that wait for the kernel. It is reported when a flush leaves some, when the number
    /// falls, at last with 0, and whenever the kernel took [`signalbox_core::node::REPORT_EVERY`] octets since the last
    /// report.
    Drained {
        /// The id of the stream.
        stream: StreamId,
        /// The octets that wait.
        unsent: usize,
    },
    /// A stream has ended, or could not be opened. What its peer wrote before has been reported, unless the connection
    /// broke while reading was off.
    Closed {
        /// The id of the stream.
        stream: StreamId,
        /// The reason; `None`: the peer ended the stream orderly.
        error: Option<StreamError>,
        /// Whether written octets may not have reached the peer.
        unacknowledged: bool,
    },
}

impl StreamEvent<'_> {
    /// The stream that the event concerns.
    #[must_use]
    pub const fn stream(&self) -> StreamId {
        match self {
            Self::Accepted { stream, .. }
            | Self::Connected { stream, .. }
            | Self::Octets { stream, .. }
            | Self::Drained { stream, .. }
            | Self::Closed { stream, .. } => *stream,
        }
    }
}
