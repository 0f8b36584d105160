//! Inputs and outputs of the engine.

use signalbox_core::node::{Interface, NoRoute, Route};
use signalbox_core::service::Indication;
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
pub type Output<'a> = signalbox_core::outputs::Output<'a, QosEvent>;
