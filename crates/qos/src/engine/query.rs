//! QUERYs (RFC 5974 §5.4.2): the QoS that a path can give, and the request that the receiver reserves.

use signalbox_core::node::{NoRoute, Route};
use signalbox_core::slab::Key;
use signalbox_core::stamp::Moment;
use signalbox_core::{Mri, invariant};
use signalbox_resources::Resources;
use signalbox_wire::Writer;

use super::Qos;
use super::again::rsn_by_time;
use super::compose::{Extra, Target};
use super::grant::copy_objects;
use super::holders::Holders;
use super::receive::Progress;
use super::rmf::{self, Flow};
use super::session::{Local, Marks, Origin, RequestKind, Stage};
use super::source::Source;
use super::table::shared_qspec;
use super::waiting::Arrival;
use crate::wire::{Carried, GenericFlags, Hop, Hops, Info, Message, MessageType, Part};

impl Qos {
    pub(super) fn on_query(
        &mut self,
        message: &Message<'_>,
        arrival: &Arrival,
        route: Option<Result<Route, NoRoute>>,
        resources: &mut Resources,
    ) -> Progress {
        let init = message.is_reserve_init();
        if message.rii.is_none() && !init {
            // §5.1.2.2: a QUERY without RESERVE-INIT has an RII. Without one it cannot be answered.
            self.counters.malformed += 1;
            tracing::debug!(
                session = %arrival.session,
                reason = "neither RII nor RESERVE-INIT",
                "QUERY refused"
            );
            self.answer(arrival, message, Info::MISSING_OBJECT, None);
            return Progress::Done;
        }
        let known = self.find(arrival.session);
        if let (Some(key), Some(rii)) = (known, message.rii)
            && self.sessions.get(key).is_some_and(|s| s.pending.iter().any(|p| p.rii == rii))
        {
            self.counters.rii_conflicts += 1;
            tracing::debug!(session = %arrival.session, reason = "RII conflict", "QUERY refused");
            self.answer(arrival, message, Info::RII_CONFLICT, None);
            return Progress::Done;
        }
        if route.is_none() && self.goes_no_further(message, arrival, resources) {
            return Progress::Done;
        }
        if init
            && let Some(key) = known
            && self.is_reserved(key)
        {
            let other = self.asks_for_other(key, message);
            // With its route it comes for the second time.
            let on_path = (other && route.is_some()) || self.on_repair_query(key, message, arrival, other);
            if !(other && on_path) {
                return Progress::Done;
            }
        }
        let Some(route) = route else { return Progress::NeedsRoute };
        let Ok(route) = route else {
            self.answer(
                arrival,
                message,
                Info::RESERVATION_FAILURE,
                Some("no route to the flow's destination"),
            );
            return Progress::Done;
        };
        self.pass_query(known, message, arrival, &route, resources);
        Progress::Done
    }

    pub(super) fn is_reserved(&self, key: Key) -> bool {
        self.sessions.get(key).is_some_and(|s| s.stage == Stage::Reserved)
    }

    /// Whether a QUERY with RESERVE-INIT asks for something else than what is reserved: its user asks again, with the session of an
    /// earlier request. It goes on to the receiver.
    fn asks_for_other(&self, key: Key, message: &Message<'_>) -> bool {
        let Some(session) = self.sessions.get(key) else { return false };
        message.qspec.is_some_and(|asked| !rmf::answers(&session.qspec, asked))
    }

