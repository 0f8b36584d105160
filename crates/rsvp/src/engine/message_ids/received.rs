//! MESSAGE_IDs of state that neighbors sent (RFC 2961): an Srefresh refreshes the state by them.

use core::hint::black_box;
use core::time::Duration;
use std::collections::HashMap;

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::slab::{Full, Slab};
use signalbox_core::stamp::{Span, Stamp};
use signalbox_core::{Key, invariant};
use smallvec::SmallVec;

use crate::engine::Rsvp;
use crate::engine::ahead::{Group, MANY};
use crate::engine::neighbor::{Incoming, ReceivedHandle};
use crate::engine::session::NONE;

/// Records that one Resv is about: seldom more than one. They take no memory of their own then.
pub(in crate::engine) type Keys = SmallVec<[Key; 2]>;

/// The state that a received message is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) enum ReceivedState {
    /// Path state of a sender.
    Path(Key),
    /// Requests of a next hop.
    Resv {
        /// The next hop.
        hop: u32,
        /// The reservations that hold the requests.
        branches: Keys,
        /// With SE the senders, in ascending order.
        senders: Keys,
    },
}

/// A record and the next hop whose request it holds; [`NONE`]: it is path state.
type Place = (Key, u32);

/// The state of a MESSAGE_ID, as it is stored.
#[derive(Debug)]
enum Stored {
    /// Path state, or the request of a next hop in one reservation.
    One(Place),
    /// Requests of a next hop in several reservations, or for some of the senders.
    Requests(Box<Requests>),
}

#[derive(Debug)]
struct Requests {
    hop: u32,
    branches: Box<[Key]>,
    senders: Box<[Key]>,
    /// The last packet that refreshed them ([`ReceivedStates::begin_packet`]).
    packet: u64,
}

impl Stored {
    fn of(what: &ReceivedState) -> Self {
        match what {
            ReceivedState::Path(sender) => Self::One((*sender, NONE)),
            ReceivedState::Resv { hop, branches, senders } => match (branches.as_slice(), senders.as_slice())
            {
                ([branch], []) => Self::One((*branch, *hop)),
                (branches, senders) => Self::Requests(Box::new(Requests {
                    hop: *hop,
                    branches: branches.into(),
                    senders: senders.into(),
                    packet: 0,
                })),
            },
        }
    }

    fn what(&self) -> ReceivedState {
        match self {
            Self::One((sender, NONE)) => ReceivedState::Path(*sender),
            Self::One((branch, hop)) => ReceivedState::Resv {
                hop: *hop,
                branches: Keys::from_slice(&[*branch]),
                senders: Keys::new(),
            },
            Self::Requests(requests) => ReceivedState::Resv {
                hop: requests.hop,
                branches: Keys::from_slice(&requests.branches),
                senders: Keys::from_slice(&requests.senders),
            },
        }
    }

    /// The first of its records.
    fn first(&self) -> Place {
        match self {
            Self::One(place) => *place,
            Self::Requests(requests) => {
                (requests.branches.first().copied().unwrap_or_default(), requests.hop)
            }
        }
    }

    /// Its other records.
    fn others(&self) -> impl Iterator<Item = Place> + use<'_> {
        let requests = match self {
            Self::One(_) => None,
            Self::Requests(requests) => Some(requests),
        };
        requests
            .into_iter()
            .flat_map(|requests| requests.branches.iter().skip(1).map(|branch| (*branch, requests.hop)))
    }
}

/// State that a neighbor sent.
#[derive(Debug)]
struct Entry {
    state: Stored,
    /// The handle of its MESSAGE_ID, or one that nothing has: an optional one would take 4 octets more.
    handle: ReceivedHandle,
    /// Lifetime after each refresh.
    life: Span,
}

/// A handle that no MESSAGE_ID has.
const NO_HANDLE: ReceivedHandle = ReceivedHandle(Key::NONE);

impl Entry {
    fn handle(&self) -> Option<ReceivedHandle> {
        Some(self.handle).filter(|handle| *handle != NO_HANDLE)
    }
}

/// All MESSAGE_IDs of state that neighbors sent.
#[derive(Debug)]
pub(in crate::engine) struct ReceivedStates {
    slab: Slab<Entry>,
    /// The entries by the first record of their state.
    by_place: Index,
    /// The slots of entries by the other records of their state.
    by_other: HashMap<Place, u32, KeyedHasher>,
    hasher: KeyedHasher,
    /// Number of the packet that is handled.
    packet: u64,
}

