//! The Responding-Node state machine (RFC 5971 §6.3): one function per event, named by its rule.

use core::net::{IpAddr, SocketAddr};

use signalbox_core::service::{NetworkEvent, SendError};
use signalbox_core::shares::{fair, is_scarce, source};
use signalbox_core::slab::Key;
use signalbox_core::stamp::Stamp;
use signalbox_core::{Direction, IfIndex, invariant};

use crate::engine::Gist;
use crate::engine::association::{Answer, Owner, Stacks, configuration};
use crate::engine::interfaces::is_anycast;
use crate::engine::outbox::Envelope;
use crate::engine::output::{distance, limit, nli, nli_ttl, normal, room_for_answer};
use crate::engine::receive::{Arrival, Subject};
use crate::engine::routing::{
    EXPIRE, Egress, Half, NO_REFRESH, NONE, PROVEN, RETRY, State, StoredResponse, TENTATIVE, side,
};
use crate::wire::{MAGIC, Message, MessageType};

impl Gist {
    /// The source address of an answer: the destination of the message, or an address of its interface.
    fn own_address(&self, a: &Arrival<'_>, v6: bool) -> Option<IpAddr> {
        let addressed = Some(a.dst.ip())
            .filter(|ip| a.local && ip.is_ipv6() == v6 && !ip.is_loopback() && !is_anycast(*ip));
        addressed.or_else(|| self.interfaces.address(a.ifindex, v6))
    }

    /// Whether a source has reached its limit of routing state (RFC 5971 §8.4), which is counted. The last quarter of the table
    /// is for sources that hold little of it.
    pub(in crate::engine) fn is_source_full(&mut self, address: IpAddr) -> bool {
        let max = self.config.max_sessions_per_source;
        let most = if is_scarce(self.records.limit(), self.records.len()) {
            max.min(fair(self.records.limit()))
        } else {
            max
        };
        let full = max > 0 && self.peers.of_source(address) >= most;
        self.counters.source_full += u64::from(full);
        full
    }

    /// Installs the sender of a Query or Confirm as the peer of a direction (RFC 5971 §4.4.1). False if a table is full or
    /// this node has no address for the peer; a new record is then removed. GIST-4.2.1-01, GIST-4.4.1-14.
    pub(in crate::engine) fn install(
        &mut self,
        key: Key,
        direction: Direction,
        a: &Arrival<'_>,
        subject: &Subject<'_>,
        proven: bool,
    ) -> bool {
        let Some(address) = self.own_address(a, subject.nli.interface.is_ipv6()) else {
            self.counters.transmit_failed += 1;
            dropped!(a, subject, "no address of this node for the peer");
            self.settle(key);
            return false;
        };
        let before = self.records.get(key).and_then(|r| self.peers.peer(r.half(direction).peer));
        let moves = before.is_none_or(|peer| source(peer.address.ip()) != source(subject.nli.interface));
        if moves && self.is_source_full(subject.nli.interface) {
            self.settle(key);
            return false;
        }
        let port = a.src.port();
        let Some(record) =
            invariant!(self.records.get_mut(key), "a peer is installed in a session that stands")
        else {
            return false;
        };
        let half = record.half_mut(direction);
        let mtu = self.interfaces.mtu(a.ifindex);
        let egress = Egress { ifindex: a.ifindex, address, gateway: None, mtu };
        let ids = (self.peers.intern(&subject.nli, port, a.ifindex), self.peers.intern_egress(egress));
        let (Ok(peer), Ok(egress)) = ids else {
            self.counters.peers_full += 1;
            dropped!(a, subject, "table of peers full");
            if let Ok(peer) = ids.0 {
                self.peers.release(peer);
            }
            if let Ok(egress) = ids.1 {
                self.peers.release_egress(egress);
            }
            if half.state == State::None {
                self.settle(key);
            }
            return false;
        };
        let (old_peer, old_egress, state) = (half.peer, half.egress, half.state);
        half.peer = peer;
        half.egress = egress;
        half.set(PROVEN, proven);
        self.peers.set_own_address(peer, address);
        self.peers.release_egress(old_egress);
        if old_peer == peer {
            self.peers.release(peer); // the direction has a reference already
        } else if state.is_established() {
            half.set(TENTATIVE, false);
            self.notify_good(key, direction, old_peer, true);
        } else {
            self.peers.retire(old_peer, Stamp::after(self.now + self.config.sii_retention));
        }
        true
    }

