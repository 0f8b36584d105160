//! What changed in a table, for those who watch it.

use std::collections::VecDeque;

use crate::id::NslpId;

/// The largest number of queued changes. Further changes are dropped and counted.
const LIMIT: usize = 4096;

/// A queue of changes. While it is switched off, a change costs one comparison.
///
/// ```
/// use signalbox_core::Changes;
///
/// let mut changes = Changes::default();
/// changes.note(|| "not watched");
/// changes.watch(true);
/// changes.note(|| "opened");
/// assert_eq!((changes.take(), changes.take()), (Some("opened"), None));
/// ```
#[derive(Debug)]
pub struct Changes<T> {
    on: bool,
    queue: VecDeque<T>,
    lost: u64,
}

impl<T> Default for Changes<T> {
    fn default() -> Self {
        Self { on: false, queue: VecDeque::new(), lost: 0 }
    }
}

impl<T: PartialEq> Changes<T> {
    /// Starts or ends the watch. At the end, what was not taken is dropped.
    pub fn watch(&mut self, on: bool) {
        self.on = on;
        if !on {
            *self = Self::default();
        }
    }

    /// Notes a change. The same change twice in a row counts once.
    #[inline]
    pub fn note(&mut self, change: impl FnOnce() -> T) {
        if self.on {
            self.push(change());
        }
    }

    #[cold]
    fn push(&mut self, change: T) {
        if self.queue.len() >= LIMIT {
            self.lost = self.lost.saturating_add(1);
        } else if self.queue.back() != Some(&change) {
            self.queue.push_back(change);
        }
    }

    /// The oldest change.
    pub fn take(&mut self) -> Option<T> {
        self.queue.pop_front()
    }

    /// The number of changes that were lost since the last call.
    pub const fn take_lost(&mut self) -> u64 {
        core::mem::replace(&mut self.lost, 0)
    }
}

/// What happens to a session in the table of its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEvent {
    /// It appears.
    Opened,
    /// Its state changes in a way that its users notice. A refresh that is answered is no change.
    Changed,
    /// It disappears.
    Closed,
}

/// A session of a protocol appears in its table, changes, or disappears from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionChange {
    /// The session, as the protocol writes it.
    pub session: String,
    /// The signaling application that the session belongs to; only for GIST.
    pub nslp: Option<NslpId>,
    /// What happens to it.
    pub what: SessionEvent,
}

impl SessionChange {
    /// A session that appears.
    #[must_use]
    pub const fn opened(session: String) -> Self {
        Self { session, nslp: None, what: SessionEvent::Opened }
    }

    /// A session whose state changes.
    #[must_use]
    pub const fn changed(session: String) -> Self {
        Self { session, nslp: None, what: SessionEvent::Changed }
    }

    /// A session that disappears.
    #[must_use]
    pub const fn closed(session: String) -> Self {
        Self { session, nslp: None, what: SessionEvent::Closed }
    }

    /// The same change, for a session of this signaling application.
    #[must_use]
    pub fn of(self, nslp: NslpId) -> Self {
        Self { nslp: Some(nslp), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_that_is_not_read_is_bounded() {
        let mut changes = Changes::default();
        changes.watch(true);
        for number in 0..5000 {
            changes.note(|| number);
        }
        assert_eq!((changes.take(), changes.take_lost(), changes.take_lost()), (Some(0), 5000 - 4096, 0));
        changes.watch(false);
        changes.watch(true);
        assert_eq!(changes.take(), None);
    }

    #[test]
    fn the_same_change_counts_once() {
        let mut changes = Changes::default();
        changes.watch(true);
        for number in [1, 1, 2, 1] {
            changes.note(|| number);
        }
        assert_eq!(
            [changes.take(), changes.take(), changes.take(), changes.take()],
            [Some(1), Some(2), Some(1), None]
        );
    }
}
