//! Route changes and local repair (RFC 5971 §7.1), triggered by the routing table of this node.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::node::{Interface, NoRoute, Prefix, Route};
use signalbox_core::service::{NetworkEvent, SendError};
use signalbox_core::slab::Key;
use signalbox_core::stamp::Stamp;
use signalbox_core::{Direction, IfIndex, invariant};

use super::index::{Step, WalkCause, place};
use crate::engine::Gist;
use crate::engine::handshake::RESOLVE;
use crate::engine::routing::{Egress, NO_REFRESH, NONE, RETRY, State, TENTATIVE};

/// Steps of walks over sessions in one call. GIST-5.3.3-24: the driver runs between the calls, and the Queries that follow
/// are subject to the rate limit.
const STEPS: u32 = 2048;

impl Gist {
    /// Takes the new interfaces and addresses. It checks the routes of sessions whose egress is a changed interface or a
    /// removed address, and of sessions whose destination is a new address. The kernel reports new routes, but not the
    /// IPv4 routes that it removes together with a link.
    pub(in crate::engine) fn interfaces_changed(&mut self, interfaces: &[Interface]) {
        let before = self.interfaces.update(interfaces, &self.config);
        let (index, now) = (&mut self.routes.index, &self.interfaces);
        for (id, egress) in self.peers.egresses() {
            if now.differs_on(egress.ifindex, &before) || !now.is_local(egress.address) {
                index.walk_egress(id);
            }
        }
        for address in now.all().filter(|address| !before.is_local(*address)) {
            index.walk_prefix(Prefix::host(address));
        }
    }

    /// Checks the routes of all sessions with a destination in `prefix`.
    pub(in crate::engine) fn route_changed(&mut self, prefix: Prefix) {
        self.routes.index.walk_prefix(prefix);
    }

    /// Another router may have the place of a neighbor, and no route changes (VRRP): the sessions whose Queries go there are
    /// refreshed, so that its Responses show who is there. Their state stays as it is until then.
    pub(in crate::engine) fn neighbor_moved(&mut self, ifindex: IfIndex, address: IpAddr) {
        let index = &mut self.routes.index;
        for (id, egress) in self.peers.egresses() {
            if egress.ifindex == ifindex && egress.gateway == Some(address) {
                index.walk_gateway(id, (ifindex, address));
            }
        }
        index.walk_neighbor((ifindex, address));
    }

    /// Refreshes the state of a direction whose Queries go to a neighbor, before its time.
    fn refresh_by(&mut self, key: Key, direction: Direction, (ifindex, address): (IfIndex, IpAddr)) {
        let Some(record) = invariant!(self.records.get(key), "a session of a moved neighbor stands") else {
            return;
        };
        let egress = record.half(direction).egress;
        let next = invariant!(self.peers.egress(egress), "a session in the list of a route has an egress");
        let next =
            next.map(|egress| (egress.ifindex, egress.gateway.unwrap_or(record.flow.target(direction))));
        if next == Some((ifindex, address)) {
            self.counters.neighbors_followed += 1;
            self.start_refresh(key, direction);
        }
    }

    /// Checks the routes of a bounded number of sessions: those of destinations whose hold-down has ended, then those of
    /// the walks.
    pub(in crate::engine) fn run_walks(&mut self) {
        while let Some(dst) = self.routes.hold_downs.pop_due(self.now) {
            self.routes.index.walk_prefix(Prefix::host(dst));
        }
        for _ in 0..STEPS {
            match self.routes.index.step(&self.records) {
                Step::Visit { index, direction, cause } => {
                    let key = invariant!(self.records.key_of(index), "a walk visits sessions that stand");
                    let Some(key) = key else { continue };
                    match cause {
                        WalkCause::Routes => self.check_route(key, direction, true),
                        WalkCause::Egress => self.check_route(key, direction, false),
                        WalkCause::Neighbor(ifindex, address) => {
                            self.refresh_by(key, direction, (ifindex, address));
                        }
                    }
                }
                Step::Continue => {}
                Step::Done => return,
            }
        }
    }

    /// Looks up the route of a session again, or defers this until the hold-down of its destination ends. A session without
    /// route does not wait.
    fn check_route(&mut self, key: Key, direction: Direction, may_wait: bool) {
        let Some(record) = invariant!(self.records.get(key), "a route is checked for a session that stands")
        else {
            return;
        };
        let has_route = record.half(direction).state != State::Resolving;
        if may_wait && has_route && self.routes.hold_downs.is_held(self.now, record.flow.target(direction)) {
            self.counters.routes_held += 1;
            return;
        }
        self.counters.route_checks += 1;
        self.lookup_record(key, direction);
    }

