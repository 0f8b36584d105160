//! Where Paths go on: routes looked up, routes that change (RFC 2205 §3.6, §3.11.4), multicast routes.

use core::net::IpAddr;

use signalbox_core::node::{Interface, NoRoute, Prefix, Route, RouteQuery};
use signalbox_core::stamp::Stamp;
use signalbox_core::{IfIndex, Key};
use signalbox_resources::Resources;

use super::Rsvp;
use super::destinations::Range;
use super::forward::Tears;
use super::interfaces::Place;
use super::names::About;
use super::sender::{LOCAL, LOCAL_ONLY, PATH, REPAIR, RESOLVING, UNSENT};
use super::session::NONE;
use crate::wire::{Selector, Style};

/// Sessions that one call looks at when routes change; the driver has its turn in between.
const STEPS: u32 = 1024;
/// Ranges that wait at most; more are merged into one over everything.
const MAX_RANGES: usize = 256;

/// Destinations to be looked at again.
#[derive(Debug, Default)]
pub(super) struct Walks {
    ranges: std::collections::VecDeque<Range>,
}

impl Walks {
    pub(super) fn is_idle(&self) -> bool {
        self.ranges.is_empty()
    }

    fn push(&mut self, prefix: Prefix) {
        let range = Range::of(prefix);
        if self.ranges.iter().skip(1).any(|waiting| *waiting == range) {
            return;
        }
        if self.ranges.len() >= MAX_RANGES {
            self.ranges.clear();
            self.ranges.push_back(Range::of(Prefix::all_like(IpAddr::V4([0, 0, 0, 0].into()))));
            self.ranges.push_back(Range::of(Prefix::all_like(IpAddr::V6(0.into()))));
            return;
        }
        self.ranges.push_back(range);
    }
}

impl Rsvp {
    /// Asks where the data of a sender go.
    pub(super) fn find_way(&mut self, key: Key) {
        let Some(sender) = self.senders.get_mut(key) else { return };
        if sender.oif == Place::NONE && !sender.has(REPAIR) {
            sender.set(UNSENT, true);
        }
        sender.set(RESOLVING, true);
        let Some(sender) = self.senders.get(key) else { return };
        let Some(session) = self.sessions.get_index(sender.session) else { return };
        let src = self.addresses.unpack(sender.src, session.v6);
        let dst = self.addresses.unpack(session.dest, session.v6);
        if session.multicast {
            return self.out.multicast(dst, src);
        }
        let port = |port: u16| (port != 0).then_some(port);
        let query = RouteQuery {
            src: Some(src),
            dst,
            protocol: Some(session.protocol),
            src_port: match sender.selector() {
                Selector::Port(number) => port(number),
                _ => None,
            },
            dst_port: matches!(session.kind, crate::wire::SessionKind::Ports)
                .then_some(session.port)
                .and_then(port),
            tos: 0,
        };
        self.out.lookup(key.to_u64(), query);
    }

    /// The answer to a lookup.
    pub(super) fn on_route(&mut self, id: u64, result: Result<Route, NoRoute>, resources: &mut Resources) {
        let key = Key::from_u64(id);
        let Some(sender) = self.senders.get_mut(key).filter(|sender| sender.has(RESOLVING)) else { return };
        sender.set(RESOLVING, false);
        let way = match result {
            Ok(route) if route.local => Place::LOCAL,
            Ok(route) => self.interfaces.place(route.ifindex),
            // State is kept and updated, Paths go nowhere (RFC 2205 §3.11.4).
            Err(_) => Place::NONE,
        };
        let gateway = result.ok().and_then(|route| route.gateway);
        #[expect(clippy::cast_possible_truncation, reason = "a hash")]
        let gateway = gateway.map_or(0, |gateway| self.hasher.hash_one(&gateway) as u32);
        let before = core::mem::replace(&mut sender.gateway, gateway);
        tracing::debug!(session = %self.logged_of(key), route = ?result, "route found");
        let Some(sender) = self.senders.get(key) else { return };
        let turned = before != gateway && sender.oif == way && way.is_link() && !sender.has(UNSENT);
        let ways = [way];
        self.apply_ways(key, if way == Place::NONE { &[] } else { &ways }, resources);
        if turned {
            // Another router at the same interface: what the former one was told by name this one does not know, and a
            // Bundle would still go to that.
            self.forget_told(About::Path(key, way));
            self.repair(key, &ways, &[]);
        }
    }

