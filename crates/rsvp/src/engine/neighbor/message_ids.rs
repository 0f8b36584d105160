//! MESSAGE_IDs of state: received from neighbors and sent to them (RFC 2961 §4.5, §5).

use core::hint::black_box;
use core::net::IpAddr;
use core::num::NonZeroU32;
use core::time::Duration;

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::rng::Random;
use signalbox_core::slab::{Key, Slab};
use signalbox_core::wheel::{Link, Timed, Wheel};
use signalbox_core::{IfIndex, Time, invariant};

use super::outbox::Envelope;
use crate::engine::ahead::{Group, MANY};

/// Handle of a received MESSAGE_ID. The owner of the state stores it and passes it with each message about the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedHandle(pub(crate) Key);

/// Handle of a sent MESSAGE_ID. The owner of the state stores it and passes it with each message about the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentHandle(pub(crate) Key);

/// No slot.
const NONE: u32 = u32::MAX;

/// Neighbor, epoch and identifier. The neighbor is its slot: its record stays as long as a MESSAGE_ID refers to it.
pub(crate) type NeighborId = (u32, u32, u32);

/// A received MESSAGE_ID.
#[derive(Debug)]
pub(crate) struct ReceivedId {
    pub(crate) id: NeighborId,
    /// The owner's tag of the state, plus 1. The slab marks a free slot by 0, so this field is never 0.
    tag: NonZeroU32,
}

impl ReceivedId {
    /// The state, by its owner's tag.
    pub(crate) const fn tag(&self) -> u32 {
        self.tag.get() - 1
    }
}

#[derive(Debug)]
pub(crate) struct ReceivedIds {
    slab: Slab<ReceivedId>,
    index: Index,
    hasher: KeyedHasher,
}

fn hash_of(hasher: &KeyedHasher, (peer, epoch, id): NeighborId) -> u64 {
    hasher.hash_octets([peer, epoch, id].map(u32::to_ne_bytes).as_flattened())
}

impl ReceivedIds {
    pub(crate) fn new(limit: u32, rng: &mut Random) -> Self {
        Self { slab: Slab::new(limit), index: Index::new(), hasher: KeyedHasher::new(rng) }
    }

    pub(crate) const fn set_limit(&mut self, limit: u32) {
        self.slab.set_limit(limit);
    }

    pub(crate) fn get(&self, received: ReceivedHandle) -> Option<&ReceivedId> {
        self.slab.get(received.0)
    }

    pub(crate) fn find(&self, id: NeighborId) -> Option<&ReceivedId> {
        let is = |at| self.slab.get_index(at).is_some_and(|received| received.id == id);
        self.slab.get_index(self.index.find(hash_of(&self.hasher, id), is)?)
    }

    /// Finds several at a time, in order, and gives `found` the tag of each; `None`: it is unknown. Where the tables are larger than
    /// the caches, the rows and then the records of all are read first, so that these reads wait for memory at the same time.
    pub(crate) fn find_all(&self, ids: &[NeighborId], mut found: impl FnMut(Option<u32>)) {
        let hashes: Group<u64> = ids.iter().map(|id| hash_of(&self.hasher, *id)).collect();
        if self.slab.len() >= MANY {
            let rows = hashes.iter().filter_map(|hash| self.index.candidates(*hash).next());
            let rows: Group<u32> = rows.collect();
            let records = rows.iter().filter_map(|at| self.slab.get_index(*at));
            black_box(records.fold(0, |read, received| read ^ received.tag()));
        }
        for (id, hash) in ids.iter().zip(&hashes) {
            let is = |at| self.slab.get_index(at).is_some_and(|received| received.id == *id);
            let received = self.index.find(*hash, is).and_then(|at| self.slab.get_index(at));
            found(received.map(ReceivedId::tag));
        }
    }

    pub(crate) fn insert(&mut self, id: NeighborId, tag: u32) -> Option<ReceivedHandle> {
        let tag = NonZeroU32::MIN.saturating_add(tag);
        let key = self.slab.insert(ReceivedId { id, tag }).ok()?;
        let (slab, hasher) = (&self.slab, &self.hasher);
        self.index.insert(hash_of(hasher, id), key.index(), |at| {
            slab.get_index(at).map_or(0, |received| hash_of(hasher, received.id))
        });
        Some(ReceivedHandle(key))
    }

