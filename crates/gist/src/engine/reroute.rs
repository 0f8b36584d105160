//! Route changes and local repair (RFC 5971 §7.1): what the kernel's tables say of sessions that stand.

use core::time::Duration;

use signalbox_core::Direction;
use signalbox_core::node::{Interface, NoRoute, Prefix, Route};
use signalbox_core::service::{NetworkEvent, SendError};
use signalbox_core::slab::Key;

use super::Gist;
use super::peers::Egress;
use super::querying::RESOLVE;
use super::record::{NO_REFRESH, NONE, State, TENTATIVE};
use super::route_index::{Step, place};

/// Steps of walks over the sessions of changed ways that one call takes. GIST-5.3.3-24: the driver has its turn
/// in between, and the Queries that follow are subject to the rate limit.
const STEPS: u32 = 2048;

impl Gist {
    /// The node's interfaces and addresses changed. What left by one that changed, or from an address that is
    /// gone, is looked at, and what goes to an address that is new: the kernel takes routes away with a link and
    /// says nothing of them (IPv4). New routes it does announce.
    pub(super) fn interfaces_changed(&mut self, interfaces: &[Interface]) {
        let before = self.interfaces.update(interfaces);
        let (index, now) = (&mut self.route_index, &self.interfaces);
        for (id, egress) in self.peers.egresses.iter() {
            if now.differs_on(egress.ifindex, &before) || !now.is_local(egress.address) {
                index.walk_egress(id);
            }
        }
        for address in now.all().filter(|address| !before.is_local(*address)) {
            index.walk_prefix(Prefix::host(address));
        }
    }

    /// Routes to `prefix` may have changed.
    pub(super) fn route_changed(&mut self, prefix: Prefix) {
        self.route_index.walk_prefix(prefix);
    }

    /// Looks again at sessions that a change may concern, a bounded number of them: those whose destination's
    /// hold-down is over, then those of the walks.
    pub(super) fn run_walks(&mut self) {
        while let Some(dst) = self.hold_downs.pop_due(self.now) {
            self.route_index.walk_prefix(Prefix::host(dst));
        }
        for _ in 0..STEPS {
            match self.route_index.step(&self.records) {
                Step::Visit { index, direction, may_wait } => {
                    if let Some(key) = self.records.key_of(index) {
                        self.check_route(key, direction, may_wait);
                    }
                }
                Step::On => {}
                Step::Done => return,
            }
        }
    }

    /// Looks the route of a session up again, unless that waits until its destination's hold-down is over. Only
    /// a session that has a way can wait.
    fn check_route(&mut self, key: Key, direction: Direction, may_wait: bool) {
        let Some(record) = self.records.get(key) else { return };
        let has_route = record.half(direction).state != State::Resolving;
        if may_wait && has_route && self.hold_downs.is_held(self.now, record.flow.target(direction)) {
            self.counters.routes_held += 1;
            return;
        }
        self.counters.route_checks += 1;
        self.lookup_record(key, direction);
    }

    /// Makes a querying direction leave by `egress`, whose reference it takes over; [`NONE`]: by none.
    pub(super) fn set_egress(&mut self, key: Key, direction: Direction, egress: u32) {
        let place = place(key.index(), direction);
        self.route_index.unlink(&mut self.records, place);
        let Some(record) = self.records.get_mut(key) else { return };
        let dst = record.flow.target(direction);
        let old = core::mem::replace(&mut record.half_mut(direction).egress, egress);
        if egress != NONE {
            self.route_index.link(&mut self.records, place, dst, egress);
        }
        self.peers.release_egress(old);
    }

