//! Routes (RFC 2205 §3.6, §3.11.4): the ways that the data of senders take, and what a change of routes concerns.
//!
//! [`Routes`] owns what waits to be looked up again.
//!
//! * `lookup`: routes of senders, and their changes. `trees`: routes of groups.
//! * `moved`: next hops that other routers take over while no route changes (RFC 5798).
//! * `left`: ways that Paths have gone and that the data have left a moment ago.
//! * `announced`: the routes to senders of Paths in Bundles (RFC 2961 §3).

mod announced;
mod left;
mod lookup;
mod moved;
mod trees;

use core::net::IpAddr;
use std::collections::BTreeMap;

use signalbox_core::{Key, Time};

use super::interfaces::Iface;
use announced::Announced;
use left::Left;
use lookup::RouteChecks;
use moved::MovedHops;
use trees::{Pair, Trees};

/// What a node knows of routes.
#[derive(Debug, Default)]
pub(in crate::engine) struct Routes {
    checks: RouteChecks,
    moved: MovedHops,
    trees: Trees,
    /// Paths of Bundles that wait for the routes to their senders.
    announced: Announced,
    left: Left,
    /// The next hops of routes, by the marks that senders keep of them.
    gateways: BTreeMap<u32, IpAddr>,
}

impl Routes {
    /// Whether no sender waits for the check of its route.
    pub(in crate::engine) fn is_idle(&self) -> bool {
        self.checks.is_idle() && self.trees.is_idle()
    }

    /// Whether a next hop that another router took over waits for Paths.
    pub(in crate::engine) fn has_moved(&self) -> bool {
        !self.moved.is_idle()
    }

    /// Whether no group has a route, and no sender a standby copy.
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.trees.is_empty() && self.moved.has_no_copies()
    }

    /// Enters a sender of a group; whether its route has to be looked up.
    pub(in crate::engine) fn enter(&mut self, pair: Pair, sender: u32) -> bool {
        self.trees.enter(pair, sender)
    }

    /// The senders of a group and source.
    pub(in crate::engine) fn senders(&self, pair: Pair) -> impl Iterator<Item = u32> + '_ {
        self.trees.senders(pair)
    }

    /// The interface by which routing expects the data of a group and source, if their route is known.
    pub(in crate::engine) fn expected(&self, pair: Pair) -> Option<Iface> {
        self.trees.route(pair).map(|tree| tree.expected)
    }

    /// The next hop with this mark.
    pub(in crate::engine) fn gateway(&self, mark: u32) -> Option<IpAddr> {
        self.gateways.get(&mark).copied()
    }

    /// Whether a sender has left this interface and next router so lately that no Path has gone another way.
    pub(in crate::engine) fn has_left(&self, now: Time, way: (Key, Iface), gateway: u32) -> bool {
        self.left.has(now, way, gateway)
    }

    /// A sender leaves the list of its interface, in which `next` is after it.
    pub(in crate::engine) fn unlinked(&mut self, sender: u32, next: u32) {
        self.checks.unlinked(sender, next);
        self.moved.unlinked(sender, next);
    }

    /// The interface of a sender's standby copies changes; [`Iface::NONE`]: it has none.
    pub(in crate::engine) fn set_copy(&mut self, sender: u32, before: Iface, now: Iface) {
        self.moved.set_copy(sender, before, now);
    }
}