    /// Removes all MESSAGE_IDs of the neighbor in this slot.
    pub(crate) fn forget(&mut self, peer: u32) {
        let all = self.slab.iter().filter(|(_, received)| received.id.0 == peer).map(|(key, _)| key);
        for key in all.collect::<Vec<_>>() {
            self.remove(ReceivedHandle(key));
        }
    }

    pub(crate) fn remove(&mut self, received: ReceivedHandle) -> Option<ReceivedId> {
        let id = self.slab.get(received.0)?.id;
        self.index.remove(hash_of(&self.hasher, id), |at| at == received.0.index());
        self.slab.remove(received.0)
    }
}

/// A message that waits for its acknowledgment.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) entry: Key,
    pub(crate) envelope: Envelope,
    /// The message without the objects of this layer.
    pub(crate) octets: Vec<u8>,
    /// Neighbors of a group that have to acknowledge it; none: the first acknowledgment counts.
    awaited: Vec<IpAddr>,
    /// Any of them acknowledged it.
    pub(crate) answered: bool,
    /// Number of transmissions.
    pub(crate) count: u8,
    pub(crate) interval: Duration,
    /// The mark of the state that the message makes or ends, if it has no handle; 0: none.
    owner: u64,
    link: Link,
}

impl Timed for Pending {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// A sent MESSAGE_ID. Its slots of other tables are valid as long as they are here: a neighbor stays while a MESSAGE_ID
/// refers to it, and the waiting message ends with its slot.
#[derive(Debug)]
pub(crate) struct SentId {
    pub(crate) id: u32,
    /// The state, by its owner's tag; [`NONE`]: the message is about no lasting state.
    tag: u32,
    /// The neighbor that acknowledged it last, or [`NONE`].
    peer: u32,
    /// The message that waits for its acknowledgment, or [`NONE`].
    pending: u32,
    /// Other neighbors that acknowledged it: those of a group.
    others: Option<Box<Others>>,
    /// The interface by which its message left last.
    pub(crate) ifindex: IfIndex,
    /// The neighbor refused MESSAGE_IDs: the state is sent without.
    pub(crate) plain: bool,
    /// Summary refreshes since the last whole message.
    pub(crate) summaries: u8,
}

/// Neighbors that acknowledged a message to a group.
#[derive(Debug, Default)]
struct Others(Vec<u32>);

/// Neighbors of a group that are stored for a message at most.
const MOST_OTHERS: usize = 64;

/// A slot, unless it is [`NONE`].
fn slot(at: u32) -> Option<u32> {
    Some(at).filter(|at| *at != NONE)
}

impl SentId {
    /// The tag of its state; `None`: the message is about no lasting state.
    pub(crate) fn tag(&self) -> Option<u32> {
        slot(self.tag)
    }

    /// The neighbor that acknowledged it last.
    pub(crate) fn peer(&self) -> Option<u32> {
        slot(self.peer)
    }

    /// All neighbors that acknowledged it.
    pub(crate) fn peers(&self) -> impl Iterator<Item = u32> {
        self.peer().into_iter().chain(self.others.iter().flat_map(|others| others.0.iter().copied()))
    }

    /// Stores that a neighbor acknowledged it. Returns the neighbors that now have a state less and a state more.
    pub(crate) fn add_peer(&mut self, peer: u32) -> (Option<u32>, Option<u32>) {
        if self.peer == peer {
            return (None, None);
        }
        let Some(before) = slot(core::mem::replace(&mut self.peer, peer)) else { return (None, Some(peer)) };
        let others = &mut self.others.get_or_insert_default().0;
        if let Some(known) = others.iter_mut().find(|one| **one == peer) {
            *known = before;
            return (None, None);
        }
        if others.len() >= MOST_OTHERS {
            return (Some(before), Some(peer));
        }
        others.push(before);
        (None, Some(peer))
    }

    /// Removes one of the neighbors that acknowledged it.
    fn remove_peer(&mut self, peer: u32) {
        if let Some(others) = &mut self.others {
            others.0.retain(|one| *one != peer);
        }
        if self.peer == peer {
            self.peer = self.others.as_mut().and_then(|others| others.0.pop()).unwrap_or(NONE);
        }
    }

