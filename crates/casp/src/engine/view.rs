//! State that is shown to users.

use core::net::IpAddr;

use signalbox_core::metrics::Table;
use signalbox_core::node::StreamId;
use signalbox_core::security::Fingerprint;
use signalbox_core::{Key, SessionId, Time};

use super::Casp;
use super::branch::{Branch, Side};
use super::io::Transport;
use super::peers::{Connection, Peer};
use super::session::{Mark, Session};
use crate::wire::{ClientType, FlowId};

/// A hop of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BranchView {
    /// Address of the node; `None`: a client of this node.
    pub peer: Option<IpAddr>,
    /// Number of the branch.
    pub id: u16,
    /// Whether it is the most recent one of its side.
    pub newest: bool,
    /// Whether the channel of its node is protected.
    pub protected: bool,
    /// When it ends without a message.
    pub until: Time,
}

/// State of one session with one flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// Session identifier.
    pub session: SessionId,
    /// Data flow, as the previous hops see it.
    pub flow: FlowId,
    /// The flow as the next hops see it, if this node translates it.
    pub outer: Option<FlowId>,
    /// Previous hops, the most recent one first.
    pub previous: Vec<BranchView>,
    /// Next hops, the most recent one first.
    pub next: Vec<BranchView>,
    /// Lifetime without refresh, seconds.
    pub timeout: u32,
    /// When this node makes a refresh of its own, if it does.
    pub refresh_at: Option<Time>,
    /// Whether a client of this node opened it.
    pub own: bool,
    /// Messages that wait for a hop.
    pub waiting: usize,
}

/// A connection with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionView {
    /// Its stream.
    pub stream: StreamId,
    /// What it runs over.
    pub transport: Transport,
    /// It is established.
    pub up: bool,
    /// Octets that wait to be sent.
    pub unsent: usize,
    /// When the last message was sent or received.
    pub used: Time,
}

/// A node that this node exchanges messages with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerView {
    /// Its address.
    pub address: IpAddr,
    /// The key that it proved.
    pub proved: Option<Fingerprint>,
    /// Branches of sessions with it, and sessions that it made here.
    pub uses: u32,
    /// Its connections, the oldest first.
    pub connections: Vec<ConnectionView>,
}

impl Casp {
    fn side(&self, side: &Side) -> Vec<BranchView> {
        let newest = side.last().map(|branch| branch.id);
        let view = |branch: &Branch| BranchView {
            peer: self.peers.address(branch.peer),
            id: branch.id,
            newest: newest == Some(branch.id),
            protected: branch.protected,
            until: branch.until.time(),
        };
        side.iter().map(view).collect()
    }

    fn view(&self, key: Key, session: &Session) -> SessionView {
        SessionView {
            session: session.id,
            flow: session.flow,
            outer: self.sessions.outer(key),
            previous: self.side(&session.previous),
            next: self.side(&session.next),
            timeout: session.timeout,
            refresh_at: Some(session.refresh_at.time()).filter(|at| at.as_micros() < u64::MAX),
            own: session.is_own(),
            waiting: session.waiting.as_ref().map_or(0, |waiting| waiting.down.len() + waiting.up.len()),
        }
    }

    /// Visits the sessions of this node from a place in the table on; see
    /// [`Slab::walk`](signalbox_core::slab::Slab::walk).
    pub fn walk(&self, from: u32, mut visit: impl FnMut(SessionView) -> bool) -> Option<u32> {
        self.sessions.slab.walk(from, |key, session| visit(self.view(key, session)))
    }

    /// All sessions of this node. For tests.
    pub fn sessions(&self) -> impl Iterator<Item = SessionView> {
        self.sessions.slab.iter().map(|(key, session)| self.view(key, session))
    }

    fn peer_view(&self, peer: &Peer) -> PeerView {
        let view = |one: &Connection| ConnectionView {
            stream: one.stream,
            transport: one.transport,
            up: one.up,
            unsent: one.unsent + one.written,
            used: one.used,
        };
        let connections = peer.streams.iter().filter_map(|key| self.peers.connections.get(*key));
        let connections: Vec<ConnectionView> = connections.map(view).collect();
        let uses = peer.uses().saturating_sub(u32::try_from(connections.len()).unwrap_or(u32::MAX));
        PeerView { address: peer.name.address, proved: peer.name.proved, uses, connections }
    }

    /// Visits the nodes that this node exchanges messages with, as [`Casp::walk`] visits sessions.
    pub fn walk_peers(&self, from: u32, mut visit: impl FnMut(PeerView) -> bool) -> Option<u32> {
        self.peers.peers.walk(from, |_, peer| visit(self.peer_view(peer)))
    }

    /// Whether a session is held in which this client took part.
    #[must_use]
    pub fn holds(&self, client: ClientType, id: SessionId, flow: &FlowId) -> bool {
        let found = self.sessions.find(id, flow).filter(|key| self.sessions.takes_part(*key, client));
        found.and_then(|key| self.sessions.get(key)).is_some_and(|one| one.is(Mark::Held))
    }

    /// Number of sessions; one with two flows counts twice.
    #[must_use]
    pub const fn session_count(&self) -> u32 {
        self.sessions.slab.len()
    }

    /// Number of nodes that this node exchanges messages with.
    #[must_use]
    pub const fn peer_count(&self) -> u32 {
        self.peers.peers.len()
    }

    /// The tables that peers and users can fill.
    #[must_use]
    pub fn tables(&self) -> [Table; 8] {
        let waiting = self.waiting_octets.total();
        [
            Table::new("sessions", self.sessions.slab.len(), self.sessions.slab.limit()),
            Table::new("connections", self.peers.connections.len(), self.peers.connections.limit()),
            Table::new("searches", self.searches.slab.len(), self.searches.slab.limit()),
            Table::new("held", self.held.len(), self.held.limit()),
            Table::new("waiting_octets", waiting, self.config.max_waiting),
            Table::new("incomplete_octets", self.peers.incomplete.total(), self.config.max_incomplete),
            Table::new("unsent_octets", self.peers.unsent.total(), self.config.max_unsent_total),
            Table::new("stateless", self.pending.len(), self.pending.limit()),
        ]
    }
}
