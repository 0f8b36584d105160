//! Admission of a RESERVE, and its effects (RFC 5974 §5.4.1).

use signalbox_core::node::{NoRoute, Route};
use signalbox_core::slab::Key;
use signalbox_core::stamp::Moment;
use signalbox_core::{RareVec, invariant};
use signalbox_resources::Resources;

use super::Qos;
use super::again::{CONTINUED, rsn_by_time};
use super::compose::{DEFAULT_PERIOD_MS, Extra, Form, Target, generic_back};
use super::event::{Granted, HopGrant, QosEvent};
use super::holders::{Holder, Holders};
use super::response::own_failure;
use super::rmf::{self, Flow};
use super::session::{Marks, RequestKind, Session, Stage};
use super::source::Source;
use super::table::shared_qspec;
use super::waiting::Arrival;
use crate::wire::{
    Carried, GenericFlags, Hop, Hops, Info, InfoSpec, Message, MessageFlags, MessageId, MessageType, Part,
};

/// The effect of a granted RESERVE on its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Outcome {
    /// The request differs from the reservation that existed.
    changed: bool,
    /// The MSG-ID that the forwarded RESERVE is bound to.
    waits_for: Option<MessageId>,
    /// The RESERVE of a repair met the reservation: it is not forwarded (RFC 5974 §3.2.12).
    absorbed: bool,
}

impl Qos {
    /// Asks admission control for the resources of a RESERVE (RFC 5974 §5.4.1). No state changes unless they are
    /// granted.
    pub(super) fn admit(
        &mut self,
        key: Option<Key>,
        message: &Message<'_>,
        arrival: &Arrival,
        route: Result<Route, NoRoute>,
        resources: &mut Resources,
    ) {
        let Ok(route) = route else {
            return self.answer(
                arrival,
                message,
                Info::RESERVATION_FAILURE,
                Some("no route to the flow's destination"),
            );
        };
        let holder = Holders::of(arrival.peer_address);
        if let Some((info, note)) = self.unacceptable(key, message, arrival, holder) {
            return self.answer(arrival, message, info, note);
        }
        if let Some((key, note)) = key.and_then(|key| Some((key, self.wants_larger(key, message)?))) {
            self.answer(arrival, message, Info::RESERVATION_FAILURE, Some(&note));
            let failure = own_failure(Info::RESERVATION_FAILURE, Some(&note));
            return self.on_refused(key, RequestKind::ReserveInit, failure, resources);
        }
        let (key, opened) = match key {
            Some(key) => (key, false),
            None => match self.open(arrival.session, arrival.mri, arrival.nslp, false, holder) {
                Ok(key) => (key, true),
                Err(_) => {
                    let note = Some("max_sessions: all in use");
                    return self.answer(arrival, message, Info::RESERVATION_FAILURE, note);
                }
            },
        };
        let period = message.refresh_period.unwrap_or(DEFAULT_PERIOD_MS);
        let number = self.aggregate_for(arrival, &route);
        let flow = Flow {
            requested_by: match self.sessions.get(key) {
                // The answer of the other end to what a user of this host asked for.
                Some(session) if session.is_of_this_host() => session.requested_by(),
                _ => arrival.requested_by(),
            },
            mark_dscp: number.and_then(|number| self.config.aggregates.get(number)).map(|a| a.dscp),
            ..self.flow_of(key, message, arrival, &route, period)
        };
        let keep = !message.flags.contains(MessageFlags::REPLACE);
        let old = self.sessions.get(key).and_then(|s| s.grant.get());
        let other_flow =
            self.sessions.get(key).is_some_and(|s| s.rsn_in.is_some() && !s.has_mri(&arrival.mri));
        let kept = self.sessions.get(key).map_or(0, |s| s.rare.kept.len());
        if keep && other_flow && kept >= usize::from(self.config.max_bound) {
            let note = Some("max_bound: too many flows of one session");
            return self.answer(arrival, message, Info::RESERVATION_FAILURE, note);
        }
        // With REPLACE clear, the grant of the other flow stays and this flow gets another one.
        let old = old.filter(|_| !(keep && other_flow));
        let qspec = message.qspec.unwrap_or_default();
        match rmf::reserve(resources, self.now, &flow, qspec, old) {
            Err(refusal) => {
                self.counters.refused += 1;
                tracing::debug!(
                    session = %arrival.session,
                    reason = refusal.note.as_deref(),
                    "RESERVE refused by admission control"
                );
                if opened {
                    self.close(key, resources);
                }
                self.answer_with(
                    arrival,
                    message,
                    refusal.info,
                    refusal.qspec.as_deref(),
                    (refusal.note.as_deref(), refusal.available),
                );
                self.trigger(message, arrival, false);
            }
            Ok(given) => {
                self.counters.granted += 1;
                tracing::debug!(
                    session = %arrival.session,
                    grant = given.grant.map(|grant| grant.0),
                    rate = given.rate,
                    "RESERVE granted"
                );
                let rate = given.rate;
                let mut outcome = self.install(key, message, arrival, given, keep && other_flow, opened);
                if let Some(number) = number {
                    let (nslp, waits_for) = self.join_aggregate(key, number, rate, &route);
                    if let Some(session) = invariant!(self.sessions.get_mut(key), "a member has a session") {
                        session.nslp_next = nslp;
                        session.rare.change(|rare| rare.waits_for = waits_for);
                    }
                    outcome.waits_for = waits_for;
                }
                self.proceed(key, message, arrival, outcome);
                self.trigger(message, arrival, true);
                self.stands(key, message, outcome.changed);
            }
        }
    }

