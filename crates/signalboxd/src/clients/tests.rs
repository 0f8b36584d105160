//! Clients whose events are read, are not read, and cannot be read any more.

use signalbox_node::ping::{LostReason, PingEvent};
use signalbox_node::qos::{self, QosEvent};
use signalbox_node::resources::request::Requester;
use signalbox_node::{Event, ping};

use signalbox_api::openmetrics::Format;

use super::*;
use crate::decisions::tests::ended;
use crate::metrics::{Snapshot, families};
use crate::protocols::ping::Pings;
use crate::protocols::qos::Reservations;

/// A client of `P` whose queue has room for `room` events.
fn client<P: ClientProtocol>(room: usize) -> (Box<dyn Client>, mpsc::Receiver<P::Event>) {
    let (events, reader) = mpsc::channel(room);
    (Box::new(EventQueue::<P> { events, stands: false, too_slow: Arc::default(), stopping: false }), reader)
}

fn lost(id: u64, seq: u32) -> Event {
    Event::Ping { id, event: PingEvent::Lost { seq, reason: LostReason::Timeout } }
}

fn granted(id: u64) -> Event {
    let session = signalbox_core::SessionId([0; 16]);
    let quality = qos::Quality::default();
    let granted = qos::Granted { session, quality, hops: Vec::new(), gaps: false, far_end: None, back: None };
    Event::Qos { id, event: Box::new(QosEvent::Granted(granted)) }
}

const STOP: Command = Command::Ping { id: 7, command: ping::Command::Stop };
const RELEASE: Command = Command::Qos { id: 7, command: qos::Command::Release };

