//! RSVP (RFC 2205).

mod convert;
pub(crate) mod reserve;
pub(crate) mod service;
mod tables;

use signalbox_node::rsvp::{Command as RsvpCommand, RsvpEvent};
use signalbox_node::{Command, Event};

use crate::clients::ClientProtocol;
use crate::metrics::Measure;

/// RSVP as its clients see it: each client has one session of RFC 2205 §3.11.1.
pub(crate) struct Sessions;

impl ClientProtocol for Sessions {
    type Command = RsvpCommand;
    type Event = RsvpEvent;

    const WHAT: &'static str = "an RSVP session";
    const QUEUE: usize = 1024;
    const HOLDS: bool = true;

    fn command(id: u64, command: RsvpCommand) -> Command {
        Command::Rsvp { id, command }
    }

    fn event(event: Event) -> Option<RsvpEvent> {
        if let Event::Rsvp { event, .. } = event { Some(*event) } else { None }
    }

    fn close(id: u64) -> Command {
        Command::Rsvp { id, command: RsvpCommand::Close }
    }

    /// A session lasts until its client closes it, also if a request of the client is refused.
    fn is_last(_: &RsvpEvent, _: bool) -> bool {
        false
    }

    /// A receiver's reservation stands when it is confirmed. A sender cannot know how long its receivers waited.
    fn measure(event: &Event) -> Option<Measure> {
        let Event::Rsvp { event, .. } = event else { return None };
        matches!(**event, RsvpEvent::Confirmed { .. }).then_some(Measure::SetUp)
    }
}
