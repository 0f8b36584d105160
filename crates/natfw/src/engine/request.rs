//! CREATE and EXTERNAL at a node that did not make them (RFC 5973 §3.5, §3.7.1–3.7.4, §3.10).

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use signalbox_core::service::{Onward, RecvMessage};
use signalbox_core::slab::Key;
use signalbox_core::{SessionId, Time, invariant};
use signalbox_resources::decision::Outcome;
use signalbox_resources::{End, Passage, Resources};

use super::Natfw;
use super::check::{self, Refused};
use super::create::{Arrived, Held};
use super::far::{Routes, Unplanned};
use super::outbox::Own;
use super::plan::Plan;
use super::session::{Answer, Kind, Request, State, newer, pinhole_id};
use super::table::Opening;
use crate::wire::{Info, Message, MessageType};

/// The session identifier of aggregated messages (RFC 5973 §3.7.4, §3.7.5).
pub(super) const ALL_SESSIONS: SessionId = SessionId([0; 16]);

/// Why a request that may pass no further node is refused.
const SPENT: &str = "the GIST hop count is used up";
/// Why a request that comes back is refused.
const CIRCLE: &str = "the route of the flow leads in a circle";

impl Natfw {
    pub(super) fn on_request(
        &mut self,
        received: &RecvMessage<'_>,
        message: &Message<'_>,
        routes: Routes,
        resources: &mut Resources,
    ) {
        // It is mandatory, as NATFW_EFI is: a message that parses has both.
        let Some(msn) = message.msn else { return };
        if received.session == ALL_SESSIONS {
            return self.on_aggregate_deletion(received, message, msn);
        }
        // An explicitly routed request is for aggregated deletions only: others follow the route.
        if received.validation.unchecked_route {
            self.counters.unverified += 1;
            tracing::debug!(session = %received.session, peer = ?received.sii, reason = "explicitly routed", "message dropped");
            return;
        }
        if received.onward() == Onward::Spent && !received.at_flow_end && !message.deletes() {
            self.counters.hop_limit += 1;
            return self.refuse(received, msn, Refused::because(Info::NR_NOT_REACHED, SPENT));
        }
        let Some(key) = self.find(received.session) else {
            if message.deletes() {
                return self.on_early_deletion(received, message, msn);
            }
            if let Some(reason) = self.outdated(received, msn) {
                self.counters.old_msn += 1;
                tracing::debug!(session = %received.session, msn, reason, "message dropped");
                return;
            }
            return self.begin(received, message, routes, resources);
        };
        let Some(session) = invariant!(self.sessions.get(key), "a request's key is valid") else { return };
        // §3.7.1, §3.7.2: an initiator discards what it receives.
        if session.begins_here() || session.kind != kind_of(message) {
            self.counters.misdirected += 1;
            tracing::debug!(session = %received.session, peer = ?received.sii, reason = "this node sends the requests of the session, or it is of another kind", "message dropped");
            return;
        }
        if !newer(msn, session.msn) {
            // No node further on answered the request of this number: it went there and came back.
            let strange = received.sii.is_some() && session.peers.previous() != received.sii;
            if msn == session.msn && strange && session.unanswered.is_some() && !message.deletes() {
                self.counters.returned += 1;
                return self.refuse(received, msn, Refused::because(Info::NR_NOT_REACHED, CIRCLE));
            }
            self.counters.old_msn += 1;
            tracing::debug!(session = %received.session, msn, reason = "old sequence number", "message dropped");
            return;
        }
        // The session belongs to its peer. Another peer can only be on a changed route of the same flow: it can neither
        // delete the session nor turn its rule to another flow.
        let same_peer = session.is_of(received);
        let same_flow = session.request.is_asked_by(message, &received.mri);
        if !same_peer && (message.deletes() || !same_flow) {
            self.counters.foreign += 1;
            tracing::debug!(session = %received.session, peer = ?received.sii, reason = "session of another peer", "message dropped");
            if message.deletes() {
                self.on_foreign_deletion(received, msn);
            } else {
                self.refuse(received, msn, Info::AUTHORIZATION);
            }
            return;
        }
        if !same_peer && let Some(reason) = self.outdated(received, msn) {
            self.counters.old_msn += 1;
            tracing::debug!(session = %received.session, msn, reason, "message dropped");
            return;
        }
        if message.deletes() {
            self.on_deletion(key, received, message, msn, resources);
        } else if same_flow && same_peer && !session.peers.are_former() {
            self.on_refresh(key, received, message, msn, resources);
        } else {
            self.on_update(key, received, message, routes, resources);
        }
    }

