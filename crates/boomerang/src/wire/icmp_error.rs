//! ICMP errors about messages (RFC 792, RFC 1812 §4.3, RFC 4443 §3): those that this node sends, and those that it reads.

use core::net::IpAddr;

use signalbox_core::packet::Received;
use signalbox_wire::{Reader, Short, Writer};

use super::checksum::{Ends, checksum};
use super::code_points::Pass;
use super::edit;
use super::message::MAGIC;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
/// Octets of an ICMP error in front of the packet that it quotes.
const HEADER: usize = 8;
/// Octets of the data of the quoted packet that every error has (RFC 792).
const LEAST: usize = 8;

/// Why a router drops a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// Its TTL is used up: Time Exceeded.
    TimeExceeded,
    /// No route covers its destination: Destination Unreachable.
    NoRoute,
    /// A route forbids its destination: Destination Unreachable, administratively prohibited.
    Prohibited,
}

impl Dropped {
    const fn type_and_code(self, ipv6: bool) -> [u8; 2] {
        match (self, ipv6) {
            (Self::TimeExceeded, false) => [11, 0],
            (Self::NoRoute, false) => [3, 0],
            (Self::Prohibited, false) => [3, 13],
            (Self::TimeExceeded, true) => [3, 0],
            (Self::NoRoute, true) => [1, 0],
            (Self::Prohibited, true) => [1, 1],
        }
    }
}

/// Whether an ICMP message is one of the errors that [`Unreachable`] reads.
#[must_use]
pub fn is_unreachable(icmp: &[u8], ipv6: bool) -> bool {
    icmp.first() == Some(&if ipv6 { 1 } else { 3 })
}

/// Appends the ICMP error about a received message, without a checksum: the addresses of the error are not known here.
/// It quotes no more than fits into a packet of the length of the message.
pub fn compose(dropped: Dropped, packet: &Received<'_>, octets: &mut Vec<u8>) {
    let ends = Ends { src: packet.src.ip(), dst: packet.dst.ip() };
    let ipv6 = ends.is_ipv6();
    let [kind, code] = dropped.type_and_code(ipv6);
    let ip_header = if ipv6 { 40 } else { 20 };
    let mut w = Writer::new(octets);
    w.bytes(&[kind, code, 0, 0, 0, 0, 0, 0]);
    let length = packet.options.len() + packet.payload.len();
    match (ends.src, ends.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut header = Vec::with_capacity(60);
            let mut h = Writer::new(&mut header);
            let words = (ip_header + packet.options.len()) / 4;
            h.u8(0x40 | u8::try_from(words).unwrap_or(5));
            h.u8(packet.tos);
            h.u16(u16::try_from(ip_header + length).unwrap_or(u16::MAX));
            // Neither the identification nor DF of the packet is known.
            h.u32(0);
            h.bytes(&[packet.ttl, ICMP, 0, 0]);
            h.bytes(&src.octets());
            h.bytes(&dst.octets());
            h.bytes(packet.options);
            let sum = checksum(&ends, &header);
            edit::set_octets(&mut header, 10, sum.to_be_bytes());
            w.bytes(&header);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            w.u32(6 << 28 | u32::from(packet.tos) << 20);
            w.u16(u16::try_from(length).unwrap_or(u16::MAX));
            w.u8(if packet.options.is_empty() { ICMPV6 } else { HOP_BY_HOP });
            w.u8(packet.ttl);
            w.bytes(&src.octets());
            w.bytes(&dst.octets());
            w.bytes(packet.options);
        }
        _ => {}
    }
    let room = packet.payload.len().saturating_sub(HEADER + ip_header).max(LEAST);
    w.bytes(packet.payload.get(..room).unwrap_or(packet.payload));
}

/// A Destination Unreachable about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreachable {
    /// ICMP code.
    pub code: u8,
    /// Addresses of the request.
    pub ends: Ends,
    /// Identifier of the request.
    pub identifier: u16,
    /// Transaction of the request.
    pub transaction: u32,
}

impl Unreachable {
    /// Reads an ICMP message from its type octet on; `None`: it is no such error about a request with the magic number.
    #[must_use]
    pub fn parse(icmp: &[u8], ipv6: bool) -> Option<Self> {
        if !is_unreachable(icmp, ipv6) {
            return None;
        }
        Self::read(icmp, ipv6).ok().flatten()
    }

