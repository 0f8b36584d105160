//! The limit of errors that are passed on: each state passes on a few in a second.
//!
//! Previous hops are what Paths say, so an attacker can arrange them in a circle. An error would then go round until the
//! state ends. A router that passed on several errors about a state a moment ago drops the next one.

use core::time::Duration;
use std::collections::HashMap;

use signalbox_core::Time;
use signalbox_core::index::KeyedHasher;

/// A state passes on this number of errors in [`INTERVAL`] at most: there may be several reasons for them.
const ERRORS: u8 = 4;
/// Time in which errors are counted.
const INTERVAL: Duration = Duration::from_secs(1);
/// Number of states that pass on errors within the interval at most.
const MOST: usize = 65_536;

/// States that passed on an error within the last interval or the one before.
#[derive(Debug)]
pub(super) struct PassedErrors {
    /// Errors by the hash of their state, of the present interval and of the former one.
    recent: [HashMap<u64, u8, KeyedHasher>; 2],
    hasher: KeyedHasher,
    since: Time,
}

impl PassedErrors {
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        let none = || HashMap::with_hasher(hasher);
        Self { recent: [none(), none()], hasher, since: Time::ZERO }
    }

    /// Whether an error about a state may be passed on now.
    pub(super) fn allow(&mut self, now: Time, state: &impl core::hash::Hash) -> bool {
        let past = now.since(self.since);
        if past >= INTERVAL {
            self.since = now;
            self.recent.swap(0, 1);
            let [present, former] = &mut self.recent;
            present.clear();
            if past >= INTERVAL * 2 {
                former.clear();
            }
        }
        let state = self.hasher.hash_one(state);
        let [present, former] = &mut self.recent;
        let before = former.get(&state).copied().unwrap_or(0);
        if present.len() >= MOST && !present.contains_key(&state) {
            return false;
        }
        let count = present.entry(state).or_insert(0);
        let allowed = *count + before < ERRORS;
        *count += u8::from(allowed);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_passes_on_an_error_now_and_then_and_memory_is_bounded() {
        let mut errors = PassedErrors::new(KeyedHasher::with_key([1; 16]));
        let at = |ms: u64| Time::from_millis(10_000 + ms);
        assert!(errors.allow(at(0), &1) && errors.allow(at(0), &2));
        let passed = (1..10_000).filter(|ms| errors.allow(at(*ms), &1)).count();
        assert!((16..=40).contains(&passed), "{passed}");
        let others = (0..200_000).filter(|state| errors.allow(at(20_000), &(state, 0))).count();
        assert_eq!(others, MOST);
    }
}
