//! What a gateway leaves to the one that starts in its place: the external ports of the ends inside.
//!
//! The bindings come back with the Queries that hosts repeat, which are judged like new ones. Until then no other end gets the port of an
//! end, so that its flows go on from it, and peers outside reach no other host by it.

use core::net::{IpAddr, SocketAddrV4};

use signalbox_core::Time;
use signalbox_core::handover::Entries;
use signalbox_core::ports::Binding;

use super::{Gateway, SHORTEST};

impl Gateway {
    /// Writes the external ports that are in use. It walks over all of them, so it is for a node that ends.
    pub fn hand_over(&self, to: &mut Entries) {
        for binding in self.leases.iter() {
            // Hosts refresh their routing state within the time of the shortest binding.
            if !to.push(&binding.write(SHORTEST)) {
                return;
            }
        }
    }

    /// Takes what [`Self::hand_over`] of the gateway before this one wrote, and what a crash left in the kernel. It comes once at the
    /// start.
    pub fn take_over(&mut self, now: Time, entries: Entries) {
        self.now = self.now.max(now);
        let Self { left, leases, .. } = self;
        let hold = |binding: &Binding| {
            let Binding { address: IpAddr::V4(address), protocol, port, external } = *binding else {
                return None;
            };
            // Other protocols of this node have ports of their own in the kernel.
            let own = leases.is_in_range(external);
            if own {
                leases.adopt((protocol, external), SocketAddrV4::new(address, port), false)
            } else {
                None
            }
        };
        left.take_over(self.now, entries, hold, |why| {
            tracing::debug!(reason = %why, "port of the predecessor not kept");
        });
    }

    /// Ends what is kept for too long.
    pub(super) fn step_left(&mut self) {
        while let Some(hold) = self.left.expired(self.now) {
            self.leases.release(hold);
        }
    }
}
