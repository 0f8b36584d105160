//! The Querying-Node state machine (RFC 5971 §6.2): one function per event, named by its rule.

use core::time::Duration;

use signalbox_core::service::{NetworkEvent, SendError};
use signalbox_core::slab::Key;
use signalbox_core::stamp::{Span, Stamp};
use signalbox_core::{Direction, SessionChange, invariant};

use crate::engine::Gist;
use crate::engine::applications::{q_mode, unsent};
use crate::engine::association::configuration;
use crate::engine::output::{distance, limit, nli, nli_ttl, normal, router_alert};
use crate::engine::receive::{Arrival, Subject};
use crate::engine::routing::{
    EXPIRE, Half, INACTIVE, NO_REFRESH, NONE, PROVEN, QueryContents, Querying, RETRY, State, TENTATIVE,
};
use crate::wire::{GistError, Message, MessageType, ObjectType, PORT, object_value_info};

/// IP TTL of upstream Queries. Receivers derive the distance from it (RFC 5971 §5.8.1.3).
const UPSTREAM_TTL: u8 = 255;
/// How long a session waits for the route of its first Query, or for a new route.
pub(in crate::engine) const RESOLVE: Duration = Duration::from_secs(2);
/// Delay of a Query that the rate limit does not allow.
const HELD_BACK: Duration = Duration::from_millis(100);

impl Gist {
    /// Birth (RFC 5971 §6.2): the Query is sent when its route is known. GIST-6.2-01, GIST-3.5-02.
    pub(in crate::engine) fn birth(&mut self, key: Key, direction: Direction) {
        let (now, query) = (self.now, self.rng.u32());
        let inactivity = Span::of(self.config.inactivity);
        let Some(record) =
            invariant!(self.records.get_mut(key), "a state machine begins in a session that stands")
        else {
            return;
        };
        let mut half = Half { state: State::Resolving, ..Half::default() };
        half.start_retry(now, RESOLVE);
        let from = core::mem::replace(record.half_mut(direction), half).state;
        *record.querying_mut(direction) = Querying { query, inactivity, ..Querying::default() };
        transition!(self.peers, record, direction, from, "application sends");
        self.lookup_record(key, direction);
        self.arm(key);
    }

    /// The route is known: Awaiting Response, first Query, `No_Response` starts.
    pub(in crate::engine) fn first_query(&mut self, key: Key, direction: Direction) {
        self.restart(key, direction, State::AwaitingResponse);
    }

    /// Starts a handshake in `state` with its first Query.
    fn restart(&mut self, key: Key, direction: Direction, state: State) {
        let Some(record) =
            invariant!(self.records.get_mut(key), "a handshake starts in a session that stands")
        else {
            return;
        };
        let half = record.half_mut(direction);
        let from = core::mem::replace(&mut half.state, state);
        half.attempts = 0;
        half.set(EXPIRE, half.has(EXPIRE) && state == State::AwaitingRefresh);
        transition!(self.peers, record, direction, from, "handshake starts");
        if let Some(pending) = &mut record.pending {
            pending.query_mut(direction).first = None;
        }
        self.send_query(key, direction);
    }

