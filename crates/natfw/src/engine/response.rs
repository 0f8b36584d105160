//! RESPONSE (RFC 5973 §3.4, §3.7.1, §3.7.2), and the rules that it makes active.

use core::time::Duration;

use signalbox_core::pinhole::{Endpoint, Pinhole, PinholeError, PinholeId, Sender, Verdict};
use signalbox_core::service::{RecvMessage, SendError};
use signalbox_core::slab::Key;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{Direction, Mri, invariant};
use signalbox_resources::{End, Resources};

use super::Natfw;
use super::check::seconds;
use super::compose::Failed;
use super::event::{Failure, NOT_UPSTREAM, NatfwEvent};
use super::outbox::Own;
use super::plan::Plan;
use super::session::{Answer, Kind, Origin, Request, Session, State, pinhole_id};
use crate::wire::{Info, InfoClass, Information, Message, PUBLICATION};

impl Natfw {
    pub(super) fn on_response(
        &mut self,
        received: &RecvMessage<'_>,
        message: &Message<'_>,
        resources: &mut Resources,
    ) {
        let key = self.find(received.session);
        let (Some(key), Some(msn), Some(info)) = (key, message.msn, message.info) else {
            self.counters.stray_responses += 1;
            tracing::debug!(session = %received.session, peer = ?received.sii, reason = "no such session", "RESPONSE dropped");
            return;
        };
        let Some(session) = invariant!(self.sessions.get_mut(key), "a RESPONSE's key is valid") else {
            return;
        };
        // It comes over the routing state of the request: from the next peer, along the same flow. A class of events is
        // for NOTIFY only (§4.2.5).
        let same_flow = session.plan.sends(&received.mri.inverted()) && !received.validation.unchecked_route;
        let same_peer = session.peers.next().is_none()
            || session.peers.next() == received.sii
            || session.state != State::Established;
        let known = info.info.class != InfoClass::INFORMATIONAL;
        if !session.plan.forwards || !same_flow || !same_peer || !known || !session.awaits(msn) {
            self.counters.stray_responses += 1;
            tracing::debug!(session = %received.session, peer = ?received.sii, msn, reason = "no request waits for it", "RESPONSE dropped");
            return;
        }
        session.peers.set_next(received.sii);
        session.unanswered = if msn == session.msn { None } else { Some(msn.wrapping_add(1)) };
        let (answered, accepted) = (session.plan.answers, session.accepted);
        if !info.info.is_success() {
            // §3.7.6.3: what happens beyond an edge that has answered is ignored.
            if !answered {
                let failed =
                    Failed { info, lifetime: message.lifetime, beyond: Some(message.forwarded), note: None };
                self.fail(key, msn, &failed, resources);
            }
            return;
        }
        if !session.request.publication_octets().is_empty() && message.publication.is_none() {
            return self.unpublished(key, msn, resources);
        }
        // A success has NATFW_LT, else it would not have parsed.
        let granted = message.lifetime.unwrap_or(0);
        if session.begins_here() && !session.is_of_host() {
            return self.on_own_success(key, message, granted.min(accepted));
        }
        let least = seconds(self.config.min_lifetime);
        let wrong = if granted > accepted {
            Some((Info::MODIFIED_TOO_BIG, accepted))
        } else if granted < least {
            Some((Info::MODIFIED_TOO_SMALL, least))
        } else {
            None
        };
        if let Some((wrong, limit)) = wrong {
            self.counters.refused += 1;
            self.end_beyond(key);
            return self.fail(key, msn, &Failed { lifetime: Some(limit), ..wrong.into() }, resources);
        }
        if self.sessions.get(key).is_some_and(Session::is_of_host) {
            self.refresh_later(key, granted);
        }
        let bindings = message.bindings.map(|bindings| (bindings.port, bindings.octets().to_vec()));
        let answer = Answer {
            msn,
            lifetime: granted,
            external: message.external,
            bindings,
            own: false,
            hops: message.hops.map(|hops| hops.octets().to_vec()).unwrap_or_default(),
            forwarded: message.forwarded.iter().flatten().copied().collect(),
        };
        self.succeed(key, answer);
    }

