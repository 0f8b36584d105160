//! The clients that wait for events of the pings and reservations they started.

use std::collections::BTreeMap;

use signalbox_api::v1;
use signalbox_core::Time;
use signalbox_core::node::Input;
use signalbox_node::qos::{self, QosEvent};
use signalbox_node::rsvp::{self, RsvpEvent};
use signalbox_node::{ApplicationCommand, Command, Event};
use tokio::sync::mpsc::{self, error::TrySendError};
use tonic::Status;

use super::applications::Applications;
use super::engine::Engine;

/// Where the events of one ping go.
pub(super) type PingEvents = mpsc::Sender<Result<v1::PingEvent, Status>>;

/// Where the events of one reservation or question go.
pub(super) type QosEvents = mpsc::Sender<QosEvent>;

/// The clients, by the id of their ping or reservation, and the applications of other processes.
#[derive(Debug, Default)]
pub(super) struct Clients {
    pub(super) applications: Applications,
    pings: BTreeMap<u64, PingEvents>,
    reservations: BTreeMap<u64, QosEvents>,
    /// Where the events of RSVP sessions go.
    sessions: BTreeMap<u64, mpsc::Sender<RsvpEvent>>,
    /// Reservations to be released, because nobody reads their events.
    abandoned: Vec<u64>,
    /// RSVP sessions to be closed for the same reason.
    unread: Vec<u64>,
    last: u64,
    too_slow: u64,
}

impl Clients {
    /// Takes a client in; gives the id that its ping shall have.
    pub(super) fn add(&mut self, events: PingEvents) -> u64 {
        self.last += 1;
        self.pings.insert(self.last, events);
        self.last
    }

    /// Takes the client of a reservation or question in; gives the id that it shall have.
    pub(super) fn add_reservation(&mut self, events: QosEvents) -> u64 {
        self.last += 1;
        self.reservations.insert(self.last, events);
        self.last
    }

    /// Forgets the client of a reservation. True if it was there.
    pub(super) fn remove_reservation(&mut self, id: u64) -> bool {
        self.reservations.remove(&id).is_some()
    }

    /// Takes the client of an RSVP session in; gives the id that it shall have.
    pub(super) fn add_session(&mut self, events: mpsc::Sender<RsvpEvent>) -> u64 {
        self.last += 1;
        self.sessions.insert(self.last, events);
        self.last
    }

    /// Forgets the client of an RSVP session. True if it was there.
    pub(super) fn remove_session(&mut self, id: u64) -> bool {
        self.sessions.remove(&id).is_some()
    }

    /// RSVP sessions that somebody listens to.
    pub(super) fn session_ids(&self) -> Vec<u64> {
        self.sessions.keys().copied().collect()
    }

    /// Whether somebody waits for the events of a reservation.
    pub(super) fn has_reservation(&self, id: u64) -> bool {
        self.reservations.contains_key(&id)
    }

    /// Reservations and questions that somebody waits for.
    pub(super) fn reservation_ids(&self) -> Vec<u64> {
        self.reservations.keys().copied().collect()
    }

    /// Forgets a client. True if it was there.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        self.pings.remove(&id).is_some()
    }

    /// Pings that somebody waits for.
    pub(super) fn ids(&self) -> Vec<u64> {
        self.pings.keys().copied().collect()
    }

    /// Clients that did not read their events.
    pub(super) const fn too_slow(&self) -> u64 {
        self.too_slow
    }

    /// Gives the node an input, and passes on what it says to clients.
    pub(super) fn feed(&mut self, engine: &mut Engine, now: Time, input: Input<'_, Command>) {
        engine.feed(now, input, &mut |event| self.deliver(event));
        while let Some(id) = self.applications.next_to_block() {
            let command = ApplicationCommand::Blocked(true);
            let input = Input::Command(Command::Gist { id, command });
            engine.feed(now, input, &mut |event| self.deliver(event));
        }
        while let Some(id) = self.abandoned.pop() {
            let input = Input::Command(Command::Qos { id, command: qos::Command::Release });
            engine.feed(now, input, &mut |event| self.deliver(event));
        }
        while let Some(id) = self.unread.pop() {
            let input = Input::Command(Command::Rsvp { id, command: rsvp::Command::Close });
            engine.feed(now, input, &mut |event| self.deliver(event));
        }
    }

    /// Passes an event on to the client that waits for it.
    ///
    /// A client that is gone or does not read loses its stream; the service then asks to stop its ping.
    pub(super) fn deliver(&mut self, event: Event) {
        let (id, event) = match event {
            Event::Ping { id, event } => (id, event),
            Event::Qos { id, event } => return self.deliver_qos(id, *event),
            Event::Rsvp { id, event } => return self.deliver_rsvp(id, *event),
            Event::Gist { id, event } => return self.applications.deliver(id, event),
        };
        let Some(client) = self.pings.get(&id) else { return };
        let event = crate::protocols::ping::convert::ping_event(event);
        let last = match &event {
            Ok(event) => matches!(event.event, Some(v1::ping_event::Event::Done(_))),
            Err(_) => true,
        };
        let sent = client.try_send(event);
        if let Err(TrySendError::Full(_)) = sent {
            self.too_slow += 1;
        }
        if last || sent.is_err() {
            self.pings.remove(&id);
        }
    }
}

