//! TCP connections: what their two ends hold. Events are the business of `sim/streams.rs`.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use signalbox_core::node::{StreamError, StreamId};
use signalbox_core::{Random, Time};

use crate::config::NodeId;
use crate::seed::{Purpose, stream};

/// First port that opened streams get.
const FIRST_PORT: u16 = 32_768;

/// How streams behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamConfig {
    /// How long the opener waits for an answer. 10 s by default.
    pub connect_timeout: Duration,
    /// How long octets are repeated without an acknowledgement before their sender is told that the stream
    /// timed out. 20 s by default, as by `TCP_USER_TIMEOUT`.
    pub give_up: Duration,
    /// What a lost segment costs at first, doubled with each time that it is lost again, up to a minute. 200 ms
    /// by default.
    pub retransmission: Duration,
    /// Largest segment, in octets, at least 1. Segments are of any size up to this, by seeded chance. 1,400 by
    /// default.
    pub segment: usize,
    /// Octets under way or not yet read by the receiver, at most. 65,536 by default.
    pub window: usize,
    /// Octets that the sender's kernel takes beyond the window; what is more the driver holds and tells.
    /// 65,536 by default.
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

/// What one end's kernel tells the other's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The opener knocks.
    Syn,
    /// The listener answers.
    SynAck,
    /// Nobody listens.
    Refusal,
    /// The opener has heard the answer.
    Established,
    /// Octets, in order.
    Data(Vec<u8>),
    /// No more octets will come.
    Fin,
    /// The sender of this knows no such connection, or no more.
    Reset,
    /// So many octets were read: there is room for as many more.
    Credit(usize),
}

impl Signal {
    /// Whether it keeps its place among the octets, so that those after it wait until it is through.
    pub(crate) const fn is_ordered(&self) -> bool {
        matches!(self, Self::Established | Self::Data(_) | Self::Fin)
    }
}

/// What happens to a connection.
#[derive(Debug)]
pub(crate) enum StreamEvent {
    /// A signal reaches an end.
    Arrive { to: usize, signal: Signal },
    /// A signal that was lost is sent again.
    Retry { from: usize, signal: Signal, attempt: u32, until: Time },
    /// The driver of an end reads what is there.
    Read { end: usize },
    /// The driver of an end hears how much it holds.
    Held { end: usize, unsent: usize },
    /// An end fails.
    Fail { end: usize, error: StreamError },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The opener has no answer, or the acceptor does not know that the opener has it.
    Opening,
    Open,
}

/// One end of a connection, as its kernel and driver hold it.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) node: NodeId,
    /// The node's name for it; `None` before it is accepted and once the node is done with it.
    pub(crate) name: Option<StreamId>,
    pub(crate) local: SocketAddr,
    pub(crate) phase: Phase,
    /// The node closed it orderly; its kernel still sends what was written.
    pub(crate) closing: bool,
    pub(crate) reading: bool,
    /// Received and not read.
    pub(crate) received: VecDeque<u8>,
    pub(crate) fin_received: bool,
    /// Written and not under way.
    pub(crate) unsent: VecDeque<u8>,
    /// Under way, or not read by the other end.
    pub(crate) outstanding: usize,
    /// A signal was lost and is sent again later; what comes after it waits.
    pub(crate) stalled: bool,
    pub(crate) fin_sent: bool,
    /// What the driver held when it last told the node.
    pub(crate) told: usize,
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
            told: 0,
        }
    }

    /// Whether octets were written that the other end has not read.
    pub(crate) fn unacknowledged(&self) -> bool {
        self.outstanding > 0 || !self.unsent.is_empty()
    }

    /// What the kernel's buffer has no room for.
    pub(crate) fn held(&self, config: &StreamConfig) -> usize {
        (self.outstanding + self.unsent.len()).saturating_sub(config.window + config.send_buffer)
    }
}

/// The opener's end comes first.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) ends: [Option<End>; 2],
    /// Address and port of each end, which outlive the ends.
    pub(crate) addresses: [SocketAddr; 2],
    /// The host that each end is or was at.
    pub(crate) nodes: [Option<NodeId>; 2],
    /// When the last signal arrived or will arrive at each end: none overtakes another.
    pub(crate) last: [Time; 2],
}

/// All connections and listeners.
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

    /// False: somebody listens there already.
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

    /// A connection whose opener has knocked. `None`: the node has that name in use.
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

    /// The acceptor's end, which nobody knows of yet.
    pub(crate) fn answer(&mut self, connection: u64, node: NodeId) {
        if let Some(both) = self.connections.get_mut(&connection) {
            both.ends[1] = Some(End::new(node, None, both.addresses[1]));
        }
    }

    /// Gives the acceptor's end a name.
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

    /// The node is done with its end, which lives on until it has sent everything.
    pub(crate) fn forget_name(&mut self, connection: u64, end: usize) -> Option<(NodeId, StreamId)> {
        let end = self.connections.get_mut(&connection)?.ends[end].as_mut()?;
        let name = (end.node, end.name.take()?);
        self.names.remove(&name);
        Some(name)
    }

    /// Removes one end, and the connection with the second one.
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

    /// All that the node's processes had is gone without a word.
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
