//! Outputs that wait to be polled.

use core::time::Duration;

use crate::clients::shared::{Polled, Queue};
use crate::engine::Request;
use crate::wire::ping::Entry;

/// What becomes of a ping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PingEvent {
    /// The answer of the responder.
    Reply {
        /// The nodes that the request reached, in their order; the responder is the last one.
        nodes: Vec<Entry>,
        /// From the request to the reply.
        time: Duration,
    },
    /// This node is the last one, or the next one cannot be reached.
    NoNext,
    /// A node on the way reported that it cannot send the message on.
    Reported,
    /// No answer in time.
    Unanswered,
    /// The messaging layer does not take the request, or too many pings wait.
    Refused,
}

/// An output of the client.
#[derive(Debug)]
pub enum PingOutput<'a> {
    /// For the messaging layer.
    Request(Request<'a>),
    /// For the user who asked for the ping.
    Event {
        /// The user's id.
        id: u64,
        /// The event; it is the last one.
        event: PingEvent,
    },
}

pub(super) type Outputs = Queue<(u64, PingEvent)>;

impl Outputs {
    pub(super) fn event(&mut self, id: u64, event: PingEvent) {
        self.push((id, event));
    }

    pub(super) fn poll(&mut self) -> Option<PingOutput<'_>> {
        Some(match self.take()? {
            Polled::Request(request) => PingOutput::Request(request),
            Polled::Other((id, event)) => PingOutput::Event { id, event },
        })
    }
}