    /// A new session.
    fn begin(
        &mut self,
        received: &RecvMessage<'_>,
        message: &Message<'_>,
        routes: Routes,
        resources: &mut Resources,
    ) {
        let Some(msn) = message.msn else { return };
        let Some(request) = Request::of(message, &received.mri) else { return };
        let Some((plan, lifetime)) = self.planned(received, message, &request, routes, resources) else {
            return;
        };
        let opening = Opening {
            id: received.session,
            kind: kind_of(message),
            request,
            plan,
            // The sender of the flow is the only address that is known otherwise.
            source: received.peer_address.unwrap_or_else(|| received.mri.src()),
            msn,
            lifetime,
            local: None,
        };
        let ends = opening.plan.answers && !opening.plan.forwards;
        match self.open(opening, resources) {
            Some(key) => {
                self.proceed(key, received, message);
                if let Some(nonce) = message.nonce.filter(|_| ends && message.kind == MessageType::CREATE) {
                    self.create_arrived(key, nonce, &received.mri);
                }
            }
            None => self.refuse(received, msn, Info::NO_RESOURCES),
        }
    }

    /// The plan for a request, and the lifetime in seconds that this node accepts. `None`: it was refused, or waits.
    fn planned(
        &mut self,
        received: &RecvMessage<'_>,
        message: &Message<'_>,
        request: &Request,
        routes: Routes,
        resources: &mut Resources,
    ) -> Option<(Plan, u32)> {
        match self.plan(received, message, request, (&routes, None), resources) {
            Ok(planned) => return Some(planned),
            Err(Unplanned::Refused(refused)) => self.refuse(received, message.msn?, refused),
            Err(Unplanned::Routes(ends)) => self.park(received, message, ends, routes),
        }
        None
    }

    /// The plan for a request, and the lifetime in seconds that this node accepts. `former`: a session of the node before this one
    /// has it, with this external port.
    pub(super) fn plan(
        &mut self,
        received: &RecvMessage<'_>,
        message: &Message<'_>,
        request: &Request,
        (routes, former): (&Routes, Option<Held>),
        resources: &mut Resources,
    ) -> Result<(Plan, u32), Unplanned> {
        let lifetime = check::lifetime(&self.config, message.lifetime.unwrap_or(0))?;
        let token = resources.token(self.now, message.forwarded.tokens()).map_err(|error| {
            tracing::debug!(session = %received.session, requester = ?received.peer_address, reason = %error, "passage refused");
            Refused::from(Info::AUTHENTICATION)
        })?;
        let flow = (received.mri.src(), received.mri.dst());
        let used = token.as_ref().map(|token| resources.check_token(self.now, token, received.session, flow));
        if let Some(Err(error)) = used {
            tracing::debug!(session = %received.session, requester = ?received.peer_address, reason = %error, "passage refused");
            return Err(Refused::from(Info::AUTHENTICATION).into());
        }
        let ends = self.ends(kind_of(message), received, request, routes, resources)?;
        let from = &Arrived { received, token, lifetime, ends, former };
        let plan = match kind_of(message) {
            Kind::Create => self.plan_create(from, request, resources)?,
            Kind::External => self.plan_external(from, request, resources)?,
        };
        if let Some(token) = from.token.as_ref().filter(|_| plan.passage.is_some()) {
            resources.use_token(self.now, token, received.session, flow);
        }
        let lifetime = at_most(lifetime, plan.passage.as_ref(), self.now, resources);
        Ok((plan, lifetime))
    }

    /// A request with the same session and flow (§3.7.3). Forwarders and the responder only prolong; they never refresh by
    /// themselves. Rules and tokens may be for a time that is over.
    fn on_refresh(
        &mut self,
        key: Key,
        received: &RecvMessage<'_>,
        message: &Message<'_>,
        msn: u32,
        resources: &mut Resources,
    ) {
        let lifetime = match check::lifetime(&self.config, message.lifetime.unwrap_or(0)) {
            Ok(lifetime) => lifetime,
            Err(refused) => return self.refuse(received, msn, refused),
        };
        if !self.judge(key, resources) {
            return self.refuse(received, msn, Info::AUTHORIZATION);
        }
        let now = self.now;
        let Some(session) = invariant!(self.sessions.get_mut(key), "a refresh has a session") else { return };
        session.accepted = at_most(lifetime, session.plan.passage.as_ref(), now, resources);
        session.msn = msn;
        // §3.7.3: now and the lifetime. It is not stopped while the RESPONSE is awaited.
        session.expires = self.now + Duration::from_secs(session.accepted.into());
        if session.state == State::Transitory {
            session.state = State::Established;
        }
        self.proceed(key, received, message);
    }

