//! Answers to hosts.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use signalbox_core::slab::Key;
use signalbox_wire::Writer;

use super::Mapper;
use super::io::{Failure, Inside};
use super::outbox::Back;
use super::record::{Asked, Holder, seconds};
use crate::wire::{
    Body, Known, MAX_OCTETS, Map, NatPmpResponse, NatPmpResult, OptionCode, Options, Request, Response,
    ResultCode, Transport, Version, refusal,
};

/// Octets of a MAP response without options.
const MAP_OCTETS: usize = 60;

impl Mapper {
    /// Sends what `write` composes to a host.
    fn respond(&mut self, back: Back, write: impl FnOnce(&mut Writer<'_>)) {
        let mut octets = self.out.buffer();
        write(&mut Writer::new(&mut octets));
        self.out.send(back, octets);
    }

    /// Refuses a request of PCP. `parsed`: it could be read.
    pub(super) fn refuse_pcp(
        &mut self,
        back: Back,
        request: &[u8],
        parsed: bool,
        code: ResultCode,
        lifetime: u32,
    ) {
        let epoch = self.epoch();
        self.counters.errors_sent += 1;
        tracing::debug!(client = %back.client, result = %code, lifetime_s = lifetime, "request of PCP refused");
        self.respond(back, |w| refusal(request, parsed, code, lifetime, epoch, w));
    }

    /// Answers a MAP request whose mapping has this place for the next `lifetime` seconds.
    pub(super) fn grant_pcp(
        &mut self,
        back: Back,
        octets: &[u8],
        place: SocketAddr,
        lifetime: u32,
        description: Option<&str>,
    ) {
        let epoch = self.epoch();
        // Only requests that could be read get here.
        let Ok(request) = Request::parse(octets) else { return };
        let Body::Map(map) = request.body else { return };
        let room = MAX_OCTETS - MAP_OCTETS;
        let options = processed(&request.options, description);
        // A kept description can be longer than that of the request.
        let options = if options.len() > room { processed(&request.options, None) } else { options };
        let options = Options::from_octets(&options).unwrap_or_default();
        let body = Body::Map(Map { external: place, ..map });
        let response = Response { result: ResultCode::SUCCESS, lifetime, epoch, body, options };
        self.counters.successes_sent += 1;
        self.respond(back, |w| response.encode(w));
    }

    /// Answers a request of PCP that changes nothing.
    pub(super) fn announce_to(&mut self, back: Back) {
        let epoch = self.epoch();
        let options = Options::default();
        let response =
            Response { result: ResultCode::SUCCESS, lifetime: 0, epoch, body: Body::Announce, options };
        self.counters.successes_sent += 1;
        self.respond(back, |w| response.encode(w));
    }

    /// Answers a request of NAT-PMP.
    pub(super) fn answer_nat_pmp(&mut self, back: Back, response: NatPmpResponse) {
        let success = match response {
            NatPmpResponse::Address { result, .. } | NatPmpResponse::Map { result, .. } => {
                result == NatPmpResult::SUCCESS
            }
            NatPmpResponse::UnsupportedVersion { .. } => false,
        };
        *(if success { &mut self.counters.successes_sent } else { &mut self.counters.errors_sent }) += 1;
        self.respond(back, |w| response.encode(w));
    }

    /// Refuses a NAT-PMP request for a mapping: external port and lifetime are 0 (RFC 6886 §3.5).
    pub(super) fn refuse_nat_pmp(
        &mut self,
        back: Back,
        (transport, internal_port): (Transport, u16),
        result: NatPmpResult,
    ) {
        let epoch = self.epoch();
        let response =
            NatPmpResponse::Map { transport, result, epoch, internal_port, external_port: 0, lifetime: 0 };
        self.answer_nat_pmp(back, response);
    }

    /// Answers a NAT-PMP request for an opcode that RFC 6886 does not know.
    pub(super) fn refuse_opcode(&mut self, back: Back, request: &[u8]) {
        self.counters.errors_sent += 1;
        self.respond(back, |w| NatPmpResponse::unsupported_opcode(request, w));
    }

    /// Answers the request of either protocol that waited for the path.
    pub(super) fn answer_asked(
        &mut self,
        (back, inside, description): (Back, Inside, Option<Box<str>>),
        asked: &Asked,
        result: Result<SocketAddr, Failure>,
    ) {
        let lifetime = asked.lifetime;
        match (Version::of(&asked.octets), result) {
            (Some(Version::NatPmp), result) => {
                let tcp = inside.protocol == Transport::Tcp.protocol();
                let transport = if tcp { Transport::Tcp } else { Transport::Udp };
                let (result, external_port, lifetime) = match result {
                    Ok(place) => (NatPmpResult::SUCCESS, place.port(), lifetime),
                    Err(failure) => (failure.nat_pmp(), 0, 0),
                };
                let (epoch, internal_port) = (self.epoch(), inside.port);
                let response =
                    NatPmpResponse::Map { transport, result, epoch, internal_port, external_port, lifetime };
                self.answer_nat_pmp(back, response);
            }
            (_, Ok(place)) => self.grant_pcp(back, &asked.octets, place, lifetime, description.as_deref()),
            (_, Err(failure)) => {
                let code = failure.pcp();
                self.refuse_pcp(back, &asked.octets, true, code, code.usual_lifetime());
            }
        }
    }

    /// Sends a Mapping Update: a response that no request asked for, with the place of now, or an error (RFC 6887 §14.2).
    pub(super) fn update(&mut self, key: Key, result: Result<(), ResultCode>) {
        let Some(record) = self.mappings.get(key) else { return };
        let (Holder::Pcp(nonce), Some((place, ends))) = (record.holder, record.told()) else { return };
        let lifetime = match result {
            Ok(()) => seconds(ends.since(self.now)),
            Err(code) => code.usual_lifetime(),
        };
        let mut options = Vec::new();
        let mut w = Writer::new(&mut options);
        for filter in &record.filters {
            Known::Filter(*filter).encode(&mut w);
        }
        let options = Options::from_octets(&options).unwrap_or_default();
        let (protocol, internal_port, back) = (record.inside.protocol, record.inside.port, record.back);
        let body = Body::Map(Map { nonce, protocol, internal_port, external: place });
        let code = result.err().unwrap_or(ResultCode::SUCCESS);
        let response = Response { result: code, lifetime, epoch: self.epoch(), body, options };
        let mut octets = self.out.buffer();
        response.encode(&mut Writer::new(&mut octets));
        self.counters.updates_sent += 1;
        self.out.send(back, octets);
    }

    /// What a host is told of the address outside (RFC 6886 §3.2).
    pub(super) fn address_response(&self) -> NatPmpResponse {
        let result = self.outside.map_or(NatPmpResult::NETWORK_FAILURE, |_| NatPmpResult::SUCCESS);
        NatPmpResponse::Address {
            result,
            epoch: self.epoch(),
            address: self.outside.unwrap_or(Ipv4Addr::UNSPECIFIED),
        }
    }

    /// Whether NAT-PMP exists at this node (RFC 6886 §3.8).
    pub(super) const fn has_nat_pmp(&self) -> bool {
        self.config.nat_pmp && self.config.translates
    }
}

/// The options that a success response repeats: those that were processed, in their order (RFC 6887 §7.3).
fn processed(options: &Options<'_>, description: Option<&str>) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut w = Writer::new(&mut octets);
    for option in options.iter() {
        match option.code {
            OptionCode::PREFER_FAILURE | OptionCode::FILTER => option.encode(&mut w),
            OptionCode::DESCRIPTION => {
                if let Some(text) = description {
                    Known::Description(text.as_bytes()).encode(&mut w);
                }
            }
            _ => {}
        }
    }
    octets
}

/// An address of the same IP version that says nothing.
pub(super) const fn nowhere(like: IpAddr) -> SocketAddr {
    let address = match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(address, 0)
}