    /// Handles a QUERY of a receiver-initiated session whose path before this node changed. The QUERY finds the new
    /// path. It ends where the old path is met again, and that node sends a RESERVE along the new one (RFC 5974
    /// §3.2.12), unless it asks for something else (`other`). False: it comes from where no sender can be.
    fn on_repair_query(&mut self, key: Key, message: &Message<'_>, arrival: &Arrival, other: bool) -> bool {
        if !other {
            self.acknowledge(arrival, message, None);
        }
        let gap = self.after_gap(arrival) && !self.config.ignore_gaps;
        let Some(session) = self.sessions.get_mut(key) else { return false };
        if session.direction == arrival.mri.direction() {
            self.counters.wrong_direction += 1;
            tracing::debug!(session = %arrival.session, reason = "wrong direction", "QUERY dropped");
            return false;
        }
        session.state = arrival.state.into();
        session.query_hops = Some(arrival.hops);
        session.marks.set(Marks::BREAK_BEHIND, message.generic.contains(GenericFlags::BREAK) || gap);
        if session.next_peer() == arrival.sii || session.next_peer().is_none() {
            // The path is unchanged here, or the QUERY is a retransmission; unless this node was off the path.
            let confirmed = session.marks.has(Marks::CONFIRMED) && session.pending.is_empty();
            if session.marks.has(Marks::OFF_PATH) {
                session.marks.set(Marks::OFF_PATH, false);
                self.ask_again_downstream(key);
            } else if confirmed && !other && !session.checks_path() {
                // The next peer has confirmed the reservation, and has lost it since, as a host does whose daemon crashes.
                session.marks.set(Marks::CONFIRMED, false);
                self.send_whole(key, RequestKind::Repair);
            }
            return true;
        }
        if arrival.sii.is_some_and(|sii| session.is_previous_peer(self.now, sii)) {
            self.counters.old_peer += 1;
            tracing::debug!(
                session = %arrival.session,
                peer = ?arrival.sii,
                reason = "from the previous peer",
                "QUERY dropped"
            );
            return false; // It comes from a node that is off the path
        }
        self.counters.peer_changes += 1;
        tracing::debug!(session = %arrival.session, peer = ?arrival.sii, "next peer changed");
        self.repair(key, arrival.sii);
        true
    }

    /// Queries the resources of this node, and forwards the QUERY or answers it (RFC 5974 §5.4.2).
    fn pass_query(
        &mut self,
        known: Option<Key>,
        message: &Message<'_>,
        arrival: &Arrival,
        route: &Route,
        resources: &mut Resources,
    ) {
        let init = message.is_reserve_init();
        let proxy_end = self.config.proxy && message.generic.contains(GenericFlags::PROXY);
        let stands_in = init
            && known
                .and_then(|key| self.sessions.get(key))
                .is_some_and(|session| session.stage == Stage::Reserved && session.stands_in());
        let scoping = message.generic.contains(GenericFlags::SCOPING);
        let end = arrival.at_flow_end || proxy_end || stands_in || scoping;
        if init && (arrival.at_flow_end || proxy_end) && !self.config.accept_reserve_init {
            let note = Some("no reservation is expected to begin here");
            return self.answer(arrival, message, Info::AUTHORISATION, note);
        }
        let holder = Holders::of(arrival.peer_address);
        if !self.has_room(known, holder, message) {
            let note = Some("max_contents_size: in use");
            return self.answer(arrival, message, Info::RESERVATION_FAILURE, note);
        }
        // The receiver may still tear down what the sender asked for before, with this session.
        let known = known.filter(|_| !init || !self.may_continue(arrival.session, resources));
        let opened = known.is_none();
        // RESERVEs go in the direction opposite to a QUERY with RESERVE-INIT, and in the direction of any other QUERY.
        let mri = if init { arrival.mri.inverted() } else { arrival.mri };
        let key = match known {
            Some(key) => key,
            None => match self.open(arrival.session, mri, arrival.nslp, true, holder) {
                Ok(key) => key,
                Err(_) => {
                    let note = Some("max_queries: all in use");
                    return self.answer(arrival, message, Info::RESERVATION_FAILURE, note);
                }
            },
        };
        let flow = self.flow_of(key, message, arrival, route, self.config.period_ms());
        let (qspec, available) =
            match rmf::query(resources, self.now, &flow, message.qspec.unwrap_or_default(), !init) {
                Ok(passed) => passed,
                Err(refusal) => {
                    if opened {
                        self.close(key, resources);
                    }
                    let (qspec, note) = (refusal.qspec.as_deref(), refusal.note.as_deref());
                    let told = (note, refusal.available);
                    return self.answer_with(arrival, message, refusal.info, qspec, told);
                }
            };
        let hops = self.hops_with_own(message.hops, arrival, available);
        let hops = hops.as_deref().and_then(Hops::from_octets);
        self.store_query(key, message, arrival, &qspec);
        self.acknowledge(arrival, message, None);
        if end {
            if let Some(rii) = message.rii {
                self.respond_query(key, rii, arrival.mri, hops);
            }
            if init && !scoping {
                self.begin_for_sender(key, route, resources);
            }
            return;
        }
        self.forward_query(key, message, arrival, hops);
    }

