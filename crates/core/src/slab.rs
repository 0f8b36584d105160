//! Storage for state: records addressed by a small index and a generation.
//!
//! A record never moves and growth never copies: storage comes in chunks of 512 slots (64 with debug assertions,
//! because tests and fuzzing make many small nodes). Free slots are used again, the last freed first, with a new
//! generation, so that a stale [`Key`] is recognised. An entry costs the record, 4 octets of generation and, if the
//! record has no spare bit pattern, one tag with its alignment. Chunks stay allocated: memory follows the highest
//! number of records at one time.

use core::fmt;

use crate::invariant;

/// Records that one call of [`Slab::walk`] visits at most.
pub const WALK_RECORDS: u32 = 256;
/// Slots that one call of [`Slab::walk`] looks at, at most. Free slots cost little.
pub const WALK_SLOTS: u32 = 4096;

/// Slots in a chunk.
const CHUNK: u32 = if cfg!(debug_assertions) { 64 } else { 512 };
/// End of the free list.
const NONE: u32 = u32::MAX;

/// Key of a record: its slot and its generation, which counts the successive records of the slot. A
/// generation is never 0, so `Key::default()` and `Key::from_u64(0)` match no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// A key that matches no record.
    pub const NONE: Self = Self { index: 0, generation: 0 };

    /// The slot. Tables and timers that live as long as the record may use it alone.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// The generation: the number of the record among the successive records of the slot.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// The key as a number, for use as a handle.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The key of a handle. Any number is safe, since a wrong one matches no record.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the two halves are taken apart")]
    pub const fn from_u64(handle: u64) -> Self {
        Self { index: handle as u32, generation: (handle >> 32) as u32 }
    }
}

/// Error of a table that has reached its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("table full")
    }
}

impl core::error::Error for Full {}

/// Records with stable indexes; the module describes them.
#[derive(Debug, Clone)]
pub struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    len: u32,
    limit: u32,
    free: u32,
}

/// Chunks are arrays, so that one comparison finds a slot. Generations have an array of their own, because
/// beside a record each would take the 8 octets of its alignment.
#[derive(Debug, Clone)]
struct Chunk<T> {
    generations: Box<[u32; CHUNK as usize]>,
    states: Box<[State<T>; CHUNK as usize]>,
}

#[derive(Debug, Clone)]
enum State<T> {
    Used(T),
    /// The next slot on the free list.
    Free(u32),
}

