//! What one source may cost this node (RFC 5971 §8.4).
//!
//! A Query names the address that its Response goes to. How often such an address is answered is limited here,
//! whether it asks itself or somebody else asks in its name: by an array of token buckets that never grows, found by a
//! keyed hash, so that nobody can choose whose bucket to empty. Addresses that share a bucket share its rate.
//! How much state an address has that proved to be there by a Confirm is counted by `peers`.

use core::net::{IpAddr, Ipv6Addr};

use signalbox_core::Time;
use signalbox_core::bucket::TokenBucket;
use signalbox_core::index::KeyedHasher;

const BUCKETS: usize = 1024;

/// What counts as one source: an IPv4 address, or a /64 of IPv6, of which a host may use any address.
pub(super) fn source(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

/// Queries of each source.
#[derive(Debug)]
pub(super) struct QueryLimits {
    hasher: KeyedHasher,
    /// Empty: no limit.
    buckets: Box<[TokenBucket]>,
}

impl QueryLimits {
    /// `rate` a second, a quarter of it at once; 0: no limit.
    pub(super) fn new(rate: u32, hasher: KeyedHasher) -> Self {
        let count = if rate > 0 { BUCKETS } else { 0 };
        Self { hasher, buckets: vec![TokenBucket::new(rate, rate.div_ceil(4)); count].into() }
    }

    /// Whether another Query of this address may be looked at.
    pub(super) fn allow(&mut self, now: Time, address: IpAddr) -> bool {
        if self.buckets.is_empty() {
            return true;
        }
        let at = self.hasher.hash_one(&source(address)) % BUCKETS as u64;
        let bucket = usize::try_from(at).ok().and_then(|at| self.buckets.get_mut(at));
        bucket.is_none_or(|bucket| bucket.allow(now))
    }
}
