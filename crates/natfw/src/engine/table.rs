//! The table of sessions.

use core::net::IpAddr;

use signalbox_core::slab::Key;
use signalbox_core::{Link, SessionChange, SessionId, invariant, shares};
use signalbox_resources::Resources;
use signalbox_resources::decision::Outcome;

use super::Natfw;
use super::ended::Holder;
use super::event::{Failure, NatfwEvent};
use super::outbox::Own;
use super::plan::Plan;
use super::session::{Kind, Local, Origin, Peers, Proxied, Request, Session, State, pinhole_id};
use crate::wire::Info;

/// What is known of a session before it has a record.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) id: SessionId,
    pub(super) kind: Kind,
    pub(super) request: Request,
    pub(super) plan: Plan,
    pub(super) source: IpAddr,
    pub(super) msn: u32,
    pub(super) lifetime: u32,
    /// `None`: its requests are those of a peer.
    pub(super) local: Option<Box<Local>>,
}

impl Natfw {
    pub(super) fn find(&self, session: SessionId) -> Option<Key> {
        let hash = self.hasher.hash_octets(&session.0);
        let sessions = &self.sessions;
        let index = self.by_session.find(hash, |i| {
            invariant!(sessions.get_index(i), "an index entry has a session").is_some_and(|s| s.id == session)
        })?;
        sessions.key_of(index)
    }

    /// Makes the record of a session. If there is no place, the plan is undone.
    pub(super) fn open(&mut self, opening: Opening, resources: &mut Resources) -> Option<Key> {
        let from = shares::source(opening.source);
        if self.shares.take(from).is_err() {
            return self.no_place(opening, resources);
        }
        if self.sessions.len() >= self.sessions.limit() {
            self.shares.release(from);
            return self.no_place(opening, resources);
        }
        let Opening { id, kind, request, plan, source, msn, lifetime, local } = opening;
        let session = Session {
            id,
            kind,
            state: State::Pending,
            request,
            plan,
            peers: Peers::default(),
            source,
            msn,
            unanswered: None,
            accepted: lifetime,
            expires: self.now + core::time::Duration::from_secs(lifetime.into()),
            active: false,
            kernel: 0,
            waiting: None,
            secondary: Key::default(),
            local,
            link: Link::default(),
        };
        // The limit was checked above.
        let key = invariant!(self.sessions.insert(session).ok(), "a table with room takes a session")?;
        tracing::debug!(session = %id, kind = ?kind, "session opened");
        self.changes.note(|| SessionChange::opened(id.to_string()));
        let (sessions, hasher) = (&self.sessions, &self.hasher);
        let rehash = |i| {
            invariant!(sessions.get_index(i), "a rehashed entry has a session")
                .map_or(0, |s: &Session| hasher.hash_octets(&s.id.0))
        };
        self.by_session.insert(hasher.hash_octets(&id.0), key.index(), rehash);
        self.note_passages(key, Outcome::Granted, resources);
        self.reserve(key);
        Some(key)
    }

    fn no_place(&mut self, opening: Opening, resources: &mut Resources) -> Option<Key> {
        self.counters.sessions_full += 1;
        tracing::debug!(session = %opening.id, reason = "table of sessions full", "request refused");
        self.undo(opening.plan, resources);
        None
    }

    /// Gives back what a plan holds.
    pub(super) fn undo(&mut self, mut plan: Plan, resources: &mut Resources) {
        if let Some(lease) = plan.lease {
            self.ports.release(lease);
        }
        plan.take_passages().into_iter().for_each(|passage| resources.close_passage(passage));
    }

    /// Removes a session: it is Dead (RFC 5973 §3.2.8). Its rule leaves the kernel at once, and all that it held is given
    /// back (§3.4). The session that an edge made for it ends too, at the edge and at the receiver (§3.7.6.1).
    pub(super) fn close(&mut self, key: Key, resources: &mut Resources) {
        self.note_passages(key, Outcome::Ended, resources);
        self.unreserve(key);
        self.wheel.cancel(&mut self.sessions, key.index());
        self.keep_route(key, 0);
        let Some(session) = invariant!(self.sessions.remove(key), "a session closes once") else { return };
        self.former_creates.remove(&session.id);
        if let Some(nonce) = session.request.nonce()
            && self.proxied.get(&nonce) == Some(&key)
        {
            self.proxied.remove(&nonce);
        }
        tracing::debug!(session = %session.id, "session closed");
        self.changes.note(|| SessionChange::closed(session.id.to_string()));
        let index = key.index();
        self.by_session.remove(self.hasher.hash_octets(&session.id.0), |i| i == index);
        if session.active || session.kernel > 0 {
            self.out.push(Own::Close(pinhole_id(key)));
        }
        if session.state != State::Pending {
            self.hold_back(&session.plan);
        }
        self.shares.release(session.share());
        let origin = session.origin();
        if origin == Origin::Peer {
            // A request that waits dies with its session.
            while let Some(parked) = self.parked.end_any(session.id) {
                self.keep_number(session.id, parked.peer, (parked.msn, None));
            }
            let holder = Holder::of(&self.hasher, &session.request.mri(), session.source);
            self.keep_number(session.id, session.source, (session.msn, Some(holder)));
        }
        self.undo(session.plan, resources);
        match origin {
            Origin::Command(id) => {
                self.commands.remove(&id);
            }
            // Who knows a reason has told it before.
            Origin::Host(id) => self.host_failed(id, Failure::Code(Info::TERMINATED.into()), None),
            // The primary session has no secondary one any more.
            Origin::Proxy(primary) => {
                if let Some(primary) = self.sessions.get_mut(primary) {
                    primary.secondary = Key::default();
                }
            }
            Origin::Peer => {}
        }
        // One step, not a recursion: a secondary session has no secondary one, and the CREATE of an edge is that of a peer.
        if let Some(Proxied::Through(create)) = session.local.and_then(|local| local.proxied)
            && self.sessions.get(create).is_some()
        {
            self.close(create, resources);
        }
        if session.secondary != Key::default() {
            self.delete_secondary(session.secondary, resources);
        }
    }

    /// Keeps the sequence number of a session that ended, with its holder, or that of a request of this peer. Whether there was a place.
    pub(super) fn keep_number(
        &mut self,
        session: SessionId,
        peer: IpAddr,
        number: (u32, Option<Holder>),
    ) -> bool {
        let kept = self.ended.keep(self.now, (session, peer), number);
        if !kept {
            tracing::debug!(%session, reason = "table of sequence numbers full", "number not kept");
        }
        kept
    }

    /// Arms the timer of a session for its next action.
    pub(super) fn rearm(&mut self, key: Key) {
        if let Some(at) = self.sessions.get(key).map(Session::deadline) {
            self.wheel.arm(&mut self.sessions, key.index(), at);
        }
    }

    /// Gives an event to the user of a session.
    pub(super) fn emit(&mut self, key: Key, event: NatfwEvent) {
        if let Some(Origin::Command(id)) = self.sessions.get(key).map(Session::origin) {
            self.out.event(id, event);
        }
    }
}