    /// Removes the addresses that acknowledged it.
    pub(crate) fn take_peers(&mut self) -> impl Iterator<Item = u32> + use<> {
        let others = self.others.take().unwrap_or_default();
        slot(core::mem::replace(&mut self.peer, NONE)).into_iter().chain(others.0)
    }
}

/// Number of message buffers that are kept for reuse.
const SPARE: usize = 64;

#[derive(Debug)]
pub(crate) struct SentIds {
    slab: Slab<SentId>,
    index: Index,
    hasher: KeyedHasher,
    pending: Slab<Pending>,
    /// The waiting messages by the mark of their state.
    owners: Index,
    wheel: Wheel,
    next: u32,
    /// MESSAGE_IDs that ended or were replaced since the start.
    ended: u64,
    spare: Vec<Vec<u8>>,
}

impl SentIds {
    pub(crate) fn new(names: u32, pending: u32, rng: &mut Random) -> Self {
        Self {
            slab: Slab::new(names),
            index: Index::new(),
            hasher: KeyedHasher::new(rng),
            pending: Slab::new(pending),
            owners: Index::new(),
            wheel: Wheel::new(Duration::from_millis(1)),
            next: 1,
            ended: 0,
            spare: Vec::new(),
        }
    }

    pub(crate) const fn set_limits(&mut self, names: u32, pending: u32) {
        self.slab.set_limit(names);
        self.pending.set_limit(pending);
    }

    fn hash(&self, id: u32) -> u64 {
        self.hasher.hash_octets(&id.to_ne_bytes())
    }

    pub(crate) fn get(&self, key: Key) -> Option<&SentId> {
        self.slab.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut SentId> {
        self.slab.get_mut(key)
    }

    pub(crate) fn find(&self, id: u32) -> Option<Key> {
        let is = |at| self.slab.get_index(at).is_some_and(|entry| entry.id == id);
        self.slab.key_of(self.index.find(self.hash(id), is)?)
    }

    /// Gives a state a new MESSAGE_ID, greater than all before, in place of `old` (RFC 2961 §4.5).
    pub(crate) fn give(&mut self, old: Option<Key>, tag: Option<u32>) -> Option<Key> {
        let (id, tag) = (self.next, tag.unwrap_or(NONE));
        let key = match old.filter(|old| self.slab.get(*old).is_some()) {
            Some(key) => {
                self.settle(key);
                self.ended += 1;
                let before = self.slab.get(key).map_or(0, |entry| entry.id);
                self.index.remove(self.hash(before), |at| at == key.index());
                let entry = self.slab.get_mut(key)?;
                (entry.id, entry.tag, entry.peer, entry.summaries) = (id, tag, NONE, 0);
                entry.others = None;
                key
            }
            None => {
                let ifindex = IfIndex::NONE;
                let entry = SentId {
                    id,
                    tag,
                    peer: NONE,
                    pending: NONE,
                    others: None,
                    ifindex,
                    plain: false,
                    summaries: 0,
                };
                self.slab.insert(entry).ok()?
            }
        };
        self.next = self.next.wrapping_add(1);
        let (slab, hasher) = (&self.slab, &self.hasher);
        self.index.insert(self.hash(id), key.index(), |at| {
            slab.get_index(at).map_or(0, |entry| hasher.hash_octets(&entry.id.to_ne_bytes()))
        });
        Some(key)
    }

    /// Keeps a sent message until it is acknowledged, was sent often enough, or its state ends; `false`: the table is full.
    /// `owner`: the mark of its state.
    pub(crate) fn keep(
        &mut self,
        (now, first): (Time, Duration),
        key: Key,
        envelope: Envelope,
        octets: &[u8],
        owner: u64,
    ) -> bool {
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.extend_from_slice(octets);
        let pending = Pending {
            entry: key,
            envelope,
            octets: kept,
            awaited: Vec::new(),
            answered: false,
            count: 1,
            interval: first,
            owner,
            link: Link::default(),
        };
        let Ok(waiting) = self.pending.insert(pending) else { return false };
        if owner != 0 {
            let pending = &self.pending;
            self.owners.insert(owner, waiting.index(), |at| pending.get_index(at).map_or(0, |one| one.owner));
        }
        self.wheel.arm(&mut self.pending, waiting.index(), now + first);
        match self.slab.get_mut(key) {
            Some(entry) => entry.pending = waiting.index(),
            None => self.drop_pending(waiting),
        }
        true
    }

    /// All of these neighbors have to acknowledge a message.
    pub(crate) fn await_all(&mut self, key: Key, neighbors: Vec<IpAddr>) {
        let waiting = self.slab.get(key).map_or(NONE, |entry| entry.pending);
        if let Some(pending) = self.pending.get_index_mut(waiting) {
            pending.awaited = neighbors;
        }
    }

    /// Takes an acknowledgment; whether the message waits for those of other neighbors.
    pub(crate) fn waits_for_others(&mut self, key: Key, from: Option<IpAddr>) -> bool {
        let waiting = self.slab.get(key).map_or(NONE, |entry| entry.pending);
        let Some(pending) = self.pending.get_index_mut(waiting) else { return false };
        if pending.awaited.is_empty() {
            return false;
        }
        pending.answered = true;
        pending.awaited.retain(|one| Some(*one) != from);
        !pending.awaited.is_empty()
    }

    /// Drops the message that waits for an acknowledgment of this MESSAGE_ID.
    pub(crate) fn settle(&mut self, key: Key) {
        // The engine may have the handle of a MESSAGE_ID that was removed.
        let Some(entry) = self.slab.get_mut(key) else { return };
        if let Some(waiting) = self.pending.key_of(core::mem::replace(&mut entry.pending, NONE)) {
            self.drop_pending(waiting);
        }
    }

    fn drop_pending(&mut self, waiting: Key) {
        self.wheel.cancel(&mut self.pending, waiting.index());
        let Some(mut pending) =
            invariant!(self.pending.remove(waiting), "a message that waits is dropped once")
        else {
            return;
        };
        if pending.owner != 0 {
            self.owners.remove(pending.owner, |at| at == waiting.index());
        }
        if self.spare.len() < SPARE {
            pending.octets.clear();
            self.spare.push(pending.octets);
        }
    }

    /// Whether any waiting message has the mark of a state.
    pub(crate) fn has_owned(&self) -> bool {
        !self.owners.is_empty()
    }

    /// The MESSAGE_ID of a message that waits for its acknowledgment, has this mark and is concerned.
    pub(crate) fn owned(&self, owner: u64, concerned: impl Fn(&[u8]) -> bool) -> Option<Key> {
        let waiting = |at| self.pending.get_index(at).filter(|pending| pending.owner == owner);
        let is = |at| waiting(at).is_some_and(|pending| concerned(&pending.octets));
        self.pending.get_index(self.owners.find(owner, is)?).map(|pending| pending.entry)
    }

    /// Number of MESSAGE_IDs that ended or were replaced since the start.
    pub(crate) const fn ended(&self) -> u64 {
        self.ended
    }

    /// Whether a MESSAGE_ID still stands for its state.
    pub(crate) fn stands(&self, key: Key, id: u32) -> bool {
        self.slab.get(key).is_some_and(|entry| entry.id == id)
    }

    /// The message that waits for an acknowledgment of this MESSAGE_ID.
    pub(crate) fn waiting(&self, key: Key) -> Option<&Pending> {
        self.pending.get_index(self.slab.get(key)?.pending)
    }

    /// The next message whose acknowledgment is overdue.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Key> {
        let at = self.wheel.pop_due(&mut self.pending, now)?;
        self.pending.key_of(at)
    }

