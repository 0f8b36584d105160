//! Bound sessions and bound messages (RFC 5974 §3.2.8, §4.4, §4.6).

use std::sync::Arc;

use signalbox_core::mri::PathCoupled;
use signalbox_core::node::{NoRoute, Route};
use signalbox_core::slab::Key;
use signalbox_core::wheel::{AT_ONCE, Link};
use signalbox_core::{Direction, Mri, SessionId, Time, invariant};
use signalbox_resources::Resources;
use signalbox_wire::Writer;

use super::Qos;
use super::again::rsn_by_time;
use super::config::ReverseDirection;
use super::contents::counted;
use super::event::{Failure, QosEvent};
use super::grant::copy_objects;
use super::holders::{Holder, Holders};
use super::receive::Progress;
use super::response::own_failure;
use super::rmf;
use super::session::{Local, Marks, Origin, RequestKind, Session, Stage};
use super::waiting::{Arrival, Slot, Waiting, route_query};
use crate::wire::{BindingCode, BoundSession, Carried, GenericFlags, Info, Message, MessageId};

/// Sessions bound to ended reservations that one input handles at most; the timer handles the rest.
const GONE_AT_ONCE: usize = 64;

impl Qos {
    /// Stores the BOUND-SESSION-IDs of a message (RFC 5974 §5.3.3).
    pub(super) fn bind(&mut self, key: Key, bound: &Carried<'_>) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a binding has a session") else { return };
        let same = Carried::bound_sessions(&session.rare.bound) == *bound;
        // Those of a QUERY are stored before the session is bound to any.
        if same && bound.sessions().all(|to| self.bound_to.contains(&(to.session, key.to_u64()))) {
            return;
        }
        self.unbind(key);
        let Some(session) = invariant!(self.sessions.get_mut(key), "unbinding ends no session") else {
            return;
        };
        tracing::debug!(session = %session.id, sessions = bound.len(), "bound sessions changed");
        session.rare.change(|rare| copy_objects(&mut rare.bound, bound));
        let mut unknown = false;
        for to in bound.sessions() {
            self.bound_to.insert((to.session, key.to_u64()));
            // The two directions may use different nodes, and a preempting session may have ended.
            let expected = ![BindingCode::BIDIRECTIONAL, BindingCode::PREEMPTION].contains(&to.code);
            unknown |= expected && self.find(to.session).is_none();
        }
        if unknown {
            self.notify_initiator(key, Info::UNKNOWN_BOUND_SESSION, None);
        }
    }

