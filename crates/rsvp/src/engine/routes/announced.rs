//! Paths in Bundles (RFC 2961 §3): whether their sender can be where they came from.
//!
//! A single Path has the IP source of its sender, so that filters against forged sources judge it. A Bundle has the
//! source of its neighbor, and a node on any link could announce the sender of another. A Path in a Bundle that would
//! move or create path state therefore has to come by the interface to which the route to its sender leads. It waits
//! for the answer of routing; nothing else is stored for it.

use std::collections::VecDeque;

use signalbox_core::node::{NoRoute, Route, RouteQuery};

use crate::engine::interfaces::Iface;
use crate::engine::neighbor::{Arrivals, Incoming};
use crate::engine::packet::IpReceived;
use crate::engine::path::LOCAL;
use crate::engine::{Admission, Rsvp};

/// Paths that wait at most. The driver answers lookups before it reads further packets.
const WAITING: usize = 1024;
/// Octets of Paths that wait at most.
const WAITING_OCTETS: usize = 1 << 20;
/// The bit that distinguishes these lookups from those of senders, whose slots are not reused so often.
const BUNDLED: u64 = 1 << 63;

/// Paths of Bundles that wait for the routes to their senders.
#[derive(Debug, Default)]
pub(super) struct Announced {
    waiting: VecDeque<Waiting>,
    octets: usize,
    last: u64,
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    /// The packet of the Bundle, without its octets.
    packet: IpReceived<'static>,
    /// Nodes without RSVP lie between, by the TTL of the Bundle.
    non_rsvp: bool,
    /// The Path.
    octets: Vec<u8>,
}

impl Announced {
    /// Keeps a Path, and returns the identifier of its lookup; `None`: there is no room.
    fn keep(&mut self, packet: IpReceived<'static>, non_rsvp: bool, octets: &[u8]) -> Option<u64> {
        let total = self.octets + octets.len();
        if self.waiting.len() >= WAITING || total > WAITING_OCTETS {
            return None;
        }
        self.last = self.last.wrapping_add(1) | BUNDLED;
        self.octets = total;
        self.waiting.push_back(Waiting { id: self.last, packet, non_rsvp, octets: octets.to_vec() });
        Some(self.last)
    }

    fn take(&mut self, id: u64) -> Option<Waiting> {
        // Answers come in the order of the lookups.
        let at = self.waiting.iter().position(|waiting| waiting.id == id)?;
        let waiting = self.waiting.remove(at)?;
        self.octets -= waiting.octets.len();
        Some(waiting)
    }
}

impl Rsvp {
    /// Whether a Path is handled now. If it came in a Bundle and is news of its sender, it is handled after the answer of
    /// routing.
    pub(in crate::engine) fn is_announced_well(&mut self, incoming: &Incoming<'_>, iface: Iface) -> bool {
        let (message, packet) = (&incoming.message, &incoming.packet);
        let settings = self.neighbors.config().of(packet.ifindex);
        if !incoming.bundled || settings.trust.any_source || settings.integrity.receiving {
            return true;
        }
        let (Some(session), Some(filter)) = (message.session, message.sender) else { return true };
        let sender = self.find_session(&session).and_then(|session| self.find_sender(session, &filter));
        if sender
            .and_then(|key| self.senders.get(key))
            .is_some_and(|sender| sender.iif == iface || sender.has(LOCAL))
        {
            return true;
        }
        let IpReceived { src, dst, ifindex, ttl, tos, router_alert, .. } = *packet;
        let bare = IpReceived { src, dst, ifindex, ttl, tos, router_alert, payload: &[] };
        match self.routes.announced.keep(bare, incoming.non_rsvp, packet.payload) {
            Some(id) => self.out.lookup(id, RouteQuery::to(filter.src)),
            None => self.counters.overload += 1,
        }
        false
    }

    /// The driver answers a lookup of the route to a sender; `false`: the lookup was another one.
    pub(super) fn on_route_to_sender(
        &mut self,
        id: u64,
        result: Result<Route, NoRoute>,
        resources: &mut dyn Admission,
    ) -> bool {
        let Some(waiting) = self.routes.announced.take(id) else { return id & BUNDLED != 0 };
        let Waiting { packet, non_rsvp, octets, .. } = waiting;
        let iface = self.interfaces.iface(packet.ifindex);
        if !result.is_ok_and(|route| !route.local && route.ifindex == packet.ifindex) {
            self.counters.announced_elsewhere += 1;
            tracing::debug!(
                peer = %packet.src,
                ifindex = packet.ifindex.0,
                reason = "in a Bundle, and the route to its sender leaves by another interface",
                "Path dropped"
            );
            return true;
        }
        let packet = IpReceived { payload: &octets, ..packet };
        let mut incoming = Incoming::none(packet);
        let mut arrivals = Arrivals::again(&mut incoming, non_rsvp);
        self.take_arrivals(&packet, &mut arrivals, iface, resources);
        true
    }
}