    /// Sets the egress of a querying direction, which takes over the reference; [`NONE`]: no egress.
    pub(in crate::engine) fn set_egress(&mut self, key: Key, direction: Direction, egress: u32) {
        let place = place(key.index(), direction);
        self.routes.index.unlink(&mut self.records, place);
        let Some(record) = invariant!(self.records.get_mut(key), "an egress is set in a session that stands")
        else {
            return;
        };
        let dst = record.flow.target(direction);
        let old = core::mem::replace(&mut record.half_mut(direction).egress, egress);
        if egress != NONE {
            self.routes.index.link(&mut self.records, place, dst, egress);
        }
        self.peers.release_egress(old);
    }

    /// Takes the route of a record's Queries. The first Query is sent, or established state is compared with the route
    /// (local trigger, RFC 5971 §7.1.2).
    pub(in crate::engine) fn record_route(
        &mut self,
        key: Key,
        direction: Direction,
        result: Result<Route, NoRoute>,
    ) {
        let Some(record) =
            invariant!(self.records.get(key), "the answer to a lookup was given to a session that stands")
        else {
            return;
        };
        let half = record.half(direction);
        let (state, old) = (half.state, half.egress);
        if !state.is_querying() {
            return;
        }
        let mri = record.flow.mri(direction);
        let dst = mri.target();
        let new = match result {
            Err(_) => Err(SendError::NoRoute),
            Ok(route) if route.local => Err(SendError::FlowEndsHere),
            Ok(route) => self.egress_of(&route, &mri).ok_or(SendError::NoRoute),
        };
        let new = match new {
            Ok(new) => new,
            Err(SendError::NoRoute) if old != NONE => return self.route_lost(key, direction),
            Err(error) => {
                if state.is_established() {
                    self.notify(key, direction, NetworkEvent::Bad);
                }
                return self.remove_half(key, direction, error);
            }
        };
        let before = self.peers.egress(old).copied();
        if before == Some(new) {
            // GIST-7.1.3-09: the route is the same as before, so there is nothing to repair.
            if state == State::Resolving {
                self.first_query(key, direction);
            }
            return;
        }
        let Ok(egress) = self.peers.intern_egress(new) else {
            self.counters.peers_full += 1;
            tracing::debug!(session = %self.records.get(key).map(|r| r.session).unwrap_or_default(), reason = "table of egresses full", "routing state removed");
            return self.remove_half(key, direction, SendError::Overload);
        };
        self.set_egress(key, direction, egress);
        // Only the size of packets changed.
        let same_route = before.is_some_and(|before| Egress { mtu: new.mtu, ..before } == new);
        match state {
            State::Resolving => self.first_query(key, direction),
            _ if same_route => {}
            state => {
                self.counters.routes_followed += 1;
                self.counters.holds_full += u64::from(!self.routes.hold_downs.moved(self.now, dst));
                if state.is_established() {
                    self.repair(key, direction);
                } else {
                    self.restart_handshake(key, direction);
                }
            }
        }
    }

    /// The route does not exist any more. State is Bad and messages are queued, since routing may find another route. If
    /// there is none within [`RESOLVE`], the state is removed.
    fn route_lost(&mut self, key: Key, direction: Direction) {
        let state = self.records.state(key, direction);
        if state.is_established() {
            self.notify(key, direction, NetworkEvent::Bad);
        }
        let now = self.now;
        let record = invariant!(self.records.get_mut(key), "a session stands while it has no route");
        let Some(record) = record.filter(|_| state != State::Resolving) else { return };
        let half = record.half_mut(direction);
        half.state = State::Resolving;
        half.start_retry(now, RESOLVE);
        transition!(self.peers, record, direction, state, "no route");
        self.arm(key);
    }

    /// The local routing table has changed the route: state is Tentative until a Response shows the peer on the new route
    /// (RFC 5971 §7.1.3 option 2). GIST-7.1.2-05.
    ///
    /// The handshake starts at once if the upstream state is Good or not needed (GIST-7.1.3-12). It starts later if the
    /// upstream state is Tentative (GIST-7.1.3-13), since this node may be off the path as well.
    fn repair(&mut self, key: Key, direction: Direction) {
        let other = direction.inverted();
        self.make_tentative(key, direction);
        // GIST-7.1.3-04
        if self.config.upstream_tentative {
            self.make_tentative(key, other);
        }
        let delay = self.rng.jitter(self.config.t1, 1.0, 2.0);
        let now = self.now;
        let Some(record) =
            invariant!(self.records.get_mut(key), "a session stands while its route is repaired")
        else {
            return;
        };
        let doubtful = record.half(other).has(TENTATIVE) || record.half(direction).has(NO_REFRESH);
        if !doubtful {
            return self.start_refresh(key, direction);
        }
        record.half_mut(direction).start_retry(now, delay);
        self.arm(key);
    }

