//! A rate that all sources share, such as that of answers to packets whose source may be forged.
//!
//! A limit for each source does not help there, because an attacker can forge many sources. An attacker cannot forge the interface by
//! which its packets arrive, and it has no state that the node at a source proved. [`SharedRate`] keeps a part for interfaces by which
//! few packets arrive, and a second rate for sources of which the user has such state.

use core::net::IpAddr;

use crate::bucket::TokenBucket;
use crate::id::IfIndex;
use crate::index::KeyedHasher;
use crate::shares::{RateShares, source};
use crate::time::Time;

/// The part of the rate that each interface finds while packets of others use it up.
const OF_INTERFACE: u32 = 64;
/// The part of the rate beside it that one known source may take.
const OF_KNOWN: u32 = 8;
/// Buckets of interfaces. Their numbers follow each other, so that the buckets differ.
const INTERFACES: usize = 256;

/// A rate with a part for each interface, and one beside it for known sources.
///
/// Packets of all interfaces take three quarters of the burst and what comes in; the rest is for interfaces that take at most a 64th of
/// the rate. A known source is counted at each interface separately: who forges its address behind another interface takes nothing of its
/// share.
#[derive(Debug)]
pub struct SharedRate {
    /// `None`: no limit.
    all: Option<TokenBucket>,
    interfaces: Box<[TokenBucket]>,
    known: Option<(TokenBucket, RateShares)>,
}

const fn of_interface(rate: u32) -> (u32, u32) {
    let rate = rate.div_ceil(OF_INTERFACE);
    (rate, rate.div_ceil(4))
}

impl SharedRate {
    /// At most `rate` a second, and `burst` at once; with a rate of 0 there is no limit. With a hasher for `known` sources these have
    /// the same rate once more together, of which one source may take an eighth.
    #[must_use]
    pub fn new(rate: u32, burst: u32, known: Option<KeyedHasher>) -> Self {
        let (each, at_once) = of_interface(rate);
        Self {
            all: (rate > 0).then(|| TokenBucket::new(rate, burst)),
            interfaces: vec![TokenBucket::new(each, at_once); INTERFACES].into(),
            known: known.map(|hasher| {
                (TokenBucket::new(rate, burst), RateShares::new(rate.div_ceil(OF_KNOWN), hasher))
            }),
        }
    }

    /// Sets other limits from now on. What is used up stays used up, except after a rate of 0.
    pub fn set_limits(&mut self, now: Time, rate: u32, burst: u32) {
        let (each, at_once) = of_interface(rate);
        match &mut self.all {
            Some(all) if rate > 0 => {
                all.set_limits(now, rate, burst);
                self.interfaces.iter_mut().for_each(|bucket| bucket.set_limits(now, each, at_once));
            }
            all => {
                *all = (rate > 0).then(|| TokenBucket::new(rate, burst));
                self.interfaces.fill(TokenBucket::new(each, at_once));
            }
        }
        if let Some((all, sources)) = &mut self.known {
            all.set_limits(now, rate, burst);
            sources.set_rate(now, rate.div_ceil(OF_KNOWN));
        }
    }

    /// Whether one more may pass because of a packet from `src` that came in by this interface. `is_known` is asked only if the rate of
    /// all is used up: whether the user has state that the node at this address proved.
    #[inline]
    pub fn allow(
        &mut self,
        now: Time,
        (src, ifindex): (IpAddr, IfIndex),
        is_known: impl FnOnce() -> bool,
    ) -> bool {
        let Some(all) = &mut self.all else { return true };
        all.allow_most(now) || self.allow_part(now, (src, ifindex), is_known)
    }

    fn allow_part(
        &mut self,
        now: Time,
        (src, ifindex): (IpAddr, IfIndex),
        is_known: impl FnOnce() -> bool,
    ) -> bool {
        let at = usize::try_from(ifindex.0).unwrap_or_default() % INTERFACES;
        if self.interfaces.get_mut(at).is_some_and(|bucket| bucket.allow(now))
            && self.all.as_mut().is_some_and(|all| all.allow(now))
        {
            return true;
        }
        let Some((all, sources)) = &mut self.known else { return false };
        is_known() && sources.allow(now, &(source(src), ifindex)) && all.allow(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: IfIndex = IfIndex(1);
    const FAR: IfIndex = IfIndex(2);

    fn shared(rate: u32, burst: u32) -> SharedRate {
        SharedRate::new(rate, burst, Some(KeyedHasher::with_key([7; 16])))
    }

    fn address(number: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 + number).to_be_bytes())
    }

    #[test]
    fn forged_sources_leave_a_part_to_other_interfaces_and_to_known_sources() {
        let mut rate = shared(1000, 1000);
        let (mut far, mut known, mut new, mut flood) = (0, 0, 0, 0);
        // Ten seconds of 10,000 packets a second with different sources by one interface.
        for number in 0..100_000 {
            let now = Time::from_micros(5_000_000 + u64::from(number) * 100);
            if number % 10_000 == 9_999 {
                far += u32::from(rate.allow(now, (address(1 << 20), FAR), || false));
                known += u32::from(rate.allow(now, (address(1 << 20), NEAR), || true));
                new += u32::from(rate.allow(now, (address(1 << 21), NEAR), || false));
            }
            flood += u32::from(rate.allow(now, (address(number), NEAR), || false));
        }
        assert_eq!((far, known), (10, 10));
        assert!(new < 10, "a new source behind the interface of the flood has no part");
        assert!((10_500..=11_000).contains(&flood), "{flood}");
    }

    #[test]
    fn forged_addresses_of_known_sources_leave_a_part_to_other_interfaces() {
        let mut rate = shared(1024, 1024);
        let now = Time::from_secs(9);
        let mut taken = |from: &dyn Fn(u32) -> u32| {
            (0..9999).filter(|n| rate.allow(now, (address(from(*n)), NEAR), || true)).count()
        };
        // Three quarters, the share of the interface, and that of the source.
        assert_eq!(taken(&|_| 7), 768 + 4 + 32);
        assert_eq!(taken(&|n| 100 + n), 1024 - 32);
        assert_eq!((0..9).filter(|_| rate.allow(now, (address(7), FAR), || false)).count(), 4);
    }

    #[test]
    fn a_rate_of_0_is_no_limit() {
        let mut rate = shared(0, 0);
        let now = Time::from_secs(9);
        assert!((0..9999).all(|_| rate.allow(now, (address(1), NEAR), || false)));
        rate.set_limits(now, 8, 4);
        assert_eq!((0..99).filter(|_| rate.allow(now, (address(1), NEAR), || false)).count(), 4);
    }

    #[test]
    fn other_limits_give_nothing_back_that_was_used() {
        let mut rate = shared(64, 64);
        let now = Time::from_secs(9);
        let served = |rate: &mut SharedRate, now| {
            (0..999).filter(|_| rate.allow(now, (address(1), NEAR), || true)).count()
        };
        assert_eq!(served(&mut rate, now), 48 + 1 + 2);
        for limit in [64, 6400, 64] {
            rate.set_limits(now, limit, limit);
            assert_eq!(served(&mut rate, now), 0, "{limit}");
        }
        assert!((50..=52).contains(&served(&mut rate, now + core::time::Duration::from_secs(9))));
    }
}
