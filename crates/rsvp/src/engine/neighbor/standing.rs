//! Which neighbors get MESSAGE_IDs (RFC 2961): those that have shown that they can, and of all others a few states at a time.
//!
//! A plain RFC 2205 neighbor refuses or drops a message with a MESSAGE_ID. One that says in its message headers that it has no
//! refresh reduction gets none. To a neighbor of which nothing is known [`TRIED`] messages have one, and all others have none
//! until it answers or does not. A neighbor that offers refresh reduction but never acknowledges, or refuses MESSAGE_IDs, gets
//! plain RFC 2205 for some time.
//!
//! A Path is addressed to its session, so a neighbor is known here by the interface and a mark of the next router.

use core::time::Duration;
use std::collections::HashMap;

use signalbox_core::index::KeyedHasher;
use signalbox_core::{IfIndex, Time};

/// Time for which a neighbor gets plain RFC 2205.
const PLAIN: Duration = Duration::from_secs(300);
/// The same after the first message that it ignored, which may have been lost. It doubles with each that follows.
const FIRST_PLAIN: Duration = Duration::from_secs(30);
/// Number of neighbors in the table at most. Others get messages with MESSAGE_IDs.
const MOST: usize = 4096;
/// Messages with a MESSAGE_ID that go at a time to a neighbor that has not shown that it can handle them.
const TRIED: u8 = 4;

/// A neighbor: the interface and the mark of the next router; 0: the router is not known.
pub(in crate::engine) type Towards = (IfIndex, u32);

/// Whether a message has a MESSAGE_ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Naming {
    /// It has one.
    Yes,
    /// It has no MESSAGE_ID while other messages try whether the neighbor can handle them.
    Later,
    /// It has no MESSAGE_ID.
    No,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It can: it said so, or acknowledged a message. `silent`: a message was not acknowledged in time, and no message was since.
    Able { silent: Option<Time> },
    /// It says that it cannot.
    Unable,
    /// Nothing is known. This number of messages has tried it; `until`: another round may begin then.
    Tried { count: u8, until: Time, pause: Duration },
    /// It gets no MESSAGE_IDs for this time, and up to this one.
    Plain { pause: Duration, until: Time },
}

#[derive(Debug)]
pub(super) struct Standings(HashMap<Towards, Standing, KeyedHasher>);

