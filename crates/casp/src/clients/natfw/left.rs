//! What a NAT leaves to the node that starts in its place: the external ports of the ends inside.
//!
//! The sessions themselves come back with the refreshes of their hosts, which are judged like new requests. Until then no other end
//! gets the port of an end, so that the flow goes on from it, and peers outside reach no other host by it.

use signalbox_core::Time;
use signalbox_core::handover::Entries;
use signalbox_core::ports::{Binding, Inside};

use super::NatfwClient;

impl NatfwClient {
    /// Writes the external ports of the sessions that stand. It walks over all sessions, so it is for a node that ends.
    pub fn hand_over(&self, now: Time, to: &mut Entries) {
        for (_, record) in self.records.iter() {
            let end = record.flow.ports().zip(record.flow.protocol());
            let (Some(bound), Some(((port, _), protocol))) = (&record.binding, end) else { continue };
            let external = self.ports.as_ref().and_then(|ports| ports.port(bound.lease));
            let left = record.until.since(now);
            let Some(external) = external.filter(|_| !left.is_zero()) else { continue };
            let binding = Binding { address: record.flow.src(), protocol, port, external };
            if !to.push(&binding.write(left)) {
                return;
            }
        }
    }

    /// Takes what [`Self::hand_over`] of the node before this one wrote, and what a crash left in the kernel. It comes once at the start,
    /// after the interfaces.
    pub fn take_over(&mut self, now: Time, entries: Entries) {
        self.now = self.now.max(now);
        let Self { left, ports, .. } = self;
        let Some(ports) = ports else { return };
        let hold = |binding: &Binding| {
            let Binding { address, protocol, port, external } = *binding;
            let inside = Inside { address, protocol, port, second: false };
            let (lease, got) = ports.acquire(inside, address, Some(external)).ok()?;
            if got == external {
                return Some(lease);
            }
            ports.release(lease);
            None
        };
        left.take_over(self.now, entries, hold, |why| {
            tracing::debug!(reason = %why, "port of the predecessor not kept");
        });
    }

    /// Ends what is kept for too long.
    pub(super) fn step_left(&mut self) {
        while let Some(lease) = self.left.expired(self.now) {
            if let Some(ports) = self.ports.as_mut() {
                ports.release(lease);
            }
        }
    }
}
