//! Node-SM (RFC 5971 §6.1): messages for which no machine exists yet, and how messages reach one.

use signalbox_core::Direction;
use signalbox_core::service::{AddressValidation, CheckId, RecvMessage, StateHandle, TransferAttributes};
use signalbox_core::slab::Key;

use super::Gist;
use super::association::Answer;
use super::compose::distance;
use super::config::Installation;
use super::io::PeeringPolicy;
use super::receive::{Arrival, Subject};
use super::record::{NONE, PROVEN, State};
use super::sender::Sender;
use crate::wire::{Encapsulation, GistError, Message, ObjectType, object_value_info};

/// What this node found out about a message that it delivers to a signaling application (RFC 5971 B.2).
#[derive(Debug, Clone, Copy)]
struct Delivery {
    /// The routing state that the message belongs to.
    state: Option<(Key, Direction)>,
    sender: Sender,
    /// The message was not checked against routing state.
    unchecked: bool,
    /// The application must decide whether to peer.
    check: Option<CheckId>,
}

impl Gist {
    /// Rule 1, `rx_Query`: the application decides; its answer may come at once (policy) or by
    /// `Request::Peering`. GIST-4.3.1-05, GIST-4.3.2-08, GIST-B.2-01.
    pub(super) fn rx_query(&mut self, a: &Arrival<'_>, message: &Message<'_>, subject: &Subject<'_>) {
        if a.association == NONE && !self.query_limits.allow(self.now, subject.nli.interface) {
            self.counters.queries_limited += 1;
            dropped!(a, subject, "rate limit of Queries per source");
            return;
        }
        self.counters.queries_received += 1;
        match self.registration(subject.nslp).map(|r| r.policy) {
            Some(PeeringPolicy::Ask) => self.ask_application(a, message, subject),
            // GIST-4.3.2-01: who is addressed peers, whatever the application says.
            Some(PeeringPolicy::Never) if !a.local => self.forward(a, &message.header, None),
            _ => {
                if let Some(data) = message.nslp_data {
                    self.deliver_query(a, message, subject, data, None);
                }
                self.accept_query(a, message, subject, None);
            }
        }
    }

    /// The application peers: state now (policies 1 and 2, GIST-6.1-01) or a Response without any
    /// (policy 3, GIST-6.1-02); the machine that exists already gets it otherwise.
    /// GIST-4.3.2-02, GIST-4.4.1-01.
    pub(super) fn accept_query(
        &mut self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
        payload: Option<&[u8]>,
    ) {
        // A Query that comes downstream was sent by the upstream peer.
        let direction = subject.mri.direction().inverted();
        let key = self.find(&subject.mri, subject.session, subject.nslp);
        let state = key.map_or(State::None, |key| self.state(key, direction));
        // Without a Response the peer asks less and less often; refused by its Confirm, it would start over at once.
        if !state.is_querying() && !state.is_responding() && self.is_source_full(subject.nli.interface) {
            return;
        }
        // A new association needs a Confirm, whatever the policy (§5.1).
        let offers = self.answer(message, subject) == Answer::Offer;
        match (key, state, self.config.installation) {
            // GIST-5.8.1.3-04: what our own downstream exchange installed is not touched by an upstream one, which
            // is answered all the same. What our own upstream exchange installed gives way to a downstream one.
            (Some(key), state, Installation::Immediate)
                if state.is_querying() && direction == Direction::Upstream && !offers =>
            {
                if self.replace_upstream(key, a, subject, false) {
                    self.rx_query_unconfirmed(key, a, message, subject, payload);
                }
            }
            (_, state, _) if state.is_querying() => self.respond(None, a, message, subject, true, payload),
            (Some(key), state, Installation::Immediate) if state.is_responding() && !offers => {
                self.rx_query_unconfirmed(key, a, message, subject, payload);
            }
            (Some(key), state, _) if state.is_responding() => {
                self.rx_query_confirmed(key, a, message, subject, payload);
            }
            (_, _, Installation::Delayed) => self.respond(None, a, message, subject, true, payload),
            (key, _, installation) => {
                let key = match key {
                    Some(key) => key,
                    None => match self.create(&subject.mri, subject.session, subject.nslp) {
                        Ok(key) => key,
                        Err(_) => return,
                    },
                };
                if !self.install(key, direction, a, subject, false) {
                    return;
                }
                if installation == Installation::Immediate && !offers {
                    self.rx_query_unconfirmed(key, a, message, subject, payload);
                } else {
                    self.rx_query_confirmed(key, a, message, subject, payload);
                }
            }
        }
    }