    /// The kernel's multicast route, asked for or changed.
    pub(super) fn on_multicast(
        &mut self,
        group: IpAddr,
        source: IpAddr,
        iif: IfIndex,
        oifs: &[IfIndex],
        resources: &mut Resources,
    ) {
        tracing::debug!(%group, %source, iif = iif.0, oifs = oifs.len(), "multicast route");
        let Some(src) = self.addresses.find(source) else { return };
        let expected = if iif == IfIndex::NONE { Place::NONE } else { self.interfaces.place(iif) };
        let routed: Vec<Place> =
            oifs.iter().map(|oif| self.interfaces.place(*oif)).filter(|place| place.is_link()).collect();
        let mut range = Range::of(Prefix::host(group));
        while let Some(index) = self.destinations.step(&mut range) {
            let Some(session) = self.sessions.key_of(index) else { continue };
            let senders: Vec<Key> = self
                .mates(session)
                .filter(|(_, one)| one.src == src && !one.has(LOCAL_ONLY))
                .map(|(key, _)| key)
                .collect();
            for key in senders {
                if let Some(sender) = self.senders.get_mut(key) {
                    sender.set(RESOLVING, false);
                    let extra = sender.extra();
                    extra.expected = expected;
                    extra.routed.clone_from(&routed);
                }
                self.turn(session, key, resources);
                self.rejoin(key, resources);
                self.settle(session, key, resources);
            }
        }
    }

    /// What a sender's data meet by its multicast route: the interfaces out, and the applications of this node.
    pub(super) fn rejoin(&mut self, key: Key, resources: &mut Resources) {
        let Some(sender) = self.senders.get(key) else { return };
        let Some(session) = self.sessions.get_index(sender.session) else { return };
        let apart = self
            .sessions
            .key_of(sender.session)
            .is_some_and(|session| !sender.has(LOCAL_ONLY) && self.for_application(session, key) != key);
        let member = !apart
            && (!session.applications().is_empty() && !sender.has(LOCAL) || session.applications().len() > 1);
        let mut ways = Vec::new();
        // What a sender of this node named is where its data leave (RFC 2205 §3.9).
        let own = sender.has(LOCAL).then(|| self.addresses.unpack(sender.src, session.v6));
        if let Some(place) = own.and_then(|address| self.interfaces.owner(address)) {
            ways.push(place);
        } else if let Some(extra) = &sender.extra
            && (extra.expected == Place::NONE || extra.expected == sender.iif || sender.has(LOCAL))
        {
            let iif = sender.iif;
            ways.extend(extra.routed.iter().copied().filter(|place| *place != iif));
        }
        if member {
            ways.push(Place::LOCAL);
        }
        self.apply_ways(key, &ways, resources);
    }

    /// The data of a sender leave by these interfaces from now on.
    fn apply_ways(&mut self, key: Key, ways: &[Place], resources: &mut Resources) {
        let Some(sender) = self.senders.get(key) else { return };
        let Some(session) = self.sessions.key_of(sender.session) else { return };
        let unsent = sender.has(UNSENT);
        let same = sender.ways().eq(ways.iter().copied());
        if same && !unsent {
            return;
        }
        let before: Vec<Place> = if unsent { Vec::new() } else { sender.ways().collect() };
        let upstream = self.change_of_sender(session, key);
        self.set_ways(key, ways);
        if unsent {
            if ways.iter().any(|way| way.is_link()) {
                self.send_path(key);
                self.schedule_path(key, true);
                self.arm_sender(key);
            } else if let Some(sender) = self.senders.get_mut(key) {
                sender.set(UNSENT, ways.is_empty());
            }
        } else {
            self.repair(key, ways, &before);
        }
        if ways.contains(&Place::LOCAL) && !before.contains(&Place::LOCAL) {
            self.path_event(key);
        }
        if let Some(upstream) = upstream {
            self.reinstall_on(session, key, &before, resources);
            self.send_upstream(upstream, session, Tears::Withhold, None);
        }
    }

