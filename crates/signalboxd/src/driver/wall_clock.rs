//! The wall clock, which is set while the daemon runs: on a machine without a battery for its clock, at each start.

use std::time::Duration;

use signalbox_core::Time;
use signalbox_node::Command;

use super::Driver;

/// How often the wall clock is compared, at most.
const PERIOD: Duration = Duration::from_secs(1);
/// A smaller difference is no matter: certificates, keys and rules have whole seconds.
const TOLERANCE_US: u64 = 500_000;

/// What the node has of the wall clock.
#[derive(Debug)]
pub(super) struct WallClock {
    /// Microseconds since 1970 at the time zero of the daemon's clock.
    zero_us: u64,
    /// When to compare again.
    next: Time,
}

impl WallClock {
    pub(super) const fn new(zero_us: u64) -> Self {
        Self { zero_us, next: Time::ZERO }
    }

    /// Whether it is time to compare.
    fn is_due(&self, now: Time) -> bool {
        self.next <= now
    }

    /// Compares with what the kernel's wall clock gives now. Returns it if the node must have it.
    fn compare(&mut self, now: Time, zero_us: u64) -> Option<u64> {
        self.next = now + PERIOD;
        if self.zero_us.abs_diff(zero_us) < TOLERANCE_US {
            return None;
        }
        self.zero_us = zero_us;
        Some(zero_us)
    }
}

impl Driver {
    /// Gives the node the wall clock if it was set. It is called before what may need it: certificates of a handshake, keys,
    /// tokens and rules.
    pub(super) fn compare_wall_clock(&mut self) {
        let now = self.clock.now();
        if !self.wall_clock.is_due(now) {
            return;
        }
        if let Some(zero_us) = self.wall_clock.compare(now, self.clock.zero_unix_us()) {
            tracing::info!("the wall clock was set; dates are judged by it from now on");
            self.command(Command::WallClock(zero_us));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_noticed_within_a_second_and_once() {
        let second = Time::from_secs;
        let mut wall = WallClock::new(5_000_000);
        assert!(wall.is_due(second(0)));
        assert_eq!(wall.compare(second(0), 5_100_000), None, "the clock drifts");
        assert!(!wall.is_due(Time::from_millis(900)) && wall.is_due(second(1)));
        assert_eq!(wall.compare(second(1), 3_600_000_000), Some(3_600_000_000));
        assert_eq!(wall.compare(second(2), 3_600_000_001), None);
        assert_eq!(wall.compare(second(3), 5_000_000), Some(5_000_000), "it is set back");
    }

    #[test]
    fn slow_drift_adds_up() {
        let mut wall = WallClock::new(0);
        let corrected = (1..100).filter(|n| wall.compare(Time::from_secs(*n), n * 20_000).is_some()).count();
        assert_eq!(corrected, 3);
    }
}
