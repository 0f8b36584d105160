//! Hash tables of record indexes, and the keyed hash that keeps peers from choosing collisions.
//!
//! An entry takes 4 octets and one octet of control. At a load of 7/16 to 7/8 that makes 6 to 12 octets.

use core::hash::{BuildHasher, Hash, Hasher};

use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use crate::rng::Random;

/// SipHash-1-3 under a secret key, for tables whose keys a peer can choose.
#[derive(Clone, Copy)]
pub struct KeyedHasher {
    key: [u64; 2],
}

impl core::fmt::Debug for KeyedHasher {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("KeyedHasher(secret)")
    }
}

impl KeyedHasher {
    /// A hasher with a key from `rng`.
    #[must_use]
    pub fn new(rng: &mut Random) -> Self {
        Self::with_key(rng.array())
    }

    /// A hasher with this key.
    #[must_use]
    pub const fn with_key(key: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, rest @ ..] = key;
        Self { key: [u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes(rest)] }
    }

    /// A hash without octets. Made of two words it is inlined, which a key of 16 octets is not.
    #[inline]
    fn start(self) -> SipHasher13 {
        let [low, high] = self.key;
        SipHasher13::new_with_keys(low, high)
    }

    /// The hash of `value`.
    #[must_use]
    #[inline]
    pub fn hash_one(&self, value: &(impl Hash + ?Sized)) -> u64 {
        BuildHasher::hash_one(self, value)
    }

    /// The hash of `octets`. It suits keys that are already packed and costs a third of [`Self::hash_one`].
    #[must_use]
    #[inline]
    pub fn hash_octets(&self, octets: &[u8]) -> u64 {
        self.start().hash(octets)
    }
}

impl BuildHasher for KeyedHasher {
    type Hasher = BufferedHasher;

    #[inline]
    fn build_hasher(&self) -> BufferedHasher {
        BufferedHasher { hasher: self.start(), row: [0; ROW], used: 0 }
    }
}

/// Octets that [`BufferedHasher`] gathers: more than the keys of our tables have, as a rule.
const ROW: usize = 128;

/// SipHash-1-3 of fields that are gathered into a row of octets first. Field by field the same hash takes three times as many instructions.
#[derive(Clone)]
pub struct BufferedHasher {
    hasher: SipHasher13,
    row: [u8; ROW],
    used: usize,
}

impl core::fmt::Debug for BufferedHasher {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("BufferedHasher(secret)")
    }
}

impl Hasher for BufferedHasher {
    #[inline]
    fn write(&mut self, octets: &[u8]) {
        if let Some(room) = self.row.get_mut(self.used..).and_then(|row| row.get_mut(..octets.len())) {
            room.copy_from_slice(octets);
            self.used += octets.len();
        } else {
            self.hasher.write(self.row.get(..self.used).unwrap_or_default());
            self.hasher.write(octets);
            self.used = 0;
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.hasher.hash(self.row.get(..self.used).unwrap_or_default())
    }
}

/// A hash table of indexes of records that are kept elsewhere. The caller hashes and compares.
#[derive(Debug, Clone, Default)]
pub struct Index {
    table: HashTable<u32>,
}

impl Index {
    /// An empty table. It allocates nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { table: HashTable::new() }
    }

    /// The record with this hash for which `eq` is true.
    #[must_use]
    #[inline]
    pub fn find(&self, hash: u64, mut eq: impl FnMut(u32) -> bool) -> Option<u32> {
        self.table.find(hash, |&index| eq(index)).copied()
    }

    /// All records whose hash may be this one, in no order. The caller compares the keys before use.
    pub fn candidates(&self, hash: u64) -> impl Iterator<Item = u32> {
        self.table.iter_hash(hash).copied()
    }

    /// Enters a record that is not in the table. When the table grows, `rehash` gives the hash of each
    /// present record.
    #[inline]
    pub fn insert(&mut self, hash: u64, index: u32, rehash: impl Fn(u32) -> u64) {
        self.table.insert_unique(hash, index, |&index| rehash(index));
    }

    /// Whether the next insertion makes the table grow.
    #[must_use]
    #[inline]
    pub fn is_full(&self) -> bool {
        self.table.len() == self.table.capacity()
    }

    /// Doubles the capacity of the table and enters the records of `all`, which are those that it holds.
    /// [`Index::insert`] grows the table in the table's own order, which jumps through memory; this function
    /// follows the order of `all`.
    pub fn rebuild(&mut self, all: impl Iterator<Item = u32>, hash: impl Fn(u32) -> u64) {
        let mut table = HashTable::with_capacity(self.table.len().saturating_mul(2));
        for index in all {
            table.insert_unique(hash(index), index, |&index| hash(index));
        }
        self.table = table;
    }

    /// Removes the record with this hash for which `eq` is true.
    #[inline]
    pub fn remove(&mut self, hash: u64, mut eq: impl FnMut(u32) -> bool) -> Option<u32> {
        let entry = self.table.find_entry(hash, |&index| eq(index)).ok()?;
        Some(entry.remove().0)
    }

    /// Reserves capacity, so that `additional` insertions do not make the table grow.
    pub fn reserve(&mut self, additional: usize, rehash: impl Fn(u32) -> u64) {
        self.table.reserve(additional, |&index| rehash(index));
    }

    /// Number of records in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares the table with a sorted map, with hashes that often collide.
        #[test]
        fn behaves_like_a_map(steps in prop::collection::vec((any::<bool>(), 0u8..60), 0..300)) {
            let hash = |name: u8| u64::from(name % 7);
            let mut names = Vec::new();
            let (mut index, mut model) = (Index::new(), BTreeMap::new());
            for (add, name) in steps {
                if add && !model.contains_key(&name) {
                    let at = u32::try_from(names.len()).unwrap();
                    names.push(name);
                    if index.is_full() {
                        index.rebuild(model.values().copied(), |at| hash(names[at as usize]));
                        prop_assert_eq!((index.len(), index.is_full()), (model.len(), model.is_empty()));
                    }
                    index.insert(hash(name), at, |at| hash(names[at as usize]));
                    model.insert(name, at);
                } else {
                    prop_assert_eq!(index.remove(hash(name), |at| names[at as usize] == name), model.remove(&name));
                }
                prop_assert_eq!(index.len(), model.len());
            }
            for (name, at) in model {
                prop_assert_eq!(index.find(hash(name), |at| names[at as usize] == name), Some(at));
                prop_assert!(index.candidates(hash(name)).any(|c| c == at));
            }
        }
    }

    proptest! {
        /// Where a row of fields ends does not count for the hash.
        #[test]
        fn fields_and_their_octets_have_one_hash(fields in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..6)) {
            let hasher = KeyedHasher::with_key([4; 16]);
            let mut gathered = hasher.build_hasher();
            fields.iter().for_each(|field| gathered.write(field));
            prop_assert_eq!(gathered.finish(), hasher.hash_octets(&fields.concat()));
        }
    }

    #[test]
    fn the_hash_depends_on_the_key() {
        let (a, b) = (KeyedHasher::with_key([1; 16]), KeyedHasher::with_key([2; 16]));
        assert_eq!(a.hash_one("x"), a.hash_one("x"));
        assert_ne!(a.hash_one("x"), b.hash_one("x"));
    }
}
