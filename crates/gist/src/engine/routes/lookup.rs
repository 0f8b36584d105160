//! Route lookups, and the ingress filters of flows.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;

use signalbox_core::node::{NoRoute, Prefix, Route, RouteQuery};
use signalbox_core::service::SiiHandle;
use signalbox_core::slab::Key;
use signalbox_core::{Direction, IfIndex, Mri, PathCoupled, Time, invariant};

use crate::engine::Gist;
use crate::engine::applications::Stateless;
use crate::engine::interfaces::is_anycast;
use crate::engine::outbox::Envelope;
use crate::engine::routing::Egress;

/// The highest bit of a lookup's id is set for a [`Lookup`], and not for the lookup of a record.
const NOT_A_RECORD: u64 = 1 << 63;
/// The next bit is set for upstream Queries.
const UPSTREAM: u64 = 1 << 62;
/// Timeout of a lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// A message that is forwarded when its route is known.
#[derive(Debug)]
pub(in crate::engine) struct ForwardedMessage {
    pub(in crate::engine) src: SocketAddr,
    pub(in crate::engine) dst: SocketAddr,
    pub(in crate::engine) ifindex: IfIndex,
    /// IP TTL as received.
    pub(in crate::engine) ttl: u8,
    pub(in crate::engine) tos: u8,
    /// Flow label of the flow and of its packets.
    pub(in crate::engine) flow_label: u32,
    pub(in crate::engine) local: bool,
    pub(in crate::engine) options: Box<[u8]>,
    /// The received message, for an Error.
    pub(in crate::engine) original: Box<[u8]>,
    /// The message to be sent.
    pub(in crate::engine) octets: Box<[u8]>,
}

impl ForwardedMessage {
    /// Its addressing along a route; `None`: as any packet.
    pub(in crate::engine) fn envelope(&self, route: Option<&Route>, dont_fragment: bool) -> Envelope {
        Envelope {
            src: self.src,
            dst: self.dst,
            ifindex: route.map(|route| route.ifindex).filter(|ifindex| *ifindex != IfIndex::NONE),
            gateway: route.and_then(|route| route.gateway),
            ttl: self.ttl.saturating_sub(1),
            tos: self.tos,
            dont_fragment,
            flow_label: self.flow_label,
            unproved: true,
        }
    }
}

/// What waits for a route without a handshake.
#[derive(Debug)]
pub(in crate::engine) enum Waiting {
    Forward(ForwardedMessage),
    Stateless(Stateless),
    /// A peer that answered a Query which was not sent to its address.
    Peer(SiiHandle),
}

/// A lookup without record.
#[derive(Debug)]
struct Lookup {
    id: u64,
    until: Time,
    waiting: Waiting,
}

/// All lookups without record, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    queue: VecDeque<Lookup>,
    next: u64,
}

impl Lookups {
    /// Adds a lookup; returns its id.
    fn push(&mut self, until: Time, waiting: Waiting) -> u64 {
        let id = NOT_A_RECORD | self.next;
        self.next += 1;
        self.queue.push_back(Lookup { id, until, waiting });
        id
    }

    /// Removes a lookup that is answered; `None`: the answer is late or repeated.
    fn take(&mut self, id: u64) -> Option<Waiting> {
        let at = self.queue.iter().position(|lookup| lookup.id == id)?;
        self.queue.remove(at).map(|lookup| lookup.waiting)
    }

    /// Removes a lookup whose timeout is over.
    fn pop_due(&mut self, now: Time) -> Option<Waiting> {
        let due = self.queue.front().is_some_and(|lookup| lookup.until <= now);
        due.then(|| self.queue.pop_front()).flatten().map(|lookup| lookup.waiting)
    }

    /// When the next timeout is due.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.queue.front().map(|lookup| lookup.until)
    }
}

/// The packet whose route a message with this MRI takes (RFC 5971 §5.8.1.2, §5.8.1.3).
pub(in crate::engine) fn route_query(mri: Option<&Mri>, dst: IpAddr, tos: u8) -> RouteQuery {
    match mri {
        Some(Mri::PathCoupled(p)) if p.direction == Direction::Downstream => RouteQuery {
            src: Some(p.src),
            dst: p.dst,
            protocol: p.protocol,
            src_port: p.src_port.filter(|port| *port != 0),
            dst_port: p.dst_port.filter(|port| *port != 0),
            tos: p.dscp.map_or(tos, |dscp| dscp << 2),
            iif: None,
            without: None,
        },
        Some(Mri::LooseEnd(l)) if l.direction == Direction::Downstream => {
            RouteQuery { src: Some(l.src), tos, ..RouteQuery::to(l.dst) }
        }
        _ => RouteQuery { tos, ..RouteQuery::to(dst) },
    }
}

