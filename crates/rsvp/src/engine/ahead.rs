//! Records that are needed soon, read before they are used.
//!
//! With many sessions no record is in the caches, and the records of one state lead to each other: their reads wait for memory one
//! after the other. Those of several states do not depend on each other. So a group of states is read first, one table after the
//! other, and handled then. With a million sessions this takes a third off the time of a refresh by MESSAGE_IDs
//! (`signalbox bench engine rsvp-refresh`).

use core::hint::black_box;

use signalbox_core::Key;
use smallvec::SmallVec;

use super::Rsvp;
use super::interfaces::Iface;
use super::message_ids::SentState;
use super::path::{PATH, RESV};

/// States whose records are read together.
pub(crate) const AT_ONCE: usize = 16;

/// Something for each state of such a group.
pub(crate) type Group<T> = SmallVec<[T; AT_ONCE]>;

/// With fewer records in a table most of them are in the caches, and it would cost more to read them twice.
/// Tests have few.
pub(crate) const MANY: u32 = if cfg!(debug_assertions) { 4 } else { 1 << 15 };

/// A sender whose timer is due.
#[derive(Debug, Clone, Copy)]
struct Due {
    key: Key,
    session: u32,
    /// First of its reservations, with FF.
    branch: u32,
    hop: u32,
    oif: Iface,
    path: bool,
    resv: bool,
}

impl Rsvp {
    /// Reads the records that the timers of a sender and of the next ones need. Returns the number of these next ones.
    pub(super) fn read_ahead(&mut self, first: u32) -> usize {
        if self.senders.len() < MANY {
            return 0;
        }
        let mut due = [first; AT_ONCE];
        let more = due.get_mut(1..).unwrap_or_default();
        let more = self.senders.list_next(more);
        self.read_due(due.get(..=more).unwrap_or_default());
        more
    }

    fn read_due(&self, due: &[u32]) {
        let due: Group<Due> = due.iter().filter_map(|index| self.due(*index)).collect();
        let sessions: Group<Key> =
            due.iter().map(|one| self.sessions.key_of(one.session).unwrap_or_default()).collect();
        let branches = due.iter().filter_map(|one| self.branches.get_index(one.branch));
        black_box(branches.fold(false, |read, branch| read ^ branch.is_read(self.now)));
        let mut states = Group::<SentState>::new();
        for (one, session) in due.iter().zip(sessions) {
            if one.path {
                states.push(SentState::Path(one.key, one.oif));
            } else if one.resv {
                states.push(SentState::Resv(session, one.hop));
            }
        }
        self.read_sent(&states);
    }

    fn due(&self, index: u32) -> Option<Due> {
        let (key, sender) = self.senders.entry(index)?;
        Some(Due {
            key,
            session: sender.session,
            branch: sender.branches,
            hop: sender.hop,
            oif: sender.oif,
            path: sender.has(PATH) && sender.path_at.is_due(self.now),
            resv: sender.has(RESV) && sender.resv_at.is_due(self.now),
        })
    }
}
