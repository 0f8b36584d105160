//! Inputs and outputs of the engine.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use signalbox_core::handover::Entries;
use signalbox_core::node::{Interface, NoRoute, Prefix, Route, RouteQuery, TransmitError};
use signalbox_core::packet::{Received, Transmit};
use signalbox_core::security::Identity;
use signalbox_core::service::Transports;
use signalbox_core::{IfIndex, NslpId, service};

use crate::apd::Apd;

/// One input of [`Gist::handle`](super::Gist::handle).
#[derive(Debug)]
pub enum Input<'a> {
    /// A datagram was received.
    Datagram(Received<'a>),
    /// A deadline is due.
    Timer,
    /// The answer to [`Output::RouteLookup`] of the same id.
    Route {
        /// The id that the lookup translation.
        id: u64,
        /// The route, or why there is none.
        result: Result<Route, NoRoute>,
    },
    /// All interfaces and addresses of the node.
    Interfaces(&'a [Interface]),
    /// Routes to these destinations may have changed.
    RouteChanged(Prefix),
    /// Another router may have the place of this neighbor, at the same address of the same link.
    NeighborMoved {
        /// The link.
        ifindex: IfIndex,
        /// Address of the neighbor.
        address: IpAddr,
    },
    /// A datagram to this destination could not be sent.
    TransmitFailed {
        /// Its destination.
        dst: IpAddr,
        /// The error.
        error: TransmitError,
    },
    /// A request of a signaling application (RFC 5971 Appendix B).
    Request(service::Request<'a>),
    /// A signaling application cannot take messages for a while, or can take them again (RFC 5971 §4.1.1). Associations
    /// with messages for it are then not read, so that reliable messages stay with their sender.
    Blocked {
        /// The application.
        nslp: NslpId,
        /// Whether it cannot take messages.
        blocked: bool,
    },
    /// What [`Gist::hand_over`](super::Gist::hand_over) of the engine before this one wrote. It comes after the first
    /// [`Input::Interfaces`].
    Handover(Entries),
    /// The authorised peer database was changed: associations are validated again (RFC 5971 §4.4.2).
    AuthorisedPeers(&'a Apd),
    /// Whether the port of a transport is open. At first it is. A transport whose port is not open is not proposed to
    /// peers, and no channel of it is accepted.
    Listening {
        /// The transport.
        transport: Transport,
        /// Whether the port is open.
        on: bool,
    },
    /// A peer opened a channel, and all its layers are established.
    ChannelAccepted {
        /// Its identifier, an even number that the owner of the channels chooses.
        channel: ChannelId,
        /// Its protocol stack.
        transport: Transport,
        /// Address and port of this node.
        local: SocketAddr,
        /// Address and port of the peer.
        peer: SocketAddr,
        /// The authenticated identity of the peer, if there is one.
        identity: Option<&'a Identity>,
    },
    /// [`Output::ChannelOpen`] succeeded: all layers are established.
    ChannelConnected {
        /// The channel.
        channel: ChannelId,
        /// The authenticated identity of the peer, if there is one.
        identity: Option<&'a Identity>,
    },
    /// Octets of the peer. Those of [`Transport::Tcp`] and [`Transport::TlsTcp`] are split anywhere; those of
    /// [`Transport::Sctp`] are one whole message.
    ChannelOctets {
        /// The channel.
        channel: ChannelId,
        /// The octets.
        octets: &'a [u8],
    },
    /// The number of octets that the channel buffers, because the peer or the network is slow. At first it is 0.
    ChannelDrained {
        /// The channel.
        channel: ChannelId,
        /// Octets of this node that are not sent yet.
        unsent: usize,
    },
    /// A channel ended, or could not be opened.
    ChannelClosed {
        /// The channel.
        channel: ChannelId,
        /// The reason.
        reason: ChannelClosed,
        /// Messages of this node may not have reached the peer.
        unacknowledged: bool,
    },
}

/// Identifier of a channel, never used twice: odd if GIST opens the channel, even if a peer opened it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u64);

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel {}", self.0)
    }
}

/// The protocol stack of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Transport {
    /// Forwards-TCP alone (RFC 5971 §5.7.2).
    Tcp,
    /// TLS over Forwards-TCP (RFC 5971 §5.7.3).
    TlsTcp,
    /// Forwards-SCTP alone (RFC 6084 §3).
    Sctp,
}

