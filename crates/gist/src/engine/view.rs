//! State that is shown to operators.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use signalbox_core::metrics::Table;
use signalbox_core::service::Transports;
use signalbox_core::slab::Key;
use signalbox_core::{Direction, IfIndex, Mri, NslpId, SessionId};

use super::Gist;
use super::io::ChannelId;
use super::routing::{EXPIRE, Peer, RETRY, Record, State, TENTATIVE};

/// Validity of routing state (RFC 5971 §7.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// Not usable.
    Bad,
    /// Usable, to be verified.
    Tentative,
    /// Verified.
    Good,
}

/// The role of this node in the handshake of a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It sent the Query.
    Querying,
    /// It answered the Query.
    Responding,
}

/// State of the machine of a direction (RFC 5971 §6.2, §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoutingState {
    /// Awaiting Response, of the Querying node.
    AwaitingResponse,
    /// Awaiting Confirm, of the Responding node.
    AwaitingConfirm,
    /// Established.
    Established,
    /// Awaiting Refresh.
    AwaitingRefresh,
}

/// One direction of a session's routing state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectionView<'a> {
    /// The role of this node in the handshake.
    pub role: Role,
    /// The state of its machine.
    pub state: RoutingState,
    /// Validity of the state.
    pub validity: Validity,
    /// The peer's address and port; `None` before the handshake is complete.
    pub peer: Option<SocketAddr>,
    /// The peer's identity; empty before the handshake is complete.
    pub identity: &'a [u8],
    /// This node's address towards the peer.
    pub local: Option<IpAddr>,
    /// Interface towards the next hop of the flow (querying), or by which the Query was received (responding).
    pub ifindex: IfIndex,
    /// IP hops to the peer, 0 for a neighbor; `None`: not known.
    pub ip_distance: Option<u8>,
    /// Since the state was installed; zero before.
    pub age: Duration,
    /// Until the next refresh (querying, established).
    pub refresh_in: Option<Duration>,
    /// Until it expires unless it is refreshed.
    pub expires_in: Option<Duration>,
    /// Channel of the association that it uses.
    pub association: Option<ChannelId>,
    /// The MRI that the peer has for the flow, written downstream, if a NAT between them translates the signaling.
    pub foreign: Option<Mri>,
}

/// One session: a row of the routing state table for both directions (RFC 5971 §4.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionView<'a> {
    /// The session.
    pub session: SessionId,
    /// The application.
    pub nslp: NslpId,
    /// The flow, written downstream.
    pub mri: Mri,
    /// State towards the flow's source.
    pub upstream: Option<DirectionView<'a>>,
    /// State towards the flow's destination.
    pub downstream: Option<DirectionView<'a>>,
    /// Messages that are queued for a handshake.
    pub queued: usize,
}

/// One peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerView<'a> {
    /// Its identity.
    pub identity: &'a [u8],
    /// Its address and UDP port.
    pub address: SocketAddr,
    /// Interface towards it.
    pub ifindex: IfIndex,
    /// Pieces of routing state with this peer, one for each direction of each session.
    pub sessions: u32,
    /// Transports by which it could not be reached of late, although it answers Queries.
    pub unreached: Transports,
}

impl Gist {
    /// The tables that peers can fill.
    #[must_use]
    pub const fn tables(&self) -> [Table; 3] {
        [
            Table::new("sessions", self.records.len(), self.records.limit()),
            Table::new("peers", self.peers.len(), self.peers.limit()),
            self.associations.table(),
        ]
    }

    /// All sessions, by their place in the table.
    pub fn sessions(&self) -> impl Iterator<Item = SessionView<'_>> {
        self.records.iter().map(|(key, record)| self.session_view(key, record))
    }

    /// Visits sessions from a place in the table on; see [`Slab::walk`](signalbox_core::Slab::walk).
    pub fn walk_sessions(&self, from: u32, mut visit: impl FnMut(SessionView<'_>) -> bool) -> Option<u32> {
        self.records.walk(from, |key, record| visit(self.session_view(key, record)))
    }

    /// Number of sessions.
    #[must_use]
    pub const fn session_count(&self) -> u32 {
        self.records.len()
    }

    fn session_view(&self, key: Key, record: &Record) -> SessionView<'_> {
        SessionView {
            session: record.session,
            nslp: record.nslp,
            mri: record.flow.mri(Direction::Downstream),
            upstream: self.direction_view(key, record, Direction::Upstream),
            downstream: self.direction_view(key, record, Direction::Downstream),
            queued: record.pending.as_ref().map_or(0, |p| p.down.len() + p.up.len()),
        }
    }

    /// All peers of routing state, and former peers whose SII handle is still valid.
    pub fn peers(&self) -> impl Iterator<Item = PeerView<'_>> {
        self.peers.iter().map(|(id, peer)| self.peer_view(id, peer))
    }

    /// Visits peers from a place in the table on; see [`Slab::walk`](signalbox_core::Slab::walk).
    pub fn walk_peers(&self, from: u32, mut visit: impl FnMut(PeerView<'_>) -> bool) -> Option<u32> {
        self.peers.walk(from, |id, peer| visit(self.peer_view(id, peer)))
    }

    /// Whether routing state has a peer at this address, or at another one of the same [source](signalbox_core::shares::source()), or had one
    /// a short time ago.
    #[must_use]
    pub fn is_known(&self, address: IpAddr) -> bool {
        self.peers.is_known(address)
    }

    /// Number of peers.
    #[must_use]
    pub const fn peer_count(&self) -> u32 {
        self.peers.len()
    }

    fn peer_view<'a>(&self, id: u32, peer: &'a Peer) -> PeerView<'a> {
        PeerView {
            identity: &peer.identity,
            address: peer.address,
            ifindex: peer.ifindex,
            sessions: self.peers.sessions(id),
            unreached: self.unreached(&peer.identity, peer.address.ip()),
        }
    }

    fn direction_view(&self, key: Key, record: &Record, direction: Direction) -> Option<DirectionView<'_>> {
        let half = record.half(direction);
        let (state, now) = (half.state, self.now);
        let (role, shown) = state.shown()?;
        let peer = self.peers.peer(half.peer);
        let egress = self.peers.egress(half.egress);
        Some(DirectionView {
            role,
            state: shown,
            // GIST-7.1.3-01, GIST-7.1.3-02
            validity: match (state.is_established(), half.has(TENTATIVE)) {
                (false, _) => Validity::Bad,
                (true, true) => Validity::Tentative,
                (true, false) => Validity::Good,
            },
            peer: peer.map(|p| p.address),
            identity: peer.map_or(&[], |p| &p.identity),
            local: egress.map(|e| e.address),
            ifindex: egress.map(|e| e.ifindex).unwrap_or_default(),
            ip_distance: half.distance(),
            age: if state.is_established() { half.since.age(now) } else { Duration::ZERO },
            refresh_in: (state == State::Established && half.has(RETRY)).then(|| half.retry.left(now)),
            expires_in: half.has(EXPIRE).then(|| half.expire.left(now)),
            association: self.association_of(key, direction).and_then(|index| self.channel(index)),
            foreign: self.foreign_mri(key, direction),
        })
    }
}