    /// Whether a Query or Confirm came from the peer in the routing state, by the same interface, and the answer has the same
    /// source address as before.
    fn is_from_peer(&self, key: Key, direction: Direction, a: &Arrival<'_>, subject: &Subject<'_>) -> bool {
        let Some(record) = invariant!(self.records.get(key), "a peer is compared with that of a session")
        else {
            return false;
        };
        let half = record.half(direction);
        let same_peer = invariant!(self.peers.peer(half.peer), "a peer was installed before it is compared")
            .is_some_and(|p| p.matches(&subject.nli, a.src.port(), a.ifindex));
        let own_address = self.own_address(a, subject.nli.interface.is_ipv6());
        same_peer && self.peers.egress(half.egress).map(|e| e.address) == own_address
    }

    /// Whether a Query shows a route change upstream: it has another peer, another interface or another number of IP hops
    /// than before (RFC 5971 §7.1.2).
    fn is_rerouted(&self, key: Key, direction: Direction, a: &Arrival<'_>, subject: &Subject<'_>) -> bool {
        let Some(record) = invariant!(self.records.get(key), "a Query is compared with its session") else {
            return false;
        };
        let half = record.half(direction);
        let peer = invariant!(self.peers.peer(half.peer), "a responding direction has a peer");
        let Some(peer) = peer else { return false };
        let nli = &subject.nli;
        let distance = distance(&subject.mri, nli, a.ttl);
        *peer.identity != *nli.peer_identity
            || peer.address.ip() != nli.interface
            || peer.ifindex != a.ifindex
            || distance.is_some_and(|distance| distance != half.distance_or_zero())
    }

    /// Stores the distance that a message shows (RFC 5971 §5.2.2).
    fn note_distance(&mut self, key: Key, direction: Direction, a: &Arrival<'_>, subject: &Subject<'_>) {
        if let Some(distance) = distance(&subject.mri, &subject.nli, a.ttl)
            && let Some(record) = invariant!(self.records.get_mut(key), "a distance is one of a session")
        {
            record.half_mut(direction).set_distance(distance);
        }
    }

    /// Rule 5, `rx_Query` when no Confirm is required: Response with R=0, `Expire_RNode` (re)starts; Established.
    /// GIST-6.3-04, GIST-6.3-12, GIST-6.3-26. A changed NLI or interface is a change of the upstream peer
    /// (GIST-7.1.2-04).
    pub(in crate::engine) fn rx_query_unconfirmed(
        &mut self,
        key: Key,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
        payload: Option<&[u8]>,
    ) {
        let direction = subject.mri.direction().inverted();
        if !self.is_from_peer(key, direction, a, subject) && !self.install(key, direction, a, subject, false)
        {
            return;
        }
        self.note_distance(key, direction, a, subject);
        self.respond(Some(key), a, message, subject, false, payload);
        match self.answer(message, subject) {
            Answer::Over(association) => self.settle_mode(key, direction, association),
            _ => self.settle_mode(key, direction, NONE),
        }
        self.note_translation(key, direction, subject.foreign, true);
        self.establish(key, direction);
        self.send_queued(key, direction);
        self.settle(key);
    }

    /// Rule 1, `rx_Query` when a Confirm is required: Response with R=1, `No_Confirm` (re)starts at its initial
    /// value; Awaiting Confirm, or Awaiting Refresh if state was there. GIST-6.3-03, GIST-6.3-06,
    /// GIST-6.3-13, GIST-6.3-19, GIST-6.3-27. The peer that state points to changes with the Confirm.
    pub(in crate::engine) fn rx_query_confirmed(
        &mut self,
        key: Key,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
        payload: Option<&[u8]>,
    ) {
        let direction = subject.mri.direction().inverted();
        let (now, t1) = (self.now, self.config.t1);
        if self.is_rerouted(key, direction, a, subject) {
            self.make_tentative(key, direction);
        }
        let Some(record) = invariant!(self.records.get_mut(key), "a Query that is answered has its session")
        else {
            return;
        };
        let half = record.half_mut(direction);
        let from = half.state;
        half.state = match from {
            State::RespondingEstablished | State::RespondingAwaitingRefresh => {
                State::RespondingAwaitingRefresh
            }
            _ => State::RespondingAwaitingConfirm,
        };
        half.attempts = 1;
        half.start_retry(now, t1);
        transition!(self.peers, record, direction, from, "Query");
        self.respond(Some(key), a, message, subject, true, payload);
        self.arm(key);
    }

