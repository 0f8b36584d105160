//! QUERYs (RFC 5974 §5.4.2): what a path could give, and the wish that its end reserves.

use signalbox_core::Mri;
use signalbox_core::node::{NoRoute, Route};
use signalbox_core::slab::Key;
use signalbox_resources::Resources;
use signalbox_wire::Writer;

use super::Qos;
use super::compose::{Extra, Target};
use super::grant::copy_objects;
use super::parked::Meta;
use super::receive::Progress;
use super::rmf::{self, Flow};
use super::session::{Local, Marks, Stage, Want, Wish};
use crate::wire::{Carried, GenericFlags, Hop, Hops, Info, Message, MessageType};

impl Qos {
    pub(super) fn on_query(
        &mut self,
        message: &Message<'_>,
        meta: &Meta,
        route: Option<Result<Route, NoRoute>>,
        resources: &mut Resources,
    ) -> Progress {
        let init = message.is_reserve_init();
        if message.rii.is_none() && !init {
            // §5.1.2.2: a QUERY for information has an RII, or nobody could answer it.
            self.counters.malformed += 1;
            self.answer(meta, message, Info::MISSING_OBJECT, None);
            return Progress::Done;
        }
        let known = self.find(meta.session);
        if let (Some(key), Some(rii)) = (known, message.rii)
            && self.sessions.get(key).is_some_and(|s| s.pending.iter().any(|p| p.rii == rii))
        {
            self.counters.rii_conflicts += 1;
            self.answer(meta, message, Info::RII_CONFLICT, None);
            return Progress::Done;
        }
        if init
            && let Some(key) = known
            && self.is_reserved(key)
        {
            self.on_repair_query(key, message, meta);
            return Progress::Done;
        }
        let Some(route) = route else { return Progress::NeedsRoute };
        let Ok(route) = route else {
            self.answer(meta, message, Info::RESERVATION_FAILURE, Some("no route to the flow's destination"));
            return Progress::Done;
        };
        self.pass_query(known, message, meta, &route, resources);
        Progress::Done
    }

    pub(super) fn is_reserved(&self, key: Key) -> bool {
        self.sessions.get(key).is_some_and(|s| s.stage == Stage::Reserved)
    }

    /// The path before this node changed, in a session that its receiver reserves: the QUERY that looks for the new
    /// path ends where the old one is met again, and that node reserves back along it (§3.2.12).
    fn on_repair_query(&mut self, key: Key, message: &Message<'_>, meta: &Meta) {
        self.acknowledge(meta, message, None);
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.mri.direction() == meta.mri.direction() {
            self.counters.wrong_direction += 1;
            return;
        }
        session.state = meta.state;
        if session.onward == meta.sii || session.onward.is_none() {
            // Nothing changed here, or it is a repetition; unless this node was off the path.
            if session.marks.has(Marks::OFF_PATH) {
                session.marks.set(Marks::OFF_PATH, false);
                self.ask_again_downstream(key);
            }
            return;
        }
        if meta.sii.is_some_and(|sii| session.is_behind(self.now, sii)) {
            self.counters.old_peer += 1;
            return; // of a node that is off the path
        }
        self.counters.peer_changes += 1;
        self.repair(key, meta.sii);
    }

