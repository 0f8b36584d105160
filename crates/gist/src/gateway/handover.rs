//! What a gateway leaves to the one that starts in its place: flows that its hosts asked for, and the external ports of the ends inside.
//!
//! The next gateway judges each flow by its own sides, address, ports and forwards, before any message. What is possible stands at
//! once, for the time that was left; the kernel passes it meanwhile. All other bindings, and those of signaling, come back with the
//! Queries that hosts repeat, which are judged like new ones. Until then no other end gets the port of an end, so that its flows go on
//! from it, and peers outside reach no other host by it.

use core::net::{IpAddr, SocketAddrV4};

use signalbox_core::Time;
use signalbox_core::handover::Entries;
use signalbox_core::pinhole::{OpenerId, PinholeId};
use signalbox_core::ports::Binding;
use signalbox_core::slab::Key;

use super::bindings::{BindingRequest, Course, Proof, Purpose, Requester};
use super::flow::WITH_PORTS;
use super::inherited::InheritedFlow;
use super::interfaces::Side;
use super::{Gateway, SHORTEST};

impl Gateway {
    /// Writes the flows that stand, and the external ports that are in use. It walks over all of them, so it is for a node that ends.
    pub fn hand_over(&self, now: Time, to: &mut Entries) {
        let (mut from, mut room) = (Some(0), true);
        while let Some(at) = from.filter(|_| room) {
            from = self.bindings.walk(at, |_, binding| {
                room = InheritedFlow::of(binding, now).is_none_or(|inherited| to.push(&inherited.write()));
                room
            });
        }
        for binding in self.leases.iter() {
            // Hosts refresh their routing state within the time of the shortest binding.
            if !to.push(&binding.write(SHORTEST)) {
                return;
            }
        }
    }

    /// Whether a binding stays in the kernel for the gateway that starts in place of this one.
    #[must_use]
    pub fn leaves(&self, id: PinholeId) -> bool {
        let key = (id.owner == OpenerId::GIST_NAT).then(|| Key::from_u64(id.key));
        let binding = key.and_then(|key| self.bindings.get(key));
        binding.is_some_and(|binding| InheritedFlow::of(binding, self.now).is_some())
    }

    /// Takes what [`Self::hand_over`] of the gateway before this one wrote, and what a crash left in the kernel. It comes once at the
    /// start, after the interfaces.
    pub fn take_over(&mut self, now: Time, mut entries: Entries) {
        self.now = self.now.max(now);
        let mut ports = Entries::default();
        while let Some(entry) = entries.take() {
            match InheritedFlow::read(entry) {
                Some(inherited) => {
                    let InheritedFlow { inside, external, far, .. } = inherited;
                    if self.restore(&inherited) {
                        tracing::debug!(%inside, %external, %far, "flow of the predecessor kept");
                    } else {
                        tracing::debug!(%inside, %external, %far, reason = "not possible here", "flow of the predecessor not kept");
                    }
                }
                // They fit: there are fewer.
                None => _ = ports.push(entry),
            }
        }
        self.keep_ports(ports);
    }

    /// Makes the binding of a flow that stood. False: it is not possible with the present sides, address, ports and forwards.
    fn restore(&mut self, inherited: &InheritedFlow) -> bool {
        let InheritedFlow { protocol, inside, external, .. } = *inherited;
        let of_host = self.interfaces.side(inherited.ifindex) == Some(Side::Inside)
            && !self.interfaces.has(IpAddr::V4(*inside.ip()));
        let port = (protocol, external.port());
        let has_external = self.interfaces.external() == Some(*external.ip())
            && (self.leases.is_in_range(external.port()) || self.leases.is_forwarded(port, inside));
        if !of_host || !has_external || !WITH_PORTS.contains(&protocol) {
            return false;
        }
        let Some(hold) = self.leases.adopt(port, inside, true) else { return false };
        let request = BindingRequest {
            purpose: Purpose::Flow,
            pinhole: inherited.pinhole(),
            hold: Some(hold),
            owner: inherited.holder(),
            ifindex: inherited.ifindex,
            requester: Requester::Host,
            adopted: false,
        };
        let Some(key) = self.bind(request, inherited.left().min(self.config.max_lifetime)) else {
            return false;
        };
        if let Some(binding) = self.bindings.get_mut(key) {
            (binding.proof, binding.course) = (Proof::Confirmed, Course::Outward);
        }
        self.activate(key);
        true
    }

    fn keep_ports(&mut self, entries: Entries) {
        let Self { left, leases, .. } = self;
        let hold = |binding: &Binding| {
            let Binding { address: IpAddr::V4(address), protocol, port, external } = *binding else {
                return None;
            };
            // Other protocols of this node have ports of their own in the kernel.
            let in_range = leases.is_in_range(external);
            if in_range {
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
