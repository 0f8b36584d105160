//! Time and randomness from the kernel, for the drivers of engines. Engines themselves read neither.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use signalbox_core::Time;

use crate::sys;

/// A clock that starts at [`Time::ZERO`] and never runs backwards.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    start_unix_us: u64,
}

impl Clock {
    /// Starts a clock now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now(), start_unix_us: unix_us() }
    }

    /// The time since the start.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from_micros(u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// The wall clock at the time zero of this clock, by what it says now: another value than [`Self::start_unix_us`] if it was
    /// set since.
    #[must_use]
    pub fn zero_unix_us(&self) -> u64 {
        unix_us().saturating_sub(self.now().as_micros())
    }

    /// The wall clock at the start, in microseconds since 1970. Engines add their time to it when they write a
    /// timestamp.
    #[must_use]
    pub const fn start_unix_us(&self) -> u64 {
        self.start_unix_us
    }
}

/// The wall clock, in microseconds since 1970.
#[must_use]
pub fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Microseconds since the machine was started, sleep included. All processes see the same clock, which is never set.
#[must_use]
pub fn since_boot_us() -> u64 {
    sys::time_of(libc::CLOCK_BOOTTIME).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// The time of CLOCK_MONOTONIC, which eBPF programs read too.
#[must_use]
pub fn monotonic() -> Duration {
    sys::time_of(libc::CLOCK_MONOTONIC).unwrap_or_default()
}

/// A seed for an engine's own generator.
///
/// # Errors
/// The kernel has no `getrandom`.
pub fn seed() -> std::io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    sys::getrandom(&mut seed)?;
    Ok(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_and_time_does_not_run_backwards() {
        assert_ne!(seed().unwrap(), seed().unwrap());
        let clock = Clock::start();
        assert!(clock.now() <= clock.now());
        assert!(clock.start_unix_us() > 1_600_000_000_000_000);
        let since_boot = since_boot_us();
        assert!(since_boot > 0 && since_boot_us() >= since_boot);
    }
}
