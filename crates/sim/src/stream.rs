//! TCP connections: the state of their two ends. `sim/streams.rs` handles their events.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use signalbox_core::node::{StreamError, StreamId};
use signalbox_core::{Random, Time};

use crate::config::NodeId;
use crate::seed::{Purpose, stream};

/// First port that is assigned to opened streams.
const FIRST_PORT: u16 = 32_768;

/// Behaviour of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamConfig {
    /// Time for which the opener waits for an answer. 10 s by default.
    pub connect_timeout: Duration,
    /// Time for which octets are retransmitted without an acknowledgement before the stream of their sender
    /// times out. 20 s by default, as with `TCP_USER_TIMEOUT`.
    pub give_up: Duration,
    /// First wait before a retransmission. It doubles with each further loss of the same segment, up to a
    /// minute. 200 ms by default.
    pub retransmission: Duration,
    /// Largest segment, in octets, at least 1. Segments have random sizes up to this. 1,400 by default.
    pub segment: usize,
    /// Limit on octets in transit or not yet read by the receiver. 65,536 by default.
    pub window: usize,
    /// Octets that the sender's kernel takes beyond the window. The driver holds further octets and reports
    /// their number. 65,536 by default.
    pub send_buffer: usize,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            give_up: Duration::from_secs(20),
            retransmission: Duration::from_millis(200),
            segment: 1400,
            window: 1 << 16,
            send_buffer: 1 << 16,
        }
    }
}

/// A signal between the kernels of the two ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The opener requests the connection.
    Syn,
    /// The listener accepts the connection.
    SynAck,
    /// No listener is at the port.
    Refusal,
    /// The opener acknowledges the answer.
    Established,
    /// Octets, in order.
    Data(Vec<u8>),
    /// The sender has closed: no more octets follow.
    Fin,
    /// The sender of this has no such connection, or no longer.
    Reset,
    /// This number of octets was read, and the window grows by the same number.
    Credit(usize),
}

impl Signal {
    /// Whether it keeps its place among the octets, so that later octets wait until it has arrived.
    pub(crate) const fn is_ordered(&self) -> bool {
        matches!(self, Self::Established | Self::Data(_) | Self::Fin)
    }
}

/// Event of a connection.
#[derive(Debug)]
pub(crate) enum StreamEvent {
    /// A signal reaches an end.
    Arrive { to: usize, signal: Signal },
    /// A lost signal is retransmitted.
    Retry { from: usize, signal: Signal, attempt: u32, until: Time },
    /// The driver of an end reads the received octets.
    Read { end: usize },
    /// The driver of an end reports how many octets it holds.
    Held { end: usize },
    /// An end fails.
    Fail { end: usize, error: StreamError },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The opener has no answer, or the acceptor has no acknowledgement of its answer.
    Opening,
    Open,
}

/// One end of a connection, with the state of its kernel and driver.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) node: NodeId,
    /// The node's id of the stream; `None` before it is accepted and after the node has closed it.
    pub(crate) name: Option<StreamId>,
    pub(crate) local: SocketAddr,
    pub(crate) phase: Phase,
    /// The node has closed it normally; its kernel still sends what was written.
    pub(crate) closing: bool,
    pub(crate) reading: bool,
    /// Octets received and not yet read.
    pub(crate) received: VecDeque<u8>,
    pub(crate) fin_received: bool,
    /// Octets written and not yet sent.
    pub(crate) unsent: VecDeque<u8>,
    /// Number of octets in transit or not yet read by the other end.
    pub(crate) outstanding: usize,
    /// Whether a lost signal waits for its retransmission; later signals wait behind it.
    pub(crate) stalled: bool,
    pub(crate) fin_sent: bool,
    /// Number of held octets in the driver's last report to the node.
    pub(crate) reported: usize,
    /// Octets written since that report.
    pub(crate) passed: usize,
}

impl End {
    pub(crate) fn new(node: NodeId, name: Option<StreamId>, local: SocketAddr) -> Self {
        Self {
            node,
            name,
            local,
            phase: Phase::Opening,
            closing: false,
            reading: true,
            received: VecDeque::new(),
            fin_received: false,
            unsent: VecDeque::new(),
            outstanding: 0,
            stalled: false,
            fin_sent: false,
            reported: 0,
            passed: 0,
        }
    }

    /// Whether octets were written that the other end has not read.
    pub(crate) fn unacknowledged(&self) -> bool {
        self.outstanding > 0 || !self.unsent.is_empty()
    }

    /// Number of octets for which the kernel's buffer has no space.
    pub(crate) fn held(&self, config: &StreamConfig) -> usize {
        (self.outstanding + self.unsent.len()).saturating_sub(config.window + config.send_buffer)
    }
}

