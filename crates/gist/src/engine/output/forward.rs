//! Forwarding of packets and messages that are not for this node (RFC 5971 §4.3.4, §5.3.2.3).

use core::net::SocketAddr;

use signalbox_core::node::{NoRoute, Route};
use signalbox_core::packet::Received;
use signalbox_core::{Direction, Mri};

use super::compose::flow_label;
use crate::engine::Gist;
use crate::engine::outbox::Envelope;
use crate::engine::receive::Arrival;
use crate::engine::routes::{ForwardedMessage, route_query};
use crate::engine::routing::NONE;
use crate::wire::{
    Encapsulation, GistError, HEADER_LENGTH, Header, Info, MAGIC, ObjectType, find_mri, find_object,
    object_value_info,
};

/// Octets of IP and UDP headers in front of the payload, options not counted.
const fn headers(ipv6: bool) -> usize {
    if ipv6 { 48 } else { 28 }
}

impl Gist {
    /// Forwards an intercepted datagram as a router does: the TTL is decremented, and nothing else changes (RFC 5971
    /// §5.3.2.3).
    pub(in crate::engine) fn forward_unchanged(&mut self, received: &Received<'_>) {
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
            gateway: None,
            ttl: received.ttl - 1,
            tos: received.tos,
            dont_fragment: false,
            flow_label: 0, // a received packet does not include its flow label
            unproved: true,
        };
        self.out.forward(envelope, received.options, &[received.payload]);
    }

    /// Forwards a Q-mode message of an application that this node does not have, or that declined to peer (RFC 5971
    /// §4.3.4).
    ///
    /// Only the common header and the MRI are parsed (GIST-4.3.4-16). The octets are sent as received, except for the hop
    /// count and a payload that the application replaced (GIST-4.3.2-06, GIST-4.3.4-17). The route lookup uses the whole
    /// MRI (GIST-4.3.4-07).
    pub(in crate::engine) fn forward(&mut self, a: &Arrival<'_>, header: &Header, payload: Option<&[u8]>) {
        if a.ttl <= 1 {
            self.counters.ttl_expired += 1;
            dropped!(a, "IP TTL used up");
            return;
        }
        // GIST-4.3.1-09, GIST-4.3.4-11: a message received with hop count 1 may be processed but not forwarded.
        if header.hops <= 1 {
            self.counters.hops_exceeded += 1;
            dropped!(a, "GIST hop count used up");
            return self.refuse_with(a, GistError::HOP_LIMIT_EXCEEDED, None);
        }
        let mri = find_mri(a.octets);
        // GIST-4.3.4-13, GIST-4.3.4-15: only for a known routing method.
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
        let mut query = route_query(mri.as_ref(), a.dst.ip(), a.tos);
        query.iif = (!a.local && query.src.is_some()).then_some(a.ifindex);
        let forwarded = ForwardedMessage {
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
        if let Some(forwarded) = self.lookup_forwarded(forwarded, query) {
            // Too many lookups are pending: the kernel routes the message by its destination.
            self.send_forwarded(&forwarded, None);
        }
    }

    /// Sends a forwarded message along its route. GIST-4.3.4-09: a message that is larger than the MTU is refused.
    /// GIST-5.3.3-21: the rate limit of D-mode messages does not apply.
    pub(in crate::engine) fn forward_along(
        &mut self,
        forwarded: &ForwardedMessage,
        result: Result<Route, NoRoute>,
    ) {
        let Ok(route) = result else {
            self.counters.transmit_failed += 1;
            dropped!(forwarded, "no route");
            return;
        };
        let size =
            headers(forwarded.dst.is_ipv6()) + forwarded.options.len() + MAGIC.len() + forwarded.octets.len();
        if usize::try_from(route.mtu).is_ok_and(|mtu| mtu > 0 && size > mtu) {
            let mtu = u16::try_from(route.mtu).unwrap_or(u16::MAX);
            let arrival = Arrival {
                src: forwarded.src,
                dst: forwarded.dst,
                ifindex: forwarded.ifindex,
                ttl: forwarded.ttl,
                tos: forwarded.tos,
                options: &forwarded.options,
                octets: &forwarded.original,
                local: forwarded.local,
                encapsulation: Encapsulation::QMode,
                association: NONE,
            };
            return self.refuse_with(&arrival, GistError::MESSAGE_TOO_LARGE, Some(Info::Mtu(mtu)));
        }
        self.send_forwarded(forwarded, Some(&route));
    }

    fn send_forwarded(&mut self, forwarded: &ForwardedMessage, route: Option<&Route>) {
        self.counters.forwarded += 1;
        let SocketAddr::V4(_) = forwarded.dst else {
            return self.out.forward(
                forwarded.envelope(route, false),
                &forwarded.options,
                &[&MAGIC, &forwarded.octets],
            );
        };
        // Every Q-mode packet has DF set (§5.3.2.1), so this one had.
        self.out.forward(forwarded.envelope(route, true), &forwarded.options, &[&MAGIC, &forwarded.octets]);
    }
}

/// The message with another hop count. `payload`, if given, replaces its NSLP-Data object or is appended.
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
