//! Reservation state (RFC 2205 §2.2, §3.1.4): the requests of next hops at each outgoing interface, and their grants.
//!
//! [`Branches`] owns the records with their timers, and what admission control was asked for them. Other rooms read and change a
//! [`Branch`] by its key.
//!
//! * `arrival`: Resv messages that arrive. `context`: values that describe a Resv while it is handled. `tear`: reservations that end.
//! * `error`: ResvErrs that arrive and leave, and the blockade state that they set (§3.1.8, §3.5).
//! * `branch`: the record of a reservation (a TCSB of RFC 2209 with its RSBs). `branches`: the table.
//! * `traffic`: requests to admission control, refusals and lost grants (§3.11.2). `reduce`: reduced grants (RFC 4495).
//! * `police`: where traffic is policed (§3.8). `policy`: policy elements that this node reads (RFC 2750).
//! * `adspec`: what reservations take from the ADSPECs of Paths. `granting`: the nodes that granted a reservation.

mod adspec;
mod arrival;
mod branch;
mod branches;
mod context;
mod error;
mod granting;
mod police;
mod policy;
mod reduce;
mod tear;
mod traffic;

use core::ops::Deref;

use signalbox_core::slab::Slab;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::wheel::Wheel;
use signalbox_core::{Key, Time};

pub(in crate::engine) use branch::{Branch, Request};
pub(in crate::engine) use context::{Outcome, Wanted};

use crate::wire::UserError;
use police::PolicingCheck;

/// All reservations of a node. Others read and change the records; only this room enters and removes them.
#[derive(Debug)]
pub(in crate::engine) struct Branches {
    slab: Slab<Branch>,
    wheel: Wheel,
    /// Reservations that have to be compared with each other again, for policing.
    policing_checks: Vec<PolicingCheck>,
    /// What this node adds to the errors of this input.
    told: Vec<UserError>,
    /// The flows of a request to admission control. It holds no facts: each user clears it first.
    filters: Vec<FlowFilter>,
    /// Lists of a [`context::Accepted`], reservations and senders, in the same way.
    accepted: [Vec<Key>; 2],
}

impl Branches {
    /// An empty table for at most `limit` reservations.
    pub(in crate::engine) fn new(limit: u32) -> Self {
        Self {
            slab: Slab::new(limit),
            wheel: Wheel::default(),
            policing_checks: Vec::new(),
            told: Vec::new(),
            filters: Vec::new(),
            accepted: [Vec::new(), Vec::new()],
        }
    }

    /// Number of reservations.
    pub(in crate::engine) const fn len(&self) -> u32 {
        self.slab.len()
    }

    /// Most reservations.
    pub(in crate::engine) const fn limit(&self) -> u32 {
        self.slab.limit()
    }

    /// Keeps at most `limit` reservations from now on. Those that are there stay.
    pub(in crate::engine) const fn set_limit(&mut self, limit: u32) {
        self.slab.set_limit(limit);
    }

    /// Another input begins: what errors of the former one were told is over.
    pub(in crate::engine) fn forget_told(&mut self) {
        self.told.clear();
    }

    pub(in crate::engine) fn get_mut(&mut self, key: Key) -> Option<&mut Branch> {
        self.slab.get_mut(key)
    }

    /// Sets the timer of a reservation, unless it is due earlier.
    pub(in crate::engine) fn arm_by(&mut self, key: Key, at: Time) {
        self.wheel.arm_by(&mut self.slab, key.index(), at);
    }

    /// Stops the timer of a reservation.
    pub(in crate::engine) fn disarm(&mut self, key: Key) {
        self.wheel.cancel(&mut self.slab, key.index());
    }

    /// The next reservation whose timer is due.
    pub(in crate::engine) fn pop_due(&mut self, now: Time) -> Option<u32> {
        self.wheel.pop_due(&mut self.slab, now)
    }

    /// The time of the first timer.
    pub(in crate::engine) fn next_deadline(&self) -> Option<Time> {
        self.wheel.next_deadline()
    }
}

impl Deref for Branches {
    type Target = Slab<Branch>;

    fn deref(&self) -> &Slab<Branch> {
        &self.slab
    }
}
