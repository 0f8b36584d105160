//! Next hops that other routers take over, while no route changes (VRRP, RFC 5798).
//!
//! The driver reports that the kernel sends what goes to a neighbor to another link-layer address. The router there has none of the
//! MESSAGE_IDs that the former one acknowledged, and may not know the Paths. So they go out whole, a part at a time, and so do the
//! standby copies of protected senders. Anybody on the link can forge that change: it makes a part of the Paths of one link go earlier
//! than they would, and nothing else.

use core::net::IpAddr;
use std::collections::{BTreeSet, VecDeque};

use signalbox_core::{IfIndex, Key, invariant};

use crate::engine::Rsvp;
use crate::engine::interfaces::Iface;
use crate::engine::message_ids::SentState;
use crate::engine::path::UNSENT;
use crate::engine::session::NONE;

/// Neighbors that wait at most. Paths to others go whole by their own timers.
const MOST: usize = 256;
/// Senders that one call looks at.
const STEPS: usize = 1024;

/// A walk over the senders that leave by the interface of a neighbor, and then over those whose standby copies do.
#[derive(Debug)]
struct Walk {
    iface: Iface,
    /// The mark of the neighbor.
    towards: u32,
    /// The next sender that leaves by the interface; [`NONE`]: the walk has met all of them.
    next: u32,
    /// Of the senders with standby copies those from this number on are left.
    copies: u32,
}

/// The walks that wait.
#[derive(Debug, Default)]
pub(super) struct MovedHops {
    walks: VecDeque<Walk>,
    /// The senders with standby copies, by the interface of these.
    copies: BTreeSet<(Iface, u32)>,
}

impl MovedHops {
    pub(in crate::engine) fn is_idle(&self) -> bool {
        self.walks.is_empty()
    }

    /// Whether no sender has a standby copy.
    pub(super) fn has_no_copies(&self) -> bool {
        self.copies.is_empty()
    }

    /// The first sender from a number on whose standby copies leave by an interface.
    fn copy_from(&self, iface: Iface, number: u32) -> Option<u32> {
        self.copies.range((iface, number)..=(iface, u32::MAX)).next().map(|(_, sender)| *sender)
    }

    /// A sender leaves the list of its interface, in which `next` is after it.
    pub(in crate::engine) fn unlinked(&mut self, sender: u32, next: u32) {
        self.walks.iter_mut().filter(|walk| walk.next == sender).for_each(|walk| walk.next = next);
    }

    /// The interface of a sender's standby copies changes; [`Iface::NONE`]: it has none.
    pub(super) fn set_copy(&mut self, sender: u32, before: Iface, now: Iface) {
        self.copies.remove(&(before, sender));
        if now.is_real() {
            self.copies.insert((now, sender));
        }
    }
}

impl Rsvp {
    /// Another router may have the place of a neighbor.
    pub(in crate::engine) fn on_neighbor_moved(&mut self, ifindex: IfIndex, address: IpAddr) {
        let (iface, towards) = (self.interfaces.iface(ifindex), self.mark(address));
        let next = self.interfaces.get(iface).map_or(NONE, |known| known.first_leaving);
        let moved = &mut self.routes.moved;
        moved.walks.retain(|walk| (walk.iface, walk.towards) != (iface, towards));
        let concerned = next != NONE || moved.copy_from(iface, 0).is_some();
        if concerned && moved.walks.len() < MOST {
            moved.walks.push_back(Walk { iface, towards, next, copies: 0 });
        }
    }

    /// The next sender of the first walk, and whether its Path was not sent yet; `None`: the walk is over.
    fn next_in_walk(&mut self) -> Option<(Key, bool)> {
        let moved = &mut self.routes.moved;
        let (iface, next, copies) = moved.walks.front().map(|walk| (walk.iface, walk.next, walk.copies))?;
        let at = if next == NONE { moved.copy_from(iface, copies)? } else { next };
        let (key, sender) =
            invariant!(self.senders.entry(at), "a sender that ends leaves its interfaces before")?;
        let walk = moved.walks.front_mut()?;
        if next == NONE {
            walk.copies = at.saturating_add(1);
        } else {
            walk.next = sender.leaving[1];
        }
        Some((key, sender.has(UNSENT)))
    }

    /// The Paths to such neighbors that go out next, at most `most`.
    pub(in crate::engine) fn paths_to_moved(&mut self, most: usize) -> Vec<SentState> {
        let mut found = Vec::new();
        for _ in 0..STEPS {
            let Some(walk) = self.routes.moved.walks.front() else { break };
            let (iface, towards) = (walk.iface, walk.towards);
            let Some((key, unsent)) = self.next_in_walk() else {
                self.routes.moved.walks.pop_front();
                continue;
            };
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
