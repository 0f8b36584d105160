//! Finding, making and forgetting sessions.

use core::time::Duration;

use signalbox_core::slab::Key;
use signalbox_core::{Direction, Mri, NslpId, SessionId};
use signalbox_resources::Resources;

use super::Qos;
use super::session::{Marks, Session, Stage};

/// Refreshes of a session in the lists of others before it sends one of its own, so that GIST goes on asking for its peer.
pub(super) const MOST_LISTED: u8 = 16;

/// How long GIST is to ask for a peer after the last message, in lifetimes of state: longer than so many refreshes take.
const ROUTE_LIFETIMES: u32 = 6;

/// No room for another session.
#[derive(Debug)]
pub(super) struct Full;

impl Qos {
    pub(super) fn find(&self, session: SessionId) -> Option<Key> {
        let hash = self.hasher.hash_octets(&session.0);
        let sessions = &self.sessions;
        let index = self.by_session.find(hash, |i| sessions.get_index(i).is_some_and(|s| s.id == session))?;
        sessions.key_of(index)
    }

    /// Makes the record of a session that is not known; one that only asks counts against another limit than one
    /// that reserves.
    pub(super) fn open(&mut self, id: SessionId, mri: Mri, nslp: NslpId, asks: bool) -> Result<Key, Full> {
        let reserving = self.sessions.len().saturating_sub(self.paths);
        let full =
            if asks { self.paths >= self.config.max_queries } else { reserving >= self.config.max_sessions };
        if full {
            self.counters.overload += 1;
            return Err(Full);
        }
        let mut session = Session::new(id, mri, nslp, self.config.period_ms());
        session.stage = if asks { Stage::Path } else { Stage::Reserved };
        let Ok(key) = self.sessions.insert(session) else {
            self.counters.overload += 1;
            return Err(Full);
        };
        self.paths += u32::from(asks);
        let (sessions, hasher) = (&self.sessions, &self.hasher);
        let rehash = |i| sessions.get_index(i).map_or(0, |s: &Session| hasher.hash_octets(&s.id.0));
        self.by_session.insert(hasher.hash_octets(&id.0), key.index(), rehash);
        Ok(key)
    }

    /// Sets how far a session has come.
    pub(super) fn set_stage(&mut self, key: Key, stage: Stage) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let (was, is) = (session.stage == Stage::Path, stage == Stage::Path);
        session.stage = stage;
        match (was, is) {
            (true, false) => self.paths = self.paths.saturating_sub(1),
            (false, true) => self.paths += 1,
            _ => {}
        }
    }

    /// Forgets a session, with all that it holds.
    pub(super) fn close(&mut self, key: Key, resources: &mut Resources) {
        self.wheel.cancel(&mut self.sessions, key.index());
        self.unbind(key);
        self.leave(key);
        let Some(session) = self.sessions.remove(key) else { return };
        if session.stage == Stage::Path {
            self.paths = self.paths.saturating_sub(1);
        }
        let kept = session.kept.iter().map(|(_, grant)| *grant);
        for grant in session.grant.into_iter().chain(kept).chain(session.old_grants.iter().copied()) {
            resources.release(grant);
        }
        let index = key.index();
        self.by_session.remove(self.hasher.hash_octets(&session.id.0), |i| i == index);
        if let Some(command) = session.local.and_then(|local| local.command) {
            self.commands.remove(&command);
        }
    }

    /// Gives back what a session holds here; the record stays.
    pub(super) fn release(&mut self, key: Key, resources: &mut Resources) {
        self.leave(key);
        let Some(session) = self.sessions.get_mut(key) else { return };
        let kept = core::mem::take(&mut session.kept).into_iter().map(|(_, grant)| grant);
        let old = core::mem::take(&mut session.old_grants);
        for grant in session.grant.take().into_iter().chain(kept).chain(old) {
            resources.release(grant);
        }
        session.rate = 0;
    }

    /// Arms the timer of a session for whatever is due next.
    pub(super) fn rearm(&mut self, key: Key) {
        match self.sessions.get(key).map(Session::deadline) {
            Some(Some(at)) => self.wheel.arm(&mut self.sessions, key.index(), at),
            Some(None) => {
                self.wheel.cancel(&mut self.sessions, key.index());
            }
            None => {}
        }
    }

    /// Nobody refreshed it. What this node reserved further on is torn down, as RSVP does (RFC 2205 §2.3): RFC 5974 leaves
    /// it open, but otherwise each node refreshes the next one until its own state ends, and what a dead node reserved
    /// ends a lifetime later with every hop.
    pub(super) fn expire(&mut self, key: Key, resources: &mut Resources) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        // §5.2.5.4: the new peer was silent for a lifetime, the one before was not.
        if session.stage == Stage::Reserved
            && let Some((sii, until)) = session.old_back.filter(|(_, until)| self.now < *until)
        {
            session.back = Some(sii);
            session.old_back = None;
            session.expires = Some(until);
            return;
        }
        if session.stage == Stage::Reserved {
            self.counters.expired += 1;
            self.release(key, resources);
            self.on_gone(key, resources);
            // Whoever may be off the path keeps quiet: the next peer may still take this node for the one before it,
            // and would end what others refresh.
            if !(self.has(key, Marks::OFF_PATH) || self.has(key, Marks::DOUBTED)) {
                self.tear_onward(key, None, None, 0, resources);
                return;
            }
        }
        self.forget_route(key);
        self.close(key, resources);
    }

    /// GIST need not keep the ways of a session any longer (§5.4.1). Should the path come back to this node, it finds
    /// the next peer anew, and that peer learns of it.
    pub(super) fn forget_route(&mut self, key: Key) {
        for direction in [Direction::Downstream, Direction::Upstream] {
            self.forget_way(key, direction);
        }
    }

    /// The same for one direction.
    pub(super) fn forget_way(&mut self, key: Key, direction: Direction) {
        let Some(session) = self.sessions.get(key) else { return };
        let onward = session.mri.direction() == direction;
        let nslp = if onward { session.nslp_onward } else { session.nslp_back };
        let mri = session.mri.with_direction(direction);
        self.out.set_state_lifetime(nslp, mri, session.id, Duration::ZERO);
    }

    /// GIST shall know the peer of a flow that it asked for as long as the session lives, and not only as long as
    /// messages of its own go there: it may be refreshed in another's for [`MOST_LISTED`] periods.
    pub(super) fn keep_route(&mut self, key: Key, mri: &Mri) {
        let Some(session) = self.sessions.get(key).filter(|_| mri.direction() == Direction::Downstream)
        else {
            return;
        };
        let same = session.mri.direction() == Direction::Downstream;
        let nslp = if same { session.nslp_onward } else { session.nslp_back };
        let lifetime = self.config.lifetime(session.period_in.max(session.period_out)) * ROUTE_LIFETIMES;
        self.out.set_state_lifetime(nslp, *mri, session.id, lifetime);
    }
}
