//! The limits of errors that are passed on: each state passes on a few in a second, and the same one less and less often.
//!
//! Previous hops are what Paths say, and routes may form a circle, so the hops of a session may do so as well. An error
//! would then go round until the state ends. A router that passed on several errors about a state a moment ago drops the
//! next one. Where the circle is slow, an error that returns is recognised by its contents.
//!
//! A quarter of what is noted is for neighbors, and for interfaces, from which few errors came. Otherwise one neighbor with
//! many states of its own would stop the errors about the states of all others.

use core::hash::Hash;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::HashMap;

use signalbox_core::Time;
use signalbox_core::index::KeyedHasher;
use signalbox_core::shares::{Shares, source};

use crate::engine::interfaces::Iface;

/// A state passes on this number of errors in [`INTERVAL`] at most: there may be several reasons for them.
const ERRORS: u8 = 4;
/// Time in which errors are counted, and the first pause of an error that is repeated.
const INTERVAL: Duration = Duration::from_secs(1);
/// Number of states that pass on errors within the interval at most, and of errors that are stored.
const MOST: u32 = 65_536;

/// Where an error came from: the address of the neighbor, and the interface.
pub(in crate::engine) type Origin = (IpAddr, Iface);

/// Two generations of what was noted by hash: the one before the present one is removed after an interval.
#[derive(Debug)]
struct Noted<T> {
    present: HashMap<u64, T, KeyedHasher>,
    former: HashMap<u64, T, KeyedHasher>,
    /// The present ones by their neighbor, and by their interface.
    by_source: Shares<IpAddr>,
    by_interface: Shares<Iface>,
    since: Time,
}

impl<T: Copy> Noted<T> {
    fn new(hasher: KeyedHasher) -> Self {
        let none = || HashMap::with_hasher(hasher);
        Self {
            present: none(),
            former: none(),
            by_source: Shares::new(MOST, hasher),
            by_interface: Shares::new(MOST, hasher),
            since: Time::ZERO,
        }
    }

    fn turn(&mut self, now: Time, interval: Duration) {
        let past = now.since(self.since);
        if past >= interval {
            self.since = now;
            core::mem::swap(&mut self.present, &mut self.former);
            self.present.clear();
            self.by_source.clear();
            self.by_interface.clear();
            if past >= interval * 2 {
                self.former.clear();
            }
        }
    }

    fn has_room(&self, of: u64, (neighbor, iface): Origin) -> bool {
        self.present.contains_key(&of)
            || self.by_source.check(&source(neighbor), 1).is_ok()
                && self.by_interface.check(&iface, 1).is_ok()
    }

    fn insert(&mut self, of: u64, value: T, (neighbor, iface): Origin) {
        if self.present.insert(of, value).is_none() {
            self.by_source.hold(source(neighbor));
            self.by_interface.hold(iface);
        }
    }
}

/// When an error was passed on last, and the pause before it is passed on again.
#[derive(Debug, Clone, Copy)]
struct Passed {
    at: Time,
    pause: Duration,
}

/// The errors that were passed on of late.
#[derive(Debug)]
pub(super) struct PassedErrors {
    /// Number of errors by the hash of their state.
    states: Noted<u8>,
    /// Errors by the hash of their state and contents.
    errors: Noted<Passed>,
    hasher: KeyedHasher,
    /// The longest pause of an error: half a refresh period, so that each refresh may be answered.
    longest: Duration,
}

impl PassedErrors {
    pub(in crate::engine) fn new(hasher: KeyedHasher, refresh: Duration) -> Self {
        Self { states: Noted::new(hasher), errors: Noted::new(hasher), hasher, longest: refresh / 2 }
    }

