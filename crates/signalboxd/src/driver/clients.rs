//! The clients that wait for events of the pings they started.

use std::collections::BTreeMap;

use signalbox_api::v1;
use signalbox_core::Time;
use signalbox_core::node::Input;
use signalbox_node::{ApplicationCommand, Command, Event};
use tokio::sync::mpsc::{self, error::TrySendError};
use tonic::Status;

use super::applications::Applications;
use super::engine::Engine;
use crate::convert;

/// Where the events of one ping go.
pub(super) type PingEvents = mpsc::Sender<Result<v1::PingEvent, Status>>;

/// The clients, by the id of their ping, and the applications of other processes.
#[derive(Debug, Default)]
pub(super) struct Clients {
    pub(super) applications: Applications,
    pings: BTreeMap<u64, PingEvents>,
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
            let input = Input::Command(Command::Application { id, command });
            engine.feed(now, input, &mut |event| self.deliver(event));
        }
    }

    /// Passes an event on to the client that waits for it.
    ///
    /// A client that is gone or does not read loses its stream; the service then asks to stop its ping.
    pub(super) fn deliver(&mut self, event: Event) {
        let (id, event) = match event {
            Event::Ping { id, event } => (id, event),
            // No client asks for reservations yet.
            Event::Qos { .. } => return,
            Event::Application { id, event } => return self.applications.deliver(id, event),
        };
        let Some(client) = self.pings.get(&id) else { return };
        let event = convert::ping_event(event);
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
}
