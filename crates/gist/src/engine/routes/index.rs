//! Index of sessions by route: finds the sessions that a change of routes or interfaces concerns.
//!
//! A route here is a destination together with its egress. Routes are indexed by destination, so that a prefix is a range,
//! and by egress. The records of the sessions of a route form a linked list. The cost of a change depends only on the
//! number of sessions that it concerns.
//!
//! A walk visits these sessions, a bounded number per call. If the session that a walk will visit next is removed
//! between two calls, the walk moves to the session after it.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Bound::{self, Excluded, Included};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use signalbox_core::node::Prefix;
use signalbox_core::slab::Slab;
use signalbox_core::{Direction, IfIndex, invariant};

use crate::engine::routing::{NONE, Records};

/// Most pending walks. Further ones are merged into one walk over all sessions.
const MAX_WALKS: usize = 256;

/// Links of a direction of a record in the list of its route, 12 octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RouteLinks {
    /// The route, or [`NONE`].
    route: u32,
    prev: u32,
    next: u32,
}

impl Default for RouteLinks {
    fn default() -> Self {
        Self { route: NONE, prev: NONE, next: NONE }
    }
}

/// The number of a direction of a record in lists. A node has far less than 2³¹ records.
pub(crate) const fn place(index: u32, direction: Direction) -> u32 {
    index << 1 | matches!(direction, Direction::Upstream) as u32
}

/// The record and direction of such a number.
pub(crate) const fn at(place: u32) -> (u32, Direction) {
    (place >> 1, if place & 1 == 0 { Direction::Downstream } else { Direction::Upstream })
}

/// The direction of a record behind this one in its list.
fn behind(records: &Records, place: u32) -> Option<u32> {
    let (index, direction) = at(place);
    records.get_index(index).map(|record| record.querying(direction).route_links.next)
}

fn route_links(records: &mut Records, place: u32) -> Option<&mut RouteLinks> {
    let (index, direction) = at(place);
    records.get_index_mut(index)?.route_links_mut(direction)
}

#[derive(Debug)]
struct IndexedRoute {
    dst: IpAddr,
    egress: u32,
    /// The first session. A route without sessions is removed.
    first: u32,
}

/// All routes, and the pending walks.
#[derive(Debug)]
pub(crate) struct RouteIndex {
    routes: Slab<IndexedRoute>,
    v4: BTreeMap<(u32, u32), u32>,
    v6: BTreeMap<(u128, u32), u32>,
    by_egress: BTreeSet<(u32, u32)>,
    walks: VecDeque<Walk>,
}

#[derive(Debug)]
struct Walk {
    unvisited: Unvisited,
    cause: WalkCause,
    /// The direction of a record to be visited next; [`NONE`]: the first one of the next route.
    cursor: u32,
}

/// The routes that a walk has not visited yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unvisited {
    V4 { from: Bound<(u32, u32)>, last: u32 },
    V6 { from: Bound<(u128, u32)>, last: u128 },
    Egress { egress: u32, from: Bound<u32> },
}

/// Why a walk visits sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkCause {
    /// Routes to their destinations may have changed, and not their egress.
    Routes,
    /// Their egress changed.
    Egress,
    /// Another router may have the place of this neighbor at this link.
    Neighbor(IfIndex, IpAddr),
}

/// One step of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A direction of a record.
    Visit {
        /// Which record.
        index: u32,
        /// Which direction.
        direction: Direction,
        /// Why.
        cause: WalkCause,
    },
    /// No session in this step; further steps follow.
    Continue,
    /// All walks are done.
    Done,
}

impl Unvisited {
    fn prefix(prefix: Prefix) -> Self {
        match prefix.addr {
            IpAddr::V4(addr) => {
                let host = u32::MAX.checked_shr(u32::from(prefix.len)).unwrap_or(0);
                Self::V4 { from: Included((addr.to_bits() & !host, 0)), last: addr.to_bits() | host }
            }
            IpAddr::V6(addr) => {
                let host = u128::MAX.checked_shr(u32::from(prefix.len)).unwrap_or(0);
                Self::V6 { from: Included((addr.to_bits() & !host, 0)), last: addr.to_bits() | host }
            }
        }
    }
}

impl RouteIndex {
    pub(crate) fn new() -> Self {
        Self {
            // Each route has a session, and their number is limited.
            routes: Slab::new(u32::MAX),
            v4: BTreeMap::new(),
            v6: BTreeMap::new(),
            by_egress: BTreeSet::new(),
            walks: VecDeque::new(),
        }
    }

