//! Routes that change (RFC 5974 §3.2.12, §5.2.5).

use signalbox_core::node::{NoRoute, Route};
use signalbox_core::service::{NetworkEvent, SiiHandle};
use signalbox_core::slab::Key;
use signalbox_core::{Direction, Mri, SessionId, Time};
use signalbox_resources::Resources;

use super::compose::{Extra, Form, Target, generic};
use super::parked::{Parked, route_query};
use super::rmf::{self, Flow};
use super::session::{Marks, OldBranch, Session, Stage, Want};
use super::{Config, Qos};
use crate::wire::{Carried, Info, InfoSpec, Message, MessageType};

impl Qos {
    /// GIST says something of a session's route.
    pub(super) fn on_network(&mut self, now: Time, mri: &Mri, session: SessionId, event: NetworkEvent) {
        let Some(key) = self.find(session) else { return };
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.mri.direction() == mri.direction() {
            self.on_onward_event(now, key, event);
        } else {
            self.on_back_event(key, event);
        }
        self.rearm(key);
    }

    fn on_onward_event(&mut self, now: Time, key: Key, event: NetworkEvent) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        match event {
            NetworkEvent::LastNode => {
                // §5.2.5.1: it answers from now on, and goes on looking.
                session.marks.set(Marks::LAST, true);
                session.onward = None;
            }
            NetworkEvent::Good(sii) => match session.onward {
                Some(old) if old != sii => self.repair(key, Some(sii)),
                _ => {
                    session.onward = Some(sii);
                    session.marks.set(Marks::LAST, false);
                }
            },
            NetworkEvent::RouteDeleted(sii) if session.onward == Some(sii) => self.repair(key, None),
            NetworkEvent::Bad if session.onward.is_some() => self.repair(key, None),
            NetworkEvent::CommunicationFailure
                if session.stage == Stage::Reserved && session.pending.is_empty() && !session.is_end() =>
            {
                self.send_whole(now, key, Want::Repair);
            }
            // Until GIST has found out who is there it sends along the old way.
            _ => {}
        }
    }

    fn on_back_event(&mut self, key: Key, event: NetworkEvent) {
        let Some(session) = self.sessions.get(key) else { return };
        let Some(back) = session.back.filter(|_| session.stage == Stage::Reserved) else { return };
        let gone = match event {
            NetworkEvent::Good(sii) => sii != back,
            NetworkEvent::Bad | NetworkEvent::Tentative => true,
            NetworkEvent::RouteDeleted(sii) => sii == back,
            _ => false,
        };
        if !gone {
            return;
        }
        if session.mri.direction() == Direction::Upstream {
            // The receiver reserves, and its side of the path changed: it has to be found again. While GIST itself is
            // still looking there is nothing to be sent to.
            if event != NetworkEvent::Tentative {
                self.ask_again_downstream(key);
            }
            return;
        }
        // §5.2.5.3: the old peer hears it by explicit routing.
        let notify = Message {
            generic: generic(session),
            info: Some(InfoSpec { source: self.own_source(session), ..InfoSpec::from(Info::ROUTE_CHANGE) }),
            ..Message::new(MessageType::NOTIFY)
        };
        let to = Target { sii: Some(back), ..Target::towards_initiator(session) };
        self.send_notify(to, &notify);
    }

    /// The path onward is another, it seems: reserve along the new one, and tear the old one down when that stands
    /// (§5.2.5.2). Where the packets leave may be another interface.
    pub(super) fn repair(&mut self, key: Key, new: Option<SiiHandle>) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let ends = session.marks.has(Marks::END) || session.marks.has(Marks::SCOPED);
        if session.stage != Stage::Reserved || ends {
            session.onward = new;
            return;
        }
        if let Some(old) = session.onward.filter(|old| Some(*old) != new) {
            session.old_branch = Some(OldBranch { sii: old });
        }
        session.onward = None;
        if session.marks.has(Marks::REPAIRING) {
            return; // the route is being looked up already
        }
        session.marks.set(Marks::REPAIRING, true);
        let query = route_query(&session.mri);
        if !self.look_up(Parked::Repair(key), query)
            && let Some(session) = self.sessions.get_mut(key)
        {
            session.marks.set(Marks::REPAIRING, false);
        }
    }

    /// Where the packets leave is known: hold there what is held, besides what is held at the old interface, and ask
    /// the new path.
    pub(super) fn on_routed_repair(
        &mut self,
        now: Time,
        key: Key,
        route: Result<Route, NoRoute>,
        resources: &mut Resources,
    ) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.marks.set(Marks::REPAIRING, false);
        let Ok(route) = route else { return }; // the flow goes nowhere: state ends by itself unless this mends
        if session.stage != Stage::Reserved {
            return;
        }
        let ifindex = (!route.local).then_some(route.ifindex);
        if session.ifindex != ifindex {
            let flow = Flow { ifindex, mtu: route.mtu, ..flow_of(&self.config, key, session) };
            match rmf::reserve(resources, now, &flow, &session.qspec, None) {
                Ok(given) => {
                    self.counters.granted += 1;
                    let Some(session) = self.sessions.get_mut(key) else { return };
                    // Make before break: the old interface's share goes when the new path has answered.
                    session.old_grants.extend(session.grant.take());
                    session.grant = given.grant;
                    session.ifindex = given.ifindex;
                    session.rate = given.rate;
                }
                Err(denial) => {
                    self.counters.refused += 1;
                    let note = denial.note.unwrap_or_default();
                    return self.give_up_here(now, key, Info::RESERVATION_FAILURE, &note, resources);
                }
            }
        }
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.rsn_out = session.rsn_out.map(|rsn| rsn.wrapping_add(2));
        session.marks.set(Marks::CONFIRMED, false);
        session.marks.set(Marks::LAST, false);
        session.pending.retain(|p| p.want == Want::Reserve);
        self.send_whole(now, key, Want::Repair);
        self.rearm(key);
    }

    /// The new path holds the reservation: what the old one holds is not needed any more (§5.2.5.2).
    pub(super) fn repaired(&mut self, key: Key, info: Info, resources: &mut Resources) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        for grant in core::mem::take(&mut session.old_grants) {
            resources.release(grant);
        }
        let Some(old) = session.old_branch.take() else { return };
        self.counters.rerouted += 1;
        // "Refresh successful": the path is the one it was.
        let same = info == Info::REFRESHED || session.onward == Some(old.sii);
        let keep = session.marks.has(Marks::KEEP) || !self.config.tear_old_branch;
        session.moved = !same;
        if same || keep {
            return;
        }
        let rsn = session.rsn_out.map(|rsn| rsn.wrapping_sub(1));
        let extra = Extra { sii: Some(old.sii), rsn, ..Extra::default() };
        if self.send_reserve(key, Form::Tear, extra).is_some() {
            self.counters.tears_sent += 1;
        }
    }
}

/// A session's surroundings, as they are.
pub(super) fn flow_of<'a>(config: &Config, key: Key, session: &'a Session) -> Flow<'a> {
    Flow {
        key,
        session: session.id,
        mri: session.mri,
        classifier: session.classifier,
        ifindex: session.ifindex,
        mtu: 0,
        initiator: initiator(session),
        auth: Carried::auth(&session.auth),
        lifetime: config.lifetime(session.period_in),
        mark_dscp: session.trunk.and_then(|(trunk, _)| config.aggregates.get(trunk)).map(|a| a.dscp),
    }
}

/// Whose reservation it is, as far as the flow tells.
pub(super) const fn initiator(session: &Session) -> core::net::IpAddr {
    match session.mri.direction() {
        Direction::Downstream => session.mri.src(),
        Direction::Upstream => session.mri.dst(),
    }
}
