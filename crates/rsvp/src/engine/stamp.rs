//! Points in time that take 4 octets in a record.

use signalbox_core::Time;

/// Microseconds a tick of a [`Stamp`].
const TICK_US: u64 = 10_000;

/// A point in time in ticks of 10 ms, modulo 2³² (497 days). Compared by distance, so the wrap does no harm
/// as long as two stamps lie less than 248 days apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stamp(u32);

impl Stamp {
    /// The tick that `now` lies in.
    #[expect(clippy::cast_possible_truncation, reason = "ticks count modulo 2^32")]
    pub(crate) const fn of(now: Time) -> Self {
        Self((now.as_micros() / TICK_US) as u32)
    }

    /// The first tick at or after `time`: deadlines are never early.
    #[expect(clippy::cast_possible_truncation, reason = "ticks count modulo 2^32")]
    pub(crate) const fn after(time: Time) -> Self {
        Self(time.as_micros().div_ceil(TICK_US) as u32)
    }

    /// Whether it is reached.
    pub(crate) const fn is_due(self, now: Time) -> bool {
        self.ticks_from(now) <= 0
    }

    /// The time that it stands for, as seen from `now`.
    pub(crate) const fn time(self, now: Time) -> Time {
        let base = (now.as_micros() / TICK_US).cast_signed();
        let ticks = base + self.ticks_from(now);
        Time::from_micros(if ticks < 0 { 0 } else { ticks.cast_unsigned() * TICK_US })
    }

    /// The earlier of two.
    pub(crate) const fn min(self, other: Self) -> Self {
        if self.0.wrapping_sub(other.0).cast_signed() <= 0 { self } else { other }
    }

    const fn ticks_from(self, now: Time) -> i64 {
        self.0.wrapping_sub(Self::of(now).0).cast_signed() as i64
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn deadlines_are_never_early_and_survive_the_wrap() {
        let now = Time::from_micros((u64::from(u32::MAX) - 1) * TICK_US + 7);
        let later = now + Duration::from_secs(30);
        let stamp = Stamp::after(later);
        assert!(!stamp.is_due(now) && !stamp.is_due(later - Duration::from_millis(1)));
        assert!(stamp.is_due(later + Duration::from_millis(10)));
        assert!(stamp.time(now) >= later && stamp.time(now) <= later + Duration::from_millis(10));
        assert_eq!(Stamp::of(now).min(stamp), Stamp::of(now));
    }
}