#[test]
fn events_reach_their_client_until_the_last() {
    let mut clients = Clients::default();
    let (queue, mut reader) = client::<Pings>(4);
    clients.add(Time::ZERO, 7, queue, None);
    clients.deliver(Time::ZERO, lost(7, 0), &mut Measurements::default());
    clients.deliver(Time::ZERO, lost(8, 0), &mut Measurements::default());
    clients.deliver(
        Time::ZERO,
        Event::Ping { id: 7, event: PingEvent::Done { sent: 1, received: 0 } },
        &mut Measurements::default(),
    );
    assert_eq!((clients.remove(7), clients.next_pending()), (None, None));
    assert!(matches!(reader.try_recv(), Ok(PingEvent::Lost { .. })));
    assert!(matches!(reader.try_recv(), Ok(PingEvent::Done { .. })));
    assert_eq!(reader.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
}

#[test]
fn a_client_that_does_not_read_is_closed_and_counted() {
    let mut clients = Clients::default();
    let (queue, _reader) = client::<Pings>(1);
    clients.add(Time::ZERO, 7, queue, None);
    clients.deliver(Time::ZERO, lost(7, 0), &mut Measurements::default());
    assert_eq!(clients.next_pending(), None);
    clients.deliver(Time::ZERO, lost(7, 1), &mut Measurements::default());
    assert_eq!((clients.next_pending(), clients.remove(7)), (Some(STOP), None));
    assert_eq!(clients.counted(DaemonCounters::default()).clients_too_slow, 1);
}

#[test]
fn a_reservation_whose_client_is_gone_is_released() {
    let mut clients = Clients::default();
    let (queue, reader) = client::<Reservations>(4);
    clients.add(Time::ZERO, 7, queue, None);
    clients.deliver(Time::ZERO, granted(7), &mut Measurements::default());
    assert_eq!(clients.next_pending(), None);
    drop(reader);
    clients.deliver(Time::ZERO, granted(7), &mut Measurements::default());
    assert_eq!((clients.next_pending(), clients.remove(7)), (Some(RELEASE), None));
    assert_eq!(clients.counted(DaemonCounters::default()).clients_too_slow, 0);
}

/// A stop of the daemon is not told as the user's own release. What was counted up to then is told.
#[test]
fn the_end_at_a_stop_is_no_release() {
    let mut clients = Clients::default();
    let (queue, mut reader) = client::<Reservations>(4);
    clients.add(Time::ZERO, 7, queue, None);
    let (pings, mut counted) = client::<Pings>(4);
    clients.add(Time::ZERO, 8, pings, None);
    assert_eq!(clients.close_all().len(), 2);
    let released = Event::Qos { id: 7, event: Box::new(QosEvent::Released) };
    clients.deliver(Time::ZERO, released, &mut Measurements::default());
    let done = Event::Ping { id: 8, event: PingEvent::Done { sent: 1, received: 0 } };
    clients.deliver(Time::ZERO, done, &mut Measurements::default());
    assert_eq!(reader.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
    assert!(matches!(counted.try_recv(), Ok(PingEvent::Done { .. })));
}

#[test]
fn a_command_is_for_a_client_of_its_own_protocol() {
    let mut clients = Clients::default();
    let (queue, _reader) = client::<Reservations>(4);
    clients.add(Time::ZERO, 7, queue, None);
    assert!(clients.command(Time::ZERO, &RELEASE));
    assert!(!clients.command(Time::ZERO, &STOP), "7 is a reservation");
    assert!(!clients.command(Time::ZERO, &Command::Qos { id: 8, command: qos::Command::Release }));
    assert_eq!((clients.close_all(), clients.remove(7)), (vec![RELEASE], Some(RELEASE)));
}

/// Histograms of durations, as text: the number of values and their sum.
fn histograms(measurements: &Measurements) -> String {
    let snapshot = Snapshot { histograms: measurements.all(), ..Snapshot::default() };
    signalbox_api::openmetrics::text(&families(snapshot), Format::OpenMetrics)
}

#[test]
fn the_first_grant_after_a_request_ends_a_set_up() {
    let mut measurements = Measurements::default();
    let mut clients = Clients::default();
    let (queue, _reader) = client::<Reservations>(4);
    clients.add(Time::from_secs(1), 7, queue, None);
    clients.deliver(Time::from_millis(1500), granted(7), &mut measurements);
    // A refresh that the path grants again is no set-up.
    clients.deliver(Time::from_secs(30), granted(7), &mut measurements);
    let text = histograms(&measurements);
    assert!(text.contains("signalbox_setup_seconds_sum{protocol=\"qos\"} 0.5\n"), "{text}");
    assert!(text.contains("signalbox_setup_seconds_count{protocol=\"qos\"} 1\n"), "{text}");
}

#[test]
fn replies_show_round_trips() {
    let mut measurements = Measurements::default();
    let mut clients = Clients::default();
    let (queue, _reader) = client::<Pings>(4);
    clients.add(Time::ZERO, 7, queue, None);
    let reply = ping::Reply {
        seq: 0,
        sent_us: 0,
        rtt: std::time::Duration::from_millis(4),
        hops: Vec::new(),
        back: Vec::new(),
        reached_end: true,
        truncated: false,
        padding: 0,
    };
    clients.deliver(Time::ZERO, Event::Ping { id: 7, event: PingEvent::Reply(reply) }, &mut measurements);
    let text = histograms(&measurements);
    assert!(text.contains("signalbox_ping_rtt_seconds_bucket{le=\"0.0025\"} 0\n"), "{text}");
    assert!(text.contains("signalbox_ping_rtt_seconds_bucket{le=\"0.005\"} 1\n"), "{text}");
}

/// A decision about the end of a request has its `request_id`, too.
#[test]
fn the_request_id_is_known_until_the_decisions_about_the_end_are_taken() {
    let mut clients = Clients::default();
    let (queue, _reader) = client::<Pings>(4);
    clients.add(Time::ZERO, 7, queue, Some([1; 16]));
    let decision_of = |command| {
        let requester = Requester::new(RequestedBy::LocalUser(command), None, None);
        Decision { requester: Arc::new(requester), ..ended(1) }
    };
    assert_eq!(clients.request_id(&decision_of(Some(7))), Some([1; 16]));
    assert_eq!([Some(8), None].map(|other| clients.request_id(&decision_of(other))), [None; 2]);
    clients.remove(7);
    assert_eq!(clients.request_id(&decision_of(Some(7))), Some([1; 16]));
    clients.decided();
    assert_eq!(clients.request_id(&decision_of(Some(7))), None);
}
