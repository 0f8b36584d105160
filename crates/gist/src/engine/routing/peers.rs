//! Peers and egresses, which all sessions share.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use signalbox_core::index::KeyedHasher;
use signalbox_core::intern::Interner;
use signalbox_core::service::SiiHandle;
use signalbox_core::shares::{Shares, source};
use signalbox_core::slab::Full;
use signalbox_core::stamp::Stamp;
use signalbox_core::{Changes, IfIndex, Time, invariant};
use tracing::field::{DisplayValue, display};

use super::record::NONE;
use crate::wire::Nli;

/// A peer and the interface towards it: the meaning of an SII handle (RFC 5971 B.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub(crate) identity: Box<[u8]>,
    pub(crate) address: SocketAddr,
    pub(crate) ifindex: IfIndex,
}

/// The same with a borrowed identity, and the same hash: looking for a peer allocates nothing.
#[derive(Debug, Hash)]
struct PeerRef<'a> {
    identity: &'a [u8],
    address: SocketAddr,
    ifindex: IfIndex,
}

impl<'a> PeerRef<'a> {
    const fn new(nli: &Nli<'a>, port: u16, ifindex: IfIndex) -> Self {
        Self { identity: nli.peer_identity, address: SocketAddr::new(nli.interface, port), ifindex }
    }

    fn is(&self, peer: &Peer) -> bool {
        *peer.identity == *self.identity && peer.address == self.address && peer.ifindex == self.ifindex
    }
}

impl Peer {
    /// Whether it is the peer of an NLI that was received with this port and interface.
    pub(crate) fn matches(&self, nli: &Nli<'_>, port: u16, ifindex: IfIndex) -> bool {
        *self.identity == *nli.peer_identity
            && self.address.ip() == nli.interface
            && self.address.port() == port
            && self.ifindex == ifindex
    }

    /// Whether it is the node with this identity and address.
    pub(crate) fn is_node(&self, identity: &[u8], address: IpAddr) -> bool {
        *self.identity == *identity && self.address.ip() == address
    }
}

/// A peer appears in the table of peers, or disappears from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerChange {
    /// Its identity.
    pub identity: Box<[u8]>,
    /// Its address and UDP port.
    pub address: SocketAddr,
    /// Interface towards it.
    pub ifindex: IfIndex,
    /// Whether it appears.
    pub appeared: bool,
}

impl PeerChange {
    fn of(peer: &Peer, appeared: bool) -> Self {
        let Peer { identity, address, ifindex } = peer.clone();
        Self { identity, address, ifindex, appeared }
    }
}

/// An egress of this node: outgoing interface, source address and next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Egress {
    pub(crate) ifindex: IfIndex,
    pub(crate) address: IpAddr,
    pub(crate) gateway: Option<IpAddr>,
    /// MTU of the first hop, at most 65535; 0: not known.
    pub(crate) mtu: u16,
}

/// Most former peers whose SII handles stay valid.
const RETIRED: usize = 1024;

#[derive(Debug)]
pub(crate) struct Peers {
    peers: Interner<Peer>,
    egresses: Interner<Egress>,
    /// For each id the serial number of its peer. An SII handle with another serial number is stale.
    serials: Vec<u32>,
    last_serial: u32,
    /// For each id the number of its source in `sources`, while routing state points to the peer.
    source_of: Vec<u32>,
    /// For each id the address of this node that the peer received in the last handshake.
    own_addresses: Vec<Option<IpAddr>>,
    /// For each id the interface of the route to the address of the peer, where that was looked up.
    routes: Vec<Option<IfIndex>>,
    /// Peers of each source: invented identities of one source do not fill the table for others.
    shares: Shares<IpAddr>,
    /// Sources of peers, with one reference for each piece of routing state.
    sources: Interner<IpAddr>,
    /// Former peers with one reference until this time, so that their SII handles stay valid.
    retired: VecDeque<(Stamp, u32)>,
    /// Peers that appeared and disappeared, while somebody watches.
    changes: Changes<PeerChange>,
}

impl Peers {
    pub(crate) fn new(limit: u32, hasher: KeyedHasher) -> Self {
        Self {
            peers: Interner::new(limit, hasher),
            shares: Shares::new(limit, hasher),
            // Peers do not choose egresses, but their number is limited as well.
            egresses: Interner::new(limit, hasher),
            serials: Vec::new(),
            last_serial: 0,
            source_of: Vec::new(),
            own_addresses: Vec::new(),
            routes: Vec::new(),
            // There are at most as many sources as peers.
            sources: Interner::new(limit, hasher),
            retired: VecDeque::new(),
            changes: Changes::default(),
        }
    }

