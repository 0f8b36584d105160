//! What a gateway leaves to the one that starts in its place: the external ports of the ends inside.
//!
//! The bindings come back with the Queries that hosts repeat, which are judged like new ones. Until then no other end gets the port of an
//! end, so that its flows go on from it, and peers outside reach no other host by it.

use core::net::{IpAddr, SocketAddrV4};
use core::time::Duration;

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
    pub fn take_over(&mut self, now: Time, mut entries: Entries) {
        self.now = self.now.max(now);
        while let Some(entry) = entries.take() {
            match Binding::read(entry) {
                Some((binding, left)) => self.keep_port(&binding, left),
                None => tracing::debug!(reason = "damaged", "port of the predecessor not kept"),
            }
        }
    }

    fn keep_port(&mut self, binding: &Binding, time: Duration) {
        let Binding { address: IpAddr::V4(address), protocol, port, external } = *binding else { return };
        if self.leases.left.port(&binding.end()).is_some() {
            return;
        }
        let inside = SocketAddrV4::new(address, port);
        // Other protocols of this node have ports of their own in the kernel.
        let own = self.leases.is_in_range(external);
        let hold = if own { self.leases.adopt((protocol, external), inside, false) } else { None };
        match hold {
            Some(hold) => self.leases.left.keep(self.now, time, binding, hold),
            None => {
                tracing::debug!(%address, port, external, reason = "not free here", "port of a former binding not kept");
            }
        }
    }

    /// Ends what is kept for too long.
    pub(super) fn step_left(&mut self) {
        while let Some(hold) = self.leases.left.expired(self.now) {
            self.leases.release(hold);
        }
    }
}
