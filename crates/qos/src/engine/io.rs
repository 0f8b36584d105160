//! Inputs and outputs of the engine.

use signalbox_core::node::{Interface, NoRoute, Route, RouteQuery};
use signalbox_core::service::{Indication, Request};
use signalbox_resources::{GrantId, LostWhy};

use super::command::Command;
use super::event::QosEvent;

/// One input of [`Qos::handle`](super::Qos::handle).
#[derive(Debug)]
pub enum Input<'a> {
    /// A deadline is due.
    Timer,
    /// An indication from GIST (RFC 5971 Appendix B).
    Indication(Indication<'a>),
    /// All interfaces of the node; given at the start and after each change.
    Interfaces(&'a [Interface]),
    /// The answer to [`Output::RouteLookup`].
    Route {
        /// The identifier of the lookup.
        id: u64,
        /// The route, or why there is none.
        result: Result<Route, NoRoute>,
    },
    /// A command of a user.
    Command {
        /// The user's identifier of the reservation or query. It is given back with each event. [`Command::Release`]
        /// carries the identifier of the reservation that it ends.
        id: u64,
        /// The command.
        command: Command,
    },
    /// Admission control took a grant of this protocol away.
    Lost {
        /// The key of the grant's owner.
        key: u64,
        /// The grant.
        grant: GrantId,
        /// The cause.
        why: LostWhy,
    },
}

/// One output of [`Qos::poll`](super::Qos::poll).
#[derive(Debug)]
pub enum Output<'a> {
    /// A request to GIST (RFC 5971 Appendix B).
    Request(Request<'a>),
    /// Find the route that a packet of this flow would take.
    RouteLookup {
        /// To be given back with [`Input::Route`].
        id: u64,
        /// The packet.
        query: RouteQuery,
    },
    /// An event for a user.
    Event {
        /// The identifier that the command carried.
        id: u64,
        /// The event.
        event: QosEvent,
    },
}