    /// Why a RESERVE is refused whatever admission control has; `None`: it is not.
    fn unacceptable(
        &mut self,
        key: Option<Key>,
        message: &Message<'_>,
        arrival: &Arrival,
        holder: Holder,
    ) -> Option<(Info, Option<&'static str>)> {
        if message.classifier.is_some_and(|classifier| !classifier.fits(&arrival.mri)) {
            self.counters.malformed += 1;
            tracing::debug!(
                session = %arrival.session,
                reason = "classifier does not fit the flow",
                "RESERVE refused"
            );
            return Some((Info::BAD_VALUE, None));
        }
        if message.bound_sessions.len() > usize::from(self.config.max_bound) {
            return Some((Info::RESERVATION_FAILURE, Some("max_bound: too many sessions")));
        }
        let room = self.has_room(key, holder, message);
        (!room).then_some((Info::RESERVATION_FAILURE, Some("max_contents_size: in use")))
    }

    /// The flow of a RESERVE or QUERY, for admission control. The lifetime follows from the refresh period, in milliseconds.
    #[inline]
    pub(super) fn flow_of<'m>(
        &self,
        key: Key,
        message: &Message<'m>,
        arrival: &Arrival,
        route: &Route,
        period: u32,
    ) -> Flow<'m> {
        Flow {
            key,
            session: arrival.session,
            mri: arrival.mri,
            classifier: message.classifier,
            ifindex: (!route.local).then_some(route.ifindex),
            mtu: route.mtu,
            initiator: arrival.initiator(),
            peer: arrival.peer.clone(),
            requested_by: arrival.requested_by(),
            auth: message.auth,
            lifetime: self.config.lifetime(period),
            mark_dscp: None,
        }
    }

    /// Stores the contents of a granted RESERVE.
    fn install(
        &mut self,
        key: Key,
        message: &Message<'_>,
        arrival: &Arrival,
        given: rmf::LocalGrant,
        keeps: bool,
        opened: bool,
    ) -> Outcome {
        self.notify_replaced_peer(key, message, arrival);
        let began_again = self.sessions.get(key).is_some_and(|session| session.stage == Stage::Torn);
        self.set_stage(key, Stage::Reserved);
        let nslp_next = self.nslp_towards_qnr(arrival);
        let lifetime = |period| self.config.lifetime(period);
        let period = message.refresh_period.unwrap_or(DEFAULT_PERIOD_MS);
        let expires = self.now + lifetime(period);
        let silent = self.now + lifetime(period);
        let target = self.config.period_ms();
        let ends = arrival.at_flow_end || super::binding::ends_at_proxy(&self.config, message);
        let gap = self.after_gap(arrival) && !self.config.ignore_gaps;
        let jitter = self.rng.jitter(self.config.refresh, 0.5, 1.5);
        let Some(session) = invariant!(self.sessions.get_mut(key), "a grant has a session") else {
            return Outcome::default();
        };
        let absorbed = session.marks.has(Marks::REROUTING);
        session.marks.set(Marks::REROUTING, false);
        let first = session.rsn_in.is_none();
        if session.stands_in() {
            session.marks.set(Marks::QNI, false);
            session.local = None;
            session.pending.clear();
        }
        let other_peer = !first && session.previous_peer() != arrival.sii;
        if other_peer {
            self.counters.peer_changes += 1;
            tracing::debug!(session = %session.id, peer = ?arrival.sii, "previous peer changed");
            let old = session.previous_peer().map(|sii| (sii, silent));
            session.rare.change(|rare| rare.old_previous_peer = old);
            session.marks.set(Marks::PREVIOUS_NOTIFIED, false);
            session.marks.set(Marks::ROUTE_UNSETTLED, true);
        }
        let restarted = session.rsn_in.get().map(|rsn| rsn.epoch) != message.rsn.map(|rsn| rsn.epoch);
        let other_flow = !session.has_mri(&arrival.mri);
        // §5.2.5.2: after a change of the peer without a change of the route, the RESERVE comes from the same peer with RSN + 2 and the same
        // contents.
        let number = message.rsn.unwrap_or_default().number;
        let distance = number.wrapping_sub(session.rsn_in.get().unwrap_or_default().number);
        let other = opened || first || other_peer || restarted || other_flow;
        let changed = other || distance != 2 || *session.qspec != *given.qspec;
        // The next nodes have the reservation already, under the RSN that they have, and have said so.
        let same = !began_again && *session.qspec == *given.qspec;
        let absorbed = absorbed && session.is_answered() && same;
        if !same {
            session.marks.set(Marks::UNANSWERED, true);
        }
        if keeps && let Some(grant) = session.grant.take() {
            let mri = session.mri();
            session.rare.change(|rare| rare.kept.push((mri, grant)));
        }
        session.grant = given.grant.into();
        session.ifindex = given.ifindex;
        session.rate = given.rate;
        session.set_previous_peer(arrival.sii);
        session.state = arrival.state.into();
        session.end_report(arrival.sii);
        // The former peer is this one, which has another identity since it started again.
        if other_peer && arrival.peer_address.is_some() && arrival.peer_address == session.source.address {
            session.rare.change(|rare| rare.report = None);
        }
        session.set_mri(&arrival.mri);
        session.nslp_previous = arrival.nslp;
        session.nslp_next = nslp_next;
        session.hops = Some(arrival.hops);
        session.marks.set(Marks::UNCOUNTED, !arrival.counted);
        session.rsn_in = message.rsn.into();
        session.classifier = message.classifier;
        session.qspec = shared_qspec(&mut self.qspecs, &given.qspec);
        session.rare.change(|rare| {
            (rare.path_check, rare.request) = (None, None);
            copy_objects(&mut rare.auth, &message.auth);
            copy_objects(&mut rare.refreshed, &message.refreshed);
        });
        session.period_in = period;
        session.expires = expires.into();
        session.period_out = super::refresh::slewed(session.period_out, target);
        let marks = &mut session.marks;
        marks.set(Marks::QNR, ends);
        marks.set(Marks::SCOPED, message.generic.contains(GenericFlags::SCOPING));
        marks.set(Marks::PROXY, message.generic.contains(GenericFlags::PROXY));
        marks.set(Marks::BREAK, message.generic.contains(GenericFlags::BREAK) || gap);
        marks.set(Marks::NO_REPLACE, !message.flags.contains(MessageFlags::REPLACE));
        if changed && !absorbed {
            marks.set(Marks::CONFIRMED, false);
            // The session stood before: if its tear was lost, the next node has it still, under a number of this node.
            if number >= CONTINUED && session.rsn_out.is_none() {
                session.rsn_out = Some(rsn_by_time(self.now));
            }
            session.next_rsn();
        }
        if session.refresh_at == Moment::NEVER {
            session.refresh_at = (self.now + jitter).into();
        }
        if session.is_asked_for(&session.qspec) {
            session.pending.retain(|p| p.kind != RequestKind::ReserveInit);
        }
        self.set_source(key, &Source::by(arrival));
        self.bind(key, &message.bound_sessions);
        self.ask_who_forgot(message, arrival);
        self.verify_route(key);
        Outcome { changed, waits_for: None, absorbed }
    }

    /// Reports a reservation to its user at the QNR, and starts the reverse direction of a bidirectional one.
    fn stands(&mut self, key: Key, message: &Message<'_>, changed: bool) {
        let until = self.now + self.config.request_retry.saturating_mul(2);
        let Some(session) = self.sessions.get_mut(key) else { return };
        if !session.marks.has(Marks::QNR) {
            return;
        }
        let asked_for = session.is_asked_for(&session.qspec);
        let (id, gaps) = (session.id, session.has_gaps());
        let quality = rmf::quality(&session.qspec);
        // In the order of the flow, the last node that granted is the first.
        let own = session.ifindex.and_then(|ifindex| self.interfaces.on(ifindex, session.mri().dst()));
        let own = own.map(|address| Hop::new(address, Part::Rate(session.rate)));
        if let Some(local) = session.local.as_mut() {
            let first = !local.granted;
            local.granted |= asked_for;
            let mut hops: Vec<HopGrant> =
                message.hops.map(|hops| hops.iter().map(HopGrant::from).collect()).unwrap_or_default();
            hops.extend(own.map(HopGrant::from));
            hops.reverse();
            // The receiver reserves, which is the end of the flow unless a node before it stands in.
            let granted = Granted { session: id, quality, hops, gaps, far_end: None, back: None };
            match local.command.filter(|_| first) {
                Some(command) if asked_for => {
                    (local.unreported, local.report_by) = (None, None);
                    self.out.event(command, QosEvent::Granted(granted));
                }
                Some(_) => {
                    local.unreported = Some(Box::new(granted));
                    local.report_by.get_or_insert(until);
                }
                None => {}
            }
        }
        self.reverse_direction_granted(id);
        self.start_reverse_direction(key, changed);
    }

    /// Reduces the grant to the QoS Reserved of a RESPONSE (RFC 5975 §4.3).
    pub(super) fn trim(&mut self, key: Key, message: &Message<'_>, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get(key), "a trimmed grant has a session") else {
            return;
        };
        if let (Some(qspec), Some(grant)) = (message.qspec, session.grant.get()) {
            let flow = super::reroute::flow_of(&self.config, key, session);
            let rate = rmf::trim(resources, self.now, &flow, qspec, grant, session.rate);
            if let Some(session) = invariant!(self.sessions.get_mut(key), "a trim keeps its session") {
                session.rate = rate;
            }
        }
    }

    /// The NSLPID of messages to the next peer.
    fn nslp_towards_qnr(&self, arrival: &Arrival) -> signalbox_core::NslpId {
        // The end of an aggregation region restores the default (§3.3.1).
        if Some(arrival.nslp) == self.config.bypass_nslp { self.config.nslp } else { arrival.nslp }
    }

    /// Forwards a granted RESERVE, or answers it at the end of the path (RFC 5974 §5.4.1).
    fn proceed(&mut self, key: Key, message: &Message<'_>, arrival: &Arrival, outcome: Outcome) {
        let Some(session) = invariant!(self.sessions.get(key), "a granted RESERVE stays") else { return };
        let hops = self.hops_with_own(message.hops, arrival, session.rate);
        let hops = hops.as_deref().and_then(Hops::from_octets);
        let info = if outcome.changed { Info::RESERVED } else { Info::REFRESHED };
        let bound = self.unsettled(message, arrival);
        let Some(session) = invariant!(self.sessions.get_mut(key), "hops are of a session") else { return };
        let until = self.now + self.config.retry_max;
        if session.is_end() {
            if let Some(rii) = message.rii {
                self.respond(key, rii, info, hops);
            }
            self.acknowledge(arrival, message, message.rsn);
        }
        let Some(session) = invariant!(self.sessions.get_mut(key), "an answer ends no session") else {
            return;
        };
        if session.marks.has(Marks::QNR) || session.marks.has(Marks::SCOPED) {
            return;
        }
        if outcome.absorbed {
            // This node asked for the repair after the path on the side of the QNI changed: the RESERVE is not
            // forwarded.
            if let Some(rii) = message.rii {
                self.respond(key, rii, Info::RESERVED, hops);
            }
            return;
        }
        // A node without a next peer has answered. It still looks for one.
        let rii = message.rii.filter(|_| !session.marks.has(Marks::LAST_NODE));
        if let Some(rii) = rii {
            session.note(rii, until, arrival.hops);
        }
        let extra = Extra {
            rii,
            hops,
            msg_id: message.msg_id.filter(|_| outcome.waits_for.is_none()),
            bound_msg_id: outcome.waits_for.or(bound),
            forwarded: Some(message.forwarded),
            gist_hops: Some(arrival.hops),
            sii: session.explicit_next(),
            ..Extra::default()
        };
        if self.send_reserve(key, Form::Full, extra).is_some() {
            self.counters.reserves_sent += 1;
        }
    }

    /// The list of hops with an entry of this node: the rate that it reserved or could reserve. A full list is
    /// returned unchanged.
    pub(super) fn hops_with_own(
        &self,
        hops: Option<Hops<'_>>,
        arrival: &Arrival,
        rate: u64,
    ) -> Option<Vec<u8>> {
        let mut octets = hops?.octets().to_vec();
        if let Some(address) = self.interfaces.on(arrival.ifindex, arrival.mri.dst()) {
            let after_gap = self.after_gap(arrival);
            let routers = if after_gap { arrival.ip_distance } else { 0 };
            Hop { after_gap, routers, ..Hop::new(address, Part::Rate(rate)) }.append(&mut octets);
        }
        Some(octets)
    }

    /// Answers a RESERVE that ends here with success (RFC 5974 §5.4.3).
    pub(super) fn respond(&mut self, key: Key, rii: u32, info: Info, hops: Option<Hops<'_>>) {
        let Some(session) = invariant!(self.sessions.get(key), "an answer has a session") else { return };
        let qspec = rmf::answer(&session.qspec, false);
        let response = self.success(session, rii, info, qspec.as_deref(), hops);
        self.send_response(Target::towards_initiator(session), &response);
    }

    /// A RESPONSE of class Success (RFC 5974 §5.4.3).
    pub(super) fn success<'a>(
        &self,
        session: &Session,
        rii: u32,
        info: Info,
        qspec: Option<&'a [u8]>,
        hops: Option<Hops<'a>>,
    ) -> Message<'a> {
        let source = self.own_source(session);
        let info = Some(InfoSpec { source, ..InfoSpec::from(info) });
        let generic = generic_back(session);
        Message { generic, rii: Some(rii), info, qspec, hops, ..Message::new(MessageType::RESPONSE) }
    }

    /// The source of an INFO-SPEC of this node.
    pub(super) fn own_source(&self, session: &Session) -> crate::wire::Source<'static> {
        let on = session.ifindex.unwrap_or_default();
        self.interfaces
            .on(on, session.mri().dst())
            .map_or(crate::wire::Source::None, crate::wire::Source::Address)
    }
}

/// Copies objects into `into`.
pub(super) fn copy_objects(into: &mut RareVec<u8>, objects: &Carried<'_>) {
    if objects.is_empty() {
        return into.clear();
    }
    let into: &mut Vec<u8> = into;
    into.clear();
    objects.write(&mut signalbox_wire::Writer::new(into));
}
