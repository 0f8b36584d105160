//! A reader of IP packets, written for the lab: what a check finds on the wire must not rest on the code that is
//! checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
/// An IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ip<'a> {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// TTL or hop limit.
    pub(crate) ttl: u8,
    /// Value of the Router Alert option (RFC 2113, RFC 2711).
    pub(crate) router_alert: Option<u16>,
    protocol: u8,
    /// The octets behind the IP headers.
    payload: &'a [u8],
    /// The whole IP packet.
    pub(crate) packet: &'a [u8],
}

/// How the octets of an IP packet are shared between the layers: its headers, the header of UDP or TCP, and what they carry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Layers {
    pub(crate) network: usize,
    pub(crate) transport: usize,
    pub(crate) message: usize,
}

/// A UDP datagram in its IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Datagram<'a> {
    pub(crate) ip: Ip<'a>,
    pub(crate) dst_port: u16,
    pub(crate) payload: &'a [u8],
}

/// A TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    /// The number of the SYN, or of the first octet of the payload.
    pub(crate) sequence: u32,
    /// The number of the octet that the sender expects next; it counts with `ack` only.
    pub(crate) acknowledgment: u32,
    pub(crate) syn: bool,
    pub(crate) ack: bool,
    pub(crate) payload: &'a [u8],
}

impl<'a> Ip<'a> {
    /// Reads an Ethernet frame; `None` unless it is an unfragmented IP packet.
    pub(crate) fn read(frame: &'a [u8]) -> Option<Self> {
        match u16_at(frame, 12)? {
            0x0800 => Self::read_v4(frame.get(14..)?),
            0x86dd => Self::read_v6(frame.get(14..)?),
            _ => None,
        }
    }

    fn read_v4(packet: &'a [u8]) -> Option<Self> {
        let header = 4 * usize::from(packet.first()? & 0x0f);
        let total = usize::from(u16_at(packet, 2)?);
        let packet = packet.get(..total)?;
        let fragmented = u16_at(packet, 6)? & 0x3fff != 0;
        if fragmented || header < 20 {
            return None;
        }
        let address = |at: usize| Some(Ipv4Addr::from(*packet.get(at..at + 4)?.first_chunk::<4>()?).into());
        Some(Self {
            src: address(12)?,
            dst: address(16)?,
            ttl: *packet.get(8)?,
            router_alert: option(packet.get(20..header)?, 148, &[0, 1], true),
            protocol: *packet.get(9)?,
            payload: packet.get(header..)?,
            packet,
        })
    }

    fn read_v6(packet: &'a [u8]) -> Option<Self> {
        let packet = packet.get(..40 + usize::from(u16_at(packet, 4)?))?;
        let address = |at: usize| Some(Ipv6Addr::from(*packet.get(at..at + 16)?.first_chunk::<16>()?).into());
        let mut protocol = *packet.get(6)?;
        let mut at = 40;
        let mut router_alert = None;
        if protocol == 0 {
            protocol = *packet.get(at)?;
            let length = 8 * (usize::from(*packet.get(at + 1)?) + 1);
            router_alert = option(packet.get(at + 2..at + length)?, 5, &[0], false);
            at += length;
        }
        let (src, dst, ttl) = (address(8)?, address(24)?, *packet.get(7)?);
        Some(Self { src, dst, ttl, router_alert, protocol, payload: packet.get(at..)?, packet })
    }
}

impl<'a> Ip<'a> {
    /// Returns the payload of the IP packet if it is of this protocol.
    pub(crate) fn carries(&self, protocol: u8) -> Option<&'a [u8]> {
        (self.protocol == protocol).then_some(self.payload)
    }

    /// Returns the octets of each layer.
    pub(crate) fn layers(&self) -> Layers {
        let header = match self.protocol {
            PROTOCOL_UDP => 8,
            PROTOCOL_TCP => self.payload.get(12).map_or(0, |octet| 4 * usize::from(octet >> 4)),
            _ => 0,
        };
        let transport = header.min(self.payload.len());
        let network = self.packet.len() - self.payload.len();
        Layers { network, transport, message: self.payload.len() - transport }
    }

    /// Returns `syn` or `ack` if the packet is a TCP segment without payload that opens a connection, or that only acknowledges.
    pub(crate) fn bare_segment(&self) -> Option<&'static str> {
        let flags = *self.carries(PROTOCOL_TCP)?.get(13)? & 0x3f;
        match (self.layers().message, flags) {
            (0, 0x02 | 0x12) => Some("syn"),
            (0, 0x10) => Some("ack"),
            _ => None,
        }
    }
}

impl<'a> Datagram<'a> {
    /// Reads the payload of an IP packet; `None` if it is not UDP.
    pub(crate) fn read(ip: Ip<'a>) -> Option<Self> {
        if ip.protocol != PROTOCOL_UDP {
            return None;
        }
        let dst_port = u16_at(ip.payload, 2)?;
        let payload = ip.payload.get(8..usize::from(u16_at(ip.payload, 4)?))?;
        Some(Self { ip, dst_port, payload })
    }
}

impl<'a> Segment<'a> {
    /// Reads the payload of an IP packet; `None` if it is not TCP.
    pub(crate) fn read(ip: Ip<'a>) -> Option<Self> {
        if ip.protocol != PROTOCOL_TCP {
            return None;
        }
        let number = |at: usize| Some(u32::from_be_bytes(*ip.payload.get(at..at + 4)?.first_chunk::<4>()?));
        let header = 4 * usize::from(*ip.payload.get(12)? >> 4);
        let flags = *ip.payload.get(13)?;
        Some(Self {
            src: SocketAddr::new(ip.src, u16_at(ip.payload, 0)?),
            dst: SocketAddr::new(ip.dst, u16_at(ip.payload, 2)?),
            sequence: number(4)?,
            acknowledgment: number(8)?,
            syn: flags & 0x02 != 0,
            ack: flags & 0x10 != 0,
            payload: ip.payload.get(header..)?,
        })
    }
}

/// Returns the value of an option with a 16-bit value; `single` are the options of one octet, and an IPv4 option's length
/// counts its own two first octets.
fn option(mut options: &[u8], wanted: u8, single: &[u8], counts_itself: bool) -> Option<u16> {
    loop {
        let kind = *options.first()?;
        if single.contains(&kind) {
            options = &options[1..];
            continue;
        }
        let length = usize::from(*options.get(1)?) + if counts_itself { 0 } else { 2 };
        let value = options.get(2..length)?;
        if kind == wanted {
            return u16_at(value, 0);
        }
        options = options.get(length..)?;
    }
}

/// Reads a 16-bit number in network byte order.
pub(crate) fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*octets.get(at..at + 2)?.first_chunk::<2>()?))
}
