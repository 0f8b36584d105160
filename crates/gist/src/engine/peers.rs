//! Peers and ways out, kept once and shared by all sessions that use them.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use signalbox_core::index::KeyedHasher;
use signalbox_core::intern::Interner;
use signalbox_core::service::SiiHandle;
use signalbox_core::slab::Full;
use signalbox_core::stamp::Stamp;
use signalbox_core::{IfIndex, Time};
use tracing::field::{DisplayValue, display};

use super::record::NONE;
use super::sources::source;
use crate::wire::Nli;

/// A peer and the interface towards it: what source identification information names (RFC 5971 B.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub(crate) identity: Box<[u8]>,
    pub(crate) address: SocketAddr,
    pub(crate) ifindex: IfIndex,
}

impl Peer {
    /// Whether it is what `nli`, seen with this port and interface, describes.
    pub(crate) fn matches(&self, nli: &Nli<'_>, port: u16, ifindex: IfIndex) -> bool {
        *self.identity == *nli.peer_identity
            && self.address.ip() == nli.interface
            && self.address.port() == port
            && self.ifindex == ifindex
    }

    /// Whether it is the node of this identity at this address.
    pub(crate) fn is_node(&self, identity: &[u8], address: IpAddr) -> bool {
        *self.identity == *identity && self.address.ip() == address
    }
}

/// A way out of this node: by which interface, from which address, over which next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Egress {
    pub(crate) ifindex: IfIndex,
    pub(crate) address: IpAddr,
    pub(crate) gateway: Option<IpAddr>,
    /// Of the first hop, as far as 16 bits can say; 0: not known.
    pub(crate) mtu: u16,
}

/// Most former peers whose names stay usable.
const RETIRED: usize = 1024;

#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) peers: Interner<Peer>,
    pub(crate) egresses: Interner<Egress>,
    /// For each id a number that its value alone has: a name with another number is stale.
    serials: Vec<u32>,
    last_serial: u32,
    /// For each id where its address is in `sources`, as long as state points to it.
    source_of: Vec<u32>,
    /// For each id our address that the peer was last own_addresses in a handshake.
    own_addresses: Vec<Option<IpAddr>>,
    /// A reference for each piece of state that points to a peer there.
    sources: Interner<IpAddr>,
    /// Former peers that keep one reference until then, so that applications can still name them.
    retired: VecDeque<(Stamp, u32)>,
}

impl Peers {
    pub(crate) fn new(limit: u32, hasher: KeyedHasher) -> Self {
        Self {
            peers: Interner::new(limit, hasher),
            // RouteIndex out are ours, not chosen by peers; bounded all the same.
            egresses: Interner::new(limit, hasher),
            serials: Vec::new(),
            last_serial: 0,
            source_of: Vec::new(),
            own_addresses: Vec::new(),
            // Not more than there are peers.
            sources: Interner::new(limit, hasher),
            retired: VecDeque::new(),
        }
    }

    /// The id of the peer that `nli` describes, with one more reference.
    pub(crate) fn intern(&mut self, nli: &Nli<'_>, port: u16, ifindex: IfIndex) -> Result<u32, Full> {
        let id = self.peers.intern(Peer {
            identity: nli.peer_identity.into(),
            address: SocketAddr::new(nli.interface, port),
            ifindex,
        })?;
        if self.peers.references(id) == 1 {
            // It was not there before.
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
        }
        let Ok(of) = self.sources.intern(source(nli.interface)) else {
            self.peers.release(id);
            return Err(Full);
        };
        let at = id as usize;
        if self.source_of.len() <= at {
            self.source_of.resize(at + 1, NONE);
        }
        if let Some(place) = self.source_of.get_mut(at) {
            *place = of;
        }
        Ok(id)
    }

    pub(crate) fn peer(&self, id: u32) -> Option<&Peer> {
        self.peers.lookup(id)
    }

    /// The name of the peer that `nli`, seen with this port and interface, describes; no new reference.
    pub(crate) fn find(&self, nli: &Nli<'_>, port: u16, ifindex: IfIndex) -> Option<SiiHandle> {
        let address = SocketAddr::new(nli.interface, port);
        self.sii(self.peers.find(&Peer { identity: nli.peer_identity.into(), address, ifindex })?)
    }

    /// Notes by which address of ours a peer knows this node from now on.
    pub(crate) fn set_own_address(&mut self, id: u32, own: IpAddr) {
        let at = id as usize;
        if self.own_addresses.len() <= at {
            self.own_addresses.resize(at + 1, None);
        }
        if let Some(own_addresses) = self.own_addresses.get_mut(at) {
            *own_addresses = Some(own);
        }
    }

    /// By which address of ours a peer knows this node.
    pub(crate) fn own_address(&self, id: u32) -> Option<IpAddr> {
        self.own_addresses.get(id as usize).copied().flatten()
    }

    /// The address of a peer for the log.
    pub(crate) fn logged(&self, id: u32) -> Option<DisplayValue<SocketAddr>> {
        self.peer(id).map(|peer| display(peer.address))
    }

    pub(crate) fn egress(&self, id: u32) -> Option<&Egress> {
        self.egresses.lookup(id)
    }

    /// Pieces of routing state that point to peers at the source of an address.
    pub(crate) fn of_source(&self, address: IpAddr) -> u32 {
        self.sources.find(&source(address)).map_or(0, |id| self.sources.references(id))
    }

    /// Gives back a reference.
    pub(crate) fn release(&mut self, id: u32) {
        self.forget_source(id);
        self.peers.release(id);
    }

    fn forget_source(&mut self, id: u32) {
        if let Some(source) = self.source_of.get(id as usize) {
            self.sources.release(*source);
        }
    }

    /// Gives back a reference, but keeps the peer's name usable until `until`.
    pub(crate) fn retire(&mut self, id: u32, until: Stamp) {
        if id == NONE {
            return;
        }
        self.forget_source(id);
        if self.peers.references(id) > 1 {
            self.peers.release(id);
            return;
        }
        if self.retired.len() >= RETIRED
            && let Some((_, oldest)) = self.retired.pop_front()
        {
            self.peers.release(oldest);
        }
        self.retired.push_back((until, id));
    }

    pub(crate) fn release_egress(&mut self, id: u32) {
        if id != NONE {
            self.egresses.release(id);
        }
    }

    /// Forgets former peers whose time has come.
    pub(crate) fn expire(&mut self, now: Time) {
        while let Some((until, id)) = self.retired.front().copied()
            && until.is_due(now)
        {
            self.retired.pop_front();
            self.peers.release(id);
        }
    }

    /// Pieces of routing state that point to a peer.
    pub(crate) fn sessions(&self, id: u32) -> u32 {
        let retired = self.retired.iter().filter(|(_, other)| *other == id).count();
        self.peers.references(id).saturating_sub(u32::try_from(retired).unwrap_or(u32::MAX))
    }

    /// When [`Peers::expire`] has something to do next.
    pub(crate) fn deadline(&self, now: Time) -> Option<Time> {
        self.retired.front().map(|(until, _)| until.time(now))
    }

    /// The name of a peer: its id, and in the upper half its number.
    pub(crate) fn sii(&self, id: u32) -> Option<SiiHandle> {
        self.peer(id)?;
        let serial = *self.serials.get(id as usize)?;
        Some(SiiHandle(u64::from(serial) << 32 | u64::from(id)))
    }

    /// The peer of a name, if it is still known.
    pub(crate) fn by_sii(&self, sii: SiiHandle) -> Option<u32> {
        let id = u32::try_from(sii.0 & 0xffff_ffff).ok()?;
        (self.sii(id)? == sii).then_some(id)
    }
}