    pub(crate) fn pending_mut(&mut self, key: Key) -> Option<&mut Pending> {
        self.pending.get_mut(key)
    }

    pub(crate) fn rearm(&mut self, key: Key, deadline: Time) {
        if self.pending.get(key).is_some() {
            self.wheel.arm(&mut self.pending, key.index(), deadline);
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<SentId> {
        self.settle(key);
        let id = self.slab.get(key)?.id;
        self.ended += 1;
        self.index.remove(self.hash(id), |at| at == key.index());
        self.slab.remove(key)
    }

    /// The neighbor in this slot counts no more as one that acknowledged anything.
    pub(crate) fn forget(&mut self, peer: u32) {
        let of_it = |sent: &SentId| sent.peers().any(|one| one == peer);
        let all = self.slab.iter().filter(|(_, sent)| of_it(sent)).map(|(key, _)| key);
        for key in all.collect::<Vec<_>>() {
            if let Some(sent) = self.slab.get_mut(key) {
                sent.remove_peer(peer);
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records of a state that was sent and of one that was received, with the slabs' generations.
    #[test]
    fn message_ids_are_small() {
        fn slot<T>() -> usize {
            4 + size_of::<Option<T>>()
        }
        assert_eq!((slot::<SentId>(), slot::<ReceivedId>()), (36, 20));
    }
}