/// The id of the lookup for the Queries of a record. It lacks two bits of the key's generation.
const fn record_lookup(key: Key, direction: Direction) -> u64 {
    let id = key.to_u64() & !(NOT_A_RECORD | UPSTREAM);
    match direction {
        Direction::Downstream => id,
        Direction::Upstream => id | UPSTREAM,
    }
}

/// Whether the prefix of the first `len` bits of `addr` is in `prefix`.
pub(in crate::engine) fn covers(prefix: &Prefix, addr: IpAddr, len: u8) -> bool {
    let bits = |a: IpAddr| match a {
        IpAddr::V4(a) => (u128::from(a.to_bits()) << 96, 32),
        IpAddr::V6(a) => (a.to_bits(), 128),
    };
    let ((a, width), (p, prefix_width)) = (bits(addr), bits(prefix.addr));
    let shift = 128 - u32::from(prefix.len.min(128));
    width == prefix_width && len >= prefix.len && (a ^ p).checked_shr(shift).unwrap_or(0) == 0
}

impl Gist {
    /// Whether a flow may enter by an interface (RFC 5971 §5.8.1.2): its whole source prefix passes the configured filters,
    /// and its source is neither an address of this node nor one that cannot be a source. A Query of this node can return
    /// in a routing loop; without this check the node would then wait for its own refreshes.
    pub(in crate::engine) fn passes_ingress_filters(&self, ifindex: IfIndex, p: &PathCoupled) -> bool {
        if self.interfaces.is_own(p.src) || p.src.is_loopback() || p.src.is_multicast() {
            return false;
        }
        let mut filters = self.interfaces.ingress().iter().filter(|(of, ..)| *of == ifindex).peekable();
        filters.peek().is_none() || filters.any(|(_, prefix, _)| covers(prefix, p.src, p.src_prefix))
    }

    /// Looks up the route of a record's Queries.
    pub(in crate::engine) fn lookup_record(&mut self, key: Key, direction: Direction) {
        let Some(record) =
            invariant!(self.records.get(key), "a route is looked up for a session that stands")
        else {
            return;
        };
        let mri = record.flow.mri(direction);
        let mut query = route_query(Some(&mri), mri.target(), self.config.dscp << 2);
        if direction == Direction::Downstream {
            // The flow comes in where its upstream peer is.
            let from = record.half(Direction::Upstream).egress;
            query.iif = self.peers.egress(from).map(|egress| egress.ifindex);
        }
        self.out.lookup(record_lookup(key, direction), query);
    }

    /// The interface by which a flow enters according to the ingress filters, if it is not `ifindex`.
    fn other_ingress(&self, ifindex: IfIndex, mri: &Mri) -> Option<IfIndex> {
        let Mri::PathCoupled(p) = mri else { return None };
        // A filter of all interfaces names no entrance.
        let mut entrances = self
            .interfaces
            .ingress()
            .iter()
            .filter(|(_, prefix, named)| *named && covers(prefix, p.src, p.src_prefix));
        let (first, ..) = *entrances.next()?;
        (first != ifindex && entrances.all(|(other, ..)| *other != ifindex)).then_some(first)
    }

    /// Looks up the route of a message to be forwarded; returns the message if too many lookups are pending.
    pub(in crate::engine) fn lookup_forwarded(
        &mut self,
        forwarded: ForwardedMessage,
        query: RouteQuery,
    ) -> Option<ForwardedMessage> {
        match self.lookup(Waiting::Forward(forwarded), query) {
            Some(Waiting::Forward(forwarded)) => Some(forwarded),
            _ => None,
        }
    }

    /// Looks up the route of `waiting`; returns it if too many lookups are pending.
    pub(in crate::engine) fn lookup(&mut self, waiting: Waiting, query: RouteQuery) -> Option<Waiting> {
        if self.routes.lookups.queue.len() >= self.config.max_lookups {
            self.counters.lookups_full += 1;
            tracing::debug!(dst = %query.dst, reason = "too many lookups pending", "route lookup refused");
            return Some(waiting);
        }
        let id = self.routes.lookups.push(self.now + LOOKUP_TIMEOUT, waiting);
        self.out.lookup(id, query);
        None
    }

