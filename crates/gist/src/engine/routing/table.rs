//! How sessions begin, end, and report their changes to applications (RFC 5971 §4.4.4, §7.1.3).

use signalbox_core::service::{MessageStatus, NetworkEvent, SendError};
use signalbox_core::slab::{Full, Key};
use signalbox_core::stamp::Stamp;
use signalbox_core::{Direction, Mri, NslpId, SessionChange, SessionId, invariant};

use super::{BY_APPLICATION, NO_REFRESH, Queued, State, side};
use crate::engine::Gist;

impl Gist {
    /// A new record, without state in either direction.
    pub(in crate::engine) fn create(
        &mut self,
        mri: &Mri,
        session: SessionId,
        nslp: NslpId,
    ) -> Result<Key, Full> {
        let key = self.records.insert(mri, session, nslp);
        let key = key.inspect_err(|_| self.counters.sessions_full += 1)?;
        self.changes.note(|| SessionChange::opened(session.to_string()).of(nslp));
        Ok(key)
    }

    /// Arms the timer for the first deadline of the record.
    pub(in crate::engine) fn arm(&mut self, key: Key) {
        self.records.arm(key, self.now);
    }

    /// Removes the state machine of one direction: its queued messages fail with `error`, its peer is released, and the record
    /// is removed if the other direction has no state machine.
    pub(in crate::engine) fn remove_half(&mut self, key: Key, direction: Direction, error: SendError) {
        self.fail_queue(key, direction, error);
        self.unbind(key, direction, true);
        self.nat.remove(key, direction);
        self.routes.forget(&mut self.records, key, direction);
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
    pub(in crate::engine) fn settle(&mut self, key: Key) {
        self.records.drop_pending(key);
        let Some(record) = self.records.get(key) else { return };
        if !record.is_empty() {
            self.arm(key);
            return;
        }
        self.changes.note(|| SessionChange::closed(record.session.to_string()).of(record.nslp));
        self.records.remove(key);
    }

    /// Fails all queued messages of `direction`.
    pub(in crate::engine) fn fail_queue(&mut self, key: Key, direction: Direction, error: SendError) {
        let Some(record) = invariant!(self.records.get_mut(key), "queued messages are those of a session")
        else {
            return;
        };
        let app_session = (record.nslp, record.session);
        let Some(pending) = &mut record.pending else { return };
        let queue = core::mem::take(pending.queue(direction));
        self.fail_messages(app_session, queue, error);
    }

    /// Fails messages that were queued for a session.
    pub(in crate::engine) fn fail_messages(
        &mut self,
        app_session: (NslpId, SessionId),
        messages: impl IntoIterator<Item = Queued>,
        error: SendError,
    ) {
        for queued in messages {
            self.handshakes.release(queued.source, queued.data.len());
            self.out.status(app_session, queued.handle, MessageStatus::Failed(error));
        }
    }

    /// Notifies the application of a change of one direction's state, unless the application caused it (RFC 5971 §7.1.3).
    /// GIST-7.1.3-06.
    pub(in crate::engine) fn notify(&mut self, key: Key, direction: Direction, event: NetworkEvent) {
        let Some(record) =
            invariant!(self.records.get_mut(key), "notifications are about sessions that stand")
        else {
            return;
        };
        let mri = record.flow.mri(direction);
        let half = record.half_mut(direction);
        let by_application = half.flags & BY_APPLICATION != 0;
        half.set(BY_APPLICATION, false);
        if !by_application {
            self.out.notify(record.nslp, mri, record.session, event);
        }
    }
}
