//! TCP connections, and SCTP associations of a kernel with SCTP, for messaging associations. Many of them run in the
//! one loop of [`crate::Io::wait`], and none of them delays another.
//!
//! One turn of the loop is: [`Streams::next_event`] until it returns no event, then [`crate::Io::flush`]. In a turn
//! each stream is read at most once, and each listener accepts a limited number of connections, so that no peer uses
//! all the time. Writing never waits: the queue holds what the kernel does not accept, and [`StreamEvent::Drained`]
//! reports its length.

mod config;
mod connection;
mod deadlines;
mod event;
mod listeners;
mod messages;
mod outgoing;
mod sctp;
mod socket;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use signalbox_core::node::{REPORT_EVERY, StreamError, StreamId, StreamKind};

pub use config::{StreamConfig, StreamCounters};
pub use event::{StreamBuffer, StreamEvent};
pub use sctp::kernel_speaks_sctp;

use crate::sys::epoll::{Epoll, Event};
use connection::{Connection, Phase, Read};
use deadlines::Deadlines;
use listeners::{Accepted, Listeners};
use outgoing::Outgoing;
use socket::stream_error;

/// The token of the deadlines' timer.
const TIMER: u64 = u64::MAX;
/// Streams and listeners served in one turn. The kernel rotates among those beyond the limit.
const ROUND: usize = 64;
/// Connections accepted, or refused, in one turn.
const ACCEPTS: u32 = 64;
/// Time for which a listener pauses when the kernel has no descriptor for a connection that waits.
const REST: Duration = Duration::from_millis(100);
/// Number of written octets from which a stream is flushed at once.
const EAGER: usize = 64 * 1024;

/// All streams and listeners of a node. Its sockets are made in the network namespace of the thread that calls
/// [`Streams::listen`] and [`Streams::open`].
pub struct Streams {
    config: StreamConfig,
    /// The configured families: for each, whether it is IPv6.
    families: Vec<bool>,
    epoll: Epoll,
    deadlines: Deadlines,
    listeners: Listeners,
    /// The connections by id. This node chooses the ids, odd or even, so that a peer cannot choose them for an attack.
    connections: HashMap<u64, Connection>,
    last_accepted: u64,
    /// The octets held in all connections.
    unsent: usize,
    /// The streams written to since the last flush.
    written: Vec<u64>,
    /// Events that the kernel did not report.
    pending: VecDeque<StreamEvent<'static>>,
    round: Option<Round>,
    /// Readiness of the round, kept to reuse its memory.
    ready: VecDeque<(u64, u32)>,
    counters: StreamCounters,
}

/// The rest of the work in the present turn.
struct Round {
    /// Number of pending events when the turn began.
    pending: usize,
    accepts: u32,
}

/// An event whose octets are still in the buffer.
enum Served {
    Event(StreamEvent<'static>),
    Octets(StreamId, usize),
}

impl Streams {
    pub(crate) fn new(config: StreamConfig, ipv4: bool, ipv6: bool) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let deadlines = Deadlines::new()?;
        epoll.add(deadlines.timer(), TIMER, libc::EPOLLIN)?;
        let families = [ipv4.then_some(false), ipv6.then_some(true)];
        Ok(Self {
            config,
            families: families.into_iter().flatten().collect(),
            epoll,
            deadlines,
            listeners: Listeners::default(),
            connections: HashMap::new(),
            last_accepted: 0,
            unsent: 0,
            written: Vec::new(),
            pending: VecDeque::new(),
            round: None,
            ready: VecDeque::new(),
            counters: StreamCounters::default(),
        })
    }

    /// Accepts connections at `port` from now on, at every address of the configured families.
    ///
    /// # Errors
    /// The port is in use or not permitted; then no family listens.
    pub fn listen(&mut self, kind: StreamKind, port: u16) -> Result<(), StreamError> {
        self.listeners.add((kind, port), &self.families, &self.config, &self.epoll).map_err(|error| {
            tracing::warn!(port, kind = kind.name(), %error, "cannot listen");
            stream_error(&error)
        })
    }

