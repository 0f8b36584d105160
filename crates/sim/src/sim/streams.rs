//! Events of TCP connections.
//!
//! Each signal from one end to the other follows the routed path at the time of sending and takes the delays
//! of its links. A signal that a link loses, or that has no route, is retransmitted later; octets behind it
//! wait. So loss appears as delay, and a path that stays broken as a time-out. All octets arrive in order.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::Time;
use signalbox_core::node::{Input, NodeEngine, REPORT_EVERY, StreamError, StreamId, StreamKind};

use super::{Occurrence, Sim};
use crate::config::NodeId;
use crate::network::NextStep;
use crate::stream::{Phase, Signal, StreamEvent};

/// Limit on hops, above the TTL of any packet.
const MOST_HOPS: u32 = 255;
/// Longest wait before a retransmission.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A node's request for a stream, taken from its outputs.
pub(super) enum StreamRequest {
    Listen(u16),
    Open(StreamId, IpAddr, core::net::SocketAddr),
    Write(StreamId, Vec<u8>),
    Read(StreamId, bool),
    Close { stream: StreamId, abort: bool },
}

/// Result of a signal's transit.
enum Transit {
    Takes(Duration, NodeId),
    Lost,
    NoRoute,
}

impl<N: NodeEngine> Sim<N> {
    pub(super) fn serve_streams(&mut self, node: NodeId, requests: Vec<StreamRequest>) {
        let mut written = Vec::new();
        for request in requests {
            match request {
                StreamRequest::Listen(port) => {
                    if !self.streams.listen(node, port) {
                        let incarnation = self.nodes[node.at()].incarnation;
                        self.enqueue(self.now, Occurrence::ListenFailed { node, incarnation, port });
                    }
                }
                StreamRequest::Open(stream, local, peer) => self.open(node, stream, local, peer),
                StreamRequest::Write(stream, octets) => {
                    let Some(at) = self.streams.find(node, stream) else { continue };
                    let Some(end) = self.streams.end(at.0, at.1) else { continue };
                    assert_eq!(end.phase, Phase::Open, "{node} writes early to {stream}, seed {}", self.seed);
                    end.passed += octets.len();
                    end.unsent.extend(octets);
                    written.push(at);
                }
                StreamRequest::Read(stream, on) => {
                    let Some((connection, at)) = self.streams.find(node, stream) else { continue };
                    let Some(end) = self.streams.end(connection, at) else { continue };
                    if on && !end.reading {
                        self.enqueue_stream(self.now, connection, StreamEvent::Read { end: at });
                    }
                    if let Some(end) = self.streams.end(connection, at) {
                        end.reading = on;
                    }
                }
                StreamRequest::Close { stream, abort } => {
                    let Some(at) = self.streams.find(node, stream) else { continue };
                    self.close(at.0, at.1, abort);
                    written.push(at);
                }
            }
        }
        written.sort_unstable();
        written.dedup();
        for (connection, end) in written {
            self.pump(connection, end);
        }
    }

    fn open(&mut self, node: NodeId, stream: StreamId, local: IpAddr, peer: core::net::SocketAddr) {
        let connection = self.streams.open(node, stream, local, peer).filter(|_| stream.0 % 2 == 1);
        let Some(connection) = connection else {
            panic!("{node} opens {stream}, which is even or in use (seed {})", self.seed);
        };
        if self.network.next_step(node, local) != Ok(NextStep::Local) || local.is_ipv4() != peer.is_ipv4() {
            let failure = StreamEvent::Fail { end: 0, error: StreamError::Other };
            return self.enqueue_stream(self.now, connection, failure);
        }
        self.counters.streams_opened += 1;
        self.signal(connection, 0, Signal::Syn);
    }

    fn close(&mut self, connection: u64, at: usize, abort: bool) {
        self.streams.remove_name(connection, at);
        let Some(end) = self.streams.end(connection, at) else { return };
        if abort || end.phase == Phase::Opening {
            self.streams.remove(connection, at);
            return self.reset(connection, at);
        }
        end.closing = true;
        let unread = core::mem::take(&mut end.received).len();
        if end.fin_received {
            // The other end has closed as well.
            self.streams.remove(connection, at);
            self.streams.remove(connection, 1 - at);
        } else if unread > 0 {
            self.signal(connection, at, Signal::Credit(unread));
        }
    }

    pub(super) fn stream_event(&mut self, connection: u64, event: StreamEvent) {
        match event {
            StreamEvent::Arrive { to, signal } => self.arrived(connection, to, signal),
            StreamEvent::Retry { from, signal, attempt, until } => {
                let ordered = signal.is_ordered();
                if ordered && self.streams.end(connection, from).is_none() {
                    return;
                }
                self.counters.stream_retransmissions += 1;
                self.transmit(connection, from, signal, attempt, until);
                if ordered {
                    self.pump(connection, from);
                }
            }
            StreamEvent::Read { end } => self.read(connection, end),
            StreamEvent::Held { end } => {
                let config = self.streams.config;
                let Some(end) = self.streams.end(connection, end) else { return };
                let unsent = end.held(&config);
                let (node, Some(stream)) = (end.node, end.name) else { return };
                self.drive(node, Input::StreamDrained { stream, unsent });
            }
            StreamEvent::Fail { end, error } => self.fail(connection, end, error),
        }
    }

