//! What the user of channels is given: GIST, CASP, or a test in their place.

use core::net::{IpAddr, SocketAddr};

use signalbox_core::Time;
use signalbox_core::node::StreamId;
use signalbox_core::security::Identity;

/// What a channel runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Plain TCP.
    Tcp,
    /// TLS over TCP.
    TlsTcp,
    /// SCTP.
    Sctp,
}

/// Why a channel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The peer closed it.
    Orderly,
    /// The port of the peer is closed.
    Refused,
    /// It was reset, or the host of the peer is unreachable.
    Reset,
    /// The peer did not answer in time.
    TimedOut,
    /// TLS failed: no agreement, no valid credentials, or tampered octets.
    Security,
}

/// What happened to a channel, or to a port.
#[derive(Debug)]
pub(crate) enum Report<'a> {
    /// A peer opened a channel, and all layers of it are established. Its number is even.
    Accepted {
        channel: StreamId,
        transport: Transport,
        local: SocketAddr,
        peer: SocketAddr,
        identity: Option<&'a Identity>,
    },
    /// A channel that this node opened is established.
    Connected { channel: StreamId, identity: Option<&'a Identity> },
    /// Octets of the peer; over SCTP one message.
    Octets { channel: StreamId, octets: &'a [u8] },
    /// The number of octets that wait to be sent.
    Drained { channel: StreamId, unsent: usize },
    /// The channel is no more.
    Closed { channel: StreamId, reason: Closed, unacknowledged: bool },
    /// Whether peers can connect by a transport. At first they can.
    Listening { transport: Transport, on: bool },
}

/// The user of the channels.
pub(crate) trait Upper {
    /// Takes a report.
    fn take(&mut self, now: Time, what: Report<'_>);

    /// Whether it has state of the node with this address, or its configuration names that node.
    fn is_known(&self, address: IpAddr) -> bool;
}
