//! The reservations of each flow at an interface.

use core::net::IpAddr;

use hashbrown::HashTable;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{IfIndex, Key, KeyedHasher, Slab, invariant};

use super::group::Group;

/// A table of reservations by their flows. The flows are stored in the reservations, so that an entry takes 8 octets.
/// The entry keeps its hash, so that the table can grow without reading them.
#[derive(Debug)]
pub(super) struct Flows {
    hasher: KeyedHasher,
    table: HashTable<Entry>,
}

#[derive(Debug)]
struct Entry {
    hash: u32,
    group: u32,
}

/// The table's hash: it looks at the high bits and at the low ones.
const fn spread(hash: u32) -> u64 {
    (hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Flows {
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        Self { hasher, table: HashTable::new() }
    }

    #[expect(clippy::cast_possible_truncation, reason = "half of the hash")]
    pub(super) fn hash(&self, ifindex: IfIndex, filter: &FlowFilter) -> u32 {
        // A missing value and 0 may have the same hash. The comparison distinguishes them.
        let ports = u32::from(filter.src_port.unwrap_or(0)) << 16 | u32::from(filter.dst_port.unwrap_or(0));
        let lengths = [filter.src.len, filter.dst.len];
        let kind = [filter.protocol.unwrap_or(0), filter.dscp.unwrap_or(0)];
        let other = filter.flow_label.unwrap_or(0) ^ filter.spi.unwrap_or(0);
        let ([l1, l0], [k1, k0]) = (lengths, kind);
        let rest = [ports, u32::from_ne_bytes([l1, l0, k1, k0]), other, ifindex.0].map(u32::to_ne_bytes);
        let hash = match (filter.src.addr, filter.dst.addr) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let [ports, kinds, other, ifindex] = rest;
                let words = [src.octets(), dst.octets(), ports, kinds, other, ifindex];
                self.hasher.hash_octets(words.as_flattened())
            }
            (src, dst) => self.hasher.hash_one(&(src, dst, rest)),
        };
        hash as u32
    }

    /// Whether a reservation that has a flow of this hash is one that `is_it` names. Several have it at different times: those are
    /// few (see `timed`).
    pub(super) fn has(
        &self,
        groups: &Slab<Group>,
        (ifindex, filter): (IfIndex, &FlowFilter),
        hash: u32,
        is_it: impl Fn(Key, &Group) -> bool,
    ) -> bool {
        let found = self.table.find(spread(hash), |entry| {
            let group = invariant!(groups.get_index(entry.group), "a flow is of a reservation")
                .filter(|_| entry.hash == hash);
            let group = group.filter(|group| group.ifindex == ifindex && group.filters.contains(filter));
            group.zip(groups.key_of(entry.group)).is_some_and(|(group, key)| is_it(key, group))
        });
        found.is_some()
    }

    /// Enters the flows of a reservation. `only` is the hash of its only flow, if known.
    pub(super) fn insert(&mut self, key: Key, group: &Group, only: Option<u32>) {
        for filter in group.filters.iter() {
            let hash = only.unwrap_or_else(|| self.hash(group.ifindex, &filter));
            let entry = Entry { hash, group: key.index() };
            self.table.insert_unique(spread(hash), entry, |entry| spread(entry.hash));
        }
    }

    /// Removes the flows of a reservation, whose record still has them.
    pub(super) fn remove(&mut self, key: Key, group: &Group) {
        for filter in group.filters.iter() {
            let hash = self.hash(group.ifindex, &filter);
            let same_entry = |entry: &Entry| entry.hash == hash && entry.group == key.index();
            if let Ok(entry) = self.table.find_entry(spread(hash), same_entry) {
                entry.remove();
            }
        }
    }
}
