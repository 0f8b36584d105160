//! Received datagrams, in the order of checks of RFC 6887 §8.2.

use core::net::{IpAddr, SocketAddr};

use signalbox_core::IfIndex;
use signalbox_core::packet::Received;
use signalbox_core::shares::source;

use super::Mapper;
use super::io::Dropped;
use super::outbox::Back;
use crate::error::{Answer, NatPmpError};
use crate::wire::{Body, Header, NatPmpRequest, NatPmpResponse, Request, ResultCode, Version};

impl Mapper {
    /// Whether a datagram came in where requests are accepted, and its source may ask. What it contains does not count.
    #[must_use]
    pub fn accepts(&self, packet: &Received<'_>) -> bool {
        self.may_ask(packet.ifindex, packet.src.ip(), packet.dst.ip()) && packet.src.port() != 0
    }

    /// Whether a host behind an interface may ask at this address.
    pub(super) fn may_ask(&self, ifindex: IfIndex, client: IpAddr, local: IpAddr) -> bool {
        let from = &self.config.from;
        self.interfaces.accepts(ifindex, client, local)
            && (from.is_empty() || from.iter().any(|prefix| prefix.contains(client)))
    }

    /// Counts a datagram that was dropped before it came here.
    pub(super) fn dropped(&mut self, client: SocketAddr, why: Dropped) {
        let (count, reason) = match why {
            Dropped::Elsewhere => {
                (&mut self.counters.foreign, "the route to its source leaves by another interface")
            }
            Dropped::Overload => (&mut self.counters.rate, "too many wait for routes"),
        };
        *count += 1;
        tracing::debug!(%client, reason, "request dropped");
    }

    /// Takes a datagram. Who may ask is decided first, so that nothing is answered to others.
    pub(super) fn receive(&mut self, packet: &Received<'_>) {
        let back = Back { client: packet.src, local: packet.dst.ip(), ifindex: packet.ifindex };
        let (client, octets) = (packet.src.ip(), packet.payload);
        if !self.accepts(packet) {
            self.counters.foreign += 1;
            tracing::debug!(%client, reason = "not served here", "request dropped");
            return;
        }
        let Self { rate, mappings, host_rate, now, .. } = self;
        let allowed = host_rate.allow(*now, &(source(client), back.ifindex))
            && rate.allow(*now, (client, back.ifindex), || mappings.has_standing(client));
        if !allowed {
            self.counters.rate += 1;
            tracing::debug!(%client, reason = "rate limit", "request dropped");
            return;
        }
        match Version::of(octets) {
            Some(Version::NatPmp) if self.has_nat_pmp() && client.is_ipv4() => {
                self.receive_nat_pmp(back, octets)
            }
            Some(_) if self.config.pcp => self.receive_pcp(back, octets),
            Some(Version::Pcp) if self.has_nat_pmp() && client.is_ipv4() => self.refuse_version(back, octets),
            Some(_) | None => self.malformed(back, "protocol switched off"),
        }
    }

    fn malformed(&mut self, back: Back, reason: &'static str) {
        self.counters.malformed += 1;
        tracing::debug!(client = %back.client, reason, "request dropped");
    }

    /// Answers a request of PCP where only NAT-PMP is spoken (RFC 6886 §3.5).
    fn refuse_version(&mut self, back: Back, octets: &[u8]) {
        if octets.get(1).is_none_or(|kind| kind & 0x80 != 0) {
            return self.malformed(back, "too short, or a response");
        }
        let epoch = self.epoch();
        self.answer_nat_pmp(back, NatPmpResponse::UnsupportedVersion { epoch });
    }

    fn receive_pcp(&mut self, back: Back, octets: &[u8]) {
        let (header, error) = match Header::parse(octets) {
            Ok(header) => (Some(header), Request::parse(octets).err()),
            Err(error) => (None, Some(error)),
        };
        // The address is compared before opcode and options are looked at.
        if header.is_some_and(|header| header.client != back.client.ip()) {
            let code = ResultCode::ADDRESS_MISMATCH;
            return self.refuse_pcp(back, octets, true, code, code.usual_lifetime());
        }
        if let Some(error) = error {
            return match error.answer() {
                Answer::Discard => self.malformed(back, "no request of PCP"),
                Answer::Refuse(code) => {
                    tracing::debug!(client = %back.client, %error, "malformed request");
                    self.refuse_pcp(back, octets, false, code, code.usual_lifetime());
                }
            };
        }
        let Ok(request) = Request::parse(octets) else { return };
        match request.body {
            Body::Announce => self.receive_announce(back, octets, &request),
            Body::Map(map) => self.receive_map(back, octets, &request, &map),
            // What RFC 6887 §12 permits: PEER is switched off, because what this node could tell would not be what peers see.
            Body::Peer(_) => {
                self.counters.peers_received += 1;
                let code = ResultCode::UNSUPP_OPCODE;
                self.refuse_pcp(back, octets, true, code, code.usual_lifetime());
            }
        }
    }

    /// ANNOUNCE changes nothing (RFC 6887 §14.1). Options have no meaning there (§13).
    fn receive_announce(&mut self, back: Back, octets: &[u8], request: &Request<'_>) {
        self.counters.announces_received += 1;
        if request.options.iter().any(|option| option.code.is_mandatory()) {
            let code = ResultCode::MALFORMED_OPTION;
            return self.refuse_pcp(back, octets, true, code, code.usual_lifetime());
        }
        self.announce_to(back);
    }

    fn receive_nat_pmp(&mut self, back: Back, octets: &[u8]) {
        match NatPmpRequest::parse(octets) {
            Ok(NatPmpRequest::Address) => {
                self.counters.addresses_received += 1;
                let response = self.address_response();
                self.answer_nat_pmp(back, response);
            }
            Ok(NatPmpRequest::Map { transport, internal_port, external_port, lifetime }) => {
                self.counters.nat_pmp_maps_received += 1;
                self.receive_nat_pmp_map(back, octets, (transport, internal_port), external_port, lifetime);
            }
            Err(NatPmpError::Opcode { .. }) => self.refuse_opcode(back, octets),
            // The version is 0 here.
            Err(NatPmpError::Short { .. } | NatPmpError::Direction { .. } | NatPmpError::Version { .. }) => {
                self.malformed(back, "no request of NAT-PMP");
            }
        }
    }
}
