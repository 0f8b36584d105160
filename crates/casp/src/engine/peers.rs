//! The nodes that this node exchanges messages with, and the connections to them (section 7 of the draft).

use core::net::IpAddr;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use signalbox_core::index::KeyedHasher;
use signalbox_core::node::StreamId;
use signalbox_core::security::{Fingerprint, Identity};
use signalbox_core::shares::{Shares, source};
use signalbox_core::stamp::Moment;
use signalbox_core::wheel::{Link, Timed, Wheel};
use signalbox_core::{Full, Key, Slab, Time, TokenBucket, invariant};

use super::config::Config;
use super::io::Transport;
use super::search::Waiter;
use super::teardown::TearDown;

/// Messages to one node over UDP: this number a second, and this number at once.
pub(super) const UDP_RATE: u32 = 10;
const UDP_BURST: u32 = 20;
/// Most connections with one node.
const MAX_STREAMS: usize = 8;

/// A node: its address and, if it proved one, its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) address: IpAddr,
    pub(super) proved: Option<Fingerprint>,
}

/// A node. It stays while a branch or a connection needs it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) name: Name,
    uses: u32,
    /// Its connections, the oldest first.
    pub(super) streams: Vec<Key>,
    /// Messages over UDP.
    pub(super) bucket: TokenBucket,
    /// Refreshes to it leave at multiples of a quarter of the interval from this time on.
    pub(super) phase: u64,
    /// An established connection that fails before this time brings no refresh forward.
    pub(super) gone_at: Moment,
    /// Attempts to connect that failed since then, and brought refreshes forward.
    pub(super) tries: u8,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    link: Link,
    pub(super) stream: StreamId,
    pub(super) peer: Key,
    /// The address of this node; `None`: the driver chose it.
    pub(super) local: Option<IpAddr>,
    pub(super) transport: Transport,
    pub(super) up: bool,
    pub(super) protected: bool,
    pub(super) identity: Option<Arc<Identity>>,
    /// Octets of a message whose end has not come.
    pub(super) received: Vec<u8>,
    /// Those that its node has in the share of incomplete messages.
    incomplete: u32,
    /// Messages that leave in one write.
    pub(super) outgoing: Vec<u8>,
    /// It is on the list of connections with outgoing messages.
    pub(super) dirty: bool,
    /// Octets written since the last report, and those that were unsent then.
    pub(super) written: usize,
    pub(super) unsent: usize,
    /// Those that its node has in the share of unsent octets.
    counted: u32,
    /// The last message.
    pub(super) used: Time,
    /// What waits until it is established.
    pub(super) waiting: VecDeque<Waiter>,
    /// Tear-downs that wait until then; their sessions are no more.
    pub(super) tear_downs: Vec<TearDown>,
}

impl Peer {
    /// How many branches, sessions and connections name it.
    pub(super) const fn uses(&self) -> u32 {
        self.uses
    }
}

/// Unsent octets of a connection are counted in whole steps, so that a message to a peer that reads changes no count and
/// needs no comparison. A connection holds less than one step that is not counted.
const STEP: u32 = 4096;

impl Timed for Connection {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// All nodes and connections.
#[derive(Debug)]
pub(super) struct Peers {
    pub(super) peers: Slab<Peer>,
    by_name: HashMap<Name, Key, KeyedHasher>,
    /// Nodes that proved a key, by their address.
    proved: HashMap<IpAddr, Key, KeyedHasher>,
    pub(super) connections: Slab<Connection>,
    by_stream: HashMap<StreamId, Key, KeyedHasher>,
    pub(super) wheel: Wheel,
    by_source: Shares<IpAddr>,
    /// Octets of messages whose end has not come.
    pub(super) incomplete: Shares<IpAddr>,
    /// Octets that connections hold unsent.
    pub(super) unsent: Shares<IpAddr>,
    next_stream: u64,
    /// Connections with outgoing messages.
    pub(super) dirty: Vec<Key>,
}

impl Peers {
    /// No connections, with the limits of these settings.
    pub(super) fn new(config: &Config, hasher: impl Fn() -> KeyedHasher) -> Self {
        let limit = config.max_connections;
        Self {
            // Branches and connections limit their number.
            peers: Slab::new(u32::MAX - 1),
            by_name: HashMap::with_hasher(hasher()),
            proved: HashMap::with_hasher(hasher()),
            connections: Slab::new(limit),
            by_stream: HashMap::with_hasher(hasher()),
            wheel: Wheel::default(),
            by_source: Shares::new(limit, hasher()),
            incomplete: Shares::new(config.max_incomplete, hasher()),
            unsent: Shares::new(config.max_unsent_total, hasher()),
            next_stream: 1,
            dirty: Vec::new(),
        }
    }

