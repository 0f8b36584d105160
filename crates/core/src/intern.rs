//! Values that many records share. Each value is stored once, and a record holds a 4-octet id instead.

use core::hash::Hash;

use crate::index::{Index, KeyedHasher};
use crate::invariant;
use crate::slab::{Full, Slab};

/// Table of shared values by id, with reference counts and a limit on the number of values.
#[derive(Debug, Clone)]
pub struct Interner<T> {
    hasher: KeyedHasher,
    entries: Slab<Entry<T>>,
    index: Index,
}

#[derive(Debug, Clone)]
struct Entry<T> {
    value: T,
    references: u32,
}

impl<T: Eq + Hash> Interner<T> {
    /// An empty interner of at most `limit` different values.
    #[must_use]
    pub const fn new(limit: u32, hasher: KeyedHasher) -> Self {
        Self { hasher, entries: Slab::new(limit), index: Index::new() }
    }

    /// Adds a reference to `value` and returns its id. Equal values have equal ids.
    ///
    /// # Errors
    /// Returns [`Full`] when the value is new and the limit is reached.
    pub fn intern(&mut self, value: T) -> Result<u32, Full> {
        let hash = self.hasher.hash_one(&value);
        if let Some(id) = self.position(hash, |own| *own == value) {
            self.retain(id);
            return Ok(id);
        }
        self.insert(hash, value)
    }

    /// [`Interner::intern`] of the value that `make` makes. It is made only if it is new; until then it has the borrowed form
    /// `key`, which must have the hash of the value. `is` compares a value with it.
    ///
    /// # Errors
    /// Returns [`Full`] when the value is new and the limit is reached.
    pub fn intern_borrowed(
        &mut self,
        key: &impl Hash,
        is: impl Fn(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> Result<u32, Full> {
        let hash = self.hasher.hash_one(key);
        if let Some(id) = self.position(hash, is) {
            self.retain(id);
            return Ok(id);
        }
        self.insert(hash, make())
    }

    fn position(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<u32> {
        self.index.find(hash, |id| {
            invariant!(self.entries.get_index(id), "an id is in the index while it has a value")
                .is_some_and(|e| is(&e.value))
        })
    }

    fn insert(&mut self, hash: u64, value: T) -> Result<u32, Full> {
        let Self { hasher, entries, index } = self;
        let id = entries.insert(Entry { value, references: 1 })?.index();
        index.insert(hash, id, |id| {
            invariant!(entries.get_index(id), "the index holds ids of values only")
                .map_or(0, |e| hasher.hash_one(&e.value))
        });
        Ok(id)
    }

    /// The id of `value`, if it is interned. It adds no reference.
    #[must_use]
    pub fn find(&self, value: &T) -> Option<u32> {
        self.position(self.hasher.hash_one(value), |own| own == value)
    }

    /// [`Interner::find`] with a borrowed form of the value, which must have its hash. `is` compares a value with it.
    #[must_use]
    pub fn find_borrowed(&self, key: &impl Hash, is: impl Fn(&T) -> bool) -> Option<u32> {
        self.position(self.hasher.hash_one(key), is)
    }

    /// Adds a reference to `id`. The caller must hold one.
    pub fn retain(&mut self, id: u32) {
        if let Some(entry) = invariant!(self.entries.get_index_mut(id), "an id that is retained has a value")
        {
            entry.references = entry.references.saturating_add(1);
        }
    }

    /// The value of `id`.
    ///
    /// # Panics
    /// It panics if `id` is not interned. The caller must hold a reference. [`Interner::lookup`] does not
    /// panic.
    #[must_use]
    pub fn get(&self, id: u32) -> &T {
        self.lookup(id).expect("an id that holds a reference is interned")
    }

    /// The value of `id`, if it is interned.
    #[must_use]
    pub fn lookup(&self, id: u32) -> Option<&T> {
        self.entries.get_index(id).map(|e| &e.value)
    }

    /// Removes a reference to `id`, which the caller must hold. Returns the value if that was the last reference.
    pub fn release(&mut self, id: u32) -> Option<T> {
        let entry = invariant!(self.entries.get_index_mut(id), "a reference is given back once")?;
        entry.references -= 1;
        if entry.references > 0 {
            return None;
        }
        let hash = self.hasher.hash_one(&entry.value);
        invariant!(self.index.remove(hash, |other| other == id), "each value is in the index");
        let key = self.entries.key_of(id)?;
        self.entries.remove(key).map(|e| e.value)
    }

    /// Number of references to `id`.
    #[must_use]
    pub fn references(&self, id: u32) -> u32 {
        self.entries.get_index(id).map_or(0, |e| e.references)
    }

    /// Number of different values.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.entries.len()
    }

    /// Limit on the number of values.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.entries.limit()
    }

    /// Sets the limit. Values beyond a lower limit stay.
    pub const fn set_limit(&mut self, limit: u32) {
        self.entries.set_limit(limit);
    }

    /// Whether the interner is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Visits values by ascending id; see [`Slab::walk`].
    pub fn walk(&self, from: u32, mut visit: impl FnMut(u32, &T) -> bool) -> Option<u32> {
        self.entries.walk(from, |key, e| visit(key.index(), &e.value))
    }

    /// All values, by ascending id.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().map(|(key, e)| (key.index(), &e.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_an_id_until_the_last_reference_goes() {
        let mut interner = Interner::new(2, KeyedHasher::with_key([0; 16]));
        let a = interner.intern("a").unwrap();
        assert_eq!(interner.intern("a"), Ok(a));
        let b = interner.intern("b").unwrap();
        assert_eq!((interner.get(a), interner.get(b), interner.len()), (&"a", &"b", 2));
        assert_eq!(interner.intern("c"), Err(Full));
        assert_eq!(interner.intern("b"), Ok(b), "a full table still has its values");
        assert_eq!(interner.release(a), None);
        assert_eq!(interner.release(a), Some("a"));
        assert_eq!((interner.lookup(a), interner.find(&"a")), (None, None));
        assert!(interner.intern("c").is_ok());
    }

    #[test]
    fn a_borrowed_form_stands_for_its_value() {
        let mut interner = Interner::new(2, KeyedHasher::with_key([0; 16]));
        let mut intern =
            |name: &str| interner.intern_borrowed(&name, |own: &String| own == name, || name.into());
        let (a, b) = (intern("a").unwrap(), intern("b").unwrap());
        assert_eq!((intern("a"), intern("c")), (Ok(a), Err(Full)));
        assert_eq!(interner.find_borrowed(&"b", |own| own == "b"), Some(b));
        assert_eq!((interner.find(&"a".to_owned()), interner.references(a)), (Some(a), 2));
    }

    #[test]
    fn many_values_are_found_again() {
        let mut interner = Interner::new(5000, KeyedHasher::with_key([3; 16]));
        let ids: Vec<u32> = (0..5000).map(|n: u32| interner.intern(n).unwrap()).collect();
        assert!((0..5000).zip(&ids).all(|(n, id)| interner.find(&n) == Some(*id)));
    }
}
