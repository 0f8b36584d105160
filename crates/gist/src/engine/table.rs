//! The routing state table: finding, creating, arming and removing records.

use signalbox_core::service::{MessageStatus, NetworkEvent, SendError};
use signalbox_core::slab::Key;
use signalbox_core::stamp::Stamp;
use signalbox_core::{Direction, Flow, Mri, NslpId, SessionChange, SessionId, invariant};

use super::Gist;
use super::association::octets;
use super::record::{BY_APPLICATION, Inserted, NO_REFRESH, Pending, Queued, Record, State, side};
use super::route_index::place;
use super::triple;

impl Gist {
    /// The record of a flow, session and application (RFC 5971 §4.2.1); `mri` may have either direction. GIST-3.7-03.
    pub(super) fn find(&self, mri: &Mri, session: SessionId, nslp: NslpId) -> Option<Key> {
        let hash = triple::hash(&self.hasher, mri, session, nslp);
        let index = self.index.find(hash, |index| {
            invariant!(self.records.get_index(index), "the index of sessions names sessions")
                .is_some_and(|r| r.session == session && r.nslp == nslp && r.flow.is_of(mri))
        })?;
        self.records.key_of(index)
    }

    /// A new record, without state in either direction.
    pub(super) fn create(&mut self, mri: &Mri, session: SessionId, nslp: NslpId) -> Inserted {
        let record = Record::new(Flow::of(mri), session, nslp);
        let key = self.records.insert(record).inspect_err(|_| self.counters.sessions_full += 1)?;
        self.used_slots = self.used_slots.max(key.index() + 1);
        let Self { records, hasher, index, .. } = self;
        index.insert(triple::hash(hasher, mri, session, nslp), key.index(), |index| {
            invariant!(records.get_index(index), "each entry of the index is a session")
                .map_or(0, |r| hash_of(hasher, r))
        });
        self.changes.note(|| SessionChange::opened(session.to_string()).of(nslp));
        Ok(key)
    }

    /// Arms the timer for the first deadline of the record. If the deadline is later than the armed time, the timer stays:
    /// when it fires, nothing is due, and it is armed again.
    pub(super) fn arm(&mut self, key: Key) {
        let Some(record) = invariant!(self.records.get(key), "a timer is set for a session that stands")
        else {
            return;
        };
        let Some(deadline) = record.deadline() else {
            self.wheel.cancel(&mut self.records, key.index());
            return;
        };
        self.wheel.arm_by(&mut self.records, key.index(), deadline.time(self.now));
    }

    /// Removes the state machine of one direction: its queued messages fail with `error`, its peer is released, and the record
    /// is removed if the other direction has no state machine.
    pub(super) fn remove_half(&mut self, key: Key, direction: Direction, error: SendError) {
        self.fail_queue(key, direction, error);
        self.unbind(key, direction, true);
        self.nat.remove(key, direction);
        self.route_index.unlink(&mut self.records, place(key.index(), direction));
        let Some(record) =
            invariant!(self.records.get_mut(key), "a session stands while a direction of it ends")
        else {
            return;
        };
        let half = core::mem::take(record.half_mut(direction));
        record.end_querying(direction);
        if let Some(pending) = &mut record.pending {
            if let Some(response) = pending.response.get_mut(side(direction)) {
                *response = None;
            }
            pending.query_mut(direction).data = Vec::new();
        }
        if half.state.is_established() {
            self.counters.removed += 1;
        }
        if half.state != State::None {
            tracing::debug!(
                session = %record.session,
                nslp = record.nslp.0,
                ?direction,
                peer = self.peers.logged(half.peer),
                from = ?half.state,
                to = ?State::None,
                reason = ?error,
                "routing state changed"
            );
        }
        // RFC 5971 §4.4.4: a session is not refreshed after its state towards the Querying peer has expired.
        // GIST-4.4.4-08.
        if half.state.is_responding() {
            record.half_mut(direction.inverted()).set(NO_REFRESH, true);
        }
        self.peers.retire(half.peer, Stamp::after(self.now + self.config.sii_retention));
        self.peers.release_egress(half.egress);
        if !record.is_empty() {
            self.changes.note(|| SessionChange::changed(record.session.to_string()).of(record.nslp));
        }
        self.settle(key);
    }

    /// Removes a record without state machines, or arms its timer. A step before may have removed it.
    pub(super) fn settle(&mut self, key: Key) {
        self.drop_pending(key);
        let Some(record) = self.records.get(key) else { return };
        if !record.is_empty() {
            self.arm(key);
            return;
        }
        let hash = hash_of(&self.hasher, record);
        self.changes.note(|| SessionChange::closed(record.session.to_string()).of(record.nslp));
        invariant!(
            self.index.remove(hash, |index| index == key.index()),
            "a session that ends is in the index"
        );
        self.wheel.cancel(&mut self.records, key.index());
        self.records.remove(key);
    }

    /// Frees the handshake state if it is empty.
    fn drop_pending(&mut self, key: Key) {
        let Some(record) = self.records.get_mut(key) else { return };
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

    /// The handshake state of a record.
    pub(super) fn pending(&mut self, key: Key) -> Option<&mut Pending> {
        let record = invariant!(self.records.get_mut(key), "a handshake is one of a session")?;
        Some(record.pending.get_or_insert_default())
    }

    /// Fails all queued messages of `direction`.
    pub(super) fn fail_queue(&mut self, key: Key, direction: Direction, error: SendError) {
        let Some(record) = invariant!(self.records.get_mut(key), "queued messages are those of a session")
        else {
            return;
        };
        let of = (record.nslp, record.session);
        let Some(pending) = &mut record.pending else { return };
        let queue = core::mem::take(pending.queue(direction));
        self.fail_messages(of, queue, error);
    }

    /// Fails messages that were queued for a session.
    pub(super) fn fail_messages(
        &mut self,
        of: (NslpId, SessionId),
        messages: impl IntoIterator<Item = Queued>,
        error: SendError,
    ) {
        for queued in messages {
            self.queued.release_many(queued.source, octets(queued.data.len()));
            self.out.status(of, queued.handle, MessageStatus::Failed(error));
        }
    }

    /// Notifies the application of a change of one direction's state, unless the application caused it (RFC 5971 §7.1.3).
    /// GIST-7.1.3-06.
    pub(super) fn notify(&mut self, key: Key, direction: Direction, event: NetworkEvent) {
        let Some(record) =
            invariant!(self.records.get_mut(key), "notifications are about sessions that stand")
        else {
            return;
        };
        let mri = record.flow.mri(direction);
        let half = record.half_mut(direction);
        let own = half.flags & BY_APPLICATION != 0;
        half.set(BY_APPLICATION, false);
        if !own {
            self.out.notify(record.nslp, mri, record.session, event);
        }
    }

    /// The state of a direction, [`State::None`] if there is no such record.
    pub(super) fn state(&self, key: Key, direction: Direction) -> State {
        self.records.get(key).map_or(State::None, |r| r.half(direction).state)
    }
}

fn hash_of(hasher: &signalbox_core::index::KeyedHasher, record: &Record) -> u64 {
    let mri = record.flow.mri(Direction::Downstream);
    triple::hash(hasher, &mri, record.session, record.nslp)
}
