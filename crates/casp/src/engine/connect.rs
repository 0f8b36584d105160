//! What happens to connections, and what is sent over them.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use signalbox_core::node::StreamId;
use signalbox_core::security::Identity;
use signalbox_core::{IfIndex, Key, invariant};

use super::Casp;
use super::discovery::{News, Ready};
use super::io::Transport;
use super::outbox::Datagram;
use super::peers::Name;
use super::receive::From;
use super::search::{Answer, Waiter};
use crate::error::EncodeError;
use crate::wire::{Flags, Message, Proof, Signaling, frame, framed};

/// Longest message over UDP, octets.
pub(super) const MAX_DATAGRAM: usize = 512;
/// Octets of memory that a connection keeps for the next part of a message.
const KEPT: usize = 4096;
/// Octets of a SCOUT_COOKIE_R with its header.
pub(super) const PROOF: usize = 12;

/// What became of a message to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// It is on its way.
    Sent,
    /// It has to wait for this connection.
    Connecting(Key),
    /// The node does not read, or there are too many connections.
    Blocked,
}

/// Appends a message with the cookie and with the flag U that the way to its node needs.
pub(super) fn complete(
    octets: &[u8],
    answer: Option<&Answer>,
    protected: bool,
    into: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let start = into.len();
    // Only the first message to a node that scout found has a cookie. Parsing all of them would take a tenth of their instructions.
    if let Some(cookie) = answer.and_then(|answer| answer.cookie)
        && let Ok(Message::Signaling(message)) = Message::parse(octets)
    {
        Signaling { proof: Some(Proof::Cookie(cookie)), ..message }.encode(into)?;
    } else {
        into.extend_from_slice(octets);
    }
    if !protected && let Some(flags) = into.get_mut(start) {
        *flags |= Flags::UNSECURE.octet();
    }
    Ok(())
}

impl Casp {
    /// Whether packets of a node are protected by IPsec.
    pub(super) fn is_protected(&self, address: IpAddr) -> bool {
        self.config.protected.iter().any(|prefix| prefix.contains(address))
    }

    /// Sends a message to a hop: by UDP if the branch is one of datagrams, and length and rate allow it, else over a
    /// connection. `answer` has the cookie for the first message to a node that scout found.
    pub(super) fn send_to(
        &mut self,
        peer: Key,
        datagram: bool,
        octets: &[u8],
        answer: Option<&Answer>,
    ) -> Delivery {
        let Some(one) = invariant!(self.peers.peers.get_mut(peer), "a hop of a session is a known node")
        else {
            return Delivery::Blocked;
        };
        let Name { address, proved } = one.name;
        let length = octets.len() + answer.map_or(0, |_| PROOF);
        if datagram && proved.is_none() && length <= MAX_DATAGRAM && one.bucket.allow(self.now) {
            let protected = self.is_protected(address);
            self.buffer.clear();
            if complete(octets, answer, protected, &mut self.buffer).is_err() {
                return Delivery::Blocked;
            }
            let port = self.config.port;
            let datagram = Datagram {
                port,
                src: answer.and_then(|answer| answer.local),
                dst: SocketAddr::new(address, port),
                tos: 0,
                flow_label: 0,
                unproved: false,
            };
            self.out.send(datagram, &[], &self.buffer);
            self.counters.signaling_sent += 1;
            return Delivery::Sent;
        }
        match self.peers.connection_to(peer) {
            Some((connection, true)) => self.write(connection, octets, answer),
            Some((connection, false)) => Delivery::Connecting(connection),
            None => match self.open(Name { address, proved }, answer.and_then(|answer| answer.local)) {
                Some(connection) => Delivery::Connecting(connection),
                None => Delivery::Blocked,
            },
        }
    }

