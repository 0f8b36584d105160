//! The neighbors to which the data of sessions go, as the lookups of discoveries name them.
//!
//! Another router can take over the address of a gateway (VRRP, RFC 5798), and no route changes: the next hop is then found by a new discovery.
//! The sessions that this concerns are those whose destination has this gateway here. The table has a fixed number of places: the
//! hash of a destination selects its place, and a new one replaces the one in it, whose sessions then follow with their next refresh.

use core::net::IpAddr;

use signalbox_core::IfIndex;
use signalbox_core::index::KeyedHasher;
use signalbox_core::node::{NoRoute, Route};

/// Destinations whose gateway is kept.
const PLACES: usize = 4096;

/// A neighbor: its link and its address.
pub(super) type Neighbor = (IfIndex, IpAddr);

#[derive(Debug)]
pub(super) struct Egresses {
    hasher: KeyedHasher,
    /// Empty until the first lookup.
    places: Vec<Option<(IpAddr, Neighbor)>>,
}

impl Egresses {
    pub(super) const fn new(hasher: KeyedHasher) -> Self {
        Self { hasher, places: Vec::new() }
    }

    fn place(&self, dst: IpAddr) -> usize {
        let hash = match dst {
            IpAddr::V4(v4) => self.hasher.hash_octets(&v4.octets()),
            IpAddr::V6(v6) => self.hasher.hash_octets(&v6.octets()),
        };
        usize::try_from(hash % PLACES as u64).unwrap_or(0)
    }

    /// The kernel sends what is for a destination by this route.
    pub(super) fn note(&mut self, dst: IpAddr, route: Result<Route, NoRoute>) {
        let to = route.ok().filter(|route| !route.local);
        let to = to.map(|route| (dst, (route.ifindex, route.gateway.unwrap_or(dst))));
        if self.places.is_empty() && to.is_some() {
            self.places.resize(PLACES, None);
        }
        let at = self.place(dst);
        if let Some(place) = self.places.get_mut(at) {
            *place = to;
        }
    }

    /// Whether what is for a destination goes to this neighbor.
    pub(super) fn leads_to(&self, dst: IpAddr, neighbor: Neighbor) -> bool {
        self.places.get(self.place(dst)).is_some_and(|place| *place == Some((dst, neighbor)))
    }
}
