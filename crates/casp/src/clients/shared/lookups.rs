//! Messages and sessions that wait for the answer to a route lookup.
//!
//! What waits dies with its session: a request that goes on after the release of its session would make state that no message ends.

use std::collections::{BTreeMap, BTreeSet};

use signalbox_core::SessionId;

/// Something that waits for a route.
pub(in crate::clients) trait Waits {
    /// The session of the message that waits; `None`: it is no message of another node.
    fn session(&self) -> Option<SessionId>;
}

/// What waits, by the number of its lookup.
#[derive(Debug)]
pub(in crate::clients) struct Lookups<T> {
    waiting: BTreeMap<u64, T>,
    by_session: BTreeSet<(SessionId, u64)>,
    next: u64,
}

impl<T> Default for Lookups<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), by_session: BTreeSet::new(), next: 1 }
    }
}

impl<T: Waits> Lookups<T> {
    pub(in crate::clients) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Keeps something. The result is the number of the lookup.
    pub(in crate::clients) fn keep(&mut self, what: T) -> u64 {
        let id = self.next;
        self.next += 1;
        if let Some(session) = what.session() {
            self.by_session.insert((session, id));
        }
        self.waiting.insert(id, what);
        id
    }

    /// Takes out what waits for a lookup.
    pub(in crate::clients) fn take(&mut self, id: u64) -> Option<T> {
        let what = self.waiting.remove(&id)?;
        if let Some(session) = what.session() {
            self.by_session.remove(&(session, id));
        }
        Some(what)
    }

    /// Takes out the messages of a session that end.
    pub(in crate::clients) fn end(&mut self, session: SessionId, ends: impl Fn(&T) -> bool) -> Vec<T> {
        let ids = self.by_session.range((session, 0)..=(session, u64::MAX)).map(|(_, id)| *id);
        let ending = |id: &u64| self.waiting.get(id).is_some_and(&ends);
        let ended: Vec<u64> = ids.filter(ending).collect();
        ended.into_iter().filter_map(|id| self.take(id)).collect()
    }
}
