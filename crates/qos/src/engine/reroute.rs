//! Route changes (RFC 5974 §3.2.12, §5.2.5).

use signalbox_core::node::{NoRoute, Route};
use signalbox_core::service::{NetworkEvent, SiiHandle};
use signalbox_core::slab::Key;
use signalbox_core::{Direction, Mri, SessionId, invariant};
use signalbox_resources::{End, Resources};

use super::compose::{Extra, Form};
use super::path_check::Then;
use super::rare::RareFields;
use super::rmf::{self, Flow};
use super::session::{Marks, OldBranch, RequestKind, Session, Stage};
use super::waiting::{Arrival, Waiting};
use super::{Config, Qos};
use crate::wire::{Carried, Info, Message, MessageFlags};

/// Most old branches of a session. The oldest one ends by its own timeout.
const MOST_BRANCHES: usize = 4;

impl Qos {
    /// Handles a network notification of GIST (RFC 5971 B.4).
    pub(super) fn on_network(&mut self, mri: &Mri, session: SessionId, event: NetworkEvent) {
        let Some(key) = self.find(session) else { return };
        if matches!(event, NetworkEvent::Good(_)) {
            self.keep_route(key, mri);
        }
        let Some(session) = invariant!(self.sessions.get_mut(key), "an event has a session") else { return };
        tracing::debug!(session = %session.id, direction = ?mri.direction(), ?event, "network notification");
        if session.direction == mri.direction() {
            self.on_next_peer_event(key, event);
        } else {
            self.on_previous_peer_event(key, event);
        }
        self.rearm(key);
    }