    /// Adds a direction of a record, which is in no list, to the list of its route.
    pub(crate) fn link(&mut self, records: &mut Records, place: u32, dst: IpAddr, egress: u32) {
        let known = match dst {
            IpAddr::V4(a) => self.v4.get(&(a.to_bits(), egress)),
            IpAddr::V6(a) => self.v6.get(&(a.to_bits(), egress)),
        };
        let route = match known {
            Some(route) => *route,
            None => {
                let Ok(key) = self.routes.insert(IndexedRoute { dst, egress, first: NONE }) else { return };
                match dst {
                    IpAddr::V4(a) => self.v4.insert((a.to_bits(), egress), key.index()),
                    IpAddr::V6(a) => self.v6.insert((a.to_bits(), egress), key.index()),
                };
                self.by_egress.insert((egress, key.index()));
                key.index()
            }
        };
        let list = invariant!(self.routes.get_index_mut(route), "the tables by destination name routes");
        let Some(list) = list else { return };
        let next = core::mem::replace(&mut list.first, place);
        if next != NONE
            && let Some(after) =
                invariant!(route_links(records, next), "the first session of a route is in its list")
        {
            after.prev = place;
        }
        if let Some(links) = invariant!(route_links(records, place), "a direction with a route is querying") {
            *links = RouteLinks { route, prev: NONE, next };
        }
    }

    /// Removes a direction of a record from the list of its route, if it is in one.
    pub(crate) fn unlink(&mut self, records: &mut Records, place: u32) {
        let Some(RouteLinks { route, prev, next }) = route_links(records, place).map(core::mem::take) else {
            return;
        };
        if route == NONE {
            return;
        }
        for walk in self.walks.iter_mut().filter(|walk| walk.cursor == place) {
            walk.cursor = next;
        }
        if next != NONE
            && let Some(after) =
                invariant!(route_links(records, next), "the next session of a route is in its list")
        {
            after.prev = prev;
        }
        if prev != NONE
            && let Some(before) =
                invariant!(route_links(records, prev), "the session before is in the list of the route")
        {
            before.next = next;
        }
        let list = invariant!(self.routes.get_index_mut(route), "a route stands while it has sessions");
        let Some(list) = list.filter(|_| prev == NONE) else { return };
        list.first = next;
        if next == NONE
            && let Some(list) = self.routes.key_of(route).and_then(|key| self.routes.remove(key))
        {
            match list.dst {
                IpAddr::V4(a) => self.v4.remove(&(a.to_bits(), list.egress)),
                IpAddr::V6(a) => self.v6.remove(&(a.to_bits(), list.egress)),
            };
            self.by_egress.remove(&(list.egress, route));
        }
    }

    /// Starts a walk over the sessions with a destination in `prefix`.
    pub(crate) fn walk_prefix(&mut self, prefix: Prefix) {
        self.walk(Unvisited::prefix(prefix), WalkCause::Routes);
    }

    /// Starts a walk over the sessions with this egress.
    pub(crate) fn walk_egress(&mut self, egress: u32) {
        self.walk(Unvisited::Egress { egress, from: Included(0) }, WalkCause::Egress);
    }

    /// Starts a walk over the sessions with this egress, whose gateway is the neighbor.
    pub(crate) fn walk_gateway(&mut self, egress: u32, (ifindex, address): (IfIndex, IpAddr)) {
        self.walk(Unvisited::Egress { egress, from: Included(0) }, WalkCause::Neighbor(ifindex, address));
    }

    /// Starts a walk over the sessions whose destination is the neighbor.
    pub(crate) fn walk_neighbor(&mut self, (ifindex, address): (IfIndex, IpAddr)) {
        self.walk(Unvisited::prefix(Prefix::host(address)), WalkCause::Neighbor(ifindex, address));
    }

