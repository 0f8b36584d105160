//! The one life cycle that the clients of all protocols have: open, command, event, close.
//!
//! A client begins something at a protocol (a ping, a reservation, an RSVP session, a signaling application), may
//! send further commands, and receives events until it ends or goes away. The event loop keeps all clients in one
//! map ([`Clients`]). It never waits for a client: a client that does not read its events is closed, unless its
//! protocol has another rule ([`Delivery`]).
//!
//! Most protocols implement [`ClientProtocol`] and are served by [`EventQueue`]. A protocol whose clients need
//! flow control implements [`Client`] itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signalbox_core::Time;
use signalbox_node::resources::decision::Decision;
use signalbox_node::resources::request::RequestedBy;
use signalbox_node::{Command, Event};
use tokio::sync::mpsc::{self, error::TrySendError};
use tonic::Status;

use crate::api::errors;
use crate::driver::DaemonCounters;
use crate::metrics::{Measure, Measurements};

/// The `request_id` of a call: random octets that its client chose.
pub(crate) type RequestId = [u8; 16];

/// A protocol as its clients see it.
pub(crate) trait ClientProtocol: 'static {
    /// What a client may ask of the node.
    type Command: Send;
    /// What the node reports to a client.
    type Event: Send;

    /// Name of what a client begins, for the log.
    const WHAT: &'static str;
    /// Events that wait for a client before it counts as too slow.
    const QUEUE: usize;
    /// What a client began stands until it is released. When the daemon stops, its end is no release: the client gets an error.
    const HOLDS: bool;

    /// The node's command for the client `id`.
    fn command(id: u64, command: Self::Command) -> Command;

    /// The protocol's part of an event of the node; `None` if the event is another protocol's.
    fn event(event: Event) -> Option<Self::Event>;

    /// The command that ends what the client `id` began.
    fn close(id: u64) -> Command;

    /// Whether no event follows this one. `stands`: what the client began was granted before.
    fn is_last(event: &Self::Event, stands: bool) -> bool;

    /// Whether this event grants what the client began.
    fn grants(_: &Self::Event) -> bool {
        false
    }

    /// Counts a client that opens.
    fn count(_: &mut DaemonCounters) {}

    /// What an event says about durations.
    fn measure(_: &Event) -> Option<Measure> {
        None
    }
}

/// The event loop's end of a client.
pub(crate) trait Client: Send {
    /// Passes an event on to the client. It must not wait.
    fn deliver(&mut self, event: Event) -> Delivery;

    /// Takes note of a further command of the client, before the node handles it.
    fn commanded(&mut self, _: &Command) {}

    /// What an event for the client says about durations.
    fn measure(&self, _: &Event) -> Option<Measure> {
        None
    }

    /// The command that ends what the client began.
    fn close(&self, id: u64) -> Command;

    /// The daemon stops: the last event of what the client holds is not for it.
    fn stopping(&mut self) {}

    /// Counts and logs that the client opens.
    fn opened(&self, id: u64, counters: &mut DaemonCounters);
}

impl fmt::Debug for dyn Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

/// What came of passing an event on to a client.
#[derive(Debug, PartialEq)]
pub(crate) enum Delivery {
    /// It waits for the client; further ones may follow.
    Queued,
    /// It was the last one: the client is removed, and the node has nothing left of it.
    Last,
    /// The client is gone: what it began is closed.
    Gone,
    /// The client does not read its events: what it began is closed.
    TooSlow,
    /// It is lost, because the client does not read its events; the client stays.
    Lost,
    /// It waits for the client, and the node shall handle this command next, which stops further ones for a while.
    Paused(Command),
}

/// A client whose events wait in a queue.
pub(crate) struct EventQueue<P: ClientProtocol> {
    events: mpsc::Sender<P::Event>,
    /// What the client began was granted.
    stands: bool,
    too_slow: Arc<AtomicBool>,
    /// The daemon stops.
    stopping: bool,
}

/// The other end of an [`EventQueue`].
pub(crate) struct EventReader<P: ClientProtocol> {
    events: mpsc::Receiver<P::Event>,
    /// What the client began was granted.
    stands: bool,
    too_slow: Arc<AtomicBool>,
    ended: bool,
}

impl<P: ClientProtocol> EventQueue<P> {
    /// A queue, and the end at which its events are read.
    pub(crate) fn new() -> (Self, EventReader<P>) {
        let (events, reader) = mpsc::channel(P::QUEUE);
        let too_slow = Arc::<AtomicBool>::default();
        let too_slow_too = Arc::clone(&too_slow);
        let reader = EventReader { events: reader, stands: false, too_slow: too_slow_too, ended: false };
        (Self { events, stands: false, too_slow, stopping: false }, reader)
    }
}

impl<P: ClientProtocol> EventReader<P> {
    /// The next event; `None` after the last one. It may be called again if it was given up.
    pub(crate) async fn next(&mut self) -> Option<Result<P::Event, Status>> {
        if self.ended {
            return None;
        }
        match self.events.recv().await {
            Some(event) => {
                self.note(&event);
                Some(Ok(event))
            }
            None => {
                self.ended = true;
                let too_slow = self.too_slow.load(Ordering::SeqCst);
                Some(Err(if too_slow { errors::too_slow(P::WHAT) } else { errors::stopping() }))
            }
        }
    }

    /// An event that waits already.
    pub(crate) fn waiting(&mut self) -> Option<P::Event> {
        let event = self.events.try_recv().ok()?;
        self.note(&event);
        Some(event)
    }

    fn note(&mut self, event: &P::Event) {
        self.ended = P::is_last(event, self.stands);
        self.stands |= P::grants(event);
    }
}

