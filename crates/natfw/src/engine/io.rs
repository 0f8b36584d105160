//! Inputs and outputs of the engine.

use core::time::Duration;

use signalbox_core::handover::Entries;
use signalbox_core::node::{Interface, NoRoute, Route, RouteQuery};
use signalbox_core::pinhole::{Pinhole, PinholeError, PinholeId};
use signalbox_core::service::{Indication, Request};

use super::command::Command;
use super::event::NatfwEvent;
use super::host::{HostEvent, HostRequest};

/// One input of [`Natfw::handle`](super::Natfw::handle).
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
    /// The answer to [`Output::Open`]. There is one for each, in order.
    Opened {
        /// The pinhole.
        id: PinholeId,
        /// Whether the kernel has it as requested. If not, the previous one of that id stays.
        result: Result<(), PinholeError>,
    },
    /// What [`Natfw::hand_over`](super::Natfw::hand_over) of the engine before this one wrote, and what a crash left
    /// ([`left_binding`](super::left_binding)). It comes after the first [`Input::Interfaces`].
    Handover(Entries),
    /// The node stops: who asked for what ends with it is told.
    Stop {
        /// The next node gets what [`Natfw::hand_over`](super::Natfw::hand_over) wrote.
        handed_over: bool,
    },
    /// The rules about passages changed: those that stand are judged again, in parts.
    Rules,
    /// A front end asks in the place of a host inside.
    Host {
        /// The identifier of what it asks for. It is given back with each event.
        id: u64,
        /// What is to stand; `None`: nothing any more.
        request: Option<HostRequest>,
    },
    /// A command of a user.
    Command {
        /// The user's identifier of the request. It is given back with each event. [`Command::Close`] carries the
        /// identifier of the request that it ends.
        id: u64,
        /// The command.
        command: Command,
    },
}

/// One output of [`Natfw::poll`](super::Natfw::poll).
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
    /// Put a pinhole into the kernel, change it, or prolong it.
    Open {
        /// The pinhole.
        id: PinholeId,
        /// What it does.
        pinhole: Pinhole,
        /// Time after which the kernel removes it by itself.
        lifetime: Duration,
    },
    /// Remove a pinhole, and end the flows that it let in.
    Close {
        /// The pinhole.
        id: PinholeId,
    },
    /// An event for a front end ([`Input::Host`]).
    Host {
        /// The identifier of what it asked for.
        id: u64,
        /// The event.
        event: HostEvent,
    },
    /// An event for a user.
    Event {
        /// The identifier that the command carried.
        id: u64,
        /// The event.
        event: NatfwEvent,
    },
}