    /// Stores the contents of a QUERY, and QSPEC as this node sends it on.
    fn store_query(&mut self, key: Key, message: &Message<'_>, arrival: &Arrival, qspec: &[u8]) {
        let init = message.is_reserve_init();
        let nslp =
            if Some(arrival.nslp) == self.config.bypass_nslp { self.config.nslp } else { arrival.nslp };
        let gap = self.after_gap(arrival) && !self.config.ignore_gaps;
        // What began here keeps its own contents.
        let bare = self.sessions.get(key).is_some_and(|s| s.stage == Stage::Path && s.local.is_none());
        let until = self.now + self.config.retry_max;
        let Some(session) = self.sessions.get_mut(key) else { return };
        let qspec = shared_qspec(&mut self.qspecs, qspec);
        session.rare.change(|rare| rare.init_qspec = Some(qspec));
        session.query_hops = Some(arrival.hops);
        session.state = arrival.state.into();
        session.marks.set(Marks::PROXY, message.generic.contains(GenericFlags::PROXY));
        // A QUERY with RESERVE-INIT comes from where the RESERVEs go.
        let side = if init { Marks::BREAK_BEHIND } else { Marks::BREAK };
        session.marks.set(side, message.generic.contains(GenericFlags::BREAK) || gap);
        if bare {
            session.marks.set(Marks::RECEIVER_INITIATED, init);
            session.expires = until.into();
            session.classifier = message.classifier;
            if init {
                session.nslp_next = arrival.nslp;
                session.nslp_previous = nslp;
            } else {
                session.nslp_previous = arrival.nslp;
                session.nslp_next = nslp;
            }
            session.rare.change(|rare| {
                copy_objects(&mut rare.bound, &message.bound_sessions);
                copy_objects(&mut rare.auth, &message.auth);
                copy_objects(&mut rare.refreshed, &message.refreshed);
            });
            self.set_source(key, &Source::by(arrival));
        } else if session.stage == Stage::Torn && session.expires.get().is_some_and(|at| at < until) {
            // A RESERVE follows for a session whose end is remembered.
            session.expires = until.into();
        }
    }

    /// Sends a QUERY to the next node, with this node's row in `hops`.
    fn forward_query(&mut self, key: Key, message: &Message<'_>, arrival: &Arrival, hops: Option<Hops<'_>>) {
        let init = message.is_reserve_init();
        let until = self.now + self.config.retry_max;
        let Some(session) = invariant!(self.sessions.get_mut(key), "a passed QUERY has a session") else {
            return;
        };
        if let Some(rii) = message.rii {
            session.note(rii, until, arrival.hops);
        }
        let extra = Extra {
            rii: message.rii,
            hops,
            forwarded: Some(message.forwarded),
            gist_hops: Some(arrival.hops),
            ..Extra::default()
        };
        self.send_query(key, arrival.mri, init, extra);
    }

    /// Answers a QUERY that ends here. `mri` is its flow, in the direction of the QUERY.
    pub(super) fn respond_query(&mut self, key: Key, rii: u32, mri: Mri, hops: Option<Hops<'_>>) {
        let Some(session) = invariant!(self.sessions.get(key), "an answer has a session") else { return };
        let qspec = rmf::answer(session.init_qspec(), true);
        let response = self.success(session, rii, Info::RESERVED, qspec.as_deref(), hops);
        tracing::debug!(session = %session.id, "QUERY answered");
        let same = mri.direction() == session.direction;
        let nslp = if same { session.nslp_previous } else { session.nslp_next };
        let (mri, state) = (mri.inverted(), session.state.get());
        let to = Target { session: session.id, mri, nslp, state, sii: None, gist_hops: None };
        self.send_response(to, &response);
    }

