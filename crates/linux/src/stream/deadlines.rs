//! Deadlines of streams and listeners, kept by one timer that the loop's wait includes.

use std::collections::BTreeSet;
use std::io;
use std::time::Instant;

use crate::sys::epoll::TimerFd;

pub(super) struct Deadlines {
    timer: TimerFd,
    /// The time and the token of each deadline.
    set: BTreeSet<(Instant, u64)>,
    /// The time for which the timer is set; not later than the first deadline.
    armed: Option<Instant>,
}

impl Deadlines {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { timer: TimerFd::new()?, set: BTreeSet::new(), armed: None })
    }

    pub(super) const fn timer(&self) -> &TimerFd {
        &self.timer
    }

    pub(super) fn add(&mut self, when: Instant, token: u64) {
        self.set.insert((when, token));
        if self.armed.is_none_or(|armed| when < armed) {
            self.arm();
        }
    }

    /// Removes a deadline. The timer may then fire without need, which costs less than setting it each time.
    pub(super) fn remove(&mut self, when: Instant, token: u64) {
        self.set.remove(&(when, token));
    }

    /// Removes one deadline that is due and returns it. If no deadline is due, the timer is set to the next one.
    pub(super) fn pop_due(&mut self) -> Option<u64> {
        let due = self.set.first().filter(|(when, _)| *when <= Instant::now()).copied();
        if let Some(due) = due {
            self.set.remove(&due);
        } else {
            self.arm();
        }
        due.map(|(_, token)| token)
    }

    fn arm(&mut self) {
        self.armed = self.set.first().map(|(when, _)| *when);
        let delay = self.armed.map(|when| when.saturating_duration_since(Instant::now()));
        // Only an invalid descriptor or time could make the call fail, and this module makes both.
        let _ = self.timer.set(delay);
    }
}
