//! The wall clock of the node, and the AGE of its requests.

use core::time::Duration;

use signalbox_core::Time;

use super::ntp;

/// The wall clock of the node, and the last AGE that it made.
#[derive(Debug)]
pub(in crate::clients) struct Clock {
    /// Microseconds since 1970 at [`Time::ZERO`].
    wall_clock_us: u64,
    age: u64,
}

impl Clock {
    pub(in crate::clients) const fn new(wall_clock_us: u64) -> Self {
        Self { wall_clock_us, age: 0 }
    }

    /// The wall clock was corrected: microseconds since 1970 at [`Time::ZERO`].
    pub(in crate::clients) const fn set(&mut self, wall_clock_us: u64) {
        self.wall_clock_us = wall_clock_us;
    }

    /// Microseconds since 1970.
    pub(in crate::clients) const fn wall_us(&self, now: Time) -> u64 {
        self.wall_clock_us.saturating_add(now.as_micros())
    }

    /// When an NTP timestamp is; `None`: it is before [`Time::ZERO`].
    pub(in crate::clients) fn time_of(&self, stamp: u64) -> Option<Time> {
        Some(Time::from_micros(ntp::micros(stamp)?.checked_sub(self.wall_clock_us)?))
    }

    /// A new AGE: the time as an NTP timestamp, greater than the last one.
    pub(in crate::clients) fn next_age(&mut self, now: Time) -> u64 {
        self.age = ntp::stamp(self.wall_us(now)).max(self.age.wrapping_add(1));
        self.age
    }
}

/// The time that this many seconds stand for.
pub(in crate::clients) const fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds as u64)
}