impl Standings {
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        Self(HashMap::with_hasher(hasher))
    }

    fn get(&self, towards: Towards) -> Option<Standing> {
        self.0.get(&towards).copied()
    }

    /// Stores the standing of a neighbor, if there is room or it has one.
    fn set(&mut self, now: Time, towards: Towards, standing: Standing) {
        if towards.1 == 0 {
            return;
        }
        if self.0.len() >= MOST && !self.0.contains_key(&towards) {
            self.0.retain(|_, one| match one {
                Standing::Plain { until, .. } | Standing::Tried { until, .. } => *until > now,
                Standing::Able { silent } => silent.is_none(),
                Standing::Unable => true,
            });
        }
        if self.0.len() < MOST || self.0.contains_key(&towards) {
            self.0.insert(towards, standing);
        }
    }

    /// Whether a message to the neighbor has a MESSAGE_ID.
    pub(super) fn naming(&self, now: Time, towards: Towards) -> Naming {
        match self.get(towards) {
            None | Some(Standing::Able { .. }) => Naming::Yes,
            Some(Standing::Unable) => Naming::No,
            Some(Standing::Plain { until, .. }) if until > now => Naming::No,
            Some(Standing::Tried { count, until, .. }) if count >= TRIED && until > now => Naming::Later,
            Some(Standing::Plain { .. } | Standing::Tried { .. }) => Naming::Yes,
        }
    }

    /// A message with a MESSAGE_ID went to the neighbor, and waits for its acknowledgment up to `until`.
    pub(super) fn tried(&mut self, now: Time, towards: Towards, until: Time) {
        let (count, pause) = match self.get(towards) {
            Some(Standing::Able { .. } | Standing::Unable) => return,
            Some(Standing::Tried { count, until, pause }) if until > now => (count.saturating_add(1), pause),
            Some(Standing::Plain { until, .. }) if until > now => return,
            Some(Standing::Plain { pause, .. } | Standing::Tried { pause, .. }) => (1, pause),
            None => (1, Duration::ZERO),
        };
        self.set(now, towards, Standing::Tried { count, until, pause });
    }

    /// Whether the neighbor has shown that it handles MESSAGE_IDs.
    pub(super) fn is_able(&self, towards: Towards) -> bool {
        matches!(self.get(towards), Some(Standing::Able { .. }))
    }

    /// The neighbor shows by its messages whether it handles MESSAGE_IDs. Whether that is news.
    pub(super) fn shows(&mut self, now: Time, towards: Towards, able: bool) -> bool {
        let new = if able { Standing::Able { silent: None } } else { Standing::Unable };
        let news = self.get(towards).is_some_and(|before| before != new);
        self.set(now, towards, new);
        news
    }

    /// The neighbor acknowledged a message. Whether that is the first that it shows.
    pub(super) fn acknowledged(&mut self, now: Time, towards: Towards) -> bool {
        match self.get(towards) {
            Some(Standing::Able { silent: None }) => false,
            Some(Standing::Able { .. }) => {
                self.set(now, towards, Standing::Able { silent: None });
                false
            }
            _ => self.shows(now, towards, true),
        }
    }

    /// A message to a neighbor that has not shown that it can was not acknowledged in time. Whether it gets plain RFC 2205
    /// since now.
    pub(super) fn ignored(&mut self, now: Time, towards: Towards) -> bool {
        let before = match self.get(towards) {
            Some(Standing::Tried { pause, .. } | Standing::Plain { pause, .. }) => pause,
            _ => Duration::ZERO,
        };
        self.become_plain(now, towards, (before * 2).clamp(FIRST_PLAIN, PLAIN))
    }

    /// The neighbor refused a MESSAGE_ID. Whether it gets plain RFC 2205 since now.
    pub(super) fn refuses(&mut self, now: Time, towards: Towards) -> bool {
        self.become_plain(now, towards, PLAIN)
    }

    fn become_plain(&mut self, now: Time, towards: Towards, pause: Duration) -> bool {
        let news = self.naming(now, towards) != Naming::No;
        if news {
            self.set(now, towards, Standing::Plain { pause, until: now + pause });
        }
        news
    }

    /// A message to the neighbor was not acknowledged in time, and is sent again.
    pub(super) fn silent(&mut self, now: Time, towards: Towards) {
        match self.get(towards) {
            Some(Standing::Able { silent: Some(_) } | Standing::Unable) => {}
            Some(Standing::Plain { until, .. }) if until > now => {}
            _ => self.set(now, towards, Standing::Able { silent: Some(now) }),
        }
    }

    /// All tries of a message to the neighbor were in vain. Whether it gets plain RFC 2205 from now on, because it has
    /// acknowledged no other message either for the time of the last try.
    pub(super) fn exhausted(&mut self, now: Time, towards: Towards, last_try: Duration) -> bool {
        let lasted = matches!(self.get(towards), Some(Standing::Able { silent: Some(since) }) if now.since(since) >= last_try);
        if lasted {
            self.set(now, towards, Standing::Plain { pause: PLAIN, until: now + PLAIN });
        }
        lasted
    }

    /// Removes all that is known of the neighbors with this mark, at one interface or at all. Returns the interfaces.
    pub(super) fn clear(&mut self, mark: u32, ifindex: Option<IfIndex>) -> Vec<IfIndex> {
        let is = |(at, one): &Towards| *one == mark && ifindex.is_none_or(|ifindex| ifindex == *at);
        let removed = self.0.extract_if(|towards, _| is(towards));
        removed.map(|((at, _), _)| at).collect()
    }

    /// The record of the neighbor ended.
    pub(super) fn forget(&mut self, towards: Towards) {
        if matches!(self.get(towards), Some(Standing::Able { .. } | Standing::Unable)) {
            self.0.remove(&towards);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Towards = (IfIndex(2), 7);

    fn s(s: u64) -> Time {
        Time::from_secs(s)
    }

    fn standings() -> Standings {
        Standings::new(KeyedHasher::with_key([1; 16]))
    }

    #[test]
    fn a_few_messages_try_an_unknown_neighbor_at_a_time() {
        let mut all = standings();
        for _ in 0..TRIED {
            assert_eq!(all.naming(s(1), AT), Naming::Yes);
            all.tried(s(1), AT, s(2));
        }
        assert_eq!(all.naming(s(1), AT), Naming::Later);
        assert_eq!(all.naming(s(1), (IfIndex(3), 7)), Naming::Yes, "another neighbor");
        // The states that tried may have ended: another round begins.
        assert_eq!(all.naming(s(2), AT), Naming::Yes);
        all.tried(s(2), AT, s(3));
        assert_eq!(all.naming(s(2), AT), Naming::Yes);
        assert!(all.acknowledged(s(2), AT) && !all.acknowledged(s(2), AT));
        for _ in 0..100 {
            all.tried(s(2), AT, s(3));
        }
        assert_eq!(all.naming(s(2), AT), Naming::Yes);
    }

    #[test]
    fn a_neighbor_that_ignores_a_message_gets_plain_rsvp_until_it_shows_more() {
        let mut all = standings();
        all.tried(s(1), AT, s(2));
        assert!(all.ignored(s(2), AT) && !all.ignored(s(2), AT));
        // It is tried again after 30 s, then after twice as long, up to 300 s.
        let mut at = 2;
        for pause in [30, 60, 120, 240, 300, 300] {
            assert_eq!(all.naming(s(at + pause - 1), AT), Naming::No, "{pause}");
            at += pause;
            assert_eq!(all.naming(s(at), AT), Naming::Yes, "{pause}");
            all.tried(s(at), AT, s(at + 1));
            assert!(all.ignored(s(at), AT));
        }
        assert!(all.shows(s(at), AT, true));
        assert_eq!(all.naming(s(at), AT), Naming::Yes);
        assert!(all.shows(s(at), AT, false));
        assert_eq!(all.naming(s(at), AT), Naming::No);
        all.forget(AT);
        assert_eq!(all.naming(s(at), AT), Naming::Yes);
        assert!(all.refuses(s(at), AT));
        assert_eq!(all.naming(s(at + 299), AT), Naming::No);
    }

    #[test]
    fn an_able_neighbor_that_acknowledges_nothing_gets_plain_rsvp_after_all_tries() {
        let mut all = standings();
        all.shows(s(1), AT, true);
        all.silent(s(2), AT);
        assert!(!all.exhausted(s(3), AT, Duration::from_secs(2)));
        all.acknowledged(s(3), AT);
        assert!(!all.exhausted(s(9), AT, Duration::from_secs(2)));
        all.silent(s(10), AT);
        assert!(all.exhausted(s(12), AT, Duration::from_secs(2)));
        assert_eq!(all.naming(s(12), AT), Naming::No);
    }

    #[test]
    fn the_table_is_bounded() {
        let mut all = standings();
        (1..10_000).for_each(|mark| all.tried(s(1), (IfIndex(1), mark), s(2)));
        assert_eq!(all.0.len(), MOST);
        all.tried(s(2), (IfIndex(2), 1), s(3));
        assert_eq!(all.0.len(), 1);
    }
}
