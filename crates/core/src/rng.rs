//! Random numbers of an engine: a CSPRNG with a given seed, for session ids, cookies and jitter.

use core::ops::Range;
use core::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::id::SessionId;

/// A cryptographically secure generator. The same seed gives the same octets, in tests and replays. The
/// daemon takes the seed from the kernel.
pub struct Random(StdRng);

impl core::fmt::Debug for Random {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Random(secret)")
    }
}

impl Random {
    /// A generator with a 32-octet seed.
    #[must_use]
    pub fn new(seed: [u8; 32]) -> Self {
        Self(StdRng::from_seed(seed))
    }

    /// A generator with a small number as its seed, for tests and simulations only.
    #[must_use]
    pub fn from_number(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// A new generator for another engine, with a seed from this one.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.array())
    }

    /// Fills `octets` with random octets.
    pub fn fill(&mut self, octets: &mut [u8]) {
        self.0.fill_bytes(octets);
    }

    /// 32 random bits.
    pub fn u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// 64 random bits.
    pub fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// `N` random octets.
    #[must_use]
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut octets = [0; N];
        self.fill(&mut octets);
        octets
    }

    /// A new session identifier: 128 random bits (RFC 5971 §4.1.3).
    #[must_use]
    pub fn session_id(&mut self) -> SessionId {
        SessionId(self.array())
    }

    /// A random number from 0 up to but not including 1.
    #[must_use]
    pub fn unit(&mut self) -> f64 {
        f64::from(self.u32()) / 4_294_967_296.0
    }

    /// A random number of `range`, evenly distributed (within 2⁻⁶⁴ of its length). An empty range gives its
    /// start.
    #[must_use]
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        let length = range.end.saturating_sub(range.start);
        // The high half of a 64 by 64 bit product.
        let offset = (u128::from(self.u64()) * u128::from(length)) >> 64;
        range.start + u64::try_from(offset).unwrap_or(0) // always less than 2^64
    }

    /// True with `probability` (0 to 1).
    #[must_use]
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// `base` times a random factor between `from` and `to`. Invalid factors (negative, overflow) give
    /// `base`.
    #[must_use]
    pub fn jitter(&mut self, base: Duration, from: f64, to: f64) -> Duration {
        let factor = from + (to - from) * self.unit();
        Duration::try_from_secs_f64(base.as_secs_f64() * factor).unwrap_or(base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides() {
        let (mut a, mut b, mut c) = (Random::new([1; 32]), Random::new([1; 32]), Random::new([2; 32]));
        let first = a.session_id();
        assert_eq!(first, b.session_id());
        assert_ne!(first, c.session_id());
        assert_ne!(first, a.session_id());
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut rng = Random::from_number(7);
        let base = Duration::from_secs(30);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            let n = rng.range(10..15);
            seen[usize::try_from(n - 10).unwrap()] = true;
            let j = rng.jitter(base, 0.5, 1.5);
            assert!(j >= base / 2 && j <= base * 3 / 2);
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(rng.range(3..3), 3);
        assert_eq!(rng.jitter(base, -2.0, -1.0), base);
        assert!(!rng.chance(0.0) && rng.chance(1.0));
    }
}
