//! The proof that an initiating node receives the replies to its requests: a prime in the KEY.
//!
//! A node that demands it multiplies a prime into the KEY of the first message of a flow and stores nothing. The prime is
//! a keyed hash of the flow, the initiating node and the time, so that the node computes it again when the confirmation
//! comes. Only who received the reply can send a KEY that is divisible by it. The draft locks a reservation instead, which
//! lets forged requests occupy resources.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::secret::RotatingSecret;
use signalbox_core::{Random, Time};

use super::flow::FlowKey;

/// A confirmation is accepted for one to two of these periods.
const PERIOD: Duration = Duration::from_secs(60);
/// In the range of the primes the distance from one to the next is less than this number.
const WIDEST_GAP: u32 = 300;
/// Flows whose last request got a prime: the newest one of each place.
const LATELY: u64 = 1024;

/// The primes of this node.
#[derive(Debug)]
pub(super) struct Primes {
    secret: RotatingSecret,
    /// Primes are above this number and below its double.
    least: u32,
    /// Hashes of flows whose request got a prime, and whose reply did not come yet.
    lately: Box<[u64]>,
}

impl Primes {
    /// A KEY has room for `count` primes.
    pub(super) fn new(count: u8, rng: &mut Random) -> Self {
        let bits = match count {
            4 => 16,
            3 => 21,
            _ => 31,
        };
        let lately = vec![0; usize::try_from(LATELY).unwrap_or(0)].into();
        Self { secret: RotatingSecret::new(PERIOD, rng), least: 1 << (bits - 1), lately }
    }

    fn place(&mut self, hash: u64) -> Option<&mut u64> {
        self.lately.get_mut(usize::try_from(hash % LATELY).ok()?)
    }

    /// Notes that a request got a prime.
    pub(super) fn note(&mut self, hash: u64) {
        if let Some(place) = self.place(hash) {
            *place = hash;
        }
    }

    /// Whether the request of a flow got a prime lately. The entry is removed.
    pub(super) fn take(&mut self, hash: u64) -> bool {
        self.place(hash)
            .is_some_and(|place| core::mem::replace(place, if *place == hash { 0 } else { *place }) == hash)
    }

    /// The prime for a flow of an initiating node at `now`.
    pub(super) fn current(&self, now: Time, key: &FlowKey, initiator: IpAddr) -> u32 {
        self.of(self.secret.current(now), key, initiator)
    }

    /// The prime that divides the KEY of a confirmation; `None`: it is no confirmation.
    pub(super) fn confirmed(&self, now: Time, flow: &FlowKey, initiator: IpAddr, key: u64) -> Option<u32> {
        if key <= 1 {
            return None;
        }
        let generation = self.secret.current(now);
        [generation, generation.wrapping_sub(1)]
            .into_iter()
            .map(|generation| self.of(generation, flow, initiator))
            .find(|prime| divides(*prime, key))
    }

    fn of(&self, generation: u32, key: &FlowKey, initiator: IpAddr) -> u32 {
        let address = match initiator {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        let [a, b, c, d, ..] = self.secret.tag(generation, &[key.octets(), &address]);
        prime_from(self.least, u32::from_be_bytes([a, b, c, d]))
    }
}

/// Whether a prime divides a KEY. It never divides the KEY of a refusal.
pub(super) const fn divides(prime: u32, key: u64) -> bool {
    key != 0 && prime != 0 && key.is_multiple_of(prime as u64)
}

/// The KEY with a prime multiplied into it; `None`: it does not fit.
pub(super) fn multiplied(key: u64, prime: u32) -> Option<u64> {
    key.checked_mul(u64::from(prime))
}

/// A prime between a power of two and its double: the first one from a place that any number gives.
fn prime_from(least: u32, number: u32) -> u32 {
    // The last candidates leave room for the widest gap.
    let first = (least + number % (least - WIDEST_GAP)) | 1;
    (first..first + WIDEST_GAP).step_by(2).find(|candidate| is_prime(*candidate)).unwrap_or(1)
}

/// The test of Miller and Rabin; with these bases it is exact for all numbers of 32 bits that are above the bases.
fn is_prime(n: u32) -> bool {
    if n.is_multiple_of(3) || n.is_multiple_of(5) || n.is_multiple_of(7) {
        return false;
    }
    let twos = (n - 1).trailing_zeros();
    let odd = (n - 1) >> twos;
    let modulus = u64::from(n);
    [2_u64, 7, 61].into_iter().all(|base| {
        let mut x = power(base, odd, modulus);
        if x == 1 || x == modulus - 1 {
            return true;
        }
        for _ in 1..twos {
            x = x * x % modulus;
            if x == modulus - 1 {
                return true;
            }
        }
        false
    })
}

fn power(mut base: u64, mut exponent: u32, modulus: u64) -> u64 {
    let mut result = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result * base % modulus;
        }
        base = base * base % modulus;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divisible(n: u32) -> bool {
        (2..).take_while(|d| d * d <= n).any(|d| n.is_multiple_of(d))
    }

    const LEAST: u32 = 1 << 30;

    /// BOOM-G10-01: primes between 2^30 and 2^31, or smaller ones if the KEY has to have room for more.
    #[test]
    fn the_numbers_are_primes_of_the_range() {
        for least in [LEAST, 1 << 20, 1 << 15] {
            let edges = [0, 1, least - WIDEST_GAP - 1, u32::MAX];
            for number in (0..u32::MAX).step_by(100_000_007).chain(edges) {
                let prime = prime_from(least, number);
                assert!((least..least * 2).contains(&prime) && !divisible(prime), "{prime}");
            }
        }
        assert_eq!(prime_from(LEAST, 0), LEAST + 3);
        let odd = (LEAST..).step_by(1).filter(|n| n % 2 == 1).take(300);
        for n in odd.chain((1..2000).map(|n| (1 << 15) + 2 * n + 1)) {
            assert_eq!(is_prime(n), !divisible(n), "{n}");
        }
    }

    /// BOOM-G10-02: the product never overflows. BOOM-G10-03: 0 confirms nothing.
    #[test]
    fn keys_are_multiplied_while_they_fit() {
        let prime = LEAST + 3;
        let once = multiplied(1, prime).unwrap();
        let twice = multiplied(once, prime_from(LEAST, 7)).unwrap();
        assert_eq!(multiplied(twice, prime), None);
        assert!(divides(prime, twice) && divides(prime_from(LEAST, 7), twice));
        assert!(!divides(prime, 0) && !divides(prime, 1) && !divides(0, 7));
        for (least, fit) in [(1 << 20, 3), (1 << 15, 4)] {
            let largest = prime_from(least, least - WIDEST_GAP - 1);
            let product = (0..fit).try_fold(1, |key, _| multiplied(key, largest)).unwrap();
            assert_eq!(multiplied(product, largest), None);
        }
    }
}