    fn walk(&mut self, unvisited: Unvisited, cause: WalkCause) {
        if self
            .walks
            .iter()
            .any(|walk| walk.unvisited == unvisited && walk.cause == cause && walk.cursor == NONE)
        {
            return; // it is pending already
        }
        if self.walks.len() >= MAX_WALKS {
            self.walks.clear();
            for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
                let unvisited = Unvisited::prefix(Prefix::all_like(any));
                self.walks.push_back(Walk { unvisited, cause: WalkCause::Routes, cursor: NONE });
            }
            return;
        }
        self.walks.push_back(Walk { unvisited, cause, cursor: NONE });
    }

    /// Whether walks are under route.
    pub(crate) fn is_walking(&self) -> bool {
        !self.walks.is_empty()
    }

    /// Does one step of the first walk.
    pub(crate) fn step(&mut self, records: &Records) -> Step {
        let Self { routes, v4, v6, by_egress, walks } = self;
        let Some(walk) = walks.front_mut() else { return Step::Done };
        if walk.cursor != NONE
            && let Some(next) =
                invariant!(behind(records, walk.cursor), "a walk goes on at a session that stands")
        {
            let (index, direction) = at(walk.cursor);
            walk.cursor = next;
            return Step::Visit { index, direction, cause: walk.cause };
        }
        walk.cursor = NONE;
        let found = match &mut walk.unvisited {
            Unvisited::V4 { from, last } => {
                v4.range((*from, Included((*last, NONE)))).next().map(|(at, route)| {
                    *from = Excluded(*at);
                    *route
                })
            }
            Unvisited::V6 { from, last } => {
                v6.range((*from, Included((*last, NONE)))).next().map(|(at, route)| {
                    *from = Excluded(*at);
                    *route
                })
            }
            Unvisited::Egress { egress, from } => {
                let from_pair = from.map(|route| (*egress, route));
                by_egress.range((from_pair, Included((*egress, NONE)))).next().map(|(_, route)| {
                    *from = Excluded(*route);
                    *route
                })
            }
        };
        let Some(route) = found else {
            walks.pop_front();
            return if walks.is_empty() { Step::Done } else { Step::Continue };
        };
        walk.cursor = invariant!(routes.get_index(route), "a walk finds routes that stand")
            .map_or(NONE, |route| route.first);
        Step::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signalbox_core::index::KeyedHasher;
    use signalbox_core::rng::Random;
    use signalbox_core::{Mri, NslpId, PathCoupled, SessionId};

    const DOWN: Direction = Direction::Downstream;

    struct World {
        records: Records,
        routes: RouteIndex,
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn prefix(addr: &str, len: u8) -> Prefix {
        Prefix { addr: ip(addr), len }
    }

    impl World {
        fn new() -> Self {
            let hasher = KeyedHasher::new(&mut Random::new([0; 32]));
            Self { records: Records::new(1000, hasher), routes: RouteIndex::new() }
        }

        fn add(&mut self, dst: &str, egress: u32) -> u32 {
            let mri = Mri::PathCoupled(PathCoupled::between(ip(dst), ip(dst)));
            let index = self.records.insert(&mri, SessionId::default(), NslpId::PING).unwrap().index();
            self.routes.link(&mut self.records, place(index, DOWN), ip(dst), egress);
            index
        }

        fn remove(&mut self, index: u32) {
            self.routes.unlink(&mut self.records, place(index, DOWN));
        }

        /// What the walks that were begun visit, in order of their numbers.
        fn visited(&mut self) -> Vec<u32> {
            let mut visited = Vec::new();
            loop {
                match self.routes.step(&self.records) {
                    Step::Visit { index, direction, .. } => {
                        assert_eq!(direction, DOWN);
                        visited.push(index);
                    }
                    Step::Continue => {}
                    Step::Done => break,
                }
            }
            visited.sort_unstable();
            visited
        }
    }

    #[test]
    fn a_prefix_finds_the_sessions_inside_it() {
        let mut world = World::new();
        let a = world.add("10.1.0.1", 1);
        let b = world.add("10.1.255.255", 2);
        let c = world.add("10.2.0.0", 1);
        let d = world.add("2001:db8::1", 1);
        let e = world.add("10.1.0.1", 1);
        for (addr, len, expected) in [
            ("10.1.0.0", 16, vec![a, b, e]),
            ("10.1.9.9", 16, vec![a, b, e]),
            ("10.1.0.1", 32, vec![a, e]),
            ("10.1.0.1", 255, vec![a, e]),
            ("10.2.0.0", 15, vec![c]),
            ("10.3.0.0", 16, vec![]),
            ("0.0.0.0", 0, vec![a, b, c, e]),
            ("::", 0, vec![d]),
            ("2001:db8::1", 128, vec![d]),
            ("2001:db8::2", 127, vec![]),
        ] {
            world.routes.walk_prefix(prefix(addr, len));
            assert_eq!(world.visited(), expected, "{addr}/{len}");
        }
        world.routes.walk_egress(1);
        assert_eq!(world.visited(), [a, c, d, e]);
        world.routes.walk_egress(7);
        assert!(world.visited().is_empty() && !world.routes.is_walking());
    }

    #[test]
    fn a_walk_survives_removals_and_insertions() {
        let mut world = World::new();
        let all: Vec<u32> = (0..6).map(|_| world.add("10.0.0.1", 1)).collect();
        world.routes.walk_prefix(prefix("10.0.0.1", 32));
        assert_eq!(world.routes.step(&world.records), Step::Continue);
        // The list runs from the youngest to the oldest; the walk stands at the youngest.
        world.remove(all[5]);
        assert_eq!(
            world.routes.step(&world.records),
            Step::Visit { index: all[4], direction: DOWN, cause: WalkCause::Routes }
        );
        world.remove(all[4]);
        world.remove(all[3]);
        world.remove(all[2]);
        let new = world.add("10.0.0.1", 1);
        assert_eq!(world.visited(), all[..2]);
        world.routes.walk_prefix(prefix("10.0.0.1", 32));
        assert_eq!(world.visited(), [all[0], all[1], new]);
        for index in [all[0], all[1], new] {
            world.remove(index);
        }
        let RouteIndex { routes, v4, by_egress, .. } = &world.routes;
        assert!(routes.is_empty() && v4.is_empty() && by_egress.is_empty());
    }

    #[test]
    fn too_many_walks_become_one() {
        let mut world = World::new();
        let a = world.add("10.0.0.1", 1);
        for n in 0..=u32::try_from(MAX_WALKS).unwrap() {
            world.routes.walk_prefix(Prefix::host(IpAddr::V4(Ipv4Addr::from_bits(n))));
            world.routes.walk_prefix(Prefix::host(IpAddr::V4(Ipv4Addr::from_bits(n))));
        }
        assert!(world.routes.walks.len() <= 4, "{}", world.routes.walks.len());
        assert_eq!(world.visited(), [a]);
    }
}