    /// Asks this node, and sends the QUERY on or answers it.
    fn pass_query(
        &mut self,
        known: Option<Key>,
        message: &Message<'_>,
        meta: &Meta,
        route: &Route,
        resources: &mut Resources,
    ) {
        let init = message.is_reserve_init();
        let proxy_end = self.config.proxy && message.generic.contains(GenericFlags::PROXY);
        let end = meta.at_flow_end || proxy_end || message.generic.contains(GenericFlags::SCOPING);
        if init && (meta.at_flow_end || proxy_end) && !self.config.accept_reserve_init {
            let note = Some("no reservation is expected to begin here");
            return self.answer(meta, message, Info::AUTHORISATION, note);
        }
        let opened = known.is_none();
        // RESERVEs go against a QUERY that asks for them, and with any other.
        let mri = if init { meta.mri.inverted() } else { meta.mri };
        let key = match known {
            Some(key) => key,
            None => match self.open(meta.session, mri, meta.nslp, true) {
                Ok(key) => key,
                Err(_) => {
                    let note = Some("max_queries: all in use");
                    return self.answer(meta, message, Info::RESERVATION_FAILURE, note);
                }
            },
        };
        let flow = Flow {
            key,
            session: meta.session,
            mri: meta.mri,
            classifier: message.classifier,
            ifindex: (!route.local).then_some(route.ifindex),
            mtu: route.mtu,
            initiator: meta.initiator(),
            peer: meta.peer.clone(),
            auth: message.auth,
            lifetime: self.config.lifetime(self.config.period_ms()),
            mark_dscp: None,
        };
        let (qspec, available) = match rmf::query(resources, &flow, message.qspec.unwrap_or_default()) {
            Ok(passed) => passed,
            Err(denial) => {
                if opened {
                    self.close(key, resources);
                }
                let (qspec, note) = (denial.qspec.as_deref(), denial.note.as_deref());
                return self.answer_with(meta, message, denial.info, qspec, note);
            }
        };
        let hops = self.hops_with_own(message.hops, meta, available);
        let hops = hops.as_deref().and_then(Hops::from_octets);
        let nslp = if Some(meta.nslp) == self.config.bypass_nslp { self.config.nslp } else { meta.nslp };
        let until = self.now + self.config.retry_max;
        let gap = self.after_gap(meta) && !self.config.ignore_gaps;
        let bare = self.sessions.get(key).is_some_and(|s| s.stage == Stage::Path);
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.init_qspec = qspec;
        session.state = meta.state;
        session.marks.set(Marks::PROXY, message.generic.contains(GenericFlags::PROXY));
        if message.generic.contains(GenericFlags::BREAK) || gap {
            session.marks.set(Marks::BREAK, true);
        }
        if bare {
            session.marks.set(Marks::RECEIVER, init);
            session.expires = Some(until);
            session.classifier = message.classifier;
            if init {
                session.nslp_onward = meta.nslp;
                session.nslp_back = nslp;
            } else {
                session.nslp_back = meta.nslp;
                session.nslp_onward = nslp;
            }
            copy_objects(&mut session.bound, &message.bound_sessions);
            copy_objects(&mut session.auth, &message.auth);
            session.peer.clone_from(&meta.peer);
            copy_objects(&mut session.refreshed, &message.refreshed);
        }
        self.acknowledge(meta, message, None);
        if end {
            if let Some(rii) = message.rii {
                self.respond_query(key, rii, meta.mri, hops);
            }
            if init && !message.generic.contains(GenericFlags::SCOPING) {
                self.begin_for_sender(key, route, resources);
            }
            return;
        }
        if meta.hops == 0 {
            self.counters.hop_limit += 1;
            return;
        }
        let Some(session) = self.sessions.get_mut(key) else { return };
        if let Some(rii) = message.rii {
            session.remember(rii, until);
        }
        let extra = Extra {
            rii: message.rii,
            hops,
            forwarded: Some(message.forwarded),
            gist_hops: Some(meta.hops),
            ..Extra::default()
        };
        self.send_query(key, meta.mri, init, extra);
    }

    /// Answers a QUERY that ends here; `mri` is the one it came with.
    pub(super) fn respond_query(&mut self, key: Key, rii: u32, mri: Mri, hops: Option<Hops<'_>>) {
        let Some(session) = self.sessions.get(key) else { return };
        let qspec = rmf::answer(&session.init_qspec, true);
        let response = self.success(session, rii, Info::RESERVED, qspec.as_deref(), hops);
        let same = mri.direction() == session.mri.direction();
        let nslp = if same { session.nslp_back } else { session.nslp_onward };
        let to = Target { session: session.id, mri: mri.inverted(), nslp, state: session.state, sii: None };
        self.send_response(to, &response);
    }

