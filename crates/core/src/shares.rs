//! Fair shares: what one source can take of a table or of a rate.
//!
//! A table or a budget that all sources share is used up by the first one that floods it. [`Shares`] counts what each
//! source holds of a table, and keeps a part of the table for sources that hold little. [`RateShares`] gives each source
//! a rate of its own. Both take constant time and bounded memory for each request, whatever a source sends.

use core::hash::Hash;
use core::net::{IpAddr, Ipv6Addr};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::bucket::TokenBucket;
use crate::index::KeyedHasher;
use crate::time::Time;

/// The source of an address: an IPv4 address, or an IPv6 /64, because a host may use any address of it.
#[must_use]
pub fn source(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => v4.into(),
            None => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
        },
    }
}

/// Why a source gets no more of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// All of the table is in use.
    Full,
    /// The rest of the table is kept for sources that hold less.
    Share,
}

/// A fixed part of the table is kept for sources that hold little: a quarter.
const RESERVE: u32 = 4;
/// "Little" is this part of the reserve, so that this number of sources find their share.
const SOURCES: u32 = 64;

/// Whether what is left of a table of `limit` rows is for sources that hold little, when `used` rows are in use with the one
/// that is asked for.
#[must_use]
pub const fn is_scarce(limit: u32, used: u32) -> bool {
    used > limit - limit / RESERVE
}

/// The number of rows of a table that each source finds while others flood it: a 64th of a quarter, at least 1.
#[must_use]
pub const fn fair(limit: u32) -> u32 {
    let fair = limit / RESERVE / SOURCES;
    if fair == 0 { 1 } else { fair }
}

/// What each source holds of a table of `limit` rows.
///
/// While three quarters of the table are not in use, each source takes as many rows as it wants. The last quarter is for
/// sources that hold less than a fair share: a 64th of this quarter, at least one row.
#[derive(Debug)]
pub struct Shares<K> {
    limit: u32,
    total: u32,
    /// Sources that hold something.
    held: HashMap<K, u32, KeyedHasher>,
}

impl<K: Hash + Eq> Shares<K> {
    /// Shares of `limit` rows; 0: no limit.
    #[must_use]
    pub fn new(limit: u32, hasher: KeyedHasher) -> Self {
        Self { limit, total: 0, held: HashMap::with_hasher(hasher) }
    }

    /// The largest number of rows; 0: no limit.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// The number of rows that each source finds while others flood the table.
    #[must_use]
    pub const fn fair(&self) -> u32 {
        fair(self.limit)
    }

    /// Takes a row for a source.
    ///
    /// # Errors
    /// The table is full, or what is left of it is for sources that hold less.
    pub fn take(&mut self, source: K) -> Result<(), Refused> {
        self.take_many(source, 1)
    }

    /// Takes `count` rows for a source, or none of them.
    ///
    /// # Errors
    /// The table has no room for them, or what is left of it is for sources that hold less.
    pub fn take_many(&mut self, source: K, count: u32) -> Result<(), Refused> {
        self.check(&source, count)?;
        if count > 0 {
            self.hold_many(source, count);
        }
        Ok(())
    }

    /// Whether a source could take `count` rows now.
    ///
    /// # Errors
    /// The table has no room for them, or what is left of it is for sources that hold less.
    pub fn check(&self, source: &K, count: u32) -> Result<(), Refused> {
        let total = self.total.saturating_add(count);
        if self.limit == 0 {
            return Ok(());
        }
        if total > self.limit {
            return Err(Refused::Full);
        }
        // Only a scarce table needs the count of the source.
        if is_scarce(self.limit, total) && self.held(source).saturating_add(count) > self.fair() {
            return Err(Refused::Share);
        }
        Ok(())
    }

    /// Counts a row for a source that has it by another decision than that of [`Self::take`].
    pub fn hold(&mut self, source: K) {
        self.hold_many(source, 1);
    }

    /// Counts rows for a source that has them by another decision than that of [`Self::take_many`].
    pub fn hold_many(&mut self, source: K, count: u32) {
        let held = self.held.entry(source).or_default();
        *held = held.saturating_add(count);
        self.total = self.total.saturating_add(count);
    }

    /// Sets the largest number of rows; 0: no limit. Rows that are held stay.
    pub const fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Gives a row of a source back. Nothing happens if it holds no row.
    pub fn release(&mut self, source: K) {
        self.release_many(source, 1);
    }

    /// Gives rows of a source back, at most those that it holds.
    pub fn release_many(&mut self, source: K, count: u32) {
        if let Entry::Occupied(mut held) = self.held.entry(source) {
            let count = count.min(*held.get());
            *held.get_mut() -= count;
            self.total -= count;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }

    /// Takes all rows back from all sources, as when the table is emptied.
    pub fn clear(&mut self) {
        self.held.clear();
        self.total = 0;
    }

    /// The number of rows that a source holds.
    #[must_use]
    pub fn held(&self, source: &K) -> u32 {
        self.held.get(source).copied().unwrap_or(0)
    }

    /// The number of rows that all sources hold.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.total
    }
}