    /// Sends a Response (RFC 5971 §5.1): the inverted MRI, session and cookie of the Query, the NLI of this node, and a
    /// Responder-Cookie if it requests a Confirm. With a record that waits for the Confirm, it is stored for
    /// retransmissions. GIST-5.1-11, GIST-5.1-12, GIST-5.3.1-05, GIST-5.3.1-06, GIST-8.4-01.
    pub(in crate::engine) fn respond(
        &mut self,
        key: Option<Key>,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
        confirm: bool,
        payload: Option<&[u8]>,
    ) {
        let Some(own) = self.own_address(a, subject.nli.interface.is_ipv6()) else {
            self.counters.transmit_failed += 1;
            dropped!(a, subject, "no address of this node for the peer");
            return;
        };
        let answer = self.answer(message, subject);
        let confirm = confirm || answer == Answer::Offer;
        let (plain, carrying);
        let offers = answer == Answer::Offer;
        let cookie: &[u8] = if let Some(foreign) = &subject.foreign {
            carrying = self.translated_cookie(&subject.bound(), foreign, a.ifindex, offers);
            &carrying
        } else {
            plain = self.responder_cookie(&subject.bound(), a.ifindex, offers);
            &plain
        };
        let direction = subject.mri.direction().inverted();
        let measured = distance(&subject.mri, &subject.nli, a.ttl).unwrap_or(0);
        let validity = self.validity();
        let peer = key.is_some_and(|key| self.records.state(key, direction).is_established());
        let may_send = matches!(answer, Answer::Over(_))
            || match key.filter(|_| peer) {
                Some(key) => self.may_send_for(key),
                None => {
                    let cause = self.cause_of_answer((a.src.ip(), a.ifindex), subject.mri.src());
                    self.may_send(cause)
                }
            };
        let ttl = self.config.ip_ttl;
        let stacks = Stacks::offered(&self.associations);
        let (options, count) = stacks.response_options();
        let mut response = Message::new(MessageType::RESPONSE, subject.nslp, self.config.hops);
        response.header.r = confirm;
        // GIST-7.2.3-04, GIST-7.2.3-05: unchanged, before all other objects.
        response.nat_traversal = message.nat_traversal;
        response.mri = message.mri.map(|mri| mri.inverted());
        response.session = Some(subject.session);
        response.nli = Some(nli(&self.config, validity, own, nli_ttl(direction, ttl, measured)));
        response.query_cookie = message.query_cookie;
        response.responder_cookie = confirm.then_some(cookie);
        response.nslp_data = payload.filter(|p| !p.is_empty());
        if answer == Answer::Offer {
            let options = options.get(..count).unwrap_or_default();
            response.stack_proposal = Some(stacks.proposal());
            response.stack_configuration = Some(configuration(self.associations.hold_time(), options));
        }
        let to = SocketAddr::new(subject.nli.interface, a.src.port());
        let envelope = Envelope { unproved: !peer, ..normal(&self.config, own, to, ttl) };
        if !may_send {
            return; // the peer retransmits its Query
        }
        // GIST-5.1-10, GIST-4.4.3-05
        if let Answer::Over(association) = answer {
            let tools = (&mut self.out, &mut self.rng, &mut self.counters);
            let owner = Owner::Gist;
            match self.associations.send(tools, self.now, association, &response, &owner) {
                Ok(()) => self.counters.responses_sent += 1,
                Err(_) => self.counters.transmit_failed += 1,
            }
            return;
        }
        let limit = limit(&self.config, self.interfaces.mtu(a.ifindex));
        let limit = if peer { limit } else { limit.min(room_for_answer(a)) };
        let mut sent = self.out.compose(envelope, &[], &response, limit);
        if sent.is_err() && response.nslp_data.is_some() {
            // The payload of the application is too large; the handshake continues without it.
            self.counters.requests_refused += 1;
            response.nslp_data = None;
            sent = self.out.compose(envelope, &[], &response, limit);
        }
        let Ok(payload) = sent else {
            self.counters.transmit_failed += 1;
            tracing::debug!(session = %subject.session, peer = %to, reason = "not composed", "Response dropped");
            return;
        };
        self.counters.responses_sent += 1;
        if let Some(key) = key.filter(|_| confirm) {
            let octets = self.out.octets(payload).into();
            if let Some(kept) = self.records.pending(key).and_then(|p| p.response.get_mut(side(direction))) {
                *kept = Some(Box::new(StoredResponse { octets, src: envelope.src, dst: envelope.dst }));
            }
        }
    }

