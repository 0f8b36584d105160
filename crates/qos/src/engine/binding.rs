//! Sessions and messages that depend on each other (RFC 5974 §3.2.8, §4.4, §4.6).

use signalbox_core::mri::PathCoupled;
use signalbox_core::node::{NoRoute, Route};
use signalbox_core::slab::Key;
use signalbox_core::wheel::Link;
use signalbox_core::{Direction, Mri, SessionId, Time};
use signalbox_resources::Resources;
use signalbox_wire::Writer;

use super::Qos;
use super::config::WayBack;
use super::event::QosEvent;
use super::parked::{Meta, Parked, Place, route_query};
use super::receive::Progress;
use super::response::own_failure;
use super::rmf;
use super::session::{Local, Marks, Stage, Want, Wish};
use crate::wire::{BindingCode, BoundSession, Carried, GenericFlags, Info, Message, MessageId};

impl Qos {
    /// Takes over the BOUND-SESSION-IDs of a message.
    pub(super) fn bind(&mut self, key: Key, bound: &Carried<'_>) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if Carried::bound_sessions(&session.bound) == *bound {
            return;
        }
        self.unbind(key);
        let Some(session) = self.sessions.get_mut(key) else { return };
        bound.write(&mut Writer::new(&mut session.bound));
        let mut unknown = false;
        for to in bound.sessions() {
            self.bound_to.entry(to.session).or_default().push(key);
            // The two directions need not pass the same nodes, and whoever preempted need not be there any more.
            let expected = ![BindingCode::BIDIRECTIONAL, BindingCode::PREEMPTION].contains(&to.code);
            unknown |= expected && self.find(to.session).is_none();
        }
        if unknown {
            self.notify_initiator(key, Info::UNKNOWN_BOUND_SESSION, None);
        }
    }

    /// Forgets what a session is bound to.
    pub(super) fn unbind(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let bound = core::mem::take(&mut session.bound);
        for to in Carried::bound_sessions(&bound).sessions() {
            if let Some(keys) = self.bound_to.get_mut(&to.session) {
                keys.retain(|k| *k != key);
                if keys.is_empty() {
                    self.bound_to.remove(&to.session);
                }
            }
        }
    }

    /// A reservation ended here, in whatever way: sessions that are bound to it hear of it or end with it.
    pub(super) fn on_gone(&mut self, key: Key, resources: &mut Resources) {
        let Some(session) = self.sessions.get(key) else { return };
        let gone = session.id;
        // A user at the QNR of a reservation that its receiver made.
        let local = session.local.as_ref().filter(|_| !session.marks.has(Marks::QNI));
        if let Some(id) = local.and_then(|local| local.command).filter(|_| session.stage != Stage::Path) {
            let releasing = local.is_some_and(|local| local.releasing);
            let lost = own_failure(Info::RESERVATION_FAILURE, Some("the receiver's reservation ended"));
            self.out.event(id, if releasing { QosEvent::Released } else { QosEvent::Lost(lost) });
            self.commands.remove(&id);
            if let Some(session) = self.sessions.get_mut(key) {
                session.local = None;
            }
        }
        // Two sessions may be bound to each other: the first to go is gone when the other looks.
        self.set_stage(key, Stage::Torn);
        for dependent in self.bound_to.get(&gone).cloned().unwrap_or_default() {
            self.bound_session_gone(dependent, gone, resources);
        }
    }

    fn bound_session_gone(&mut self, key: Key, gone: SessionId, resources: &mut Resources) {
        let Some(session) = self.sessions.get(key) else { return };
        if session.stage != Stage::Reserved {
            return;
        }
        let code = Carried::bound_sessions(&session.bound)
            .sessions()
            .find(|bound| bound.session == gone)
            .map(|bound| bound.code);
        let qni = session.marks.has(Marks::QNI);
        let way_back = session.local.as_ref().is_some_and(|l| {
            matches!(l.wish, Wish::ForSender)
                || matches!(l.wish, Wish::WayBack(to) if to == gone)
                || l.back.is_some_and(|(to, _)| to == gone)
        });
        match code {
            // §3.2.8, §5.4.1: with code 0x04 the one ends with the other.
            Some(BindingCode::DEPENDENT) => {
                let note = Some("the session that it depends on ended");
                if qni {
                    let failure = own_failure(Info::RESERVATION_FAILURE, note);
                    return self.fail(key, failure, resources);
                }
                self.notify_initiator(key, Info::RESERVATION_FAILURE, note);
                self.release(key, resources);
                self.counters.torn_down += 1;
                self.set_stage(key, Stage::Torn);
                self.on_gone(key, resources);
                self.tear_onward(key, None, None, u8::MAX, resources);
            }
            Some(_) if way_back && qni => {
                let failure = own_failure(Info::RESERVATION_FAILURE, Some("the other direction ended"));
                self.fail(key, failure, resources);
            }
            Some(_) if way_back => self.let_go(key, resources),
            Some(_) if self.config.notify_bound => {
                self.notify_initiator(key, Info::UNKNOWN_BOUND_SESSION, None);
            }
            _ => {}
        }
    }

    // ---- the way back

    /// A reservation ends here whose initiator wants one for the way back as well.
    ///
    /// The two directions look alike. A node that starts anew, and forgot what it had begun, would take the way back
    /// for the first of the two and begin the other for it: each would hold the other up, and no user either of them. So
    /// the names tell: the first has the lesser one.
    pub(super) fn want_way_back(&mut self, key: Key) {
        if self.config.way_back == WayBack::None {
            return;
        }
        let Some(session) = self.sessions.get(key) else { return };
        let Some(back) = bidirectional(&session.bound) else { return };
        let ours = session.mri.direction() == Direction::Downstream && session.marks.has(Marks::END);
        if !ours || back < session.id || self.find(back).is_some() {
            return;
        }
        let Some(mri) = reversed(&session.mri) else { return };
        self.look_up(Parked::WayBack(key), route_query(&mri));
    }

    pub(super) fn on_routed_way_back(
        &mut self,
        first: Key,
        route: Result<Route, NoRoute>,
        resources: &mut Resources,
    ) {
        let Some(session) = self.sessions.get(first) else { return };
        let (Some(back), Some(mri)) = (bidirectional(&session.bound), reversed(&session.mri)) else { return };
        let (id, qspec, auth) = (session.id, session.qspec.clone(), session.auth.clone());
        let Ok(route) = route else {
            return self.notify_initiator(
                first,
                Info::RESERVATION_FAILURE,
                Some("no route for the way back"),
            );
        };
        if self.find(back).is_some() {
            return;
        }
        let ask = self.config.way_back == WayBack::Ask;
        let session_mri = if ask { mri.inverted() } else { mri };
        let Ok(key) = self.open(back, session_mri, self.config.nslp, ask) else {
            return self.notify_initiator(first, Info::RESERVATION_FAILURE, Some("max_sessions: all in use"));
        };
        if let Some(record) = self.sessions.get_mut(key) {
            record.auth = auth;
            record.local = Some(Box::new(Local::of(None, Wish::WayBack(id))));
            record.marks.set(if ask { Marks::RECEIVER } else { Marks::QNI }, true);
            if ask {
                record.marks.set(Marks::END, true);
            }
        }
        let mut bound = Vec::new();
        let binding = BoundSession { code: BindingCode::BIDIRECTIONAL, session: id };
        if binding.write(&mut Writer::new(&mut bound)).is_ok() {
            self.bind(key, &Carried::bound_sessions(&bound));
        }
        if ask {
            let qspec = rmf::as_init(&qspec);
            self.ask_path(key, &qspec, mri, &route, false, Want::Init, resources);
        } else {
            self.ask_here_and_onward(key, &qspec, &route, resources);
        }
        self.rearm(key);
    }

    /// A reservation ends here, or was confirmed, that a user waits for as the way back.
    pub(super) fn way_back_stands(&mut self, back: SessionId) {
        let waiting = self.bound_to.get(&back).cloned().unwrap_or_default();
        for key in waiting {
            let Some(local) = self.sessions.get_mut(key).and_then(|s| s.local.as_mut()) else { continue };
            if let Some((session, stands)) = local.back.as_mut()
                && *session == back
            {
                *stands = true;
                local.again_at = None;
                if let (Some(granted), Some(id)) = (local.waiting.take(), local.command) {
                    self.out.event(id, QosEvent::Granted(*granted));
                }
            }
        }
    }

    // ---- messages that wait for each other

    /// Whether a RESERVE may be dealt with now, as far as other messages are concerned (§4.6). Only the end of a
    /// session, or of an aggregation region, looks at these objects.
    pub(super) fn synchronise(
        &mut self,
        message: &Message<'_>,
        meta: &Meta,
        octets: &[u8],
    ) -> Option<Progress> {
        let region_end = Some(meta.nslp) == self.config.bypass_nslp;
        if message.is_tear() || !(meta.at_flow_end || region_end) {
            return None;
        }
        if let Some(bound) = message.bound_msg_id {
            return match self.seen(bound.id) {
                Some(true) => None,
                // §4.7: the end-to-end message goes on only if the other one succeeded.
                Some(false) => {
                    self.answer(meta, message, Info::SYNCHRONISATION, None);
                    Some(Progress::Done)
                }
                None => {
                    let trigger = self.take_waiting(bound.id, true);
                    self.wait(bound.id, false, octets, meta);
                    if let Some((octets, meta)) = trigger {
                        self.resume.push_back((octets, meta));
                    }
                    Some(Progress::Done)
                }
            };
        }
        let id = message.msg_id.filter(|id| id.bidirectional)?;
        // It waits itself, until the one that is bound to it is there.
        let partner = self.waits(id.id, false) || meta.synchronised;
        if partner {
            return None;
        }
        self.wait(id.id, true, octets, meta);
        Some(Progress::Done)
    }

    /// The message that one that goes on has to wait for further on: the end of a region has waited itself (§4.6).
    pub(super) fn unsettled(&self, message: &Message<'_>, meta: &Meta) -> Option<MessageId> {
        message.bound_msg_id.filter(|_| Some(meta.nslp) != self.config.bypass_nslp)
    }

    /// What became of a message that others may wait for.
    pub(super) fn trigger(&mut self, message: &Message<'_>, meta: &Meta, granted: bool) {
        let Some(id) = message.msg_id.filter(|_| meta.at_flow_end) else { return };
        match self.take_waiting(id.id, false) {
            Some((octets, waiting)) if granted => self.resume.push_back((octets, waiting)),
            Some((octets, waiting)) => {
                if let Ok(message) = Message::parse(&octets) {
                    self.answer(&waiting, &message, Info::SYNCHRONISATION, None);
                }
            }
            None => {
                let place = Place { what: Parked::Seen { id: id.id, granted }, link: Link::default() };
                self.park(self.now + self.config.retry_max, place, (id.id, 2));
            }
        }
    }

    fn wait(&mut self, id: [u8; 16], trigger: bool, octets: &[u8], meta: &Meta) {
        // A repetition takes the place of the one that waits, and waits anew.
        self.take_waiting(id, trigger);
        let what = Parked::Bound { octets: octets.to_vec(), meta: meta.clone(), id, trigger };
        let place = Place { what, link: Link::default() };
        self.park(self.now + self.config.request_retry, place, (id, u8::from(trigger)));
    }

    fn park(&mut self, until: Time, place: Place, name: ([u8; 16], u8)) {
        let Ok(key) = self.parked.insert(place) else {
            self.counters.overload += 1;
            return;
        };
        self.parked_wheel.arm(&mut self.parked, key.index(), until);
        self.by_message.insert(name, key);
    }

    fn waits(&self, id: [u8; 16], trigger: bool) -> bool {
        self.by_message.contains_key(&(id, u8::from(trigger)))
    }

    fn seen(&self, id: [u8; 16]) -> Option<bool> {
        let key = self.by_message.get(&(id, 2))?;
        match self.parked.get(*key)?.what {
            Parked::Seen { granted, .. } => Some(granted),
            _ => None,
        }
    }

    fn take_waiting(&mut self, id: [u8; 16], trigger: bool) -> Option<(Vec<u8>, Meta)> {
        let key = self.by_message.remove(&(id, u8::from(trigger)))?;
        self.parked_wheel.cancel(&mut self.parked, key.index());
        match self.parked.remove(key)?.what {
            Parked::Bound { octets, meta, .. } => Some((octets, meta)),
            _ => None,
        }
    }

    /// Messages that waited too long are gone; the QNI may hear of it.
    pub(super) fn step_waiting(&mut self) {
        while let Some(index) = self.parked_wheel.pop_due(&mut self.parked, self.now) {
            let Some(place) = self.parked.key_of(index).and_then(|key| self.parked.remove(key)) else {
                continue;
            };
            match place.what {
                Parked::Seen { id, .. } => {
                    self.by_message.remove(&(id, 2));
                }
                Parked::Bound { octets, meta, id, trigger } => {
                    self.by_message.remove(&(id, u8::from(trigger)));
                    self.counters.unsynchronised += 1;
                    if self.config.tell_unsynchronised
                        && let Ok(message) = Message::parse(&octets)
                    {
                        self.answer(&meta, &message, Info::SYNCHRONISATION, None);
                    }
                }
                _ => {}
            }
        }
    }

    /// Deals with messages whose wait is over.
    pub(super) fn step_resumed(&mut self, resources: &mut Resources) {
        while let Some((octets, meta)) = self.resume.pop_front() {
            let meta = Meta { synchronised: true, ..meta };
            self.receive_resumed(&octets, &meta, resources);
        }
    }
}

/// The session of the way back that BOUND-SESSION-IDs name.
fn bidirectional(bound: &[u8]) -> Option<SessionId> {
    let mut sessions = Carried::bound_sessions(bound).sessions();
    sessions.find(|bound| bound.code == BindingCode::BIDIRECTIONAL).map(|bound| bound.session)
}

/// The flow the other way, downstream.
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

/// Whether a message came to the end of its session for a proxy.
pub(super) const fn ends_at_proxy(config: &super::Config, message: &Message<'_>) -> bool {
    config.proxy && message.generic.contains(GenericFlags::PROXY)
}
