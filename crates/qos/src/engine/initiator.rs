//! Reservations and queries of users of this node (RFC 5974 §4.1 to §4.4).

use signalbox_core::node::{NoRoute, Route, RouteQuery};
use signalbox_core::slab::Key;
use signalbox_core::stamp::Moment;
use signalbox_core::{Direction, Mri, SessionId, invariant};
use signalbox_resources::Resources;
use signalbox_wire::Writer;

use super::Qos;
use super::again::{Chosen, rsn_by_time};
use super::command::{Command, ReserveRequest};
use super::compose::{Extra, Form};
use super::config::StateKeeping;
use super::event::{Failure, Granted, HopGrant, QosEvent, Refusal};
use super::response::source_text;
use super::rmf::{self, CarriedBy, Flow};
use super::session::{Before, Local, Marks, Origin, RequestKind, Stage};
use super::table::shared_qspec;
use super::waiting::Waiting;
use crate::wire::{BindingCode, BoundSession, Carried, Hop, Hops, Info, Message, Part, Source};

impl Qos {
    pub(super) fn on_command(&mut self, id: u64, command: Command, resources: &mut Resources) {
        match &command {
            Command::Release => return self.on_release(id, resources),
            Command::ReleaseMany(ids) => return self.on_release_many(ids, resources),
            Command::Reserve(_) | Command::Query(_) => {}
        }
        let checked = match &command {
            _ if self.config.state != StateKeeping::Stateful => Err(Refusal::Stateless),
            Command::Reserve(request) => request.check(),
            Command::Query(request) => request.check(),
            Command::Release | Command::ReleaseMany(_) => Ok(()),
        };
        let flow = match &command {
            Command::Reserve(request) => request.flow,
            Command::Query(request) => request.flow,
            Command::Release | Command::ReleaseMany(_) => return,
        };
        let full = u32::try_from(self.commands.len()).is_ok_and(|n| n >= self.config.max_commands);
        let known = self.commands.get(&id).copied();
        let refusal = match (checked, known, &command) {
            (Err(refusal), ..) => Some(refusal),
            (_, Some(key), Command::Reserve(request)) if self.may_change(key, request) => None,
            (_, Some(_), _) => Some(Refusal::IdInUse),
            (_, None, _) if full => Some(Refusal::TooMany),
            _ => None,
        };
        if let Some(refusal) = refusal {
            return self.out.event(id, QosEvent::Refused(refusal));
        }
        // The route gives the egress interface and, if the user gave none, the source address.
        let query = RouteQuery {
            src: flow.src,
            protocol: flow.protocol,
            src_port: flow.src_port,
            dst_port: flow.dst_port,
            tos: flow.dscp.unwrap_or(0) << 2,
            ..RouteQuery::to(flow.dst)
        };
        if !self.look_up(Waiting::Command(id, command), query) {
            self.out.event(id, QosEvent::Refused(Refusal::TooMany));
        }
    }

    /// Whether a running command can be changed to this request: the same kind of reservation, and this node is its
    /// QNI.
    fn may_change(&self, key: Key, request: &ReserveRequest) -> bool {
        let Some(local) =
            invariant!(self.sessions.get(key).and_then(|s| s.local.as_ref()), "a command has a user")
        else {
            return false;
        };
        let Origin::Reserve(old) = &local.origin else { return false };
        let same = (old.receiver_initiated, old.bidirectional, old.incoming, old.proxy)
            == (request.receiver_initiated, request.bidirectional, request.incoming, request.proxy);
        let ours = !request.receiver_initiated && !request.bidirectional;
        local.granted && !local.releasing && local.before.is_none() && same && ours
    }

    pub(super) fn on_routed_command(
        &mut self,
        id: u64,
        command: Command,
        route: Result<Route, NoRoute>,
        resources: &mut Resources,
    ) {
        // Another command of this id may have begun while the route was looked up.
        let known = self.commands.get(&id).copied();
        let outcome = match (route, command, known) {
            (Err(_), ..) => Err(Refusal::NoRoute),
            (Ok(route), Command::Reserve(request), Some(key)) if self.may_change(key, &request) => {
                self.change(key, request, &route, resources)
            }
            (Ok(_), Command::Reserve(_) | Command::Query(_), Some(_)) => Err(Refusal::IdInUse),
            (Ok(route), Command::Reserve(request), None) if request.receiver_initiated => {
                self.begin_receiver_initiated(id, request, &route, resources)
            }
            (Ok(route), Command::Reserve(request), None) => self.begin(id, request, &route, resources),
            (Ok(route), Command::Query(request), None) => self.begin_query(id, *request, &route, resources),
            (Ok(_), Command::Release | Command::ReleaseMany(_), _) => Ok(()),
        };
        if let Err(refusal) = outcome {
            self.out.event(id, QosEvent::Refused(refusal));
        }
    }

