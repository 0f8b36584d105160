//! Ways that the data of a sender have left a moment ago (RFC 2205 §3.6).
//!
//! A Path follows a new route after W, so that routes settle first. If the former route comes back before that, its next hop has had
//! the Paths until then and none by another way: a PathTear concerns it as before. After W, another way has had Paths.

use std::collections::{BTreeMap, VecDeque};

use signalbox_core::{Key, Time};

use crate::engine::interfaces::Iface;

/// Ways that are kept at most. One that finds no place counts as new when it comes back.
const MOST: usize = 16_384;

/// An outgoing interface of a sender's Paths.
type Way = (u64, Iface);

/// The ways along which Paths have gone and which their senders have left since.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// The next router, and until when the way counts as that of the Paths.
    ways: BTreeMap<Way, (u32, Time)>,
    /// Each entry of the table once for each time that it was left.
    order: VecDeque<(Time, Way)>,
}

impl Left {
    /// A sender leaves an interface, by which its Paths went to the router `gateway`.
    pub(super) fn keep(&mut self, now: Time, until: Time, (sender, iface): (Key, Iface), gateway: u32) {
        while let Some((over, way)) = self.order.front().copied().filter(|(over, _)| *over <= now) {
            self.order.pop_front();
            if self.ways.get(&way).is_some_and(|(_, until)| *until <= over) {
                self.ways.remove(&way);
            }
        }
        if self.order.len() < MOST {
            let way = (sender.to_u64(), iface);
            self.ways.insert(way, (gateway, until));
            self.order.push_back((until, way));
        }
    }

    /// Whether a sender left this interface and router so lately that no Path has gone another way.
    pub(super) fn has(&self, now: Time, (sender, iface): (Key, Iface), gateway: u32) -> bool {
        self.ways
            .get(&(sender.to_u64(), iface))
            .is_some_and(|(router, until)| *router == gateway && now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(number: u64) -> Key {
        Key::from_u64(number)
    }

    #[test]
    fn a_way_counts_for_its_time_and_router() {
        let (mut left, way) = (Left::default(), (sender(1), Iface(2)));
        let [start, end] = [10, 12].map(Time::from_secs);
        left.keep(start, end, way, 5);
        assert!(left.has(start, way, 5) && left.has(Time::from_millis(11_999), way, 5));
        assert!(!left.has(start, way, 6) && !left.has(start, (sender(2), Iface(2)), 5));
        assert!(!left.has(start, (sender(1), Iface(3)), 5) && !left.has(end, way, 5));
    }

    #[test]
    fn a_route_that_changes_without_end_takes_a_bounded_part_of_the_memory() {
        let mut left = Left::default();
        for number in 0..100_000 {
            left.keep(Time::from_secs(1), Time::from_secs(3), (sender(number % 20_000), Iface(2)), 0);
        }
        assert_eq!((left.ways.len(), left.order.len()), (MOST, MOST));
        left.keep(Time::from_secs(3), Time::from_secs(5), (sender(7), Iface(2)), 0);
        assert_eq!((left.ways.len(), left.order.len()), (1, 1));
        // One that is left again before its time is over has its new time.
        left.keep(Time::from_secs(4), Time::from_secs(6), (sender(7), Iface(2)), 0);
        left.keep(Time::from_secs(5), Time::from_secs(7), (sender(8), Iface(2)), 0);
        assert!(left.has(Time::from_secs(5), (sender(7), Iface(2)), 0));
    }
}