    /// Writes a message to an established connection.
    pub(super) fn write(&mut self, key: Key, octets: &[u8], answer: Option<&Answer>) -> Delivery {
        let Some(connection) = invariant!(
            self.peers.connections.get_mut(key),
            "a message is written to a connection that stands"
        ) else {
            return Delivery::Blocked;
        };
        let held = connection.outgoing.len();
        if connection.unsent + connection.written + held > self.config.max_unsent {
            return Delivery::Blocked;
        }
        if !self.peers.may_hold(key, held + octets.len()) {
            return Delivery::Blocked;
        }
        let Some(connection) = invariant!(
            self.peers.connections.get_mut(key),
            "a connection stands while a message is written to it"
        ) else {
            return Delivery::Blocked;
        };
        let protected = connection.protected;
        // A cookie is good for one address only. A connection from another one proves this node's address by itself.
        let answer = answer.filter(|answer| answer.local == connection.local);
        let result = if connection.transport.is_stream() {
            if !core::mem::replace(&mut connection.dirty, true) {
                self.peers.dirty.push(key);
            }
            framed(&mut connection.outgoing, |into| complete(octets, answer, protected, into))
        } else {
            self.buffer.clear();
            let result = complete(octets, answer, protected, &mut self.buffer);
            connection.written += self.buffer.len();
            self.out.write(connection.stream, &self.buffer);
            result
        };
        connection.used = self.now;
        let is_stream = connection.transport.is_stream();
        if !is_stream {
            self.peers.count_unsent(key);
        }
        if result.is_err() {
            return Delivery::Blocked;
        }
        self.counters.signaling_sent += 1;
        Delivery::Sent
    }

    /// Hands what was written to connections to the driver: all messages to one node in one piece.
    pub(super) fn flush(&mut self) {
        while let Some(key) = self.peers.dirty.pop() {
            // A connection may be lost after something was written to it.
            let Some(connection) = self.peers.connections.get_mut(key) else { continue };
            connection.dirty = false;
            connection.written += connection.outgoing.len();
            self.out.write(connection.stream, &connection.outgoing);
            connection.outgoing.clear();
            self.peers.count_unsent(key);
        }
    }

    /// The connection that this node is opening to the address of a node, or a new one: by TLS to a node that proved a key. `None`: the
    /// table of connections is full.
    pub(super) fn open(&mut self, Name { address, proved }: Name, local: Option<IpAddr>) -> Option<Key> {
        let name = Name { address, proved: None };
        let opening = self.peers.find(&name).and_then(|peer| self.peers.connection_to(peer));
        // An established one without TLS is of no use where TLS is needed.
        if let Some((connection, false)) = opening {
            return Some(connection);
        }
        let transport = match self.config.transport_to(address) {
            _ if proved.is_some() => Transport::Tls,
            Transport::Udp | Transport::Tcp => Transport::Tcp,
            other @ (Transport::Tls | Transport::Sctp) => other,
        };
        let port = if transport == Transport::Tls { self.config.tls_port } else { self.config.port };
        let stream = self.peers.new_stream();
        let inserted = self.peers.hold(name, self.rng.u64()).and_then(|peer| {
            let inserted = self.peers.insert(stream, peer, transport, self.now);
            self.peers.drop_use(peer);
            inserted
        });
        let Ok(key) = inserted else {
            self.counters.connections_full += 1;
            tracing::debug!(peer = %address, reason = "table of connections or peers full, or too many of this node", "connection not opened");
            return None;
        };
        self.set_local(key, local);
        self.out.open(stream, transport, local, SocketAddr::new(address, port));
        let at = self.now + self.config.connect;
        self.peers.wheel.arm(&mut self.peers.connections, key.index(), at);
        Some(key)
    }

    /// A session or a message waits for a connection. Whether it could be noted: sessions that came and went in the meantime are
    /// still on the list.
    pub(super) fn wait_for(&mut self, connection: Key, waiter: Waiter) -> bool {
        let most = self.sessions.slab.limit() as usize;
        let connection = self.peers.connections.get_mut(connection);
        let connection = connection.filter(|connection| connection.waiting.len() < most);
        connection.map(|connection| connection.waiting.push_back(waiter)).is_some()
    }