    /// `rx_Confirm`: to the machine, or to a new one if it proves that we answered its Query (rule 3,
    /// GIST-6.1-06), or refused where state would have been made before (GIST-6.1-05).
    pub(super) fn rx_confirm(&mut self, a: &Arrival<'_>, message: &Message<'_>, subject: &Subject<'_>) {
        let direction = subject.mri.direction().inverted();
        let key = self.find(&subject.mri, subject.session, subject.nslp);
        let state = key.map_or(State::None, |key| self.state(key, direction));
        match (key, state) {
            (Some(key), state) if state.is_responding() => self.rx_confirm_of(key, a, message, subject),
            // See `accept_query`: the downstream exchange counts; the other one was answered for politeness.
            (Some(key), state) if state.is_querying() && direction == Direction::Upstream => {
                let Some(query) = self.confirmed(a, message, subject) else { return };
                if self.replace_upstream(key, &query, subject, true) {
                    self.birth_confirmed(key, a, message, subject);
                }
            }
            (_, state) if state.is_querying() => {
                self.counters.unexpected += 1;
                dropped!(a, subject, "Confirm in a querying direction");
            }
            _ if self.config.installation != Installation::Delayed || message.responder_cookie.is_none() => {
                self.refuse_without_state(a);
            }
            (key, _) => {
                let Some(query) = self.confirmed(a, message, subject) else {
                    return; // GIST-8.5-06, GIST-5.7.1-15: no state
                };
                let new = key.map_or_else(|| self.create(&subject.mri, subject.session, subject.nslp), Ok);
                let Ok(key) = new else { return };
                if self.install(key, direction, &query, subject, true) {
                    self.birth_confirmed(key, a, message, subject);
                }
            }
        }
    }

