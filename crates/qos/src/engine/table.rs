//! The table of sessions.

use core::time::Duration;
use std::sync::Arc;

use signalbox_core::slab::Key;
use signalbox_core::{Direction, Mri, NslpId, Recent, SessionChange, SessionId, invariant, recent};
use signalbox_resources::{End, Resources};

use super::Qos;
use super::holders::Holder;
use super::session::{Marks, Session, Stage};
use super::source::Source;

/// Refreshes of a session within summaries before it sends one of its own. Its own messages make GIST refresh its
/// routing state.
pub(super) const MOST_LISTED: u8 = 16;

/// State lifetimes for which GIST keeps the routing state after the last message. It is longer than [`MOST_LISTED`]
/// refreshes take.
const ROUTE_LIFETIMES: u32 = 6;

/// A QSPEC, in the storage of an equal one that was stored lately.
pub(super) fn shared_qspec(qspecs: &mut Recent<[u8]>, qspec: &[u8]) -> Arc<[u8]> {
    qspecs.shared(recent::sum(qspec), qspec)
}

/// The table has no room for another session.
#[derive(Debug)]
pub(super) struct Full;

impl Qos {
    pub(super) fn find(&self, session: SessionId) -> Option<Key> {
        let hash = self.hasher.hash_octets(&session.0);
        let sessions = &self.sessions;
        let index = self.by_session.find(hash, |i| {
            invariant!(sessions.get_index(i), "an index entry has a session").is_some_and(|s| s.id == session)
        })?;
        sessions.key_of(index)
    }

    /// Makes the record of a new session. `asks`: it has only a QUERY, and counts against max_queries instead of
    /// max_sessions.
    pub(super) fn open(
        &mut self,
        id: SessionId,
        mri: Mri,
        nslp: NslpId,
        asks: bool,
        holder: Holder,
    ) -> Result<Key, Full> {
        if !self.holders.has_place(asks, holder) {
            self.counters.overload += 1;
            tracing::debug!(session = %id, reason = "table of sessions full", "message dropped");
            return Err(Full);
        }
        tracing::debug!(session = %id, query = asks, "session opened");
        let source = self.sources.shared(&Source::of(holder));
        let mut session = Session::new(id, &mri, nslp, self.config.period_ms(), source);
        session.stage = if asks { Stage::Path } else { Stage::Reserved };
        let Ok(key) = self.sessions.insert(session) else {
            self.counters.overload += 1;
            tracing::debug!(session = %id, reason = "table of sessions full", "message dropped");
            return Err(Full);
        };
        self.holders.hold(asks, holder);
        self.changes.note(|| SessionChange::opened(id.to_string()));
        let (sessions, hasher) = (&self.sessions, &self.hasher);
        let rehash = |i| {
            invariant!(sessions.get_index(i), "a rehashed entry has a session")
                .map_or(0, |s: &Session| hasher.hash_octets(&s.id.0))
        };
        self.by_session.insert(hasher.hash_octets(&id.0), key.index(), rehash);
        Ok(key)
    }