    /// Takes the limits of other settings. What stands beyond a lower limit stays.
    pub(super) const fn set_limits(&mut self, config: &Config) {
        self.connections.set_limit(config.max_connections);
        self.by_source.set_limit(config.max_connections);
        self.incomplete.set_limit(config.max_incomplete);
        self.unsent.set_limit(config.max_unsent_total);
    }

    pub(super) fn find(&self, name: &Name) -> Option<Key> {
        self.by_name.get(name).copied()
    }

    /// The node that answers at an address: one that proved a key if `proved`.
    pub(super) fn at(&self, address: IpAddr, proved: bool) -> Option<Key> {
        if proved { self.proved.get(&address).copied() } else { self.find(&Name { address, proved: None }) }
    }

    pub(super) fn get(&self, key: Key) -> Option<&Peer> {
        self.peers.get(key)
    }

    pub(super) fn address(&self, key: Key) -> Option<IpAddr> {
        self.get(key).map(|peer| peer.name.address)
    }

    /// The node of a name, which is used once more from now on.
    pub(super) fn hold(&mut self, name: Name, phase: u64) -> Result<Key, Full> {
        if let Some(key) = self.find(&name) {
            self.hold_again(key);
            return Ok(key);
        }
        let bucket = TokenBucket::new(UDP_RATE, UDP_BURST);
        let key = self.peers.insert(Peer {
            name,
            uses: 1,
            streams: Vec::new(),
            bucket,
            phase,
            gone_at: Moment::default(),
            tries: 0,
        })?;
        self.by_name.insert(name, key);
        if name.proved.is_some() {
            self.proved.insert(name.address, key);
        }
        Ok(key)
    }

    pub(super) fn hold_again(&mut self, key: Key) {
        if let Some(peer) = invariant!(self.peers.get_mut(key), "a node that is used is known") {
            peer.uses = peer.uses.saturating_add(1);
        }
    }

    /// A use of a node ended.
    pub(super) fn drop_use(&mut self, key: Key) {
        // The clients of this node, as hops and as owners of sessions, are no nodes.
        let Some(peer) = self.peers.get_mut(key) else { return };
        peer.uses = peer.uses.saturating_sub(1);
        if peer.uses > 0 {
            return;
        }
        let name = peer.name;
        self.peers.remove(key);
        self.by_name.remove(&name);
        if self.proved.get(&name.address) == Some(&key) {
            self.proved.remove(&name.address);
        }
    }

    pub(super) fn connection_of(&self, stream: StreamId) -> Option<Key> {
        self.by_stream.get(&stream).copied()
    }

    /// The connection by which messages to a node are sent: the oldest one that is established, else the oldest one.
    pub(super) fn connection_to(&self, peer: Key) -> Option<(Key, bool)> {
        let streams = &self.get(peer)?.streams;
        let up = |key: &&Key| self.connections.get(**key).is_some_and(|one| one.up);
        match streams.iter().find(up) {
            Some(key) => Some((*key, true)),
            None => streams.first().map(|key| (*key, false)),
        }
    }

    /// The number of a stream that this node opens.
    pub(super) fn new_stream(&mut self) -> StreamId {
        let stream = StreamId(self.next_stream);
        self.next_stream += 2;
        stream
    }

    /// Stores a connection, with a use of its node. An error: there are too many, of all nodes or of this one.
    pub(super) fn insert(
        &mut self,
        stream: StreamId,
        peer: Key,
        transport: Transport,
        now: Time,
    ) -> Result<Key, Full> {
        let address =
            self.get(peer).filter(|peer| peer.streams.len() < MAX_STREAMS).ok_or(Full)?.name.address;
        self.by_source.take(source(address)).map_err(|_| Full)?;
        let inserted = self.connections.insert(Connection {
            link: Link::default(),
            stream,
            peer,
            local: None,
            transport,
            up: false,
            protected: false,
            identity: None,
            received: Vec::new(),
            incomplete: 0,
            outgoing: Vec::new(),
            dirty: false,
            written: 0,
            unsent: 0,
            counted: 0,
            used: now,
            waiting: VecDeque::new(),
            tear_downs: Vec::new(),
        });
        let Ok(key) = inserted else {
            self.by_source.release(source(address));
            return Err(Full);
        };
        self.by_stream.insert(stream, key);
        self.hold_again(peer);
        if let Some(peer) = invariant!(self.peers.get_mut(peer), "a connection is opened to a known node") {
            peer.streams.push(key);
        }
        Ok(key)
    }