    fn read(icmp: &[u8], ipv6: bool) -> Result<Option<Self>, Short> {
        let mut r = Reader::new(icmp);
        let [_, code, _, _] = r.array()?;
        r.u32()?;
        let (protocol, ends) = if ipv6 {
            let [_, _, _, _, _, _, mut next, _] = r.array()?;
            let (src, dst) = (r.array::<16>()?, r.array::<16>()?);
            if next == HOP_BY_HOP {
                let [inner, words, ..] = r.array::<8>()?;
                r.take(usize::from(words) * 8)?;
                next = inner;
            }
            (next, Ends { src: src.into(), dst: dst.into() })
        } else {
            let [first, _, _, _, _, _, _, _, _, protocol, _, _] = r.array()?;
            let (src, dst) = (r.array::<4>()?, r.array::<4>()?);
            r.take(usize::from(first & 0x0f).saturating_sub(5) * 4)?;
            (protocol, Ends { src: src.into(), dst: dst.into() })
        };
        let [kind, ..] = r.array::<4>()?;
        let identifier = r.u16()?;
        r.u16()?;
        let (magic, transaction) = (r.u32()?, r.u32()?);
        let echo = protocol == if ipv6 { ICMPV6 } else { ICMP } && kind == Pass::Request.icmp_type(ipv6);
        Ok((echo && magic == MAGIC).then_some(Self { code, ends, identifier, transaction }))
    }

    /// The reason in words.
    #[must_use]
    pub const fn reason(code: u8, ipv6: bool) -> &'static str {
        match (code, ipv6) {
            (0, false) => "network unreachable",
            (0, true) => "no route to the destination",
            (1, false) | (3, true) => "host unreachable",
            (9 | 10 | 13, false) | (1, true) => "administratively prohibited",
            _ => "destination unreachable",
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use signalbox_core::{Entry, IfIndex};

    use super::*;

    fn packet<'a>(src: &str, dst: &str, options: &'a [u8], payload: &'a [u8]) -> Received<'a> {
        Received {
            entry: Entry::IcmpEcho(MAGIC),
            src: SocketAddr::new(src.parse().unwrap(), 0),
            dst: SocketAddr::new(dst.parse().unwrap(), 0),
            ifindex: IfIndex(1),
            ttl: 1,
            tos: 0x20,
            options,
            payload,
        }
    }

    /// A request for `octets` octets.
    fn request(ipv6: bool, octets: usize) -> Vec<u8> {
        let mut request = vec![if ipv6 { 128 } else { 8 }, 0, 0, 0, 0x12, 0x34, 0, 1];
        request.extend_from_slice(&MAGIC.to_be_bytes());
        request.extend_from_slice(&7_u32.to_be_bytes());
        request.resize(octets, 0);
        request
    }

    /// RFC 792: the IP header and at least 8 octets behind it; the error is no longer than the packet.
    #[test]
    fn an_error_quotes_the_packet() {
        let payload = request(false, 72);
        let options = signalbox_core::packet::router_alert_v4(0);
        let mut error = Vec::new();
        compose(Dropped::NoRoute, &packet("192.0.2.1", "198.51.100.2", &options, &payload), &mut error);
        assert_eq!(error[..8], [3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(error[8..12], [0x46, 0x20, 0, 96]);
        assert_eq!((error[16], error[17]), (1, 1), "TTL and protocol");
        assert_eq!(error[28..32], options);
        assert_eq!(error[32..], payload[..72 - 28]);
        assert_eq!(error.len() + 20, 96, "as long as the packet");
        let header: u32 =
            error[8..32].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        assert_eq!((header & 0xffff) + (header >> 16), 0xffff, "the checksum of the quoted header");
        let mut short = Vec::new();
        compose(Dropped::TimeExceeded, &packet("192.0.2.1", "198.51.100.2", &[], &payload[..16]), &mut short);
        assert_eq!((short[0], short.len()), (11, 8 + 20 + 8));
    }

    /// What is read is what was composed, with both IP versions, with a Router Alert and without.
    #[test]
    fn the_request_of_an_error_is_found() {
        let v4 = signalbox_core::packet::router_alert_v4(0);
        let v6 = signalbox_core::packet::router_alert_v6_before(58, 65_503);
        for (src, dst, alert) in
            [("192.0.2.1", "198.51.100.2", &v4[..]), ("2001:db8::1", "2001:db8:1::2", &v6[..])]
        {
            let ipv6 = dst.contains(':');
            for options in [&[][..], alert] {
                let payload = request(ipv6, if ipv6 { 120 } else { 72 });
                let mut error = Vec::new();
                compose(Dropped::Prohibited, &packet(src, dst, options, &payload), &mut error);
                let ends = Ends { src: src.parse().unwrap(), dst: dst.parse().unwrap() };
                let code = if ipv6 { 1 } else { 13 };
                let found = Unreachable { code, ends, identifier: 0x1234, transaction: 7 };
                assert_eq!(Unreachable::parse(&error, ipv6), Some(found));
                assert_eq!(Unreachable::reason(code, ipv6), "administratively prohibited");
                for length in 0..error.len() {
                    let _ = Unreachable::parse(&error[..length], ipv6);
                }
                let at = error.len() - payload.len() + if ipv6 { 48 } else { 28 };
                error[at] = 0;
                assert_eq!(Unreachable::parse(&error, ipv6), None, "about a reply");
                error.clear();
                compose(Dropped::TimeExceeded, &packet(src, dst, options, &payload), &mut error);
                assert_eq!(Unreachable::parse(&error, ipv6), None);
            }
        }
    }
}