    /// The nodes further on are told that a session ends here.
    fn end_beyond(&mut self, key: Key) {
        if self.sessions.get(key).is_some_and(Session::is_deleted_here) {
            self.delete_beyond(key);
        } else {
            self.notify(key, Info::TERMINATED, true);
        }
    }

    /// The answer to a publication does not say that it is one.
    fn unpublished(&mut self, key: Key, msn: u32, resources: &mut Resources) {
        self.counters.refused += 1;
        self.end_beyond(key);
        let info = Information { info: Info::MISSING_OBJECT, object: Some(PUBLICATION) };
        self.fail(key, msn, &Failed { info, ..Failed::from(info.info) }, resources);
    }

    /// The request of a session succeeded: its rule becomes active, then the RESPONSE goes to the previous peer.
    pub(super) fn succeed(&mut self, key: Key, answer: Answer) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a success has a session") else { return };
        let lifetime = Duration::from_secs(answer.lifetime.into());
        session.expires = self.now + lifetime;
        if !session.plan.installs {
            session.state = State::Established;
            self.keep_route(key, answer.lifetime);
            return self.answer_success(key, answer);
        }
        let Some(pinhole) =
            invariant!(rule(&session.request, &session.plan), "a plan that installs has a rule")
        else {
            return;
        };
        session.kernel = session.kernel.saturating_add(1);
        let seconds = answer.lifetime;
        session.waiting = Some(Box::new(answer));
        self.out.push(Own::Open(pinhole_id(key), Box::new(pinhole), lifetime));
        self.keep_route(key, seconds);
    }

    /// The kernel's answer to a rule.
    pub(super) fn on_opened(
        &mut self,
        id: PinholeId,
        result: Result<(), PinholeError>,
        resources: &mut Resources,
    ) {
        let key = Key::from_u64(id.key);
        // It may have ended meanwhile.
        let Some(session) = self.sessions.get_mut(key).filter(|session| session.kernel > 0) else { return };
        session.kernel -= 1;
        // A later request for the same rule has its own answer.
        if session.kernel > 0 {
            return;
        }
        match result {
            Ok(()) => {
                let again = core::mem::replace(&mut session.active, true);
                session.state = State::Established;
                let waiting = session.waiting.take();
                *(if again { &mut self.counters.refreshed } else { &mut self.counters.opened }) += 1;
                if let Some(answer) = waiting {
                    self.answer_success(key, *answer);
                }
                self.end_replaced(key, resources);
            }
            Err(error) => {
                self.counters.kernel_refused += 1;
                tracing::warn!(session = %session.id, %error, "rule not installed");
                let msn = session.waiting.take().map_or(session.msn, |answer| answer.msn);
                let info = match error {
                    PinholeError::Full => Info::NO_RESOURCES,
                    PinholeError::Conflict => Info::POLICY_CONFLICT,
                    PinholeError::Unsupported | PinholeError::Failed => Info::INTERNAL,
                };
                self.end_beyond(key);
                self.fail(key, msn, &info.into(), resources);
            }
        }
    }

    /// A session is Dead because its request failed: an error RESPONSE goes to the previous peer, and all that was
    /// remembered or active is dropped.
    pub(super) fn fail(&mut self, key: Key, msn: u32, failed: &Failed<'_>, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get(key), "a failure has a session") else { return };
        self.counters.ended += 1;
        let node = failed.beyond.and_then(|forwarded| forwarded.node());
        match session.origin() {
            Origin::Peer => self.answer_error(key, msn, failed),
            Origin::Command(_) => {
                let code = failed.info.info.into();
                let note = failed.beyond.and_then(|forwarded| forwarded.note());
                let failure = node.map_or(Failure::Code(code), |node| Failure::By { code, node, note });
                self.emit(key, NatfwEvent::Failed(failure));
            }
            Origin::Host(id) => {
                let failure = Failure::Code(failed.info.info.into());
                self.host_failed(id, failure, failed.info.object);
            }
            Origin::Proxy(primary) => self.secondary_failed(primary, resources),
        }
        if failed.beyond.is_some() {
            resources.because(End::RefusedBeyond(node));
        }
        self.close(key, resources);
    }

    /// GIST could not send a request to the next node (§3.7.1, §3.7.6.2).
    pub(super) fn on_unsent(&mut self, key: Key, msn: u32, error: SendError, resources: &mut Resources) {
        // It may have ended meanwhile.
        let Some(session) = self.sessions.get(key).filter(|session| session.awaits(msn)) else { return };
        tracing::debug!(session = %session.id, ?error, "request not sent");
        let no_node = matches!(
            error,
            SendError::NoNextNode | SendError::NoRoute | SendError::FlowEndsHere | SendError::Peer { .. }
        );
        // §3.7.6.3: this edge has answered.
        if session.plan.answers {
            return;
        }
        // What stands waits for the next repetition, which may find room in GIST, or the way free.
        let passes = matches!(error, SendError::Overload | SendError::Unreached(_));
        let goes_on = matches!(error, SendError::Connecting(_));
        let waits = goes_on || (passes && session.state == State::Established);
        if waits && session.is_deleted_here() {
            return;
        }
        if let Origin::Command(_) = session.origin() {
            let failure = match error {
                SendError::NoStateUpstream => Failure::NotUpstream,
                _ if no_node => Failure::NoNextNode,
                _ => Failure::NotSent(error),
            };
            self.counters.ended += 1;
            self.emit(key, NatfwEvent::Failed(failure));
            self.close(key, resources);
            return;
        }
        // §3.7.6.2: the last node answers in the place of a receiver that does not run the application.
        if session.request.proxy && session.kind == Kind::Create && no_node && session.state == State::Pending
        {
            let lifetime = session.accepted;
            return self.succeed(key, Answer { msn, lifetime, own: true, ..Answer::default() });
        }
        let info = match (no_node, session.kind) {
            (false, _) => Info::NO_RESOURCES,
            (true, Kind::Create) => Info::NR_NOT_REACHED,
            (true, Kind::External) => Info::NO_EDGE,
        };
        let note = match error {
            SendError::NoStateUpstream => NOT_UPSTREAM.to_owned(),
            _ => error.to_string(),
        };
        self.fail(key, msn, &Failed { note: Some(&note), ..info.into() }, resources);
    }
}

