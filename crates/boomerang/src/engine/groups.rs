//! Requests to a multicast group (framework §5.3), as a node on the path: a copy leaves by each outgoing interface of the kernel's multicast
//! route, and each copy is a message of its own for the reservations at its interface.
//!
//! Nothing comes back from a group, so no proof of return is possible, and silence is no loss. Routes are kept in a table of
//! fixed size, with shares of the sources. A group without a route takes no place in it.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use signalbox_core::index::KeyedHasher;
use signalbox_core::metrics::Table;
use signalbox_core::packet::Received;
use signalbox_core::shares::{Shares, source};
use signalbox_core::{IfIndex, Time, invariant};
use signalbox_resources::Resources;

use super::Boomerang;
use super::interfaces::Iface;
use super::outbox::Envelope;
use super::path::Origin;
use super::routes::Packet;
use crate::wire::{Ends, Message, Pass, checksum_is_valid, edit};

/// Most routes that are kept.
const MOST: u32 = 1024;
/// Most copies of one request; the kernel knows 32 interfaces for multicast.
const BRANCHES: usize = 32;
/// A route that no message used for so long is removed.
const UNUSED: Duration = Duration::from_secs(240);
/// How often the table is searched for such routes.
const SWEEP: Duration = Duration::from_secs(60);

/// The group and the source of a packet.
type Pair = (IpAddr, IpAddr);

/// The route of the packets of a pair.
#[derive(Debug)]
struct Tree {
    /// The driver has not answered yet.
    asked: bool,
    /// Packets that come in by another interface are not forwarded.
    expected: Option<Iface>,
    oifs: Vec<Iface>,
    used: Time,
}

/// The multicast routes of this node, and the requests that wait for one.
#[derive(Debug)]
pub(super) struct Groups {
    trees: BTreeMap<Pair, Tree>,
    by_source: Shares<IpAddr>,
    waiting: Vec<Packet>,
    most_waiting: usize,
    /// When the table is searched next; `None`: it is empty.
    pub(super) sweep: Option<Time>,
}

/// What is known about the route of a pair.
enum TreeState {
    /// It is known.
    Known,
    /// The driver was asked before.
    Waits,
    /// The driver has to be asked.
    New,
    /// The table is full, or the rest of it is for others.
    Full,
}

impl Groups {
    pub(super) fn new(most_waiting: u32, hasher: KeyedHasher) -> Self {
        Self {
            trees: BTreeMap::new(),
            by_source: Shares::new(MOST, hasher),
            waiting: Vec::new(),
            most_waiting: usize::try_from(most_waiting).unwrap_or(usize::MAX),
            sweep: None,
        }
    }

    /// The table of routes, for the gauges.
    pub(super) fn table(&self) -> Table {
        Table::new("groups", self.by_source.total(), MOST)
    }

    fn state(&mut self, now: Time, pair: Pair) -> TreeState {
        if let Some(tree) = self.trees.get_mut(&pair) {
            tree.used = now;
            return if tree.asked { TreeState::Waits } else { TreeState::Known };
        }
        if self.by_source.take(source(pair.1)).is_err() {
            return TreeState::Full;
        }
        self.trees.insert(pair, Tree { asked: true, expected: None, oifs: Vec::new(), used: now });
        self.sweep.get_or_insert(now + SWEEP);
        TreeState::New
    }

    fn remove(&mut self, pair: &Pair) {
        if self.trees.remove(pair).is_some() {
            self.by_source.release(source(pair.1));
        }
    }

    /// Takes out the requests that wait for the route of a pair, in the order in which they came.
    fn ready(&mut self, (group, from): Pair) -> Vec<Packet> {
        let all = core::mem::take(&mut self.waiting);
        let (ready, rest) = all.into_iter().partition(|packet| packet.dst == group && packet.src == from);
        self.waiting = rest;
        ready
    }
}

/// Whether packets to the group never leave their link.
const fn is_of_link(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(v4) => matches!(v4.octets(), [224, 0, 0, _]),
        IpAddr::V6(v6) => matches!(v6.octets(), [0xff, scope, ..] if scope & 0x0f <= 2),
    }
}

impl Boomerang {
    /// Takes a packet with the magic number that is addressed to a group.
    pub(super) fn receive_for_group(&mut self, packet: &Received<'_>, resources: &mut Resources) {
        let pair = (packet.dst.ip(), packet.src.ip());
        if !self.rates.allow(self.now, &(source(pair.1), packet.ifindex)) {
            self.counters.rate_limited += 1;
            tracing::debug!(peer = %packet.src.ip(), reason = "too many of its source", "message dropped");
            return;
        }
        // Errors about packets to groups do not exist (RFC 1122 §3.2.2, RFC 4443 §2.4).
        if packet.ttl <= 1 {
            self.counters.hops_exceeded += 1;
            tracing::debug!(peer = %packet.src.ip(), reason = "TTL used up", "message dropped");
            return;
        }
        if is_of_link(pair.0) {
            return self.end_here(packet);
        }
        match self.groups.state(self.now, pair) {
            TreeState::Known => return self.copies(packet, resources),
            TreeState::Waits => {}
            TreeState::New => self.out.look_up_group(pair.0, pair.1),
            TreeState::Full => {
                self.counters.groups_full += 1;
                tracing::debug!(peer = %packet.src.ip(), reason = "table of groups full, or share of its source", "message dropped");
                return;
            }
        }
        if self.groups.waiting.len() < self.groups.most_waiting {
            self.groups.waiting.push(Packet::of(packet, false));
        } else {
            self.counters.waiting_full += 1;
            tracing::debug!(peer = %packet.src.ip(), reason = "too many messages wait for a route", "message dropped");
        }
    }

