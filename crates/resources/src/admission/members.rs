//! The grants of a reservation.

use signalbox_core::{Key, RareVec};

/// The grants of a reservation, the newest last. The list of a single one, which most reservations have, takes no memory of
/// its own.
#[derive(Debug, Default)]
pub(crate) struct Members {
    older: RareVec<Key>,
    /// The key of no record if there is no grant.
    newest: Key,
}

impl Members {
    pub(crate) fn of(one: Key) -> Self {
        Self { older: RareVec::new(), newest: one }
    }

    pub(crate) fn push(&mut self, key: Key) {
        let before = core::mem::replace(&mut self.newest, key);
        if before != Key::default() {
            self.older.push(before);
        }
    }

    pub(crate) fn remove(&mut self, key: Key) {
        if self.newest == key {
            self.newest = self.older.last().copied().unwrap_or_default();
        }
        let next = self.newest;
        self.older.retain(|older| *older != key && *older != next);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.newest == Key::default()
    }

    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    pub(crate) fn newest(&self) -> Option<Key> {
        Some(self.newest).filter(|key| *key != Key::default())
    }

    /// The grants, the newest last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Key> {
        self.older.iter().copied().chain(self.newest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stays_last() {
        let [a, b, c] = [1, 2, 3].map(|n| Key::from_u64(1 << 32 | n));
        let mut members = Members::of(a);
        let keys = |members: &Members| members.iter().collect::<Vec<_>>();
        members.push(b);
        members.push(c);
        assert_eq!((keys(&members), members.newest(), members.len()), (vec![a, b, c], Some(c), 3));
        members.remove(b);
        assert_eq!(keys(&members), [a, c]);
        members.remove(c);
        assert_eq!((keys(&members), members.is_empty()), (vec![a], false));
        members.push(b);
        members.remove(a);
        members.remove(a);
        assert_eq!(keys(&members), [b]);
        members.remove(b);
        assert_eq!((keys(&members), members.is_empty(), members.newest()), (vec![], true, None));
    }
}
