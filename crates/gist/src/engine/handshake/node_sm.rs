//! Node-SM (RFC 5971 §6.1): messages without a state machine, and selection of the state machine of a message.

use signalbox_core::service::{AddressValidation, CheckId, RecvMessage, StateHandle, TransferAttributes};
use signalbox_core::shares::source;
use signalbox_core::slab::Key;
use signalbox_core::{Direction, invariant};

use crate::engine::Gist;
use crate::engine::association::Answer;
use crate::engine::config::Installation;
use crate::engine::io::PeeringPolicy;
use crate::engine::output::distance;
use crate::engine::receive::{Arrival, Subject};
use crate::engine::routing::{Half, NONE, PROVEN, State};
use crate::engine::sender::Sender;
use crate::wire::{Encapsulation, GistError, Message, ObjectType, object_value_info};

/// Properties of a message that is delivered to a signaling application (RFC 5971 B.2).
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
    /// Rule 1, `rx_Query`: the application decides whether to peer, by its policy or later by `Request::Peering`.
    /// GIST-4.3.1-05, GIST-4.3.2-08, GIST-B.2-01.
    pub(in crate::engine) fn rx_query(
        &mut self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
    ) {
        if a.association == NONE
            && !self.handshakes.queries.allow(self.now, &(source(subject.nli.interface), a.ifindex))
        {
            self.counters.queries_limited += 1;
            dropped!(a, subject, "rate limit of Queries per source");
            return;
        }
        self.counters.queries_received += 1;
        match self.applications.registration(subject.nslp).map(|r| r.policy) {
            Some(PeeringPolicy::Ask) => self.ask_application(a, message, subject),
            // GIST-4.3.2-01: a node that is addressed must peer.
            Some(PeeringPolicy::Never) if !a.local => self.forward(a, &message.header, None),
            _ => {
                if let Some(data) = message.nslp_data {
                    self.deliver_query(a, message, subject, data, None);
                }
                self.accept_query(a, message, subject, None);
            }
        }
    }

    /// The application peers. The node installs state (policies 1 and 2, GIST-6.1-01), or sends a Response without state
    /// (policy 3, GIST-6.1-02), or gives the Query to the state machine of its routing state.
    /// GIST-4.3.2-02, GIST-4.4.1-01.
    pub(in crate::engine) fn accept_query(
        &mut self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
        payload: Option<&[u8]>,
    ) {
        // The upstream peer sends downstream Queries.
        let direction = subject.mri.direction().inverted();
        let key = self.records.find(&subject.mri, subject.session, subject.nslp);
        let state = key.map_or(State::None, |key| self.records.state(key, direction));
        // Without a Response the Queries of the peer become less frequent. If its Confirm were refused, it would start again
        // at once.
        if !state.is_querying() && !state.is_responding() && self.is_source_full(subject.nli.interface) {
            return;
        }
        // A new association needs a Confirm, whatever the policy (§5.1).
        let offers = self.answer(message, subject) == Answer::Offer;
        match (key, state, self.config.installation) {
            // GIST-5.8.1.3-04: state that a downstream exchange of this node installed is not changed by an upstream
            // Query, which is still answered. A downstream Query replaces state of an upstream exchange of this node.
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

    /// `rx_Confirm`: to the state machine, or to a new one if the cookie proves that this node answered the Query (rule 3,
    /// GIST-6.1-06). It is refused if the Query would have installed state (GIST-6.1-05).
    pub(in crate::engine) fn rx_confirm(
        &mut self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
    ) {
        let direction = subject.mri.direction().inverted();
        let key = self.records.find(&subject.mri, subject.session, subject.nslp);
        let state = key.map_or(State::None, |key| self.records.state(key, direction));
        match (key, state) {
            (Some(key), state) if state.is_responding() => self.rx_confirm_of(key, a, message, subject),
            // See `accept_query`: the downstream exchange replaces the upstream exchange.
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

    /// Verifies the Responder-Cookie of a Confirm (RFC 5971 §8.5). Returns the arrival with the interface of the Query, which
    /// is in the cookie: the flow uses that interface. `None`: the cookie is not valid for this message.
    /// GIST-8.5-09: no Error is sent unless it is configured.
    pub(in crate::engine) fn confirmed<'a>(
        &mut self,
        a: &Arrival<'a>,
        message: &Message<'_>,
        subject: &Subject<'_>,
    ) -> Option<Arrival<'a>> {
        let cookie = message.responder_cookie.unwrap_or_default();
        // GIST-5.7.1-14: the proposal must be that of the Response, and the cookie is bound to it.
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
        // The Response proposed an association. The Querying node need not open one: it may hold routing state already, or
        // its policy may be datagrams (§5.5: D-mode "if no MA has been set up"). GIST-5.5-01: over the association if there
        // is one.
        if a.association == NONE
            && self.associations.enabled()
            && let Some(ifindex) = self.check_responder_cookie(&subject.bound(), cookie, true)
        {
            if self.associations.is_connected(&self.config.identity, &subject.nli) {
                self.refuse_with(a, GistError::INCORRECT_ENCAPSULATION, None);
                return None;
            }
            return Some(Arrival { ifindex, ..*a });
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
    pub(in crate::engine) fn rx_data(
        &mut self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
    ) {
        let Some(data) = message.nslp_data else { return }; // the grammar requires it
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
        let key = self.records.find(&subject.mri, subject.session, subject.nslp);
        let state = key.map_or(State::None, |key| self.records.state(key, direction));
        match (key, state) {
            // Querying-SM rule 7 (GIST-6.2-11, GIST-6.2-14), Responding-SM rule 4 (GIST-6.3-15, GIST-6.3-20).
            (Some(key), state) if state.is_established() && !q_mode => {
                let state = Some((key, direction));
                let sender = self.sender(a, message, subject, state);
                if let Some(distance) = distance(&subject.mri, &subject.nli, a.ttl)
                    && matches!(sender, Sender::Present(_))
                    && let Some(record) = invariant!(self.records.get_mut(key), "Data of a session finds it")
                {
                    record.half_mut(direction).set_distance(distance);
                }
                self.counters.data_received += 1;
                let delivery = Delivery { state, sender, unchecked: false, check: None };
                self.indicate(a, message, subject, data, delivery);
                self.restart_inactivity(key, direction);
            }
            // Querying-SM, Awaiting Response: Data is not expected before the Response. GIST-6.2-20.
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

    /// Delivers a payload to its application. `state` is the routing state of the message, if there is any.
    /// GIST-3.7-02, GIST-4.3.2-09, GIST-4.3.2-10, GIST-4.3.3-04, GIST-B.2-04, GIST-B.2-05.
    pub(in crate::engine) fn deliver(
        &mut self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
        data: &[u8],
        state: Option<(Key, Direction)>,
    ) {
        let sender = self.sender(a, message, subject, state);
        self.indicate(a, message, subject, data, Delivery { state, sender, unchecked: false, check: None });
    }

    /// Delivers a payload that is explicitly routed or without state. Routing state is used only to find the sender.
    pub(in crate::engine) fn deliver_unchecked(
        &mut self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
        data: &[u8],
    ) {
        let mut sender = Sender::Unknown;
        if message.header.e && a.encapsulation != Encapsulation::QMode {
            let direction = subject.mri.direction().inverted();
            let key = self.records.find(&subject.mri, subject.session, subject.nslp);
            sender = self.sender(a, message, subject, key.map(|key| (key, direction)));
        }
        self.indicate(
            a,
            message,
            subject,
            data,
            Delivery { state: None, sender, unchecked: true, check: None },
        );
    }

    fn indicate(
        &mut self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
        data: &[u8],
        delivery: Delivery,
    ) {
        // The peer's properties in the routing state are those of the sender only if the sender is that peer.
        let half = delivery.state.filter(|_| matches!(delivery.sender, Sender::Present(_)));
        let half = half.and_then(|(key, direction)| {
            let record =
                invariant!(self.records.get(key), "a session stands while its message is delivered")?;
            Some(*record.half(direction))
        });
        let sender = subject.nli.interface;
        // Who answers a Query names any address. Over an association it is that of the node at the other end.
        let over = a.association != NONE;
        let proven = half.is_some_and(|half| half.has(PROVEN) || half.state.is_querying() && over);
        let by_link = half.is_some_and(|half| half.state.is_querying() && self.is_by_link(&half));
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
            peer_address: (proven || by_link).then_some(sender),
            attributes: TransferAttributes {
                reliable: a.association != NONE,
                stateless: a.encapsulation == Encapsulation::QMode,
                security: self.security_of(a.association),
            },
            validation: AddressValidation {
                first_or_last_hop: sender == first,
                return_routable: proven,
                unchecked_route: delivery.unchecked,
            },
            ip_ttl: a.ttl,
            ip_distance: half.map_or(measured, |half| half.distance_or_zero()),
            hops: message.header.hops - 1, // 0 was refused on reception
            ifindex: a.ifindex,
            at_flow_end: self.interfaces.is_local(last),
        });
    }

    /// Whether the route to the address of the peer has the interface of its flow.
    fn is_by_link(&self, half: &Half) -> bool {
        let egress =
            invariant!(self.peers.egress(half.egress), "a querying direction with a peer has an egress");
        let egress = egress.map(|egress| egress.ifindex);
        egress.is_some() && egress == self.peers.route(half.peer)
    }

    /// Delivers the payload of a Query, with the established state of its direction, if there is any.
    pub(in crate::engine) fn deliver_query(
        &mut self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
        data: &[u8],
        check: Option<CheckId>,
    ) {
        let direction = subject.mri.direction().inverted();
        let key = self.records.find(&subject.mri, subject.session, subject.nslp);
        let state = key.filter(|key| self.records.state(*key, direction).is_established());
        let state = state.map(|key| (key, direction));
        let sender = self.sender(a, message, subject, state);
        self.indicate(a, message, subject, data, Delivery { state, sender, unchecked: false, check });
    }
}

impl<'a> Subject<'a> {
    /// The values that a Responder-Cookie is bound to (RFC 5971 §8.5).
    pub(in crate::engine) const fn bound(&'a self) -> super::cookies::Bound<'a> {
        super::cookies::Bound {
            nli: &self.nli,
            mri: &self.mri,
            session: self.session,
            nslp: self.nslp,
            foreign: self.foreign.as_ref(),
        }
    }
}
