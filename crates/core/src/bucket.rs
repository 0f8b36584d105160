//! Rate limits.

use crate::time::Time;

/// A token bucket: `rate` tokens a second on average, `burst` tokens at once. It starts full. 32 octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    rate: u32,
    burst: u32,
    /// Fill level, in millionths of a token.
    level: u64,
    filled: Time,
}

/// One token, in millionths of a token.
const TOKEN: u64 = 1_000_000;

impl TokenBucket {
    /// A full bucket that gains `rate` tokens a second and holds at most `burst`. With rate 0 it is never
    /// refilled; with burst 0 nothing passes.
    #[must_use]
    pub const fn new(rate: u32, burst: u32) -> Self {
        Self { rate, burst, level: burst as u64 * TOKEN, filled: Time::ZERO }
    }

    /// Gains `rate` tokens a second from now on. The tokens in the bucket stay.
    pub fn set_rate(&mut self, now: Time, rate: u32) {
        self.refill(now);
        self.rate = rate;
    }

    /// Gains `rate` tokens a second and holds at most `burst` from now on. The tokens in the bucket stay, up to the new burst.
    pub fn set_limits(&mut self, now: Time, rate: u32, burst: u32) {
        self.set_rate(now, rate);
        self.burst = burst;
    }

    /// Takes one token if there is one.
    pub fn allow(&mut self, now: Time) -> bool {
        self.allow_many(now, 1)
    }

    /// Takes `count` tokens if the bucket holds that number, otherwise takes no token.
    pub fn allow_many(&mut self, now: Time, count: u32) -> bool {
        self.take(now, count, 0)
    }

    /// Takes one token if a quarter of the burst is left for others.
    pub fn allow_most(&mut self, now: Time) -> bool {
        self.take(now, 1, self.burst / 4)
    }

    /// Whether it gains nothing.
    #[must_use]
    pub const fn is_of_rate_0(&self) -> bool {
        self.rate == 0
    }

    /// Takes one token if half of the burst is left.
    pub fn allow_half(&mut self, now: Time) -> bool {
        self.take(now, 1, self.burst / 2)
    }

    fn refill(&mut self, now: Time) {
        let passed = now.as_micros().saturating_sub(self.filled.as_micros());
        let most = u64::from(self.burst) * TOKEN;
        // One token a second is one millionth of a token a microsecond.
        self.level = passed.saturating_mul(u64::from(self.rate)).saturating_add(self.level).min(most);
        self.filled = self.filled.max(now);
    }

    fn take(&mut self, now: Time, count: u32, left: u32) -> bool {
        self.refill(now);
        let wanted = u64::from(count) * TOKEN;
        if self.level < wanted + u64::from(left) * TOKEN {
            return false;
        }
        self.level -= wanted;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_pass_and_the_rate_holds_afterwards() {
        let mut bucket = TokenBucket::new(10, 3);
        let passed = |bucket: &mut TokenBucket, from: u64, to: u64| {
            (from..to).filter(|ms| bucket.allow(Time::from_millis(*ms))).count()
        };
        assert_eq!(passed(&mut bucket, 0, 50), 3);
        assert_eq!(passed(&mut bucket, 50, 1050), 10);
        assert_eq!((0..9).filter(|_| bucket.allow(Time::from_secs(100))).count(), 3);
    }

    #[test]
    fn a_quarter_of_the_burst_is_left_for_others() {
        let mut bucket = TokenBucket::new(10, 8);
        let now = Time::from_secs(1);
        assert_eq!((0..20).filter(|_| bucket.allow_most(now)).count(), 6);
        assert_eq!((0..20).filter(|_| bucket.allow(now)).count(), 2);
        // The rate is the same.
        let later = (0..10_000).map(|ms| Time::from_millis(1000 + ms));
        assert_eq!(later.filter(|at| bucket.allow_most(*at)).count(), 97);
    }

    #[test]
    fn another_rate_counts_from_its_time_on() {
        let mut bucket = TokenBucket::new(10, 100);
        assert!(bucket.allow_many(Time::ZERO, 100));
        bucket.set_rate(Time::from_secs(1), 1);
        assert!(!bucket.allow_many(Time::from_secs(2), 12));
        assert!(bucket.allow_many(Time::from_secs(2), 11));
    }

    #[test]
    fn another_burst_counts_from_its_time_on() {
        let mut bucket = TokenBucket::new(10, 2);
        bucket.set_limits(Time::from_secs(1), 10, 5);
        assert!(!bucket.allow_many(Time::from_secs(1), 3), "no token comes with it");
        assert!(bucket.allow_many(Time::from_secs(2), 5));
        bucket.set_limits(Time::from_secs(9), 10, 1);
        assert_eq!((0..9).filter(|_| bucket.allow(Time::from_secs(9))).count(), 1);
    }

    #[test]
    fn no_token_is_won_by_asking_often_or_by_time_that_stands_still() {
        let mut bucket = TokenBucket::new(1, 1);
        assert!(bucket.allow(Time::from_secs(9)));
        assert!((0..999_999).step_by(997).all(|us| !bucket.allow(Time::from_micros(9_000_000 + us))));
        assert!(bucket.allow(Time::from_secs(10)));
        assert!(!bucket.allow(Time::from_secs(3)));
        assert!(!TokenBucket::new(5, 0).allow(Time::from_secs(7)));
        assert!(!TokenBucket::new(5, 2).allow_many(Time::from_secs(7), 3));
    }
}
