//! Path state (RFC 2205 §2.2, §3.1.3): the senders of each session, with their previous hops and the ways that their data take.
//!
//! [`Senders`] owns the records with their index and their timers. Other rooms read and change a [`Sender`] by its key.
//!
//! * `arrival`: Path and PathTear messages that arrive. `difference`: what a Path changes in path state that stands.
//! * `sender`: the record of a sender (a PSB of RFC 2209). `senders`: the table.
//! * `unexpected`: path state of one sender from several interfaces.
//! * `protection`: a second reservation along the backup route of a sender that asks for it.
//! * `overdue`: path state whose previous hop is silent when its route changes (§3.6).

mod arrival;
mod difference;
mod overdue;
mod protection;
mod sender;
mod senders;
mod unexpected;

use core::ops::Deref;

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::slab::Slab;
use signalbox_core::wheel::Wheel;
use signalbox_core::{Key, Time};

pub(in crate::engine) use arrival::policy_in;
pub(in crate::engine) use difference::Part;
pub(in crate::engine) use sender::{
    E_POLICE, HELD, LOCAL, LOCAL_ONLY, NON_RSVP, PATH, PROTECTED, PathTime, REPAIR, RESOLVING, RESV, STANDBY,
    Sender, UNSENT, UnexpectedPath,
};

/// All senders of a node. Others read and change the records; only this room enters and removes them.
#[derive(Debug)]
pub(in crate::engine) struct Senders {
    slab: Slab<Sender>,
    /// Index of all senders but the first of each session.
    index: Index,
    /// Keyed, because peers choose what is hashed.
    hasher: KeyedHasher,
    wheel: Wheel,
}

impl Senders {
    /// An empty table for at most `limit` senders.
    pub(in crate::engine) fn new(limit: u32, hasher: KeyedHasher) -> Self {
        Self { slab: Slab::new(limit), index: Index::new(), hasher, wheel: Wheel::default() }
    }

    /// Number of senders.
    pub(in crate::engine) const fn len(&self) -> u32 {
        self.slab.len()
    }

    /// Most senders.
    pub(in crate::engine) const fn limit(&self) -> u32 {
        self.slab.limit()
    }

    /// Keeps at most `limit` senders from now on. Those that are there stay.
    pub(in crate::engine) const fn set_limit(&mut self, limit: u32) {
        self.slab.set_limit(limit);
    }

    /// Whether the index has no entry.
    pub(in crate::engine) fn holds_nothing(&self) -> bool {
        self.index.is_empty()
    }

    pub(in crate::engine) fn get_mut(&mut self, key: Key) -> Option<&mut Sender> {
        self.slab.get_mut(key)
    }

    pub(in crate::engine) fn get_index_mut(&mut self, index: u32) -> Option<&mut Sender> {
        self.slab.get_index_mut(index)
    }

    /// Sets the timer of a sender, unless it is due earlier.
    pub(in crate::engine) fn arm_by(&mut self, key: Key, at: Time) {
        self.wheel.arm_by(&mut self.slab, key.index(), at);
    }

    /// Stops the timer of a sender.
    pub(in crate::engine) fn disarm(&mut self, key: Key) {
        self.wheel.cancel(&mut self.slab, key.index());
    }

    /// The next sender whose timer is due.
    pub(in crate::engine) fn pop_due(&mut self, now: Time) -> Option<u32> {
        self.wheel.pop_due(&mut self.slab, now)
    }

    /// Lists the senders that are due next, as far as they are known; their number.
    pub(in crate::engine) fn list_next(&mut self, room: &mut [u32]) -> usize {
        self.wheel.list_next(&mut self.slab, room)
    }

    /// The time of the first timer.
    pub(in crate::engine) fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }
}

impl Deref for Senders {
    type Target = Slab<Sender>;

    fn deref(&self) -> &Slab<Sender> {
        &self.slab
    }
}
