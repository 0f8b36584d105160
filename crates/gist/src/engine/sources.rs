//! Limits for each source of Queries (RFC 5971 §8.4).
//!
//! A Query contains the address for its Response. This module limits the rate of Responses to each such address, also if
//! Queries are forged. It is a fixed array of token buckets with a keyed hash, so that an attacker cannot choose the
//! bucket of another source. Addresses with the same bucket share its rate. `peers` counts the routing state of each
//! source.

use core::net::{IpAddr, Ipv6Addr};

use signalbox_core::Time;
use signalbox_core::bucket::TokenBucket;
use signalbox_core::index::KeyedHasher;

const BUCKETS: usize = 1024;

/// The source of an address: an IPv4 address, or an IPv6 /64, since a host may use any address of it.
pub(super) fn source(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

/// Rate limits of Queries for each source.
#[derive(Debug)]
pub(super) struct QueryLimits {
    hasher: KeyedHasher,
    /// Empty if there is no limit.
    buckets: Box<[TokenBucket]>,
}

impl QueryLimits {
    /// Limits of `rate` per second, with a quarter of it in a burst; 0: no limit.
    pub(super) fn new(rate: u32, hasher: KeyedHasher) -> Self {
        let count = if rate > 0 { BUCKETS } else { 0 };
        Self { hasher, buckets: vec![TokenBucket::new(rate, rate.div_ceil(4)); count].into() }
    }

    /// Whether one more Query of this address is processed.
    pub(super) fn allow(&mut self, now: Time, address: IpAddr) -> bool {
        if self.buckets.is_empty() {
            return true;
        }
        let at = self.hasher.hash_one(&source(address)) % BUCKETS as u64;
        let bucket = usize::try_from(at).ok().and_then(|at| self.buckets.get_mut(at));
        bucket.is_none_or(|bucket| bucket.allow(now))
    }
}
