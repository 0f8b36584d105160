//! What this node only passes on (RFC 5971 §4.3.4, §5.3.2.3).

use core::net::SocketAddr;

use signalbox_core::node::{NoRoute, Route};
use signalbox_core::packet::Received;
use signalbox_core::{Direction, IfIndex, Mri};

use super::Gist;
use super::compose::flow_label;
use super::lookup::{Parcel, route_query};
use super::outbox::Envelope;
use super::receive::Arrival;
use super::record::NONE;
use crate::wire::{
    Encapsulation, GistError, HEADER_LENGTH, Header, Info, MAGIC, ObjectType, find_mri, find_object,
    object_value_info,
};

/// Octets of IP and UDP headers in front of the payload, options not counted.
const fn headers(ipv6: bool) -> usize {
    if ipv6 { 48 } else { 28 }
}

impl Gist {
    /// Passes an intercepted datagram on as a router would: one less TTL, nothing else changed.
    pub(super) fn pass_on(&mut self, received: &Received<'_>) {
        if received.ttl <= 1 {
            self.counters.ttl_expired += 1;
            dropped!(received, "IP TTL used up");
            return;
        }
        self.counters.passed_on += 1;
        let envelope = Envelope {
            src: received.src,
            dst: received.dst,
            ifindex: None,
            ttl: received.ttl - 1,
            tos: received.tos,
            dont_fragment: false,
            flow_label: 0, // not among what is told of a received packet
        };
        self.out.forward(envelope, received.options, &[received.payload]);
    }

    /// Forwards a Q-mode message of an application that is not here, or that declined to peer.
    ///
    /// Only the common header and the MRI are looked at (GIST-4.3.4-16); the octets that leave are those that
    /// came, but for the hop count and a payload that the application replaced (GIST-4.3.2-06,
    /// GIST-4.3.4-17). The route follows the whole MRI (GIST-4.3.4-07).
    pub(super) fn forward(&mut self, a: &Arrival<'_>, header: &Header, payload: Option<&[u8]>) {
        if a.ttl <= 1 {
            self.counters.ttl_expired += 1;
            dropped!(a, "IP TTL used up");
            return;
        }
        // GIST-4.3.1-09, GIST-4.3.4-11: what arrived with hop count 1 may be processed, not forwarded.
        if header.hops <= 1 {
            self.counters.hops_exceeded += 1;
            dropped!(a, "GIST hop count used up");
            return self.refuse_with(a, GistError::HOP_LIMIT_EXCEEDED, None);
        }
        let mri = find_mri(a.octets);
        // GIST-4.3.4-13, GIST-4.3.4-15: only of a method that this node knows.
        if let Some(Mri::PathCoupled(p)) = &mri {
            let least =
                if p.dst.is_ipv6() { self.config.min_dst_prefix_v6 } else { self.config.min_dst_prefix_v4 };
            if p.direction == Direction::Downstream && p.dst_prefix < least {
                self.counters.mri_rejected += 1;
                dropped!(a, "destination prefix too short");
                let offset = if p.dst.is_ipv6() { 41 } else { 17 };
                let info = object_value_info(a.octets, ObjectType::MRI, offset);
                return self.refuse_with(a, GistError::MRI_TOO_WILD, info);
            }
        }
        let octets = rewritten(a.octets, header.hops - 1, payload);
        let query = route_query(mri.as_ref(), a.dst.ip(), a.tos);
        let parcel = Parcel {
            src: a.src,
            dst: a.dst,
            ifindex: a.ifindex,
            ttl: a.ttl,
            tos: a.tos,
            flow_label: mri.as_ref().map_or(0, flow_label),
            local: a.local,
            options: a.options.into(),
            original: a.octets.into(),
            octets: octets.into(),
        };
        if let Some(parcel) = self.lookup_parcel(parcel, query) {
            // Too many lookups pending: the kernel's routing by destination has to do.
            self.send_parcel(&parcel, None);
        }
    }

    /// Sends a forwarded message along the route that was found. GIST-4.3.4-09: one that the link cannot
    /// carry is refused. GIST-5.3.3-21: the rate limit of own messages does not apply.
    pub(super) fn forward_along(&mut self, parcel: &Parcel, result: Result<Route, NoRoute>) {
        let Ok(route) = result else {
            self.counters.transmit_failed += 1;
            dropped!(parcel, "no route");
            return;
        };
        let size = headers(parcel.dst.is_ipv6()) + parcel.options.len() + MAGIC.len() + parcel.octets.len();
        if usize::try_from(route.mtu).is_ok_and(|mtu| mtu > 0 && size > mtu) {
            let mtu = u16::try_from(route.mtu).unwrap_or(u16::MAX);
            let arrival = Arrival {
                src: parcel.src,
                dst: parcel.dst,
                ifindex: parcel.ifindex,
                ttl: parcel.ttl,
                tos: parcel.tos,
                options: &parcel.options,
                octets: &parcel.original,
                local: parcel.local,
                encapsulation: Encapsulation::QMode,
                association: NONE,
            };
            return self.refuse_with(&arrival, GistError::MESSAGE_TOO_LARGE, Some(Info::Mtu(mtu)));
        }
        self.send_parcel(parcel, Some(route.ifindex).filter(|i| *i != IfIndex::NONE));
    }

    fn send_parcel(&mut self, parcel: &Parcel, ifindex: Option<IfIndex>) {
        self.counters.forwarded += 1;
        let SocketAddr::V4(_) = parcel.dst else {
            return self.out.forward(
                parcel.envelope(ifindex, false),
                &parcel.options,
                &[&MAGIC, &parcel.octets],
            );
        };
        // Every Q-mode packet has DF set (§5.3.2.1), so this one had.
        self.out.forward(parcel.envelope(ifindex, true), &parcel.options, &[&MAGIC, &parcel.octets]);
    }
}

/// The message with another hop count, and with another NSLP-Data object where its own was (or at the end).
fn rewritten(octets: &[u8], hops: u8, payload: Option<&[u8]>) -> Vec<u8> {
    let mut new = octets.to_vec();
    if let Some(payload) = payload {
        let (start, length) = find_object(octets, ObjectType::NSLP_DATA)
            .map_or((octets.len(), 0), |object| (object.start, object.octets.len()));
        let words = u16::try_from(payload.len() / 4).unwrap_or(0).to_be_bytes();
        let kind = ObjectType::NSLP_DATA.0.to_be_bytes();
        let object = kind.into_iter().chain(words).chain(payload.iter().copied());
        new.splice(start..start + length, object);
        let total = u16::try_from((new.len().saturating_sub(HEADER_LENGTH)) / 4).unwrap_or(u16::MAX);
        if let Some(field) = new.get_mut(2..4) {
            field.copy_from_slice(&total.to_be_bytes());
        }
    }
    if let Some(field) = new.get_mut(1) {
        *field = hops;
    }
    new
}
