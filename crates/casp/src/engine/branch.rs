//! The previous hops, or the next hops, of a session (section 10.1 of the draft).

use signalbox_core::stamp::Moment;
use signalbox_core::{Key, RareVec, Time};

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
    pub(super) proved: Proved,
    /// The channel by which it came is protected.
    pub(super) protected: bool,
    /// Its last message crossed a hop without channel security.
    pub(super) tainted: bool,
    /// How it was made.
    pub(super) made_by: MadeBy,
}

/// How a branch was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MadeBy {
    /// By a connection: datagrams of its node do not count without a cookie.
    Connection,
    /// By a datagram, so that datagrams of its node count. That node has returned a cookie, or has a connection.
    Answered,
    /// By a datagram of a node in `neighbors`: nothing proves its address.
    Unproved,
}

impl MadeBy {
    /// By a datagram or not, of a node that received something at its address or not.
    pub(super) const fn new(datagram: bool, answered: bool) -> Self {
        match (datagram, answered) {
            (false, _) => Self::Connection,
            (true, true) => Self::Answered,
            (true, false) => Self::Unproved,
        }
    }
}

/// Messages of a branch, up to 127: the second one proves that it stands. The first bit: its node was the last one that left this
/// side before, and what it sent then may arrive after a lost link only now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Proved(u8);

impl Proved {
    const RETURNED: u8 = 0x80;

    pub(super) const fn by(messages: u8) -> Self {
        Self(messages)
    }

    pub(super) const fn messages(self) -> u8 {
        self.0 & !Self::RETURNED
    }

    pub(super) const fn one_more(&mut self) {
        if self.messages() < !Self::RETURNED {
            self.0 += 1;
        }
    }

    const fn of_returned(self, returned: bool) -> Self {
        Self(if returned { self.0 | Self::RETURNED } else { self.0 })
    }

    /// Whether a tear-down of the branch may be about the one that its node was before.
    pub(super) const fn may_be_former(self) -> bool {
        self.0 & Self::RETURNED != 0 && self.messages() < 2
    }
}

impl Branch {
    /// The key of no peer: the clients of this node.
    pub(super) const LOCAL: Key = Key::from_u64(0);

    pub(super) fn is_local(&self) -> bool {
        self.peer == Self::LOCAL
    }

    /// Whether datagrams of its node count.
    pub(super) fn takes_datagrams(&self) -> bool {
        self.made_by != MadeBy::Connection
    }

    /// Whether datagrams of its node come from a node that has answered at this address.
    pub(super) fn proves_datagrams(&self) -> bool {
        self.made_by == MadeBy::Answered
    }

    /// Notes another way in which its node was found.
    pub(super) fn also_by(&mut self, datagram: bool, answered: bool) {
        let answered = answered || self.made_by != MadeBy::Unproved;
        self.made_by = MadeBy::new(datagram || self.takes_datagrams(), answered);
    }
}

/// The hops of one side. The most recent one is used.
#[derive(Debug, Default)]
pub(super) struct Side {
    last: Option<Branch>,
    /// The others, in the order in which they joined: their numbers start at 0 again after the largest one. Most sessions have none.
    others: RareVec<Branch>,
    /// How many of them, at the end, joined later than the most recent one.
    later: u8,
    /// The mark of the node that left last; 0: none has left.
    left: u8,
    next_id: u16,
}

/// A few bits of a node's key: two nodes may have the same.
const fn mark(peer: Key) -> u8 {
    (peer.to_u64() % 255) as u8 + 1
}

impl Side {
    /// The most recent branch.
    pub(super) const fn last(&self) -> Option<&Branch> {
        self.last.as_ref()
    }

    pub(super) const fn last_mut(&mut self) -> Option<&mut Branch> {
        self.last.as_mut()
    }

    /// The branches besides the most recent one.
    pub(super) fn others(&self) -> impl Iterator<Item = &Branch> {
        self.others.iter()
    }

    /// Those that joined before the most recent one, the oldest first.
    pub(super) fn older(&self) -> impl Iterator<Item = &Branch> {
        self.others.iter().take(self.joined_before())
    }

    fn joined_before(&self) -> usize {
        self.others.len().saturating_sub(self.later.into())
    }