fn hash_of(hasher: &KeyedHasher, (key, hop): Place) -> u64 {
    hasher.hash_octets([key.index(), key.generation(), hop].map(u32::to_ne_bytes).as_flattened())
}

impl ReceivedStates {
    pub(in crate::engine) fn new(limit: u32, hasher: KeyedHasher) -> Self {
        let by_other = HashMap::with_hasher(hasher);
        Self { slab: Slab::new(limit), by_place: Index::new(), by_other, hasher, packet: 0 }
    }

    pub(in crate::engine) const fn set_limit(&mut self, limit: u32) {
        self.slab.set_limit(limit);
    }

    /// The lists of another packet follow.
    pub(in crate::engine) const fn begin_packet(&mut self) {
        self.packet = self.packet.wrapping_add(1);
    }

    /// Whether the state with this tag is to be refreshed. A list may name it any number of times: if it has many records, only
    /// the first time in a packet counts.
    pub(in crate::engine) fn is_due(&mut self, tag: u32) -> bool {
        match self.slab.get_index_mut(tag).map(|entry| &mut entry.state) {
            Some(Stored::Requests(requests)) => {
                core::mem::replace(&mut requests.packet, self.packet) != self.packet
            }
            _ => true,
        }
    }

    /// Whether no MESSAGE_ID is stored.
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.slab.is_empty() && self.by_place.is_empty() && self.by_other.is_empty()
    }

    /// The entry of a record.
    fn find(&self, place: Place) -> Option<Key> {
        let is = |at| self.slab.get_index(at).is_some_and(|entry| entry.state.first() == place);
        let first = self.by_place.find(hash_of(&self.hasher, place), is);
        self.slab.key_of(first.or_else(|| self.by_other.get(&place).copied())?)
    }

    fn find_state(&self, what: &ReceivedState) -> Option<Key> {
        match what {
            ReceivedState::Path(sender) => self.find((*sender, NONE)),
            ReceivedState::Resv { hop, branches, .. } => self.find((*branches.first()?, *hop)),
        }
    }

    /// The handle of the MESSAGE_ID of received state.
    pub(in crate::engine) fn handle_of(&self, what: &ReceivedState) -> Option<ReceivedHandle> {
        self.slab.get(self.find_state(what)?)?.handle()
    }

    /// Stores an entry, whose records have none.
    fn insert(&mut self, entry: Entry) -> Result<Key, Full> {
        let (first, others) = (entry.state.first(), entry.state.others().collect::<SmallVec<[Place; 2]>>());
        let key = self.slab.insert(entry)?;
        let (slab, hasher) = (&self.slab, &self.hasher);
        self.by_place.insert(hash_of(hasher, first), key.index(), |at| {
            slab.get_index(at).map_or(0, |entry| hash_of(hasher, entry.state.first()))
        });
        self.by_other.extend(others.into_iter().map(|place| (place, key.index())));
        Ok(key)
    }

    fn remove(&mut self, key: Key) -> Option<Entry> {
        let first = self.slab.get(key)?.state.first();
        self.by_place.remove(hash_of(&self.hasher, first), |at| at == key.index());
        let entry = self.slab.remove(key)?;
        for place in entry.state.others() {
            self.by_other.remove(&place);
        }
        Some(entry)
    }
}

impl Rsvp {
    /// Stores the MESSAGE_ID of a received message; `life`: the lifetime after each refresh. It replaces what earlier messages
    /// sent for the same requests.
    pub(in crate::engine) fn store_received_id(
        &mut self,
        incoming: &Incoming<'_>,
        what: ReceivedState,
        life: Duration,
    ) {
        let known = self.message_ids.received.find_state(&what);
        if known.is_none() && incoming.message.message_id.is_none() {
            return;
        }
        let (state, life) = (Stored::of(&what), Span::of(life));
        let before = known.and_then(|key| self.message_ids.received.slab.get_mut(key));
        let (handle, key) = match (before, known) {
            // Most messages are about the same records as the one before.
            (Some(entry), Some(key))
                if matches!((&entry.state, &state), (Stored::One(_), Stored::One(_))) =>
            {
                entry.life = life;
                (entry.handle(), key)
            }
            _ => {
                let handle = known.and_then(|key| self.message_ids.received.remove(key)?.handle());
                for place in core::iter::once(state.first()).chain(state.others()) {
                    let other = self.message_ids.received.find(place);
                    self.remove_received_key(other);
                }
                let entry = Entry { state, handle: handle.unwrap_or(NO_HANDLE), life };
                let Ok(key) = self.message_ids.received.insert(entry) else {
                    self.counters.overload += 1;
                    return handle.into_iter().for_each(|handle| self.neighbors.remove_received(handle));
                };
                (handle, key)
            }
        };
        let handle = self.neighbors.store_received(incoming, handle, key.index());
        if let Some(entry) = self.message_ids.received.slab.get_mut(key) {
            entry.handle = handle.unwrap_or(NO_HANDLE);
        }
    }