    /// Sends one Query and (re)starts `No_Response` with the next value of the backoff: T1, 2·T1, … up to T2
    /// (RFC 5971 §5.3.3). GIST-5.3.3-02, GIST-5.3.3-09, GIST-6.2-22. The rate limit delays a Query but does not drop it
    /// (GIST-5.3.3-22).
    fn send_query(&mut self, key: Key, direction: Direction) {
        let now = self.now;
        if !self.may_send_for(key) {
            let after = self.rng.jitter(HELD_BACK, 1.0, 2.0);
            if let Some(record) =
                invariant!(self.records.get_mut(key), "a session stands while its Query is held back")
            {
                record.half_mut(direction).start_retry(now, after);
            }
            return self.arm(key);
        }
        let validity = self.validity();
        let Some(record) = invariant!(self.records.get_mut(key), "a Query is one of a session") else {
            return;
        };
        let (nslp, session, mri) = (record.nslp, record.session, record.flow.mri(direction));
        let half = record.half_mut(direction);
        let egress =
            invariant!(self.peers.egress(half.egress), "a direction that sends Queries has an egress");
        let Some(egress) = egress.copied() else { return };
        half.attempts = half.attempts.saturating_add(1);
        let attempts = half.attempts;
        let distance = half.distance_or_zero();
        let doublings = u32::from(attempts.saturating_sub(1)).min(31);
        let backoff = self.config.t1.saturating_mul(1 << doublings).min(self.config.t2);
        half.start_retry(now, backoff);
        let querying = record.querying_mut(direction);
        querying.query = querying.query.wrapping_add(1);
        let query = querying.query;

        let cookie = self.handshakes.cookies.of_query(key, direction, session, query);
        // GIST-5.8.1.2-04: some retransmissions carry the signaling source.
        let every = self.config.signaling_source_every;
        let own_source = every > 0 && attempts > 1 && (attempts - 1).is_multiple_of(every);
        // GIST-5.8.1.3-09
        let ttl = if direction == Direction::Upstream { UPSTREAM_TTL } else { self.config.ip_ttl };
        let ttl_in_nli = nli_ttl(direction, ttl, distance);
        let envelope = q_mode(&self.config, &egress, &mri, own_source, ttl);
        let mut message = Message::new(MessageType::QUERY, nslp, self.config.hops);
        // GIST-5.2.1-02
        message.header.s = envelope.src.ip() == egress.address;
        message.mri = Some(mri.into());
        message.session = Some(session);
        message.nli = Some(nli(&self.config, validity, egress.address, ttl_in_nli));
        message.query_cookie = Some(&cookie);
        let pending = self.records.get(key).and_then(|r| r.pending.as_ref());
        message.nslp_data = pending.and_then(|p| match (p.queued(direction).front(), p.query(direction)) {
            (Some(first), asked) if asked.piggybacked => Some(&*first.data),
            (_, asked) => Some(&*asked.data).filter(|data| !data.is_empty()),
        });
        let data = message.nslp_data.map_or(0, <[u8]>::len);
        let stacks = self.query_stacks(key, direction);
        let (options, count) = stacks.query_options();
        if !stacks.is_empty() {
            message.stack_proposal = Some(stacks.proposal());
            let options = options.get(..count).unwrap_or_default();
            message.stack_configuration = Some(configuration(self.associations.hold_time(), options));
        }
        let alert =
            self.applications.registration(nslp).unwrap_or_default().router_alert_to(envelope.dst.ip());
        let (options, length) = router_alert(&self.config, envelope.dst.ip(), alert);
        let options = options.get(..length).unwrap_or_default();
        let limit = limit(&self.config, egress.mtu);
        match self.out.compose(envelope, options, &message, limit) {
            Ok(_) => {
                self.counters.queries_sent += 1;
                self.counters.queries_retransmitted += u64::from(attempts > 1);
                if !stacks.is_empty()
                    && let Some(pending) = self.records.get_mut(key).and_then(|r| r.pending.as_mut())
                {
                    pending.query_mut(direction).first.get_or_insert(query);
                }
                self.arm(key);
            }
            Err(error) => self.remove_half(key, direction, unsent(error, data, limit)),
        }
    }

