//! The reservation of each session at an interface.

use signalbox_core::index::Index;
use signalbox_core::{IfIndex, Key, KeyedHasher, ReserverId, Slab, invariant};

use super::group::Group;
use crate::request::Session;

/// An interface, and a session of a protocol.
type Place = (IfIndex, ReserverId, Session);

/// A table of reservations by their sessions, which are stored in the reservations.
#[derive(Debug)]
pub(super) struct Sessions {
    hasher: KeyedHasher,
    index: Index,
}

fn hash_of(hasher: &KeyedHasher, (ifindex, protocol, session): Place) -> u64 {
    let [number, place] = [session.number(), u64::from(ifindex.0) << 8 | u64::from(protocol.0)];
    hasher.hash_octets([number, place].map(u64::to_ne_bytes).as_flattened())
}

fn place_of(group: &Group) -> Option<Place> {
    Some((group.ifindex, group.protocol, group.session?))
}

impl Sessions {
    pub(super) const fn new(hasher: KeyedHasher) -> Self {
        Self { hasher, index: Index::new() }
    }

    /// The reservation of a session.
    pub(super) fn find(&self, groups: &Slab<Group>, place: Place) -> Option<Key> {
        let is = |at| {
            invariant!(groups.get_index(at), "an index entry is a reservation").and_then(place_of)
                == Some(place)
        };
        groups.key_of(self.index.find(hash_of(&self.hasher, place), is)?)
    }

    /// Enters a reservation. No other one is of its session.
    pub(super) fn insert(&mut self, groups: &Slab<Group>, place: Place, key: Key) {
        let hasher = &self.hasher;
        self.index.insert(hash_of(hasher, place), key.index(), |at| {
            invariant!(groups.get_index(at).and_then(place_of), "a rehashed entry is of a session")
                .map_or(0, |place| hash_of(hasher, place))
        });
    }

    /// Removes a reservation.
    pub(super) fn remove(&mut self, place: Place, key: Key) {
        self.index.remove(hash_of(&self.hasher, place), |at| at == key.index());
    }
}