/// A connection. The opener's end comes first.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) ends: [Option<End>; 2],
    /// Address and port of each end. They stay when an end is removed.
    pub(crate) addresses: [SocketAddr; 2],
    /// Node of each end. It stays when an end is removed.
    pub(crate) nodes: [Option<NodeId>; 2],
    /// Time at which the last signal arrived or will arrive at each end: no signal overtakes another.
    pub(crate) last: [Time; 2],
}

/// All connections and listeners of the network.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) config: StreamConfig,
    pub(crate) random: Random,
    connections: BTreeMap<u64, Connection>,
    names: BTreeMap<(NodeId, StreamId), (u64, usize)>,
    listeners: BTreeSet<(NodeId, u16)>,
    made: u64,
    accepted: u64,
}

impl Streams {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            config: StreamConfig::default(),
            random: stream(seed, Purpose::Stream, 0, 0),
            connections: BTreeMap::new(),
            names: BTreeMap::new(),
            listeners: BTreeSet::new(),
            made: 0,
            accepted: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Adds a listener. Returns false if the port already has one.
    pub(crate) fn listen(&mut self, node: NodeId, port: u16) -> bool {
        self.listeners.insert((node, port))
    }

    pub(crate) fn listens(&self, node: NodeId, port: u16) -> bool {
        self.listeners.contains(&(node, port))
    }

    pub(crate) fn get(&mut self, connection: u64) -> Option<&mut Connection> {
        self.connections.get_mut(&connection)
    }

    pub(crate) fn end(&mut self, connection: u64, end: usize) -> Option<&mut End> {
        self.connections.get_mut(&connection)?.ends[end].as_mut()
    }

    pub(crate) fn find(&self, node: NodeId, name: StreamId) -> Option<(u64, usize)> {
        self.names.get(&(node, name)).copied()
    }

    /// Adds a connection that its opener has requested. `None`: the node already uses that id.
    pub(crate) fn open(
        &mut self,
        node: NodeId,
        name: StreamId,
        local: IpAddr,
        peer: SocketAddr,
    ) -> Option<u64> {
        if self.names.contains_key(&(node, name)) {
            return None;
        }
        let connection = self.made;
        self.made += 1;
        let range = u64::from(u16::MAX - FIRST_PORT);
        let port = FIRST_PORT + u16::try_from(connection % range).unwrap_or(0);
        let local = SocketAddr::new(local, port);
        self.names.insert((node, name), (connection, 0));
        self.connections.insert(
            connection,
            Connection {
                ends: [Some(End::new(node, Some(name), local)), None],
                addresses: [local, peer],
                nodes: [Some(node), None],
                last: Default::default(),
            },
        );
        Some(connection)
    }

    /// Adds the acceptor's end, which its node has not accepted yet.
    pub(crate) fn answer(&mut self, connection: u64, node: NodeId) {
        if let Some(both) = self.connections.get_mut(&connection) {
            both.ends[1] = Some(End::new(node, None, both.addresses[1]));
        }
    }

    /// Assigns an id to the acceptor's end.
    pub(crate) fn accept(&mut self, connection: u64) -> Option<(NodeId, StreamId)> {
        let name = StreamId(self.accepted * 2);
        let end = self.connections.get_mut(&connection)?.ends[1].as_mut()?;
        self.accepted += 1;
        end.name = Some(name);
        end.phase = Phase::Open;
        let node = end.node;
        self.names.insert((node, name), (connection, 1));
        Some((node, name))
    }

    /// Removes the id of an end that its node has closed. The end lives on until it has sent everything.
    pub(crate) fn remove_name(&mut self, connection: u64, end: usize) -> Option<(NodeId, StreamId)> {
        let end = self.connections.get_mut(&connection)?.ends[end].as_mut()?;
        let name = (end.node, end.name.take()?);
        self.names.remove(&name);
        Some(name)
    }

    /// Removes one end. The connection is removed with its second end.
    pub(crate) fn remove(&mut self, connection: u64, end: usize) -> Option<End> {
        let both = self.connections.get_mut(&connection)?;
        let removed = both.ends[end].take();
        if let Some(End { node, name: Some(name), .. }) = &removed {
            self.names.remove(&(*node, *name));
        }
        if both.ends.iter().all(Option::is_none) {
            self.connections.remove(&connection);
        }
        removed
    }

    /// Removes everything that the node's processes had, without any signal to other nodes.
    pub(crate) fn crash(&mut self, node: NodeId) {
        self.listeners.retain(|(n, _)| *n != node);
        let of_node = |end: &Option<End>| end.as_ref().is_some_and(|e| e.node == node);
        let ends = self.connections.iter().flat_map(|(connection, both)| {
            (0..2).filter(|end| of_node(&both.ends[*end])).map(|end| (*connection, end))
        });
        for (connection, end) in ends.collect::<Vec<_>>() {
            self.remove(connection, end);
        }
    }
}