/// The buckets of all sources.
const BUCKETS: usize = 1024;

/// Fair shares of a table whose places are taken and given back with each message.
///
/// The rule is that of [`Shares`]. Sources are counted in a fixed array by a keyed hash: that costs a quarter of the instructions of a
/// map, and sources with the same bucket have one share together.
#[derive(Debug)]
pub struct Places {
    limit: u32,
    total: u32,
    hasher: KeyedHasher,
    held: Box<[u32]>,
}

/// A place of [`Places`] that is in use.
#[derive(Debug)]
pub struct Place {
    /// The bucket of the source; `None`: this node itself.
    bucket: Option<u16>,
}

impl Places {
    /// `limit` places; 0: no place at all.
    #[must_use]
    pub fn new(limit: u32, hasher: KeyedHasher) -> Self {
        Self { limit, total: 0, hasher, held: vec![0; BUCKETS].into() }
    }

    /// Sets the number of places. Those in use stay.
    pub const fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// The number of places in use.
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.total
    }

    /// Takes a place for a [source](source()); `None` is this node itself, which has the limit alone. No place is left, or the rest is for
    /// sources that hold less: `None`.
    pub fn take(&mut self, source: Option<IpAddr>) -> Option<Place> {
        let total = self.total + 1;
        if total > self.limit {
            return None;
        }
        let bucket = source.map(|source| self.bucket(source));
        if let Some(held) = bucket.and_then(|bucket| self.held.get_mut(usize::from(bucket))) {
            if is_scarce(self.limit, total) && *held >= fair(self.limit) {
                return None;
            }
            *held += 1;
        }
        self.total = total;
        Some(Place { bucket })
    }

    /// Gives a place back.
    pub fn release(&mut self, place: Place) {
        if let Some(held) = place.bucket.and_then(|bucket| self.held.get_mut(usize::from(bucket))) {
            *held -= 1;
        }
        self.total -= 1;
    }

    #[expect(clippy::cast_possible_truncation, reason = "there are fewer buckets")]
    fn bucket(&self, source: IpAddr) -> u16 {
        let hash = match source {
            IpAddr::V4(v4) => self.hasher.hash_octets(&v4.octets()),
            IpAddr::V6(v6) => self.hasher.hash_octets(&v6.octets()),
        };
        (hash % BUCKETS as u64) as u16
    }
}

/// A rate for each source.
///
/// It is a fixed array of token buckets with a keyed hash, so that an attacker cannot choose the bucket of another source.
/// Sources with the same bucket share its rate.
#[derive(Debug)]
pub struct RateShares {
    hasher: KeyedHasher,
    /// Empty if there is no limit.
    buckets: Box<[TokenBucket]>,
}

/// What a source may use at once: a quarter of its rate.
const fn burst(rate: u32) -> u32 {
    rate.div_ceil(4)
}

fn buckets(rate: u32) -> Box<[TokenBucket]> {
    let count = if rate > 0 { BUCKETS } else { 0 };
    vec![TokenBucket::new(rate, burst(rate)); count].into()
}

impl RateShares {
    /// Limits of `rate` a second, with a quarter of it in a burst; 0: no limit.
    #[must_use]
    pub fn new(rate: u32, hasher: KeyedHasher) -> Self {
        Self { hasher, buckets: buckets(rate) }
    }

    /// Gives each source another rate from now on, in requests a second; 0: no limit. What a source has used up stays used up,
    /// because its burst once more at each reload would be a way around the limit. Only after a rate of 0 all bursts are full.
    pub fn set_rate(&mut self, now: Time, rate: u32) {
        if rate == 0 || self.buckets.is_empty() {
            self.buckets = buckets(rate);
        }
        self.buckets.iter_mut().for_each(|bucket| bucket.set_limits(now, rate, burst(rate)));
    }

    /// Whether the rate of a source allows one more.
    pub fn allow(&mut self, now: Time, source: &(impl Hash + ?Sized)) -> bool {
        self.allow_many(now, source, 1)
    }

