//! Admission, and what follows from it (RFC 5974 §5.4.1).

use signalbox_core::node::{NoRoute, Route};
use signalbox_core::slab::Key;
use signalbox_resources::Resources;
use signalbox_wire::Writer;

use super::Qos;
use super::compose::{DEFAULT_PERIOD_MS, Extra, Form, Target, generic};
use super::event::{Granted, HopGrant, QosEvent};
use super::parked::Meta;
use super::rmf::{self, Flow};
use super::session::{Marks, Session, Stage, Want};
use crate::wire::{
    Carried, GenericFlags, Hop, Hops, Info, InfoSpec, MAX_HOPS_OCTETS, Message, MessageFlags, MessageId,
    MessageType,
};

/// A RESERVE was granted: what is new about its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Outcome {
    /// Not merely what was there already.
    changed: bool,
    /// The message that the one that goes on has to wait for.
    waits_for: Option<MessageId>,
    /// A changed path met the one that stands: nothing goes on (§3.2.12).
    absorbed: bool,
}

impl Qos {
    /// Asks for what a RESERVE wants. Nothing changes unless it is granted.
    pub(super) fn admit(
        &mut self,
        key: Option<Key>,
        message: &Message<'_>,
        meta: &Meta,
        route: Result<Route, NoRoute>,
        resources: &mut Resources,
    ) {
        let Ok(route) = route else {
            return self.answer(
                meta,
                message,
                Info::RESERVATION_FAILURE,
                Some("no route to the flow's destination"),
            );
        };
        if let Some(classifier) = message.classifier
            && !classifier.fits(&meta.mri)
        {
            self.counters.malformed += 1;
            return self.answer(meta, message, Info::BAD_VALUE, None);
        }
        if message.bound_sessions.len() > usize::from(self.config.max_bound) {
            return self.answer(
                meta,
                message,
                Info::RESERVATION_FAILURE,
                Some("max_bound: too many sessions"),
            );
        }
        let (key, opened) = match key {
            Some(key) => (key, false),
            None => match self.open(meta.session, meta.mri, meta.nslp, false) {
                Ok(key) => (key, true),
                Err(_) => {
                    let note = Some("max_sessions: all in use");
                    return self.answer(meta, message, Info::RESERVATION_FAILURE, note);
                }
            },
        };
        let period = message.refresh_period.unwrap_or(DEFAULT_PERIOD_MS);
        let trunk = self.trunk_for(meta, &route);
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
            lifetime: self.config.lifetime(period),
            mark_dscp: trunk.and_then(|trunk| self.config.aggregates.get(trunk)).map(|a| a.dscp),
        };
        let keep = !message.flags.contains(MessageFlags::REPLACE);
        let old = self.sessions.get(key).and_then(|s| s.grant);
        let other_flow = self.sessions.get(key).is_some_and(|s| s.rsn_in.is_some() && s.mri != meta.mri);
        let kept = self.sessions.get(key).map_or(0, |s| s.kept.len());
        if keep && other_flow && kept >= usize::from(self.config.max_bound) {
            let note = Some("max_bound: too many flows of one session");
            return self.answer(meta, message, Info::RESERVATION_FAILURE, note);
        }
        // Told not to replace, it keeps what it holds for the other flow and takes as much again for this one.
        let old = old.filter(|_| !(keep && other_flow));
        let qspec = message.qspec.unwrap_or_default();
        match rmf::reserve(resources, self.now, &flow, qspec, old) {
            Err(denial) => {
                self.counters.refused += 1;
                if opened {
                    self.close(key, resources);
                }
                self.answer_with(meta, message, denial.info, denial.qspec.as_deref(), denial.note.as_deref());
                self.trigger(message, meta, false);
            }
            Ok(given) => {
                self.counters.granted += 1;
                let rate = given.rate;
                let mut outcome = self.install(key, message, meta, given, keep && other_flow, opened);
                if let Some(trunk) = trunk {
                    let (nslp, waits_for) = self.join(key, trunk, rate, &route);
                    if let Some(session) = self.sessions.get_mut(key) {
                        session.nslp_onward = nslp;
                        session.waits_for = waits_for;
                    }
                    outcome.waits_for = waits_for;
                }
                self.proceed(key, message, meta, outcome);
                self.trigger(message, meta, true);
                self.stands(key, message);
            }
        }
    }

    /// Takes over what a granted RESERVE says.
    #[expect(clippy::too_many_arguments, reason = "all that a RESERVE brings")]
    fn install(
        &mut self,
        key: Key,
        message: &Message<'_>,
        meta: &Meta,
        given: rmf::Given,
        keeps: bool,
        opened: bool,
    ) -> Outcome {
        self.set_stage(key, Stage::Reserved);
        let nslp_onward = self.onward_nslp(meta);
        let lifetime = |period| self.config.lifetime(period);
        let period = message.refresh_period.unwrap_or(DEFAULT_PERIOD_MS);
        let expires = self.now + lifetime(period);
        let silent = self.now + lifetime(period);
        let target = self.config.period_ms();
        let ends = meta.at_flow_end || super::binding::ends_at_proxy(&self.config, message);
        let gap = self.after_gap(meta) && !self.config.ignore_gaps;
        let jitter = self.rng.jitter(self.config.refresh, 0.5, 1.5);
        let Some(session) = self.sessions.get_mut(key) else { return Outcome::default() };
        let absorbed = session.marks.has(Marks::REROUTING);
        session.marks.set(Marks::REROUTING, false);
        let first = session.rsn_in.is_none();
        if session.stands_in() {
            session.marks.set(Marks::QNI, false);
            session.local = None;
            session.pending.clear();
        }
        let other_peer = !first && session.back != meta.sii;
        if other_peer {
            self.counters.peer_changes += 1;
            session.old_back = session.back.map(|sii| (sii, silent));
            session.marks.set(Marks::TOLD, false);
            session.marks.set(Marks::UNSETTLED, true);
        }
        let restarted = session.rsn_in.map(|rsn| rsn.epoch) != message.rsn.map(|rsn| rsn.epoch);
        let other_flow = session.mri != meta.mri;
        // §5.2.5.2: a route change that was none leaves the peer where it was, with a number that is 2 ahead and nothing
        // else new.
        let number = message.rsn.unwrap_or_default().number;
        let distance = number.wrapping_sub(session.rsn_in.unwrap_or_default().number);
        let other = opened || first || other_peer || restarted || other_flow;
        let changed = other || distance != 2 || session.qspec != given.qspec;
        // What is further on has it already, under the number that it has.
        let absorbed = absorbed && !first && session.qspec == given.qspec;
        if keeps && let Some(grant) = session.grant.take() {
            session.kept.push((session.mri, grant));
        }
        session.grant = given.grant;
        session.ifindex = given.ifindex;
        session.rate = given.rate;
        session.back = meta.sii;
        session.state = meta.state;
        session.mri = meta.mri;
        session.nslp_back = meta.nslp;
        session.nslp_onward = nslp_onward;
        session.rsn_in = message.rsn;
        session.classifier = message.classifier;
        session.qspec = given.qspec;
        copy_objects(&mut session.auth, &message.auth);
        session.peer.clone_from(&meta.peer);
        copy_objects(&mut session.refreshed, &message.refreshed);
        session.period_in = period;
        session.expires = Some(expires);
        session.period_out = super::refresh::slewed(session.period_out, target);
        let marks = &mut session.marks;
        marks.set(Marks::END, ends);
        marks.set(Marks::SCOPED, message.generic.contains(GenericFlags::SCOPING));
        marks.set(Marks::PROXY, message.generic.contains(GenericFlags::PROXY));
        marks.set(Marks::BREAK, message.generic.contains(GenericFlags::BREAK) || gap);
        marks.set(Marks::KEEP, !message.flags.contains(MessageFlags::REPLACE));
        if changed && !absorbed {
            marks.set(Marks::CONFIRMED, false);
            session.next_rsn();
        }
        if session.refresh_at.is_none() {
            session.refresh_at = Some(self.now + jitter);
        }
        session.pending.retain(|p| p.want != Want::Init);
        self.bind(key, &message.bound_sessions);
        self.verify_route(key);
        Outcome { changed, waits_for: None, absorbed }
    }

    /// A reservation ends here, or waits at its end for nothing more: users who wanted it hear of it.
    fn stands(&mut self, key: Key, message: &Message<'_>) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if !session.marks.has(Marks::END) {
            return;
        }
        let (id, gaps) = (session.id, session.marks.has(Marks::BREAK));
        let quality = rmf::quality(&session.qspec);
        // Where the flow begins, the last to grant is the first on its way.
        let own = session.ifindex.and_then(|ifindex| self.interfaces.on(ifindex, session.mri.dst()));
        let own = own.map(|address| Hop { address, rate: session.rate, after_gap: false });
        if let Some(local) = session.local.as_mut() {
            let first = !core::mem::replace(&mut local.granted, true);
            let mut hops: Vec<HopGrant> =
                message.hops.map(|hops| hops.iter().map(HopGrant::from).collect()).unwrap_or_default();
            hops.extend(own.map(HopGrant::from));
            hops.reverse();
            let granted = Granted { session: id, quality, hops, gaps, back: None };
            if let Some(command) = local.command.filter(|_| first) {
                self.out.event(command, QosEvent::Granted(granted));
            }
        }
        self.way_back_stands(id);
        self.want_way_back(key);
    }

    /// Holds no more than the end of the path gave.
    pub(super) fn trim(&mut self, key: Key, message: &Message<'_>, resources: &mut Resources) {
        let Some(session) = self.sessions.get(key) else { return };
        if let (Some(qspec), Some(grant)) = (message.qspec, session.grant) {
            let flow = super::reroute::flow_of(&self.config, key, session);
            let rate = rmf::trim(resources, self.now, &flow, qspec, grant, session.rate);
            if let Some(session) = self.sessions.get_mut(key) {
                session.rate = rate;
            }
        }
    }

    /// The number under which the session's messages go on.
    fn onward_nslp(&self, meta: &Meta) -> signalbox_core::NslpId {
        // The end of an aggregation region restores the default (§3.3.1).
        if Some(meta.nslp) == self.config.bypass_nslp { self.config.nslp } else { meta.nslp }
    }

    /// Sends a granted RESERVE on, or answers it where the path ends.
    fn proceed(&mut self, key: Key, message: &Message<'_>, meta: &Meta, outcome: Outcome) {
        let Some(session) = self.sessions.get(key) else { return };
        let hops = self.hops_with_own(message.hops, meta, session.rate);
        let hops = hops.as_deref().and_then(Hops::from_octets);
        let info = if outcome.changed { Info::RESERVED } else { Info::REFRESHED };
        let bound = self.unsettled(message, meta);
        let Some(session) = self.sessions.get_mut(key) else { return };
        let until = self.now + self.config.retry_max;
        if session.is_end() {
            if let Some(rii) = message.rii {
                self.respond(key, rii, info, hops);
            }
            self.acknowledge(meta, message, message.rsn);
        }
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.marks.has(Marks::END) || session.marks.has(Marks::SCOPED) {
            return;
        }
        if outcome.absorbed {
            // The QNI's side of the path changed and this node asked for the repair: it goes no further.
            if let Some(rii) = message.rii {
                self.respond(key, rii, Info::RESERVED, hops);
            }
            return;
        }
        if meta.hops == 0 {
            self.counters.hop_limit += 1;
            return;
        }
        // A node that takes itself for the last answered already; it goes on looking for a next one.
        let rii = message.rii.filter(|_| !session.marks.has(Marks::LAST));
        if let Some(rii) = rii {
            session.remember(rii, until);
        }
        let extra = Extra {
            rii,
            hops,
            msg_id: message.msg_id.filter(|_| outcome.waits_for.is_none()),
            bound_msg_id: outcome.waits_for.or(bound),
            forwarded: Some(message.forwarded),
            gist_hops: Some(meta.hops),
            sii: session.astray_onward(),
            ..Extra::default()
        };
        if self.send_reserve(key, Form::Full, extra).is_some() {
            self.counters.reserves_sent += 1;
        }
    }

    /// The list of hops with this node's own entry, what it gives or could give; the list as it was if it is full.
    pub(super) fn hops_with_own(&self, hops: Option<Hops<'_>>, meta: &Meta, rate: u64) -> Option<Vec<u8>> {
        let mut octets = hops?.octets().to_vec();
        if let Some(address) = self.interfaces.on(meta.ifindex, meta.mri.dst()) {
            let hop = Hop { address, rate, after_gap: self.after_gap(meta) };
            if octets.len() + hop.octets() <= MAX_HOPS_OCTETS {
                hop.write(&mut Writer::new(&mut octets));
            }
        }
        Some(octets)
    }

    /// Answers a request that ends here, successfully.
    pub(super) fn respond(&mut self, key: Key, rii: u32, info: Info, hops: Option<Hops<'_>>) {
        let Some(session) = self.sessions.get(key) else { return };
        let qspec = rmf::answer(&session.qspec, false);
        let response = self.success(session, rii, info, qspec.as_deref(), hops);
        self.send_response(Target::towards_initiator(session), &response);
    }

    /// The RESPONSE to a request that ends here.
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
        let generic = generic(session);
        Message { generic, rii: Some(rii), info, qspec, hops, ..Message::new(MessageType::RESPONSE) }
    }

    /// This node's address as it looks towards the QNI of a session.
    pub(super) fn own_source(&self, session: &Session) -> crate::wire::Source<'static> {
        let on = session.ifindex.unwrap_or_default();
        self.interfaces
            .on(on, session.mri.dst())
            .map_or(crate::wire::Source::None, crate::wire::Source::Address)
    }
}

/// Replaces `into` by the objects.
pub(super) fn copy_objects(into: &mut Vec<u8>, objects: &Carried<'_>) {
    into.clear();
    objects.write(&mut Writer::new(into));
}
