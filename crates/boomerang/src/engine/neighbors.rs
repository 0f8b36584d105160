//! Sessions of this node where another router may have the place of a gateway (VRRP, RFC 5798): they are refreshed before their time, so
//! that the other router reserves.
//!
//! Only the initiating node can do that: a node on the path has no message of its own to send. Anybody on the link can forge such a
//! move. So a session is refreshed for it once in [`AGAIN`], and the refresh is like every other one.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::VecDeque;

use signalbox_core::{IfIndex, Key};

use super::Boomerang;
use super::interfaces::Iface;
use super::session::State;

/// A session is refreshed before its time no earlier than this after its last message.
const AGAIN: Duration = Duration::from_secs(5);
/// Moves that are handled at a time at most. Where there are more, sessions follow with their next refresh.
const MOST: usize = 16;

/// A walk over the sessions of this node that goes on.
#[derive(Debug)]
struct Walk {
    oif: Iface,
    neighbor: IpAddr,
    /// The place in the table where it goes on.
    from: u32,
}

/// Neighbors that have moved, and whose sessions are not all visited.
#[derive(Debug, Default)]
pub(super) struct MovedNeighbors(VecDeque<Walk>);

impl MovedNeighbors {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Boomerang {
    pub(super) fn on_neighbor_moved(&mut self, ifindex: IfIndex, neighbor: IpAddr) {
        let Some(oif) = self.interfaces.iface(ifindex) else { return };
        let walks = &mut self.moved_neighbors.0;
        let waits = walks.iter().any(|walk| walk.from == 0 && (walk.oif, walk.neighbor) == (oif, neighbor));
        if !waits && walks.len() < MOST {
            walks.push_back(Walk { oif, neighbor, from: 0 });
        }
    }

    /// Visits some sessions whose gateway may be another router.
    pub(super) fn run_moved_neighbors(&mut self) {
        let Self { moved_neighbors, sessions, routes, .. } = self;
        let Some(walk) = moved_neighbors.0.front_mut() else { return };
        let mut found: Vec<Key> = Vec::new();
        let next = sessions.walk(walk.from, |key, session| {
            // What waits for an answer is repeated soon, and goes to the present gateway.
            let stands = session.state == State::Established && !session.is_waiting();
            if stands && routes.leads_to(session.ends.dst, walk.oif, walk.neighbor) {
                found.push(key);
            }
            true
        });
        match next {
            Some(from) => walk.from = from,
            None => drop(moved_neighbors.0.pop_front()),
        }
        for key in found {
            let Some(session) = self.sessions.get(key) else { continue };
            let due = self.now.max(session.sent_at + AGAIN);
            self.counters.neighbors_followed += 1;
            self.wheel_of_sessions.arm_by(&mut self.sessions, key.index(), due);
        }
    }
}
