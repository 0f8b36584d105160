//! Routes of Queries and of forwarded messages (RFC 5971 §4.3.4, §5.8.1.2), and what follows from their changes (§7.1).
//!
//! [`Routes`] owns the lookups that wait for an answer, the index of sessions by route, and the hold-downs. A session enters the
//! index with the egress of its Queries (`set_egress`), and leaves it by [`Routes::forget`].
//!
//! * `lookup`: what is asked of the routing table, and who waits for the answer. Ingress filters.
//! * `index`: finds the sessions that a change of routes, interfaces or neighbors concerns.
//! * `reroute`: local repair of these sessions (§7.1.3), and refreshes that travel along a path (§4.4.4).
//! * `hold_down`: delays further changes of a route that flaps.

mod hold_down;
mod index;
mod lookup;
mod reroute;

use signalbox_core::slab::Key;
use signalbox_core::{Direction, Time};

use crate::engine::config::Config;
use crate::engine::routing::Records;
use hold_down::HoldDowns;
use index::{RouteIndex, place};
use lookup::Lookups;

pub(in crate::engine) use index::RouteLinks;
pub(in crate::engine) use lookup::{ForwardedMessage, Waiting, covers, route_query};

/// The routes of a node.
#[derive(Debug)]
pub(in crate::engine) struct Routes {
    lookups: Lookups,
    index: RouteIndex,
    hold_downs: HoldDowns,
}

impl Routes {
    /// No routes, with the times and limits of a configuration.
    pub(in crate::engine) fn new(config: &Config) -> Self {
        Self {
            lookups: Lookups::default(),
            index: RouteIndex::new(),
            hold_downs: HoldDowns::new(config.hold_down, config.hold_down_max, config.max_holds),
        }
    }

    /// Whether sessions whose routes may have changed are being visited.
    pub(in crate::engine) fn is_walking(&self) -> bool {
        self.index.is_walking()
    }

    /// When the next timeout of a lookup or the next end of a hold-down is due.
    pub(in crate::engine) fn next_deadline(&self) -> Option<Time> {
        [self.hold_downs.deadline(), self.lookups.deadline()].into_iter().flatten().min()
    }

    /// Removes a direction of a session from the index, if it is there. Its Queries end.
    pub(in crate::engine) fn forget(&mut self, records: &mut Records, key: Key, direction: Direction) {
        self.index.unlink(records, place(key.index(), direction));
    }
}