    /// Gives a connection to another node: the one that the handshake proved.
    pub(super) fn rename(&mut self, connection: Key, peer: Key) {
        let Some(one) =
            invariant!(self.connections.get_mut(connection), "a connection whose node is proved stands")
        else {
            return;
        };
        let former = core::mem::replace(&mut one.peer, peer);
        self.hold_again(peer);
        if let Some(peer) = invariant!(self.peers.get_mut(peer), "a connection is given to a known node") {
            peer.streams.push(connection);
        }
        if let Some(former) =
            invariant!(self.peers.get_mut(former), "a connection is taken from a known node")
        {
            former.streams.retain(|key| *key != connection);
        }
        self.drop_use(former);
    }

    /// Counts the octets that a connection keeps of a message whose end has not come. False: there are too many, of all
    /// nodes or of this one.
    pub(super) fn count_incomplete(&mut self, key: Key, octets: usize) -> bool {
        let Some(connection) =
            invariant!(self.connections.get_mut(key), "incomplete octets are of a connection that stands")
        else {
            return false;
        };
        let before = core::mem::take(&mut connection.incomplete);
        if before == 0 && octets == 0 {
            return true;
        }
        let Some(peer) =
            invariant!(self.peers.get(connection.peer), "a connection with incomplete octets holds its node")
        else {
            return false;
        };
        let (from, octets) = (source(peer.name.address), u32::try_from(octets).unwrap_or(u32::MAX));
        self.incomplete.release_many(from, before);
        let fits = octets == 0 || self.incomplete.take_many(from, octets).is_ok();
        if fits {
            connection.incomplete = octets;
        }
        fits
    }

    /// Whether a connection may hold `octets` more unsent: all connections have a limit together.
    pub(super) fn may_hold(&self, key: Key, octets: usize) -> bool {
        let Some(connection) =
            invariant!(self.connections.get(key), "octets are written to a connection that stands")
        else {
            return false;
        };
        let held = u32::try_from(connection.unsent + connection.written + octets).unwrap_or(u32::MAX);
        let more = held.saturating_sub(connection.counted);
        if more < STEP {
            return true;
        }
        self.address(connection.peer).is_some_and(|address| self.unsent.check(&source(address), more).is_ok())
    }

    /// Counts what a connection holds unsent, in whole steps.
    pub(super) fn count_unsent(&mut self, key: Key) {
        let Some(connection) =
            invariant!(self.connections.get_mut(key), "unsent octets are of a connection that stands")
        else {
            return;
        };
        let octets = u32::try_from(connection.unsent + connection.written).unwrap_or(u32::MAX);
        let octets = octets - octets % STEP;
        let before = core::mem::replace(&mut connection.counted, octets);
        if octets == before {
            return;
        }
        let Some(peer) =
            invariant!(self.peers.get(connection.peer), "a connection with unsent octets holds its node")
        else {
            return;
        };
        let to = source(peer.name.address);
        match octets.checked_sub(before) {
            Some(more) => self.unsent.hold_many(to, more),
            None => self.unsent.release_many(to, before - octets),
        }
    }

    /// Removes a connection. The result is the address of its node, and what waited for it.
    pub(super) fn remove(&mut self, key: Key) -> Option<(IpAddr, VecDeque<Waiter>)> {
        let connection = invariant!(self.connections.get_mut(key), "a connection is lost once")?;
        (connection.unsent, connection.written) = (0, 0);
        self.count_unsent(key);
        self.count_incomplete(key, 0);
        self.wheel.cancel(&mut self.connections, key.index());
        let connection = invariant!(self.connections.remove(key), "a connection stands until it is removed")?;
        self.by_stream.remove(&connection.stream);
        let address = invariant!(self.address(connection.peer), "a connection that is lost holds its node")?;
        if let Some(peer) = self.peers.get_mut(connection.peer) {
            peer.streams.retain(|one| *one != key);
        }
        self.by_source.release(source(address));
        self.drop_use(connection.peer);
        Some((address, connection.waiting))
    }
}