    /// The route of a record's Queries is known: a first Query leaves; established state is
    /// checked against it (local trigger, RFC 5971 §7.1.2).
    pub(super) fn record_route(&mut self, key: Key, direction: Direction, result: Result<Route, NoRoute>) {
        let Some(record) = self.records.get(key) else { return };
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
            // GIST-7.1.3-09: the way is as it was, so nothing is to be repaired; or it has come back.
            if state == State::Resolving {
                self.first_query(key, direction);
            }
            return;
        }
        let Ok(egress) = self.peers.egresses.intern(new) else {
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
                self.counters.holds_full += u64::from(!self.hold_downs.moved(self.now, dst));
                if state.is_established() {
                    self.repair(key, direction);
                } else {
                    self.restart_handshake(key, direction);
                }
            }
        }
    }

    /// There is no route any more. State is Bad and messages wait: routing may be about to find another way,
    /// and if it does not soon, the state goes.
    fn route_lost(&mut self, key: Key, direction: Direction) {
        let state = self.state(key, direction);
        if state.is_established() {
            self.notify(key, direction, NetworkEvent::Bad);
        }
        let now = self.now;
        let Some(record) = self.records.get_mut(key).filter(|_| state != State::Resolving) else { return };
        let half = record.half_mut(direction);
        half.state = State::Resolving;
        half.start_retry(now, RESOLVE);
        transition!(self.peers, record, direction, state, "no route");
        self.arm(key);
    }

    /// The local forwarding table says that the way changed: state is Tentative until a Response proves
    /// which peer is there now (RFC 5971 §7.1.3 option 2). GIST-7.1.2-05.
    ///
    /// The handshake starts at once where the state upstream is good or not needed (GIST-7.1.3-12), and a
    /// little later where it is in doubt (GIST-7.1.3-13): then this node may be off the path as well.
    fn repair(&mut self, key: Key, direction: Direction) {
        let other = direction.inverted();
        self.make_tentative(key, direction);
        // GIST-7.1.3-04
        if self.config.upstream_tentative {
            self.make_tentative(key, other);
        }
        let delay = self.rng.jitter(self.config.t1, 1.0, 2.0);
        let now = self.now;
        let Some(record) = self.records.get_mut(key) else { return };
        let doubtful = record.half(other).has(TENTATIVE) || record.half(direction).has(NO_REFRESH);
        if !doubtful {
            return self.start_refresh(key, direction);
        }
        record.half_mut(direction).start_retry(now, delay);
        self.arm(key);
    }

    /// State that can be used is Tentative from now on; the application hears it.
    pub(super) fn make_tentative(&mut self, key: Key, direction: Direction) {
        let Some(record) = self.records.get_mut(key) else { return };
        let half = record.half_mut(direction);
        if half.state.is_established() && !half.has(TENTATIVE) {
            half.set(TENTATIVE, true);
            self.notify(key, direction, NetworkEvent::Tentative);
        }
    }

    /// Time after which a node that is refreshed itself refreshes its peer: the end of the span that RFC 5971
    /// §4.4.4 allows, so that its own refresh comes first and passes it on ([`Gist::pass_refresh_on`]).
    pub(super) fn refresh_after(&mut self, key: Key, direction: Direction, validity: Duration) -> Duration {
        let relay = self.state(key, direction.inverted()).is_responding();
        if relay { validity * 3 / 4 } else { self.rng.jitter(validity, 0.5, 0.75) }
    }

    /// The state of one direction was refreshed by its peer: so is that of the other, which is `direction`, if it would
    /// end before that. Refreshes travel along the path like this, each node's state lives and ends with that of the
    /// node before it, and a node that comes back into the path says so at once.
    pub(super) fn pass_refresh_on(&mut self, key: Key, direction: Direction) {
        let Some(record) = self.records.get(key) else { return };
        let half = record.half(direction);
        if half.state != State::Established {
            return;
        }
        let ends_first = self.lasts(key, direction, self.config.t1) == Some(false);
        if half.has(TENTATIVE) || ends_first {
            self.start_refresh(key, direction);
        }
    }

    /// Whether the state of a querying direction lasts as long as that of the other one, which a peer refreshes, give or
    /// take `slack`; `None`: no peer does.
    fn lasts(&self, key: Key, direction: Direction, slack: Duration) -> Option<bool> {
        let record = self.records.get(key)?;
        let (half, other) = (record.half(direction), record.half(direction.inverted()));
        let refreshed = other.state.is_responding() && other.state.is_established();
        refreshed.then(|| half.expire.left(self.now) + slack >= other.expire.left(self.now))
    }

    /// Whether a refresh that is due waits for that of the other side, which will be passed on: the state is in no doubt
    /// and lasts until then. A node that refreshed by its own clock would, when the path has left it, take back the node where both
    /// branches meet (RFC 5971 §7.1.4: "state conflicts at the crossover router").
    pub(super) fn waits_for_refresh(&self, key: Key, direction: Direction) -> bool {
        let doubtful = self.records.get(key).is_some_and(|record| record.half(direction).has(TENTATIVE));
        !doubtful && self.lasts(key, direction, self.validity() / 8) == Some(true)
            || self.is_refresh_overdue(key, direction)
    }

    /// Whether the refresh from the other side that this node waits for has not come in time: it may be off the path.
    /// GIST-4.4.4-08.
    fn is_refresh_overdue(&self, key: Key, direction: Direction) -> bool {
        let Some(record) = self.records.get(key) else { return false };
        let other = record.half(direction.inverted());
        other.state.is_responding()
            && other.state.is_established()
            && other.expire.left(self.now) <= self.validity() / 4
    }
}