    /// Opens a connection from `local` (an address of this node; routing chooses one if it is unspecified) to `peer`,
    /// with the id `stream`: odd and never used before. [`StreamEvent::Connected`] or [`StreamEvent::Closed`] follows.
    pub fn open(&mut self, stream: StreamId, kind: StreamKind, local: IpAddr, peer: SocketAddr) {
        if self.connections.contains_key(&stream.0) {
            tracing::error!(stream = stream.0, "name taken");
            return;
        }
        let opened = socket::connect(kind, local, peer, &self.config).and_then(|socket| {
            let connection = Connection::new(socket, kind, None);
            self.epoll.add(connection.socket(), stream.0, connection.interest())?;
            Ok(connection)
        });
        match opened {
            Ok(mut connection) => {
                connection.deadline = Some(Instant::now() + self.config.connect_timeout);
                self.insert(stream.0, connection);
            }
            Err(error) => {
                tracing::debug!(%local, %peer, %error, "cannot connect");
                self.counters.connect_failed += 1;
                let error = Some(stream_error(&error));
                self.pending.push_back(StreamEvent::Closed { stream, error, unacknowledged: false });
            }
        }
    }

    /// Appends octets to the queue of a stream; they leave with the next flush. Octets for a closed stream are lost.
    pub fn write(&mut self, stream: StreamId, octets: &[u8]) {
        self.put(stream, octets, |out| match out {
            Outgoing::Octets(out) => out.push(octets),
            // SCTP needs messages, and these octets have no end of a message.
            Outgoing::Messages(_) => tracing::error!(stream = stream.0, "octets written to SCTP"),
        });
    }

    /// Appends a message to the queue of an association. It is sent in the order of its SCTP stream, and for no longer
    /// than its lifetime, if it has one. A message for a closed association is lost.
    pub fn message(&mut self, stream: StreamId, how: (u16, Option<Duration>), message: &[u8]) {
        self.put(stream, message, |out| match out {
            Outgoing::Messages(out) => out.push(how, message),
            Outgoing::Octets(out) => out.push(message),
        });
    }

    fn put(&mut self, stream: StreamId, octets: &[u8], put: impl FnOnce(&mut Outgoing)) {
        let Some(connection) = self.connections.get_mut(&stream.0) else { return };
        if !connection.is_writable() || octets.is_empty() {
            return;
        }
        let before = connection.out.len();
        put(&mut connection.out);
        let unsent = connection.out.len();
        self.unsent += unsent - before;
        if unsent > self.config.unsent_limit || self.unsent > self.config.unsent_limit_total {
            self.counters.unsent_limited += 1;
            let closed = self.finish(stream.0, Some(StreamError::Other));
            self.pending.extend(closed);
            return;
        }
        if !mem::replace(&mut connection.written, true) {
            self.written.push(stream.0);
        }
        if unsent >= EAGER && !connection.held {
            let event = self.hand_on(stream.0);
            self.pending.extend(event);
        }
    }

    /// Stops reading or continues it; it is on at first. The end of a connection that breaks is reported in both cases.
    pub fn read(&mut self, stream: StreamId, on: bool) {
        if let Some(connection) = self.connections.get_mut(&stream.0) {
            connection.reading = on;
            self.watch(stream.0);
        }
    }