    /// Sets the state of a session.
    pub(super) fn set_stage(&mut self, key: Key, stage: Stage) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a stage has a session") else { return };
        let (was, is) = (session.stage == Stage::Path, stage == Stage::Path);
        if session.stage != stage {
            tracing::debug!(
                session = %session.id,
                from = ?session.stage,
                to = ?stage,
                "session state changed"
            );
            self.changes.note(|| SessionChange::changed(session.id.to_string()));
        }
        session.stage = stage;
        if was != is {
            self.holders.release(was, session.source.holder);
            self.holders.hold(is, session.source.holder);
        }
    }

    /// Removes a session and releases all its grants.
    pub(super) fn close(&mut self, key: Key, resources: &mut Resources) {
        self.wheel.cancel(&mut self.sessions, key.index());
        self.unbind(key);
        self.leave_aggregate(key);
        let Some(session) = invariant!(self.sessions.remove(key), "a session closes once") else { return };
        tracing::debug!(session = %session.id, "session closed");
        self.changes.note(|| SessionChange::closed(session.id.to_string()));
        self.holders.release(session.stage == Stage::Path, session.source.holder);
        self.holders.keep(session.source.holder, session.rare.contents, 0);
        let kept = session.rare.kept.iter().map(|(_, grant)| *grant);
        for grant in
            session.grant.get().into_iter().chain(kept).chain(session.rare.old_grants.iter().copied())
        {
            resources.release(grant);
        }
        let index = key.index();
        self.by_session.remove(self.hasher.hash_octets(&session.id.0), |i| i == index);
        if let Some(command) = session.local.and_then(|local| local.command) {
            self.commands.remove(&command);
        }
    }

    /// Releases the grants of a session. The record stays.
    pub(super) fn release(&mut self, key: Key, resources: &mut Resources) {
        self.leave_aggregate(key);
        let Some(session) = invariant!(self.sessions.get_mut(key), "a release has a session") else { return };
        let (kept, old) = session
            .rare
            .change(|rare| (core::mem::take(&mut rare.kept), core::mem::take(&mut rare.old_grants)));
        let kept = kept.into_iter().map(|(_, grant)| grant);
        for grant in session.grant.take().into_iter().chain(kept).chain(old) {
            resources.release(grant);
        }
        session.rate = 0;
    }

    /// Arms the timer of a session for its next action, and counts what it keeps.
    pub(super) fn rearm(&mut self, key: Key) {
        self.count_contents(key);
        match self.sessions.get(key).map(Session::deadline) {
            Some(Some(at)) => self.wheel.arm(&mut self.sessions, key.index(), at),
            Some(None) => {
                self.wheel.cancel(&mut self.sessions, key.index());
            }
            None => {}
        }
    }

    /// Ends a session that was not refreshed. A tear goes to the next peer, as in RSVP (RFC 2205 §2.3). RFC 5974
    /// leaves this open. Without the tear each node would refresh the next one until its own state ends, and the state
    /// of a failed node would last a lifetime more at each hop.
    pub(super) fn expire(&mut self, key: Key, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "an expiry has a session") else { return };
        // §5.2.5.4: the new peer sent nothing for a lifetime, the old one did.
        if session.stage == Stage::Reserved
            && let Some((sii, until)) = session.rare.old_previous_peer.filter(|(_, until)| self.now < *until)
        {
            session.set_previous_peer(Some(sii));
            session.rare.change(|rare| rare.old_previous_peer = None);
            session.expires = until.into();
            return;
        }
        if session.stage == Stage::Reserved {
            self.counters.expired += 1;
            tracing::debug!(session = %session.id, "reservation expired");
            resources.because(End::Expired);
            self.release(key, resources);
            self.on_gone(key);
            // A node that may be off the path sends no tear: the next peer may still have it as its previous peer, and
            // would end a reservation that another node refreshes.
            if !(self.has(key, Marks::OFF_PATH) || self.has(key, Marks::ROUTE_REPORTED)) {
                self.tear_towards_qnr(key, None, None, 0, resources);
                return;
            }
        }
        self.release_route(key);
        self.close(key, resources);
    }

    /// Lets GIST remove the routing state of a session (RFC 5974 §5.4.1). If the path returns to this node, GIST then
    /// finds the next peer by a new handshake, and that peer learns of the change.
    pub(super) fn release_route(&mut self, key: Key) {
        for direction in [Direction::Downstream, Direction::Upstream] {
            self.release_direction(key, direction);
        }
    }

    /// Lets GIST remove the routing state of one direction.
    pub(super) fn release_direction(&mut self, key: Key, direction: Direction) {
        let Some(session) = invariant!(self.sessions.get(key), "a released route has a session") else {
            return;
        };
        let onward = session.direction == direction;
        let nslp = if onward { session.nslp_next } else { session.nslp_previous };
        let mri = session.mri().with_direction(direction);
        self.out.set_state_lifetime(nslp, mri, session.id, Duration::ZERO);
    }

    /// Makes GIST keep the routing state of a downstream flow as long as the session lives, not only as long as
    /// messages of the session are sent: the session may be refreshed in summaries for [`MOST_LISTED`] periods.
    pub(super) fn keep_route(&mut self, key: Key, mri: &Mri) {
        let Some(session) = invariant!(self.sessions.get(key), "a kept route has a session")
            .filter(|_| mri.direction() == Direction::Downstream)
        else {
            return;
        };
        let same = session.direction == Direction::Downstream;
        let nslp = if same { session.nslp_next } else { session.nslp_previous };
        let lifetime = self.config.lifetime(session.period_in.max(session.period_out)) * ROUTE_LIFETIMES;
        self.out.set_state_lifetime(nslp, *mri, session.id, lifetime);
    }
}
