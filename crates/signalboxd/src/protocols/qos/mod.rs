//! The QoS application (RFC 5974).

mod convert;
pub(crate) mod reserve;
pub(crate) mod service;

use signalbox_node::qos::{Command as QosCommand, QosEvent};
use signalbox_node::{Command, Event};

use crate::clients::ClientProtocol;
use crate::driver::DaemonCounters;
use crate::metrics::Measure;

/// QoS as its clients see it: each client has one reservation, or asks once what a path could give.
pub(crate) struct Reservations;

impl ClientProtocol for Reservations {
    type Command = QosCommand;
    type Event = QosEvent;

    const WHAT: &'static str = "a reservation or a query";
    const QUEUE: usize = 64;
    const HOLDS: bool = true;

    fn command(id: u64, command: QosCommand) -> Command {
        Command::Qos { id, command }
    }

    fn event(event: Event) -> Option<QosEvent> {
        if let Event::Qos { event, .. } = event { Some(*event) } else { None }
    }

    fn close(id: u64) -> Command {
        Command::Qos { id, command: QosCommand::Release }
    }

    /// A change that is refused leaves what stands.
    fn is_last(event: &QosEvent, stands: bool) -> bool {
        match event {
            QosEvent::Started { .. } | QosEvent::Granted(_) | QosEvent::Rerouted(_) => false,
            QosEvent::Refused(_) | QosEvent::Failed(_) => !stands,
            QosEvent::Lost(_) | QosEvent::Released | QosEvent::Answer(_) => true,
        }
    }

    fn grants(event: &QosEvent) -> bool {
        matches!(event, QosEvent::Granted(_))
    }

    fn count(counters: &mut DaemonCounters) {
        counters.reservations_started += 1;
    }

    fn measure(event: &Event) -> Option<Measure> {
        let Event::Qos { event, .. } = event else { return None };
        matches!(**event, QosEvent::Granted(_)).then_some(Measure::SetUp)
    }
}