    /// Closes a stream: orderly, after the written octets; or at once, by a reset (`abort`). No event of it follows.
    pub fn close(&mut self, stream: StreamId, abort: bool) {
        self.pending.retain(|event| event.stream() != stream);
        let Some(connection) = self.connections.get_mut(&stream.0) else { return };
        match connection.phase {
            Phase::ConnectingToClose | Phase::Closing | Phase::Shut if !abort => {}
            Phase::Connecting if !abort && !connection.out.is_empty() => {
                connection.phase = Phase::ConnectingToClose;
            }
            Phase::Open if !abort => {
                connection.phase = Phase::Closing;
                self.set_deadline(stream.0, self.config.close_timeout);
                // A closing stream has no events.
                self.hand_on(stream.0);
            }
            Phase::Connecting
            | Phase::ConnectingToClose
            | Phase::Open
            | Phase::Broken(_)
            | Phase::Closing
            | Phase::Shut => self.discard(stream.0, abort),
        }
    }

    /// Passes to the kernel what was written since the last call.
    pub(crate) fn flush(&mut self) {
        let mut written = mem::take(&mut self.written);
        for stream in written.drain(..) {
            if let Some(connection) = self.connections.get_mut(&stream) {
                connection.written = false;
                if !connection.held {
                    let event = self.hand_on(stream);
                    self.pending.extend(event);
                }
            }
        }
        self.written = written;
    }

