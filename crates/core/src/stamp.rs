//! Points in time that take 4 or 6 octets in a record.

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

    /// The first tick at or after `now` and a span.
    #[must_use]
    pub const fn later(now: Time, span: Span) -> Self {
        Self(Self::after(now).0.wrapping_add(span.0))
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

/// Length of a tick of a [`Since`], in microseconds.
const SINCE_TICK_US: u64 = 100_000;

/// A point in time that is past, in ticks of 0.1 s since the start of the clock, so that it stays past for 13 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Since(u32);

impl Since {
    /// The tick that contains `now`. From 13 years on it is the last one.
    pub fn of(now: Time) -> Self {
        Self(u32::try_from(now.as_micros() / SINCE_TICK_US).unwrap_or(u32::MAX))
    }

    /// The time of the tick.
    #[must_use]
    pub const fn time(self) -> Time {
        Time::from_micros(self.0 as u64 * SINCE_TICK_US)
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

/// A point in time that keeps its microseconds, in 6 octets. From 2⁴⁸ - 1 µs after the start on (nearly 9 years) it is
/// [`Moment::NEVER`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment([u16; 3]);

impl Moment {
    /// A time that does not come.
    pub const NEVER: Self = Self([u16::MAX; 3]);

    /// The time: that of the greatest number of microseconds for [`Moment::NEVER`].
    pub const fn time(self) -> Time {
        let [high, middle, low] = self.0;
        let us = (high as u64) << 32 | (middle as u64) << 16 | low as u64;
        Time::from_micros(if us == (1 << 48) - 1 { u64::MAX } else { us })
    }

    /// The time; `None` for [`Moment::NEVER`].
    pub fn get(self) -> Option<Time> {
        (self != Self::NEVER).then(|| self.time())
    }

    /// Whether the time is reached at `now`.
    pub fn is_due(self, now: Time) -> bool {
        self.time() <= now
    }
}

impl From<Time> for Moment {
    #[expect(clippy::cast_possible_truncation, reason = "the number is taken apart")]
    fn from(time: Time) -> Self {
        let us = time.as_micros();
        if us >> 48 == 0 { Self([(us >> 32) as u16, (us >> 16) as u16, us as u16]) } else { Self::NEVER }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_keep_microseconds_and_their_order() {
        let times = [0, 1, 65_535, 65_536, 90_000_001, 1 << 40, (1 << 48) - 2].map(Time::from_micros);
        assert_eq!(times.map(|time| Moment::from(time).time()), times);
        assert!(times.map(Moment::from).is_sorted() && Moment::from(times[6]) < Moment::NEVER);
        for never in [(1 << 48) - 1, 1 << 48, u64::MAX] {
            assert_eq!(Moment::from(Time::from_micros(never)), Moment::NEVER);
        }
        assert!(!Moment::NEVER.is_due(times[6]) && Moment::from(times[1]).is_due(times[1]));
    }

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
    fn a_span_later_is_the_tick_of_its_duration() {
        for us in [0, 1, 9_999, 10_000, (1 << 32) * 10_000 - 3] {
            let (now, span) = (Time::from_micros(us), Span::of(Duration::from_secs(45)));
            assert_eq!(Stamp::later(now, span), Stamp::after(now + span.duration()), "{us}");
        }
    }

    #[test]
    fn what_is_past_stays_past() {
        let year = 365 * 86_400;
        for now in [0, 1, 10 * year].map(Time::from_secs) {
            assert_eq!(Since::of(now + Duration::from_millis(199)).time(), now + Duration::from_millis(100));
        }
        let late = Time::from_secs(20 * year);
        assert!(Since::of(late).time() < late && Since::of(late) > Since::of(Time::from_secs(13 * year)));
    }

    #[test]
    fn spans_are_bounded() {
        assert_eq!(Span::of(Duration::from_millis(15)).duration(), Duration::from_millis(20));
        assert!(Span::of(Duration::MAX).duration() < Duration::from_secs(249 * 86_400));
    }
}