    /// `rx_Response` in all states: a Response to no Query of this node is discarded without an answer, Node-SM rule 2 (GIST-6.1-04,
    /// GIST-4.4.6-01, GIST-5.3.3-18); otherwise it is rule 4.
    pub(in crate::engine) fn rx_response(
        &mut self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
    ) {
        // The Response's MRI is that of the Query, inverted.
        let key = self.records.find(&subject.mri, subject.session, subject.nslp);
        let record = key.and_then(|key| self.records.get(key).map(|record| (key, record)));
        let Some((key, record)) = record else {
            self.counters.responses_stray += 1;
            dropped!(a, subject, "Response to no Query");
            return;
        };
        let direction = subject.mri.direction().inverted();
        let half = record.half(direction);
        if !half.state.is_querying() || half.attempts == 0 {
            self.counters.responses_stray += 1;
            dropped!(a, subject, "Response to no Query");
            return;
        }
        let cookie = message.query_cookie.unwrap_or_default();
        let query = record.querying(direction).query;
        let cookies = &self.handshakes.cookies;
        if !cookies.is_of_query(key, direction, subject.session, query, half.attempts, cookie) {
            self.counters.cookies_invalid += 1;
            dropped!(a, subject, "invalid Query-Cookie");
            if self.config.cookie_errors {
                let info = object_value_info(a.octets, ObjectType::QUERY_COOKIE, 4);
                self.refuse_with(a, GistError::INVALID_COOKIE, info);
            }
            return;
        }
        // GIST-7.2.1-06: a NAT that is not GIST-aware is on the path, and the handshake ends.
        if a.association == NONE && message.header.s && a.src.ip() != subject.nli.interface {
            self.counters.untranslated += 1;
            dropped!(a, subject, "NLI address differs from the IP source");
            let GistError { code, subcode, .. } = GistError::UNTRANSLATED_OBJECT;
            return self.end_handshake(key, direction, SendError::Peer { code: code.0, subcode });
        }
        self.rx_matching_response(key, a, message, subject);
    }

    /// Rule 4, `rx_Response` in all states: Confirm if R=1, stored Data, timers, payload; Established.
    /// GIST-6.2-07, GIST-6.2-09, GIST-6.2-17, GIST-5.3.3-15, GIST-4.4.1-07.
    fn rx_matching_response(
        &mut self,
        key: Key,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
    ) {
        let direction = subject.mri.direction().inverted();
        self.counters.responses_received += 1;
        if let Err(error) = self.associate(key, direction, a, message, subject) {
            // The session may have ended with its former association.
            if self.records.state(key, direction).is_querying() {
                self.end_handshake(key, direction, error);
            }
            return;
        }
        self.note_translation(key, direction, subject.foreign, false);
        let now = self.now;
        let validity = Duration::from_millis(u64::from(subject.nli.validity_ms));
        let refresh = self.refresh_after(key, direction, validity);
        let Some(record) = invariant!(self.records.get_mut(key), "a Response that is valid has its session")
        else {
            return;
        };
        let half = record.half_mut(direction);
        let egress =
            invariant!(self.peers.egress(half.egress), "a Query that was answered had an egress").copied();
        let ifindex = egress.map(|e| e.ifindex).unwrap_or_default();
        let (old, before, tentative) = (half.peer, half.state, half.has(TENTATIVE));
        let same = self.peers.peer(old).is_some_and(|p| p.matches(&subject.nli, PORT, ifindex));
        if !same {
            let Ok(peer) = self.peers.intern(&subject.nli, PORT, ifindex) else {
                self.counters.peers_full += 1;
                dropped!(a, subject, "table of peers full");
                return self.end_handshake(key, direction, SendError::Overload);
            };
            half.peer = peer;
        }
        if let Some(egress) = egress {
            self.peers.set_own_address(half.peer, egress.address);
        }
        if let Some(distance) = distance(&subject.mri, &subject.nli, a.ttl) {
            half.set_distance(distance);
        }
        let gateway = egress.and_then(|egress| egress.gateway);
        let reached = [Some(subject.mri.inverted().target()), gateway].contains(&Some(subject.nli.interface));
        half.set(PROVEN, reached);
        let peer = half.peer;
        half.state = State::Established;
        half.set(TENTATIVE, false);
        if !before.is_established() {
            self.counters.installed += 1;
            half.since = Stamp::of(now);
        }
        transition!(self.peers, record, direction, before, "Response");
        self.note_sii(key, direction);
        if !reached {
            self.look_up_peer(peer);
        }

        if message.header.r {
            match self.association_of(key, direction) {
                Some(association) => self.confirm_over(key, direction, association, message),
                None => self.send_confirm(key, direction, message.responder_cookie),
            }
        }
        let left = self.send_stored(key, direction);
        let Some(record) = invariant!(self.records.get_mut(key), "queued messages do not end their session")
        else {
            return;
        };
        if let Some(pending) = &mut record.pending {
            pending.query_mut(direction).data = Vec::new();
        }
        // GIST-6.2-21, GIST-4.4.4-09, GIST-4.4.4-10: `No_Response` stops, `Refresh_QNode` starts.
        let half = record.half_mut(direction);
        half.start_retry(now, refresh);
        half.start_expire(now, validity);
        if !half.has(INACTIVE) {
            record.start_inactive(direction, now);
        }
        if !before.is_established() || tentative || !same {
            self.notify_good(key, direction, old, !same);
        }
        if let Some(data) = message.nslp_data {
            self.deliver(a, message, subject, data, Some((key, direction)));
            self.restart_inactivity(key, direction);
        }
        if left {
            self.query_for_association(key, direction, message.query_cookie.unwrap_or_default());
        }
        self.settle(key);
    }