    fn on_next_peer_event(&mut self, key: Key, event: NetworkEvent) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a next peer has a session") else {
            return;
        };
        if let NetworkEvent::Good(sii) = event {
            session.set_gist_next(Some(sii));
        }
        // GIST reports the deletion of a route after it reported the new one. The latter decides.
        match event {
            // The path became shorter: this node answers when GIST cannot send the RESERVE of the repair.
            NetworkEvent::LastNode if session.next_peer().is_some() => self.repair(key, None),
            NetworkEvent::LastNode => {
                // §5.2.5.1: it answers from now on, and still sends requests.
                session.marks.set(Marks::LAST_NODE, true);
            }
            NetworkEvent::Good(sii) if session.is_previous_peer(self.now, sii) => self.turned_back(key),
            NetworkEvent::Good(sii) => {
                let repairs = session.marks.has(Marks::REPAIRING)
                    || session.pending.iter().any(|p| p.kind == RequestKind::Repair);
                let left = session.next_peer().is_none() && !session.rare.old_branches.is_empty() && !repairs;
                // The last event for the user said that the end of the flow did not answer.
                let alone = session.marks.has(Marks::LAST_NODE)
                    && session.local.as_ref().is_some_and(|local| local.is_told());
                if left || alone || session.next_peer().is_some_and(|old| old != sii) {
                    self.repair(key, Some(sii));
                } else {
                    session.marks.set(Marks::LAST_NODE, false);
                    self.set_next_peer(key, sii);
                    self.verify_interface(key);
                }
            }
            NetworkEvent::Bad if session.next_peer().is_some() => self.repair(key, None),
            NetworkEvent::CommunicationFailure
                if session.stage == Stage::Reserved && session.pending.is_empty() && !session.is_end() =>
            {
                if !self.ask_previous_peer(key, Then::Whole) {
                    self.send_whole(key, RequestKind::Repair);
                }
            }
            // Until GIST has found the new peer it uses the old routing state.
            NetworkEvent::Tentative
            | NetworkEvent::Bad
            | NetworkEvent::RouteDeleted(_)
            | NetworkEvent::AuthorisationChanged
            | NetworkEvent::CommunicationFailure => {}
        }
    }

    fn on_previous_peer_event(&mut self, key: Key, event: NetworkEvent) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a previous peer has a session") else {
            return;
        };
        match event {
            NetworkEvent::Good(sii) => session.set_gist_previous(Some(sii)),
            NetworkEvent::Bad => session.set_gist_previous(None),
            NetworkEvent::LastNode
            | NetworkEvent::Tentative
            | NetworkEvent::RouteDeleted(_)
            | NetworkEvent::AuthorisationChanged
            | NetworkEvent::CommunicationFailure => {}
        }
        let Some(back) = session.previous_peer().filter(|_| session.stage == Stage::Reserved) else { return };
        let upstream = session.direction == Direction::Upstream;
        // §5.2.5.4: while the old branch may be refreshed, GIST reports changes that did not take place. Downstream
        // routing state follows the route.
        let old = session
            .rare
            .old_previous_peer
            .filter(|(_, until)| !upstream && self.now < *until)
            .map(|(sii, _)| sii);
        let gone = match event {
            NetworkEvent::Good(sii) if sii == back => {
                session.marks.set(Marks::PREVIOUS_NOTIFIED, false);
                session.end_report(Some(sii));
                if upstream {
                    self.verify_interface(key);
                }
                return;
            }
            NetworkEvent::Good(sii) if session.is_next_peer(sii) => {
                if upstream {
                    self.leave_path(key);
                }
                return;
            }
            NetworkEvent::Good(sii) => old != Some(sii),
            NetworkEvent::Bad | NetworkEvent::Tentative => old.is_none(),
            NetworkEvent::LastNode
            | NetworkEvent::RouteDeleted(_)
            | NetworkEvent::AuthorisationChanged
            | NetworkEvent::CommunicationFailure => false,
        };
        if !gone {
            return;
        }
        if upstream {
            // The receiver reserves, and the path on its side changed: a QUERY finds it again. While GIST still looks
            // for the peer, no message can be sent.
            if event != NetworkEvent::Tentative {
                self.ask_again_downstream(key);
            }
            return;
        }
        self.notify_old_peer(key, back);
    }

    /// Reports to the old peer that the route before this node changed (RFC 5974 §5.2.5.3): once for a change, and in datagrams with
    /// copies.
    fn notify_old_peer(&mut self, key: Key, old: SiiHandle) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a NOTIFY has a session") else { return };
        if session.marks.has(Marks::PREVIOUS_NOTIFIED) {
            return;
        }
        session.marks.set(Marks::PREVIOUS_NOTIFIED, true);
        self.repeat_report(key, old);
        self.send_report(key, Some(old), None);
    }

    /// Reports to the previous peer that this RESERVE, which was granted, comes from another one (RFC 5974 §3.2.12). GIST does not
    /// report each change, and the node where the routes part perhaps does not reach that peer.
    pub(super) fn notify_replaced_peer(&mut self, key: Key, message: &Message<'_>, arrival: &Arrival) {
        let Some(session) = invariant!(self.sessions.get(key), "a replaced peer has a session")
            .filter(|s| s.stage == Stage::Reserved)
        else {
            return;
        };
        let Some(old) = session.previous_peer().filter(|_| arrival.sii.is_some()) else { return };
        let same_node = session.rsn_in.get().map(|rsn| rsn.epoch) == message.rsn.map(|rsn| rsn.epoch);
        let kept = !message.flags.contains(MessageFlags::REPLACE) || !self.config.tear_old_branch;
        if arrival.sii != Some(old) && !same_node && !kept {
            self.notify_old_peer(key, old);
        }
    }

    /// Starts a repair: the path to the next peer changed. A RESERVE goes along the new path, and the old branch is
    /// torn down after its RESPONSE (RFC 5974 §5.2.5.2). The egress interface may change too.
    pub(super) fn repair(&mut self, key: Key, new: Option<SiiHandle>) {
        if new.is_some() {
            self.forget_report(key);
        }
        let Some(session) = invariant!(self.sessions.get_mut(key), "a repair has a session") else { return };
        let ends = session.marks.has(Marks::QNR) || session.marks.has(Marks::SCOPED);
        if session.stage != Stage::Reserved || ends {
            let left =
                session.next_peer().filter(|old| session.stage == Stage::Torn && !ends && Some(*old) != new);
            session.set_next_peer(new);
            if let Some(sii) = left {
                self.tear_left(key, sii);
            }
            return;
        }
        let rsn = session.rsn_out.unwrap_or(0);
        let left = session.next_peer().filter(|old| Some(*old) != new);
        session.rare.change(|RareFields { old_branches, .. }| {
            if let Some(sii) = left {
                old_branches.retain(|old| old.sii != sii);
                if old_branches.len() >= MOST_BRANCHES {
                    old_branches.remove(0);
                }
                old_branches.push(OldBranch { sii, rsn });
            }
            // The new peer may be an old branch.
            old_branches.retain(|old| Some(old.sii) != new);
        });
        session.set_next_peer(None);
        if let Some(new) = new {
            self.set_next_peer(key, new);
        }
        let Some(session) = invariant!(self.sessions.get_mut(key), "a new peer ends no session") else {
            return;
        };
        if session.marks.has(Marks::REPAIRING) {
            return; // the route is being looked up already
        }
        tracing::debug!(session = %session.id, peer = ?new, "repair of the route starts");
        session.marks.set(Marks::ROUTE_UNSETTLED, true);
        if !session.holds_reserve() {
            session.start_branch();
        }
        if !self.ask_previous_peer(key, Then::Route) {
            self.look_up_repair(key);
        }
    }

    /// Looks up the new route of a session, to reserve along it.
    pub(super) fn look_up_repair(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a lookup has a session") else { return };
        if session.stage != Stage::Reserved || session.marks.has(Marks::REPAIRING) {
            return;
        }
        session.marks.set(Marks::REPAIRING, true);
        let query = session.route_query();
        if !self.look_up(Waiting::Repair(key), query)
            && let Some(session) = invariant!(self.sessions.get_mut(key), "a full table ends no session")
        {
            session.marks.set(Marks::REPAIRING, false);
        }
    }

    /// Looks the route up although the peer is the same: the egress interface may have changed, since GIST and this
    /// node look routes up at different times.
    pub(super) fn verify_interface(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a check has a session") else { return };
        let ends = session.marks.has(Marks::SCOPED) || session.grant.is_none();
        if session.stage == Stage::Reserved && !ends && !session.marks.has(Marks::REPAIRING) {
            let query = session.route_query();
            self.look_up(Waiting::Verify(key), query);
        }
    }

    /// Repairs the session if its egress interface is another one.
    pub(super) fn on_verified(&mut self, key: Key, route: Result<Route, NoRoute>, resources: &mut Resources) {
        let Some(session) = self.sessions.get_mut(key) else { return }; // it may have ended meanwhile
        let moved = route.is_ok_and(|route| !route.local && session.ifindex != Some(route.ifindex));
        if moved && session.grant.is_some() && !session.marks.has(Marks::REPAIRING) {
            session.start_branch();
            self.on_routed_repair(key, route, resources);
        }
    }

    /// Reserves at the new egress interface, in addition to the grant at the old one, and sends a RESERVE along the
    /// new path.
    pub(super) fn on_routed_repair(
        &mut self,
        key: Key,
        route: Result<Route, NoRoute>,
        resources: &mut Resources,
    ) {
        let Some(session) = self.sessions.get_mut(key) else { return }; // it may have ended meanwhile
        session.marks.set(Marks::REPAIRING, false);
        let Ok(route) = route else { return }; // no route: the state ends by its timeout unless a route appears
        if session.stage != Stage::Reserved {
            return;
        }
        let ifindex = (!route.local).then_some(route.ifindex);
        if session.ifindex != ifindex {
            let flow = Flow { ifindex, mtu: route.mtu, ..flow_of(&self.config, key, session) };
            match rmf::reserve(resources, self.now, &flow, &session.qspec, None) {
                Ok(given) => {
                    self.counters.granted += 1;
                    tracing::debug!(
                        session = %session.id,
                        grant = given.grant.map(|grant| grant.0),
                        ifindex = ifindex.map(|ifindex| ifindex.0),
                        "reservation granted at the new interface"
                    );
                    let Some(session) = invariant!(self.sessions.get_mut(key), "a grant ends no session")
                    else {
                        return;
                    };
                    // Make before break: the grant at the old interface is released after the RESPONSE of the new
                    // path.
                    if let Some(grant) = session.grant.take() {
                        session.rare.change(|rare| rare.old_grants.push(grant));
                    }
                    session.grant = given.grant.into();
                    session.ifindex = given.ifindex;
                    session.rate = given.rate;
                }
                Err(refusal) => {
                    self.counters.refused += 1;
                    tracing::debug!(
                        session = %session.id,
                        reason = refusal.note.as_deref(),
                        "reservation refused at the new interface"
                    );
                    let note = refusal.note.unwrap_or_default();
                    return self.give_up_here(key, Info::RESERVATION_FAILURE, &note, resources);
                }
            }
        }
        let Some(session) = invariant!(self.sessions.get_mut(key), "a route has a session") else { return };
        session.marks.set(Marks::LAST_NODE, false);
        session.pending.retain(|p| p.kind == RequestKind::Reserve);
        self.send_whole(key, RequestKind::Repair);
        self.rearm(key);
    }

    /// The new path holds the reservation: resources and branches of the old path are released (RFC 5974 §5.2.5.2).
    /// True: the new path is another one than before.
    pub(super) fn repaired(&mut self, key: Key, info: Info, resources: &mut Resources) -> bool {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a new path has a session") else {
            return false;
        };
        resources.because(End::Rerouted);
        for grant in session.rare.change(|rare| core::mem::take(&mut rare.old_grants)) {
            resources.release(grant);
        }
        if session.rare.old_branches.is_empty() {
            return false;
        }
        self.counters.rerouted += 1;
        self.verify_interface(key);
        let Some(session) = invariant!(self.sessions.get_mut(key), "a check ends no session") else {
            return false;
        };
        let onward = session.next_peer();
        session.rare.change(|rare| rare.old_branches.retain(|old| Some(old.sii) != onward));
        // "Refresh successful" means that the RESERVE met the reservation: the path has not changed.
        let same = info == Info::REFRESHED || session.rare.old_branches.is_empty();
        tracing::debug!(session = %session.id, other_path = !same, "reservation rerouted");
        if same {
            session.rare.change(|rare| rare.old_branches.clear());
        }
        self.tear_old_branches(key, None);
        !same
    }

    /// Releases the grants at the old interface after the new path refused or did not answer. The packets do not use
    /// it any more.
    pub(super) fn not_repaired(&mut self, key: Key, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "an old path has a session") else {
            return;
        };
        resources.because(End::Rerouted);
        for grant in session.rare.change(|rare| core::mem::take(&mut rare.old_grants)) {
            resources.release(grant);
        }
    }

    /// Tears down the old branches by explicit routing. With an `rii` the whole session ends; if the new branch has no
    /// reservation yet, the confirmation comes along an old one.
    pub(super) fn tear_old_branches(&mut self, key: Key, rii: Option<u32>) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a branch has a session") else { return };
        let branches = session.rare.change(|rare| core::mem::take(&mut rare.old_branches));
        if session.marks.has(Marks::NO_REPLACE) || !self.config.tear_old_branch {
            return;
        }
        for old in branches {
            let extra = Extra { rii, sii: Some(old.sii), rsn: Some(old.rsn), ..Extra::default() };
            if self.send_reserve(key, Form::Tear, extra).is_some() {
                self.counters.tears_sent += 1;
            }
        }
    }

    /// Tears down a branch by explicit routing when a session was torn down during a route change. The tear went to
    /// the egress interface of the new route, where the old peer may not have recognized it.
    fn tear_left(&mut self, key: Key, sii: SiiHandle) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a left peer has a session") else {
            return;
        };
        let own = session.pending.iter().find(|p| p.kind == RequestKind::Tear).map(|p| p.rii);
        let rii = own.or_else(|| session.last_forwarded());
        let rsn = session.rsn_out.unwrap_or(0);
        session.rare.change(|rare| rare.old_branches.push(OldBranch { sii, rsn }));
        self.tear_old_branches(key, rii);
    }

    /// Handles a notification of GIST that the next peer is the previous peer. Upstream, GIST only followed a Query of
    /// that peer.
    fn turned_back(&mut self, key: Key) {
        if self.sessions.get(key).is_some_and(|s| s.direction == Direction::Downstream) {
            self.leave_path(key);
        }
    }

    /// Marks this node as off the path: the route of the flow leads back to the previous peer. This node sends
    /// nothing, since a Query of GIST would change the upstream routing state of that peer.
    fn leave_path(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "who leaves has a session") else {
            return;
        };
        session.marks.set(Marks::OFF_PATH, true);
        self.release_direction(key, Direction::Downstream);
    }

    /// Makes GIST verify the next peer after that peer reported a route change (RFC 5974 §5.2.5.3). This waits until
    /// this node is refreshed: on a node that is off the path, a Query of GIST would replace the upstream routing
    /// state of the next peer.
    pub(super) fn verify_route(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a path check has a session") else {
            return;
        };
        session.marks.set(Marks::OFF_PATH, false);
        if session.marks.has(Marks::ROUTE_REPORTED) {
            session.marks.set(Marks::ROUTE_REPORTED, false);
            self.out.invalidate_route(session.nslp_next, session.mri());
        }
    }
}

