//! What goes into the engine and what comes out.

use core::net::IpAddr;

use signalbox_core::node::{Interface, NoRoute, Prefix, Route, RouteQuery, TransmitError};
use signalbox_core::packet::{Received, Transmit};
use signalbox_core::service;

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
}

/// How a signaling application decides about Queries (RFC 5971 §4.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PeeringPolicy {
    /// It peers with everybody. Queries without payload do not reach it at all.
    #[default]
    Always,
    /// It is asked with every Query.
    Ask,
}

/// What GIST must know of a signaling application of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registration {
    /// How it decides about Queries.
    pub policy: PeeringPolicy,
    /// Router Alert value of its Q-mode messages.
    pub router_alert: u16,
}
