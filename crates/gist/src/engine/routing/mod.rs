//! Routing state (RFC 5971 §4.2.1): what this node knows of each session, and the peers and egresses that sessions share.
//!
//! [`Records`] owns the table of sessions with its index and its timers; other rooms read and change a [`Record`] by its key.
//! [`Peers`] owns peers and egresses.
//!
//! * `record`: the routing state of a session, its timers (§4.4.4), and what waits for its handshake. `triple`: its key.
//! * `table`: how a session begins, ends and reports its changes to the application (§7.1.3).
//! * `peers`: peers, their SII handles (§7.1.4), and egresses.
//! * `prepare`: reads the state of several messages at once, before they are handled.

mod peers;
mod prepare;
mod record;
mod table;
mod triple;

use core::time::Duration;

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::slab::{Full, Key, Slab};
use signalbox_core::wheel::Wheel;
use signalbox_core::{Direction, Flow, Mri, NslpId, SessionId, Time, invariant};

pub use peers::PeerChange;
pub(in crate::engine) use peers::{Egress, Peer, Peers};
pub(in crate::engine) use record::{
    ASSOCIATED, BY_APPLICATION, EXPIRE, Half, INACTIVE, NO_REFRESH, NONE, PROVEN, QueryContents, Querying,
    Queued, RETRY, Record, State, StoredResponse, TENTATIVE, side,
};

use record::Pending;

/// All sessions of a node.
#[derive(Debug)]
pub(in crate::engine) struct Records {
    slab: Slab<Record>,
    /// Number of slots that were ever used. Walks over all records end there.
    used_slots: u32,
    /// Records by flow, session and application. The hash is keyed because peers choose these values.
    index: Index,
    hasher: KeyedHasher,
    wheel: Wheel,
}

impl Records {
    /// An empty table for at most `limit` sessions.
    pub(in crate::engine) fn new(limit: u32, hasher: KeyedHasher) -> Self {
        Self {
            slab: Slab::new(limit),
            used_slots: 0,
            index: Index::new(),
            hasher,
            wheel: Wheel::new(Duration::from_millis(10)),
        }
    }

    /// Keeps at most `limit` sessions from now on. Those that are there stay.
    pub(in crate::engine) const fn set_limit(&mut self, limit: u32) {
        self.slab.set_limit(limit);
    }

    /// Most sessions.
    pub(in crate::engine) const fn limit(&self) -> u32 {
        self.slab.limit()
    }

    /// Number of sessions.
    pub(in crate::engine) const fn len(&self) -> u32 {
        self.slab.len()
    }

    /// A walk over all places of the table ends before this one.
    pub(in crate::engine) const fn used_slots(&self) -> u32 {
        self.used_slots
    }

    #[inline]
    pub(in crate::engine) fn get(&self, key: Key) -> Option<&Record> {
        self.slab.get(key)
    }

    #[inline]
    pub(in crate::engine) fn get_mut(&mut self, key: Key) -> Option<&mut Record> {
        self.slab.get_mut(key)
    }

    /// The record at a place of the table.
    #[inline]
    pub(in crate::engine) fn get_index(&self, index: u32) -> Option<&Record> {
        self.slab.get_index(index)
    }

    /// The same to change it.
    #[inline]
    pub(in crate::engine) fn get_index_mut(&mut self, index: u32) -> Option<&mut Record> {
        self.slab.get_index_mut(index)
    }

    /// The key of the record at a place of the table.
    #[inline]
    pub(in crate::engine) fn key_of(&self, index: u32) -> Option<Key> {
        self.slab.key_of(index)
    }

    /// All records, by their place in the table.
    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (Key, &Record)> {
        self.slab.iter()
    }

    /// Visits records from a place in the table on; see [`Slab::walk`].
    pub(in crate::engine) fn walk(&self, from: u32, visit: impl FnMut(Key, &Record) -> bool) -> Option<u32> {
        self.slab.walk(from, visit)
    }

    /// The record of a flow, session and application (RFC 5971 §4.2.1); `mri` may have either direction. GIST-3.7-03.
    pub(in crate::engine) fn find(&self, mri: &Mri, session: SessionId, nslp: NslpId) -> Option<Key> {
        let hash = triple::hash(&self.hasher, mri, session, nslp);
        let index = self.index.find(hash, |index| {
            invariant!(self.slab.get_index(index), "the index of sessions names sessions")
                .is_some_and(|r| r.session == session && r.nslp == nslp && r.flow.is_of(mri))
        })?;
        self.slab.key_of(index)
    }

    /// Inserts a record without state in either direction.
    ///
    /// # Errors
    /// The table is full.
    pub(in crate::engine) fn insert(
        &mut self,
        mri: &Mri,
        session: SessionId,
        nslp: NslpId,
    ) -> Result<Key, Full> {
        let key = self.slab.insert(Record::new(Flow::of(mri), session, nslp))?;
        self.used_slots = self.used_slots.max(key.index() + 1);
        let Self { slab, hasher, index, .. } = self;
        index.insert(triple::hash(hasher, mri, session, nslp), key.index(), |index| {
            invariant!(slab.get_index(index), "each entry of the index is a session")
                .map_or(0, |r| hash_of(hasher, r))
        });
        Ok(key)
    }

    /// Removes a record with its timer.
    fn remove(&mut self, key: Key) {
        let Some(record) = self.slab.get(key) else { return };
        let hash = hash_of(&self.hasher, record);
        invariant!(
            self.index.remove(hash, |index| index == key.index()),
            "a session that ends is in the index"
        );
        self.wheel.cancel(&mut self.slab, key.index());
        self.slab.remove(key);
    }

    /// Arms the timer for the first deadline of the record. If the deadline is later than the armed time, the timer stays:
    /// when it fires, nothing is due, and it is armed again.
    fn arm(&mut self, key: Key, now: Time) {
        let Some(record) = invariant!(self.slab.get(key), "a timer is set for a session that stands") else {
            return;
        };
        let Some(deadline) = record.deadline() else {
            self.wheel.cancel(&mut self.slab, key.index());
            return;
        };
        self.wheel.arm_by(&mut self.slab, key.index(), deadline.time(now));
    }

    /// A record whose timer is due.
    pub(in crate::engine) fn pop_due(&mut self, now: Time) -> Option<u32> {
        self.wheel.pop_due(&mut self.slab, now)
    }

    /// When the next timer is due.
    pub(in crate::engine) fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }

    /// The state of a direction, [`State::None`] if there is no such record.
    pub(in crate::engine) fn state(&self, key: Key, direction: Direction) -> State {
        self.slab.get(key).map_or(State::None, |r| r.half(direction).state)
    }

    /// The handshake state of a record.
    pub(in crate::engine) fn pending(&mut self, key: Key) -> Option<&mut Pending> {
        let record = invariant!(self.slab.get_mut(key), "a handshake is one of a session")?;
        Some(record.pending.get_or_insert_default())
    }

    /// Frees the handshake state if it is empty.
    fn drop_pending(&mut self, key: Key) {
        let Some(record) = self.slab.get_mut(key) else { return };
        let done = record.pending.as_ref().is_some_and(|p| {
            p.upstream.is_none()
                && p.down.is_empty()
                && p.up.is_empty()
                && [Direction::Downstream, Direction::Upstream].iter().all(|d| p.query(*d).data.is_empty())
                && p.response.iter().all(Option::is_none)
        });
        if done {
            record.pending = None;
        }
    }
}

fn hash_of(hasher: &KeyedHasher, record: &Record) -> u64 {
    let mri = record.flow.mri(Direction::Downstream);
    triple::hash(hasher, &mri, record.session, record.nslp)
}
