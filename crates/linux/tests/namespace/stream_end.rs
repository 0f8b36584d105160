//! One end of streams: a node's interface to the kernel, with a record of all events of its streams.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use signalbox_core::node::{StreamError, StreamId, StreamKind};
use signalbox_linux::netns::Namespace;
use signalbox_linux::stream::{StreamBuffer, StreamConfig, StreamEvent, Streams};
use signalbox_linux::{Io, IoConfig};

use crate::network::{PATIENCE, config, open};

/// The events of one stream.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) accepted: bool,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) octets: Vec<u8>,
    /// The number of waiting octets in each event.
    pub(crate) unsent: Vec<usize>,
    pub(crate) closed: Option<(Option<StreamError>, bool)>,
}

pub(crate) struct End<'n> {
    namespace: &'n Namespace,
    pub(crate) io: Io,
    buffer: StreamBuffer,
    pub(crate) seen: BTreeMap<u64, Seen>,
    last_opened: u64,
    /// Whether to send back the octets that arrive by accepted streams.
    pub(crate) echo: bool,
    /// The kind of streams that this end opens and accepts.
    pub(crate) kind: StreamKind,
}

impl<'n> End<'n> {
    pub(crate) fn new(namespace: &'n Namespace, streams: StreamConfig) -> Self {
        Self::with(namespace, IoConfig { streams, intercept: false, ..config() })
    }

    pub(crate) fn with(namespace: &'n Namespace, config: IoConfig) -> Self {
        let io = open(namespace, &config);
        let (buffer, seen) = (StreamBuffer::new(), BTreeMap::new());
        Self { namespace, io, buffer, seen, last_opened: u64::MAX, echo: false, kind: StreamKind::Tcp }
    }

    pub(crate) fn open(&mut self, local: IpAddr, peer: (IpAddr, u16)) -> StreamId {
        self.last_opened = self.last_opened.wrapping_add(2); // 1, 3, 5, ...
        let stream = StreamId(self.last_opened);
        let (streams, kind) = (self.io.streams(), self.kind);
        self.namespace.run(|| streams.open(stream, kind, local, peer.into())).unwrap();
        stream
    }

    pub(crate) fn listen(&mut self, port: u16) -> Result<(), StreamError> {
        let (streams, kind) = (self.io.streams(), self.kind);
        self.namespace.run(|| streams.listen(kind, port)).unwrap()
    }

    pub(crate) fn streams(&mut self) -> &mut Streams {
        self.io.streams()
    }

    pub(crate) fn seen(&self, stream: StreamId) -> &Seen {
        &self.seen[&stream.0]
    }

    pub(crate) fn is_connected(&self, stream: StreamId) -> bool {
        self.seen.get(&stream.0).is_some_and(|seen| seen.local.is_some())
    }

    pub(crate) fn closed(&self, stream: StreamId) -> Option<(Option<StreamError>, bool)> {
        self.seen.get(&stream.0).and_then(|seen| seen.closed)
    }

    /// The accepted streams, in order.
    pub(crate) fn accepted(&self) -> Vec<StreamId> {
        self.seen.iter().filter(|(_, seen)| seen.accepted).map(|(stream, _)| StreamId(*stream)).collect()
    }

    /// Runs one turn of the loop.
    pub(crate) fn turn(&mut self, timeout: Duration) {
        let ready = self.io.wait(Some(timeout)).unwrap();
        if ready.changes {
            self.io.changes();
        }
        while ready.streams
            && let Some(event) = self.io.streams().next_event(&mut self.buffer).unwrap()
        {
            let stream = event.stream();
            let seen = self.seen.entry(stream.0).or_default();
            assert_eq!(seen.closed, None, "{event:?} after the end");
            match event {
                StreamEvent::Accepted { kind, local, peer, .. } => {
                    assert_eq!(kind, self.kind);
                    assert!(stream.0 % 2 == 0 && seen.local.is_none());
                    (seen.accepted, seen.local, seen.peer) = (true, Some(local), Some(peer));
                }
                StreamEvent::Connected { local, .. } => {
                    assert!(seen.local.is_none());
                    seen.local = Some(local);
                }
                StreamEvent::Octets { octets, .. } => {
                    assert!(!octets.is_empty() && seen.local.is_some());
                    seen.octets.extend_from_slice(octets);
                    if self.echo && seen.accepted {
                        self.io.streams().write(stream, octets);
                    }
                }
                StreamEvent::Drained { unsent, .. } => seen.unsent.push(unsent),
                StreamEvent::Closed { error, unacknowledged, .. } => {
                    seen.closed = Some((error, unacknowledged));
                }
            }
        }
        assert_eq!(self.io.flush(), []);
    }
}

/// Runs the loops of both ends until `condition` holds.
pub(crate) fn drive(
    what: &str,
    a: &mut End<'_>,
    b: &mut End<'_>,
    mut condition: impl FnMut(&mut End<'_>, &mut End<'_>) -> bool,
) {
    let deadline = Instant::now() + PATIENCE;
    while !condition(a, b) {
        assert!(Instant::now() < deadline, "in vain waited for: {what}");
        a.turn(Duration::from_millis(1));
        b.turn(Duration::from_millis(1));
    }
}

/// Opens a stream from `a` to `b`, which listens already; returns its ids at both ends.
pub(crate) fn connect(
    a: &mut End<'_>,
    b: &mut End<'_>,
    local: IpAddr,
    peer: (IpAddr, u16),
) -> (StreamId, StreamId) {
    let before = b.accepted().len();
    let stream = a.open(local, peer);
    drive("a connection", a, b, |a, b| a.is_connected(stream) && b.accepted().len() > before);
    (stream, *b.accepted().last().unwrap())
}

/// Octets that differ from place to place.
pub(crate) fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
}