    fn begin(
        &mut self,
        id: u64,
        request: Box<ReserveRequest>,
        route: &Route,
        resources: &mut Resources,
    ) -> Result<(), Refusal> {
        let direction = if request.incoming { Direction::Upstream } else { Direction::Downstream };
        let mri = super::Flow { src: request.flow.src.or(Some(route.src)), ..request.flow }.mri(direction)?;
        let hold_until = request.hold.map(|hold| self.now + hold);
        let (proxy, keep_old) = (request.proxy || request.incoming, request.keep_old);
        let auth = auth_object(request.token.as_deref());
        let qspec = rmf::initial(&request.qos, request.priority, CarriedBy::Reserve);
        let Chosen { session, back, kept } = self.choose_sessions(&request, resources);
        let key = self.open_local(id, session, mri, false, Origin::Reserve(request))?;
        if let Some(record) = invariant!(self.sessions.get_mut(key), "a new session exists") {
            record.marks.set(Marks::PROXY, proxy);
            record.marks.set(Marks::NO_REPLACE, keep_old);
            record.rare.change(|rare| rare.auth = auth.into());
            // Nodes of the path may have the session from an earlier reservation of this user, with an RSN of this node.
            record.rsn_out = kept.then(|| rsn_by_time(self.now));
            if let Some(local) = record.local.as_mut() {
                local.hold_until = hold_until;
                local.reverse = back.map(|back| (back, false));
            }
        }
        if let Some(back) = back {
            let mut bound = Vec::new();
            let binding = BoundSession { code: BindingCode::BIDIRECTIONAL, session: back };
            if binding.write(&mut Writer::new(&mut bound)).is_ok() {
                self.bind(key, &Carried::bound_sessions(&bound));
            }
        }
        self.reserve_from_here(key, &qspec, route, resources);
        self.rearm(key);
        Ok(())
    }

    /// Makes the record of a session for a user, and reports the start.
    pub(super) fn open_local(
        &mut self,
        id: u64,
        session: SessionId,
        mri: Mri,
        asks: bool,
        origin: Origin,
    ) -> Result<Key, Refusal> {
        let key = self.open(session, mri, self.config.nslp, asks, None).map_err(|_| Refusal::TooMany)?;
        self.commands.insert(id, key);
        if let Some(record) = invariant!(self.sessions.get_mut(key), "an opened session exists") {
            record.marks.set(Marks::QNI, !asks);
            record.local = Some(Box::new(Local::of(Some(id), origin)));
        }
        let mri = if asks { mri.with_direction(Direction::Downstream) } else { mri };
        self.out.event(id, QosEvent::Started { session, mri });
        Ok(key)
    }

