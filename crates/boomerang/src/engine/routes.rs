//! The interfaces by which messages leave: a cache of fixed size, and the messages that wait for a route.

use core::net::{IpAddr, SocketAddr};

use signalbox_core::index::KeyedHasher;
use signalbox_core::node::Route;
use signalbox_core::packet::Received;
use signalbox_core::{IfIndex, Key};

use super::interfaces::Iface;

/// Destinations whose route is kept.
const PLACES: usize = 8192;

#[derive(Debug, Clone, Copy)]
struct CachedRoute {
    dst: IpAddr,
    generation: u32,
    oif: Iface,
    /// The address of this node that routing chooses for packets to the destination.
    src: IpAddr,
    /// The neighbor that gets them: the gateway, or the destination itself.
    next: IpAddr,
    /// Largest IP packet of the route, octets; 0: not known.
    mtu: u32,
}

/// A packet that waits for a route.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    /// It is addressed to this node: the route is that of its answer.
    pub(super) local: bool,
    pub(super) iif: IfIndex,
    pub(super) ttl: u8,
    pub(super) tos: u8,
    pub(super) options: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

impl Packet {
    pub(super) fn of(packet: &Received<'_>, local: bool) -> Self {
        Self {
            src: packet.src.ip(),
            dst: packet.dst.ip(),
            local,
            iif: packet.ifindex,
            ttl: packet.ttl,
            tos: packet.tos,
            options: packet.options.to_vec(),
            payload: packet.payload.to_vec(),
        }
    }

    pub(super) fn as_received(&self) -> Received<'_> {
        Received {
            entry: super::ENTRY,
            src: SocketAddr::new(self.src, 0),
            dst: SocketAddr::new(self.dst, 0),
            ifindex: self.iif,
            ttl: self.ttl,
            tos: self.tos,
            options: &self.options,
            payload: &self.payload,
        }
    }
}

/// A message or a session that waits for a route.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A passing message, or a request to this node that is to be answered.
    Packet(Packet),
    /// A session of this node, by its key.
    Session(Key),
}

/// A cache of routes with a fixed number of slots. The hash of a destination selects its slot, and a new route replaces the
/// route in it. So memory does not grow, and forged destinations cost route lookups only.
#[derive(Debug)]
pub(super) struct Routes {
    hasher: KeyedHasher,
    places: Box<[Option<CachedRoute>]>,
    /// A route of an earlier generation is looked up again.
    generation: u32,
    last_lookup: u64,
    lookups: Vec<(u64, IpAddr)>,
    waiting: Vec<(IpAddr, Waiting)>,
    limit: usize,
}

impl Routes {
    pub(super) fn new(hasher: KeyedHasher, limit: u32) -> Self {
        Self {
            hasher,
            places: vec![None; PLACES].into_boxed_slice(),
            generation: 0,
            last_lookup: 0,
            lookups: Vec::new(),
            waiting: Vec::new(),
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
        }
    }

    /// Lets at most `limit` wait from now on.
    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = usize::try_from(limit).unwrap_or(usize::MAX);
    }

    fn place(&self, dst: IpAddr) -> usize {
        let hash = match dst {
            IpAddr::V4(v4) => self.hasher.hash_octets(&v4.octets()),
            IpAddr::V6(v6) => self.hasher.hash_octets(&v6.octets()),
        };
        usize::try_from(hash % PLACES as u64).unwrap_or(0)
    }

    /// The interface by which packets to `dst` leave, if it is known.
    pub(super) fn find(&self, dst: IpAddr) -> Option<Iface> {
        self.known(dst).map(|known| known.oif)
    }

    /// The address of this node that routing chooses for packets to `dst`, if the route is known.
    pub(super) fn source(&self, dst: IpAddr) -> Option<IpAddr> {
        let usable = |src: &IpAddr| !src.is_unspecified() && src.is_ipv4() == dst.is_ipv4();
        self.known(dst).map(|known| known.src).filter(usable)
    }

    /// Largest IP packet to `dst` by its route, octets, if it is known.
    pub(super) fn mtu(&self, dst: IpAddr) -> Option<u32> {
        self.known(dst).map(|known| known.mtu).filter(|mtu| *mtu > 0)
    }

    /// Whether packets to `dst` went to this neighbor when the route was looked up last, which may be before a change.
    pub(super) fn leads_to(&self, dst: IpAddr, oif: Iface, neighbor: IpAddr) -> bool {
        let last = self.places.get(self.place(dst)).and_then(Option::as_ref);
        last.is_some_and(|last| (last.dst, last.oif, last.next) == (dst, oif, neighbor))
    }

    fn known(&self, dst: IpAddr) -> Option<&CachedRoute> {
        let known = self.places.get(self.place(dst))?.as_ref()?;
        (known.dst == dst && known.generation == self.generation).then_some(known)
    }

    /// Routes may have changed: all are looked up again.
    pub(super) const fn changed(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Lets somebody wait for the route to `dst`. The result is the number of a lookup that has to be made; `None`: one
    /// is on its way. If too many wait, it is not taken.
    pub(super) fn wait(&mut self, dst: IpAddr, waiting: Waiting) -> Result<Option<u64>, Waiting> {
        if self.waiting.len() >= self.limit {
            return Err(waiting);
        }
        self.waiting.push((dst, waiting));
        if self.lookups.iter().any(|(_, asked)| *asked == dst) {
            return Ok(None);
        }
        self.last_lookup += 1;
        self.lookups.push((self.last_lookup, dst));
        Ok(Some(self.last_lookup))
    }

    /// The destination of a lookup that is answered.
    pub(super) fn answered(&mut self, id: u64) -> Option<IpAddr> {
        let at = self.lookups.iter().position(|(lookup, _)| *lookup == id)?;
        Some(self.lookups.swap_remove(at).1)
    }

    /// Stores the interface by which packets to `dst` leave, with its neighbor, and the source of those of this node.
    pub(super) fn store(&mut self, dst: IpAddr, oif: Iface, route: &Route) {
        let next = route.gateway.unwrap_or(dst);
        let known =
            CachedRoute { dst, generation: self.generation, oif, src: route.src, next, mtu: route.mtu };
        let at = self.place(dst);
        if let Some(place) = self.places.get_mut(at) {
            *place = Some(known);
        }
    }

    /// Takes out who waits for a route to `dst`, in the order in which they came.
    pub(super) fn take(&mut self, dst: IpAddr) -> Vec<Waiting> {
        let (ready, rest) = core::mem::take(&mut self.waiting).into_iter().partition(|(to, _)| *to == dst);
        self.waiting = rest;
        let ready: Vec<_> = ready;
        ready.into_iter().map(|(_, waiting)| waiting).collect()
    }
}
