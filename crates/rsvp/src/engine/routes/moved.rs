//! Next hops that other routers take over, while no route changes (VRRP, RFC 5798).
//!
//! The driver reports that the kernel sends what goes to a neighbour to another link-layer address. The router there has none of the
//! MESSAGE_IDs that the former one acknowledged, and may not know the Paths. So they go out whole, a part at a time. Anybody on the
//! link can forge that change: it makes a part of the Paths of one link go earlier than they would, and nothing else.

use core::net::IpAddr;
use std::collections::VecDeque;

use signalbox_core::IfIndex;

use crate::engine::Rsvp;
use crate::engine::interfaces::Iface;
use crate::engine::message_ids::SentState;
use crate::engine::path::UNSENT;
use crate::engine::session::NONE;

/// Neighbours that wait at most. Paths to others go whole by their own timers.
const MOST: usize = 256;
/// Senders that one call looks at.
const STEPS: usize = 1024;

/// A walk over the senders that leave by the interface of a neighbour.
#[derive(Debug)]
struct Walk {
    iface: Iface,
    /// The mark of the neighbour.
    towards: u32,
    /// The next sender.
    next: u32,
}

/// The walks that wait.
#[derive(Debug, Default)]
pub(super) struct MovedHops(VecDeque<Walk>);

impl MovedHops {
    pub(in crate::engine) fn is_idle(&self) -> bool {
        self.0.is_empty()
    }

    /// A sender leaves the list of its interface, in which `next` is after it.
    pub(in crate::engine) fn unlinked(&mut self, sender: u32, next: u32) {
        self.0.iter_mut().filter(|walk| walk.next == sender).for_each(|walk| walk.next = next);
    }
}

impl Rsvp {
    /// Another router may have the place of a neighbour.
    pub(in crate::engine) fn on_neighbour_moved(&mut self, ifindex: IfIndex, address: IpAddr) {
        let (iface, towards) = (self.interfaces.iface(ifindex), self.mark(address));
        let next = self.interfaces.get(iface).map_or(NONE, |known| known.first_leaving);
        let walks = &mut self.routes.moved.0;
        walks.retain(|walk| (walk.iface, walk.towards) != (iface, towards));
        if next == NONE || walks.len() >= MOST {
            return;
        }
        walks.push_back(Walk { iface, towards, next });
    }

    /// The Paths to such neighbours that go out next, at most `most`.
    pub(in crate::engine) fn paths_to_moved(&mut self, most: usize) -> Vec<SentState> {
        let mut found = Vec::new();
        for _ in 0..STEPS {
            let Some(walk) = self.routes.moved.0.front() else { break };
            let (iface, towards, at) = (walk.iface, walk.towards, walk.next);
            let Some((key, sender)) = self.senders.entry(at) else {
                self.routes.moved.0.pop_front();
                continue;
            };
            let (next, unsent) = (sender.leaving[1], sender.has(UNSENT));
            if let Some(walk) = self.routes.moved.0.front_mut() {
                walk.next = next;
            }
            let path = SentState::Path(key, iface);
            if !unsent && self.next_of(&path) == (iface, towards) {
                found.push(path);
                if found.len() >= most {
                    break;
                }
            }
        }
        found
    }
}