    /// Removes the MESSAGE_ID of path state that ended.
    pub(in crate::engine) fn remove_path_id(&mut self, sender: Key) {
        if !self.message_ids.received.is_empty() {
            let key = self.message_ids.received.find((sender, NONE));
            self.remove_received_key(key);
        }
    }

    /// Removes the MESSAGE_ID of a message of which a request ended: it does not stand for all of it any more.
    pub(in crate::engine) fn remove_request_id(&mut self, branch: Key, hop: u32) {
        if !self.message_ids.received.is_empty() {
            let key = self.message_ids.received.find((branch, hop));
            self.remove_received_key(key);
        }
    }

    fn remove_received_key(&mut self, key: Option<Key>) {
        let entry = key.and_then(|key| self.message_ids.received.remove(key));
        if let Some(handle) = entry.and_then(|entry| entry.handle()) {
            self.neighbors.remove_received(handle);
        }
    }

    /// A neighbor repeated a message with the same MESSAGE_ID.
    pub(in crate::engine) fn refresh_received(&mut self, handle: Option<ReceivedHandle>) {
        let tag = handle.and_then(|handle| self.neighbors.tag_of(handle));
        if let Some(tag) = tag {
            self.refresh_by_id(tag);
        }
    }

    /// A neighbor refreshed MESSAGE_IDs by an Srefresh (RFC 2961 §5).
    pub(in crate::engine) fn refresh_by_ids(&mut self, tags: &[u32]) {
        if self.message_ids.received.slab.len() >= MANY {
            self.read_received(tags);
        }
        for tag in tags {
            if self.message_ids.received.is_due(*tag) {
                self.refresh_by_id(*tag);
            }
        }
    }

    /// Reads the records of received state, so that they wait for memory at the same time.
    fn read_received(&self, tags: &[u32]) {
        let entries = tags.iter().filter_map(|tag| self.message_ids.received.slab.get_index(*tag));
        let places: Group<Place> = entries.map(|entry| entry.state.first()).collect();
        let mut read = false;
        for (key, hop) in places {
            read ^= if hop == NONE {
                self.senders.get(key).is_some_and(|sender| sender.is_read(self.now))
            } else {
                self.branches.get(key).is_some_and(|branch| branch.is_read(self.now))
            };
        }
        black_box(read);
    }

    /// Refreshes the state of a MESSAGE_ID.
    fn refresh_by_id(&mut self, tag: u32) {
        let Some(received) =
            invariant!(self.message_ids.received.slab.get_index(tag), "a MESSAGE_ID ends with its state")
        else {
            return;
        };
        let (what, life) = (received.state.what(), received.life.duration());
        tracing::trace!(?what, "state refreshed by its MESSAGE_ID");
        self.extend_lifetime(&what, life);
    }

    /// Restarts the lifetime of received state.
    pub(super) fn extend_lifetime(&mut self, what: &ReceivedState, life: Duration) {
        let now = self.now;
        let expires = Stamp::after(now + life);
        match what {
            ReceivedState::Path(sender) => {
                let Some(record) = invariant!(
                    self.senders.get_mut(*sender),
                    "the MESSAGE_ID of a Path ends with its sender"
                ) else {
                    return;
                };
                record.expires = expires;
                if let Some(extra) = &mut record.extra {
                    extra.carried.refresh(now, life);
                }
                self.counters.paths_refreshed += 1;
                self.keep_sender(*sender);
                self.resume(*sender);
            }
            ReceivedState::Resv { hop, branches, senders } => {
                for key in branches {
                    let Some(request) = invariant!(
                        self.branches.get_mut(*key).and_then(|one| one.request_mut(*hop)),
                        "the MESSAGE_ID of a Resv ends with its requests"
                    ) else {
                        continue;
                    };
                    request.expires = expires;
                    if let Some(extra) = &mut request.extra {
                        extra.carried.refresh(now, life);
                        for (sender, until) in &mut extra.senders {
                            if senders.binary_search(sender).is_ok() {
                                *until = expires;
                            }
                        }
                    }
                    self.counters.resvs_refreshed += 1;
                    self.keep_branch(*key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The record of received state, with the slab's generation.
    #[test]
    fn a_received_state_is_small() {
        assert_eq!(4 + size_of::<Option<Entry>>(), 36);
    }
}
