//! The Ping application.

mod convert;
pub(crate) mod service;

use signalbox_node::ping::{Command as PingCommand, PingEvent};
use signalbox_node::{Command, Event};

use crate::clients::ClientProtocol;
use crate::driver::DaemonCounters;
use crate::metrics::Measure;

/// Ping as its clients see it: each client runs one ping, which may send many messages.
pub(crate) struct Pings;

impl ClientProtocol for Pings {
    type Command = PingCommand;
    type Event = PingEvent;

    const WHAT: &'static str = "a ping";
    const QUEUE: usize = 1024;
    const HOLDS: bool = false;

    fn command(id: u64, command: PingCommand) -> Command {
        Command::Ping { id, command }
    }

    fn event(event: Event) -> Option<PingEvent> {
        if let Event::Ping { event, .. } = event { Some(event) } else { None }
    }

    fn close(id: u64) -> Command {
        Command::Ping { id, command: PingCommand::Stop }
    }

    fn is_last(event: &PingEvent, _: bool) -> bool {
        match event {
            PingEvent::Refused(_) | PingEvent::Done { .. } => true,
            PingEvent::Started { .. } | PingEvent::Reply(_) | PingEvent::Lost { .. } => false,
        }
    }

    fn count(counters: &mut DaemonCounters) {
        counters.pings_started += 1;
    }

    fn measure(event: &Event) -> Option<Measure> {
        let Event::Ping { event: PingEvent::Reply(reply), .. } = event else { return None };
        Some(Measure::RoundTrip(reply.rtt))
    }
}
