//! Staged refresh timers (draft-pan-rsvp-timer-00): a change is sent again at growing intervals, until the interval has
//! reached the refresh period. Neighbors notice nothing but more messages. The draft's own messages and flag are not
//! sent, because later RFCs use their numbers: answers are the acknowledgments of RFC 2961, and where a message has a
//! MESSAGE_ID, RFC 2961 §6 repeats it.

use core::time::Duration;

use signalbox_core::Time;

use crate::engine::Rsvp;
use crate::engine::interfaces::Iface;
use crate::engine::message_ids::SentState;

/// How many staged intervals of a state have ended since its last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stage(u8);

impl Stage {
    /// The interval after a change.
    pub(crate) const FIRST: Self = Self(0);
    /// The intervals are refresh periods.
    pub(crate) const OVER: Self = Self(u8::MAX);
    /// A change waits to be sent.
    pub(crate) const CHANGE: Self = Self(u8::MAX - 1);

    /// The interval after this one.
    pub(crate) const fn next(self) -> Self {
        match self {
            Self::CHANGE => Self::FIRST,
            Self::OVER => Self::OVER,
            Self(stage) if stage + 1 < Self::CHANGE.0 => Self(stage + 1),
            Self(_) => Self::OVER,
        }
    }

    pub(crate) const fn is_over(self) -> bool {
        matches!(self, Self::OVER)
    }
}

impl Rsvp {
    /// The end of a refresh interval of `about` that begins now at an interface, and its stage.
    pub(super) fn after_stage(&mut self, iface: Iface, stage: Stage, about: &SentState) -> (Time, Stage) {
        let staged = self.is_staged(iface) && !stage.is_over() && !self.has_message_ids(about);
        if let Some(wait) = staged.then(|| self.staged_wait(iface, stage)).flatten() {
            return (self.now + wait, stage);
        }
        let period = Duration::from_millis(u64::from(self.refresh_interval(iface, about)));
        (self.now + self.output.rng.jitter(period, 0.5, 1.5), Stage::OVER)
    }

    /// Whether an interface has staged timers.
    fn is_staged(&self, iface: Iface) -> bool {
        self.interfaces.get(iface).is_some_and(|known| known.config.staged.is_some())
    }

    /// The staged interval after the message of a stage; `None`: the stages are over.
    pub(super) fn staged_wait(&mut self, iface: Iface, stage: Stage) -> Option<Duration> {
        let staged = self.interfaces.get(iface)?.config.staged.filter(|_| !stage.is_over())?;
        let period = Duration::from_millis(u64::from(self.interfaces.period(iface, self.now)));
        let Some(before) = stage.0.checked_sub(1) else {
            // One event that changes many states does not repeat all of them at one instant.
            let alone = self.output.last_trigger.replace(self.now) != Some(self.now);
            let wait = if alone { staged.first } else { self.output.rng.jitter(staged.first, 0.5, 1.5) };
            return (staged.first < period).then_some(wait.min(period));
        };
        let before = staged.first.as_secs_f64() * staged.factor.powi(i32::from(before));
        let wait = (before * staged.factor).min(period.as_secs_f64());
        (before < period.as_secs_f64()).then(|| Duration::from_secs_f64(wait))
    }

    /// Whether the message at the end of this stage may leave now: changes and plain refreshes always may.
    pub(in crate::engine) fn may_repeat(&mut self, stage: Stage) -> bool {
        let allowed =
            matches!(stage, Stage::OVER | Stage::CHANGE) || self.output.staged_limit.allow(self.now);
        if !allowed {
            self.counters.staged_left_out += 1;
        }
        allowed
    }
}