    /// The next event; `None` if the turn is over and the caller must wait. `buffer` holds the octets of the event.
    ///
    /// # Errors
    /// The kernel cannot report readiness.
    pub fn next_event<'b>(&mut self, buffer: &'b mut StreamBuffer) -> io::Result<Option<StreamEvent<'b>>> {
        let mut round = match self.round.take() {
            Some(round) => round,
            None => self.begin()?,
        };
        let served = self.serve_next(&mut round, buffer.as_mut());
        if served.is_some() {
            self.round = Some(round);
        }
        Ok(served.map(|served| match served {
            Served::Event(event) => event,
            Served::Octets(stream, count) => StreamEvent::Octets { stream, octets: buffer.first(count) },
        }))
    }

    /// Whether events wait that no descriptor reports; for loops that do not use [`crate::Io::wait`].
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.round.is_some() || !self.pending.is_empty() || !self.ready.is_empty()
    }

    /// The number of streams that are open, opening or closing.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Whether there is no stream.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// The octets of all streams that wait for the kernel.
    #[must_use]
    pub const fn unsent(&self) -> usize {
        self.unsent
    }

    /// The counters so far.
    #[must_use]
    pub const fn counters(&self) -> &StreamCounters {
        &self.counters
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    fn begin(&mut self) -> io::Result<Round> {
        let mut events = [Event::EMPTY; ROUND];
        self.ready.extend(self.epoll.wait(&mut events)?.iter().map(Event::get));
        Ok(Round { pending: self.pending.len(), accepts: ACCEPTS })
    }

    fn serve_next(&mut self, round: &mut Round, buffer: &mut [u8]) -> Option<Served> {
        while round.pending > 0 {
            round.pending -= 1;
            if let Some(mut event) = self.pending.pop_front() {
                // What was written after the report was queued counts too.
                if let StreamEvent::Drained { stream, unsent } = &mut event
                    && let Some(connection) = self.connections.get(&stream.0)
                {
                    *unsent = connection.out.len();
                }
                return Some(Served::Event(event));
            }
        }
        while let Some((token, flags)) = self.ready.pop_front() {
            let served = if token == TIMER {
                self.expire();
                None
            } else if token >= listeners::FIRST_TOKEN {
                self.accept(token, round).map(Served::Event)
            } else {
                self.serve(token, flags.cast_signed(), buffer)
            };
            if served.is_some() {
                return served;
            }
        }
        None
    }

    fn serve(&mut self, stream: u64, flags: i32, buffer: &mut [u8]) -> Option<Served> {
        let connection = self.connections.get_mut(&stream)?;
        if connection.phase.is_connecting() {
            return self.connected(stream).map(Served::Event);
        }
        if flags & libc::EPOLLOUT != 0 && connection.held {
            // The rest of the stream's readiness is handled after this event.
            self.ready.push_front((stream, (flags & !libc::EPOLLOUT).cast_unsigned()));
            return self.hand_on(stream).map(Served::Event);
        }
        match connection.read(flags, buffer) {
            Read::Octets(count) if !connection.phase.is_closed_here() => {
                if connection.is_broken() {
                    self.ready.push_back((stream, flags.cast_unsigned()));
                }
                self.counters.octets_received += count as u64;
                Some(Served::Octets(StreamId(stream), count))
            }
            Read::Octets(_) | Read::Nothing => None,
            Read::End(error) => self.finish(stream, error).map(Served::Event),
        }
    }

    /// Handles the end of an attempt to connect.
    fn connected(&mut self, stream: u64) -> Option<StreamEvent<'static>> {
        let connection = self.connections.get_mut(&stream)?;
        let local = match connection.outcome() {
            Ok(None) => return None,
            Ok(Some(local)) => local,
            Err(error) => return self.finish(stream, Some(stream_error(&error))),
        };
        self.counters.connected += 1;
        let connection = self.connections.get_mut(&stream)?;
        if let Err(error) = connection.opened() {
            return self.finish(stream, Some(stream_error(&error)));
        }
        let closing = connection.phase.is_closed_here();
        if closing {
            self.set_deadline(stream, self.config.close_timeout);
        } else {
            self.clear_deadline(stream);
        }
        let drained = self.hand_on(stream);
        self.pending.extend(drained);
        (!closing).then_some(StreamEvent::Connected { stream: StreamId(stream), local })
    }

    fn accept(&mut self, token: u64, round: &mut Round) -> Option<StreamEvent<'static>> {
        while round.accepts > 0 {
            round.accepts -= 1;
            match self.listeners.accept(token, &self.config, &mut self.counters) {
                Accepted::Stream(socket, kind, local, peer) => {
                    self.last_accepted += 2;
                    let stream = self.last_accepted;
                    let mut connection = Connection::new(socket, kind, Some(peer.ip()));
                    let opened = connection.opened();
                    let interest = connection.interest();
                    let watched = opened.and_then(|()| self.epoll.add(connection.socket(), stream, interest));
                    if watched.is_err() {
                        self.counters.accept_failed += 1;
                        self.listeners.closed(peer.ip());
                        continue;
                    }
                    self.insert(stream, connection);
                    self.ready.push_front((token, libc::EPOLLIN.cast_unsigned()));
                    return Some(StreamEvent::Accepted { stream: StreamId(stream), kind, local, peer });
                }
                Accepted::Refused => {}
                Accepted::NoMore => break,
                Accepted::Failed(error) => {
                    tracing::warn!(%error, "cannot accept connections");
                    self.counters.accept_failed += 1;
                    self.listen_again(token, false);
                    self.deadlines.add(Instant::now() + REST, token);
                    break;
                }
            }
        }
        None
    }

    fn listen_again(&self, token: u64, on: bool) {
        if let Some((_, listener)) = self.listeners.get(token) {
            // The listener is watched already, so this cannot fail.
            let _ = self.epoll.modify(listener, token, if on { libc::EPOLLIN } else { 0 });
        }
    }

    /// Handles the deadlines that are due.
    fn expire(&mut self) {
        while let Some(token) = self.deadlines.pop_due() {
            match self.connections.get_mut(&token) {
                Some(connection) => {
                    connection.deadline = None;
                    let error = match connection.outcome() {
                        // The connection came up at the last moment: the next event reports it.
                        Ok(Some(_)) if connection.phase.is_connecting() => continue,
                        Ok(_) => StreamError::TimedOut,
                        // The error that routers reported meanwhile (sk_err_soft) is more exact than the timeout.
                        Err(error) => stream_error(&error),
                    };
                    let closed = self.finish(token, Some(error));
                    self.pending.extend(closed);
                }
                None => self.listen_again(token, true),
            }
        }
    }

    /// Passes the queue of a connection to the kernel.
    fn hand_on(&mut self, stream: u64) -> Option<StreamEvent<'static>> {
        let connection = self.connections.get_mut(&stream)?;
        if connection.phase.is_connecting() || connection.is_broken() {
            return None;
        }
        let before = connection.out.len();
        let result = connection.hand_on();
        let unsent = connection.out.len();
        self.unsent -= before - unsent;
        self.counters.octets_sent += (before - unsent) as u64;
        self.counters.flushes += u64::from(before > 0);
        let was_held = mem::replace(&mut connection.held, unsent > 0);
        if let Err(error) = result {
            // What the peer wrote before must still be read.
            if connection.reading && !connection.phase.is_closed_here() {
                connection.phase = Phase::Broken(stream_error(&error));
                self.watch(stream);
                // The kernel reports the failure of an association once only, and has done so.
                self.ready.push_back((stream, libc::EPOLLIN.cast_unsigned()));
                return None;
            }
            return self.finish(stream, Some(stream_error(&error)));
        }
        connection.passed += before - unsent;
        let news = (was_held || unsent > 0 || connection.passed >= REPORT_EVERY)
            && !connection.phase.is_closed_here();
        if news {
            connection.passed = 0;
        }
        self.watch(stream);
        news.then_some(StreamEvent::Drained { stream: StreamId(stream), unsent })
    }

    /// Removes a connection that has ended; returns the event, unless this node closed the connection.
    fn finish(&mut self, stream: u64, error: Option<StreamError>) -> Option<StreamEvent<'static>> {
        let connection = self.connections.get(&stream)?;
        if connection.phase.is_closed_here() {
            self.discard(stream, false);
            return None;
        }
        let unacknowledged = connection.is_unacknowledged();
        match error {
            _ if connection.phase.is_connecting() => self.counters.connect_failed += 1,
            None => self.counters.ended += 1,
            Some(_) => self.counters.broken += 1,
        }
        self.remove(stream, error.is_some());
        Some(StreamEvent::Closed { stream: StreamId(stream), error, unacknowledged })
    }

    /// Removes a connection that this node has closed.
    fn discard(&mut self, stream: u64, abort: bool) {
        let lost = self.connections.get(&stream).is_some_and(Connection::is_unacknowledged);
        self.counters.closed_unacknowledged += u64::from(lost);
        self.remove(stream, abort);
    }

    fn remove(&mut self, stream: u64, abort: bool) {
        let Some(connection) = self.connections.remove(&stream) else { return };
        if let Some(deadline) = connection.deadline {
            self.deadlines.remove(deadline, stream);
        }
        self.unsent -= connection.out.len();
        if let Some(source) = connection.source {
            self.listeners.closed(source);
        }
        // If part of the queue is lost, an orderly end would appear to the peer as the end of all.
        if abort || !connection.out.is_empty() {
            socket::reset_on_close(connection.socket());
        }
    }

    fn insert(&mut self, stream: u64, connection: Connection) {
        if let Some(deadline) = connection.deadline {
            self.deadlines.add(deadline, stream);
        }
        self.connections.insert(stream, connection);
    }

    fn set_deadline(&mut self, stream: u64, after: Duration) {
        self.clear_deadline(stream);
        if let Some(connection) = self.connections.get_mut(&stream) {
            let deadline = Instant::now() + after;
            connection.deadline = Some(deadline);
            self.deadlines.add(deadline, stream);
        }
    }

    fn clear_deadline(&mut self, stream: u64) {
        let connection = self.connections.get_mut(&stream);
        if let Some(deadline) = connection.and_then(|connection| connection.deadline.take()) {
            self.deadlines.remove(deadline, stream);
        }
    }

    /// Makes the kernel report the readiness for which the connection waits now.
    fn watch(&mut self, stream: u64) {
        if let Some(connection) = self.connections.get_mut(&stream)
            && let Some(interest) = connection.new_interest()
        {
            // The connection is watched already, so this cannot fail.
            let _ = self.epoll.modify(connection.socket(), stream, interest);
        }
    }
}
