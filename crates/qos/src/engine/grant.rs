//! Admission, and what follows from it (RFC 5974 §5.4.1).

use signalbox_core::Time;
use signalbox_core::node::{NoRoute, Route};
use signalbox_core::slab::Key;
use signalbox_resources::Resources;
use signalbox_wire::Writer;

use super::Qos;
use super::compose::{DEFAULT_PERIOD_MS, Extra, Form, Target, generic};
use super::parked::Meta;
use super::rmf::{self, Flow};
use super::session::{Marks, Session, Stage};
use crate::wire::{
    Carried, GenericFlags, Hop, Hops, Info, InfoSpec, MAX_HOPS_OCTETS, Message, MessageFlags, MessageType,
};

/// A RESERVE was granted: what is new about its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Outcome {
    /// Not merely what was there already.
    changed: bool,
}

impl Qos {
    /// Asks for what a RESERVE wants. Nothing changes unless it is granted.
    pub(super) fn admit(
        &mut self,
        now: Time,
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
        let flow = Flow {
            key,
            session: meta.session,
            mri: &meta.mri,
            classifier: message.classifier,
            ifindex: (!route.local).then_some(route.ifindex),
            mtu: route.mtu,
            initiator: meta.initiator(),
            auth: message.auth,
            lifetime: self.config.lifetime(period),
            gap: meta.after_gap() && !self.config.ignore_gaps,
        };
        let keep = !message.flags.contains(MessageFlags::REPLACE);
        let old = self.sessions.get(key).and_then(|s| s.grant);
        let other_flow = self.sessions.get(key).is_some_and(|s| s.rsn_in.is_some() && s.mri != meta.mri);
        // Told not to replace, it keeps what it holds for the other flow and takes as much again for this one.
        let old = old.filter(|_| !(keep && other_flow));
        let qspec = message.qspec.unwrap_or_default();
        match rmf::reserve(resources, now, &flow, qspec, old) {
            Err(denial) => {
                self.counters.refused += 1;
                if opened {
                    self.close(key, resources);
                }
                self.answer_with(meta, message, denial.info, denial.qspec.as_deref(), denial.note.as_deref());
            }
            Ok(given) => {
                self.counters.granted += 1;
                let outcome = self.install(now, key, message, meta, given, keep && other_flow, opened);
                self.proceed(now, key, message, meta, outcome);
            }
        }
    }

    /// Takes over what a granted RESERVE says.
    #[expect(clippy::too_many_arguments, reason = "all that a RESERVE brings")]
    fn install(
        &mut self,
        now: Time,
        key: Key,
        message: &Message<'_>,
        meta: &Meta,
        given: rmf::Given,
        keeps: bool,
        opened: bool,
    ) -> Outcome {
        self.set_stage(key, Stage::Reserved);
        let nslp_onward = self.onward_nslp(meta, &given);
        let lifetime = |period| self.config.lifetime(period);
        let period = message.refresh_period.unwrap_or(DEFAULT_PERIOD_MS);
        let expires = now + lifetime(period);
        let silent = now + lifetime(period);
        let target = self.config.period_ms();
        let proxy_end = self.config.proxy && message.generic.contains(GenericFlags::PROXY);
        let gap = meta.after_gap() && !self.config.ignore_gaps;
        let jitter = self.rng.jitter(self.config.refresh, 0.5, 1.5);
        let Some(session) = self.sessions.get_mut(key) else { return Outcome { changed: false } };
        let first = session.rsn_in.is_none();
        let other_peer = !first && session.back != meta.sii;
        if other_peer {
            self.counters.peer_changes += 1;
            session.old_back = session.back.map(|sii| (sii, silent));
        }
        let restarted = session.rsn_in.map(|rsn| rsn.epoch) != message.rsn.map(|rsn| rsn.epoch);
        let other_flow = session.mri != meta.mri;
        let changed =
            opened || first || other_peer || restarted || other_flow || session.qspec != given.qspec;
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
        copy_objects(&mut session.bound, &message.bound_sessions);
        copy_objects(&mut session.auth, &message.auth);
        copy_objects(&mut session.refreshed, &message.refreshed);
        session.period_in = period;
        session.expires = Some(expires);
        session.period_out = super::refresh::slewed(session.period_out, target);
        let marks = &mut session.marks;
        marks.set(Marks::END, meta.at_flow_end || proxy_end);
        marks.set(Marks::SCOPED, message.generic.contains(GenericFlags::SCOPING));
        marks.set(Marks::PROXY, message.generic.contains(GenericFlags::PROXY));
        marks.set(Marks::BREAK, message.generic.contains(GenericFlags::BREAK) || gap);
        marks.set(Marks::KEEP, !message.flags.contains(MessageFlags::REPLACE));
        if changed {
            marks.set(Marks::CONFIRMED, false);
            session.next_rsn();
        }
        if session.refresh_at.is_none() {
            session.refresh_at = Some(now + jitter);
        }
        Outcome { changed }
    }