    /// Handles queued messages that need an association after a Response without one. If the answered Query had no
    /// Stack-Proposal, a new Query has one. Otherwise the peer has no connection mode, and they fail (GIST-4.3.3-13).
    fn query_for_association(&mut self, key: Key, direction: Direction, cookie: &[u8]) {
        let number = cookie.first_chunk::<4>().map_or(0, |number| u32::from_be_bytes(*number));
        let asked = self.records.pending(key).and_then(|pending| pending.query(direction).first);
        if asked.is_some_and(|first| number.wrapping_sub(first) < u32::MAX / 2) {
            self.fail_queue(key, direction, SendError::Refused);
        } else {
            self.start_refresh(key, direction);
        }
    }

    /// Notifies the application that state is Good, and that a former peer is off the route (RFC 5971 §7.1.4).
    /// GIST-7.1.2-03, GIST-7.1.2-04, GIST-B.4-02, GIST-B.4-03.
    pub(in crate::engine) fn notify_good(&mut self, key: Key, direction: Direction, old: u32, changed: bool) {
        let Some(record) = invariant!(self.records.get(key), "Good state is that of a session") else {
            return;
        };
        self.changes.note(|| SessionChange::changed(record.session.to_string()).of(record.nslp));
        if let Some(sii) =
            invariant!(self.peers.sii(record.half(direction).peer), "established state has a peer")
        {
            self.notify(key, direction, NetworkEvent::Good(sii));
        }
        if changed && old != NONE {
            self.counters.peer_changed += 1;
            if let Some(sii) = invariant!(self.peers.sii(old), "a former peer is known until it is retired") {
                self.notify(key, direction, NetworkEvent::RouteDeleted(sii));
            }
            self.peers.retire(old, Stamp::after(self.now + self.config.sii_retention));
        }
    }