    /// The list of peers that appear and disappear, to watch and to take from.
    pub(crate) const fn changes(&mut self) -> &mut Changes<PeerChange> {
        &mut self.changes
    }

    /// Number of peers.
    pub(crate) const fn len(&self) -> u32 {
        self.peers.len()
    }

    /// Most peers.
    pub(crate) const fn limit(&self) -> u32 {
        self.peers.limit()
    }

    /// All peers, by their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Peer)> {
        self.peers.iter()
    }

    /// Visits peers from an id on; see [`Slab::walk`](signalbox_core::Slab::walk).
    pub(crate) fn walk(&self, from: u32, visit: impl FnMut(u32, &Peer) -> bool) -> Option<u32> {
        self.peers.walk(from, visit)
    }

    /// All egresses, by their ids.
    pub(crate) fn egresses(&self) -> impl Iterator<Item = (u32, &Egress)> {
        self.egresses.iter()
    }

    /// The id of an egress, with one more reference.
    ///
    /// # Errors
    /// The table is full.
    pub(crate) fn intern_egress(&mut self, egress: Egress) -> Result<u32, Full> {
        self.egresses.intern(egress)
    }

    /// Keeps at most `limit` peers from now on. Those that are there stay.
    pub(crate) const fn set_limit(&mut self, limit: u32) {
        self.peers.set_limit(limit);
        self.shares.set_limit(limit);
        self.egresses.set_limit(limit);
        self.sources.set_limit(limit);
    }

    /// The id of the peer of an NLI, with one more reference.
    pub(crate) fn intern(&mut self, nli: &Nli<'_>, port: u16, ifindex: IfIndex) -> Result<u32, Full> {
        let peer_ref = PeerRef::new(nli, port, ifindex);
        let id = self.peers.intern_borrowed(
            &peer_ref,
            |peer| peer_ref.is(peer),
            || Peer { identity: peer_ref.identity.into(), address: peer_ref.address, ifindex },
        )?;
        if self.peers.references(id) == 1 {
            // The peer is new.
            if self.shares.take(source(nli.interface)).is_err() {
                self.peers.release(id);
                return Err(Full);
            }
            self.last_serial = self.last_serial.wrapping_add(1);
            let at = id as usize;
            if self.serials.len() <= at {
                self.serials.resize(at + 1, 0);
            }
            if let Some(serial) = self.serials.get_mut(at) {
                *serial = self.last_serial;
            }
            if let Some(own_addresses) = self.own_addresses.get_mut(at) {
                *own_addresses = None;
            }
            if let Some(route) = self.routes.get_mut(at) {
                *route = None;
            }
            if let Some(peer) = invariant!(self.peers.lookup(id), "a new peer is in the table") {
                self.changes.note(|| PeerChange::of(peer, true));
            }
        }
        let Ok(number) = self.sources.intern(source(nli.interface)) else {
            self.release_peer(id);
            return Err(Full);
        };
        let at = id as usize;
        if self.source_of.len() <= at {
            self.source_of.resize(at + 1, NONE);
        }
        if let Some(place) = self.source_of.get_mut(at) {
            *place = number;
        }
        Ok(id)
    }

    pub(crate) fn peer(&self, id: u32) -> Option<&Peer> {
        self.peers.lookup(id)
    }

    /// The SII handle of the peer of an NLI that was received with this port and interface, without a new reference.
    pub(crate) fn find(&self, nli: &Nli<'_>, port: u16, ifindex: IfIndex) -> Option<SiiHandle> {
        let peer_ref = PeerRef::new(nli, port, ifindex);
        self.sii(self.peers.find_borrowed(&peer_ref, |peer| peer_ref.is(peer))?)
    }

    /// Stores the address of this node that a peer received in a handshake.
    pub(crate) fn set_own_address(&mut self, id: u32, own: IpAddr) {
        let at = id as usize;
        if self.own_addresses.len() <= at {
            self.own_addresses.resize(at + 1, None);
        }
        if let Some(own_addresses) = self.own_addresses.get_mut(at) {
            *own_addresses = Some(own);
        }
    }

    /// The address of this node that a peer received in its last handshake.
    pub(crate) fn own_address(&self, id: u32) -> Option<IpAddr> {
        self.own_addresses.get(id as usize).copied().flatten()
    }

    /// Stores the interface of the route to the address of a peer.
    pub(crate) fn set_route(&mut self, id: u32, ifindex: IfIndex) {
        let at = id as usize;
        if self.routes.len() <= at {
            self.routes.resize(at + 1, None);
        }
        if let Some(route) = self.routes.get_mut(at) {
            *route = Some(ifindex);
        }
    }

    /// The interface of the route to the address of a peer, if it was looked up.
    pub(crate) fn route(&self, id: u32) -> Option<IfIndex> {
        self.routes.get(id as usize).copied().flatten()
    }

    /// The address of a peer for the log.
    pub(crate) fn logged(&self, id: u32) -> Option<DisplayValue<SocketAddr>> {
        self.peer(id).map(|peer| display(peer.address))
    }

    pub(crate) fn egress(&self, id: u32) -> Option<&Egress> {
        self.egresses.lookup(id)
    }

    /// Number of pieces of routing state with peers at the same source as an address.
    pub(crate) fn of_source(&self, address: IpAddr) -> u32 {
        self.sources.find(&source(address)).map_or(0, |id| self.sources.references(id))
    }

    /// Whether a peer is at the same source as an address, or was there a short time ago.
    pub(crate) fn is_known(&self, address: IpAddr) -> bool {
        self.shares.held(&source(address)) > 0
    }

    /// Releases a reference.
    pub(crate) fn release(&mut self, id: u32) {
        self.remove_source(id);
        self.release_peer(id);
    }

    /// Releases a reference to a peer, whose source gets its share back with the last one.
    fn release_peer(&mut self, id: u32) {
        if self.peers.references(id) == 1
            && let Some(peer) = self.peers.lookup(id)
        {
            let source = source(peer.address.ip());
            self.shares.release(source);
            self.changes.note(|| PeerChange::of(peer, false));
        }
        self.peers.release(id);
    }

    fn remove_source(&mut self, id: u32) {
        if let Some(source) =
            invariant!(self.source_of.get(id as usize), "the peer of routing state has a source")
        {
            self.sources.release(*source);
        }
    }

    /// Releases a reference, but keeps the SII handle of the peer valid until `until`.
    pub(crate) fn retire(&mut self, id: u32, until: Stamp) {
        if id == NONE {
            return;
        }
        self.remove_source(id);
        if self.peers.references(id) > 1 {
            self.release_peer(id);
            return;
        }
        if self.retired.len() >= RETIRED
            && let Some((_, oldest)) = self.retired.pop_front()
        {
            self.release_peer(oldest);
        }
        self.retired.push_back((until, id));
    }

    pub(crate) fn release_egress(&mut self, id: u32) {
        if id != NONE {
            self.egresses.release(id);
        }
    }

    /// Removes former peers whose SII handle is not valid any more.
    pub(crate) fn expire(&mut self, now: Time, most: u32) {
        for _ in 0..most {
            let due = self.retired.front().filter(|(until, _)| until.is_due(now)).copied();
            let Some((_, id)) = due else { return };
            self.retired.pop_front();
            self.release_peer(id);
        }
    }

    /// Number of pieces of routing state with a peer.
    pub(crate) fn sessions(&self, id: u32) -> u32 {
        let retired = self.retired.iter().filter(|(_, other)| *other == id).count();
        self.peers.references(id).saturating_sub(u32::try_from(retired).unwrap_or(u32::MAX))
    }

    /// When [`Peers::expire`] is due next.
    pub(crate) fn deadline(&self, now: Time) -> Option<Time> {
        self.retired.front().map(|(until, _)| until.time(now))
    }

    /// The SII handle of a peer: its id, and its serial number in the upper half.
    pub(crate) fn sii(&self, id: u32) -> Option<SiiHandle> {
        self.peer(id)?;
        let serial = *invariant!(self.serials.get(id as usize), "each peer has a serial number")?;
        Some(SiiHandle(u64::from(serial) << 32 | u64::from(id)))
    }

    /// The peer of an SII handle, if the handle is still valid.
    pub(crate) fn by_sii(&self, sii: SiiHandle) -> Option<u32> {
        let id = u32::try_from(sii.0 & 0xffff_ffff).ok()?;
        (self.sii(id)? == sii).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_found_by_its_borrowed_form() {
        let hasher = KeyedHasher::with_key([9; 16]);
        for interface in [IpAddr::from([10, 0, 0, 1]), IpAddr::from([1, 0, 0, 0, 0, 0, 0, 2])] {
            let nli = Nli { peer_identity: b"router", ip_ttl: 0, validity_ms: 1, interface };
            let peer_ref = PeerRef::new(&nli, 270, IfIndex(3));
            let peer = Peer { identity: (*b"router").into(), address: peer_ref.address, ifindex: IfIndex(3) };
            assert_eq!(hasher.hash_one(&peer_ref), hasher.hash_one(&peer));
            assert!(peer_ref.is(&peer) && !PeerRef::new(&nli, 271, IfIndex(3)).is(&peer));
        }
    }
}
