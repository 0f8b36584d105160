//! CASP (draft-schulzrinne-nsis-casp-01).

mod client;
mod convert;
pub(crate) mod pinhole;
pub(crate) mod reserve;
pub(crate) mod service;

use signalbox_node::casp::{
    Command as CaspCommand, Event as CaspEvent, PassageEvent, ReservationEvent, SeriesEvent,
};
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
    const HOLDS: bool = false;

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

/// The QoS client of CASP as its users see it: each has one reservation, or asks once what a path could give.
pub(crate) struct Reservations;

impl ClientProtocol for Reservations {
    type Command = CaspCommand;
    type Event = ReservationEvent;

    const WHAT: &'static str = "a reservation by CASP";
    const QUEUE: usize = 64;
    const HOLDS: bool = true;

    fn command(id: u64, command: CaspCommand) -> Command {
        Command::Casp { id, command }
    }

    fn event(event: Event) -> Option<ReservationEvent> {
        if let Event::Casp { event: CaspEvent::Reservation(event), .. } = event { Some(event) } else { None }
    }

    fn close(id: u64) -> Command {
        Command::Casp { id, command: CaspCommand::Close }
    }

    /// A change that is refused leaves what stands.
    fn is_last(event: &ReservationEvent, stands: bool) -> bool {
        match event {
            ReservationEvent::Started { .. } | ReservationEvent::Granted(_) => false,
            ReservationEvent::Refused(_) | ReservationEvent::Failed(_) => !stands,
            ReservationEvent::Available(_)
            | ReservationEvent::Lost(_)
            | ReservationEvent::Released { .. } => true,
        }
    }

    fn grants(event: &ReservationEvent) -> bool {
        matches!(event, ReservationEvent::Granted(_))
    }

    fn count(counters: &mut DaemonCounters) {
        counters.reservations_started += 1;
    }

    fn measure(event: &Event) -> Option<Measure> {
        let Event::Casp { event: CaspEvent::Reservation(event), .. } = event else { return None };
        Self::grants(event).then_some(Measure::SetUp)
    }
}

/// The client for firewalls of CASP as its users see it: each has one passage, or accepts the packets of others.
pub(crate) struct Passages;

impl ClientProtocol for Passages {
    type Command = CaspCommand;
    type Event = PassageEvent;

    const WHAT: &'static str = "a passage by CASP";
    const QUEUE: usize = 64;
    const HOLDS: bool = true;

    fn command(id: u64, command: CaspCommand) -> Command {
        Command::Casp { id, command }
    }

    fn event(event: Event) -> Option<PassageEvent> {
        if let Event::Casp { event: CaspEvent::Passage(event), .. } = event { Some(event) } else { None }
    }

    fn close(id: u64) -> Command {
        Command::Casp { id, command: CaspCommand::Close }
    }

    fn is_last(event: &PassageEvent, _: bool) -> bool {
        match event {
            PassageEvent::Started { .. }
            | PassageEvent::Accepting(_)
            | PassageEvent::Granted { .. }
            | PassageEvent::Accepted { .. }
            | PassageEvent::Ended { .. }
            | PassageEvent::Notified(_) => false,
            PassageEvent::Refused(_) | PassageEvent::Failed(_) | PassageEvent::Closed => true,
        }
    }

    fn grants(event: &PassageEvent) -> bool {
        matches!(event, PassageEvent::Granted { .. })
    }

    fn count(counters: &mut DaemonCounters) {
        counters.passages_started += 1;
    }

    fn measure(event: &Event) -> Option<Measure> {
        let Event::Casp { event: CaspEvent::Passage(event), .. } = event else { return None };
        Self::grants(event).then_some(Measure::SetUp)
    }
}