    /// Sends the Confirm: the MRI of the Query, the Responder-Cookie of the Response (RFC 5971 §5.1). GIST-4.4.1-09,
    /// GIST-5.1-14.
    fn send_confirm(&mut self, key: Key, direction: Direction, cookie: Option<&[u8]>) {
        if !self.may_send_for(key) {
            return; // as if the Confirm was lost: the peer retransmits its Response, or refuses Data
        }
        let validity = self.validity();
        let Some(record) = invariant!(self.records.get(key), "a Confirm is one of a session") else { return };
        let half = record.half(direction);
        let peer = invariant!(self.peers.peer(half.peer), "a Confirm goes to the peer of its session");
        let egress =
            invariant!(self.peers.egress(half.egress), "a Confirm leaves by the egress of its session");
        let (Some(peer), Some(egress)) = (peer, egress) else { return };
        let ttl = self.config.ip_ttl;
        let ttl_in_nli = nli_ttl(direction, ttl, half.distance_or_zero());
        let mut message = Message::new(MessageType::CONFIRM, record.nslp, self.config.hops);
        // GIST-5.3.1-07: behind a NAT the address in the NLI is another one.
        message.header.s = !self.nat.has(key, direction);
        message.mri = Some(record.flow.mri(direction).into());
        message.session = Some(record.session);
        message.nli = Some(nli(&self.config, validity, egress.address, ttl_in_nli));
        message.responder_cookie = cookie;
        let envelope = normal(&self.config, egress.address, peer.address, ttl);
        let limit = limit(&self.config, egress.mtu);
        if self.out.compose(envelope, &[], &message, limit).is_ok() {
            self.counters.confirms_sent += 1;
        }
    }

    /// Replaces upstream state of an upstream Query by that of a downstream Query from a peer, since the downstream Query was
    /// routed like the flow (RFC 5971 §5.8.1.3). Queued messages use the new state. False: the table of peers is full, and
    /// nothing has changed.
    pub(in crate::engine) fn replace_upstream(
        &mut self,
        key: Key,
        a: &Arrival<'_>,
        subject: &Subject<'_>,
        proven: bool,
    ) -> bool {
        let direction = Direction::Upstream;
        if !self.install(key, direction, a, subject, proven) {
            return false;
        }
        self.routes.forget(&mut self.records, key, direction);
        let Some(record) =
            invariant!(self.records.get_mut(key), "a session stands while its peer is replaced")
        else {
            return false;
        };
        if let Some(pending) = &mut record.pending {
            *pending.query_mut(direction) = QueryContents::default();
        }
        let half = record.half_mut(direction);
        let from = half.state;
        half.state = if from.is_established() { State::RespondingEstablished } else { State::None };
        for flag in [RETRY, INACTIVE, TENTATIVE] {
            half.set(flag, false);
        }
        record.end_querying(direction);
        transition!(self.peers, record, direction, from, "downstream Query from the upstream peer");
        true
    }

    /// Restarts `Inactive_QNode` when NSLP data was sent or received (RFC 5971 §6.2). GIST-6.2-23.
    pub(in crate::engine) fn restart_inactivity(&mut self, key: Key, direction: Direction) {
        let now = self.now;
        if let Some(record) = invariant!(self.records.get_mut(key), "a message does not end its session")
            && record.half(direction).state.is_querying()
        {
            record.start_inactive(direction, now);
        }
    }

    /// Rule 2, `to_No_Response` in Awaiting Response and Awaiting Refresh: another Query, or the end.
    /// GIST-6.2-05, GIST-6.2-06, GIST-6.2-15, GIST-6.2-16.
    pub(in crate::engine) fn timeout_no_response(&mut self, key: Key, direction: Direction) {
        let Some(record) = invariant!(self.records.get(key), "a session stands until its Response is late")
        else {
            return;
        };
        if record.half(direction).attempts < self.config.attempts {
            return self.send_query(key, direction);
        }
        self.counters.no_response += 1;
        self.end_handshake(key, direction, SendError::NoNextNode);
    }

    /// Ends a handshake that cannot succeed: queued messages fail, and the application is notified if the state was
    /// established.
    pub(in crate::engine) fn end_handshake(&mut self, key: Key, direction: Direction, error: SendError) {
        if self.records.state(key, direction).is_established() {
            self.notify(key, direction, NetworkEvent::Bad);
        }
        self.remove_half(key, direction, error);
    }