    fn name_of(address: IpAddr, identity: Option<&Arc<Identity>>) -> Name {
        Name { address, proved: identity.map(|identity| identity.key) }
    }

    /// A node connected to this one.
    pub(super) fn on_accepted(
        &mut self,
        stream: StreamId,
        transport: Transport,
        [local, address]: [IpAddr; 2],
        identity: Option<Arc<Identity>>,
    ) {
        let known = self.config.peers.is_empty() || self.config.peers.iter().any(|one| one.contains(address));
        if !known {
            self.counters.refused_peers += 1;
            tracing::debug!(peer = %address, reason = "not one of the configured peers", "connection refused");
            return self.out.close(stream);
        }
        let name = Self::name_of(address, identity.as_ref());
        let inserted = self.peers.hold(name, self.rng.u64()).and_then(|peer| {
            let inserted = self.peers.insert(stream, peer, transport, self.now);
            self.peers.drop_use(peer);
            inserted
        });
        let Ok(key) = inserted else {
            self.counters.connections_full += 1;
            tracing::debug!(peer = %address, reason = "table of connections or peers full, or too many of this node", "connection refused");
            return self.out.close(stream);
        };
        self.set_local(key, Some(local));
        self.established(key, identity);
    }

    fn set_local(&mut self, key: Key, local: Option<IpAddr>) {
        if let Some(connection) = self.peers.connections.get_mut(key) {
            connection.local = local;
        }
    }

    /// The driver chose the address of a connection that this node opens.
    pub(super) fn on_opening(&mut self, stream: StreamId, local: IpAddr) {
        if let Some(key) = self.peers.connection_of(stream) {
            self.set_local(key, Some(local));
        }
    }

    /// [`Output::Open`](super::Output::Open) succeeded.
    pub(super) fn on_connected(&mut self, stream: StreamId, identity: Option<Arc<Identity>>) {
        // The stream may be closed here while the driver reports.
        let Some(key) = self.peers.connection_of(stream) else { return };
        let Some(address) = invariant!(
            self.peers.connections.get(key).and_then(|connection| self.peers.address(connection.peer)),
            "a connection that opens holds its node"
        ) else {
            return;
        };
        let name = Self::name_of(address, identity.as_ref());
        if name.proved.is_some()
            && let Ok(peer) = self.peers.hold(name, self.rng.u64())
        {
            self.peers.rename(key, peer);
            self.peers.drop_use(peer);
        }
        self.established(key, identity);
    }

    fn established(&mut self, key: Key, identity: Option<Arc<Identity>>) {
        let Some(connection) = invariant!(
            self.peers.connections.get_mut(key),
            "what is established is a connection that stands"
        ) else {
            return;
        };
        connection.up = true;
        if let Some(one) = self.peers.peers.get_mut(connection.peer) {
            one.tries = 0;
        }
        connection.identity = identity;
        connection.used = self.now;
        let (peer, secure) = (connection.peer, connection.transport == Transport::Tls);
        let waiting = core::mem::take(&mut connection.waiting);
        let address = self.peers.address(peer);
        let protected = secure || address.is_some_and(|address| self.is_protected(address));
        if let Some(connection) = self.peers.connections.get_mut(key) {
            connection.protected = protected;
        }
        self.counters.connected += 1;
        tracing::debug!(peer = self.logged_peer(peer), secure, "connection established");
        let at = self.now + self.config.idle;
        self.peers.wheel.arm(&mut self.peers.connections, key.index(), at);
        self.send_tear_downs(key);
        if !waiting.is_empty() {
            self.ready.push_back(Ready { what: News::Connected(peer), waiting });
        }
    }