    fn arrived(&mut self, connection: u64, to: usize, signal: Signal) {
        let Some(both) = self.streams.get(connection) else { return };
        let there = both.ends[to].is_some();
        match signal {
            Signal::Syn => {
                let (Some(node), address) = (both.nodes[1], both.addresses[1]) else { return };
                let listens = self.streams.listens(node, address.port());
                if listens && self.nodes[node.at()].engine.is_some() {
                    self.streams.answer(connection, node);
                    self.signal(connection, 1, Signal::SynAck);
                } else {
                    self.signal(connection, 1, Signal::Refusal);
                }
            }
            Signal::Refusal => self.fail(connection, 0, StreamError::Refused),
            Signal::SynAck => {
                let Some(end) = self.streams.end(connection, 0) else { return };
                end.phase = Phase::Open;
                let (node, name, local) = (end.node, end.name, end.local);
                self.signal(connection, 0, Signal::Established);
                if let Some(stream) = name {
                    self.drive(node, Input::StreamConnected { stream, local });
                }
            }
            Signal::Reset => self.fail(connection, to, StreamError::Reset),
            Signal::Credit(octets) => {
                if let Some(end) = self.streams.end(connection, to) {
                    end.outstanding = end.outstanding.saturating_sub(octets);
                    self.pump(connection, to);
                }
            }
            Signal::Fin if !there => {
                self.streams.remove(connection, 1 - to);
            }
            _ if !there => self.signal(connection, to, Signal::Reset),
            Signal::Established => {
                let peer = both.addresses[0];
                let local = both.addresses[1];
                if let Some((node, stream)) = self.streams.accept(connection) {
                    self.drive(node, Input::StreamAccepted { stream, kind: StreamKind::Tcp, local, peer });
                }
            }
            Signal::Data(octets) => {
                let Some(end) = self.streams.end(connection, to) else { return };
                if end.name.is_none() {
                    // The node has closed it: its driver reads the octets and discards them.
                    return self.signal(connection, to, Signal::Credit(octets.len()));
                }
                end.received.extend(octets);
                self.read(connection, to);
            }
            Signal::Fin => {
                if let Some(end) = self.streams.end(connection, to) {
                    end.fin_received = true;
                }
                self.read(connection, to);
            }
        }
    }

    /// Gives the node the received octets, if it reads.
    fn read(&mut self, connection: u64, at: usize) {
        let Some(end) = self.streams.end(connection, at) else { return };
        if end.name.is_some() && !end.reading {
            return;
        }
        let octets = Vec::from(core::mem::take(&mut end.received));
        let (node, fin) = (end.node, end.fin_received);
        if let (Some(stream), false) = (end.name, octets.is_empty()) {
            self.signal(connection, at, Signal::Credit(octets.len()));
            self.drive(node, Input::StreamOctets { stream, octets: &octets });
        }
        // The node may have stopped reading, or closed the stream.
        let Some(end) = self.streams.end(connection, at).filter(|_| fin) else { return };
        if end.name.is_some() && !end.reading {
            return;
        }
        self.streams.remove(connection, 1 - at);
        self.end_with(connection, at, None);
    }

    pub(super) fn fail(&mut self, connection: u64, at: usize, error: StreamError) {
        let Some(end) = self.streams.end(connection, at) else { return };
        let half_open = at == 0 && end.phase == Phase::Opening;
        if half_open {
            self.streams.remove(connection, 1);
        }
        self.end_with(connection, at, Some(error));
    }

    fn end_with(&mut self, connection: u64, at: usize, error: Option<StreamError>) {
        let Some(end) = self.streams.remove(connection, at) else { return };
        self.counters.streams_failed += u64::from(error.is_some());
        if let Some(stream) = end.name {
            let unacknowledged = end.unacknowledged();
            self.drive(end.node, Input::StreamClosed { stream, error, unacknowledged });
        }
    }