impl Transport {
    /// All of them, in the order of declaration.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::TlsTcp, Self::Sctp];

    /// Short name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::TlsTcp => "tls",
            Self::Sctp => "sctp",
        }
    }
}

impl FromIterator<Transport> for Transports {
    fn from_iter<T: IntoIterator<Item = Transport>>(all: T) -> Self {
        let mut transports = Self::default();
        for transport in all {
            match transport {
                Transport::Tcp => transports.tcp = true,
                Transport::TlsTcp => transports.tls = true,
                Transport::Sctp => transports.sctp = true,
            }
        }
        transports
    }
}

impl From<Transport> for Transports {
    fn from(transport: Transport) -> Self {
        [transport].into_iter().collect()
    }
}

/// Why a channel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChannelClosed {
    /// The peer closed it.
    Orderly,
    /// The port of the peer is closed.
    Refused,
    /// It was reset, or the host of the peer is unreachable.
    Reset,
    /// The peer did not answer in time.
    TimedOut,
    /// The security protocol failed: no agreement, no valid credentials, or tampered octets.
    Security,
}

/// One output of [`Gist::poll`](super::Gist::poll).
#[derive(Debug)]
pub enum Output<'a> {
    /// Send this datagram.
    Transmit(Transmit<'a>),
    /// Look up the route that a packet would take. The answer is [`Input::Route`] with the same id.
    RouteLookup {
        /// The identifier for the answer.
        id: u64,
        /// The packet.
        query: RouteQuery,
    },
    /// An indication for a signaling application (RFC 5971 Appendix B).
    Indication(service::Indication<'a>),
    /// Open a channel.
    ChannelOpen {
        /// Its identifier, an odd number.
        channel: ChannelId,
        /// Its protocol stack.
        transport: Transport,
        /// Source address.
        local: IpAddr,
        /// Address and port of the peer.
        peer: SocketAddr,
    },
    /// Send exactly one GIST message, without magic number and without delay.
    ChannelSend {
        /// The channel.
        channel: ChannelId,
        /// The SCTP stream (RFC 6084 §3.2): messages of one stream keep their order, messages of different streams do not
        /// wait for each other. All messages of a session have the same stream at both ends; stream 0 is for messages
        /// without session.
        stream: u16,
        /// How long the message may be delayed; `None`: it must arrive. Only channels with partial reliability (RFC 6084
        /// §3.3) use it.
        lifetime: Option<Duration>,
        /// The message, from the common header on.
        octets: &'a [u8],
    },
    /// Stop or continue reading; at first the channel is read. Octets that were read already may still be inputs.
    ChannelRead {
        /// The channel.
        channel: ChannelId,
        /// Whether to read.
        on: bool,
    },
    /// Close a channel. No further input or output names it.
    ChannelClose {
        /// The channel.
        channel: ChannelId,
        /// Drop octets that are not sent yet; otherwise they are sent first.
        abort: bool,
    },
}

/// Who takes the next output of [`Gist::poll`](super::Gist::poll). The node asks for it before the output
/// is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The driver: [`Output::Transmit`] or [`Output::RouteLookup`].
    Driver,
    /// The signaling application of this number: [`Output::Indication`].
    Application(NslpId),
    /// This channel: [`Output::ChannelSend`].
    ChannelSend(ChannelId),
    /// The channels: [`Output::ChannelOpen`], [`Output::ChannelRead`] or [`Output::ChannelClose`].
    Channel,
}

/// How the peering decision about a Query is made (RFC 5971 §4.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PeeringPolicy {
    /// The application peers with every node. It receives only Queries with payload.
    #[default]
    Always,
    /// The application decides about each Query.
    Ask,
    /// The application peers with no node: Queries are forwarded, unless they are addressed to this node. It may still
    /// send.
    Never,
}

/// Registration of a signaling application of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Registration {
    /// How the peering decision is made.
    pub policy: PeeringPolicy,
    /// Router Alert value of its Q-mode messages.
    pub router_alert: u16,
    /// The value with IPv6; `None`: the same.
    #[cfg_attr(feature = "serde", serde(default))]
    pub router_alert_v6: Option<u16>,
}

impl Registration {
    /// Router Alert value of Q-mode messages to this address.
    pub(super) fn router_alert_to(&self, dst: IpAddr) -> u16 {
        self.router_alert_v6.filter(|_| dst.is_ipv6()).unwrap_or(self.router_alert)
    }
}
