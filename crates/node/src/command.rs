//! What users ask of a node and what they hear.

use signalbox_ping::engine::{Command as PingCommand, PingEvent};
use signalbox_qos::engine::{Command as QosCommand, QosEvent};
use signalbox_rsvp::engine::{Command as RsvpCommand, RsvpEvent};

use crate::applications::{ApplicationCommand, ApplicationEvent};

/// What a user asks.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Command {
    /// Start or stop a ping.
    Ping {
        /// The user's identifier of the ping. It is given back with each event, and is unique among those that run.
        id: u64,
        /// What is wanted.
        command: PingCommand,
    },
    /// Reserve, release, or ask what a path could give.
    Qos {
        /// The user's name for it, to be given back with each event; a release names what it ends.
        id: u64,
        /// What is wanted.
        command: QosCommand,
    },
    /// Something about an RSVP session of this node.
    Rsvp {
        /// The user's name for the session, to be given back with each event.
        id: u64,
        /// What is wanted.
        command: RsvpCommand,
    },
    /// A signaling application outside of the node asks for something.
    Gist {
        /// Its driver's name for it, to be given back with each event; unique among those that are registered.
        id: u64,
        /// What it asks.
        command: ApplicationCommand,
    },
}

/// What a user hears.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Event {
    /// Of a ping.
    Ping {
        /// The name it was started under.
        id: u64,
        /// What happened.
        event: PingEvent,
    },
    /// Of a reservation or of a question about a path.
    Qos {
        /// The name of the command.
        id: u64,
        /// What happened.
        event: Box<QosEvent>,
    },
    /// Of an RSVP session of this node: an upcall of RFC 2205 §3.11.1.
    Rsvp {
        /// The session's name.
        id: u64,
        /// What happened.
        event: Box<RsvpEvent>,
    },
    /// For a signaling application outside of the node.
    Gist {
        /// The name it registered under.
        id: u64,
        /// What it hears.
        event: ApplicationEvent,
    },
}
