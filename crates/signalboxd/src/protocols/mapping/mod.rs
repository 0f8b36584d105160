//! The front end for programs that ask by PCP (RFC 6887) and NAT-PMP (RFC 6886).

pub(crate) mod service;

use signalbox_node::mapping::{Command as MappingCommand, Event as MappingEvent};
use signalbox_node::{Command, Event};

use crate::clients::ClientProtocol;

/// Orders of administrators: each has one answer.
pub(crate) struct Orders;

impl ClientProtocol for Orders {
    type Command = MappingCommand;
    type Event = MappingEvent;

    const WHAT: &'static str = "an order about mappings";
    const QUEUE: usize = 1;
    const HOLDS: bool = false;

    fn command(id: u64, command: MappingCommand) -> Command {
        Command::Mapping { id, command }
    }

    fn event(event: Event) -> Option<MappingEvent> {
        if let Event::Mapping { event, .. } = event { Some(event) } else { None }
    }

    fn close(id: u64) -> Command {
        Command::Mapping { id, command: MappingCommand::End }
    }

    fn is_last(event: &MappingEvent, _: bool) -> bool {
        match event {
            MappingEvent::Cleared | MappingEvent::Unknown => true,
        }
    }
}
