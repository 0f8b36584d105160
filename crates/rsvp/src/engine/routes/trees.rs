//! Multicast routes by group and source, and the senders that follow them.
//!
//! A group may have any number of sessions, and a source any number of senders. Each pair is asked for once. A message
//! costs the same whatever their number is; a change of a route is carried to the senders in parts.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::interfaces::Iface;

/// A group and a source, packed, of an IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) struct Pair {
    pub(in crate::engine) v6: bool,
    pub(in crate::engine) group: u32,
    pub(in crate::engine) source: u32,
}

/// The route of a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) struct Tree {
    /// The incoming interface that routing expects; [`Iface::NONE`]: it expects none.
    pub(in crate::engine) expected: Iface,
    /// The outgoing interfaces.
    pub(in crate::engine) routed: Vec<Iface>,
}

/// All pairs with senders.
#[derive(Debug, Default)]
pub(super) struct Trees {
    /// `None`: the driver was asked and has not answered.
    routes: BTreeMap<Pair, Option<Tree>>,
    /// The senders of each pair, by their numbers.
    senders: BTreeSet<(Pair, u32)>,
    /// New senders of pairs whose route is known.
    new: Vec<(Pair, u32)>,
    /// Pairs whose senders do not all follow the route yet, and the first of these.
    changed: BTreeMap<Pair, u32>,
}

impl Trees {
    /// Enters a sender. Whether the driver has to be asked for the route of its pair.
    pub(in crate::engine) fn enter(&mut self, pair: Pair, sender: u32) -> bool {
        self.senders.insert((pair, sender));
        match self.routes.get(&pair) {
            Some(Some(_)) => self.new.push((pair, sender)),
            Some(None) => {}
            None => {
                self.routes.insert(pair, None);
                return true;
            }
        }
        false
    }

    /// Removes a sender. Whether it was the last one of its pair.
    pub(in crate::engine) fn leave(&mut self, pair: Pair, sender: u32) -> bool {
        let known = self.senders.remove(&(pair, sender));
        let last = known && self.next(pair, 0).is_none();
        if last {
            self.routes.remove(&pair);
            self.changed.remove(&pair);
        }
        last
    }

    /// Stores the route of a pair. Its senders have to follow it from now on.
    pub(in crate::engine) fn set(&mut self, pair: Pair, tree: Tree) {
        if let Some(route) = self.routes.get_mut(&pair) {
            *route = Some(tree);
            self.changed.insert(pair, 0);
        }
    }

    /// The route of a pair, if the driver has answered.
    pub(in crate::engine) fn route(&self, pair: Pair) -> Option<&Tree> {
        self.routes.get(&pair)?.as_ref()
    }

    /// The senders of a pair.
    pub(in crate::engine) fn senders(&self, pair: Pair) -> impl Iterator<Item = u32> + '_ {
        self.senders.range((pair, 0)..=(pair, u32::MAX)).map(|(_, sender)| *sender)
    }

    /// The first sender of a pair from a number on.
    fn next(&self, pair: Pair, from: u32) -> Option<u32> {
        self.senders.range((pair, from)..=(pair, u32::MAX)).next().map(|(_, sender)| *sender)
    }

    /// The next sender that has to follow a route. It may have left meanwhile.
    pub(super) fn follower(&mut self) -> Option<(Pair, u32)> {
        if let Some(new) = self.new.pop() {
            return Some(new);
        }
        while let Some((pair, from)) = self.changed.pop_first() {
            let Some(sender) = self.next(pair, from) else { continue };
            if let Some(after) = sender.checked_add(1) {
                self.changed.insert(pair, after);
            }
            return Some((pair, sender));
        }
        None
    }

    /// Whether all senders follow their routes.
    pub(in crate::engine) fn is_idle(&self) -> bool {
        self.changed.is_empty() && self.new.is_empty()
    }

    /// Whether there is no pair.
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.senders.is_empty() && self.is_idle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Pair = Pair { v6: false, group: 7, source: 1 };
    const OTHER: Pair = Pair { v6: false, group: 7, source: 2 };

    #[test]
    fn a_pair_is_asked_for_once_and_released_with_its_last_sender() {
        let mut trees = Trees::default();
        assert!(trees.enter(ONE, 3) && !trees.enter(ONE, 5) && trees.enter(OTHER, 4));
        assert!(!trees.leave(ONE, 3) && trees.leave(ONE, 5) && !trees.leave(ONE, 5));
        assert!(trees.enter(ONE, 3));
        assert!(trees.leave(ONE, 3) && trees.leave(OTHER, 4) && trees.is_empty());
    }

    #[test]
    fn each_sender_follows_a_change_once_while_others_come_and_go() {
        let mut trees = Trees::default();
        for sender in [3, 5, 9] {
            trees.enter(ONE, sender);
        }
        trees.enter(OTHER, 4);
        let tree = Tree { expected: Iface(1), routed: vec![Iface(2)] };
        trees.set(ONE, tree.clone());
        assert_eq!(trees.route(ONE), Some(&tree));
        assert_eq!(trees.follower(), Some((ONE, 3)));
        trees.leave(ONE, 5);
        assert_eq!((trees.follower(), trees.follower()), (Some((ONE, 9)), None));
        assert!(trees.is_idle() && trees.route(OTHER).is_none());
        trees.enter(ONE, 7);
        assert_eq!((trees.follower(), trees.follower()), (Some((ONE, 7)), None), "a new one");
    }
}