    /// The kernel's route of a pair, at first or after a change.
    pub(super) fn on_multicast(
        &mut self,
        pair: Pair,
        iif: IfIndex,
        oifs: &[IfIndex],
        resources: &mut Resources,
    ) {
        let expected = self.interfaces.iface(iif);
        // The route may have been removed before the kernel reports it.
        let Some(tree) = self.groups.trees.get_mut(&pair) else { return };
        let others = oifs.iter().filter_map(|oif| self.interfaces.iface(*oif));
        tree.oifs = others.filter(|oif| Some(*oif) != expected).take(BRANCHES).collect();
        tree.asked = false;
        tree.expected = expected;
        if tree.oifs.is_empty() {
            self.groups.remove(&pair);
            self.out.release_group(pair.0, pair.1);
            for packet in self.groups.ready(pair) {
                self.end_here(&packet.as_received());
            }
            return;
        }
        for packet in self.groups.ready(pair) {
            self.copies(&packet.as_received(), resources);
        }
    }

    /// Removes the routes that no message used for [`UNUSED`].
    pub(super) fn run_groups(&mut self) {
        if self.groups.sweep.is_none_or(|due| due > self.now) {
            return;
        }
        let now = self.now;
        let unused = self.groups.trees.iter().filter(|(_, tree)| tree.used + UNUSED <= now);
        let unused: Vec<Pair> = unused.map(|(pair, _)| *pair).collect();
        for pair in unused {
            self.groups.remove(&pair);
            self.out.release_group(pair.0, pair.1);
        }
        self.groups.sweep = (!self.groups.trees.is_empty()).then_some(now + SWEEP);
    }

    /// A request that no interface of this node leads on to: what the path did is for the receivers here.
    fn end_here(&mut self, packet: &Received<'_>) {
        let Ok(message) = Message::parse(packet.payload, packet.dst.is_ipv6()) else { return };
        if message.is_refused() {
            self.counters.group_refused += 1;
        } else {
            self.counters.group_granted += 1;
        }
        tracing::debug!(
            group = %packet.dst.ip(), source = %packet.src.ip(), refused = message.is_refused(), "request to a group"
        );
    }

    /// Sends a copy by each interface of the route, which is known. BOOM-G44-02, BOOM-F5.3-03.
    fn copies(&mut self, packet: &Received<'_>, resources: &mut Resources) {
        let pair = (packet.dst.ip(), packet.src.ip());
        let iif = self.interfaces.iface(packet.ifindex);
        let Some(tree) = invariant!(self.groups.trees.get_mut(&pair), "copies have a route") else { return };
        if tree.expected != iif {
            self.counters.no_route += 1;
            tracing::debug!(peer = %packet.src.ip(), reason = "by another interface than that of the route", "message dropped");
            return;
        }
        let oifs = core::mem::take(&mut tree.oifs);
        let ends = Ends { src: pair.1, dst: pair.0 };
        let message = self.readable_for_group(packet, &ends);
        for oif in &oifs {
            let mut octets = core::mem::take(&mut self.buffer);
            octets.clear();
            octets.extend_from_slice(packet.payload);
            if let Some(message) = &message {
                let origin = Origin::of(packet, ends, iif, *oif);
                if self.procedure(&mut octets, message, origin, resources) {
                    edit::set_checksum(&mut octets, &ends);
                }
                self.counters.requests_forwarded += 1;
            }
            let by = self.interfaces.ifindex(*oif);
            let envelope = Envelope { ends, ttl: packet.ttl - 1, tos: packet.tos, own: false, by: Some(by) };
            self.out.send(envelope, packet.options, &octets);
            self.buffer = octets;
        }
        if let Some(tree) = self.groups.trees.get_mut(&pair) {
            tree.oifs = oifs;
        }
    }

    /// The message of a packet to a group, if this node interprets it.
    fn readable_for_group<'a>(&mut self, packet: &Received<'a>, ends: &Ends) -> Option<Message<'a>> {
        if !checksum_is_valid(ends, packet.payload) {
            self.counters.checksum += 1;
            tracing::debug!(peer = %packet.src.ip(), reason = "wrong checksum", "message not interpreted");
            return None;
        }
        let message = Message::parse(packet.payload, ends.is_ipv6());
        let Some(message) = message.ok().filter(|message| message.pass == Pass::Request) else {
            self.counters.unknown += 1;
            tracing::debug!(peer = %packet.src.ip(), reason = "malformed, or no request", "message not interpreted");
            return None;
        };
        self.counters.requests_received += 1;
        if self.interfaces.is_trusted(packet.ifindex) {
            return Some(message);
        }
        self.counters.untrusted += 1;
        tracing::debug!(peer = %packet.src.ip(), reason = "interface is not trusted", "message not interpreted");
        None
    }
}