    /// The number under which the session's messages go on.
    fn onward_nslp(&self, meta: &Meta, _given: &rmf::Given) -> signalbox_core::NslpId {
        // The end of an aggregation region restores the default (§3.3.1).
        if Some(meta.nslp) == self.config.bypass_nslp { self.config.nslp } else { meta.nslp }
    }

    /// Sends a granted RESERVE on, or answers it where the path ends.
    fn proceed(&mut self, now: Time, key: Key, message: &Message<'_>, meta: &Meta, outcome: Outcome) {
        let hops = self.hops_with_own(key, message.hops, meta);
        let hops = hops.as_deref().and_then(Hops::from_octets);
        let info = if outcome.changed { Info::RESERVED } else { Info::REFRESHED };
        let Some(session) = self.sessions.get_mut(key) else { return };
        let until = now + self.config.retry_max;
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
            msg_id: message.msg_id,
            bound_msg_id: message.bound_msg_id,
            forwarded: Some(message.forwarded),
            gist_hops: Some(meta.hops),
            ..Extra::default()
        };
        if self.send_reserve(key, Form::Full, extra).is_some() {
            self.counters.reserves_sent += 1;
        }
    }

    /// The list of hops with this node's own entry; the list as it was if it is full.
    pub(super) fn hops_with_own(&self, key: Key, hops: Option<Hops<'_>>, meta: &Meta) -> Option<Vec<u8>> {
        let hops = hops?;
        let mut octets = hops.octets().to_vec();
        let session = self.sessions.get(key)?;
        if let Some(address) = self.addresses.on(meta.ifindex, meta.mri.dst()) {
            let hop = Hop { address, rate: session.rate, after_gap: meta.after_gap() };
            if octets.len() + hop.octets() <= MAX_HOPS_OCTETS {
                hop.write(&mut Writer::new(&mut octets));
            }
        }
        Some(octets)
    }

    /// Answers a request that ends here, successfully.
    pub(super) fn respond(&mut self, key: Key, rii: u32, info: Info, hops: Option<Hops<'_>>) {
        let Some(session) = self.sessions.get(key) else { return };
        let qspec = rmf::answer(&session.qspec);
        let source = self.own_source(session);
        let response = Message {
            generic: generic(session),
            rii: Some(rii),
            info: Some(InfoSpec { source, ..InfoSpec::from(info) }),
            qspec: qspec.as_deref(),
            hops,
            ..Message::new(MessageType::RESPONSE)
        };
        let to = Target::towards_initiator(session);
        self.send_response(to, &response);
    }

    /// This node's address as it looks towards the QNI of a session.
    pub(super) fn own_source(&self, session: &Session) -> crate::wire::Source<'static> {
        let on = session.ifindex.unwrap_or_default();
        self.addresses
            .on(on, session.mri.dst())
            .map_or(crate::wire::Source::None, crate::wire::Source::Address)
    }
}

/// Replaces `into` by the objects.
pub(super) fn copy_objects(into: &mut Vec<u8>, objects: &Carried<'_>) {
    into.clear();
    objects.write(&mut Writer::new(into));
}