impl Clients {
    /// The same for a reservation; one whose client is gone or does not read is released.
    fn deliver_qos(&mut self, id: u64, event: QosEvent) {
        let Some(client) = self.reservations.get(&id) else { return };
        let last = crate::protocols::qos::convert::is_last(&event);
        let sent = client.try_send(event);
        if let Err(TrySendError::Full(_)) = sent {
            self.too_slow += 1;
        }
        if last || sent.is_err() {
            self.reservations.remove(&id);
        }
        if !last && sent.is_err() {
            self.abandoned.push(id);
        }
    }

    /// The same for an RSVP session, which is closed then.
    fn deliver_rsvp(&mut self, id: u64, event: RsvpEvent) {
        let Some(client) = self.sessions.get(&id) else { return };
        let Err(error) = client.try_send(event) else { return };
        if matches!(error, TrySendError::Full(_)) {
            self.too_slow += 1;
        }
        self.sessions.remove(&id);
        self.unread.push(id);
    }
}

#[cfg(test)]
mod tests {
    use signalbox_node::ping::{LostReason, PingEvent};

    use super::*;

    fn lost(id: u64, seq: u32) -> Event {
        Event::Ping { id, event: PingEvent::Lost { seq, reason: LostReason::Timeout } }
    }

    #[test]
    fn events_reach_their_client_until_the_last() {
        let mut clients = Clients::default();
        let (events, mut stream) = mpsc::channel(4);
        let id = clients.add(events);
        clients.deliver(lost(id, 0));
        clients.deliver(lost(id + 1, 0));
        clients.deliver(Event::Ping { id, event: PingEvent::Done { sent: 1, received: 0 } });
        assert!(clients.ids().is_empty());
        assert!(stream.try_recv().unwrap().is_ok());
        assert!(stream.try_recv().unwrap().is_ok());
        assert!(stream.try_recv().is_err(), "the stream has ended");
    }

    #[test]
    fn a_client_that_does_not_read_is_dropped_and_counted() {
        let mut clients = Clients::default();
        let (events, _stream) = mpsc::channel(1);
        let id = clients.add(events);
        clients.deliver(lost(id, 0));
        clients.deliver(lost(id, 1));
        assert_eq!((clients.too_slow(), clients.remove(id)), (1, false));
    }

    fn granted(id: u64) -> Event {
        let session = signalbox_core::SessionId([0; 16]);
        let quality = qos::Quality::default();
        let granted = qos::Granted { session, quality, hops: Vec::new(), gaps: false, back: None };
        Event::Qos { id, event: Box::new(QosEvent::Granted(granted)) }
    }

    #[test]
    fn a_reservation_whose_client_is_gone_is_released() {
        let mut clients = Clients::default();
        let (events, stream) = mpsc::channel(4);
        let id = clients.add_reservation(events);
        clients.deliver(granted(id));
        assert!(clients.has_reservation(id) && clients.abandoned.is_empty());
        drop(stream);
        clients.deliver(granted(id));
        assert_eq!((clients.has_reservation(id), clients.abandoned.as_slice()), (false, &[id][..]));
    }

    #[test]
    fn the_last_event_of_a_reservation_ends_its_stream() {
        let mut clients = Clients::default();
        let (events, mut stream) = mpsc::channel(4);
        let id = clients.add_reservation(events);
        clients.deliver(Event::Qos { id, event: Box::new(QosEvent::Released) });
        assert_eq!(stream.try_recv(), Ok(QosEvent::Released));
        assert_eq!(stream.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
        assert!(clients.abandoned.is_empty());
    }
}