    /// Data of a sender meet other reservations than before. Of shared styles each is for other senders now; of FF one that
    /// they meet again may be for what the sender sent when they left it.
    fn reinstall_on(&mut self, session: Key, key: Key, before: &[Place], resources: &mut Resources) {
        if self.sessions.get(session).is_some_and(|one| one.style != Some(Style::Ff)) {
            return self.reinstall_of(session, key, resources);
        }
        let Some(sender) = self.senders.get(key) else { return };
        let again = |place: Place| sender.goes_by(place) && !before.contains(&place);
        let met: Vec<Key> =
            self.branches_of(sender).filter(|(_, branch)| again(branch.oif)).map(|(key, _)| key).collect();
        for branch in met {
            self.reinstall(branch, resources);
        }
    }

    /// Local repair: after W a Path goes where the data go now (RFC 2205 §3.6).
    fn repair(&mut self, key: Key, ways: &[Place], before: &[Place]) {
        let new = ways.iter().filter(|way| way.is_link() && !before.contains(way));
        let delay = new.filter_map(|way| Some(self.interfaces.get(*way)?.config.repair_delay)).min();
        let Some(delay) = delay else { return };
        let at = Stamp::after(self.now + delay);
        let Some(sender) = self.senders.get_mut(key) else { return };
        if !sender.has(PATH) || at.min(sender.path_at) == at {
            sender.path_at = at;
            sender.set(PATH, true);
        }
        sender.set(REPAIR, true);
        self.arm_sender(key);
    }

    /// Routes to `prefix` may have changed.
    pub(super) fn on_route_changed(&mut self, prefix: Prefix) {
        tracing::debug!(addr = %prefix.addr, len = prefix.len, "routes changed");
        self.walks.push(prefix);
    }

    /// The node's interfaces changed. What leaves by one that changed is looked at, and what goes to an address that
    /// is or was this node's: the kernel takes routes away with a link and says nothing of them (IPv4).
    pub(super) fn on_interfaces(&mut self, list: &[Interface]) {
        let changes = self.interfaces.update(list, &self.config);
        tracing::debug!(interfaces = list.len(), changed = changes.altered.len(), "interfaces updated");
        for known in self.interfaces.all() {
            self.neighbours.set_addresses(known.ifindex, known.address(false), known.address(true));
        }
        self.settle_neighbours();
        for place in changes.altered {
            let mut next = self.interfaces.get(place).map_or(NONE, |known| known.first_leaving);
            while let Some(key) = self.senders.key_of(next) {
                next = self.senders.get(key).map_or(NONE, |sender| sender.leaving[1]);
                self.look_again(key);
            }
        }
        for address in changes.addresses {
            self.walks.push(Prefix::host(address));
        }
    }

    fn look_again(&mut self, key: Key) {
        let Some(sender) = self.senders.get(key) else { return };
        // The kernel tells by itself when a multicast route changes.
        let multicast = self.sessions.get_index(sender.session).is_some_and(|one| one.multicast);
        if !multicast && !sender.has(RESOLVING) {
            self.find_way(key);
        }
    }

    /// Looks at sessions that a change may concern, a bounded number of them.
    pub(super) fn run_walks(&mut self) {
        let mut left = STEPS;
        while left > 0 && !self.walks.is_idle() {
            let Some(range) = self.walks.ranges.front_mut() else { return };
            let Some(index) = self.destinations.step(range) else {
                self.walks.ranges.pop_front();
                continue;
            };
            left -= 1;
            let Some(session) = self.sessions.key_of(index) else { continue };
            let senders: Vec<Key> = self.mates(session).map(|(key, _)| key).collect();
            for key in senders {
                self.look_again(key);
            }
        }
    }
}