    /// Removes the bindings of a session.
    pub(super) fn unbind(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "an unbinding has a session") else {
            return;
        };
        let bound = session.rare.change(|rare| core::mem::take(&mut rare.bound));
        for to in Carried::bound_sessions(&bound).sessions() {
            self.bound_to.remove(&(to.session, key.to_u64()));
        }
    }

    /// Reports the end of a reservation to its user, and queues the end or notification of the sessions that are bound to
    /// it (RFC 5974 §3.2.8). A peer chooses how many there are and how they depend on each other: [`Qos::step_gone`]
    /// handles them in parts, without recursion.
    pub(super) fn on_gone(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get(key), "an end has a session") else { return };
        let gone = session.id;
        // The user is at the QNR of a reservation that its receiver made.
        let local = session.local.as_ref().filter(|_| !session.marks.has(Marks::QNI));
        if let Some(id) = local.and_then(|local| local.command).filter(|_| session.stage != Stage::Path) {
            let releasing = local.is_some_and(|local| local.releasing);
            let lost = own_failure(Info::RESERVATION_FAILURE, Some("the receiver's reservation ended"));
            self.out.event(id, if releasing { QosEvent::Released } else { QosEvent::Lost(lost) });
            self.commands.remove(&id);
            if let Some(session) = invariant!(self.sessions.get_mut(key), "an event ends no session") {
                session.local = None;
            }
        }
        // Two sessions may be bound to each other: set the state before the other one is examined.
        self.set_stage(key, Stage::Torn);
        if self.dependents(gone, 0).next().is_some() {
            self.gone.insert(gone, 0);
        }
    }

    /// Keys of sessions that are bound to `session`, from `first` on.
    fn dependents(&self, session: SessionId, first: u64) -> impl Iterator<Item = Key> {
        self.bound_to.range((session, first)..=(session, u64::MAX)).map(|(_, key)| Key::from_u64(*key))
    }

    /// Handles sessions that are bound to reservations that ended, [`GONE_AT_ONCE`] at most.
    pub(super) fn step_gone(&mut self, resources: &mut Resources) {
        for _ in 0..GONE_AT_ONCE {
            let Some((gone, first)) = self.gone.pop_first() else { return };
            // It may have been reserved again in the meantime.
            let stands = |key| self.sessions.get(key).is_some_and(|s| s.stage == Stage::Reserved);
            if self.find(gone).is_some_and(stands) {
                continue;
            }
            let Some(dependent) = self.dependents(gone, first).next() else { continue };
            if let Some(next) = dependent.to_u64().checked_add(1) {
                self.gone.insert(gone, next);
            }
            self.bound_session_gone(dependent, gone, resources);
            self.rearm(dependent);
        }
    }

    fn bound_session_gone(&mut self, key: Key, gone: SessionId, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get(key), "a bound session exists") else { return };
        if session.stage != Stage::Reserved {
            return;
        }
        let code = Carried::bound_sessions(&session.rare.bound)
            .sessions()
            .find(|bound| bound.session == gone)
            .map(|bound| bound.code);
        let (qni, session_id) = (session.marks.has(Marks::QNI), session.id);
        let way_back = session.local.as_ref().is_some_and(|l| {
            matches!(l.origin, Origin::ForSender)
                || matches!(l.origin, Origin::ReverseDirection(to) if to == gone)
                || l.reverse.is_some_and(|(to, _)| to == gone)
        });
        match code {
            // §3.2.8, §5.4.1: with code 0x04 the session ends with the other one.
            Some(BindingCode::DEPENDENT) => {
                let note = Some("the session that it depends on ended");
                if qni {
                    let failure = own_failure(Info::RESERVATION_FAILURE, note);
                    return self.fail(key, failure, resources);
                }
                self.notify_initiator(key, Info::RESERVATION_FAILURE, note);
                self.release(key, resources);
                self.counters.torn_down += 1;
                tracing::debug!(
                    session = %session_id,
                    reason = "the session it depends on ended",
                    "reservation torn down"
                );
                self.set_stage(key, Stage::Torn);
                self.on_gone(key);
                self.tear_towards_qnr(key, None, None, u8::MAX, resources);
            }
            Some(_) if way_back && qni => {
                let failure = own_failure(Info::RESERVATION_FAILURE, Some("the other direction ended"));
                self.fail(key, failure, resources);
            }
            Some(_) if way_back => self.release_local(key, resources),
            Some(_) if self.config.notify_bound => {
                self.notify_initiator(key, Info::UNKNOWN_BOUND_SESSION, None);
            }
            _ => {}
        }
    }

    // ---- bidirectional reservations

    /// Starts the reverse direction of a bidirectional reservation that ends here (RFC 5974 §4.4).
    ///
    /// The two directions look alike. A node that restarted could take the reverse direction for the forward one and
    /// start the other direction for it: each would refresh the other without a user. Therefore the forward
    /// direction has the lower session identifier.
    ///
    /// If it stands and the request has `changed`, the initiator may have lost it: it is reserved again.
    pub(super) fn start_reverse_direction(&mut self, key: Key, changed: bool) {
        if self.config.way_back == ReverseDirection::None {
            return;
        }
        let Some(session) = invariant!(self.sessions.get(key), "a QNR has a session") else { return };
        let Some(back) = bidirectional(&Carried::bound_sessions(&session.rare.bound)) else { return };
        let ours = session.direction == Direction::Downstream && session.marks.has(Marks::QNR);
        let known = self.find(back).and_then(|key| self.sessions.get(key));
        let stands = known.is_some_and(|session| !session.is_over());
        if !ours || back < session.id || (stands && !changed) {
            return;
        }
        let Some(mri) = reversed(&session.mri()) else { return };
        self.look_up(Waiting::ReverseDirection(key), route_query(&mri));
    }

    pub(super) fn on_routed_reverse(
        &mut self,
        first: Key,
        route: Result<Route, NoRoute>,
        resources: &mut Resources,
    ) {
        // The first direction may have ended meanwhile. Then no message would end the other one.
        let first_stands = |session: &&Session| session.stage == Stage::Reserved;
        let Some(session) = self.sessions.get(first).filter(first_stands) else { return };
        let back = bidirectional(&Carried::bound_sessions(&session.rare.bound));
        let (Some(back), Some(mri)) = (back, reversed(&session.mri())) else { return };
        let (id, qspec, auth) = (session.id, session.qspec.clone(), session.rare.auth.clone());
        let source = Arc::clone(&session.source);
        let Ok(route) = route else {
            return self.notify_initiator(
                first,
                Info::RESERVATION_FAILURE,
                Some("no route for the reverse direction"),
            );
        };
        if !self.may_continue(back, resources) {
            return self.renew_reverse_direction(back, id, &qspec, (mri, &route), resources);
        }
        let ask = self.config.way_back == ReverseDirection::Ask;
        let session_mri = if ask { mri.inverted() } else { mri };
        let holder = Holders::of(source.address);
        let Ok(key) = self.open(back, session_mri, self.config.nslp, ask, holder) else {
            return self.notify_initiator(first, Info::RESERVATION_FAILURE, Some("max_sessions: all in use"));
        };
        if let Some(record) = invariant!(self.sessions.get_mut(key), "a reverse session exists") {
            record.rare.change(|rare| rare.auth = auth);
            record.local = Some(Box::new(Local::of(None, Origin::ReverseDirection(id))));
            record.marks.set(if ask { Marks::RECEIVER_INITIATED } else { Marks::QNI }, true);
            if ask {
                record.marks.set(Marks::QNR, true);
            } else {
                record.rsn_out = Some(rsn_by_time(self.now));
            }
        }
        self.set_source(key, &source);
        let mut bound = Vec::new();
        let binding = BoundSession { code: BindingCode::BIDIRECTIONAL, session: id };
        if binding.write(&mut Writer::new(&mut bound)).is_ok() {
            self.bind(key, &Carried::bound_sessions(&bound));
        }
        if ask {
            let qspec = rmf::as_init(&qspec);
            self.query_path(key, &qspec, mri, &route, false, RequestKind::ReserveInit, resources);
        } else {
            self.reserve_from_here(key, &qspec, &route, resources);
        }
        self.rearm(key);
    }

    /// Reserves the reverse direction again, with the QSPEC of the forward direction. If the other end reserves it, it is asked for
    /// another QSPEC only: [`Qos::ask_who_forgot`] asks for the same one.
    fn renew_reverse_direction(
        &mut self,
        back: SessionId,
        first: SessionId,
        qspec: &[u8],
        (mri, route): (Mri, &Route),
        resources: &mut Resources,
    ) {
        let Some(key) = self.find(back) else { return };
        let Some(session) = invariant!(self.sessions.get(key), "a found session exists") else { return };
        let origin = session.local.as_ref().map(|local| &local.origin);
        let ours = matches!(origin, Some(Origin::ReverseDirection(to)) if *to == first);
        if !ours || session.stage != Stage::Reserved {
            return;
        }
        if session.marks.has(Marks::QNI) {
            self.reserve_from_here(key, qspec, route, resources);
        } else {
            let qspec = rmf::as_init(qspec);
            if rmf::answers(&session.qspec, &qspec) {
                return;
            }
            self.query_path(key, &qspec, mri, route, false, RequestKind::ReserveInit, resources);
        }
        self.rearm(key);
    }

    /// The other end was asked for the reverse direction with another QSPEC, and does not reserve it: what it has reserved stands as
    /// before. The user at the other end waits for what was refused.
    pub(super) fn renewal_refused(&mut self, key: Key, failure: &Failure) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a refusal has a session") else { return };
        let Some(Origin::ReverseDirection(first)) = session.local.as_ref().map(|local| &local.origin) else {
            return;
        };
        let first = *first;
        // A question about what stands is that after a change of the path.
        if rmf::answers(&session.qspec, session.init_qspec()) {
            return;
        }
        session.pending.retain(|pending| pending.kind != RequestKind::ReserveInit);
        self.reverse_direction_refused(first, failure);
    }

    /// Informs the initiator of the forward direction that the reverse one was refused.
    pub(super) fn reverse_direction_refused(&mut self, first: SessionId, failure: &Failure) {
        if let Some(first) = self.find(first) {
            let note = failure.to_string();
            self.notify_initiator(first, Info::RESERVATION_FAILURE, Some(&note));
        }
    }

    /// Asks the previous peer for the reverse direction again if it began anew since it reserved it, and has forgotten it: a RESERVE of
    /// the forward direction shows that. What the other end asks for does not come here, because the nodes between have it still.
    pub(super) fn ask_who_forgot(&mut self, message: &Message<'_>, arrival: &Arrival) {
        let Some(back) = bidirectional(&message.bound_sessions) else { return };
        let Some(key) = self.find(back) else { return };
        let Some(session) = invariant!(self.sessions.get(key), "a found session exists") else { return };
        let epoch = session.rsn_in.get().map(|rsn| rsn.epoch);
        let began_anew = epoch.is_some() && epoch != message.rsn.map(|rsn| rsn.epoch);
        let same_peer = arrival.peer_address.is_some() && session.source.address == arrival.peer_address;
        if session.stage == Stage::Reserved
            && session.direction == Direction::Upstream
            && same_peer
            && began_anew
        {
            tracing::debug!(session = %back, peer = ?arrival.sii, "reverse direction asked for again");
            self.ask_again_downstream(key);
            self.rearm(key);
        }
    }

    /// Reports the grant of a bidirectional reservation to its user: the reverse direction is granted too. What an earlier request of
    /// the user has left of it may have another rate: then the grant for the present request follows soon.
    pub(super) fn reverse_direction_granted(&mut self, back: SessionId) {
        let until = self.now + self.config.request_retry.saturating_mul(2);
        let granted = self.find(back).and_then(|key| self.sessions.get(key));
        let rate = granted.and_then(|session| rmf::rate(&session.qspec));
        for key in self.bound_to_reverse(back) {
            let Some(session) = self.sessions.get_mut(key) else { continue };
            let asked = rmf::rate(&session.qspec);
            let Some(local) = session.local.as_mut() else { continue }; // one of a peer
            let other = local.is_kept_whole() && asked != rate;
            if let Some((session, stands)) = local.reverse.as_mut()
                && *session == back
            {
                if other {
                    local.report_by = local.report_by.map(|by| by.min(until));
                    self.rearm(key);
                    continue;
                }
                *stands = true;
                local.report_by = None;
                if let (Some(granted), Some(id)) = (local.unreported.take(), local.command) {
                    self.out.event(id, QosEvent::Granted(*granted));
                }
            }
        }
    }

    /// The sessions that may be forward directions of a reverse one. One session of a user is bound to it. Others can be bound to it by
    /// nodes of its path only.
    fn bound_to_reverse(&self, back: SessionId) -> Vec<Key> {
        self.dependents(back, 0).take(GONE_AT_ONCE).collect()
    }

    /// The reverse direction of a reservation of a user at this node is refused: the forward one ends with the same reason.
    pub(super) fn forward_direction_fails(
        &mut self,
        back: SessionId,
        failure: &Failure,
        resources: &mut Resources,
    ) {
        for key in self.bound_to_reverse(back) {
            let local = self.sessions.get(key).and_then(|session| session.local.as_ref());
            if local.is_some_and(|local| local.reverse.is_some_and(|(session, _)| session == back)) {
                self.fail(key, failure.clone(), resources);
                self.rearm(key);
            }
        }
    }

    /// Whether a session is reserved, and this node has the answer to its own request for it, if it has made one.
    pub(super) fn is_granted(&self, id: SessionId) -> bool {
        let session = self.find(id).and_then(|key| self.sessions.get(key));
        session.is_some_and(|session| {
            let answered = session.local.as_ref().is_none_or(|local| local.granted);
            session.stage == Stage::Reserved && answered
        })
    }

    // ---- bound messages

    /// Whether a RESERVE must wait for another message (RFC 5974 §4.6). Only the QNR and the end of an aggregation
    /// region evaluate these objects.
    pub(super) fn synchronise(
        &mut self,
        message: &Message<'_>,
        arrival: &Arrival,
        octets: &[u8],
    ) -> Option<Progress> {
        let region_end = Some(arrival.nslp) == self.config.bypass_nslp;
        if message.is_tear() || !(arrival.at_flow_end || region_end) {
            return None;
        }
        if let Some(bound) = message.bound_msg_id {
            return match self.seen(bound.id) {
                Some(true) => None,
                // §4.7: the end-to-end message is forwarded only if the other one succeeded.
                Some(false) => {
                    self.answer(arrival, message, Info::SYNCHRONISATION, None);
                    Some(Progress::Done)
                }
                None => {
                    let trigger = self.take_waiting(bound.id, true);
                    self.wait(bound.id, false, octets, arrival);
                    if let Some((octets, arrival)) = trigger {
                        self.resume.push_back((octets, arrival));
                    }
                    Some(Progress::Done)
                }
            };
        }
        let id = message.msg_id.filter(|id| id.bidirectional)?;
        // The triggering message waits itself, until the bound one arrives.
        let partner = self.waits(id.id, false) || arrival.synchronised;
        if partner {
            return None;
        }
        self.wait(id.id, true, octets, arrival);
        Some(Progress::Done)
    }

    /// The BOUND-MSG-ID of a RESERVE that is forwarded. At the end of an aggregation region the message has waited
    /// already (RFC 5974 §4.6).
    pub(super) fn unsettled(&self, message: &Message<'_>, arrival: &Arrival) -> Option<MessageId> {
        message.bound_msg_id.filter(|_| Some(arrival.nslp) != self.config.bypass_nslp)
    }

    /// Stores the result of a triggering message, and resumes or refuses the message that waits for it (RFC 5974
    /// §4.6).
    pub(super) fn trigger(&mut self, message: &Message<'_>, arrival: &Arrival, granted: bool) {
        let Some(id) = message.msg_id.filter(|_| arrival.at_flow_end) else { return };
        match self.take_waiting(id.id, false) {
            Some((octets, waiting)) if granted => self.resume.push_back((octets, waiting)),
            Some((octets, waiting)) => {
                if let Ok(message) = Message::parse(&octets) {
                    self.answer(&waiting, &message, Info::SYNCHRONISATION, None);
                }
            }
            None => {
                let holder = Holders::of(arrival.peer_address);
                let what = Waiting::Processed { id: id.id, granted };
                self.park(self.now + self.config.retry_max, what, holder, (id.id, 2));
            }
        }
    }

    fn wait(&mut self, id: [u8; 16], trigger: bool, octets: &[u8], arrival: &Arrival) {
        // A retransmission replaces the message that waits, and restarts the timer.
        self.take_waiting(id, trigger);
        let what = Waiting::Bound { octets: octets.to_vec(), arrival: arrival.clone(), id, trigger };
        let holder = Holders::of(arrival.peer_address);
        self.park(self.now + self.config.request_retry, what, holder, (id, u8::from(trigger)));
    }

    fn park(&mut self, until: Time, what: Waiting, holder: Holder, name: ([u8; 16], u8)) {
        let contents = match &what {
            Waiting::Bound { octets, .. } => counted(octets.len()),
            _ => 0,
        };
        if contents > 0 && !self.holders.has_room(holder, contents) {
            self.counters.contents_full += 1;
            tracing::debug!(octets = contents, reason = "no room for long objects", "message dropped");
            return;
        }
        let owner = what.owner();
        let place = Slot { what, holder: Some(holder), contents, link: Link::default() };
        let key = self.holders.park(holder).then(|| self.waiting.insert(place));
        let Some(Ok(key)) = key else {
            if key.is_some() {
                self.holders.unpark(holder);
            }
            self.counters.overload += 1;
            tracing::debug!(reason = "table of waiting messages full", "message dropped");
            return;
        };
        self.holders.keep(holder, 0, contents);
        self.waiting_wheel.arm(&mut self.waiting, key.index(), until);
        if let Some(owner) = owner {
            self.by_owner.insert((owner, key.to_u64()));
        }
        self.by_message.insert(name, key);
    }

    fn waits(&self, id: [u8; 16], trigger: bool) -> bool {
        self.by_message.contains_key(&(id, u8::from(trigger)))
    }

    fn seen(&self, id: [u8; 16]) -> Option<bool> {
        let key = self.by_message.get(&(id, 2))?;
        match invariant!(self.waiting.get(*key), "a result has a place")?.what {
            Waiting::Processed { granted, .. } => Some(granted),
            _ => None,
        }
    }

    fn take_waiting(&mut self, id: [u8; 16], trigger: bool) -> Option<(Vec<u8>, Arrival)> {
        let key = self.by_message.remove(&(id, u8::from(trigger)))?;
        self.waiting_wheel.cancel(&mut self.waiting, key.index());
        match invariant!(self.take_slot(key), "a MSG-ID has a place")?.what {
            Waiting::Bound { octets, arrival, .. } => Some((octets, arrival)),
            _ => None,
        }
    }

    /// Discards messages that waited too long, a part of them at a time. The QNI may get a RESPONSE (RFC 5974 §4.6).
    pub(super) fn step_waiting(&mut self) {
        for _ in 0..AT_ONCE {
            let Some(index) = self.waiting_wheel.pop_due(&mut self.waiting, self.now) else { return };
            let Some(place) = invariant!(
                self.waiting.key_of(index).and_then(|key| self.take_slot(key)),
                "a timer has a place"
            ) else {
                continue;
            };
            match place.what {
                Waiting::Processed { id, .. } => {
                    self.by_message.remove(&(id, 2));
                }
                Waiting::Bound { octets, arrival, id, trigger } => {
                    self.by_message.remove(&(id, u8::from(trigger)));
                    self.counters.unsynchronised += 1;
                    tracing::debug!(
                        session = %arrival.session,
                        reason = "the message it was bound to did not come",
                        "message dropped"
                    );
                    if self.config.report_unsynchronised
                        && let Ok(message) = Message::parse(&octets)
                    {
                        self.answer(&arrival, &message, Info::SYNCHRONISATION, None);
                    }
                }
                _ => {}
            }
        }
    }

    /// Processes messages whose triggering message has arrived.
    pub(super) fn step_resumed(&mut self, resources: &mut Resources) {
        while let Some((octets, arrival)) = self.resume.pop_front() {
            let arrival = Arrival { synchronised: true, ..arrival };
            self.receive_resumed(&octets, &arrival, resources);
        }
    }
}

/// The session of the reverse direction among BOUND-SESSION-IDs.
fn bidirectional(bound: &Carried<'_>) -> Option<SessionId> {
    bound.sessions().find(|bound| bound.code == BindingCode::BIDIRECTIONAL).map(|bound| bound.session)
}

/// The flow in the reverse direction, downstream.
fn reversed(mri: &Mri) -> Option<Mri> {
    let Mri::PathCoupled(flow) = mri else { return None };
    Some(Mri::PathCoupled(PathCoupled {
        src: flow.dst,
        dst: flow.src,
        src_prefix: flow.dst_prefix,
        dst_prefix: flow.src_prefix,
        src_port: flow.dst_port,
        dst_port: flow.src_port,
        spi: None,
        flow_label: None,
        direction: Direction::Downstream,
        ..*flow
    }))
}

/// Whether this node is the P-QNE of a message with PROXY (RFC 5974 §4.8).
pub(super) const fn ends_at_proxy(config: &super::Config, message: &Message<'_>) -> bool {
    config.proxy && message.generic.contains(GenericFlags::PROXY)
}
