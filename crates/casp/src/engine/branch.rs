//! The previous hops, or the next hops, of a session (section 10.1 of the draft).

use signalbox_core::stamp::Moment;
use signalbox_core::{Key, Time};

/// Most branches of one side.
pub(super) const MAX: usize = 4;

/// A hop of a session. [`Branch::LOCAL`] is the previous hop of a session that a client of this node opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Branch {
    pub(super) peer: Key,
    /// When it ends without a message.
    pub(super) until: Moment,
    /// Its number, local to one side of one session.
    pub(super) id: u16,
    /// Messages of it, up to 2: the second one proves that the branch stands.
    pub(super) proved: u8,
    /// The channel by which it came is protected.
    pub(super) protected: bool,
    /// Its last message crossed a hop without channel security.
    pub(super) tainted: bool,
    /// It was made by a datagram, so that datagrams of its node count.
    pub(super) datagram: bool,
}

impl Branch {
    /// The key of no peer: the clients of this node.
    pub(super) const LOCAL: Key = Key::from_u64(0);

    pub(super) fn is_local(&self) -> bool {
        self.peer == Self::LOCAL
    }
}

/// The hops of one side. The most recent one is used.
#[derive(Debug, Default)]
pub(super) struct Side {
    last: Option<Branch>,
    /// Older branches; most sessions have none.
    older: Option<Box<[Option<Branch>; MAX - 1]>>,
    next_id: u16,
}

impl Side {
    /// The most recent branch.
    pub(super) const fn last(&self) -> Option<&Branch> {
        self.last.as_ref()
    }

    pub(super) const fn last_mut(&mut self) -> Option<&mut Branch> {
        self.last.as_mut()
    }

    /// The older branches.
    pub(super) fn older(&self) -> impl Iterator<Item = &Branch> {
        self.older.iter().flat_map(|older| older.iter().flatten())
    }

    /// All branches, the most recent one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Branch> {
        self.last.iter().chain(self.older())
    }

    pub(super) fn get(&self, peer: Key) -> Option<&Branch> {
        self.iter().find(|branch| branch.peer == peer)
    }

    pub(super) fn by_id(&self, id: u16) -> Option<&Branch> {
        self.iter().find(|branch| branch.id == id)
    }

    pub(super) fn get_mut(&mut self, peer: Key) -> Option<&mut Branch> {
        let older = self.older.iter_mut().flat_map(|older| older.iter_mut().flatten());
        self.last.iter_mut().chain(older).find(|branch| branch.peer == peer)
    }

    pub(super) fn is_last(&self, peer: Key) -> bool {
        self.last.is_some_and(|branch| branch.peer == peer)
    }

    pub(super) fn is_full(&self) -> bool {
        self.iter().count() >= MAX
    }

    fn take_id(&mut self) -> u16 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        id
    }

    /// Adds a branch of a new hop with a new number. As the most recent one if `newest`. A side that is full takes none.
    pub(super) fn add(&mut self, branch: Branch, newest: bool) -> Option<u16> {
        if self.is_full() {
            return None;
        }
        let branch = Branch { id: self.take_id(), ..branch };
        if self.last.is_none() {
            self.last = Some(branch);
            return Some(branch.id);
        }
        let displaced = if newest { self.last.replace(branch) } else { Some(branch) };
        self.put_older(displaced);
        Some(branch.id)
    }

    fn put_older(&mut self, branch: Option<Branch>) {
        let Some(branch) = branch else { return };
        let older = self.older.get_or_insert_default();
        if let Some(place) = older.iter_mut().find(|place| place.is_none()) {
            *place = Some(branch);
        }
    }

    /// Makes an older branch the most recent one, with a new number.
    pub(super) fn promote(&mut self, peer: Key) -> Option<u16> {
        if self.is_last(peer) {
            return None;
        }
        let branch = self.remove(peer)?;
        self.add(branch, true)
    }

    /// Removes a branch. If it was the most recent one, the most recent of the others takes its place.
    pub(super) fn remove(&mut self, peer: Key) -> Option<Branch> {
        if self.is_last(peer) {
            let removed = self.last.take();
            let newest = self.older().max_by_key(|branch| branch.id).map(|branch| branch.peer);
            self.last = newest.and_then(|peer| self.take_older(peer));
            return removed;
        }
        self.take_older(peer)
    }

    fn take_older(&mut self, peer: Key) -> Option<Branch> {
        let older = self.older.as_mut()?;
        let place = older.iter_mut().find(|place| place.is_some_and(|branch| branch.peer == peer))?;
        let taken = place.take();
        if older.iter().all(Option::is_none) {
            self.older = None;
        }
        taken
    }

    /// A branch whose time is over.
    pub(super) fn expired(&self, now: Time) -> Option<Branch> {
        self.iter().find(|branch| branch.until.is_due(now)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(peer: u64) -> Branch {
        Branch {
            peer: Key::from_u64(1 << 32 | peer),
            until: Time::from_secs(peer).into(),
            id: 0,
            proved: 0,
            protected: false,
            tainted: true,
            datagram: false,
        }
    }

    fn key(peer: u64) -> Key {
        branch(peer).peer
    }

    /// CASP-6.1-04, CASP-6.1-05, CASP-6.1-06: numbers count from 0 on each side, and the most recent is known.
    #[test]
    fn numbers_are_those_of_one_side() {
        let (mut previous, mut next) = (Side::default(), Side::default());
        assert_eq!([1, 2, 3].map(|peer| previous.add(branch(peer), true)), [Some(0), Some(1), Some(2)]);
        assert_eq!(next.add(branch(9), true), Some(0));
        assert_eq!(previous.last().map(|branch| (branch.peer, branch.id)), Some((key(3), 2)));
        assert_eq!(previous.iter().map(|branch| branch.id).collect::<Vec<_>>(), [2, 0, 1]);
    }

    #[test]
    fn the_most_recent_of_the_others_takes_the_place() {
        let mut side = Side::default();
        (1..=4).for_each(|peer| {
            side.add(branch(peer), true);
        });
        assert!(side.is_full() && side.add(branch(5), true).is_none());
        assert_eq!(side.remove(key(4)).map(|branch| branch.id), Some(3));
        assert!(side.is_last(key(3)));
        assert_eq!(side.promote(key(1)), Some(4));
        assert!(side.is_last(key(1)) && side.promote(key(1)).is_none());
        assert_eq!(side.add(branch(6), false), Some(5));
        assert!(side.is_last(key(1)));
        for peer in [1, 2, 3, 6] {
            assert!(side.remove(key(peer)).is_some(), "{peer}");
        }
        assert!(side.last().is_none() && side.older.is_none() && side.expired(Time::from_secs(99)).is_none());
    }
}
