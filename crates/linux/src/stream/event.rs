//! What streams tell their owner.

use std::fmt;
use std::net::SocketAddr;

use signalbox_core::node::{StreamError, StreamId, StreamKind};

/// Most octets of one event: the largest GIST message (RFC 5971 A.1: 65,535 words and the header).
const OCTETS: usize = 65_536 * 4 + 8;

/// Room for the octets of one event, made once and used again.
pub struct StreamBuffer(Vec<u8>);

impl StreamBuffer {
    /// Makes the room: 256 KiB.
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

/// Something happened to a stream; each is an input of the same name of [`signalbox_core::node::Input`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEvent<'a> {
    /// Somebody connected to a listener.
    Accepted {
        /// Its name, even.
        stream: StreamId,
        /// What it runs over.
        kind: StreamKind,
        /// Our address; the port tells which listener.
        local: SocketAddr,
        /// Who connected.
        peer: SocketAddr,
    },
    /// A stream that was opened is up.
    Connected {
        /// Which stream.
        stream: StreamId,
        /// Our address, with the port that was chosen.
        local: SocketAddr,
    },
    /// Octets of a stream, in order, split anyhow; never none. Of SCTP one message, whole.
    Octets {
        /// Which stream.
        stream: StreamId,
        /// What the peer wrote.
        octets: &'a [u8],
    },
    /// How much of what was written waits for the kernel: given when a flush left something, when that falls,
    /// and at last with 0.
    Drained {
        /// Which stream.
        stream: StreamId,
        /// Octets that wait.
        unsent: usize,
    },
    /// A stream is no more, or never came to be. What its peer wrote before has been given, unless the
    /// connection broke while reading was off.
    Closed {
        /// Which stream.
        stream: StreamId,
        /// Why; `None`: the peer ended it orderly.
        error: Option<StreamError>,
        /// Octets that were written may not have reached the peer.
        unacknowledged: bool,
    },
}

impl StreamEvent<'_> {
    /// The stream that it is about.
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
