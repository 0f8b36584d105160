//! Which neighbors' moves the node learns of, and when.
//!
//! Another router takes over the address of a gateway (VRRP), and the kernel reports another link-layer address for it. Anybody on a
//! link can forge that as often as it likes. So each link has a rate of its own, and a neighbor waits once, however often it is reported.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use signalbox_core::bucket::TokenBucket;
use signalbox_core::node::{Input, Interface};
use signalbox_core::{IfIndex, Time};

use super::Driver;

/// Moves that a link reports in a second, and at once.
const RATE: u32 = 1;
const BURST: u32 = 8;
/// Neighbors of a link that wait at most. State about others follows when it is refreshed.
const MOST: usize = 64;
/// When to look again after the rate of a link is used up.
const PAUSE: Duration = Duration::from_millis(250);

/// A link by which neighbors have moved.
#[derive(Debug)]
struct Link {
    rate: TokenBucket,
    waiting: VecDeque<IpAddr>,
}

/// Neighbors that have moved, and of which the node has not learned.
#[derive(Debug, Default)]
pub(super) struct MovedNeighbors {
    /// Those with a neighbor that waits, or of which one has moved since they came up.
    links: BTreeMap<IfIndex, Link>,
    due: Option<Time>,
}

impl MovedNeighbors {
    /// When [`Self::next`] is to be called.
    pub(super) const fn due(&self) -> Option<Time> {
        self.due
    }

    /// A neighbor has moved. The result is false if too many of its link wait.
    fn note(&mut self, now: Time, ifindex: IfIndex, address: IpAddr) -> bool {
        let new = || Link { rate: TokenBucket::new(RATE, BURST), waiting: VecDeque::new() };
        let waiting = &mut self.links.entry(ifindex).or_insert_with(new).waiting;
        if waiting.contains(&address) {
            return true;
        }
        let room = waiting.len() < MOST;
        if room {
            waiting.push_back(address);
            self.due = Some(self.due.map_or(now, |due| due.min(now)));
        }
        room
    }

    /// A neighbor of which the node may learn now.
    fn next(&mut self, now: Time) -> Option<(IfIndex, IpAddr)> {
        self.due = None;
        for (ifindex, link) in &mut self.links {
            if link.waiting.is_empty() {
                continue;
            }
            if link.rate.allow(now)
                && let Some(address) = link.waiting.pop_front()
            {
                self.due = Some(now);
                return Some((*ifindex, address));
            }
            self.due = Some(now + PAUSE);
        }
        None
    }

    /// Forgets links that are gone.
    fn keep(&mut self, interfaces: &[Interface]) {
        self.links.retain(|ifindex, _| interfaces.iter().any(|one| one.ifindex == *ifindex));
    }
}

impl Driver {
    /// The kernel reports that a neighbor has moved.
    pub(super) fn neighbor_moved(&mut self, ifindex: IfIndex, address: IpAddr) {
        self.counters.neighbor_changes += 1;
        if !self.moved_neighbors.note(self.clock.now(), ifindex, address) {
            self.counters.neighbor_changes_left_out += 1;
            tracing::debug!(ifindex = ifindex.0, %address, reason = "too many of this link", "move of a neighbor left out");
        }
    }

    /// Tells the node of neighbors that have moved. Returns their number.
    pub(super) fn follow_neighbors(&mut self, now: Time) -> usize {
        self.moved_neighbors.keep(self.engine.io.interfaces());
        let mut told = 0;
        while let Some((ifindex, address)) = self.moved_neighbors.next(now) {
            tracing::debug!(ifindex = ifindex.0, %address, "another router may have the place of a neighbor");
            self.input(Input::NeighborMoved { ifindex, address });
            told += 1;
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_micros(ms * 1000)
    }

    fn gateway(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn a_move_is_told_at_once_and_a_flood_of_one_link_leaves_the_others_alone() {
        let mut moved = MovedNeighbors::default();
        assert_eq!(moved.due(), None);
        let mut told = 0;
        for at in 1000..11_000 {
            assert!(moved.note(ms(at), IfIndex(1), gateway(1)));
            while let Some(one) = moved.next(ms(at)) {
                assert_eq!(one, (IfIndex(1), gateway(1)));
                told += 1;
            }
        }
        assert_eq!(told, 8 + 9);
        let end = ms(10_999);
        moved.note(end, IfIndex(2), gateway(2));
        assert_eq!(moved.due(), Some(end));
        assert_eq!(moved.next(end), Some((IfIndex(2), gateway(2))));
        assert_eq!(moved.next(end), None);
        assert_eq!(moved.due(), Some(end + PAUSE), "one of the first link waits");
    }

    #[test]
    fn those_that_wait_are_bounded_and_end_with_their_link() {
        let mut moved = MovedNeighbors::default();
        let noted = (0..200).filter(|n| moved.note(ms(1), IfIndex(1), gateway(*n))).count();
        assert_eq!(noted, MOST);
        moved.keep(&[]);
        assert_eq!((moved.next(ms(1)), moved.due()), (None, None));
    }
}
