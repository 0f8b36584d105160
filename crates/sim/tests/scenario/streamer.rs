//! An engine that executes commands on streams and reports what it receives from them.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use signalbox_core::metrics::Subsystem;
use signalbox_core::node::{Input, NodeEngine, Output, StreamError, StreamId, StreamKind};
use signalbox_core::packet::Transmit;
use signalbox_core::{Entry, EntryRequest, Time};
use signalbox_sim::Boot;

/// A command for the engine.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    Listen(u16),
    Open(StreamId, IpAddr, SocketAddr),
    Write(StreamId, Vec<u8>),
    Read(StreamId, bool),
    Close(StreamId),
    Abort(StreamId),
    Sctp(IpAddr, IpAddr, Vec<u8>),
}

/// An event of the engine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Accepted(StreamId, SocketAddr, SocketAddr),
    Connected(StreamId, SocketAddr),
    Octets(StreamId, Vec<u8>),
    Drained(StreamId, usize),
    Closed(StreamId, Option<StreamError>, bool),
    ListenFailed(u16, StreamError),
    Sctp(IpAddr, IpAddr, Vec<u8>),
}

pub(crate) struct Streamer {
    seen: VecDeque<Event>,
    todo: VecDeque<Command>,
    done: Option<Command>,
}

impl Streamer {
    /// An engine that listens at port 270.
    pub(crate) fn new(_: Boot) -> Self {
        Self { seen: VecDeque::new(), todo: VecDeque::from([Command::Listen(270)]), done: None }
    }
}

impl NodeEngine for Streamer {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, _: Time, input: Input<'_, Command>) {
        self.seen.extend(match input {
            Input::Command(todo) => {
                self.todo.push_back(todo);
                None
            }
            Input::StreamAccepted { stream, local, peer, .. } => Some(Event::Accepted(stream, local, peer)),
            Input::StreamConnected { stream, local } => Some(Event::Connected(stream, local)),
            Input::StreamOctets { stream, octets } => {
                assert!(!octets.is_empty());
                Some(Event::Octets(stream, octets.to_vec()))
            }
            Input::StreamDrained { stream, unsent } => Some(Event::Drained(stream, unsent)),
            Input::StreamClosed { stream, error, unacknowledged } => {
                Some(Event::Closed(stream, error, unacknowledged))
            }
            Input::ListenFailed { port, error, .. } => Some(Event::ListenFailed(port, error)),
            Input::Packet(p) => Some(Event::Sctp(p.src.ip(), p.dst.ip(), p.payload.to_vec())),
            _ => None,
        });
    }

    fn poll(&mut self) -> Option<Output<'_, Event>> {
        if let Some(seen) = self.seen.pop_front() {
            return Some(Output::Event(seen));
        }
        self.done = Some(self.todo.pop_front()?);
        self.done.as_ref().map(|todo| match todo {
            Command::Listen(port) => Output::StreamListen { kind: StreamKind::Tcp, port: *port },
            Command::Open(stream, local, peer) => {
                Output::StreamOpen { stream: *stream, kind: StreamKind::Tcp, local: *local, peer: *peer }
            }
            Command::Write(stream, octets) => Output::StreamWrite { stream: *stream, octets },
            Command::Read(stream, on) => Output::StreamRead { stream: *stream, on: *on },
            Command::Close(stream) => Output::StreamClose { stream: *stream, abort: false },
            Command::Abort(stream) => Output::StreamClose { stream: *stream, abort: true },
            Command::Sctp(src, dst, packet) => Output::Transmit(Transmit {
                gateway: None,
                entry: Entry::Ip(132),
                src: SocketAddr::new(*src, 0),
                dst: SocketAddr::new(*dst, 0),
                ifindex: None,
                ttl: 64,
                tos: 0,
                dont_fragment: false,
                flow_label: 0,
                unproved: false,
                options: &[],
                payload: packet,
            }),
        })
    }

    fn entries(&self) -> Vec<EntryRequest> {
        vec![EntryRequest::local(Entry::Ip(132), Subsystem::protocol("sctp"))]
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}