    /// Changes the QoS of a granted reservation.
    fn change(
        &mut self,
        key: Key,
        request: Box<ReserveRequest>,
        route: &Route,
        resources: &mut Resources,
    ) -> Result<(), Refusal> {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a change has a session") else {
            return Err(Refusal::NoApplication);
        };
        let src = request.flow.src.or(Some(route.src));
        let mri = super::Flow { src, ..request.flow }.mri(session.direction)?;
        let before = session.mri();
        let Some(local) = invariant!(session.local.as_mut(), "a change has a user") else {
            return Err(Refusal::NoApplication);
        };
        let qspec = rmf::initial(&request.qos, request.priority, CarriedBy::Reserve);
        let auth = auth_object(request.token.as_deref());
        local.hold_until = request.hold.map(|hold| self.now + hold);
        let old = core::mem::replace(&mut local.origin, Origin::Reserve(request));
        if let Origin::Reserve(request) = old {
            local.before = Some(Before { request, mri: before });
        }
        session.set_mri(&mri);
        session.rare.change(|rare| rare.auth = auth.into());
        self.reserve_from_here(key, &qspec, route, resources);
        self.rearm(key);
        Ok(())
    }

    /// Reserves at this node, then sends a RESERVE along the path.
    pub(super) fn reserve_from_here(
        &mut self,
        key: Key,
        qspec: &[u8],
        route: &Route,
        resources: &mut Resources,
    ) {
        let Some(session) = invariant!(self.sessions.get(key), "an own request has a session") else {
            return;
        };
        let flow = Flow {
            key,
            session: session.id,
            mri: session.mri(),
            classifier: session.classifier,
            ifindex: (!route.local).then_some(route.ifindex),
            mtu: route.mtu,
            initiator: super::reroute::initiator(session),
            peer: session.source.peer.clone(),
            requested_by: session.requested_by(),
            auth: Carried::auth(&session.rare.auth),
            lifetime: self.config.lifetime(self.config.period_ms()),
            mark_dscp: None,
        };
        let given = match rmf::reserve(resources, self.now, &flow, qspec, session.grant.get()) {
            Ok(given) => given,
            Err(refusal) => {
                self.counters.refused += 1;
                tracing::debug!(
                    session = %session.id,
                    reason = refusal.note.as_deref(),
                    "own request refused by admission control"
                );
                let source = self.interfaces.on(route.ifindex, session.mri().dst());
                let failure = Failure {
                    class: refusal.info.class.0,
                    code: refusal.info.code,
                    meaning: refusal.info.to_string(),
                    node: source_text(&source.map_or(Source::None, Source::Address)),
                    rule: refusal.note,
                    available: refusal.available,
                    hops: Vec::new(),
                };
                if let Some(qspec) = self.smaller_request(key, RequestKind::Reserve, &failure) {
                    return self.reserve_from_here(key, &qspec, route, resources);
                }
                return self.on_refused(key, RequestKind::Reserve, failure, resources);
            }
        };
        self.counters.granted += 1;
        tracing::debug!(
            session = %flow.session,
            grant = given.grant.map(|grant| grant.0),
            rate = given.rate,
            "own request granted here"
        );
        let Some(session) = invariant!(self.sessions.get_mut(key), "an own grant has a session") else {
            return;
        };
        session.stage = Stage::Reserved;
        session.grant = given.grant.into();
        session.ifindex = given.ifindex;
        session.rate = given.rate;
        session.qspec = shared_qspec(&mut self.qspecs, &given.qspec);
        session.marks.set(Marks::CONFIRMED, false);
        session.next_rsn();
        // The new request replaces all earlier ones.
        session.pending.clear();
        let own = self.interfaces.on(route.ifindex, session.mri().dst());
        let own = own.map(|address| Hop::new(address, Part::Rate(session.rate)));
        if let Some(local) = invariant!(session.local.as_mut(), "an own grant has an origin") {
            local.hops = own.iter().copied().map(HopGrant::from).collect();
        }
        if session.refresh_at == Moment::NEVER {
            session.refresh_at = (self.now + self.rng.jitter(self.config.refresh, 0.5, 1.5)).into();
        }
        let mut hops = Vec::new();
        if let Some(own) = own {
            own.write(&mut Writer::new(&mut hops));
        }
        self.request_from_path(key, RequestKind::Reserve, &hops);
    }

    /// Sends the RESERVE of a session that begins here, with an RII (RFC 5974 §5.4.1).
    pub(super) fn request_from_path(&mut self, key: Key, kind: RequestKind, hops: &[u8]) {
        let rii = self.new_rii(key);
        let scoping =
            self.sessions.get(key).and_then(|s| s.local.as_ref()).is_some_and(
                |local| matches!(&local.origin, Origin::Reserve(request) if request.next_node_only),
            );
        let extra =
            Extra { rii: Some(rii), hops: Hops::from_octets(hops), keep: true, scoping, ..Extra::default() };
        if let Some(octets) = self.send_reserve(key, Form::Full, extra) {
            self.counters.reserves_sent += 1;
            self.expect(key, rii, kind, octets);
        }
    }

    /// Handles the successful RESPONSE to a request of this node.
    pub(super) fn on_success(
        &mut self,
        key: Key,
        kind: RequestKind,
        message: &Message<'_>,
        resources: &mut Resources,
    ) {
        match kind {
            RequestKind::Reserve | RequestKind::Repair => {
                if let Some(failure) = self.not_supported(key, message) {
                    return self.fail(key, failure, resources);
                }
                let hops: Vec<HopGrant> =
                    message.hops.map(|hops| hops.iter().map(HopGrant::from).collect()).unwrap_or_default();
                let quality = message.qspec.map(rmf::quality).unwrap_or_default();
                let moved = message.info.is_some_and(|info| self.repaired(key, info.info, resources));
                let far_end = far_end(message.hops);
                self.granted(key, kind, moved, hops, far_end, quality);
            }
            RequestKind::Tear => self.torn_down(key, resources),
            RequestKind::Query => self.answered(key, message, resources),
            RequestKind::ReserveInit | RequestKind::Acknowledgment | RequestKind::ReleaseNotice => {}
        }
    }

    /// Why this node, the QNI, does not accept a granted reservation: a node on the path cannot interpret a parameter
    /// (RFC 5975 §4.2.2).
    fn not_supported(&self, key: Key, message: &Message<'_>) -> Option<Failure> {
        if self.config.accept_not_supported || !self.has(key, Marks::QNI) {
            return None;
        }
        let parameter = message.qspec.and_then(rmf::not_supported)?;
        let rule = format!("a node on the path does not support {parameter}");
        Some(super::response::own_failure(Info::RESERVATION_FAILURE, Some(&rule)))
    }

    /// Handles a request of this node without a next node: the own grant is the result.
    pub(super) fn on_alone(&mut self, key: Key, kind: RequestKind, resources: &mut Resources) {
        match kind {
            RequestKind::Reserve | RequestKind::Repair => {
                let Some(session) = invariant!(self.sessions.get(key), "a last node has a session") else {
                    return;
                };
                let hops = session.local.as_ref().map(|local| local.hops.clone()).unwrap_or_default();
                let quality = rmf::quality(&session.qspec);
                let ends_here = session.ifindex.is_none();
                let moved = self.repaired(key, Info::RESERVED, resources);
                let far_end = Some(ends_here);
                self.granted(key, kind, moved, hops, far_end, quality);
            }
            RequestKind::Tear => self.torn_down(key, resources),
            RequestKind::Query => self.answered_alone(key, resources),
            RequestKind::ReserveInit | RequestKind::Acknowledgment | RequestKind::ReleaseNotice => {}
        }
    }

    /// A request of this node was granted. `moved`: along another path than before.
    fn granted(
        &mut self,
        key: Key,
        kind: RequestKind,
        moved: bool,
        hops: Vec<HopGrant>,
        far_end: Option<bool>,
        quality: super::Quality,
    ) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a success has a session") else { return };
        let gaps = session.has_gaps();
        let id = session.id;
        // The repair repeated a request that the old path had not answered.
        let asked = session.pending.iter().any(|p| p.kind == RequestKind::Reserve);
        let kind = if asked { RequestKind::Reserve } else { kind };
        session.pending.retain(|p| p.kind != RequestKind::Reserve);
        let Some(local) = session.local.as_mut() else { return }; // a relay repairs, too
        local.before = None;
        let first = !core::mem::replace(&mut local.granted, true);
        if !hops.is_empty() {
            local.hops.clone_from(&hops);
        }
        // An answer without the list does not say it.
        let other_end = far_end.is_some() && core::mem::replace(&mut local.far_end, far_end) != far_end;
        let granted = Granted {
            session: id,
            quality,
            hops: local.hops.clone(),
            gaps,
            far_end,
            back: local.reverse.map(|(session, _)| session),
        };
        let waits = local.reverse.is_some_and(|(_, stands)| !stands);
        let until = self.now + self.config.retry_max;
        match (local.command, &local.origin) {
            (Some(_), _) if first && waits => {
                local.unreported = Some(Box::new(granted));
                local.report_by = Some(until);
            }
            (Some(command), _) if first || kind == RequestKind::Reserve => {
                self.out.event(command, QosEvent::Granted(granted));
            }
            (Some(command), _) => {
                // Without an old branch it was no route change, only a full refresh.
                if moved || other_end {
                    self.out.event(command, QosEvent::Rerouted(granted));
                }
            }
            (None, Origin::Aggregate(number)) => {
                let number = *number;
                self.aggregate_granted(key, number);
            }
            (None, _) => self.reverse_direction_granted(id),
        }
    }

    fn torn_down(&mut self, key: Key, resources: &mut Resources) {
        let command = self.sessions.get(key).and_then(|s| s.local.as_ref()).and_then(|local| local.command);
        if let Some(id) = command {
            self.out.event(id, QosEvent::Released);
        }
        self.release_route(key);
        self.close(key, resources);
    }

    /// Handles a request that was refused, or that got no RESPONSE.
    pub(super) fn on_refused(
        &mut self,
        key: Key,
        kind: RequestKind,
        failure: Failure,
        resources: &mut Resources,
    ) {
        if self.asks_for_smaller(key, kind, &failure, resources) || self.will_retry(key, kind, &failure) {
            return;
        }
        let session = self.sessions.get(key).map(|session| session.id);
        tracing::debug!(session = ?session, request = ?kind, reason = %failure, "request failed");
        match kind {
            RequestKind::Reserve => self.fail(key, failure, resources),
            // The receiver reserved: the reservation lives until the previous peer stops refreshing it.
            RequestKind::ReserveInit if self.is_reserved(key) && !self.is_unreported(key) => {
                self.renewal_refused(key, &failure);
            }
            RequestKind::Query | RequestKind::ReserveInit => self.fail(key, failure, resources),
            RequestKind::Repair if self.has(key, Marks::QNI) => self.fail(key, failure, resources),
            RequestKind::Repair => self.not_repaired(key, resources),
            RequestKind::Tear => self.torn_down(key, resources),
            RequestKind::Acknowledgment | RequestKind::ReleaseNotice => {}
        }
    }

    /// Ends a reservation that begins here after a refusal or loss.
    pub(super) fn fail(&mut self, key: Key, failure: Failure, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a failure has a session") else { return };
        if session.is_being_torn() {
            return; // it ends already, and its user needs no further event
        }
        session.pending.clear();
        let mri = session.mri();
        let Some(local) = session.local.as_mut() else { return }; // a relay asks again, too
        let (id, command) = (session.id, local.command);
        // A change was refused: the earlier request is restored.
        if let Some(before) = local.before.take() {
            let qspec = rmf::initial(&before.request.qos, before.request.priority, CarriedBy::Reserve);
            let auth = auth_object(before.request.token.as_deref());
            let route = session.ifindex;
            local.origin = Origin::Reserve(before.request);
            session.set_mri(&before.mri);
            session.rare.change(|rare| rare.auth = auth.into());
            if let Some(id) = command {
                self.out.event(id, QosEvent::Failed(failure));
            }
            let route = Route {
                ifindex: route.unwrap_or_default(),
                src: mri.src(),
                gateway: None,
                mtu: self.interfaces.mtu(route.unwrap_or_default()),
                local: route.is_none(),
            };
            return self.reserve_from_here(key, &qspec, &route, resources);
        }
        match local.origin {
            Origin::Aggregate(number) => return self.aggregate_refused(key, number, resources),
            Origin::ReverseDirection(first) => {
                self.reverse_direction_refused(first, &failure);
                return self.end_local(key, None, resources);
            }
            Origin::ForSender if !local.granted => {
                self.notify_sender(key, &failure);
                self.forward_direction_fails(id, &failure, resources);
            }
            _ => {}
        }
        let Some(local) = invariant!(
            self.sessions.get(key).and_then(|session| session.local.as_ref()),
            "a failure has an origin"
        ) else {
            return;
        };
        // Of a bidirectional reservation the user gets no event before both directions are granted.
        let reported = local.granted && local.unreported.is_none();
        let event = if reported { QosEvent::Lost(failure) } else { QosEvent::Failed(failure) };
        self.end_local(key, Some(event), resources);
    }

    /// Does the actions of a user's session that are due.
    pub(super) fn step_local(&mut self, key: Key, resources: &mut Resources) {
        let Some(local) = self.sessions.get_mut(key).and_then(|s| s.local.as_mut()) else { return };
        if local.report_by.is_some_and(|until| until <= self.now) {
            local.report_by = None;
            let reverse = local.reverse.map(|(back, _)| back);
            if reverse.is_none_or(|back| self.is_granted(back)) {
                return self.report_as_it_stands(key);
            }
            let failure = super::response::own_failure(
                Info::RESERVATION_FAILURE,
                Some("no reservation for the reverse direction came"),
            );
            return self.fail(key, failure, resources);
        }
        if local.hold_until.is_some_and(|until| until <= self.now) {
            return self.release_local(key, resources);
        }
        if local.retry.is_some_and(|retry| retry.at.is_some_and(|at| at <= self.now)) {
            self.retry(key);
        }
    }
}

/// Whether the end of the flow answered. The answering node returns the list of hops, and its own entry is the last one, without a
/// rate at the end of the flow. `None`: a node of another make answered, which returns no list, or the list is full.
pub(super) fn far_end(hops: Option<Hops<'_>>) -> Option<bool> {
    let hops = hops?;
    let last = hops.iter().last()?;
    if matches!(last.part, Part::Rate(0) | Part::End) {
        return Some(true);
    }
    (!hops.is_full()).then_some(false)
}

/// A SESSION-AUTH object with these attributes (RFC 5981 §3).
pub(super) fn auth_object(token: Option<&[u8]>) -> Vec<u8> {
    let mut octets = Vec::new();
    if let Some(token) = token {
        crate::wire::write_auth(token, &mut Writer::new(&mut octets));
    }
    octets
}
