//! Srefreshes that are being filled (RFC 2961 §5).

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::rng::Random;
use signalbox_core::slab::{Key, Slab};
use signalbox_core::wheel::{Link, Timed, Wheel};
use signalbox_core::{IfIndex, Time};

use super::message_ids::SentIds;
use super::outbox::Envelope;
use crate::wire::ListedId;

/// An Srefresh that is being filled.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) envelope: Envelope,
    pub(crate) ids: Vec<ListedId>,
    /// The handles of their states, in the same order.
    states: Vec<Key>,
    /// MESSAGE_IDs that had ended when the first was added.
    since: u64,
    link: Link,
}

impl Timed for Summary {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// Maximum number at a time: one for each neighbor and group with state to refresh.
const LIMIT: u32 = 4096;

#[derive(Debug)]
pub(crate) struct Summaries {
    slab: Slab<Summary>,
    index: Index,
    hasher: KeyedHasher,
    wheel: Wheel,
    spare: Vec<(Vec<ListedId>, Vec<Key>)>,
}

fn place(envelope: &Envelope) -> (IpAddr, IpAddr, IfIndex) {
    (envelope.dst, envelope.src, envelope.ifindex)
}

impl Summaries {
    pub(crate) fn new(rng: &mut Random) -> Self {
        Self {
            slab: Slab::new(LIMIT),
            index: Index::new(),
            hasher: KeyedHasher::new(rng),
            wheel: Wheel::new(Duration::from_millis(1)),
            spare: Vec::new(),
        }
    }

    /// Adds a state to the Srefresh with this addressing, which is sent at `due` at the latest. Returns the number of
    /// its states; `None`: the table is full. `since`: how many MESSAGE_IDs have ended by now.
    pub(crate) fn add(
        &mut self,
        envelope: Envelope,
        (state, id): (Key, ListedId),
        due: Time,
        since: u64,
    ) -> Option<(Key, usize)> {
        let hash = self.hasher.hash_one(&place(&envelope));
        let is = |at| self.slab.get_index(at).is_some_and(|s| place(&s.envelope) == place(&envelope));
        let key = match self.index.find(hash, is).and_then(|at| self.slab.key_of(at)) {
            Some(key) => key,
            None => {
                let (ids, states) = self.spare.pop().unwrap_or_default();
                let summary = Summary { envelope, ids, states, since, link: Link::default() };
                let key = self.slab.insert(summary).ok()?;
                let (slab, hasher) = (&self.slab, &self.hasher);
                self.index.insert(hash, key.index(), |at| {
                    slab.get_index(at).map_or(0, |s| hasher.hash_one(&place(&s.envelope)))
                });
                self.wheel.arm(&mut self.slab, key.index(), due);
                key
            }
        };
        let summary = self.slab.get_mut(key)?;
        summary.ids.push(id);
        summary.states.push(state);
        Some((key, summary.ids.len()))
    }

    /// Removes an Srefresh to send it, without the states that ended while it was filled. [`Self::recycle`] takes its lists
    /// back.
    pub(crate) fn take(&mut self, key: Key, sent: &SentIds) -> Option<Summary> {
        let envelope = self.slab.get(key)?.envelope;
        self.wheel.cancel(&mut self.slab, key.index());
        let hash = self.hasher.hash_one(&place(&envelope));
        self.index.remove(hash, |at| at == key.index());
        let mut summary = self.slab.remove(key)?;
        if summary.since != sent.ended() {
            let mut states = summary.states.iter();
            summary.ids.retain(|one| states.next().is_some_and(|state| sent.stands(*state, one.id)));
        }
        Some(summary)
    }

    pub(crate) fn recycle(&mut self, summary: Summary) {
        let Summary { mut ids, mut states, .. } = summary;
        ids.clear();
        states.clear();
        if self.spare.len() < 64 {
            self.spare.push((ids, states));
        }
    }

    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Key> {
        let at = self.wheel.pop_due(&mut self.slab, now)?;
        self.slab.key_of(at)
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }
}
