//! What clients of this node ask for.

use signalbox_core::stamp::Moment;
use signalbox_core::{Key, SessionChange, SessionId, invariant};

use super::Casp;
use super::branch::{Branch, MadeBy, Proved};
use super::io::{Indication, Request, SendRequest};
use super::refused::Refused;
use super::session::{Mark, Session};
use crate::wire::route::Routing;
use crate::wire::{Body, ClientType, FIRST_TTD, Flags, FlowId, MAX_CONTENTS, Signaling};

impl Casp {
    pub(super) fn on_request_of(&mut self, client: ClientType, request: &Request<'_>) {
        match request {
            Request::Send(send) => {
                if let Err(why) = self.send_request_of(client, send) {
                    self.out.indicate(client, Indication::Refused { tag: send.tag, why });
                }
            }
            Request::Verdict { id, verdict } => self.on_verdict(client, *id, verdict),
            Request::Hold { session, flow, on } => self.on_hold(client, *session, flow, *on),
            Request::Move { session, from, to } => {
                if let Err(why) = self.on_move(client, *session, from, *to) {
                    self.out.indicate(client, Indication::Refused { tag: 0, why });
                }
            }
            Request::Translate { session, flow, outer } => {
                if let Err(why) = self.on_translate(*session, flow, *outer) {
                    self.out.indicate(client, Indication::Refused { tag: 0, why });
                }
            }
            Request::KeepBranches { session, flow } => {
                let found = self.find_of(client, *session, flow).ok();
                if let Some(session) = found.and_then(|key| self.sessions.get_mut(key)) {
                    session.note(Mark::Kept, true);
                }
            }
        }
    }

    /// The session of this name, if the client took part in it. For others there is no such session: many users see its name.
    fn find_of(&self, client: ClientType, id: SessionId, flow: &FlowId) -> Result<Key, Refused> {
        let found = self.sessions.find(id, flow).filter(|key| self.sessions.takes_part(*key, client));
        found.ok_or(Refused::NoSession)
    }

    pub(super) fn check_flow(&self, flow: &FlowId) -> Result<(), Refused> {
        if flow.checked().is_err() || (flow.is_private() && !self.config.private_flows) {
            return Err(Refused::Flow);
        }
        if flow.dst().is_multicast() { Err(Refused::Multicast) } else { Ok(()) }
    }

    fn send_request_of(&mut self, client: ClientType, send: &SendRequest<'_>) -> Result<(), Refused> {
        self.check_flow(&send.flow)?;
        if send.reverse && send.discover {
            return Err(Refused::ReverseDiscovery);
        }
        if send.data.is_some_and(|data| data.len() > MAX_CONTENTS) {
            return Err(Refused::TooLong);
        }
        let found = send.session.and_then(|id| self.sessions.find(id, &send.flow));
        if found.is_some_and(|key| !self.sessions.takes_part(key, client)) {
            return Err(Refused::NoSession);
        }
        if send.record_route || send.route.is_some() {
            self.check_stateless(client, send, found.is_some())?;
            if found.is_none() {
                return self.send_without_state(client, send);
            }
        }
        let key = match found {
            Some(key) => key,
            None if send.reverse || send.tear_down || send.branch.is_some() => {
                return Err(Refused::NoSession);
            }
            None => {
                let id = send.session.unwrap_or_else(|| self.rng.session_id());
                if self.sessions.find_translated(id, &send.flow).is_some() {
                    return Err(Refused::Flow);
                }
                let key = self.open_session(client, id, send.flow)?;
                let opened =
                    Indication::Opened { tag: send.tag, session: id, flow: send.flow, hold: send.hold };
                self.out.indicate(client, opened);
                key
            }
        };
        let responder = self.is_responder(&send.flow);
        let Some(session) =
            invariant!(self.sessions.get_mut(key), "a session that was found or opened stands")
        else {
            return Err(Refused::NoSession);
        };
        let no_hop = if send.reverse { session.is_own() } else { responder && !session.is_own() };
        if no_hop {
            return Err(Refused::NoHop);
        }
        if send.hold {
            session.note(Mark::Held, true);
        }
        self.extend_own(key);
        if send.tear_down {
            self.tear_down_by_client(key, client, send);
            return Ok(());
        }
        let Some(session) =
            invariant!(self.sessions.get(key), "a session stands while its client extends it")
        else {
            return Err(Refused::NoSession);
        };
        let flags = Flags::NONE.with_if(Flags::REVERSE, send.reverse).with_if(Flags::DISCOVER, send.discover);
        let message = Signaling {
            flags,
            ttd: send.ttd.unwrap_or(FIRST_TTD),
            timeout: session.explicit_timeout(),
            body: send.data.map_or(Body::Empty, |data| Body::Client { client, data }),
            // For the nodes without state behind those that keep it.
            route: send.route.map(Routing::Route),
            ..Signaling::new(session.id, session.flow)
        };
        match send.branch {
            Some(id) => self.send_over(key, id, &message),
            None if self.deliver(key, &message, Some(client)) => Ok(()),
            None => Err(Refused::TooLong),
        }
    }

