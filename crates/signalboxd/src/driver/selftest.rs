//! When packets of the daemon's own try the interception, and what is known of it.
//!
//! A test follows each report that could concern it, at once if the last one is long enough ago. What does not arrive is tried once
//! more before it counts: a full buffer can lose a packet, and a rule that another program removed is put back meanwhile. The event loop
//! does not wait for the packets.

use std::time::Duration;

use signalbox_core::Time;

use super::Driver;

/// Shortest time between two tests.
const PERIOD: Duration = Duration::from_secs(1);
/// How long the packets of one may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Tests until a packet that does not arrive counts.
const TRIES: u8 = 2;
/// When to try again while something is in the way, and while nothing is: the kernel does not report all that can be.
const AGAIN: Duration = Duration::from_secs(10);
const REPEAT: Duration = Duration::from_secs(60);

/// What is known of the interception.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interception {
    /// What the kernel's rules and its lookup of a route show to be in the way.
    routing: Vec<String>,
    /// What did not arrive of the packets of the last test.
    lost: Vec<String>,
    /// Why no packet of a family was tried.
    untried: Vec<String>,
}

impl Interception {
    pub(super) fn new() -> Self {
        let untried = vec!["the first one is under way".to_owned()];
        Self { routing: Vec::new(), lost: Vec::new(), untried }
    }

    /// What is in the way of intercepted packets; empty: the interception works, as far as it was tried.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.routing.iter().chain(&self.lost).cloned().collect()
    }

    /// Why no packet was tried, with the family where it concerns one.
    pub(crate) fn untried(&self) -> &[String] {
        &self.untried
    }
}

/// What the driver does now about the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Nothing.
    Wait,
    /// It sends the packets of a test.
    Begin,
    /// All have arrived.
    Arrived,
    /// Some have not, and this counts.
    Lost,
}

/// The next test, and the one that runs.
#[derive(Debug, Default)]
pub(super) struct SelfTest {
    due: Option<Time>,
    /// When the next one is allowed.
    next: Time,
    /// When the packets that are under way are given up.
    running: Option<Time>,
    /// Tests whose packets did not all arrive, since the last result.
    failed: u8,
    /// Why no packet of a family was sent by the one that runs.
    untried: Vec<String>,
}

impl SelfTest {
    /// Something may have come into the way, or out of it.
    pub(super) fn schedule(&mut self, now: Time) {
        let at = now.max(self.next);
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// When there is something to do at the latest.
    fn due(&self) -> Option<Time> {
        self.running.or(self.due)
    }

    /// `complete`: no packet is under way.
    fn step(&mut self, now: Time, complete: bool) -> Step {
        let step = match (self.running, self.due) {
            (Some(_), _) if complete => Step::Arrived,
            (Some(deadline), _) if deadline > now => Step::Wait,
            (Some(_), _) if self.failed + 1 < TRIES => {
                self.failed += 1;
                Step::Begin
            }
            (Some(_), _) => Step::Lost,
            (None, Some(due)) if due <= now => {
                self.due = None;
                Step::Begin
            }
            (None, _) => Step::Wait,
        };
        match step {
            Step::Wait => {}
            Step::Begin => (self.running, self.next) = (Some(now + PATIENCE), now + PERIOD),
            Step::Arrived | Step::Lost => (self.running, self.failed) = (None, 0),
        }
        let again = match step {
            Step::Lost => Some(now + AGAIN),
            Step::Arrived => Some(now + REPEAT),
            Step::Wait | Step::Begin => None,
        };
        self.due = self.due.into_iter().chain(again).min();
        step
    }
}

impl Driver {
    /// When the test goes on at the latest; `None`: there is none, or no packets are intercepted, and reports of
    /// changes ask in vain.
    pub(super) fn self_test_due(&self) -> Option<Time> {
        self.interception.as_ref().and_then(|_| self.self_test.due())
    }