    /// A request with the same session for another flow (§3.10), or of another peer (§3.9). It is judged like an initial one,
    /// and replaces the rule when it succeeds. The rule stays if it is the same one.
    fn on_update(
        &mut self,
        key: Key,
        received: &RecvMessage<'_>,
        message: &Message<'_>,
        routes: Routes,
        resources: &mut Resources,
    ) {
        let Some(msn) = message.msn else { return };
        let Some(request) = Request::of(message, &received.mri) else { return };
        let Some((plan, lifetime)) = self.planned(received, message, &request, routes, resources) else {
            return;
        };
        if let Some(session) = self.sessions.get_mut(key).filter(|session| session.request == request)
            && session.plan.is_like(&plan)
        {
            let mut former = plan;
            let allowed = former.take_passages();
            former.set_passages(session.plan.take_passages());
            session.plan.set_passages(allowed);
            self.undo(former, resources);
            return self.on_refresh(key, received, message, msn, resources);
        }
        self.unreserve(key);
        let Some(session) = invariant!(self.sessions.get_mut(key), "an update has a session") else {
            return self.undo(plan, resources);
        };
        // What an edge opened for the former request ends with it.
        let secondary = core::mem::take(&mut session.secondary);
        self.delete_secondary(secondary, resources);
        let Some(session) = invariant!(self.sessions.get_mut(key), "an update ends no session") else {
            return self.undo(plan, resources);
        };
        let old = core::mem::replace(&mut session.plan, plan);
        session.request = request;
        session.msn = msn;
        session.unanswered = None;
        session.accepted = lifetime;
        session.expires = self.now + Duration::from_secs(lifetime.into());
        session.state = State::Pending;
        // The rule of the former flow ends with the request for the new one, so that no packet of the former flow uses a
        // port that another host may get.
        let closes = core::mem::take(&mut session.active) || session.kernel > 0;
        session.waiting = None;
        if closes {
            self.out.push(Own::Close(pinhole_id(key)));
        }
        self.undo(old, resources);
        self.note_passages(key, Outcome::Granted, resources);
        self.reserve(key);
        self.proceed(key, received, message);
    }

    /// Sends an accepted request on, or answers it.
    fn proceed(&mut self, key: Key, received: &RecvMessage<'_>, message: &Message<'_>) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a request has a session") else { return };
        session.peers.set_previous(received.sii, received.state);
        session.peers.note_list(received, message);
        let (answers, forwards, lifetime) = (session.plan.answers, session.plan.forwards, session.accepted);
        if forwards {
            self.send_on(key, lifetime, Some((received, message)));
        }
        if answers {
            let Some(session) = invariant!(self.sessions.get(key), "a request ends no session") else {
                return;
            };
            let bindings = message.bindings.map(|bindings| (bindings.port, bindings.octets().to_vec()));
            let external = session.plan.external.as_ref().and_then(|external| external.address);
            let answer =
                Answer { msn: session.msn, lifetime, external, bindings, own: true, ..Answer::default() };
            self.succeed(key, answer);
            self.proxy_for(key);
        }
    }

    /// Deletes a session at once and sends the deletion on (§3.7.4). It is not answered.
    fn on_deletion(
        &mut self,
        key: Key,
        received: &RecvMessage<'_>,
        message: &Message<'_>,
        msn: u32,
        resources: &mut Resources,
    ) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a deletion has a session") else {
            return;
        };
        session.msn = msn;
        let forwards = session.plan.forwards;
        self.counters.deleted += 1;
        if forwards {
            self.send_on(key, 0, Some((received, message)));
        }
        resources.because(End::TornDown);
        self.close(key, resources);
    }
}

/// A lifetime in seconds as far as the rule and the token of a passage allow it. 0 would be a deletion.
fn at_most(lifetime: u32, passage: Option<&Passage>, now: Time, resources: &Resources) -> u32 {
    let most = passage.and_then(|passage| resources.longest_lifetime(now, passage));
    most.map_or(lifetime, |most| lifetime.min(check::seconds(most).max(1)))
}

/// The peer whose requests a sequence number counts for. Those whose address GIST does not know are one: the flow of a request is what its
/// sender writes, and shows nothing.
pub(super) fn numbered_peer(received: &RecvMessage<'_>) -> IpAddr {
    received.peer_address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED))
}

pub(super) const fn kind_of(message: &Message<'_>) -> Kind {
    match message.kind {
        MessageType::EXTERNAL => Kind::External,
        _ => Kind::Create,
    }
}
