//! What goes into the engine and what comes out.

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use signalbox_core::node::{Interface, NoRoute, Prefix, Route, RouteQuery, TransmitError};
use signalbox_core::packet::{Received, Transmit};
use signalbox_core::security::Identity;
use signalbox_core::{NslpId, service};

use crate::apd::Apd;

/// One input of [`Gist::handle`](super::Gist::handle).
#[derive(Debug)]
pub enum Input<'a> {
    /// A datagram arrived.
    Datagram(Received<'a>),
    /// Nothing but the time.
    Timer,
    /// The answer to [`Output::RouteLookup`] of the same id.
    Route {
        /// The id that the lookup carried.
        id: u64,
        /// The route, or why there is none.
        result: Result<Route, NoRoute>,
    },
    /// The node's interfaces and addresses, whole.
    Interfaces(&'a [Interface]),
    /// Routes to these destinations may have changed.
    RouteChanged(Prefix),
    /// A datagram to this destination could not be sent.
    TransmitFailed {
        /// Where it was to go.
        dst: IpAddr,
        /// Why it did not.
        error: TransmitError,
    },
    /// A signaling application asks for something.
    Request(service::Request<'a>),
    /// A signaling application cannot take messages for a while, or can again (RFC 5971 §4.1.1). Reliable
    /// messages for it wait with their sender: associations that carry them are not read on.
    Blocked {
        /// The application.
        nslp: NslpId,
        /// Whether it takes no messages.
        blocked: bool,
    },
    /// The authorised peer database was changed: associations are validated again (RFC 5971 §4.4.2).
    AuthorisedPeers(&'a Apd),
    /// Whether peers can open channels of a transport that has a port; they can unless it is said. One that
    /// they cannot open is not proposed to them, and none is accepted.
    Listening {
        /// Which transport.
        transport: Transport,
        /// Whether its port is listened at.
        on: bool,
    },
    /// A peer opened a channel; given once all its layers are up.
    ChannelAccepted {
        /// Its name, even; whoever holds the channels chooses it.
        channel: ChannelId,
        /// What it is made of.
        transport: Transport,
        /// Our end.
        local: SocketAddr,
        /// The peer's end.
        peer: SocketAddr,
        /// Who the peer proved to be, if anybody.
        identity: Option<&'a Identity>,
    },
    /// [`Output::ChannelOpen`] succeeded: all layers are up.
    ChannelConnected {
        /// Which channel.
        channel: ChannelId,
        /// Who the peer proved to be, if anybody.
        identity: Option<&'a Identity>,
    },
    /// What the peer sent: of [`Transport::Tcp`] and [`Transport::TlsTcp`] octets split anyhow, of
    /// [`Transport::Sctp`] one whole message.
    ChannelOctets {
        /// Which channel.
        channel: ChannelId,
        /// From it.
        octets: &'a [u8],
    },
    /// What the channel holds because the peer or the network takes no more. So long as it is not given,
    /// nothing is held.
    ChannelDrained {
        /// Which channel.
        channel: ChannelId,
        /// Octets of ours that have not left.
        unsent: usize,
    },
    /// A channel is no more, or never came to be.
    ChannelClosed {
        /// Which channel.
        channel: ChannelId,
        /// Why.
        reason: ChannelClosed,
        /// Messages of ours may not have reached the peer.
        unacknowledged: bool,
    },
}

/// The name of a channel, never used twice: odd for those that GIST opens, even for those that a peer opened.
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

/// Why a channel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChannelClosed {
    /// The peer ended it in order.
    Orderly,
    /// Nobody listens there.
    Refused,
    /// It was torn down, or the peer's host cannot be reached.
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
    /// Find the route that a packet would take; answer with [`Input::Route`] of the same id.
    RouteLookup {
        /// To be given back with the answer.
        id: u64,
        /// Which packet.
        query: RouteQuery,
    },
    /// Tell a signaling application.
    Indication(service::Indication<'a>),
    /// Open a channel.
    ChannelOpen {
        /// Its name, odd.
        channel: ChannelId,
        /// What to make it of.
        transport: Transport,
        /// Source address.
        local: IpAddr,
        /// Where to.
        peer: SocketAddr,
    },
    /// Send exactly one GIST message, without magic number. It leaves without delay.
    ChannelSend {
        /// Which channel.
        channel: ChannelId,
        /// Messages of one stream stay in order; those of different streams need not wait for each other. All
        /// messages of a session have the same stream at both ends, GIST's own have 0.
        stream: u16,
        /// How long it is worth sending; `None`: until it has arrived. Only channels that can give up a
        /// message without breaking make use of it.
        lifetime: Option<Duration>,
        /// From the common header on.
        octets: &'a [u8],
    },
    /// Stop or go on reading, on at first. What was read already may still be given.
    ChannelRead {
        /// Which channel.
        channel: ChannelId,
        /// Whether to read.
        on: bool,
    },
    /// GIST is done with a channel; nothing more is said of it by either side.
    ChannelClose {
        /// Which channel.
        channel: ChannelId,
        /// Drop what was sent; otherwise it goes out first.
        abort: bool,
    },
}

/// Who takes the next output of [`Gist::poll`](super::Gist::poll). Whoever composes engines asks for it before the output
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

/// How a signaling application decides about Queries (RFC 5971 §4.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PeeringPolicy {
    /// It peers with everybody. Queries without payload do not reach it at all.
    #[default]
    Always,
    /// It is asked with every Query.
    Ask,
    /// It peers with nobody: Queries travel on, unless they end here. It may still send.
    Never,
}

/// What GIST must know of a signaling application of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Registration {
    /// How it decides about Queries.
    pub policy: PeeringPolicy,
    /// Router Alert value of its Q-mode messages.
    pub router_alert: u16,
}