    /// Goes on with the test of the interception.
    pub(super) fn self_test(&mut self) {
        let now = self.clock.now();
        if self.interception.is_none() {
            return;
        }
        match self.self_test.step(now, self.engine.io.is_self_test_complete()) {
            Step::Wait => {}
            Step::Begin => self.self_test.untried = self.engine.io.begin_self_test(),
            Step::Arrived | Step::Lost => {
                // After the last packet this is empty.
                let lost = self.engine.io.self_test_faults();
                let untried = std::mem::take(&mut self.self_test.untried);
                self.learn(|known| (known.lost, known.untried) = (lost, untried));
            }
        }
    }

    /// The rules and routes show this to be in the way.
    pub(super) fn judged(&mut self, routing: Vec<String>) {
        self.interception.get_or_insert_with(Interception::new);
        self.learn(|known| known.routing = routing);
    }

    /// Changes what is known of the interception, and logs what is new.
    fn learn(&mut self, change: impl FnOnce(&mut Interception)) {
        let Some(known) = &mut self.interception else { return };
        let before = known.clone();
        change(known);
        let (was, faults) = (before.faults(), known.faults());
        if known.untried != before.untried && !known.untried.is_empty() {
            tracing::info!("no packet tries the interception: {}", known.untried.join("; "));
        }
        if was != faults {
            if faults.is_empty() {
                tracing::info!("the interception works again");
            } else {
                tracing::warn!("the interception does not work: {}", faults.join("; "));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_micros(ms * 1000)
    }

    #[test]
    fn many_changes_are_followed_by_one_test_a_second() {
        let mut test = SelfTest::default();
        assert_eq!((test.due(), test.step(ms(5), true)), (None, Step::Wait));
        test.schedule(ms(10));
        assert_eq!(test.step(ms(10), true), Step::Begin);
        assert_eq!(test.step(ms(10), false), Step::Wait);
        (11..500).for_each(|at| test.schedule(ms(at)));
        assert_eq!(test.step(ms(500), true), Step::Arrived);
        assert_eq!((test.due(), test.step(ms(1009), true)), (Some(ms(1010)), Step::Wait));
        assert_eq!(test.step(ms(1010), true), Step::Begin);
        assert_eq!(test.step(ms(1011), true), Step::Arrived);
        assert_eq!(test.due(), Some(ms(61_011)));
    }

    #[test]
    fn what_works_is_tried_again_without_a_report() {
        let mut test = SelfTest::default();
        test.schedule(ms(0));
        assert_eq!(test.step(ms(0), true), Step::Begin);
        assert_eq!(test.step(ms(1), true), Step::Arrived);
        assert_eq!((test.due(), test.step(ms(60_000), true)), (Some(ms(60_001)), Step::Wait));
        assert_eq!(test.step(ms(60_001), true), Step::Begin);
        // A report in the meantime asks for one at once, and the next one follows that.
        assert_eq!(test.step(ms(60_002), true), Step::Arrived);
        test.schedule(ms(70_000));
        assert_eq!(test.step(ms(70_000), true), Step::Begin);
        assert_eq!(test.step(ms(70_001), true), Step::Arrived);
        assert_eq!(test.due(), Some(ms(130_001)));
    }

    #[test]
    fn what_is_lost_once_does_not_count() {
        let mut test = SelfTest::default();
        test.schedule(ms(0));
        assert_eq!(test.step(ms(0), true), Step::Begin);
        assert_eq!((test.due(), test.step(ms(999), false)), (Some(ms(1000)), Step::Wait));
        assert_eq!(test.step(ms(1000), false), Step::Begin, "once more");
        assert_eq!(test.step(ms(1001), true), Step::Arrived);
        assert_eq!(test.due(), Some(ms(61_001)));
    }

    #[test]
    fn what_is_in_the_way_is_tried_again_later_and_after_a_change_at_once() {
        let mut test = SelfTest::default();
        test.schedule(ms(0));
        assert_eq!(test.step(ms(0), true), Step::Begin);
        assert_eq!(test.step(ms(1000), false), Step::Begin);
        assert_eq!(test.step(ms(2000), false), Step::Lost);
        assert_eq!(test.due(), Some(ms(12_000)));
        test.schedule(ms(3000));
        assert_eq!(test.step(ms(3000), true), Step::Begin);
        assert_eq!(test.step(ms(3001), true), Step::Arrived);
        assert_eq!(test.due(), Some(ms(63_001)), "it works");
    }
}
