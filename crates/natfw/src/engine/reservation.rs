//! Reservations by EXTERNAL, and the CREATEs that they are for (RFC 5973 §3.8).

use core::net::IpAddr;

use signalbox_core::node::Prefix;
use signalbox_core::slab::Key;
use signalbox_core::{PathCoupled, invariant};

use super::Natfw;
use super::plan::Reserved;
use super::session::{Session, State};

/// Reservations with the same address, protocol and port, at most. They differ by their senders. A search compares all
/// of them.
const MOST_ALIKE: usize = 16;

/// What reservations are found by; 0 is a wildcard.
type Place = (IpAddr, u8, u16);

impl Reserved {
    fn place(&self) -> Place {
        (self.address, self.protocol.unwrap_or(0), self.port.unwrap_or(0))
    }

    /// Whether a flow is one of those that are meant (RFC 5973 §3.8, table 1).
    fn matches(&self, flow: &PathCoupled, second: bool) -> bool {
        let same = |wanted: Option<u16>, port: Option<u16>| wanted.is_none_or(|wanted| port == Some(wanted));
        flow.dst_prefix >= Prefix::host(flow.dst).len
            && self.address == flow.dst
            && self.protocol.is_none_or(|protocol| flow.protocol == Some(protocol))
            && self.senders.len <= flow.src_prefix
            && self.senders.contains(flow.src)
            && same(self.port, flow.dst_port)
            && same(self.sender_port, flow.src_port)
            && self.spi.is_none_or(|spi| flow.spi == Some(spi))
            && (self.second || !second)
    }

    /// Whether a flow has packets of those that are meant, if not only such. `second`: it is for the port behind its own, too.
    fn touches(&self, flow: &PathCoupled, second: bool) -> bool {
        let meets = |wanted: Option<u16>, port: Option<u16>| {
            wanted.is_none_or(|wanted| port.is_none_or(|port| port == wanted))
        };
        let last = |port: u16, second: bool| u32::from(port) + u32::from(second);
        let ports_meet = |wanted: u16, port: u16| {
            u32::from(wanted) <= last(port, second) && u32::from(port) <= last(wanted, self.second)
        };
        let src = Prefix { addr: flow.src, len: flow.src_prefix };
        Prefix { addr: flow.dst, len: flow.dst_prefix }.contains(self.address)
            && self.protocol.is_none_or(|protocol| flow.protocol.is_none_or(|given| given == protocol))
            && (self.senders.contains(flow.src) || src.contains(self.senders.addr))
            && self.port.is_none_or(|wanted| flow.dst_port.is_none_or(|port| ports_meet(wanted, port)))
            && meets(self.sender_port, flow.src_port)
    }
}

/// What the reservations say about a flow towards the inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Invitation {
    /// No reservation is for it.
    None,
    /// A host inside blocks it.
    Blocked,
    /// A host inside waits for it; the session of the reservation.
    Reserved(Key),
}

impl Natfw {
    /// Enters the reservation of a session, if it has one.
    pub(super) fn reserve(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get(key), "a new entry has a session") else { return };
        let Some(reserved) = session.plan.reserved() else { return };
        if let Some(lessee) = session.lessee() {
            self.lessees.insert(lessee, key);
        }
        let hash = self.hasher.hash_one(&reserved.place());
        let (sessions, hasher) = (&self.sessions, &self.hasher);
        let rehash = |i| {
            let reserved = invariant!(
                sessions.get_index(i).and_then(|s: &Session| s.plan.reserved()),
                "a rehashed entry reserves"
            );
            reserved.map_or(0, |reserved| hasher.hash_one(&reserved.place()))
        };
        self.reservations.insert(hash, key.index(), rehash);
    }

    /// Removes the reservation of a session.
    pub(super) fn unreserve(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get(key), "a removed entry has a session") else {
            return;
        };
        let Some(reserved) = session.plan.reserved() else { return };
        // A later session may have taken it over.
        if let Some(lessee) = session.lessee().filter(|lessee| self.lessees.get(lessee) == Some(&key)) {
            self.lessees.remove(&lessee);
        }
        let index = key.index();
        self.reservations.remove(self.hasher.hash_one(&reserved.place()), |i| i == index);
    }

    /// Whether another reservation finds a place beside those that are alike.
    pub(super) fn has_place(&self, reserved: &Reserved) -> bool {
        self.reservations.candidates(self.hasher.hash_one(&reserved.place())).count() < MOST_ALIKE
    }

    /// What the reservations say about a flow. A block counts more than a reservation, and counts for a part of the flow.
    pub(super) fn invitation(&self, flow: &PathCoupled, second: bool) -> Invitation {
        let (protocol, port) = (flow.protocol.unwrap_or(0), flow.dst_port.unwrap_or(0));
        // A block may be for the port before and this one, and the flow for this one and the next.
        let (before, next) = (port.checked_sub(1), port.checked_add(1).filter(|_| second));
        let by_port = [Some(port), before, next].into_iter().flatten().filter(|port| *port != 0);
        let places = by_port.map(|port| (flow.dst, protocol, port));
        let mut found = Invitation::None;
        for place in places.chain([(flow.dst, protocol, 0), (flow.dst, 0, 0)]) {
            for index in self.reservations.candidates(self.hasher.hash_one(&place)) {
                let Some((key, session)) = invariant!(self.sessions.entry(index), "an entry has a session")
                else {
                    continue;
                };
                let Some(reserved) = invariant!(session.plan.reserved(), "an entry reserves") else {
                    continue;
                };
                if session.state == State::Pending {
                    continue;
                }
                if reserved.blocks && reserved.touches(flow, second) {
                    return Invitation::Blocked;
                }
                if !reserved.blocks && reserved.matches(flow, second) && session.request.admits(flow) {
                    found = Invitation::Reserved(key);
                }
            }
        }
        found
    }
}
