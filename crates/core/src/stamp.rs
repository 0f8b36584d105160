//! Points in time that take 4 octets in a record.

use core::time::Duration;

use crate::time::Time;

/// Length of a tick of a [`Stamp`], in microseconds.
const TICK_US: u64 = 10_000;

/// A point in time in ticks of 10 ms, modulo 2³² (497 days). Stamps are compared by their distance, so the
/// wrap does no harm as long as two stamps lie less than 248 days apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp(u32);

impl Stamp {
    /// The tick that contains `now`.
    #[expect(clippy::cast_possible_truncation, reason = "ticks count modulo 2^32")]
    pub const fn of(now: Time) -> Self {
        Self((now.as_micros() / TICK_US) as u32)
    }

    /// The first tick at or after `time`, so that a deadline is never early.
    #[expect(clippy::cast_possible_truncation, reason = "ticks count modulo 2^32")]
    pub const fn after(time: Time) -> Self {
        Self(time.as_micros().div_ceil(TICK_US) as u32)
    }

    /// Whether the stamp is reached at `now`.
    pub const fn is_due(self, now: Time) -> bool {
        self.ticks_from(now) <= 0
    }

    /// The time of the stamp, resolved near `now`.
    pub const fn time(self, now: Time) -> Time {
        let base = (now.as_micros() / TICK_US).cast_signed();
        let ticks = base + self.ticks_from(now);
        Time::from_micros(if ticks < 0 { 0 } else { ticks.cast_unsigned() * TICK_US })
    }

    /// The earlier of two stamps.
    pub const fn min(self, other: Self) -> Self {
        if self.0.wrapping_sub(other.0).cast_signed() <= 0 { self } else { other }
    }

    /// Time from the stamp to `now`; zero if the stamp lies in the future.
    pub fn age(self, now: Time) -> Duration {
        now.since(self.time(now))
    }

    /// Time from `now` to the stamp; zero if the stamp is reached.
    pub fn left(self, now: Time) -> Duration {
        self.time(now).since(now)
    }

    const fn ticks_from(self, now: Time) -> i64 {
        self.0.wrapping_sub(Self::of(now).0).cast_signed() as i64
    }
}

/// A length of time in ticks, for records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span(u32);

impl Span {
    /// `duration` in ticks, at most 248 days.
    pub fn of(duration: Duration) -> Self {
        let ticks = duration.as_micros().div_ceil(u128::from(TICK_US));
        Self(u32::try_from(ticks).unwrap_or(u32::MAX).min(i32::MAX.cast_unsigned()))
    }

    /// The length as a duration.
    pub const fn duration(self) -> Duration {
        Duration::from_micros(self.0 as u64 * TICK_US)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_never_early_and_survive_the_wrap() {
        let now = Time::from_micros((u64::from(u32::MAX) - 1) * TICK_US + 7);
        let later = now + Duration::from_secs(30);
        let stamp = Stamp::after(later);
        assert!(!stamp.is_due(now) && !stamp.is_due(later - Duration::from_millis(1)));
        assert!(stamp.is_due(later + Duration::from_millis(10)));
        assert!(stamp.time(now) >= later && stamp.left(now) <= Duration::from_millis(30_010));
        assert_eq!(Stamp::of(now).min(stamp), Stamp::of(now));
        assert!(Stamp::of(now).age(later) >= Duration::from_secs(30));
    }

    #[test]
    fn spans_are_bounded() {
        assert_eq!(Span::of(Duration::from_millis(15)).duration(), Duration::from_millis(20));
        assert!(Span::of(Duration::MAX).duration() < Duration::from_secs(249 * 86_400));
    }
}
