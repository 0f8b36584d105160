//! Inputs and outputs of the engine.

use signalbox_core::node::{Interface, NoRoute, Route};
use signalbox_core::service::Indication;

use super::event::{Command, PingEvent};

/// One input of [`Ping::handle`](super::Ping::handle).
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
    /// A user starts or stops a ping.
    Command {
        /// The user's identifier of the ping. It is given back with each event.
        id: u64,
        /// The command.
        command: Command,
    },
}

/// One output of [`Ping::poll`](super::Ping::poll). A route gives a ping its source address.
pub type Output<'a> = signalbox_core::outputs::Output<'a, PingEvent>;