impl Session {
    /// Begins a new branch: its RESERVEs have a newer RSN than the tear of the old branches, which is newer than all that
    /// went along them (RFC 5974 §5.2.5.2).
    fn start_branch(&mut self) {
        self.rsn_out = self.rsn_out.map(|rsn| rsn.wrapping_add(2));
        let rsn = self.rsn_out.unwrap_or(0).wrapping_sub(1);
        self.rare.change(|rare| rare.old_branches.iter_mut().for_each(|old| old.rsn = rsn));
        self.marks.set(Marks::CONFIRMED, false);
    }
}

/// The request data of a session as it is.
pub(super) fn flow_of<'a>(config: &Config, key: Key, session: &'a Session) -> Flow<'a> {
    Flow {
        key,
        session: session.id,
        mri: session.mri(),
        classifier: session.classifier,
        ifindex: session.ifindex,
        mtu: 0,
        initiator: initiator(session),
        peer: session.source.peer.clone(),
        requested_by: session.requested_by(),
        auth: Carried::auth(&session.rare.auth),
        lifetime: config.lifetime(session.period_in),
        mark_dscp: session
            .rare
            .aggregate
            .and_then(|(number, _)| config.aggregates.get(number))
            .map(|a| a.dscp),
    }
}

/// The address of the initiator of a reservation, by the flow.
pub(super) fn initiator(session: &Session) -> core::net::IpAddr {
    match session.direction {
        Direction::Downstream => session.mri().src(),
        Direction::Upstream => session.mri().dst(),
    }
}