    /// The flow ends here and its sender wants this node to reserve: it becomes the QNI (§4.3).
    pub(super) fn begin_for_sender(&mut self, key: Key, route: &Route, resources: &mut Resources) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(qspec) = rmf::reserve_for(&session.init_qspec) else { return };
        let wish = Wish::ForSender;
        session.marks.set(Marks::QNI, true);
        session.expires = None;
        let local = Local::of(None, wish);
        session.local = Some(Box::new(local));
        self.set_stage(key, Stage::Reserved);
        self.ask_here_and_onward(key, &qspec, route, resources);
    }

    /// Sends a QUERY with RESERVE-INIT against the RESERVEs of a session whose downstream path changed.
    pub(super) fn ask_again_downstream(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let asked = session.pending.iter().any(|p| p.want == Want::Init);
        if session.init_qspec.is_empty() || asked {
            return;
        }
        session.marks.set(Marks::REROUTING, true);
        let mri = session.mri.inverted();
        let rii = self.new_rii(key);
        if let Some(octets) = self.send_query(key, mri, true, Extra { keep: true, ..Extra::default() }) {
            self.expect(key, rii, Want::Init, octets);
        }
    }

    /// A QUERY found nobody further on.
    pub(super) fn query_ends_here(&mut self, key: Key, rii: Option<u32>) {
        let Some(session) = self.sessions.get(key) else { return };
        let receiver = session.marks.has(Marks::RECEIVER);
        let query_mri = if receiver { session.mri.inverted() } else { session.mri };
        if let Some(rii) = rii {
            self.respond_query(key, rii, query_mri, None);
        }
        let Some(session) = self.sessions.get(key) else { return };
        let ours = session.local.is_some() || session.stage != Stage::Path;
        if receiver && !ours && self.config.accept_reserve_init {
            // Nobody nearer to the receiver can reserve: this node does, for the flow's end (§5.4.2). Where the
            // packets leave was asked for when the QUERY came; admission control gets its answer again.
            let mri = session.mri;
            let query = super::parked::route_query(&mri);
            self.look_up(super::parked::Parked::ForSender(key), query);
        }
    }

    /// The answer to a user's question.
    pub(super) fn answered(&mut self, key: Key, message: &Message<'_>, resources: &mut Resources) {
        let Some(session) = self.sessions.get(key) else { return };
        let Some(command) = session.local.as_ref().and_then(|local| local.command) else { return };
        let answer = super::Answer {
            session: session.id,
            available: message.qspec.map(rmf::quality).unwrap_or_default(),
            hops: message.hops.map(|hops| hops.iter().map(Into::into).collect()).unwrap_or_default(),
            gaps: session.marks.has(Marks::BREAK),
        };
        self.out.event(command, super::QosEvent::Answer(answer));
        self.close(key, resources);
    }

    /// Nobody else is on the path: this node's own answer is the path's.
    pub(super) fn answered_alone(&mut self, key: Key, resources: &mut Resources) {
        let Some(session) = self.sessions.get(key) else { return };
        let qspec = rmf::answer(&session.init_qspec, true);
        let message = Message { qspec: qspec.as_deref(), ..Message::new(MessageType::RESPONSE) };
        self.answered(key, &message, resources);
    }

    /// Asks the path for a user.
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
        let qspec = rmf::initial(&request.qos, None, rmf::Aim::Query);
        let (proxy, scoping) = (request.proxy, request.next_node_only);
        let session = self.rng.session_id();
        let key = self.open_local(id, session, mri, true, Wish::Query)?;
        if let Some(session) = self.sessions.get_mut(key) {
            session.marks.set(Marks::PROXY, proxy);
            session.auth = auth;
        }
        self.ask_path(key, &qspec, mri, route, scoping, Want::Query, resources);
        Ok(())
    }

    /// Asks the far end to reserve, for a user.
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
        let qspec = rmf::initial(&request.qos, request.priority, rmf::Aim::Init);
        let proxy = request.proxy;
        let hold_until = request.hold.map(|hold| self.now + hold);
        let session = self.rng.session_id();
        let key = self.open_local(id, session, mri.inverted(), true, Wish::Reserve(request))?;
        if let Some(session) = self.sessions.get_mut(key) {
            session.marks.set(Marks::PROXY, proxy);
            session.marks.set(Marks::RECEIVER, true);
            session.marks.set(Marks::END, true);
            session.auth = auth;
            if let Some(local) = session.local.as_mut() {
                local.hold_until = hold_until;
            }
        }
        self.ask_path(key, &qspec, mri, route, false, Want::Init, resources);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "what the two kinds of QUERY differ in")]
    pub(super) fn ask_path(
        &mut self,
        key: Key,
        qspec: &[u8],
        mri: Mri,
        route: &Route,
        scoping: bool,
        want: Want,
        resources: &mut Resources,
    ) {
        let Some(session) = self.sessions.get(key) else { return };
        let flow = Flow {
            key,
            session: session.id,
            mri,
            classifier: None,
            ifindex: (!route.local).then_some(route.ifindex),
            mtu: route.mtu,
            initiator: mri.src(),
            peer: session.peer.clone(),
            auth: Carried::auth(&session.auth),
            lifetime: self.config.lifetime(self.config.period_ms()),
            mark_dscp: None,
        };
        let (qspec, available) = match rmf::query(resources, &flow, qspec) {
            Ok(passed) => passed,
            Err(denial) => {
                let mut failure = super::response::own_failure(denial.info, denial.note.as_deref());
                failure.available = denial.available;
                return self.on_refused(key, want, failure, resources);
            }
        };
        if let Some(session) = self.sessions.get_mut(key) {
            session.init_qspec = qspec;
        }
        let mut hops = Vec::new();
        if let Some(address) = self.interfaces.on(route.ifindex, mri.dst()) {
            Hop { address, rate: available, after_gap: false }.write(&mut Writer::new(&mut hops));
        }
        let init = want == Want::Init;
        let rii = self.new_rii(key);
        // §4.3: a QUERY that asks for a RESERVE is answered by that, and has no RII; nor does the list of hops go with
        // it, for the RESERVE brings its own.
        let extra = Extra {
            rii: (!init).then_some(rii),
            hops: Hops::from_octets(&hops).filter(|_| !init),
            keep: true,
            scoping,
            ..Extra::default()
        };
        if let Some(octets) = self.send_query(key, mri, init, extra) {
            self.expect(key, rii, want, octets);
        }
        self.rearm(key);
    }
}