impl<T> Slab<T> {
    /// An empty slab that will hold at most `limit` records. It allocates nothing yet.
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        // `u32::MAX` marks the end of the list and cannot be an index: a limit of `u32::MAX` gives indexes up
        // to MAX - 1.
        Self { chunks: Vec::new(), len: 0, limit, free: NONE }
    }

    /// Stores a record and returns its key.
    ///
    /// # Errors
    /// Returns [`Full`] when the limit is reached; the record is dropped.
    pub fn insert(&mut self, value: T) -> Result<Key, Full> {
        if self.len >= self.limit {
            return Err(Full);
        }
        if self.free == NONE {
            self.grow()?;
        }
        let index = self.free;
        if let Some((generation, state)) = invariant!(self.slot_mut(index), "the free list names slots")
            && let State::Free(next) = *state
        {
            let generation = *generation;
            *state = State::Used(value);
            self.free = next;
            self.len += 1;
            return Ok(Key { index, generation });
        }
        Err(Full) // the free list holds free slots only
    }

    /// Adds a chunk of free slots. The free list must be empty.
    fn grow(&mut self) -> Result<(), Full> {
        let chunks = u32::try_from(self.chunks.len()).map_err(|_| Full)?;
        let first = chunks.checked_mul(CHUNK).ok_or(Full)?;
        let behind = first.checked_add(CHUNK).ok_or(Full)?;
        let link = |index: u32| if index + 1 < behind { index + 1 } else { NONE };
        let states: Vec<State<T>> = (first..behind).map(|index| State::Free(link(index))).collect();
        let states = states.into_boxed_slice().try_into().map_err(|_| Full)?;
        self.chunks.push(Chunk { generations: Box::new([1; CHUNK as usize]), states });
        self.free = first;
        Ok(())
    }

    /// The record of `key`, unless it was removed.
    #[must_use]
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        match self.slot(key.index)? {
            (generation, State::Used(value)) if generation == key.generation => Some(value),
            _ => None,
        }
    }

    /// The record of `key`, unless it was removed.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        match self.slot_mut(key.index)? {
            (generation, State::Used(value)) if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    /// The present record of slot `index`.
    #[must_use]
    #[inline]
    pub fn get_index(&self, index: u32) -> Option<&T> {
        match self.slot(index)?.1 {
            State::Used(value) => Some(value),
            State::Free(_) => None,
        }
    }

    /// The present record of slot `index`.
    #[must_use]
    #[inline]
    pub fn get_index_mut(&mut self, index: u32) -> Option<&mut T> {
        match self.slot_mut(index)?.1 {
            State::Used(value) => Some(value),
            State::Free(_) => None,
        }
    }

    /// The present record of slot `index`, and its key.
    #[must_use]
    #[inline]
    pub fn entry(&self, index: u32) -> Option<(Key, &T)> {
        match self.slot(index)? {
            (generation, State::Used(value)) => Some((Key { index, generation }, value)),
            _ => None,
        }
    }

    /// Key of the present record of slot `index`.
    #[must_use]
    pub fn key_of(&self, index: u32) -> Option<Key> {
        match self.slot(index)? {
            (generation, State::Used(_)) => Some(Key { index, generation }),
            _ => None,
        }
    }

    /// Removes a record. Its key and all copies of it are stale from then on.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let free = self.free;
        let (generation, state) = self.slot_mut(key.index)?;
        if *generation != key.generation || matches!(state, State::Free(_)) {
            return None;
        }
        // Generation 0 is skipped when the generations of a slot wrap after 2^32 - 1 records.
        *generation = generation.checked_add(1).unwrap_or(1);
        let State::Used(value) = core::mem::replace(state, State::Free(free)) else {
            return None; // excluded above
        };
        self.free = key.index;
        self.len -= 1;
        Some(value)
    }

    /// Removes a record like [`Slab::remove`], and drops it in its place. Returns whether there was one.
    pub fn discard(&mut self, key: Key) -> bool {
        let free = self.free;
        let Some((generation, state)) = self.slot_mut(key.index) else { return false };
        if *generation != key.generation || matches!(state, State::Free(_)) {
            return false;
        }
        *generation = generation.checked_add(1).unwrap_or(1);
        *state = State::Free(free);
        self.free = key.index;
        self.len -= 1;
        true
    }

    /// Number of records.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether the slab is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Limit on the number of records.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// Sets the limit. Records beyond a lower limit stay, and no further record is stored until the number is below it.
    pub const fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// All records, by ascending index.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.generations.iter().zip(chunk.states.iter()));
        (0u32..).zip(slots).filter_map(|(index, (generation, state))| match state {
            State::Used(value) => Some((Key { index, generation: *generation }, value)),
            State::Free(_) => None,
        })
    }

    /// All records, by ascending index.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        let chunks = self.chunks.iter_mut();
        let slots = chunks.flat_map(|chunk| chunk.generations.iter().zip(chunk.states.iter_mut()));
        (0u32..).zip(slots).filter_map(|(index, (generation, state))| match state {
            State::Used(value) => Some((Key { index, generation: *generation }, value)),
            State::Free(_) => None,
        })
    }

    /// Visits records by ascending index from slot `from` on, until `visit` returns false, and [`WALK_RECORDS`] or
    /// [`WALK_SLOTS`] at most. The result is the slot where the next call goes on; `None` after the last slot.
    ///
    /// Several calls visit each record once that stands during all of them, whatever is inserted or removed in between.
    pub fn walk(&self, from: u32, mut visit: impl FnMut(Key, &T) -> bool) -> Option<u32> {
        // All slots have an index, so that their number fits.
        let end = u32::try_from(self.chunks.len()).unwrap_or(u32::MAX).saturating_mul(CHUNK);
        let (mut at, mut records) = (from, 0);
        let last = end.min(from.saturating_add(WALK_SLOTS));
        while at < last && records < WALK_RECORDS {
            let entry = self.entry(at);
            at += 1;
            if let Some((key, record)) = entry {
                records += 1;
                if !visit(key, record) {
                    break;
                }
            }
        }
        (at < end).then_some(at)
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<(u32, &State<T>)> {
        let (chunk, at) = (index / CHUNK, index % CHUNK);
        let chunk = self.chunks.get(chunk as usize)?;
        Some((chunk.generations[at as usize], &chunk.states[at as usize]))
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> Option<(&mut u32, &mut State<T>)> {
        let (chunk, at) = (index / CHUNK, index % CHUNK);
        let chunk = self.chunks.get_mut(chunk as usize)?;
        Some((&mut chunk.generations[at as usize], &mut chunk.states[at as usize]))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_stale_key_names_nothing() {
        let mut slab = Slab::new(2);
        let first = slab.insert("a").unwrap();
        assert_eq!(slab.remove(first), Some("a"));
        let second = slab.insert("b").unwrap();
        assert_eq!((first.index(), slab.get(first)), (second.index(), None));
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"b"));
        assert_eq!(slab.get(Key::default()), None);
    }

    #[test]
    fn the_limit_holds_and_a_removal_makes_room() {
        let mut slab = Slab::new(2);
        let key = slab.insert(1).unwrap();
        slab.insert(2).unwrap();
        assert_eq!(slab.insert(3), Err(Full));
        slab.remove(key);
        assert!(slab.insert(3).is_ok());
        assert_eq!(Slab::new(0).insert(0), Err(Full));
    }

    #[test]
    fn records_beyond_a_lower_limit_stay() {
        let mut slab = Slab::new(4);
        let keys: Vec<Key> = (0..3).map(|n| slab.insert(n).unwrap()).collect();
        slab.set_limit(2);
        assert_eq!((slab.insert(9), slab.len()), (Err(Full), 3));
        slab.remove(keys[0]);
        assert_eq!(slab.insert(9), Err(Full));
        slab.remove(keys[1]);
        assert!(slab.insert(9).is_ok() && slab.get(keys[2]) == Some(&2));
    }

    #[test]
    fn a_key_survives_being_a_handle() {
        let key = Key { index: 0xdead_beef, generation: 7 };
        assert_eq!(Key::from_u64(key.to_u64()), key);
        assert_eq!(Slab::<u8>::new(1).get(Key::from_u64(u64::MAX)), None);
    }

    #[test]
    fn a_walk_in_portions_visits_each_record_that_stays_once() {
        let mut slab = Slab::new(20_000);
        let keys: Vec<Key> = (0..10_000u32).map(|n| slab.insert(n).unwrap()).collect();
        // A long run of free slots, and records that go while the walk goes on.
        for key in &keys[600..9000] {
            slab.remove(*key);
        }
        let (mut seen, mut from, mut calls) = (Vec::new(), Some(0), 0);
        while let Some(at) = from {
            let before = seen.len();
            from = slab.walk(at, |_, n| {
                seen.push(*n);
                true
            });
            assert!(seen.len() - before <= WALK_RECORDS as usize);
            assert!(from.is_none_or(|next| next - at <= WALK_SLOTS));
            // Already visited: the rows behind it do not shift.
            slab.remove(keys[calls]);
            calls += 1;
        }
        assert_eq!(seen, (0..600).chain(9000..10_000).collect::<Vec<_>>());

        let mut visited = Vec::new();
        let next = slab.walk(9000, |_, n| {
            visited.push(*n);
            false
        });
        assert_eq!((visited, next), (vec![9000], Some(9001)), "the visitor ends a portion");
        assert_eq!(slab.walk(u32::MAX, |_, _| true), None);
    }

    #[test]
    fn records_do_not_move_when_the_slab_grows() {
        let mut slab = Slab::new(10_000);
        let key = slab.insert(0u64).unwrap();
        let before = core::ptr::from_ref(slab.get(key).unwrap());
        for n in 1..5000 {
            slab.insert(n).unwrap();
        }
        assert!(core::ptr::eq(before, slab.get(key).unwrap()));
    }

    proptest! {
        /// Compares the slab with a map from key to value.
        #[test]
        fn behaves_like_a_map(steps in prop::collection::vec((0u8..3, any::<u16>()), 0..2000)) {
            let mut slab = Slab::new(600);
            let mut model = BTreeMap::new();
            let mut gone = Vec::new();
            for (kind, n) in steps {
                if kind < 2 {
                    match slab.insert(n) {
                        Ok(key) => prop_assert_eq!(model.insert(key, n), None),
                        Err(Full) => prop_assert_eq!(model.len(), 600),
                    }
                } else if let Some(&key) = model.keys().nth(usize::from(n) % model.len().max(1)) {
                    let known = model.remove(&key);
                    if n % 2 == 0 {
                        prop_assert_eq!(slab.remove(key), known);
                    } else {
                        prop_assert!(slab.discard(key) && !slab.discard(key));
                    }
                    gone.push(key);
                }
            }
            prop_assert_eq!(slab.len() as usize, model.len());
            prop_assert!(slab.iter().map(|(k, v)| (k, *v)).eq(model.iter().map(|(k, v)| (*k, *v))));
            for (key, value) in &model {
                prop_assert_eq!(slab.get(*key), Some(value));
                prop_assert_eq!(slab.key_of(key.index()), Some(*key));
                prop_assert_eq!(slab.entry(key.index()), Some((*key, value)));
            }
            prop_assert!(gone.iter().all(|key| slab.get(*key).is_none()));
        }
    }
}
