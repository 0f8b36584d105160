//! The NAT and firewall application (RFC 5973).

mod convert;
pub(crate) mod pinhole;

use signalbox_node::natfw::{Command as NatfwCommand, NatfwEvent};
use signalbox_node::{Command, Event};

use crate::clients::ClientProtocol;
use crate::driver::DaemonCounters;
use crate::metrics::Measure;

/// The application as its clients see it: each client has one passage.
pub(crate) struct Passages;

impl ClientProtocol for Passages {
    type Command = NatfwCommand;
    type Event = NatfwEvent;

    const WHAT: &'static str = "a passage";
    const QUEUE: usize = 64;
    const HOLDS: bool = true;

    fn command(id: u64, command: NatfwCommand) -> Command {
        Command::Natfw { id, command }
    }

    fn event(event: Event) -> Option<NatfwEvent> {
        if let Event::Natfw { event, .. } = event { Some(event) } else { None }
    }

    fn close(id: u64) -> Command {
        Command::Natfw { id, command: NatfwCommand::Close }
    }

    fn is_last(event: &NatfwEvent, _: bool) -> bool {
        match event {
            NatfwEvent::Started { .. } | NatfwEvent::Granted(_) | NatfwEvent::Notified(_) => false,
            NatfwEvent::Refused(_) | NatfwEvent::Failed(_) | NatfwEvent::Closed => true,
        }
    }

    fn grants(event: &NatfwEvent) -> bool {
        matches!(event, NatfwEvent::Granted(_))
    }

    fn count(counters: &mut DaemonCounters) {
        counters.passages_started += 1;
    }

    fn measure(event: &Event) -> Option<Measure> {
        let Event::Natfw { event, .. } = event else { return None };
        matches!(event, NatfwEvent::Granted(_)).then_some(Measure::SetUp)
    }
}
