//! Boomerang (draft-bergkvist-boomerang-spec-00).

mod convert;
pub(crate) mod reserve;
pub(crate) mod service;

use signalbox_node::boomerang::{BoomerangEvent, Command as BoomerangCommand};
use signalbox_node::{Command, Event};

use crate::clients::ClientProtocol;
use crate::driver::DaemonCounters;
use crate::metrics::Measure;

/// Boomerang as its clients see it: each client has one reservation.
pub(crate) struct Reservations;

impl ClientProtocol for Reservations {
    type Command = BoomerangCommand;
    type Event = BoomerangEvent;

    const WHAT: &'static str = "a reservation by Boomerang";
    const QUEUE: usize = 64;
    const HOLDS: bool = true;

    fn command(id: u64, command: BoomerangCommand) -> Command {
        Command::Boomerang { id, command }
    }

    fn event(event: Event) -> Option<BoomerangEvent> {
        if let Event::Boomerang { event, .. } = event { Some(event) } else { None }
    }

    fn close(id: u64) -> Command {
        Command::Boomerang { id, command: BoomerangCommand::Close }
    }

    /// A change that is refused leaves what stands.
    fn is_last(event: &BoomerangEvent, stands: bool) -> bool {
        match event {
            BoomerangEvent::Reserved { .. } | BoomerangEvent::ChangeRefused(_) => false,
            BoomerangEvent::Rejected(_) => !stands,
            BoomerangEvent::Refused(_)
            | BoomerangEvent::Unanswered
            | BoomerangEvent::Unreachable(_)
            | BoomerangEvent::Closed { .. }
            | BoomerangEvent::Available(_) => true,
        }
    }

    fn grants(event: &BoomerangEvent) -> bool {
        matches!(event, BoomerangEvent::Reserved { .. })
    }

    fn count(counters: &mut DaemonCounters) {
        counters.reservations_started += 1;
    }

    fn measure(event: &Event) -> Option<Measure> {
        let Event::Boomerang { event, .. } = event else { return None };
        Self::grants(event).then_some(Measure::SetUp)
    }
}
