//! Packets, and their octets.

use std::net::IpAddr;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

/// What connection tracking distinguishes flows by. With ICMP, the ports are the identifier, and type and code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
}

/// Types of ICMP and ICMPv6 messages that are asked, and of their answers.
const ANSWERS: [(u8, u8, u8); 6] =
    [(ICMP, 8, 0), (ICMP, 13, 14), (ICMP, 15, 16), (ICMP, 17, 18), (ICMPV6, 128, 129), (ICMPV6, 139, 140)];

impl Tuple {
    /// That of an answer.
    pub(crate) fn answer(&self) -> Self {
        let Self { src, dst, protocol, src_port, dst_port } = *self;
        let kind = dst_port.to_be_bytes()[0];
        if let Some((.., answer)) = ANSWERS.iter().find(|(of, asked, _)| (*of, *asked) == (protocol, kind)) {
            let dst_port = u16::from_be_bytes([*answer, 0]);
            return Self { src: dst, dst: src, protocol, src_port, dst_port };
        }
        Self { src: dst, dst: src, protocol, src_port: dst_port, dst_port: src_port }
    }
}

/// An IP packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) protocol: u8,
    /// With ICMP the identifier, with a protocol without ports 0.
    pub(crate) src_port: u16,
    /// With ICMP type and code.
    pub(crate) dst_port: u16,
    /// What distinguishes it from all others.
    pub(crate) mark: [u8; 8],
    octets: Vec<u8>,
}

/// Whether packets of the protocol have ports.
pub(crate) const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP)
}

const fn is_icmp(protocol: u8) -> bool {
    matches!(protocol, ICMP | ICMPV6)
}

impl Packet {
    pub(crate) fn new(tuple: Tuple, mark: [u8; 8]) -> Self {
        let Tuple { src, dst, protocol, src_port, dst_port } = tuple;
        let mut packet = Self { src, dst, protocol, src_port, dst_port, mark, octets: Vec::new() };
        packet.octets = packet.compose();
        packet
    }

    /// What connection tracking distinguishes its flow by.
    pub(crate) fn tuple(&self) -> Tuple {
        let Self { src, dst, protocol, src_port, dst_port, .. } = *self;
        Tuple { src, dst, protocol, src_port, dst_port }
    }

    /// The packet with the ends of an answer, inverted.
    pub(crate) fn translated(&self, answer: Tuple) -> Self {
        let (src_port, dst_port) = if has_ports(self.protocol) {
            (answer.dst_port, answer.src_port)
        } else {
            (self.src_port, self.dst_port)
        };
        Self::new(Tuple { src: answer.dst, dst: answer.src, src_port, dst_port, ..self.tuple() }, self.mark)
    }

    /// Whether connection tracking begins a flow with it.
    pub(crate) fn begins_flow(&self) -> bool {
        let kind = self.dst_port.to_be_bytes()[0];
        !is_icmp(self.protocol) || ANSWERS.iter().any(|(of, asked, _)| (*of, *asked) == (self.protocol, kind))
    }

    /// The octets from the IP header on.
    pub(crate) fn network(&self) -> &[u8] {
        &self.octets
    }

    /// The octets from the transport header on.
    pub(crate) fn transport(&self) -> &[u8] {
        &self.octets[if self.src.is_ipv6() { 40 } else { 20 }..]
    }

    fn compose(&self) -> Vec<u8> {
        let mut transport = match self.protocol {
            UDP => [&self.ports()[..], &[0, 16, 0, 0], &self.mark].concat(),
            // A SYN.
            TCP => {
                [&self.ports()[..], &[0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 4, 0, 0, 0, 0, 0], &self.mark].concat()
            }
            ICMP | ICMPV6 => {
                let [kind, code] = self.dst_port.to_be_bytes();
                let [high, low] = self.src_port.to_be_bytes();
                [&[kind, code, 0, 0, high, low, 0, 0][..], &self.mark].concat()
            }
            _ => self.mark.to_vec(),
        };
        let place = match self.protocol {
            UDP => Some(6),
            TCP => Some(16),
            ICMP | ICMPV6 => Some(2),
            _ => None,
        };
        if let Some(place) = place {
            let covered = [self.pseudo_header(transport.len()), transport.clone()].concat();
            transport[place..place + 2].copy_from_slice(&checksum(&covered).to_be_bytes());
        }
        [self.header(transport.len()), transport].concat()
    }

    fn ports(&self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.src_port.to_be_bytes(), self.dst_port.to_be_bytes());
        [a, b, c, d]
    }

    /// ICMP of IPv4 is summed up alone.
    fn pseudo_header(&self, octets: usize) -> Vec<u8> {
        let length = u32::try_from(octets).unwrap().to_be_bytes();
        match (self.src, self.dst) {
            _ if self.protocol == ICMP => Vec::new(),
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                [&src.octets()[..], &dst.octets(), &[0, self.protocol], &length[2..]].concat()
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                [&src.octets()[..], &dst.octets(), &length, &[0, 0, 0, self.protocol]].concat()
            }
            _ => panic!("two families"),
        }
    }

    fn header(&self, octets: usize) -> Vec<u8> {
        let length = |all: usize| u16::try_from(all).unwrap().to_be_bytes();
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let start =
                    [&[0x45, 0][..], &length(20 + octets), &[0, 0, 0x40, 0, 64, self.protocol]].concat();
                let sum = checksum(&[&start[..], &src.octets(), &dst.octets()].concat());
                [&start[..], &sum.to_be_bytes(), &src.octets(), &dst.octets()].concat()
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let start = [&[0x60, 0, 0, 0][..], &length(octets), &[self.protocol, 64]].concat();
                [&start[..], &src.octets(), &dst.octets()].concat()
            }
            _ => panic!("two families"),
        }
    }

    /// The packet of a captured IP packet; `None`: it is not of these tests.
    #[cfg(feature = "namespace-tests")]
    pub(crate) fn parse(octets: &[u8]) -> Option<Self> {
        let (src, dst, protocol, transport) = match octets.first()? >> 4 {
            4 => {
                let all = usize::from(u16::from_be_bytes(*octets.get(2..)?.first_chunk()?));
                let end = |at: usize| octets.get(at..)?.first_chunk::<4>().map(|end| IpAddr::from(*end));
                (end(12)?, end(16)?, *octets.get(9)?, octets.get(20..all)?)
            }
            6 => {
                let length = usize::from(u16::from_be_bytes(*octets.get(4..)?.first_chunk()?));
                let end = |at: usize| octets.get(at..)?.first_chunk::<16>().map(|end| IpAddr::from(*end));
                (end(8)?, end(24)?, *octets.get(6)?, octets.get(40..40 + length)?)
            }
            _ => return None,
        };
        let short = |at: usize| transport.get(at..)?.first_chunk().map(|two| u16::from_be_bytes(*two));
        let (src_port, dst_port) = match protocol {
            ICMP | ICMPV6 => (short(4)?, short(0)?),
            _ if has_ports(protocol) => (short(0)?, short(2)?),
            _ => (0, 0),
        };
        let mark = *transport.last_chunk()?;
        Some(Self::new(Tuple { src, dst, protocol, src_port, dst_port }, mark))
    }
}

/// The checksum of the Internet protocols.
fn checksum(octets: &[u8]) -> u16 {
    let words = octets.chunks(2).map(|two| u32::from_be_bytes([0, 0, two[0], *two.get(1).unwrap_or(&0)]));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}