    /// Established: `Expire_RNode` (re)starts, and the application is notified of new state (RFC 5971 §6.3).
    fn establish(&mut self, key: Key, direction: Direction) {
        let (now, validity) = (self.now, self.validity());
        let Some(record) =
            invariant!(self.records.get_mut(key), "a session stands when its handshake is complete")
        else {
            return;
        };
        let half = record.half_mut(direction);
        let from = half.state;
        let new = !from.is_established();
        let tentative = half.has(TENTATIVE);
        half.state = State::RespondingEstablished;
        half.set(RETRY, false);
        half.set(TENTATIVE, false);
        half.start_expire(now, validity);
        if new {
            half.since = Stamp::of(now);
            self.counters.installed += 1;
            record.half_mut(direction.inverted()).set(NO_REFRESH, false);
        }
        transition!(self.peers, record, direction, from, "handshake complete");
        if new || tentative {
            self.notify_good(key, direction, NONE, false);
        }
        self.pass_refresh_on(key, direction.inverted());
        if let Some(record) =
            invariant!(self.records.get_mut(key), "the other direction does not end the session")
            && let Some(kept) = record.pending.as_mut().and_then(|p| p.response.get_mut(side(direction)))
        {
            *kept = None;
        }
    }

    /// Rule 2, `rx_Confirm` at birth (policy 3): payload up, `Expire_RNode` starts; Established. GIST-6.3-05,
    /// GIST-4.4.6-03, GIST-4.4.1-16.
    pub(in crate::engine) fn birth_confirmed(
        &mut self,
        key: Key,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
    ) {
        let direction = subject.mri.direction().inverted();
        self.counters.confirms_received += 1;
        self.settle_mode(key, direction, a.association);
        self.note_translation(key, direction, subject.foreign, true);
        self.note_distance(key, direction, a, subject);
        self.establish(key, direction);
        if let Some(data) = message.nslp_data {
            self.deliver(a, message, subject, data, Some((key, direction)));
        }
        self.send_queued(key, direction);
        self.settle(key);
    }

    /// `rx_Confirm` with a state machine. Established: rule 10, a duplicate, ignored without an answer (GIST-6.3-14).
    /// Awaiting Confirm or Awaiting Refresh: rule 8 (GIST-6.3-09, GIST-6.3-22); a Confirm that fails the
    /// cookie check removes the state (GIST-5.7.1-16).
    pub(in crate::engine) fn rx_confirm_of(
        &mut self,
        key: Key,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
    ) {
        let direction = subject.mri.direction().inverted();
        // GIST-5972-13: a Confirm over another association than that of the session is not a duplicate.
        let other_association =
            a.association != NONE && self.association_of(key, direction) != Some(a.association);
        if self.records.state(key, direction) == State::RespondingEstablished && !other_association {
            self.counters.confirms_duplicate += 1;
            dropped!(a, subject, "state is confirmed already");
            return;
        }
        let Some(query) = self.confirmed(a, message, subject) else {
            return self.end_responding(key, direction);
        };
        if self.is_from_peer(key, direction, &query, subject) {
            if let Some(record) =
                invariant!(self.records.get_mut(key), "a Confirm that is valid has its session")
            {
                record.half_mut(direction).set(PROVEN, true);
            }
        } else if !self.install(key, direction, &query, subject, true) {
            return;
        }
        self.counters.confirms_received += 1;
        self.settle_mode(key, direction, a.association);
        self.note_translation(key, direction, subject.foreign, true);
        self.note_distance(key, direction, a, subject);
        self.establish(key, direction);
        if let Some(data) = message.nslp_data {
            self.deliver(a, message, subject, data, Some((key, direction)));
        }
        self.send_queued(key, direction);
        self.settle(key);
    }

