//! Received packets: which this node interprets (§3.1), and where they go on.

use core::net::IpAddr;

use signalbox_core::packet::Received;
use signalbox_core::shares::source;
use signalbox_resources::Resources;

use super::Boomerang;
use super::interfaces::Iface;
use super::outbox::{Envelope, TTL};
use super::path::Origin;
use super::routes::{Packet, Waiting};
use crate::wire::{Dropped, Ends, Flags, Message, Pass, checksum_is_valid, edit, icmp_error};

/// Whether the source is the address of a host from which messages may come (RFC 1812 §5.3.7, RFC 3927 §7, RFC 4291 §2.5.6). The
/// address of a link goes no further than this link.
const fn is_of_host(ends: &Ends) -> bool {
    match (ends.src, ends.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => match src.octets()[0] {
            127 => dst.is_loopback(),
            0 | 224.. => false,
            _ => !src.is_link_local() || dst.is_link_local(),
        },
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let of_link = !src.is_unicast_link_local() || dst.is_unicast_link_local() || dst.is_multicast();
            of_link
                && !src.is_unspecified()
                && !src.is_multicast()
                && (!src.is_loopback() || dst.is_loopback())
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

impl Boomerang {
    /// Takes a packet with the magic number.
    pub(super) fn receive(&mut self, packet: &Received<'_>, resources: &mut Resources) {
        let ends = Ends { src: packet.src.ip(), dst: packet.dst.ip() };
        // SEC-T24-01
        if !is_of_host(&ends) {
            self.counters.bad_source += 1;
            tracing::debug!(peer = %ends.src, reason = "its source is not the address of a host", "message dropped");
            return;
        }
        if ends.dst.is_multicast() {
            return self.receive_for_group(packet, resources);
        }
        let local = self.interfaces.is_local(ends.dst);
        if icmp_error::is_unreachable(packet.payload, ends.is_ipv6()) {
            // Errors about messages of others concern their initiating nodes only.
            return if local {
                self.on_unreachable(packet, resources)
            };
        }
        let message = Message::parse(packet.payload, ends.is_ipv6());
        let message = match message {
            // BOOM-G3-02
            _ if !checksum_is_valid(&ends, packet.payload) => {
                self.counters.checksum += 1;
                tracing::debug!(peer = %ends.src, reason = "wrong checksum", "message not interpreted");
                if !local {
                    self.pass_on(packet);
                }
                return;
            }
            Err(error) => {
                // BOOM-G30-03
                self.counters.unknown += 1;
                tracing::debug!(peer = %ends.src, reason = %error, "message not interpreted");
                return if local { self.echo(packet) } else { self.pass_on(packet) };
            }
            Ok(message) => message,
        };
        let initiator = match message.pass {
            Pass::Request => {
                self.counters.requests_received += 1;
                ends.src
            }
            Pass::Reply => {
                self.counters.replies_received += 1;
                ends.dst
            }
        };
        if local && message.pass == Pass::Reply {
            return self.on_reply(packet, &message, resources);
        }
        // BOOM-F5.5-01, BOOM-G38-02
        if !self.interfaces.is_trusted(packet.ifindex) {
            self.counters.untrusted += 1;
            tracing::debug!(peer = %ends.src, reason = "interface is not trusted", "message not interpreted");
            return if local { self.echo(packet) } else { self.pass_on(packet) };
        }
        // BOOM-F5.4-02
        if !self.rates.allow(self.now, &(source(initiator), packet.ifindex)) {
            self.counters.rate_limited += 1;
            tracing::debug!(peer = %ends.src, reason = "too many of its initiating node", "message dropped");
            return;
        }
        self.find_way(packet, &message, local, resources);
    }

    /// Looks for the interface by which a message goes on; if `local`, its answer. A request with NO_ECHO ends here: without a reply
    /// there is no way back on which anything could be reserved. BOOM-F4.2-01, BOOM-G23-03.
    fn find_way(
        &mut self,
        packet: &Received<'_>,
        message: &Message<'_>,
        local: bool,
        resources: &mut Resources,
    ) {
        if local && message.flags.contains(Flags::NO_ECHO) {
            self.counters.not_echoed += 1;
            tracing::debug!(
                peer = %packet.src.ip(), refused = message.is_refused(), reason = "NO_ECHO is set", "request not answered"
            );
            return;
        }
        // The far end is the first node of the way back.
        let towards = if local { packet.src.ip() } else { packet.dst.ip() };
        match self.routes.find(towards) {
            Some(oif) => self.go_on(packet, message, local, oif, resources),
            None => match self.routes.wait(towards, Waiting::Packet(Packet::of(packet, local))) {
                Ok(lookup) => lookup.into_iter().for_each(|id| self.out.look_up(id, towards)),
                Err(_) => {
                    self.counters.waiting_full += 1;
                    tracing::debug!(peer = %packet.src.ip(), reason = "too many messages wait for a route", "message dropped");
                }
            },
        }
    }

    /// The routing table has the destination of a message as an address of this node.
    pub(super) fn arrived(
        &mut self,
        packet: &Received<'_>,
        message: &Message<'_>,
        resources: &mut Resources,
    ) {
        match message.pass {
            Pass::Request => self.find_way(packet, message, true, resources),
            Pass::Reply => self.on_reply(packet, message, resources),
        }
    }

    /// Interprets a message whose route is known, and sends it on or, if `local`, back.
    pub(super) fn go_on(
        &mut self,
        packet: &Received<'_>,
        message: &Message<'_>,
        local: bool,
        oif: Iface,
        resources: &mut Resources,
    ) {
        let ends = Ends { src: packet.src.ip(), dst: packet.dst.ip() };
        let mut octets = core::mem::take(&mut self.buffer);
        octets.clear();
        octets.extend_from_slice(packet.payload);
        // BOOM-F3.1-01, BOOM-2.1-02
        let iif = self.interfaces.iface(packet.ifindex);
        if local {
            let ends = Ends { src: ends.dst, dst: ends.src };
            // BOOM-2.2-01
            edit::turn_round(&mut octets, ends.is_ipv6());
            let reply = Message { pass: Pass::Reply, ..*message };
            let origin = Origin::of(packet, ends, iif, oif);
            if let Some(body) = message.body.as_ref().filter(|_| !message.is_refused()) {
                self.name_granting(&mut octets, body, &origin, true);
            }
            // BOOM-2.2-02, BOOM-G36-01
            self.procedure(&mut octets, &reply, origin, resources);
            edit::set_checksum(&mut octets, &ends);
            self.counters.replies_sent += 1;
            let envelope = Envelope { ends, ttl: TTL, tos: packet.tos, own: false, by: None };
            self.out.send(envelope, packet.options, &octets);
        } else if packet.ttl > 1 {
            // BOOM-3.1-04
            if self.procedure(&mut octets, message, Origin::of(packet, ends, iif, oif), resources) {
                edit::set_checksum(&mut octets, &ends);
            }
            match message.pass {
                // BOOM-F4.2-07, BOOM-F5.7.2-01
                Pass::Request => self.counters.requests_forwarded += 1,
                Pass::Reply => self.counters.replies_forwarded += 1,
            }
            // BOOM-2.3-05
            let envelope = Envelope { ends, ttl: packet.ttl - 1, tos: packet.tos, own: false, by: None };
            self.out.send(envelope, packet.options, &octets);
        } else {
            self.exceeded(packet);
        }
        self.buffer = octets;
    }

    /// Drops a passing message whose TTL is used up.
    fn exceeded(&mut self, packet: &Received<'_>) {
        self.counters.hops_exceeded += 1;
        tracing::debug!(peer = %packet.src.ip(), reason = "TTL used up", "message dropped");
        self.report_dropped(packet, Dropped::TimeExceeded);
    }

    /// Forwards a packet as a router without Boomerang does.
    fn pass_on(&mut self, packet: &Received<'_>) {
        if packet.ttl <= 1 {
            return self.exceeded(packet);
        }
        let ends = Ends { src: packet.src.ip(), dst: packet.dst.ip() };
        let envelope = Envelope { ends, ttl: packet.ttl - 1, tos: packet.tos, own: false, by: None };
        self.out.send(envelope, packet.options, packet.payload);
    }

    /// Answers an Echo Request as a host without Boomerang does. BOOM-F3.6.4-01.
    fn echo(&mut self, packet: &Received<'_>) {
        let ends = Ends { src: packet.dst.ip(), dst: packet.src.ip() };
        if packet
            .payload
            .first()
            .is_none_or(|kind| Pass::of_icmp_type(*kind, ends.is_ipv6()) != Some(Pass::Request))
        {
            return;
        }
        let mut octets = core::mem::take(&mut self.buffer);
        octets.clear();
        octets.extend_from_slice(packet.payload);
        edit::turn_round(&mut octets, ends.is_ipv6());
        edit::set_checksum(&mut octets, &ends);
        let envelope = Envelope { ends, ttl: TTL, tos: packet.tos, own: false, by: None };
        self.out.send(envelope, &[], &octets);
        self.buffer = octets;
    }
}
