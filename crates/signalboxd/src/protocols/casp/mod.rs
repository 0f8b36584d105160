//! CASP (draft-schulzrinne-nsis-casp-01).

mod convert;
pub(crate) mod service;

use signalbox_node::casp::{Command as CaspCommand, Event as CaspEvent, SeriesEvent};
use signalbox_node::{Command, Event};

use crate::clients::ClientProtocol;
use crate::driver::DaemonCounters;
use crate::metrics::Measure;

/// The Ping client of CASP as its users see it: each has one series of probes.
pub(crate) struct Pings;

impl ClientProtocol for Pings {
    type Command = CaspCommand;
    type Event = SeriesEvent;

    const WHAT: &'static str = "a ping by CASP";
    const QUEUE: usize = 1024;

    fn command(id: u64, command: CaspCommand) -> Command {
        Command::Casp { id, command }
    }

    fn event(event: Event) -> Option<SeriesEvent> {
        if let Event::Casp { event: CaspEvent::Ping(event), .. } = event { Some(event) } else { None }
    }

    fn close(id: u64) -> Command {
        Command::Casp { id, command: CaspCommand::Close }
    }

    fn is_last(event: &SeriesEvent, _: bool) -> bool {
        match event {
            SeriesEvent::Refused(_) | SeriesEvent::Done { .. } => true,
            SeriesEvent::Started { .. } | SeriesEvent::Reply { .. } | SeriesEvent::Lost { .. } => false,
        }
    }

    fn count(counters: &mut DaemonCounters) {
        counters.pings_started += 1;
    }

    fn measure(event: &Event) -> Option<Measure> {
        let Event::Casp { event: CaspEvent::Ping(SeriesEvent::Reply { time, .. }), .. } = event else {
            return None;
        };
        Some(Measure::RoundTrip(*time))
    }
}