    /// Whether the rate of a source allows `count` more. Otherwise it takes none of them.
    pub fn allow_many(&mut self, now: Time, source: &(impl Hash + ?Sized), count: u32) -> bool {
        if self.buckets.is_empty() {
            return true;
        }
        let at = self.hasher.hash_one(source) % BUCKETS as u64;
        let bucket = usize::try_from(at).ok().and_then(|at| self.buckets.get_mut(at));
        bucket.is_none_or(|bucket| bucket.allow_many(now, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hasher() -> KeyedHasher {
        KeyedHasher::with_key([7; 16])
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_flood_leaves_a_fair_share_for_each_other_source() {
        let mut shares = Shares::new(4096, hasher());
        let taken = (0..9999).filter(|_| shares.take(0).is_ok()).count();
        assert_eq!(taken, 3072, "three quarters are free for all");
        assert_eq!(shares.take(0), Err(Refused::Share));
        for source in 1..=64 {
            assert_eq!((0..shares.fair()).filter(|_| shares.take(source).is_ok()).count(), 16, "{source}");
            assert!(shares.take(source).is_err());
        }
        assert_eq!(shares.take(65), Err(Refused::Full));
    }

    #[test]
    fn what_is_given_back_can_be_taken_again_and_no_source_is_kept_without_rows() {
        let mut shares = Shares::new(8, hasher());
        for _ in 0..3 {
            let taken = (0..20).filter(|_| shares.take("one").is_ok()).count();
            assert_eq!((taken, shares.held(&"one")), (6, 6));
            (0..20).for_each(|_| shares.release("one"));
            assert_eq!((shares.total(), shares.held.len()), (0, 0));
        }
        (0..20).filter(|_| shares.take("one").is_ok()).for_each(drop);
        shares.clear();
        assert_eq!((shares.total(), shares.held.len(), shares.check(&"one", 6)), (0, 0, Ok(())));
    }

    #[test]
    fn many_rows_are_taken_together_or_not_at_all() {
        let mut shares = Shares::new(1024, hasher());
        assert_eq!(shares.take_many("one", 700), Ok(()));
        assert_eq!(shares.take_many("one", 400), Err(Refused::Full));
        assert_eq!(shares.take_many("one", 100), Err(Refused::Share));
        assert_eq!((shares.take_many("two", 4), shares.take_many("three", 64)), (Ok(()), Ok(())));
        assert_eq!((shares.take_many("four", 4), shares.take_many("four", 1)), (Ok(()), Err(Refused::Share)));
        assert_eq!(shares.take_many("five", 5), Err(Refused::Share));
        shares.release_many("one", 9999);
        assert_eq!((shares.held(&"one"), shares.total()), (0, 72));
        assert_eq!(shares.take_many("five", 5), Ok(()));
    }

    #[test]
    fn a_limit_of_0_is_no_limit() {
        let mut shares = Shares::new(0, hasher());
        assert!((0..10_000).all(|_| shares.take(1).is_ok()));
    }

    #[test]
    fn what_is_held_by_another_decision_counts() {
        let mut shares = Shares::new(8, hasher());
        (0..6).for_each(|_| shares.hold("one"));
        assert_eq!((shares.check(&"one", 1), shares.check(&"two", 1)), (Err(Refused::Share), Ok(())));
        shares.set_limit(5);
        assert_eq!((shares.check(&"two", 1), shares.held(&"one")), (Err(Refused::Full), 6));
    }

    #[test]
    fn a_table_of_one_row_serves_one_source() {
        let mut shares = Shares::new(1, hasher());
        assert_eq!(shares.take(1), Ok(()));
        assert_eq!(shares.take(2), Err(Refused::Full));
    }

    #[test]
    fn a_source_is_an_ipv4_address_or_an_ipv6_64() {
        assert_eq!(source(address("192.0.2.1")), address("192.0.2.1"));
        assert_eq!(source(address("2001:db8:1:2:3::4")), address("2001:db8:1:2::"));
        assert_eq!(source(address("::ffff:192.0.2.1")), address("192.0.2.1"), "a mapped address is IPv4");
    }

    #[test]
    fn a_source_that_uses_its_rate_leaves_others_theirs() {
        let mut rates = RateShares::new(40, hasher());
        let now = Time::from_secs(1);
        assert_eq!((0..100).filter(|_| rates.allow(now, &1)).count(), 10);
        let served = (2..100).filter(|source| rates.allow(now, source)).count();
        assert!(served >= 97, "{served} of 98");
    }

    #[test]
    fn another_rate_gives_nothing_back_that_was_used() {
        let mut rates = RateShares::new(40, hasher());
        let served =
            |rates: &mut RateShares, ms| (0..100).filter(|_| rates.allow(Time::from_millis(ms), &1)).count();
        assert_eq!(served(&mut rates, 1000), 10);
        for rate in [40, 80, 20, 40] {
            rates.set_rate(Time::from_secs(1), rate);
            assert_eq!(served(&mut rates, 1000), 0, "{rate}");
        }
        assert_eq!(served(&mut rates, 1100), 4, "a tenth of a second at the rate");
        rates.set_rate(Time::from_millis(1100), 80);
        assert_eq!(served(&mut rates, 9000), 20, "the burst of the new rate");
        rates.set_rate(Time::from_secs(9), 0);
        assert_eq!(served(&mut rates, 9000), 100);
        rates.set_rate(Time::from_secs(9), 8);
        assert_eq!(served(&mut rates, 9000), 2);
    }
}
