//! Clients whose events are read, are not read, and cannot be read any more.

use signalbox_node::ping::{LostReason, PingEvent};
use signalbox_node::qos::{self, QosEvent};
use signalbox_node::{Event, ping};

use super::*;
use crate::protocols::ping::Pings;
use crate::protocols::qos::Reservations;

/// A client of `P` whose queue has room for `room` events.
fn client<P: ClientProtocol>(room: usize) -> (Box<dyn Client>, mpsc::Receiver<P::Event>) {
    let (events, reader) = mpsc::channel(room);
    (Box::new(EventQueue::<P> { events, too_slow: Arc::default() }), reader)
}

fn lost(id: u64, seq: u32) -> Event {
    Event::Ping { id, event: PingEvent::Lost { seq, reason: LostReason::Timeout } }
}

fn granted(id: u64) -> Event {
    let session = signalbox_core::SessionId([0; 16]);
    let quality = qos::Quality::default();
    let granted = qos::Granted { session, quality, hops: Vec::new(), gaps: false, back: None };
    Event::Qos { id, event: Box::new(QosEvent::Granted(granted)) }
}

const STOP: Command = Command::Ping { id: 7, command: ping::Command::Stop };
const RELEASE: Command = Command::Qos { id: 7, command: qos::Command::Release };

#[test]
fn events_reach_their_client_until_the_last() {
    let mut clients = Clients::default();
    let (queue, mut reader) = client::<Pings>(4);
    clients.add(7, queue);
    clients.deliver(lost(7, 0));
    clients.deliver(lost(8, 0));
    clients.deliver(Event::Ping { id: 7, event: PingEvent::Done { sent: 1, received: 0 } });
    assert_eq!((clients.remove(7), clients.next_pending()), (None, None));
    assert!(matches!(reader.try_recv(), Ok(PingEvent::Lost { .. })));
    assert!(matches!(reader.try_recv(), Ok(PingEvent::Done { .. })));
    assert_eq!(reader.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
}

#[test]
fn a_client_that_does_not_read_is_closed_and_counted() {
    let mut clients = Clients::default();
    let (queue, _reader) = client::<Pings>(1);
    clients.add(7, queue);
    clients.deliver(lost(7, 0));
    assert_eq!(clients.next_pending(), None);
    clients.deliver(lost(7, 1));
    assert_eq!((clients.next_pending(), clients.remove(7)), (Some(STOP), None));
    assert_eq!(clients.counted(DaemonCounters::default()).clients_too_slow, 1);
}

#[test]
fn a_reservation_whose_client_is_gone_is_released() {
    let mut clients = Clients::default();
    let (queue, reader) = client::<Reservations>(4);
    clients.add(7, queue);
    clients.deliver(granted(7));
    assert_eq!(clients.next_pending(), None);
    drop(reader);
    clients.deliver(granted(7));
    assert_eq!((clients.next_pending(), clients.remove(7)), (Some(RELEASE), None));
    assert_eq!(clients.counted(DaemonCounters::default()).clients_too_slow, 0);
}

#[test]
fn a_command_is_for_a_client_of_its_own_protocol() {
    let mut clients = Clients::default();
    let (queue, _reader) = client::<Reservations>(4);
    clients.add(7, queue);
    assert!(clients.command(&RELEASE));
    assert!(!clients.command(&STOP), "7 is a reservation");
    assert!(!clients.command(&Command::Qos { id: 8, command: qos::Command::Release }));
    assert_eq!((clients.close_all(), clients.remove(7)), (vec![RELEASE], Some(RELEASE)));
}