    /// Makes this node the QNI: the flow ends here, and its sender asked for a RESERVE (RFC 5974 §4.3). If this node has reserved
    /// for it already, and the sender asks for something else now, that is reserved.
    pub(super) fn begin_for_sender(&mut self, key: Key, route: &Route, resources: &mut Resources) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(qspec) = rmf::reserve_for(session.init_qspec()) else { return };
        let other = !rmf::answers(&session.qspec, session.init_qspec());
        match (session.stage, session.local.as_mut()) {
            (Stage::Path, None) => {
                session.marks.set(Marks::QNI, true);
                session.expires = Moment::NEVER;
                session.rsn_out = Some(rsn_by_time(self.now));
                session.local = Some(Box::new(Local::of(None, Origin::ForSender)));
            }
            (Stage::Reserved, Some(local)) if other && matches!(local.origin, Origin::ForSender) => {
                local.granted = false;
            }
            // Meanwhile a RESERVE may have come, or the session may have ended.
            _ => return,
        }
        self.set_stage(key, Stage::Reserved);
        self.reserve_from_here(key, &qspec, route, resources);
    }

    /// Sends a QUERY with RESERVE-INIT downstream after the downstream path of a receiver-initiated session changed
    /// (RFC 5974 §3.2.12).
    pub(super) fn ask_again_downstream(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a question has a session") else {
            return;
        };
        let asked = session.pending.iter().any(|p| p.kind == RequestKind::ReserveInit);
        if session.init_qspec().is_empty() || asked {
            return;
        }
        session.marks.set(Marks::REROUTING, true);
        let mri = session.mri().inverted();
        let rii = self.new_rii(key);
        if let Some(octets) = self.send_query(key, mri, true, Extra { keep: true, ..Extra::default() }) {
            self.expect(key, rii, RequestKind::ReserveInit, octets);
        }
    }

    /// Handles a QUERY without a next node.
    pub(super) fn query_ends_here(&mut self, key: Key, rii: Option<u32>) {
        let Some(session) = invariant!(self.sessions.get(key), "an end has a session") else { return };
        let receiver = session.marks.has(Marks::RECEIVER_INITIATED);
        let query_mri = if receiver { session.mri().inverted() } else { session.mri() };
        if let Some(rii) = rii {
            self.respond_query(key, rii, query_mri, None);
        }
        let Some(session) = invariant!(self.sessions.get(key), "an answer ends no session") else { return };
        let ours = session.local.is_some() || session.stage != Stage::Path;
        if receiver && !ours && self.config.accept_reserve_init {
            // No node nearer to the receiver can reserve: this node does it for the receiver (§5.4.2). The route was
            // looked up when the QUERY came; admission control needs it again.
            let mri = session.mri();
            let query = super::waiting::route_query(&mri);
            self.look_up(super::waiting::Waiting::ForSender(key), query);
        }
    }

    /// Reports the RESPONSE to a QUERY to the user.
    pub(super) fn answered(&mut self, key: Key, message: &Message<'_>, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get(key), "an event has a session") else { return };
        // A peer may have reserved the session of the QUERY, and its reservation ended.
        let Some(command) = session.local.as_ref().and_then(|local| local.command) else { return };
        let hops: Vec<super::HopGrant> =
            message.hops.map(|hops| hops.iter().map(Into::into).collect()).unwrap_or_default();
        let far_end = super::initiator::far_end(message.hops);
        let answer = super::Answer {
            session: session.id,
            available: message.qspec.map(rmf::quality).unwrap_or_default(),
            far_end,
            hops,
            gaps: session.has_gaps(),
        };
        self.out.event(command, super::QosEvent::Answer(answer));
        self.close(key, resources);
    }

    /// Reports the own resources to the user: no other node is on the path.
    pub(super) fn answered_alone(&mut self, key: Key, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get(key), "a lone QUERY has a session") else { return };
        let qspec = rmf::answer(session.init_qspec(), true);
        let message = Message { qspec: qspec.as_deref(), ..Message::new(MessageType::RESPONSE) };
        self.answered(key, &message, resources);
    }

    /// Starts a QUERY for a user (RFC 5974 §4.2).
    pub(super) fn begin_query(
        &mut self,
        id: u64,
        request: super::QueryRequest,
        route: &Route,
        resources: &mut Resources,
    ) -> Result<(), super::Refusal> {
        let src = request.flow.src.or(Some(route.src));
        let mri = super::Flow { src, ..request.flow }.mri(signalbox_core::Direction::Downstream)?;
        let auth = super::initiator::auth_object(request.token.as_deref());
        let qspec = rmf::initial(&request.qos, None, rmf::CarriedBy::Query);
        let (proxy, scoping) = (request.proxy, request.next_node_only);
        let session = self.rng.session_id();
        let key = self.open_local(id, session, mri, true, Origin::Query)?;
        if let Some(session) = invariant!(self.sessions.get_mut(key), "a new QUERY has a session") {
            session.marks.set(Marks::PROXY, proxy);
            session.rare.change(|rare| rare.auth = auth.into());
        }
        self.query_path(key, &qspec, mri, route, scoping, RequestKind::Query, resources);
        Ok(())
    }

    /// Starts a receiver-initiated reservation for a user (RFC 5974 §4.3).
    pub(super) fn begin_receiver_initiated(
        &mut self,
        id: u64,
        request: Box<super::ReserveRequest>,
        route: &Route,
        resources: &mut Resources,
    ) -> Result<(), super::Refusal> {
        let src = request.flow.src.or(Some(route.src));
        let mri = super::Flow { src, ..request.flow }.mri(signalbox_core::Direction::Downstream)?;
        let auth = super::initiator::auth_object(request.token.as_deref());
        let qspec = rmf::initial(&request.qos, request.priority, rmf::CarriedBy::Init);
        let proxy = request.proxy;
        let hold_until = request.hold.map(|hold| self.now + hold);
        let session = self.choose_sessions(&request, resources).session;
        let key = self.open_local(id, session, mri.inverted(), true, Origin::Reserve(request))?;
        if let Some(session) = invariant!(self.sessions.get_mut(key), "a new request has a session") {
            session.marks.set(Marks::PROXY, proxy);
            session.marks.set(Marks::RECEIVER_INITIATED, true);
            session.marks.set(Marks::QNR, true);
            session.rare.change(|rare| rare.auth = auth.into());
            if let Some(local) = invariant!(session.local.as_mut(), "a new request has a user") {
                local.hold_until = hold_until;
            }
        }
        self.query_path(key, &qspec, mri, route, false, RequestKind::ReserveInit, resources);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "what the two kinds of QUERY differ in")]
    pub(super) fn query_path(
        &mut self,
        key: Key,
        qspec: &[u8],
        mri: Mri,
        route: &Route,
        scoping: bool,
        kind: RequestKind,
        resources: &mut Resources,
    ) {
        let Some(session) = invariant!(self.sessions.get(key), "a path has a session") else { return };
        let flow = Flow {
            key,
            session: session.id,
            mri,
            classifier: None,
            ifindex: (!route.local).then_some(route.ifindex),
            mtu: route.mtu,
            initiator: mri.src(),
            peer: session.source.peer.clone(),
            requested_by: session.requested_by(),
            auth: Carried::auth(&session.rare.auth),
            lifetime: self.config.lifetime(self.config.period_ms()),
            mark_dscp: None,
        };
        let (qspec, available) =
            match rmf::query(resources, self.now, &flow, qspec, kind == RequestKind::Query) {
                Ok(passed) => passed,
                Err(refusal) => {
                    // Whoever handles the refusal compares what was asked for with what is reserved.
                    let asked = shared_qspec(&mut self.qspecs, qspec);
                    if let Some(session) = self.sessions.get_mut(key) {
                        session.rare.change(|rare| rare.init_qspec = Some(asked));
                    }
                    let mut failure = super::response::own_failure(refusal.info, refusal.note.as_deref());
                    failure.available = refusal.available;
                    return self.on_refused(key, kind, failure, resources);
                }
            };
        if let Some(session) = invariant!(self.sessions.get_mut(key), "a question ends no session") {
            let qspec = shared_qspec(&mut self.qspecs, &qspec);
            session.rare.change(|rare| rare.init_qspec = Some(qspec));
        }
        let mut hops = Vec::new();
        if let Some(address) = self.interfaces.on(route.ifindex, mri.dst()) {
            Hop::new(address, Part::Rate(available)).write(&mut Writer::new(&mut hops));
        }
        let init = kind == RequestKind::ReserveInit;
        let rii = self.new_rii(key);
        // §4.3: a QUERY with RESERVE-INIT is answered by a RESERVE. It has no RII and no list of hops, because the
        // RESERVE has its own.
        let extra = Extra {
            rii: (!init).then_some(rii),
            hops: Hops::from_octets(&hops).filter(|_| !init),
            keep: true,
            scoping,
            ..Extra::default()
        };
        if let Some(octets) = self.send_query(key, mri, init, extra) {
            // It takes the place of an earlier question, which stays if this one cannot be sent.
            if let Some(session) = invariant!(self.sessions.get_mut(key), "a sent question has a session") {
                session.pending.retain(|pending| pending.kind != kind);
            }
            self.expect(key, rii, kind, octets);
        }
        self.rearm(key);
    }
}