    /// The Confirm as if it had come by the interface that its Query came by, which the cookie remembers: that
    /// is the one the flow takes (RFC 5971 §8.5). `None`: the cookie is not ours for this very message.
    /// GIST-8.5-09: silent unless configured.
    pub(super) fn confirmed<'a>(
        &mut self,
        a: &Arrival<'a>,
        message: &Message<'_>,
        subject: &Subject<'_>,
    ) -> Option<Arrival<'a>> {
        let cookie = message.responder_cookie.unwrap_or_default();
        // GIST-5.7.1-14: the proposal must be ours, unchanged, and the cookie knows whether we made one.
        let offered = message.stack_proposal.is_some() && a.association != NONE;
        let same = !offered || message.stack_proposal.is_some_and(|p| self.is_our_offer(&p));
        if same && let Some(ifindex) = self.check_responder_cookie(&subject.bound(), cookie, offered) {
            return Some(Arrival { ifindex, ..*a });
        }
        if !same {
            self.counters.proposals_changed += 1; // GIST-5.7.1-17
            tracing::debug!(session = %subject.session, peer = %a.src, reason = "Stack-Proposal was changed", "Confirm dropped");
            return None;
        }
        // GIST-5.5-01: our Response asked for an association, so the Confirm belongs there.
        if a.association == NONE
            && self.associations.enabled()
            && self.check_responder_cookie(&subject.bound(), cookie, true).is_some()
        {
            self.refuse_with(a, GistError::INCORRECT_ENCAPSULATION, None);
            return None;
        }
        self.counters.cookies_invalid += 1;
        dropped!(a, subject, "invalid Responder-Cookie");
        if self.config.cookie_errors {
            let info = object_value_info(a.octets, ObjectType::RESPONDER_COOKIE, 4);
            self.refuse_with(a, GistError::INVALID_COOKIE, info);
        }
        None
    }

    /// `rx_Data`: the delivery checks in the order of RFC 5971 §4.3.2 (GIST-4.3.2-11), then the machine.
    pub(super) fn rx_data(&mut self, a: &Arrival<'_>, message: &Message<'_>, subject: &Subject<'_>) {
        let Some(data) = message.nslp_data else { return }; // the grammar demands it
        // GIST-4.1.1-02
        if self.associations.is_blocked(subject.nslp) {
            self.counters.data_blocked += 1;
            dropped!(a, subject, "application is blocked");
            return;
        }
        // Check 1: explicitly routed or without state: delivered, and marked. GIST-4.3.2-12, GIST-7.1.4-06.
        let q_mode = a.encapsulation == Encapsulation::QMode;
        if message.header.e || q_mode && self.config.stateless_data {
            self.counters.data_unchecked += 1;
            return self.deliver_unchecked(a, message, subject, data); // GIST-6.1-08
        }
        // Check 2 is for associations. Check 3 (GIST-4.3.2-14):
        let direction = subject.mri.direction().inverted();
        let key = self.find(&subject.mri, subject.session, subject.nslp);
        let state = key.map_or(State::None, |key| self.state(key, direction));
        match (key, state) {
            // Querying-SM rule 7 (GIST-6.2-11, GIST-6.2-14), Responding-SM rule 4 (GIST-6.3-15, GIST-6.3-20).
            (Some(key), state) if state.is_established() && !q_mode => {
                if let Some(distance) = distance(&subject.mri, &subject.nli, a.ttl)
                    && self.is_present_peer(a, subject, key, direction)
                    && let Some(record) = self.records.get_mut(key)
                {
                    record.half_mut(direction).distance = distance;
                }
                self.counters.data_received += 1;
                self.deliver(a, message, subject, data, Some((key, direction)));
                self.restart_inactivity(key, direction);
            }
            // Querying-SM, Awaiting Response: not to be expected; the Query is on its way. GIST-6.2-20.
            (_, State::Resolving | State::AwaitingResponse) if !q_mode => {
                self.counters.data_early += 1;
                dropped!(a, subject, "no Response received yet");
            }
            // Node-SM rule 4 (GIST-6.1-07), Responding-SM rule 6 (GIST-6.3-08), GIST-4.4.6-06.
            _ => {
                self.counters.data_without_state += 1;
                dropped!(a, subject, "no routing state");
                self.refuse_without_state(a);
            }
        }
    }

    /// Hands a payload to its application that was looked up in routing state, if there is any: `state`.
    /// GIST-3.7-02, GIST-4.3.2-09, GIST-4.3.2-10, GIST-4.3.3-04, GIST-B.2-04, GIST-B.2-05.
    pub(super) fn deliver(
        &mut self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
        data: &[u8],
        state: Option<(Key, Direction)>,
    ) {
        let sender = self.sender(a, message, subject, state);
        self.hand_over(a, message, subject, data, Delivery { state, sender, unchecked: false, check: None });
    }

    /// The same for what was not, explicitly routed or without state: state that there is only tells who sends.
    pub(super) fn deliver_unchecked(
        &mut self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
        data: &[u8],
    ) {
        let mut sender = Sender::Unknown;
        if message.header.e && a.encapsulation != Encapsulation::QMode {
            let direction = subject.mri.direction().inverted();
            let key = self.find(&subject.mri, subject.session, subject.nslp);
            sender = self.sender(a, message, subject, key.map(|key| (key, direction)));
        }
        self.hand_over(
            a,
            message,
            subject,
            data,
            Delivery { state: None, sender, unchecked: true, check: None },
        );
    }

    fn hand_over(
        &mut self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
        data: &[u8],
        delivery: Delivery,
    ) {
        // The peer's properties in the routing state are those of the sender only if the sender is that peer.
        let half = delivery.state.filter(|_| matches!(delivery.sender, Sender::Present(_)));
        let half = half.and_then(|(key, direction)| Some(*self.records.get(key)?.half(direction)));
        let sender = subject.nli.interface;
        let (src, dst) = (subject.mri.src(), subject.mri.dst());
        let (first, last) = match subject.mri.direction() {
            Direction::Downstream => (src, dst),
            Direction::Upstream => (dst, src),
        };
        let measured = distance(&subject.mri, &subject.nli, a.ttl).unwrap_or(0);
        self.out.receive(RecvMessage {
            data,
            nslp: subject.nslp,
            session: subject.session,
            mri: subject.mri,
            check: delivery.check,
            state: delivery.state.map(|(key, _)| StateHandle(key.to_u64())),
            sii: delivery.sender.sii(),
            peer: self.identity_of(a.association),
            attributes: TransferAttributes {
                reliable: a.association != NONE,
                stateless: a.encapsulation == Encapsulation::QMode,
                security: self.security_of(a.association),
            },
            validation: AddressValidation {
                first_or_last_hop: sender == first,
                return_routable: half.is_some_and(|h| h.has(PROVEN) || h.state.is_querying()),
                unchecked_route: delivery.unchecked,
            },
            ip_ttl: a.ttl,
            ip_distance: half.map_or(measured, |half| half.distance),
            hops: message.header.hops - 1, // 0 was refused on reception
            ifindex: a.ifindex,
            at_flow_end: self.interfaces.is_local(last),
        });
    }

    /// The same for a Query, whose state, if any, is that of its direction.
    pub(super) fn deliver_query(
        &mut self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
        data: &[u8],
        check: Option<CheckId>,
    ) {
        let direction = subject.mri.direction().inverted();
        let key = self.find(&subject.mri, subject.session, subject.nslp);
        let state = key.filter(|key| self.state(*key, direction).is_established());
        let state = state.map(|key| (key, direction));
        let sender = self.sender(a, message, subject, state);
        self.hand_over(a, message, subject, data, Delivery { state, sender, unchecked: false, check });
    }
}

impl<'a> Subject<'a> {
    /// What a Responder-Cookie is bound to.
    pub(super) const fn bound(&'a self) -> super::cookies::Bound<'a> {
        super::cookies::Bound {
            nli: &self.nli,
            mri: &self.mri,
            session: self.session,
            nslp: self.nslp,
            foreign: self.foreign.as_ref(),
        }
    }
}
