//! Next hops and previous hops, which many records share.

use signalbox_core::index::KeyedHasher;
use signalbox_core::intern::Interner;

use super::Recent;
use crate::wire::RsvpHop;

/// The hops that records refer to.
#[derive(Debug)]
pub(in crate::engine) struct Hops {
    all: Interner<RsvpHop>,
    /// Next hops and previous hops that were found last. Their handles distinguish them.
    recent: [Recent; 2],
}

impl Hops {
    pub(in crate::engine) const fn new(limit: u32, hasher: KeyedHasher) -> Self {
        Self { all: Interner::new(limit, hasher), recent: [Recent::new(), Recent::new()] }
    }

    /// The number of a hop, with a reference to it that [`Self::release`] gives back; `None`: there is no room.
    pub(in crate::engine) fn share(&mut self, hop: RsvpHop) -> Option<u32> {
        let [next, previous] = &mut self.recent;
        let recent = if hop.lih == 0 { next } else { previous };
        let id = recent.get(hop.addr);
        if self.all.lookup(id) == Some(&hop) {
            self.all.retain(id);
            return Some(id);
        }
        let shared = self.all.intern(hop).ok()?;
        recent.set(hop.addr, shared);
        Some(shared)
    }

    /// The hop with this number.
    pub(in crate::engine) fn lookup(&self, hop: u32) -> Option<&RsvpHop> {
        self.all.lookup(hop)
    }

    /// The number of a hop that some record refers to.
    pub(in crate::engine) fn find(&self, hop: &RsvpHop) -> Option<u32> {
        self.all.find(hop)
    }

    /// Takes one more reference to a hop.
    pub(in crate::engine) fn retain(&mut self, hop: u32) {
        self.all.retain(hop);
    }

    /// Gives back a reference.
    pub(in crate::engine) fn release(&mut self, hop: u32) {
        self.all.release(hop);
    }

    /// Whether no record refers to a hop.
    pub(in crate::engine) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