    /// Makes established state Tentative and notifies the application (RFC 5971 §7.1.3).
    pub(in crate::engine) fn make_tentative(&mut self, key: Key, direction: Direction) {
        let Some(record) = invariant!(self.records.get_mut(key), "Tentative state is that of a session")
        else {
            return;
        };
        let half = record.half_mut(direction);
        if half.state.is_established() && !half.has(TENTATIVE) {
            half.set(TENTATIVE, true);
            self.notify(key, direction, NetworkEvent::Tentative);
        }
    }

    /// Period of refreshes (RFC 5971 §4.4.4). A node whose upstream peer refreshes it uses the longest period, so that the
    /// refresh from upstream comes first and triggers its own ([`Gist::pass_refresh_on`]).
    pub(in crate::engine) fn refresh_after(
        &mut self,
        key: Key,
        direction: Direction,
        validity: Duration,
    ) -> Duration {
        let relay = self.records.state(key, direction.inverted()).is_responding();
        if relay { validity * 3 / 4 } else { self.rng.jitter(validity, 0.5, 0.75) }
    }

    /// A peer has refreshed the state of the opposite direction. Refreshes the state of `direction` if it would expire
    /// earlier. So refreshes travel along the path, the state of each node expires with that of the node before it, and a
    /// node that returns to the path sends its Query at once.
    ///
    /// Where the routes of several nodes form a circle, a refresh would go round for ever. So each refresh that soon follows
    /// another one waits twice as long as the one before, up to a quarter of the validity time. True: the refresh was sent, or
    /// the timer is set for it.
    pub(in crate::engine) fn pass_refresh_on(&mut self, key: Key, direction: Direction) -> bool {
        let (now, t1, validity) = (self.now, self.config.t1, self.validity());
        let ends_first = self.outlasts(key, direction, t1) == Some(false);
        let Some(record) =
            invariant!(self.records.get_mut(key), "a refresh is passed on in a session that stands")
        else {
            return false;
        };
        let half = record.half(direction);
        let doubtful = half.has(TENTATIVE);
        if half.state != State::Established || !(doubtful || ends_first) {
            return false;
        }
        let since = record.passed_at.age(now);
        if since >= validity * 3 / 8 {
            record.passed = 0;
        }
        let pause = match record.passed {
            0 => Duration::ZERO,
            passed => t1.saturating_mul(1 << (passed - 1).min(16)).min(validity / 4),
        };
        if since < pause && !doubtful {
            let half = record.half_mut(direction);
            let left = pause - since;
            if !half.has(RETRY) || half.retry.left(now) > left {
                half.start_retry(now, left);
                self.arm(key);
            }
            return true;
        }
        record.passed = record.passed.saturating_add(1);
        record.passed_at = Stamp::of(now);
        self.start_refresh(key, direction);
        true
    }

    /// Whether the state of a querying direction expires no earlier than that of the opposite direction, minus `slack`;
    /// `None`: no peer refreshes the opposite direction.
    fn outlasts(&self, key: Key, direction: Direction, slack: Duration) -> Option<bool> {
        let record =
            invariant!(self.records.get(key), "the directions of a session are compared while it stands")?;
        let (half, other) = (record.half(direction), record.half(direction.inverted()));
        let refreshed = other.state.is_responding() && other.state.is_established();
        refreshed.then(|| half.expire.left(self.now) + slack >= other.expire.left(self.now))
    }

    /// Whether a refresh that is due is deferred until the refresh from the opposite side: the state is Good and does not
    /// expire before. If a node that is off the path refreshed by its own timer, the crossover router would switch back to
    /// it (RFC 5971 §7.1.4: "state conflicts at the crossover router").
    pub(in crate::engine) fn waits_for_refresh(&self, key: Key, direction: Direction) -> bool {
        let doubtful = self.records.get(key).is_some_and(|record| record.half(direction).has(TENTATIVE));
        !doubtful && self.outlasts(key, direction, self.validity() / 8) == Some(true)
            || self.is_refresh_overdue(key, direction)
    }

    /// Whether the expected refresh from the opposite side is late: this node may be off the path (RFC 5971 §4.4.4).
    /// GIST-4.4.4-08.
    fn is_refresh_overdue(&self, key: Key, direction: Direction) -> bool {
        let Some(record) =
            invariant!(self.records.get(key), "a refresh is expected in a session that stands")
        else {
            return false;
        };
        let other = record.half(direction.inverted());
        other.state.is_responding()
            && other.state.is_established()
            && other.expire.left(self.now) <= self.validity() / 4
    }
}
