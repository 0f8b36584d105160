//! Clocks of neighbors, by the sequence numbers of their INTEGRITY.
//!
//! A sequence number has seconds of real time in its high half (RFC 2747 §3), so that it grows over a restart. A node that starts with its
//! clock behind sends numbers that its neighbors have seen: they drop its messages as replayed until its clock is right. Nothing but the
//! number shows the reason.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::Time;

use super::Neighbors;

/// A smaller difference is no matter: messages wait, and clocks drift.
const LEAST_S: i64 = 3600;
/// A number that differs by more is not made from a clock.
const MOST_S: i64 = 10 * 365 * 24 * 3600;
/// Seconds from 1900 to 1970: numbers may be NTP timestamps (RFC 2747 §3).
const NTP_S: i64 = 2_208_988_800;
/// How long a difference is shown after the last message with it.
const SHOWN: Duration = Duration::from_secs(300);

/// A neighbor whose clock is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherClock {
    /// The neighbor.
    pub peer: IpAddr,
    /// Seconds that its clock is before this node's; negative: behind.
    pub ahead_s: i64,
    at: Time,
}

/// The seconds that a sequence number is before a clock, if they differ by more than clocks do.
fn difference(sequence: u64, wall_s: u64) -> Option<i64> {
    let stamp = i64::try_from(sequence >> 32).ok()?;
    let wall = i64::try_from(wall_s).ok()?;
    let ahead = [stamp - wall, stamp - NTP_S - wall].into_iter().min_by_key(|ahead| ahead.abs())?;
    (LEAST_S..MOST_S).contains(&ahead.abs()).then_some(ahead)
}

impl Neighbors {
    /// Compares the clock of a sender whose digest is right with this node's.
    pub(super) fn compare_clocks(&mut self, peer: IpAddr, sequence: u64) {
        let wall_s = self.config.wall(self.now).as_micros() / 1_000_000;
        let Some(ahead_s) = difference(sequence, wall_s) else { return };
        self.counters.clock_differs += 1;
        tracing::debug!(%peer, ahead_s, "clocks differ");
        self.other_clock = Some(OtherClock { peer, ahead_s, at: self.now });
    }

    /// A neighbor whose clock differed from this node's by more than an hour within the last 5 minutes.
    #[must_use]
    pub fn other_clock(&self, now: Time) -> Option<OtherClock> {
        self.other_clock.filter(|other| now.since(other.at) < SHOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_compared_in_seconds_of_either_epoch() {
        let wall = 1_700_000_000;
        let number = |seconds: i64| u64::try_from(seconds).unwrap() << 32 | 7;
        assert_eq!(difference(number(1_700_000_000 - 86_400), wall), Some(-86_400));
        assert_eq!(difference(number(1_700_000_000 + NTP_S + 7200), wall), Some(7200));
        for same in [number(1_700_000_100), number(1_700_000_000 + NTP_S - 100), 1, 77 << 32] {
            assert_eq!(difference(same, wall), None, "{same:x}");
        }
    }
}