    /// Takes octets of a stream.
    pub(super) fn on_octets(&mut self, stream: StreamId, octets: &[u8]) {
        // As above: the stream may be closed here.
        let Some(key) = self.peers.connection_of(stream) else { return };
        let Some(connection) = invariant!(
            self.peers.connections.get_mut(key),
            "the table of streams names connections that stand"
        ) else {
            return;
        };
        let Some(peer) = invariant!(self.peers.peers.get(connection.peer), "a connection holds its node")
        else {
            return;
        };
        connection.used = self.now;
        let from = From {
            name: peer.name,
            peer: Some(connection.peer),
            connection: Some(key),
            protected: connection.protected,
            local: None,
            ifindex: IfIndex::NONE,
            answered: true,
        };
        if !connection.transport.is_stream() {
            return self.on_signaling(&from, octets);
        }
        let mut held = core::mem::take(&mut connection.received);
        let was_empty = held.is_empty();
        if !was_empty {
            held.extend_from_slice(octets);
        }
        let mut rest = if was_empty { octets } else { &held[..] };
        let broken = loop {
            match frame(rest, self.config.max_message) {
                Err(error) => break Some(error),
                Ok(None) => break None,
                Ok(Some(length)) => {
                    let Some((message, behind)) = rest.split_at_checked(length) else { break None };
                    self.on_signaling(&from, message.get(4..).unwrap_or_default());
                    rest = behind;
                }
            }
        };
        if let Some(error) = broken {
            tracing::debug!(peer = %from.name.address, reason = %error, "connection closed");
            self.counters.framing += 1;
            self.out.close(stream);
            return self.lost(key);
        }
        let left = rest.len();
        if was_empty {
            held.extend_from_slice(octets.get(octets.len() - left..).unwrap_or_default());
        } else {
            let used = held.len() - left;
            held.drain(..used);
        }
        if held.is_empty() && held.capacity() > KEPT {
            held = Vec::new();
        }
        if let Some(connection) = self.peers.connections.get_mut(key) {
            connection.received = held;
        }
        if !self.peers.count_incomplete(key, left) {
            self.counters.incomplete += 1;
            tracing::debug!(peer = %from.name.address, reason = "too many octets of messages without an end", "connection closed");
            self.out.close(stream);
            self.lost(key);
        }
    }

    pub(super) fn on_drained(&mut self, stream: StreamId, unsent: usize) {
        let Some(key) = self.peers.connection_of(stream) else { return };
        if let Some(connection) = self.peers.connections.get_mut(key) {
            (connection.unsent, connection.written) = (unsent, 0);
        }
        self.peers.count_unsent(key);
    }

    pub(super) fn on_closed(&mut self, stream: StreamId) {
        if let Some(key) = self.peers.connection_of(stream) {
            self.counters.disconnected += 1;
            tracing::debug!(peer = self.logged_end(key), "connection failed");
            let failed = self.peers.connections.get(key).map(|connection| (connection.peer, connection.up));
            self.lost(key);
            if let Some((peer, up)) = failed {
                self.on_peer_gone(peer, up);
            }
        }
    }

    /// Removes a connection. What waits for it tries something else.
    fn lost(&mut self, key: Key) {
        self.drop_tear_downs(key);
        if let Some((address, waiting)) = self.peers.remove(key)
            && !waiting.is_empty()
        {
            self.ready.push_back(Ready { what: News::Failed(address), waiting });
        }
    }

    /// Runs the timers of connections: it closes those that are not established in time, and those that no session uses.
    pub(super) fn run_connections(&mut self, most: u32) {
        for _ in 0..most {
            let Some(index) = self.peers.wheel.pop_due(&mut self.peers.connections, self.now) else { return };
            let Some((key, connection)) =
                invariant!(self.peers.connections.entry(index), "the timer of a connection ends with it")
            else {
                continue;
            };
            let idle_until = connection.used + self.config.idle;
            if connection.up && idle_until > self.now {
                self.peers.wheel.arm(&mut self.peers.connections, index, idle_until);
                continue;
            }
            if !connection.up {
                self.counters.disconnected += 1;
                tracing::debug!(
                    peer = self.logged_end(key),
                    reason = "not established in time",
                    "connection failed"
                );
            }
            self.out.close(connection.stream);
            self.lost(key);
        }
    }
}