    /// Sends a message over one branch.
    pub(super) fn send_over(&mut self, key: Key, id: u16, message: &Signaling<'_>) -> Result<(), Refused> {
        let session = self.sessions.get(key).ok_or(Refused::NoSession)?;
        let side = if message.flags.is_reverse() { &session.previous } else { &session.next };
        let hop = *side.by_id(id).filter(|branch| !branch.is_local()).ok_or(Refused::NoHop)?;
        let flow = self.sessions.flow_in(key, message.flags.is_reverse()).unwrap_or(message.flow);
        let mut octets = Vec::new();
        Signaling { flow, ..*message }.encode(&mut octets).map_err(|_| Refused::TooLong)?;
        // A branch that is not connected is an old one whose node is gone.
        match self.send_to(hop.peer, hop.takes_datagrams(), &octets, None) {
            super::connect::Delivery::Sent => Ok(()),
            super::connect::Delivery::Connecting(_) | super::connect::Delivery::Blocked => {
                Err(Refused::NoHop)
            }
        }
    }

    /// Makes the state of a session that a client of this node opens.
    fn open_session(&mut self, client: ClientType, id: SessionId, flow: FlowId) -> Result<Key, Refused> {
        let owner = super::key_of_client(client);
        if self.by_source.take(super::source_of_client(owner)).is_err() {
            self.counters.sessions_full += 1;
            tracing::debug!(session = %id, client = client.0, reason = "share of the client in max_sessions is used up", "request refused");
            return Err(Refused::Full);
        }
        let mut session = Session::new(id, flow, owner);
        session.note(Mark::Explicit, self.config.send_timeout);
        session.timeout = self.config.lifetime();
        session.previous.add(
            Branch {
                peer: Branch::LOCAL,
                until: Moment::NEVER,
                id: 0,
                proved: Proved::default(),
                protected: true,
                tainted: false,
                made_by: MadeBy::Connection,
            },
            true,
        );
        let Some(key) = self.sessions.insert(session) else {
            self.by_source.release(super::source_of_client(owner));
            self.counters.sessions_full += 1;
            tracing::debug!(session = %id, client = client.0, reason = "table of sessions full", "request refused");
            return Err(Refused::Full);
        };
        self.sessions.join(key, client);
        self.counters.opened += 1;
        tracing::debug!(session = %id, client = client.0, %flow, "session opened");
        self.changes.note(|| SessionChange::opened(super::receive::name(id, &flow)));
        self.arm(key);
        Ok(key)
    }

    /// A session of this node ends one lifetime after its last message, unless a client holds it.
    pub(super) fn extend_own(&mut self, key: Key) {
        let now = self.now;
        let Some(session) = invariant!(self.sessions.get_mut(key), "a session that is extended stands")
        else {
            return;
        };
        let held = session.is(Mark::Held);
        let until = if held { Moment::NEVER } else { (now + session.lifetime()).into() };
        if held && session.refresh_at == Moment::NEVER {
            // No message may ever reach a next hop: then the refresh is the next try.
            session.refresh_at = (now + session.interval()).into();
        }
        if let Some(branch) = session.previous.last_mut().filter(|branch| branch.is_local()) {
            branch.until = until;
        }
        self.arm(key);
    }

    fn on_hold(&mut self, client: ClientType, id: SessionId, flow: &FlowId, on: bool) {
        let Ok(key) = self.find_of(client, id, flow) else { return };
        if let Some(session) = self.sessions.get_mut(key) {
            session.note(Mark::Held, on);
        }
        self.extend_own(key);
    }

    /// A session goes on with another flow, because the address of this node changed.
    fn on_move(
        &mut self,
        client: ClientType,
        id: SessionId,
        from: &FlowId,
        to: FlowId,
    ) -> Result<(), Refused> {
        self.check_flow(&to)?;
        let former = self.find_of(client, id, from)?;
        let session =
            self.sessions.get_mut(former).filter(|session| session.is_own()).ok_or(Refused::NoSession)?;
        let held = session.is(Mark::Held);
        if self.sessions.has(id, &to) || *from == to {
            return Err(Refused::Flow);
        }
        let key = self.open_session(client, id, to)?;
        if let Some(session) = self.sessions.get_mut(key) {
            session.note(Mark::Held, held);
            session.waiting().replaces = Some(former);
        }
        self.sessions.join_all_of(key, former);
        self.extend_own(key);
        if let Some(session) = self.sessions.get_mut(former) {
            // It is refreshed no more.
            session.note(Mark::Held, false);
            session.refresh_at = Moment::NEVER;
        }
        self.extend_own(former);
        let Some(message) = invariant!(self.refresh_message(key, false), "a session that moves is refreshed")
        else {
            return Err(Refused::NoSession);
        };
        self.deliver(key, &message, Some(client));
        Ok(())
    }
}
