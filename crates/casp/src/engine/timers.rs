//! Refresh and end of soft state (section 8 of the draft).

use signalbox_core::stamp::Moment;
use signalbox_core::{Key, SessionChange, invariant};

use super::Casp;
use super::io::Indication;
use super::session::Mark;
use crate::wire::{Body, Flags, Signaling};

impl Casp {
    /// Makes sure that the timer of a session fires when something is due.
    pub(super) fn arm(&mut self, key: Key) {
        let Some(due) = invariant!(
            self.sessions.get(key).map(super::session::Session::due),
            "a timer is of a session that stands"
        ) else {
            return;
        };
        if due.as_micros() < u64::MAX {
            self.wheel.arm_by(&mut self.sessions.slab, key.index(), due);
        }
    }

    /// Runs the timers of sessions.
    pub(super) fn run_sessions(&mut self, most: u32) {
        for _ in 0..most {
            let Some(index) = self.wheel.pop_due(&mut self.sessions.slab, self.now) else { return };
            if let Some(key) = invariant!(self.sessions.slab.key_of(index), "a timer ends with its session") {
                self.on_due(key);
            }
        }
    }

    fn on_due(&mut self, key: Key) {
        while let Some(branch) = self.sessions.get(key).and_then(|one| one.previous.expired(self.now)) {
            self.remove_previous(key, branch.peer);
        }
        let Some(session) = invariant!(self.sessions.get(key), "branches end no session") else { return };
        if session.previous.last().is_none() {
            self.counters.expired += 1;
            return self.end(key, false);
        }
        let now = self.now;
        let over = |session: &super::session::Session| {
            session
                .next
                .others()
                .find(|branch| branch.until.is_due(now))
                .map(|branch| (branch.peer, branch.id))
        };
        while let Some((peer, id)) = self.sessions.get(key).and_then(over) {
            self.remove_next(key, peer, id);
        }
        if self.sessions.get(key).is_some_and(|session| session.refresh_at.is_due(self.now)) {
            self.refresh(key);
        }
        self.arm(key);
    }

    /// A previous hop of a session ended.
    pub(super) fn remove_previous(&mut self, key: Key, peer: Key) {
        let Some(session) =
            invariant!(self.sessions.get_mut(key), "a previous hop is of a session that stands")
        else {
            return;
        };
        let Some(branch) = invariant!(session.previous.remove(peer), "a hop ends once") else { return };
        let others = session.previous.last().is_some();
        self.peers.drop_use(peer);
        if others {
            self.indicate_branch(key, true, branch.id, true);
        }
    }

    /// An older next hop of a session ended.
    pub(super) fn remove_next(&mut self, key: Key, peer: Key, id: u16) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a next hop is of a session that stands")
        else {
            return;
        };
        session.next.remove(peer);
        self.peers.drop_use(peer);
        self.indicate_branch(key, false, id, true);
    }

    /// Nothing was sent to the next hop for an interval: this node makes a refresh of its own.
    fn refresh(&mut self, key: Key) {
        self.remove_unproved(key);
        let Some(session) = invariant!(self.sessions.get(key), "a refresh has a session") else { return };
        let (own, held, interval) = (session.is_own(), session.is(Mark::Held), session.interval());
        let rediscover = own && (self.config.rediscover || session.is(Mark::Rediscover));
        let next = self.now + self.rng.jitter(interval, 0.5, 1.5);
        let responder = self.is_responder(&session.flow);
        let shut = self.is_shut(key);
        let Some(session) = invariant!(self.sessions.get_mut(key), "planning ends nothing") else { return };
        if let Some(waiting) = session.waiting.as_mut() {
            waiting.retried = false;
        }
        session.settle();
        // At a NAT, the first request that is translated sets the timer again.
        if responder || (own && !held) || shut {
            session.refresh_at = Moment::NEVER;
            return;
        }
        session.refresh_at = next.into();
        let Some(message) =
            invariant!(self.refresh_message(key, rediscover), "a refresh is made for a session that stands")
        else {
            return;
        };
        self.counters.refreshed += 1;
        self.deliver(key, &message, None);
    }

    /// A message of this node that only concerns state.
    pub(super) fn refresh_message(&mut self, key: Key, discover: bool) -> Option<Signaling<'static>> {
        let session = self.sessions.get(key)?;
        let tainted = session.previous.last().is_some_and(|branch| branch.tainted);
        Some(Signaling {
            flags: Flags::NONE.with_if(Flags::UNSECURE, tainted).with_if(Flags::DISCOVER, discover),
            timeout: session.explicit_timeout(),
            body: Body::Empty,
            ..Signaling::new(session.id, self.sessions.flow_in(key, false)?)
        })
    }

    /// Removes a session. Its clients are informed.
    pub(super) fn end(&mut self, key: Key, torn_down: bool) {
        self.indicate_all(key, |session, flow| Indication::Ended { session, flow, torn_down });
        if self.sessions.get(key).is_none() {
            return;
        }
        self.wheel.cancel(&mut self.sessions.slab, key.index());
        let Some(session) = invariant!(self.sessions.remove(key), "a session ends once") else { return };
        if let Some(waiting) = &session.waiting {
            self.give_octets(session.owner, waiting.octets);
        }
        self.by_source.release(self.source_of(session.owner));
        for branch in session.previous.iter().chain(session.next.iter()) {
            self.peers.drop_use(branch.peer);
        }
        self.peers.drop_use(session.owner);
        tracing::debug!(session = %session.id, flow = %session.flow, torn_down, "session ended");
        self.changes.note(|| SessionChange::closed(super::receive::name(session.id, &session.flow)));
    }
}