impl<P: ClientProtocol> Client for EventQueue<P> {
    fn deliver(&mut self, event: Event) -> Delivery {
        let Some(event) = P::event(event) else { return Delivery::Queued };
        let last = P::is_last(&event, self.stands);
        self.stands |= P::grants(&event);
        if last && self.stopping {
            return Delivery::Last;
        }
        match self.events.try_send(event) {
            Ok(()) if last => Delivery::Last,
            Ok(()) => Delivery::Queued,
            Err(TrySendError::Full(_)) => {
                self.too_slow.store(true, Ordering::SeqCst);
                Delivery::TooSlow
            }
            Err(TrySendError::Closed(_)) => Delivery::Gone,
        }
    }

    fn measure(&self, event: &Event) -> Option<Measure> {
        P::measure(event)
    }

    fn close(&self, id: u64) -> Command {
        P::close(id)
    }

    fn stopping(&mut self) {
        self.stopping = P::HOLDS;
    }

    fn opened(&self, id: u64, counters: &mut DaemonCounters) {
        tracing::debug!(client = id, "a client begins {}", P::WHAT);
        P::count(counters);
    }
}

/// An open client.
#[derive(Debug)]
struct Open {
    client: Box<dyn Client>,
    /// When it sent the command that is not confirmed yet; `None`: what it asked for stands.
    asked: Option<Time>,
    request_id: Option<RequestId>,
}

/// All clients, by the identifier that the node gives back with each event.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    all: BTreeMap<u64, Open>,
    /// Commands that follow from deliveries and that the node has not handled yet.
    pending: Vec<Command>,
    /// Clients with a `request_id` that were removed, until the decisions about their end are taken.
    removed: BTreeMap<u64, RequestId>,
    too_slow: u64,
    lost: u64,
    paused: u64,
}

impl Clients {
    /// Adds a client, whose first command comes now.
    pub(crate) fn add(&mut self, now: Time, id: u64, client: Box<dyn Client>, request_id: Option<RequestId>) {
        self.all.insert(id, Open { client, asked: Some(now), request_id });
    }

    /// The `request_id` of the client that a decision is about.
    pub(crate) fn request_id(&self, decision: &Decision) -> Option<RequestId> {
        let RequestedBy::LocalUser(Some(id)) = decision.requester.requested_by else { return None };
        self.all.get(&id).map_or_else(|| self.removed.get(&id).copied(), |open| open.request_id)
    }

    /// All decisions so far are taken.
    pub(crate) fn decided(&mut self) {
        self.removed.clear();
    }

    /// Takes note of a command of a client. False if there is no such client of the command's protocol.
    pub(crate) fn command(&mut self, now: Time, command: &Command) -> bool {
        let Some(id) = command.id() else { return false };
        let Some(Open { client, asked, .. }) = self.all.get_mut(&id) else { return false };
        // Identifiers are unique among all protocols: a client of another protocol is not meant.
        if client.close(id).protocol() != command.protocol() {
            return false;
        }
        client.commanded(command);
        *asked = Some(now);
        true
    }

    /// Removes a client; gives the command that ends what it began.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Command> {
        self.take(id).map(|open| open.client.close(id))
    }

    fn take(&mut self, id: u64) -> Option<Open> {
        let open = self.all.remove(&id)?;
        if let Some(request_id) = open.request_id {
            self.removed.insert(id, request_id);
        }
        Some(open)
    }

    /// Commands that end what all clients began. The clients stay, to receive the events that follow.
    pub(crate) fn close_all(&mut self) -> Vec<Command> {
        self.all
            .iter_mut()
            .map(|(id, open)| {
                open.client.stopping();
                open.client.close(*id)
            })
            .collect()
    }

    /// Passes an event on to its client, and takes note of the durations that it shows.
    pub(crate) fn deliver(&mut self, now: Time, event: Event, measurements: &mut Measurements) {
        let id = event.id();
        let Some(Open { client, asked, .. }) = self.all.get_mut(&id) else { return };
        match client.measure(&event) {
            Some(Measure::SetUp) => {
                if let (Some(asked), Some(protocol)) = (asked.take(), client.close(id).protocol()) {
                    measurements.set_up(protocol.name(), now.since(asked));
                }
            }
            Some(Measure::RoundTrip(took)) => measurements.round_trip(took),
            None => {}
        }
        match client.deliver(event) {
            Delivery::Queued => {}
            Delivery::Lost => self.lost += 1,
            Delivery::Paused(command) => {
                self.paused += 1;
                self.pending.push(command);
            }
            Delivery::Last => {
                self.take(id);
            }
            Delivery::TooSlow => {
                self.too_slow += 1;
                self.drop_client(id);
            }
            Delivery::Gone => self.drop_client(id),
        }
    }

    fn drop_client(&mut self, id: u64) {
        let close = self.remove(id);
        self.pending.extend(close);
    }

    /// The next command that follows from deliveries.
    pub(crate) fn next_pending(&mut self) -> Option<Command> {
        self.pending.pop()
    }

    /// The daemon's counters with those of the clients and of the log.
    pub(crate) fn counted(&self, daemon: DaemonCounters) -> DaemonCounters {
        let (connections_refused, calls_refused) = crate::limits::refused();
        DaemonCounters {
            clients_too_slow: self.too_slow,
            indications_lost: self.lost,
            applications_lagged: self.paused,
            log_lines_left_out: crate::log::left_out(),
            decisions_lost: crate::decisions::lost(),
            audit_lines_lost: crate::decisions::lines_lost(),
            connections_refused,
            calls_refused,
            ..daemon
        }
    }
}

#[cfg(test)]
mod tests;
