//! Routes of senders: lookups, changes (RFC 2205 §3.6, §3.11.4), multicast routes.

use core::net::IpAddr;
use std::collections::VecDeque;

use signalbox_core::node::{Interface, NoRoute, Prefix, Route, RouteQuery};
use signalbox_core::stamp::Stamp;
use signalbox_core::{IfIndex, Key, invariant};
use signalbox_resources::End;

use super::trees::{Pair, Tree};
use crate::engine::interfaces::Iface;
use crate::engine::merging::Tears;
use crate::engine::message_ids::SentState;
use crate::engine::path::{LOCAL, LOCAL_ONLY, PATH, PROTECTED, REPAIR, RESOLVING, Sender, UNSENT};
use crate::engine::session::{NONE, Range};
use crate::engine::{Admission, Rsvp};
use crate::wire::{Selector, Style};

/// Senders or sessions that one call checks when routes change. The driver gets control in between.
const STEPS: u32 = 1024;
/// Ranges that wait at most; more are replaced by one range over all destinations.
const MAX_RANGES: usize = 256;

/// Next hops that are kept at most: routers at the links of this node.
const MAX_GATEWAYS: usize = 4096;

/// Destinations and links whose routes have to be looked up again.
#[derive(Debug, Default)]
pub(super) struct RouteChecks {
    ranges: VecDeque<Range>,
    /// Changed interfaces, each with the next of the senders that leave by it.
    links: VecDeque<(Iface, u32)>,
}

impl RouteChecks {
    pub(in crate::engine) fn is_idle(&self) -> bool {
        self.ranges.is_empty() && self.links.is_empty()
    }

    /// The senders that leave by `iface`, from the first one on.
    fn push_link(&mut self, iface: Iface, first: u32) {
        self.links.retain(|(waiting, _)| *waiting != iface);
        self.links.push_back((iface, first));
    }