    /// All branches, the most recent one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Branch> {
        self.last.iter().chain(self.others())
    }

    pub(super) fn get(&self, peer: Key) -> Option<&Branch> {
        self.iter().find(|branch| branch.peer == peer)
    }

    pub(super) fn by_id(&self, id: u16) -> Option<&Branch> {
        self.iter().find(|branch| branch.id == id)
    }

    pub(super) fn get_mut(&mut self, peer: Key) -> Option<&mut Branch> {
        self.last.iter_mut().chain(self.others.iter_mut()).find(|branch| branch.peer == peer)
    }

    pub(super) fn is_last(&self, peer: Key) -> bool {
        self.last.is_some_and(|branch| branch.peer == peer)
    }

    pub(super) fn is_full(&self) -> bool {
        self.iter().count() >= MAX
    }

    /// The next number that none of the few branches has.
    fn take_id(&mut self) -> u16 {
        while self.by_id(self.next_id).is_some() {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        id
    }

    /// Adds a branch of a new hop with a new number. As the most recent one if `newest`. A side that is full takes none.
    pub(super) fn add(&mut self, branch: Branch, newest: bool) -> Option<u16> {
        if self.is_full() {
            return None;
        }
        let proved = branch.proved.of_returned(self.left == mark(branch.peer));
        let branch = Branch { id: self.take_id(), proved, ..branch };
        if self.last.is_none() {
            self.last = Some(branch);
            return Some(branch.id);
        }
        let displaced = if newest { self.last.replace(branch) } else { None };
        if let Some(displaced) = displaced {
            let at = self.joined_before();
            self.others.insert(at, displaced);
            self.later = 0;
        } else {
            self.others.push(branch);
            self.later += 1;
        }
        Some(branch.id)
    }

    /// Makes another branch the most recent one, with a new number.
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
            self.left = mark(peer);
            let removed = self.last.take();
            let newest = self.others.len().checked_sub(1);
            self.last = newest.map(|at| self.others.swap_remove(at));
            self.later = 0;
            return removed;
        }
        let at = self.others.iter().position(|branch| branch.peer == peer)?;
        if at >= self.joined_before() {
            self.later -= 1;
        }
        self.left = mark(peer);
        let removed = self.others.get(at).copied();
        self.others.retain(|branch| branch.peer != peer);
        removed
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
            proved: Proved::default(),
            protected: false,
            tainted: true,
            made_by: MadeBy::Connection,
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
        assert!(
            side.last().is_none() && side.others.is_empty() && side.expired(Time::from_secs(99)).is_none()
        );
    }

    /// A branch that joined without becoming the most recent one is no older one, until another one becomes it.
    #[test]
    fn what_joined_later_is_no_older_one() {
        let mut side = Side::default();
        for (peer, newest) in [(1, true), (2, true), (3, false)] {
            side.add(branch(peer), newest);
        }
        let older = |side: &Side| side.older().map(|branch| branch.peer).collect::<Vec<_>>();
        assert_eq!((older(&side), side.others().count()), (vec![key(1)], 2));
        side.remove(key(3));
        assert_eq!(older(&side), [key(1)]);
        side.add(branch(3), false);
        side.add(branch(4), true);
        assert_eq!(older(&side), [1, 2, 3].map(key));
    }

    /// More changes of routes than there are numbers, while one branch stands all the time: no two branches have one number, the first
    /// one stays the oldest, and the most recent of the others takes the place.
    #[test]
    fn numbers_start_again() {
        let mut side = Side::default();
        (1..=4).for_each(|peer| {
            side.add(branch(peer), true);
        });
        for round in 0..=u64::from(u16::MAX) {
            let (newer, older) = (2 + round % 2, 3 - round % 2);
            assert!(side.promote(key(newer)).is_some());
            let mut ids: Vec<_> = side.iter().map(|branch| branch.id).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), 4, "round {round}");
            assert_eq!(side.by_id(0).map(|branch| branch.peer), Some(key(1)));
            assert_eq!(side.older().next().map(|branch| branch.peer), Some(key(1)));
            if round > 0 {
                let removed = side.remove(key(newer)).unwrap();
                assert!(side.is_last(key(older)), "round {round}");
                side.add(removed, true);
            }
        }
    }
}
