//! When the flows of connection tracking are walked over.
//!
//! A walk visits all flows of the node, so walks are a second apart. While the kernel refuses them, each waits twice as long as the one
//! before: a kernel without ctnetlink refuses all of them, and a module that is loaded later is found.

use std::io;
use std::time::{Duration, Instant};

/// The time between two walks.
const APART: Duration = Duration::from_secs(1);
/// The longest time between two walks that the kernel refuses.
const MOST_APART: Duration = Duration::from_secs(60);

/// The walks over the flows.
#[derive(Debug)]
pub(super) struct Walks {
    /// Whether flows may stand whose pinhole is closed.
    wanted: bool,
    /// The begin of the last walk; `None`: the next one is due at once.
    last: Option<Instant>,
    apart: Duration,
    /// A walk that began is not over, or has failed.
    begun: bool,
    /// Whether the kernel refused when flows were ended last.
    failing: bool,
}

impl Default for Walks {
    fn default() -> Self {
        Self { wanted: false, last: None, apart: APART, begun: false, failing: false }
    }
}

impl Walks {
    /// Flows may stand whose pinhole is closed.
    pub(super) const fn want(&mut self) {
        self.wanted = true;
    }

    pub(super) const fn are_wanted(&self) -> bool {
        self.wanted
    }

    /// The next walk does not wait for its time.
    pub(super) const fn hurry(&mut self) {
        self.last = None;
    }

    /// When the next walk is due, if one is wanted. `first`: when the first one is.
    pub(super) fn next(&self, first: Instant) -> Option<Instant> {
        self.wanted.then(|| self.last.map_or(first, |last| last + self.apart))
    }

    /// Whether a walk begins now.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let begins = self.next(now).is_some_and(|due| due <= now);
        if begins {
            (self.wanted, self.last, self.begun) = (false, Some(now), true);
            if self.failing {
                self.apart = (self.apart * 2).min(MOST_APART);
            }
        }
        begins
    }

    /// The flows that were found are ended. `goes_on`: the walk is not over.
    pub(super) const fn ended(&mut self, goes_on: bool) {
        if !goes_on && self.begun {
            // Another one may be wanted already.
            (self.begun, self.failing, self.apart) = (false, false, APART);
        }
    }

    /// Flows were not ended: another walk finds them, later each time. The first failure of several is logged.
    pub(super) fn failed(&mut self, error: &io::Error) {
        (self.wanted, self.begun) = (true, false);
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(%error, "flows of closed pinholes were not deleted; it is tried again, later each time");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a kernel that refuses all walks is asked in so many seconds.
    fn refused(walks: &mut Walks, start: Instant, seconds: u64) -> usize {
        let refusal = io::Error::from_raw_os_error(libc::EINVAL);
        let asked = |walks: &mut Walks, now| {
            let begins = walks.begin(now);
            if begins {
                walks.failed(&refusal);
            } else {
                walks.ended(false);
            }
            begins
        };
        (0..seconds).filter(|second| asked(walks, start + Duration::from_secs(*second))).count()
    }

    #[test]
    fn a_kernel_that_refuses_all_walks_is_asked_less_and_less() {
        let (mut walks, start) = (Walks::default(), Instant::now());
        walks.want();
        // After 1, 2, 4, 8, 16 and 32 seconds, and then each minute.
        assert_eq!(refused(&mut walks, start, 3600), 1 + 6 + 58);
        // One that works again has walks a second apart.
        let mut now = start + Duration::from_secs(4000);
        assert!(walks.begin(now));
        walks.ended(false);
        for _ in 0..3 {
            walks.want();
            assert!(!walks.begin(now + Duration::from_millis(900)));
            now += Duration::from_secs(1);
            assert!(walks.begin(now));
            walks.ended(false);
        }
    }

    #[test]
    fn nothing_is_walked_without_a_reason() {
        let (mut walks, now) = (Walks::default(), Instant::now());
        assert!(!walks.begin(now) && walks.next(now).is_none());
        walks.want();
        assert!(walks.are_wanted() && walks.begin(now) && !walks.are_wanted());
        walks.want();
        assert!(!walks.begin(now));
        walks.hurry();
        assert!(walks.begin(now));
    }
}
