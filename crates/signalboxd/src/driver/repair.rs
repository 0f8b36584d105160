//! When to put back what another program removed from the kernel.
//!
//! Each report is a reason to look, at once if the last look was long enough ago. Another program that removes the same
//! thing again and again therefore costs a bounded part of the time.

use std::time::Duration;

use signalbox_core::Time;
use signalbox_linux::{Judged, OpenError};

use super::Driver;

/// Shortest time between two looks.
const PERIOD: Duration = Duration::from_millis(200);
/// When to look again after something could not be put back.
const RETRY: Duration = Duration::from_secs(1);

/// The next look at the kernel's state, and what was wrong at the last one.
#[derive(Debug, Default)]
pub(super) struct KernelRepair {
    due: Option<Time>,
    /// When the next look is allowed.
    next: Time,
    faults: Vec<String>,
}

impl KernelRepair {
    /// Something may be missing.
    pub(super) fn schedule(&mut self, now: Time) {
        let at = now.max(self.next);
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// When to look; `None`: nothing is known to be missing.
    pub(super) const fn due(&self) -> Option<Time> {
        self.due
    }

    /// Whether it is time to look.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// The state was looked at, and these faults remain. Returns the text for the log if they are new.
    pub(super) fn done(&mut self, now: Time, faults: Vec<String>) -> Option<String> {
        self.next = now + PERIOD;
        self.due = (!faults.is_empty()).then(|| now + RETRY);
        let is_new = !faults.is_empty() && faults != self.faults;
        self.faults = faults;
        is_new.then(|| self.faults.join("; "))
    }
}

impl Driver {
    /// Something may be missing, or in the way of intercepted packets.
    pub(super) fn schedule_repair(&mut self) {
        let now = self.clock.now();
        self.repair.schedule(now);
        self.self_test.schedule(now);
    }

    /// Puts back what another program removed from the kernel. Returns the number of parts that were missing.
    pub(super) fn repair(&mut self, now: Time) -> usize {
        let mut missing = 0;
        let mut faults = Vec::new();
        match self.engine.io.restore() {
            Ok(false) => {}
            Ok(true) => {
                missing += 1;
                self.counters.interception_restored += 1;
                tracing::warn!("another program removed rules or routes of the interception; they are back");
            }
            Err(error) => faults.push(error.to_string()),
        }
        if let Err(error) = self.judge_interception() {
            faults.push(error.to_string());
        }
        let links = self.engine.enforcer.as_mut().map(|enforcer| enforcer.restore());
        for (interface, result) in links.into_iter().flatten() {
            missing += 1;
            match result {
                Ok(()) => {
                    tracing::warn!(interface, "another program removed queues or filters; they are back")
                }
                Err(error) => faults.push(format!("{interface}: {error}")),
            }
        }
        if let Some(faults) = self.repair.done(now, faults) {
            tracing::warn!("what is gone from the kernel cannot be put back: {faults}");
        }
        self.unreported |= missing > 0;
        missing
    }
}

impl Driver {
    /// Looks whether intercepted packets come to this node, and says what has changed about it.
    pub(super) fn judge_interception(&mut self) -> Result<(), OpenError> {
        let Some(Judged { raised, faults }) = self.engine.io.judge_interception()? else { return Ok(()) };
        for (family, preference) in raised {
            self.counters.interception_raised += 1;
            self.unreported = true;
            tracing::warn!(
                family,
                preference,
                "another rule stood before that of the interception, which now stands first (kernel.keep_rule_first)"
            );
        }
        self.judged(faults);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_micros(ms * 1000)
    }

    #[test]
    fn the_first_report_is_followed_at_once_and_more_of_them_later() {
        let mut repair = KernelRepair::default();
        assert_eq!(repair.due(), None);
        repair.schedule(ms(1000));
        assert!(repair.is_due(ms(1000)));
        assert_eq!(repair.done(ms(1000), Vec::new()), None);
        assert_eq!(repair.due(), None);
        (1001..1100).for_each(|at| repair.schedule(ms(at)));
        assert_eq!(repair.due(), Some(ms(1200)));
    }

    #[test]
    fn a_fault_is_logged_once_and_tried_again() {
        let mut repair = KernelRepair::default();
        let fault = || vec!["no".to_owned()];
        assert_eq!(repair.done(ms(0), fault()).as_deref(), Some("no"));
        assert_eq!(repair.due(), Some(ms(1000)));
        assert_eq!(repair.done(ms(1000), fault()), None);
        // A report is followed earlier than the next attempt.
        repair.schedule(ms(1100));
        assert_eq!(repair.due(), Some(ms(1200)));
        assert_eq!(repair.done(ms(1200), Vec::new()), None);
        assert_eq!(repair.done(ms(1300), fault()).as_deref(), Some("no"), "it came again");
    }
}