/// The rule that a request asks for by its plan (RFC 5973 §3.1, Appendix D); `None`: it has none. The policy judges it, and the kernel
/// gets it.
pub(super) fn rule(request: &Request, plan: &Plan) -> Option<Pinhole> {
    let second_port = request.efi.sub_ports > 0;
    let changed = |before: Endpoint, after: Endpoint| (before != after).then_some(after);
    if let Some(reserved) = plan.reserved() {
        let at = Endpoint { address: reserved.address, port: reserved.port };
        let packets = super::create::towards(reserved.senders, at, reserved.protocol, reserved.sender_port);
        let verdict = if reserved.blocks { Verdict::Deny } else { Verdict::Allow };
        let mut packets = FlowFilter { spi: reserved.spi, ..packets };
        let destination = changed(at, reserved.inside);
        let publication = request.publication();
        let filters = publication.iter().flat_map(|publication| publication.filters());
        let mut senders = filters.map(Sender::from);
        if let Some(Sender { from, port }) = senders.next() {
            (packets.src, packets.src_port) = (from, port);
        }
        return Some(Pinhole {
            senders: senders.collect(),
            second_port,
            icmp_types: request.icmp_types().to_vec(),
            verdict,
            destination,
            mirrored: plan.published().is_some() && destination.is_some(),
            ..Pinhole::allow(packets)
        });
    }
    let (Mri::PathCoupled(before), Mri::PathCoupled(after)) = (request.mri(), plan.mri()) else {
        return None;
    };
    debug_assert_eq!(before.direction, Direction::Downstream);
    let source = |flow: &signalbox_core::PathCoupled| Endpoint { address: flow.src, port: flow.src_port };
    let destination =
        |flow: &signalbox_core::PathCoupled| Endpoint { address: flow.dst, port: flow.dst_port };
    Some(Pinhole {
        second_port,
        icmp_types: request.icmp_types().to_vec(),
        source: changed(source(&before), source(&after)),
        destination: changed(destination(&before), destination(&after)),
        ..Pinhole::allow(FlowFilter::from(&before))
    })
}
