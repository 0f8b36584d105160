//! Routes that change (RFC 5974 §3.2.12, §5.2.5).

use signalbox_core::node::{NoRoute, Route};
use signalbox_core::service::{NetworkEvent, SiiHandle};
use signalbox_core::slab::Key;
use signalbox_core::{Direction, Mri, SessionId};
use signalbox_resources::Resources;

use super::compose::{Extra, Form, Target, generic};
use super::parked::{Parked, route_query};
use super::rmf::{self, Flow};
use super::session::{Marks, OldBranch, Session, Stage, Want};
use super::{Config, Qos};
use crate::wire::{Carried, Info, InfoSpec, Message, MessageType};

/// Most branches of a session that wait for being torn down; the oldest is left to end by itself.
const MOST_BRANCHES: usize = 4;

impl Qos {
    /// GIST says something of a session's route.
    pub(super) fn on_network(&mut self, mri: &Mri, session: SessionId, event: NetworkEvent) {
        let Some(key) = self.find(session) else { return };
        if matches!(event, NetworkEvent::Good(_)) {
            self.keep_route(key, mri);
        }
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.mri.direction() == mri.direction() {
            self.on_onward_event(key, event);
        } else {
            self.on_back_event(key, event);
        }
        self.rearm(key);
    }

    fn on_onward_event(&mut self, key: Key, event: NetworkEvent) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if let NetworkEvent::Good(sii) = event {
            session.gist_onward = Some(sii);
        }
        // GIST says which route is deleted after it said which one is good: the latter decides.
        match event {
            // The path got shorter: this node answers when GIST cannot send the repair.
            NetworkEvent::LastNode if session.onward.is_some() => self.repair(key, None),
            NetworkEvent::LastNode => {
                // §5.2.5.1: it answers from now on, and goes on looking.
                session.marks.set(Marks::LAST, true);
            }
            NetworkEvent::Good(sii) if session.is_behind(self.now, sii) => self.turned_back(key),
            NetworkEvent::Good(sii) => {
                let repairs = session.marks.has(Marks::REPAIRING)
                    || session.pending.iter().any(|p| p.want == Want::Repair);
                let left = session.onward.is_none() && !session.old_branches.is_empty() && !repairs;
                if left || session.onward.is_some_and(|old| old != sii) {
                    self.repair(key, Some(sii));
                } else {
                    session.marks.set(Marks::LAST, false);
                    self.set_onward(key, sii);
                    self.verify_interface(key);
                }
            }
            NetworkEvent::Bad if session.onward.is_some() => self.repair(key, None),
            NetworkEvent::CommunicationFailure
                if session.stage == Stage::Reserved && session.pending.is_empty() && !session.is_end() =>
            {
                self.send_whole(key, Want::Repair);
            }
            // Until GIST has found out who is there it sends along the old way.
            _ => {}
        }
    }

    fn on_back_event(&mut self, key: Key, event: NetworkEvent) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        match event {
            NetworkEvent::Good(sii) => session.gist_back = Some(sii),
            NetworkEvent::Bad => session.gist_back = None,
            _ => {}
        }
        let Some(back) = session.back.filter(|_| session.stage == Stage::Reserved) else { return };
        let upstream = session.mri.direction() == Direction::Upstream;
        // §5.2.5.4: as long as the old branch may be refreshed, GIST finds changes that are none. Downstream it follows
        // the route.
        let old = session.old_back.filter(|(_, until)| !upstream && self.now < *until).map(|(sii, _)| sii);
        let gone = match event {
            NetworkEvent::Good(sii) if sii == back => {
                session.marks.set(Marks::TOLD, false);
                if upstream {
                    self.verify_interface(key);
                }
                return;
            }
            NetworkEvent::Good(sii) if session.is_ahead(sii) => {
                if upstream {
                    self.leave_path(key);
                }
                return;
            }
            NetworkEvent::Good(sii) => old != Some(sii),
            NetworkEvent::Bad | NetworkEvent::Tentative => old.is_none(),
            _ => false,
        };
        if !gone {
            return;
        }
        if upstream {
            // The receiver reserves, and its side of the path changed: it has to be found again. While GIST itself is
            // still looking there is nothing to be sent to.
            if event != NetworkEvent::Tentative {
                self.ask_again_downstream(key);
            }
            return;
        }
        if session.marks.has(Marks::TOLD) {
            return;
        }
        session.marks.set(Marks::TOLD, true);
        let Some(session) = self.sessions.get(key) else { return };
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
            let left =
                session.onward.filter(|old| session.stage == Stage::Torn && !ends && Some(*old) != new);
            session.onward = new;
            if let Some(sii) = left {
                self.tear_left(key, sii);
            }
            return;
        }
        let rsn = session.rsn_out.unwrap_or(0);
        if let Some(sii) = session.onward.filter(|old| Some(*old) != new) {
            session.old_branches.retain(|old| old.sii != sii);
            if session.old_branches.len() >= MOST_BRANCHES {
                session.old_branches.remove(0);
            }
            session.old_branches.push(OldBranch { sii, rsn });
        }
        // It may be one that was left before.
        session.old_branches.retain(|old| Some(old.sii) != new);
        session.onward = None;
        if let Some(new) = new {
            self.set_onward(key, new);
        }
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.marks.has(Marks::REPAIRING) {
            return; // the route is being looked up already
        }
        session.marks.set(Marks::REPAIRING, true);
        session.marks.set(Marks::UNSETTLED, true);
        let query = route_query(&session.mri);
        if !self.look_up(Parked::Repair(key), query)
            && let Some(session) = self.sessions.get_mut(key)
        {
            session.marks.set(Marks::REPAIRING, false);
        }
    }

    /// The peer is the one it was, but the packets may leave by another interface: routes can change between what GIST
    /// asks and what this node asks, and back before GIST asks again.
    pub(super) fn verify_interface(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let ends = session.marks.has(Marks::SCOPED) || session.grant.is_none();
        if session.stage == Stage::Reserved && !ends && !session.marks.has(Marks::REPAIRING) {
            let query = route_query(&session.mri);
            self.look_up(Parked::Verify(key), query);
        }
    }

    /// Where the packets leave is known again.
    pub(super) fn on_verified(&mut self, key: Key, route: Result<Route, NoRoute>, resources: &mut Resources) {
        let Some(session) = self.sessions.get(key) else { return };
        let moved = route.is_ok_and(|route| !route.local && session.ifindex != Some(route.ifindex));
        if moved && session.grant.is_some() && !session.marks.has(Marks::REPAIRING) {
            self.on_routed_repair(key, route, resources);
        }
    }

    /// Where the packets leave is known: hold there what is held, besides what is held at the old interface, and ask
    /// the new path.
    pub(super) fn on_routed_repair(
        &mut self,
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
            match rmf::reserve(resources, self.now, &flow, &session.qspec, None) {
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
                    return self.give_up_here(key, Info::RESERVATION_FAILURE, &note, resources);
                }
            }
        }
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.rsn_out = session.rsn_out.map(|rsn| rsn.wrapping_add(2));
        for old in &mut session.old_branches {
            old.rsn = session.rsn_out.unwrap_or(0).wrapping_sub(1);
        }
        session.marks.set(Marks::CONFIRMED, false);
        session.marks.set(Marks::LAST, false);
        session.pending.retain(|p| p.want == Want::Reserve);
        self.send_whole(key, Want::Repair);
        self.rearm(key);
    }

    /// The new path holds the reservation: resources and branches of the old path are released (RFC 5974 §5.2.5.2).
    /// True: the new path is another one than before.
    pub(super) fn repaired(&mut self, key: Key, info: Info, resources: &mut Resources) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return false };
        for grant in core::mem::take(&mut session.old_grants) {
            resources.release(grant);
        }
        if session.old_branches.is_empty() {
            return false;
        }
        self.counters.rerouted += 1;
        self.verify_interface(key);
        let Some(session) = self.sessions.get_mut(key) else { return false };
        let onward = session.onward;
        session.old_branches.retain(|old| Some(old.sii) != onward);
        // "Refresh successful" means that the RESERVE met the reservation again: the path is the one it was.
        let same = info == Info::REFRESHED || session.old_branches.is_empty();
        tracing::debug!(session = %session.id, other_path = !same, "reservation rerouted");
        if same {
            session.old_branches.clear();
        }
        self.tear_old_branches(key, None);
        !same
    }

    /// The new path did not take the reservation, or nobody answers there. What was held for the old one is of no use:
    /// the packets do not go there.
    pub(super) fn not_repaired(&mut self, key: Key, resources: &mut Resources) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        for grant in core::mem::take(&mut session.old_grants) {
            resources.release(grant);
        }
    }

    /// Tears down, by explicit routing, what the branches hold that the session left. With an `rii` the whole session
    /// ends: where the new branch does not hold it yet, the confirmation comes along an old one.
    pub(super) fn tear_old_branches(&mut self, key: Key, rii: Option<u32>) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let branches = core::mem::take(&mut session.old_branches);
        if session.marks.has(Marks::KEEP) || !self.config.tear_old_branch {
            return;
        }
        for old in branches {
            let extra = Extra { rii, sii: Some(old.sii), rsn: Some(old.rsn), ..Extra::default() };
            if self.send_reserve(key, Form::Tear, extra).is_some() {
                self.counters.tears_sent += 1;
            }
        }
    }

    /// The session was torn down while its route changed: the tear went to the branch that the path left, but by the
    /// way out of the new one, and the peer there may not have known whose it was. It goes there by explicit routing.
    fn tear_left(&mut self, key: Key, sii: SiiHandle) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let own = session.pending.iter().find(|p| p.want == Want::Tear).map(|p| p.rii);
        let rii = own.or_else(|| session.passed.last().map(|p| p.rii));
        session.old_branches.push(OldBranch { sii, rsn: session.rsn_out.unwrap_or(0) });
        self.tear_old_branches(key, rii);
    }

    /// GIST found the peer that RESERVEs come from where they go to. Against the flow it only followed a Query of that
    /// peer.
    fn turned_back(&mut self, key: Key) {
        if self.sessions.get(key).is_some_and(|s| s.mri.direction() == Direction::Downstream) {
            self.leave_path(key);
        }
    }

    /// GIST found that the flow's route leads back to the peer that it comes from: this node is off the path. It keeps
    /// quiet, or its Queries would take that peer's way back away from the path.
    fn leave_path(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.marks.set(Marks::OFF_PATH, true);
        self.forget_way(key, Direction::Downstream);
    }

    /// The next peer said that the route before it changed, and this node is on the path all the same: GIST looks who
    /// follows (§5.2.5.3). It does not while nobody refreshed this node since: where the path left it, GIST's Query would
    /// take the next peer's way back away from the new path.
    pub(super) fn verify_route(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.marks.set(Marks::OFF_PATH, false);
        if session.marks.has(Marks::DOUBTED) {
            session.marks.set(Marks::DOUBTED, false);
            self.out.invalidate_route(session.nslp_onward, session.mri);
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
        peer: session.peer.clone(),
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