    /// Sends as much as the window allows, and reports to the node if its driver holds more or less than
    /// before.
    fn pump(&mut self, connection: u64, from: usize) {
        let config = self.streams.config;
        let held = self.is_held();
        loop {
            let random = &mut self.streams.random;
            let size = match random.range(0..8) {
                // In an exploration, sizes do not depend on the order of events at other nodes.
                _ if held => config.segment as u64,
                0 => random.range(1..17),
                1..4 => random.range(1..config.segment as u64 + 1),
                _ => config.segment as u64,
            };
            let Some(end) = self.streams.end(connection, from) else { return };
            if end.phase == Phase::Opening || end.stalled {
                break;
            }
            if end.unsent.is_empty() {
                if end.closing && !core::mem::replace(&mut end.fin_sent, true) {
                    self.signal(connection, from, Signal::Fin);
                }
                break;
            }
            let room = config.window.saturating_sub(end.outstanding);
            let size = usize::try_from(size).unwrap_or(1).min(end.unsent.len()).min(room);
            if size == 0 {
                break;
            }
            end.outstanding += size;
            let octets = end.unsent.drain(..size).collect();
            self.counters.stream_segments += 1;
            self.signal(connection, from, Signal::Data(octets));
        }
        let Some(end) = self.streams.end(connection, from) else { return };
        let unsent = end.held(&config);
        if end.reported != unsent || end.passed >= REPORT_EVERY {
            (end.reported, end.passed) = (unsent, 0);
            self.enqueue_stream(self.now, connection, StreamEvent::Held { end: from });
        }
    }

    fn signal(&mut self, connection: u64, from: usize, signal: Signal) {
        let opening = matches!(signal, Signal::Syn | Signal::SynAck | Signal::Refusal);
        let config = &self.streams.config;
        let until = self.now + if opening { config.connect_timeout } else { config.give_up };
        self.transmit(connection, from, signal, 0, until);
    }

    fn transmit(&mut self, connection: u64, from: usize, signal: Signal, attempt: u32, until: Time) {
        let travel = self.travel(connection, from);
        let now = self.now;
        let base = self.streams.config.retransmission;
        let Some(both) = self.streams.get(connection) else { return };
        let ordered = both.ends[from].as_mut().filter(|_| signal.is_ordered());
        match travel {
            Transit::Takes(delay, host) => {
                if let Some(end) = ordered {
                    end.stalled = false;
                }
                both.nodes[1 - from].get_or_insert(host);
                let at = both.last[1 - from].max(now + delay);
                both.last[1 - from] = at;
                self.enqueue_stream(at, connection, StreamEvent::Arrive { to: 1 - from, signal });
            }
            Transit::NoRoute if signal == Signal::Syn => {
                let failure = StreamEvent::Fail { end: 0, error: StreamError::Unreachable };
                self.enqueue_stream(now, connection, failure);
            }
            Transit::Lost | Transit::NoRoute if now < until => {
                if let Some(end) = ordered {
                    end.stalled = true;
                }
                let wait = base.saturating_mul(1 << attempt.min(20)).min(LONGEST_WAIT);
                let retry = StreamEvent::Retry { from, signal, attempt: attempt + 1, until };
                self.enqueue_stream((now + wait).min(until), connection, retry);
            }
            Transit::Lost | Transit::NoRoute => self.give_up(connection, from, &signal),
        }
    }

    /// Handles a signal that can no longer be retransmitted: the end that misses it, or its acknowledgement,
    /// times out.
    fn give_up(&mut self, connection: u64, from: usize, signal: &Signal) {
        let sufferer = match signal {
            Signal::Syn | Signal::SynAck | Signal::Refusal => 0,
            Signal::Established | Signal::Data(_) | Signal::Fin => from,
            Signal::Reset | Signal::Credit(_) => 1 - from,
        };
        self.fail(connection, sufferer, StreamError::TimedOut);
    }

    /// Resets the other end, once. If that signal is lost, the other end is reset when it sends the next
    /// time.
    fn reset(&mut self, connection: u64, from: usize) {
        if let Transit::Takes(delay, _) = self.travel(connection, from)
            && let Some(both) = self.streams.get(connection)
        {
            let at = both.last[1 - from].max(self.now + delay);
            let reset = StreamEvent::Arrive { to: 1 - from, signal: Signal::Reset };
            self.enqueue_stream(at, connection, reset);
        }
    }

    /// The transit of a signal from one end to the other, with random delay and loss.
    fn travel(&mut self, connection: u64, from: usize) -> Transit {
        let Some(both) = self.streams.get(connection) else { return Transit::Lost };
        let (Some(mut node), dst) = (both.nodes[from], both.addresses[1 - from].ip()) else {
            return Transit::Lost;
        };
        let mut delay = Duration::ZERO;
        let mut lost = false;
        for _ in 0..MOST_HOPS {
            lost |= self.nodes[node.at()].off;
            let (link, end) = match self.network.next_step(node, dst) {
                Ok(NextStep::Local) if lost => return Transit::Lost,
                Ok(NextStep::Local) => return Transit::Takes(delay, node),
                Ok(NextStep::Out { link, end }) if self.network.is_up(link) => (link, end),
                _ if lost => return Transit::Lost,
                _ => return Transit::NoRoute,
            };
            let wire = self.network.link(link);
            let impairment = wire.impairment[end];
            node = wire.node(1 - end);
            delay += impairment.delay + impairment.jitter.mul_f64(self.streams.random.unit());
            lost |= self.streams.random.chance(impairment.loss);
        }
        Transit::Lost
    }

    fn enqueue_stream(&mut self, at: Time, connection: u64, event: StreamEvent) {
        self.enqueue(at, Occurrence::Stream { connection, event });
    }
}
