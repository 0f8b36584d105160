//! Neighbours that offer refresh reduction but do not do it: they never acknowledge, or refuse MESSAGE_IDs. After a
//! bounded number of tries they get plain RFC 2205, for some time.
//!
//! A Path is addressed to its session, so a neighbour is known here by the interface and a mark of the next router, which
//! the engine computes.

use core::time::Duration;
use std::collections::HashMap;

use signalbox_core::index::KeyedHasher;
use signalbox_core::{IfIndex, Time};

/// Time for which a neighbour gets plain RFC 2205.
const PLAIN: Duration = Duration::from_secs(300);
/// Number of neighbours in the table at most. Others get messages with MESSAGE_IDs.
const MOST: usize = 4096;

/// A neighbour: the interface and the mark of the next router; 0: the router is not known.
pub(super) type Towards = (IfIndex, u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// A message was not acknowledged in time, and no message was since then.
    Silent(Time),
    /// It gets no MESSAGE_IDs up to this time.
    Plain(Time),
}

impl Standing {
    fn has_lasted(self, now: Time, time: Duration) -> bool {
        matches!(self, Self::Silent(since) if now.since(since) >= time)
    }
}

#[derive(Debug)]
pub(super) struct Reluctant(HashMap<Towards, Standing, KeyedHasher>);

impl Reluctant {
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        Self(HashMap::with_hasher(hasher))
    }

    /// Whether the neighbour gets messages without MESSAGE_IDs.
    pub(super) fn is_plain(&self, now: Time, towards: Towards) -> bool {
        !self.0.is_empty() && matches!(self.0.get(&towards), Some(Standing::Plain(until)) if *until > now)
    }

    /// A message to the neighbour was not acknowledged in time.
    pub(super) fn silent(&mut self, now: Time, towards: Towards) {
        if towards.1 == 0 {
            return;
        }
        if self.0.len() >= MOST {
            self.0.retain(|_, standing| matches!(standing, Standing::Plain(until) if *until > now));
        }
        if self.0.len() < MOST && !self.is_plain(now, towards) {
            self.0
                .entry(towards)
                .and_modify(|standing| {
                    if matches!(standing, Standing::Plain(_)) {
                        *standing = Standing::Silent(now); // its time is over
                    }
                })
                .or_insert(Standing::Silent(now));
        }
    }

    /// The neighbour acknowledged a message.
    pub(super) fn acknowledged(&mut self, towards: Towards) {
        if !self.0.is_empty() && matches!(self.0.get(&towards), Some(Standing::Silent(_))) {
            self.0.remove(&towards);
        }
    }

    /// All tries of a message to the neighbour were in vain. Whether it gets plain RFC 2205 from now on, because it has
    /// acknowledged no other message either for the time of the last try.
    pub(super) fn exhausted(&mut self, now: Time, towards: Towards, last_try: Duration) -> bool {
        let standing = self.0.get_mut(&towards);
        match standing {
            Some(standing @ Standing::Silent(_)) if standing.has_lasted(now, last_try) => {
                *standing = Standing::Plain(now + PLAIN);
                true
            }
            _ => false,
        }
    }

    /// The neighbour refused a MESSAGE_ID.
    pub(super) fn refuses(&mut self, now: Time, towards: Towards) {
        self.silent(now, towards);
        self.exhausted(now, towards, Duration::ZERO);
    }
}