    /// Rule 3, `er_NoRSM` in all states: the peer lost its state, or did not receive the Confirm. The handshake starts
    /// again, and Data is queued. GIST-6.2-18, GIST-4.4.6-08.
    pub(in crate::engine) fn er_no_rsm(&mut self, key: Key, direction: Direction) {
        match self.records.state(key, direction) {
            State::Established | State::AwaitingRefresh => {
                self.notify(key, direction, NetworkEvent::Bad);
                self.restart(key, direction, State::AwaitingResponse);
            }
            // One more Query of the running handshake, within the limit of their number.
            State::AwaitingResponse
                if self
                    .records
                    .get(key)
                    .is_some_and(|r| r.half(direction).attempts < self.config.attempts) =>
            {
                self.send_query(key, direction);
            }
            _ => {
                self.counters.unexpected += 1;
                tracing::debug!(session = %self.records.get(key).map(|r| r.session).unwrap_or_default(), reason = "no handshake to repeat", "Error dropped");
            }
        }
    }

    /// Rule 6, `to_Inactive_QNode` in all states: no application uses the state. GIST-6.2-19.
    fn timeout_inactive(&mut self, key: Key, direction: Direction) {
        self.remove_half(key, direction, SendError::NoNextNode);
    }

    /// Rule 8, `to_Refresh_QNode`: Awaiting Refresh. If the session is inactive, there is no refresh (RFC 5971 §4.4.4); if it
    /// may be, the refresh follows that of the upstream peer.
    /// GIST-6.2-12, GIST-4.4.4-08, GIST-7.1.2-01.
    fn timeout_refresh(&mut self, key: Key, direction: Direction) {
        let waits = self.waits_for_refresh(key, direction);
        let Some(record) = invariant!(self.records.get_mut(key), "a refresh is due in a session that stands")
        else {
            return;
        };
        let half = record.half_mut(direction);
        if !half.has(NO_REFRESH) && self.pass_refresh_on(key, direction) {
            return;
        }
        let Some(record) =
            invariant!(self.records.get_mut(key), "a refresh that is not passed on changes nothing")
        else {
            return;
        };
        let half = record.half_mut(direction);
        if half.has(NO_REFRESH) || waits {
            half.set(RETRY, false);
            return;
        }
        self.start_refresh(key, direction);
    }

    /// Starts a running handshake again, because its Queries took another route.
    pub(in crate::engine) fn restart_handshake(&mut self, key: Key, direction: Direction) {
        if self.records.state(key, direction) == State::AwaitingResponse {
            self.restart(key, direction, State::AwaitingResponse);
        }
    }

    /// Established to Awaiting Refresh, with a Query at once.
    pub(in crate::engine) fn start_refresh(&mut self, key: Key, direction: Direction) {
        if self.records.state(key, direction).is_established() {
            self.restart(key, direction, State::AwaitingRefresh);
        }
    }

    /// Established to Awaiting Response, with a Query at once. Data is queued.
    pub(in crate::engine) fn query_bad_state(&mut self, key: Key, direction: Direction) {
        if self.records.state(key, direction).is_established() {
            self.restart(key, direction, State::AwaitingResponse);
        }
    }

    /// Handles the timers of a querying direction.
    pub(in crate::engine) fn querying_deadline(&mut self, key: Key, direction: Direction) {
        let Some(record) = invariant!(self.records.get(key), "a querying direction has its session") else {
            return;
        };
        let half = *record.half(direction);
        let due = |flag, stamp: Stamp| half.has(flag) && stamp.is_due(self.now);
        if due(INACTIVE, record.querying(direction).inactive) {
            return self.timeout_inactive(key, direction);
        }
        // GIST-4.2.1-02: state that was not refreshed in time is removed.
        if due(EXPIRE, half.expire) {
            self.counters.no_response += u64::from(half.state == State::AwaitingRefresh);
            return self.end_handshake(key, direction, SendError::NoNextNode);
        }
        if !due(RETRY, half.retry) {
            return;
        }
        match half.state {
            State::Established => self.timeout_refresh(key, direction),
            State::AwaitingResponse | State::AwaitingRefresh => self.timeout_no_response(key, direction),
            State::Resolving => self.remove_half(key, direction, SendError::NoRoute),
            _ => {}
        }
    }
}