    /// Whether an error about a state may be passed on now. `contents` is what distinguishes it from others.
    pub(in crate::engine) fn allow(
        &mut self,
        now: Time,
        from: Origin,
        state: &impl Hash,
        contents: &impl Hash,
    ) -> bool {
        self.states.turn(now, INTERVAL);
        self.errors.turn(now, self.longest.max(INTERVAL));
        let error = self.hasher.hash_one(&(state, contents));
        let state = self.hasher.hash_one(state);
        let last = self.errors.present.get(&error).or_else(|| self.errors.former.get(&error)).copied();
        if last.is_some_and(|last| now.since(last.at) < last.pause)
            || !self.states.has_room(state, from)
            || !self.errors.has_room(error, from)
        {
            return false;
        }
        let before = self.states.former.get(&state).copied().unwrap_or(0);
        let count = self.states.present.get(&state).copied().unwrap_or(0);
        if count + before >= ERRORS {
            return false;
        }
        self.states.insert(state, count + 1, from);
        let first = INTERVAL.min(self.longest);
        let pause = last.map_or(first, |last| (last.pause * 2).min(self.longest));
        self.errors.insert(error, Passed { at: now, pause }, from);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors() -> PassedErrors {
        PassedErrors::new(KeyedHasher::with_key([1; 16]), Duration::from_secs(30))
    }

    fn from(last: u32, iface: u16) -> Origin {
        (IpAddr::from((0x0a00_0000 + last).to_be_bytes()), Iface(iface))
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(10_000 + ms)
    }

    #[test]
    fn a_state_passes_on_an_error_now_and_then_and_memory_is_bounded() {
        let mut errors = errors();
        assert!(errors.allow(at(0), from(1, 1), &1, &0) && errors.allow(at(0), from(1, 1), &2, &0));
        let passed = (1..10_000).filter(|ms| errors.allow(at(*ms), from(1, 1), &1, ms)).count();
        assert!((16..=40).contains(&passed), "{passed}");
    }

    #[test]
    fn a_flood_of_errors_leaves_room_to_other_neighbors_and_interfaces() {
        let mut errors = errors();
        let mut passed = |ms, range: core::ops::Range<u32>, iface, each: fn(u32) -> u32| {
            range.filter(|state| errors.allow(at(ms), from(each(*state), iface), &(iface, state), &0)).count()
        };
        // One neighbor with many states, then as many as it likes on the same link.
        assert_eq!(passed(0, 0..60_000, 1, |_| 1), 49_152);
        assert_eq!(passed(100, 200_000..200_100, 1, |_| 2), 0, "the rest is for other interfaces");
        assert_eq!(passed(100, 0..100, 2, |_| 2), 100);
        // While the interface holds less, the rest is for other neighbors.
        assert_eq!(passed(60_000, 0..40_000, 1, |_| 1) + passed(60_000, 0..20_000, 2, |_| 1), 49_152);
        assert_eq!(passed(60_100, 300_000..300_100, 3, |_| 1), 0);
        assert_eq!(passed(60_100, 300_000..300_100, 3, |_| 3), 100);
        // All is free again after two intervals.
        assert_eq!(passed(120_000, 0..1000, 1, |_| 1), 1000);
    }

    /// An error that comes again after each turn of a circle of hops.
    #[test]
    fn an_error_that_returns_ends_however_slow_the_circle_is() {
        for turn in [1, 10, 100, 300, 999, 1_000, 2_500, 14_000] {
            let mut errors = errors();
            let passed =
                (0..1000).take_while(|n| errors.allow(at(n * turn), from(1, 1), &1, &"error")).count();
            assert!((1..=6).contains(&passed), "{passed} times at {turn} ms");
        }
        // An error that answers each refresh is passed on each time.
        let mut errors = errors();
        assert!((0..100).all(|n| errors.allow(at(n * 15_000), from(1, 1), &1, &"error")));
        // Others about the same state are not concerned.
        assert!(
            errors.allow(at(1_500_000), from(1, 1), &1, &"another")
                && !errors.allow(at(1_500_000), from(1, 1), &1, &"another")
        );
    }
}