    /// A sender leaves the list of its interface, in which `next` is after it.
    pub(in crate::engine) fn unlinked(&mut self, sender: u32, next: u32) {
        self.links.iter_mut().filter(|(_, at)| *at == sender).for_each(|(_, at)| *at = next);
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
    /// Asks the driver for the route of a sender's data (RFC 2205 §3.11.4).
    pub(in crate::engine) fn look_up_route(&mut self, key: Key) {
        let Some(sender) = invariant!(self.senders.get_mut(key), "a routed sender stands") else { return };
        if sender.oif == Iface::NONE && !sender.has(REPAIR) {
            sender.set(UNSENT, true);
        }
        sender.set(RESOLVING, true);
        let Some(sender) = invariant!(self.senders.get(key), "a looked-up sender stands") else { return };
        let Some(session) = invariant!(
            self.sessions.get_index(sender.session),
            "a route is looked up for a session that stands"
        ) else {
            return;
        };
        let src = self.addresses.unpack(sender.src, session.v6);
        let dst = self.addresses.unpack(session.dest, session.v6);
        if session.multicast {
            let pair = Pair { v6: session.v6, group: session.dest, source: sender.src };
            if self.routes.enter(pair, key.index()) {
                self.out.multicast(dst, src);
            }
            return;
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
            iif: self.interfaces.get(sender.iif).filter(|_| !sender.has(LOCAL)).map(|known| known.ifindex),
            without: None,
        };
        self.out.lookup(key.to_u64(), query);
    }

    /// The driver answers a route lookup.
    pub(in crate::engine) fn on_route(
        &mut self,
        id: u64,
        result: Result<Route, NoRoute>,
        resources: &mut dyn Admission,
    ) {
        if self.on_route_to_sender(id, result, resources) || self.on_backup_route(id, result, resources) {
            return;
        }
        let key = Key::from_u64(id);
        let Some(sender) = self.senders.get_mut(key).filter(|sender| sender.has(RESOLVING)) else { return };
        sender.set(RESOLVING, false);
        let iface = match result {
            Ok(route) if route.local => Iface::LOCAL,
            Ok(route) if self.leads_back(key, &route) => {
                tracing::debug!(session = %self.logged_of(key), ?route, reason = "the route leads back to the previous hop", "no Path is sent");
                Iface::NONE
            }
            Ok(route) => self.interfaces.iface(route.ifindex),
            // Path state is kept and refreshed without a route, and no Path is sent (RFC 2205 §3.11.4).
            Err(_) => Iface::NONE,
        };
        let gateway = result.ok().filter(|_| iface != Iface::NONE).and_then(|route| route.gateway);
        let gateway = gateway.map_or(0, |gateway| self.note_gateway(gateway));
        let Some(sender) =
            invariant!(self.senders.get_mut(key), "a sender stands while its next hop is stored")
        else {
            return;
        };
        let before = Self::next_router(sender, iface);
        self.note_left(key, |way, router| way != iface || router != gateway);
        let Some(sender) =
            invariant!(self.senders.get_mut(key), "a sender stands while its former way is noted")
        else {
            return;
        };
        sender.gateway = gateway;
        tracing::debug!(session = %self.logged_of(key), route = ?result, "route found");
        let Some(sender) = invariant!(self.senders.get(key), "an answered sender stands") else { return };
        let turned = before != gateway && sender.leaves_by(iface) && iface.is_real() && !sender.has(UNSENT);
        // A backup route stays until the answer about it.
        let standby = Self::standby_interface(sender);
        let egress = [iface, standby];
        let ways = match (iface, standby) {
            (Iface::NONE, _) => 0,
            (_, standby) if standby == Iface::NONE || standby == iface || !iface.is_real() => 1,
            _ => 2,
        };
        let protected = sender.has(PROTECTED) && iface.is_real();
        let egress = egress.get(..ways).unwrap_or_default();
        self.apply_egress(key, egress, resources);
        if let Some(route) = result.ok().filter(|_| protected) {
            self.look_up_backup(key, route.ifindex);
        }
        if turned {
            self.note_other_router(key, iface);
            self.repair(key, &[iface], &[]);
        }
    }

    /// Another router is the next hop at an interface by which the data leave already. It has had no Path, unless it was the next hop
    /// a moment ago, and does not have the MESSAGE_IDs that the former one acknowledged.
    pub(in crate::engine) fn note_other_router(&mut self, key: Key, iface: Iface) {
        self.remove_sent(SentState::Path(key, iface));
        let Self { senders, routes, .. } = self;
        if let Some(sender) = senders.get_mut(key) {
            let back = routes.has_left(self.now, (key, iface), Self::next_router(sender, iface));
            sender.set_announced(iface, back);
        }
    }

    /// Notes the ways along which Paths of a sender have gone, as far as the data leave them now: these may come back before a Path goes
    /// another way.
    fn note_left(&mut self, key: Key, leaves: impl Fn(Iface, u32) -> bool) {
        let Self { senders, routes, interfaces, now, .. } = self;
        let Some(sender) = invariant!(senders.get(key), "a leaving sender stands") else { return };
        for iface in sender.egress().filter(|iface| sender.is_announced(*iface)) {
            let router = Self::next_router(sender, iface);
            let known = interfaces.get(iface).filter(|known| !known.config.repair_delay.is_zero());
            if let Some(known) = known.filter(|_| leaves(iface, router)) {
                routes.left.keep(*now, *now + known.config.repair_delay, (key, iface), router);
            }
        }
    }

    /// Whether a route leads to the router that the Path came from. While routes change, two routers may each have the other one as the
    /// way to a destination. A Path that goes back makes the router behind the previous hop of the one before it, and what tears
    /// down the right one finds nothing then.
    fn leads_back(&self, key: Key, route: &Route) -> bool {
        let remote = self.senders.get(key).filter(|sender| !sender.has(LOCAL));
        remote.is_some_and(|sender| {
            let previous = self.hops.lookup(sender.hop).map(|hop| hop.addr);
            route.gateway.is_some()
                && route.gateway == previous
                && self.interfaces.iface(route.ifindex) == sender.iif
        })
    }

    /// The mark of a next hop, by which its address is found again.
    pub(in crate::engine) fn note_gateway(&mut self, gateway: IpAddr) -> u32 {
        let mark = self.mark(gateway);
        if self.routes.gateways.len() >= MAX_GATEWAYS && !self.routes.gateways.contains_key(&mark) {
            // Those in use come back with the next lookups; the kernel chooses next hops that are not known.
            self.routes.gateways.clear();
        }
        self.routes.gateways.insert(mark, gateway);
        mark
    }

    /// The pair of a multicast sender.
    pub(in crate::engine) fn pair_of(&self, sender: &Sender) -> Option<Pair> {
        let session = self.sessions.get_index(sender.session).filter(|session| session.multicast)?;
        Some(Pair { v6: session.v6, group: session.dest, source: sender.src })
    }

    /// The pair of a group and a source, if both have state here.
    pub(in crate::engine) fn find_pair(&self, group: IpAddr, source: IpAddr) -> Option<Pair> {
        let (v6, group) = (group.is_ipv6(), self.addresses.find(group).filter(|_| group.is_multicast())?);
        let source = self.addresses.find(source).filter(|_| source.is_ipv6() == v6)?;
        Some(Pair { v6, group, source })
    }

    /// The kernel's multicast route, as the answer to a lookup or after a change. The senders follow it in parts.
    pub(in crate::engine) fn on_multicast(
        &mut self,
        group: IpAddr,
        source: IpAddr,
        iif: IfIndex,
        oifs: &[IfIndex],
    ) {
        tracing::debug!(%group, %source, iif = iif.0, oifs = oifs.len(), "multicast route");
        let Some(pair) = self.find_pair(group, source) else { return };
        let expected = if iif == IfIndex::NONE { Iface::NONE } else { self.interfaces.iface(iif) };
        let routed: Vec<Iface> =
            oifs.iter().map(|oif| self.interfaces.iface(*oif)).filter(|iface| iface.is_real()).collect();
        self.routes.trees.set(pair, Tree { expected, routed });
    }

    /// Carries changed multicast routes to some of the senders that they concern.
    pub(in crate::engine) fn follow_trees(&mut self, resources: &mut dyn Admission) {
        for _ in 0..STEPS {
            let Some((_, index)) = self.routes.trees.follower() else { return };
            if let Some(key) = self.senders.key_of(index) {
                self.follow_tree(key, resources);
            }
        }
    }

    /// Removes a sender from the multicast routes. After the last one of a pair the route is not watched any more.
    pub(in crate::engine) fn leave_tree(&mut self, key: Key) {
        let Some(pair) = self.senders.get(key).and_then(|sender| self.pair_of(sender)) else { return };
        if self.routes.trees.leave(pair, key.index()) {
            let address = |packed| self.addresses.unpack(packed, pair.v6);
            let (group, source) = (address(pair.group), address(pair.source));
            self.out.release_multicast(group, source);
        }
    }

    /// Makes a sender follow the multicast route of its pair, if that is known.
    fn follow_tree(&mut self, key: Key, resources: &mut dyn Admission) {
        let Some(sender) = self.senders.get(key).filter(|one| !one.has(LOCAL_ONLY)) else { return };
        let Some(session) =
            invariant!(self.sessions.key_of(sender.session), "a sender that follows a tree has a session")
        else {
            return;
        };
        // The pair may have ended and come again since: its new route is not known yet.
        let Some(tree) = self.pair_of(sender).and_then(|pair| self.routes.trees.route(pair)) else { return };
        let tree = tree.clone();
        if let Some(sender) = self.senders.get_mut(key) {
            sender.set(RESOLVING, false);
            let extra = sender.extra();
            (extra.expected, extra.routed) = (tree.expected, tree.routed);
        }
        self.follow_expected(session, key, resources);
        self.update_egress(key, resources);
        self.update_local_only(session, key, resources);
    }

    /// Computes the egress of a sender from its multicast route: outgoing interfaces and applications of this node.
    pub(in crate::engine) fn update_egress(&mut self, key: Key, resources: &mut dyn Admission) {
        let Some(sender) = invariant!(self.senders.get(key), "a leaving sender stands") else { return };
        let Some(session) =
            invariant!(self.sessions.get_index(sender.session), "an egress is that of a session that stands")
        else {
            return;
        };
        let apart = self
            .sessions
            .key_of(sender.session)
            .is_some_and(|session| !sender.has(LOCAL_ONLY) && self.for_application(session, key) != key);
        let member = !apart
            && (!session.applications().is_empty() && !sender.has(LOCAL) || session.applications().len() > 1);
        let mut egress = Vec::new();
        // An application of this node names its outgoing interface by its source address (RFC 2205 §3.9).
        let own = sender.has(LOCAL).then(|| self.addresses.unpack(sender.src, session.v6));
        if let Some(iface) = own.and_then(|address| self.interfaces.owner(address)) {
            egress.push(iface);
        } else if let Some(extra) = &sender.extra
            && (extra.expected == Iface::NONE || extra.expected == sender.iif || sender.has(LOCAL))
        {
            let iif = sender.iif;
            egress.extend(extra.routed.iter().copied().filter(|iface| *iface != iif));
        }
        if member {
            egress.push(Iface::LOCAL);
        }
        self.note_left(key, |iface, _| !egress.contains(&iface));
        self.apply_egress(key, &egress, resources);
    }

    /// Changes the egress of a sender's data.
    fn apply_egress(&mut self, key: Key, egress: &[Iface], resources: &mut dyn Admission) {
        let Some(sender) = invariant!(self.senders.get(key), "a rerouted sender stands") else { return };
        let Some(session) =
            invariant!(self.sessions.key_of(sender.session), "an egress changes of a session that stands")
        else {
            return;
        };
        let unsent = sender.has(UNSENT);
        let same = sender.egress().eq(egress.iter().copied());
        if same && !unsent {
            return;
        }
        let before: Vec<Iface> = if unsent { Vec::new() } else { sender.egress().collect() };
        let upstream = self.change_of_sender(session, key);
        self.set_egress(key, egress);
        if !egress.is_empty() {
            self.release_left(session, key, &before, resources);
        }
        if unsent {
            if egress.iter().any(|iface| iface.is_real()) {
                self.send_path(key);
                self.schedule_path(key, true);
                self.arm_sender(key);
            } else if let Some(sender) = self.senders.get_mut(key) {
                sender.set(UNSENT, egress.is_empty());
            }
        } else {
            self.repair(key, egress, &before);
        }
        if egress.contains(&Iface::LOCAL) && !before.contains(&Iface::LOCAL) {
            self.path_event(key);
        }
        if let Some(upstream) = upstream {
            self.reinstall_on(session, key, &before, resources);
            self.send_upstream(upstream, session, Tears::Withhold, None);
        }
    }

    /// Releases the resources at interfaces that the data of a sender have left, if no other data meet the reservation
    /// there: no tear comes from behind a lost link, and until the state expires others could not use the resources. The
    /// state stays until then, so that the reservation is made again if the data return. (UPDATE TRAFFIC CONTROL of RFC
    /// 2209 considers senders only whose data leave by the interface.)
    pub(in crate::engine) fn release_left(
        &mut self,
        session: Key,
        key: Key,
        before: &[Iface],
        resources: &mut dyn Admission,
    ) {
        let Some(sender) = invariant!(self.senders.get(key), "a sender that left stands") else { return };
        let left: Vec<Key> = self
            .branches_of(sender)
            .filter(|(_, branch)| before.contains(&branch.oif) && branch.grant().is_some())
            .filter(|(_, branch)| !self.has_senders(session, branch))
            .map(|(key, _)| key)
            .collect();
        for branch in left {
            self.queue_policing_check(branch);
            let Some(branch) = invariant!(self.branches.get_mut(branch), "a released reservation stands")
            else {
                continue;
            };
            if let Some(grant) = branch.grant() {
                branch.set_grant(None);
                resources.because(End::Rerouted);
                resources.release(grant);
                tracing::debug!(grant = grant.0, "reservation at a former interface released");
            }
        }
    }

    /// Asks admission control again after a sender's egress changed. A shared reservation has other senders now. An FF
    /// reservation that the data meet again may be for an old Tspec.
    pub(in crate::engine) fn reinstall_on(
        &mut self,
        session: Key,
        key: Key,
        before: &[Iface],
        resources: &mut dyn Admission,
    ) {
        if self.sessions.get(session).is_some_and(|one| one.style != Some(Style::Ff)) {
            return self.reinstall_of(session, key, resources);
        }
        let Some(sender) = invariant!(self.senders.get(key), "a returned sender stands") else { return };
        let again = |iface: Iface| sender.leaves_by(iface) && !before.contains(&iface);
        let met: Vec<Key> =
            self.branches_of(sender).filter(|(_, branch)| again(branch.oif)).map(|(key, _)| key).collect();
        for branch in met {
            self.reinstall(branch, resources);
        }
    }

    /// Local repair: after W the Path follows the new route (RFC 2205 §3.6).
    fn repair(&mut self, key: Key, egress: &[Iface], before: &[Iface]) {
        let new = egress.iter().filter(|iface| iface.is_real() && !before.contains(iface));
        let delay = new.filter_map(|iface| Some(self.interfaces.get(*iface)?.config.repair_delay)).min();
        let Some(delay) = delay else { return };
        let at = Stamp::after(self.now + delay);
        let Some(sender) = invariant!(self.senders.get_mut(key), "a repaired sender stands") else { return };
        if !sender.has(PATH) || at.min(sender.path_at) == at {
            sender.path_at = at;
            sender.set(PATH, true);
        }
        sender.set(REPAIR, true);
        if delay.is_zero() {
            // Not by the timer, whose next tick may find the driver releasing what the data have left.
            self.follow_route(key);
        }
        self.arm_sender(key);
    }

    /// The Path of a sender whose route changed takes the new one.
    pub(in crate::engine) fn follow_route(&mut self, key: Key) {
        self.counters.repairs += 1;
        tracing::debug!(session = %self.logged_of(key), "local repair: Path follows the new route");
        self.refresh_path(key);
        self.schedule_path(key, true);
    }

    /// Routes to `prefix` may have changed.
    pub(in crate::engine) fn on_route_changed(&mut self, prefix: Prefix) {
        tracing::debug!(addr = %prefix.addr, len = prefix.len, "routes changed");
        self.routes.checks.push(prefix);
    }

    /// The node's interfaces changed. Routes of senders that leave by a changed interface, or whose destination is or
    /// was an address of this node, are looked up again: the kernel removes IPv4 routes with a link without a report.
    pub(in crate::engine) fn on_interfaces(&mut self, list: &[Interface]) {
        let changes = self.interfaces.update(list, &self.config);
        tracing::debug!(interfaces = list.len(), changed = changes.altered.len(), "interfaces updated");
        for known in self.interfaces.all() {
            self.neighbors.set_addresses(known.ifindex, known.address(false), known.address(true));
        }
        self.settle_neighbors();
        for iface in changes.altered {
            let first = self.interfaces.get(iface).map_or(NONE, |known| known.first_leaving);
            self.routes.checks.push_link(iface, first);
        }
        for address in changes.addresses {
            self.routes.checks.push(Prefix::host(address));
        }
    }

    pub(in crate::engine) fn look_up_again(&mut self, key: Key) {
        let Some(sender) = invariant!(self.senders.get(key), "a checked sender stands") else { return };
        // The kernel reports changes of multicast routes.
        let multicast = self.sessions.get_index(sender.session).is_some_and(|one| one.multicast);
        if !multicast && !sender.has(RESOLVING) {
            self.look_up_route(key);
        }
    }

    /// Looks up the routes of some of the senders and sessions that a change may concern.
    pub(in crate::engine) fn run_route_checks(&mut self) {
        let mut left = STEPS;
        while left > 0
            && let Some((_, next)) = self.routes.checks.links.front_mut()
        {
            let Some((key, sender)) = self.senders.entry(*next) else {
                self.routes.checks.links.pop_front();
                continue;
            };
            *next = sender.leaving[1];
            left -= 1;
            self.look_up_again(key);
        }
        while left > 0 && !self.routes.checks.is_idle() {
            let Some(range) =
                invariant!(self.routes.checks.ranges.front_mut(), "checks that are not over have a range")
            else {
                return;
            };
            let Some(index) = self.sessions.step(range) else {
                self.routes.checks.ranges.pop_front();
                continue;
            };
            left -= 1;
            let Some(session) =
                invariant!(self.sessions.key_of(index), "a destination ends with its session")
            else {
                continue;
            };
            let senders: Vec<Key> = self.senders_of(session).map(|(key, _)| key).collect();
            for key in senders {
                self.look_up_again(key);
            }
        }
    }
}