    /// Takes the answer to a lookup. A late or repeated answer is ignored.
    pub(in crate::engine) fn route_answer(&mut self, id: u64, result: Result<Route, NoRoute>) {
        if id & NOT_A_RECORD == 0 {
            let direction = if id & UPSTREAM == 0 { Direction::Downstream } else { Direction::Upstream };
            let key = self.records.key_of(Key::from_u64(id).index());
            if let Some(key) = key.filter(|key| record_lookup(*key, direction) == id) {
                self.record_route(key, direction, result);
            }
            return;
        }
        match self.routes.lookups.take(id) {
            Some(Waiting::Forward(forwarded)) => self.forward_along(&forwarded, result),
            Some(Waiting::Stateless(stateless)) => self.send_stateless_along(stateless, result),
            Some(Waiting::Peer(sii)) => {
                if let (Some(peer), Ok(route)) = (self.peers.by_sii(sii), result) {
                    self.peers.set_route(peer, route.ifindex);
                }
            }
            None => {}
        }
    }

    /// Looks up the route to the address of a peer, once for each peer. Until it is known, nothing shows that the peer has this
    /// address.
    pub(in crate::engine) fn look_up_peer(&mut self, id: u32) {
        let sii = invariant!(self.peers.sii(id), "the peer of a session is in the table of peers");
        let (Some(sii), Some(peer)) = (sii, self.peers.peer(id)) else { return };
        if self.peers.route(id).is_none() {
            let query = RouteQuery::to(peer.address.ip());
            self.lookup(Waiting::Peer(sii), query);
        }
    }

    pub(in crate::engine) fn expire_lookups(&mut self, most: u32) {
        for _ in 0..most {
            let Some(waiting) = self.routes.lookups.pop_due(self.now) else { return };
            match waiting {
                Waiting::Stateless(stateless) => self.send_stateless_along(stateless, Err(NoRoute::Failed)),
                Waiting::Forward(forwarded) => {
                    self.counters.transmit_failed += 1;
                    dropped!(forwarded, "no answer to the route lookup");
                }
                Waiting::Peer(_) => {}
            }
        }
    }

    /// The egress of a flow for a route, with the source address of messages: the configured one, else the near end of the flow if
    /// it is an address of this interface, else the source address of the route, else an address of the interface. GIST-5.8.1.3-10: upstream it
    /// is the interface by which the flow enters, if the ingress filters and the route differ.
    pub(in crate::engine) fn egress_of(&self, route: &Route, mri: &Mri) -> Option<Egress> {
        let flow = mri.inverted().target();
        let elsewhere = Some(mri).filter(|mri| mri.direction() == Direction::Upstream);
        let route = match elsewhere.and_then(|mri| self.other_ingress(route.ifindex, mri)) {
            Some(ifindex) => {
                let mtu = self.interfaces.mtu(ifindex).into();
                let src = self.interfaces.address(ifindex, flow.is_ipv6())?;
                &Route { ifindex, src, gateway: None, mtu, local: false }
            }
            None => route,
        };
        let v6 = flow.is_ipv6();
        let fits =
            |a: &IpAddr| a.is_ipv6() == v6 && !a.is_unspecified() && !a.is_loopback() && !is_anycast(*a);
        let is_there = |a: &IpAddr| self.interfaces.is_on(route.ifindex, *a) && !is_anycast(*a);
        let address = Some(flow)
            .filter(is_there)
            .or_else(|| Some(route.src).filter(fits))
            .or_else(|| self.interfaces.address(route.ifindex, v6));
        let address = self.interfaces.configured(route.ifindex, v6).or(address)?;
        let mtu = u16::try_from(route.mtu).unwrap_or(u16::MAX);
        Some(Egress { ifindex: route.ifindex, address, gateway: route.gateway, mtu })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_cover_what_lies_wholly_inside() {
        let prefix = |addr: &str, len| Prefix { addr: addr.parse().unwrap(), len };
        let addr = |a: &str| a.parse().unwrap();
        assert!(covers(&prefix("10.1.0.0", 16), addr("10.1.2.3"), 32));
        assert!(covers(&prefix("10.1.0.0", 16), addr("10.1.2.0"), 24));
        assert!(!covers(&prefix("10.1.0.0", 16), addr("10.0.0.0"), 8));
        assert!(!covers(&prefix("10.1.0.0", 16), addr("10.2.2.3"), 32));
        assert!(covers(&prefix("0.0.0.0", 0), addr("10.2.2.3"), 32));
        assert!(!covers(&prefix("0.0.0.0", 0), addr("2001:db8::1"), 128));
        assert!(covers(&prefix("2001:db8::", 32), addr("2001:db8::1"), 128));
    }
}