    /// Sends the messages that were queued for the handshake.
    fn send_queued(&mut self, key: Key, direction: Direction) {
        if self.send_stored(key, direction) {
            // GIST-4.3.3-13: the Confirm did not come over an association, which they need.
            self.fail_queue(key, direction, SendError::Refused);
        }
    }

    /// Rule 9, `to_No_Confirm`: a retransmission of the Response, with the backoff of Queries, or the end. GIST-6.3-10,
    /// GIST-6.3-11, GIST-6.3-23, GIST-6.3-24, GIST-5.3.3-17.
    fn timeout_no_confirm(&mut self, key: Key, direction: Direction) {
        let now = self.now;
        let attempts = self.records.get(key).map_or(0, |r| r.half(direction).attempts);
        if attempts >= self.config.attempts {
            self.counters.no_confirm += 1;
            return self.end_responding(key, direction);
        }
        let kept =
            self.records.get(key).and_then(|r| r.pending.as_ref()?.response.get(side(direction))?.as_ref());
        let to = kept.map(|kept| kept.dst.ip());
        // Repeated Responses to strangers together have the part of one interface.
        let party = self.records.get(key).map(|record| record.flow.mri(direction).src());
        let cause = to.zip(party).map(|(to, party)| self.cause_of_answer((to, IfIndex::NONE), party));
        let may_send = cause.is_some_and(|cause| self.may_send(cause));
        let backoff = self.config.t1.saturating_mul(1 << u32::from(attempts).min(31)).min(self.config.t2);
        let Some(record) =
            invariant!(self.records.get_mut(key), "a session stands until its Confirm is late")
        else {
            return;
        };
        let half = record.half_mut(direction);
        half.attempts += 1;
        half.start_retry(now, backoff);
        let kept = record.pending.as_ref().and_then(|p| p.response.get(side(direction))?.as_ref());
        if let Some(kept) = kept.filter(|_| may_send) {
            let envelope = Envelope {
                unproved: true,
                ..normal(&self.config, kept.src.ip(), kept.dst, self.config.ip_ttl)
            };
            debug_assert!(kept.octets.starts_with(&MAGIC));
            self.out.forward(envelope, &[], &[&kept.octets]);
            self.counters.responses_sent += 1;
        }
        self.arm(key);
    }

    /// Rule 11, `to_Expire_RNode` and `er_NoRSM`, and the ends of rules 8 and 9: the state machine is removed, and the
    /// application is notified if the state was established. GIST-6.3-17, GIST-6.3-18, GIST-6.3-25,
    /// GIST-4.4.6-09, GIST-4.4.6-10.
    pub(in crate::engine) fn end_responding(&mut self, key: Key, direction: Direction) {
        if self.records.state(key, direction).is_established() {
            self.notify(key, direction, NetworkEvent::Bad);
        }
        self.remove_half(key, direction, SendError::NoNextNode);
    }

    /// Handles the timers of a responding direction.
    pub(in crate::engine) fn responding_deadline(&mut self, key: Key, direction: Direction) {
        let Some(record) = invariant!(self.records.get(key), "a responding direction has its session") else {
            return;
        };
        let half: Half = *record.half(direction);
        let due = |flag, stamp: Stamp| half.has(flag) && stamp.is_due(self.now);
        if due(EXPIRE, half.expire) {
            self.end_responding(key, direction);
        } else if due(RETRY, half.retry) {
            self.timeout_no_confirm(key, direction);
        }
    }
}
