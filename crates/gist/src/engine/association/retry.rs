//! Retry delay: after an association failed before a message of the peer was received, the next one is delayed.
//!
//! The handshake of a TLS 1.3 client succeeds even if the server refuses it, and the client only sees the end of the
//! channel. Without a delay such an association would be opened again and again. The first delay is short. Each further
//! failure doubles it, until there was no attempt for one more delay. The delay counts from the opening of the failed
//! association. If an association was established for a longer time, the next one is opened at once.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use signalbox_core::Time;

#[derive(Debug, Clone, Copy)]
struct RetryDelay {
    /// When it began.
    from: Time,
    until: Time,
    length: Duration,
    /// When the delay is removed.
    quiet: Time,
}

/// The peers, or transports of peers, with a retry delay.
#[derive(Debug)]
pub(super) struct RetryDelays<K> {
    first: Duration,
    longest: Duration,
    max: usize,
    /// How long a delay is kept after its end, in lengths of it.
    kept: u32,
    waits: BTreeMap<K, RetryDelay>,
    /// One entry for each delay: when it is removed.
    quiet: BTreeSet<(Time, K)>,
}

impl<K: Ord + Clone> RetryDelays<K> {
    /// A `first` of zero: no delay.
    pub(super) const fn new(first: Duration, longest: Duration, max: usize) -> Self {
        Self { first, longest, max, kept: 1, waits: BTreeMap::new(), quiet: BTreeSet::new() }
    }

    /// The same for attempts that nothing but new messages cause: a delay is kept for several of its lengths.
    pub(super) fn of_rare(first: Duration, longest: Duration, max: usize) -> Self {
        Self { kept: 8, ..Self::new(first, longest, max) }
    }

    /// An association with `name`, opened at `opened`, failed. False: the table is full.
    pub(super) fn failed(&mut self, now: Time, opened: Time, name: &K) -> bool {
        self.failed_for(now, opened, name, Duration::ZERO)
    }

    /// The same with a delay of at least `least`, within the longest one.
    pub(super) fn failed_for(&mut self, now: Time, opened: Time, name: &K, least: Duration) -> bool {
        while let Some((at, _)) = self.quiet.first()
            && *at <= now
            && let Some((_, quiet)) = self.quiet.pop_first()
        {
            self.waits.remove(&quiet);
        }
        if self.first.is_zero() {
            return true;
        }
        let length = match self.clear(name) {
            Some(before) => before.length.saturating_mul(2).min(self.longest),
            None => self.first,
        };
        let length = length.max(least).min(self.longest);
        let until = opened + length;
        let wait =
            RetryDelay { from: opened, until, length, quiet: until + length.saturating_mul(self.kept) };
        if wait.quiet <= now {
            return true;
        }
        if self.waits.len() >= self.max {
            return false;
        }
        self.quiet.insert((wait.quiet, name.clone()));
        self.waits.insert(name.clone(), wait);
        true
    }

    /// The end of the delay for `name`, if there is one.
    pub(super) fn until(&self, now: Time, name: &K) -> Option<Time> {
        self.waits.get(name).map(|wait| wait.until).filter(|until| *until > now)
    }

    /// Whether an attempt for a new message has to wait: less than `pause` of the delay is over.
    pub(super) fn pauses(&self, now: Time, pause: Duration, name: &K) -> bool {
        self.waits.get(name).is_some_and(|wait| now < wait.until.min(wait.from + pause))
    }

    /// Whether the last attempt failed, as far as it is known.
    pub(super) fn has(&self, name: &K) -> bool {
        self.waits.contains_key(name)
    }

    /// A message of the peer was received.
    pub(super) fn succeeded(&mut self, name: &K) {
        self.clear(name);
    }

    fn clear(&mut self, name: &K) -> Option<RetryDelay> {
        let wait = self.waits.remove(name)?;
        self.quiet.remove(&(wait.quiet, name.clone()));
        Some(wait)
    }

    /// Removes all delays after a change of the authorised peer database.
    pub(super) fn clear_all(&mut self) {
        self.waits.clear();
        self.quiet.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::PeerKey;
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn name(last: u8) -> PeerKey {
        PeerKey { identity: [last].into(), interface: [192, 0, 2, last].into() }
    }

    fn waits() -> RetryDelays<PeerKey> {
        RetryDelays::new(Duration::from_secs(1), Duration::from_secs(4), 2)
    }

    #[test]
    fn each_failure_doubles_the_delay_up_to_the_longest() {
        let mut waits = waits();
        let mut opened = 0;
        for length in [1000, 2000, 4000, 4000] {
            assert!(waits.failed(at(opened + 10), at(opened), &name(1)));
            assert_eq!(waits.until(at(opened + 10), &name(1)), Some(at(opened + length)));
            assert_eq!(waits.until(at(opened + length), &name(1)), None);
            assert_eq!(waits.until(at(opened + 10), &name(2)), None, "of no other peer");
            opened += length;
        }
        // There was no attempt for one more delay.
        assert!(waits.failed(at(opened + 4000), at(opened + 4000), &name(1)));
        assert_eq!(waits.until(at(opened + 4000), &name(1)), Some(at(opened + 5000)));
    }

    #[test]
    fn a_message_of_the_peer_ends_the_delay() {
        let mut waits = waits();
        waits.failed(at(1), at(0), &name(1));
        waits.succeeded(&name(1));
        assert!(waits.is_empty() && waits.quiet.is_empty());
    }

    #[test]
    fn an_association_that_stood_for_longer_causes_no_delay() {
        let mut waits = waits();
        assert!(waits.failed(at(5000), at(0), &name(1)));
        assert!(waits.is_empty());
    }

    #[test]
    fn it_is_bounded_and_can_be_off() {
        let mut waits = waits();
        assert!(waits.failed(at(0), at(0), &name(1)) && waits.failed(at(0), at(0), &name(2)));
        assert!(!waits.failed(at(0), at(0), &name(3)));
        assert!(waits.failed(at(2000), at(2000), &name(3)), "the others are removed");
        assert_eq!(waits.waits.len(), waits.quiet.len());
        let mut off = RetryDelays::new(Duration::ZERO, Duration::ZERO, 2);
        assert!(off.failed(at(0), at(0), &name(1)) && off.until(at(0), &name(1)).is_none());
    }
}
