//! Packets in transit, and the log of captured packets.

use core::net::SocketAddr;

use signalbox_core::packet::{Received, Transmit, router_alert};
use signalbox_core::{Entry, IfIndex, Time};

use crate::config::{LinkId, NodeId};

/// IP protocol number of ICMP.
const ICMP: u8 = 1;
/// IP protocol number of ICMPv6.
const ICMPV6: u8 = 58;
/// IP protocol number of UDP.
const UDP: u8 = 17;

/// A packet in transit on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// IP protocol.
    pub protocol: u8,
    /// Source address and port; the port is 0 with protocols other than UDP.
    pub src: SocketAddr,
    /// Destination address and port; the port is 0 with protocols other than UDP.
    pub dst: SocketAddr,
    /// TTL or hop limit.
    pub ttl: u8,
    /// TOS octet or traffic class.
    pub tos: u8,
    /// IPv4's DF bit.
    pub dont_fragment: bool,
    /// IPv4 options or IPv6 hop-by-hop options header.
    pub options: Vec<u8>,
    /// Octets after the UDP header or, with another protocol, after the IP header and its options.
    pub payload: Vec<u8>,
}

impl Packet {
    /// A UDP packet with TTL 64 and no options.
    #[must_use]
    pub fn new(src: SocketAddr, dst: SocketAddr, payload: impl Into<Vec<u8>>) -> Self {
        let (options, payload) = (Vec::new(), payload.into());
        Self { protocol: UDP, src, dst, ttl: 64, tos: 0, dont_fragment: false, options, payload }
    }

    /// Size of the IP packet, in octets.
    #[must_use]
    pub fn size(&self) -> usize {
        let ip = if self.dst.is_ipv4() { 20 } else { 40 };
        let udp = if self.protocol == UDP { 8 } else { 0 };
        ip + self.options.len() + udp + self.payload.len()
    }

    /// The Router Alert value that the packet carries.
    #[must_use]
    pub fn router_alert(&self) -> Option<u16> {
        router_alert(&self.options, self.dst.is_ipv6())
    }

    /// The port of entry of the packet. An ICMP Echo Request or Reply with at least four octets of data
    /// belongs to an entry of ICMP Echo.
    #[must_use]
    pub fn entry(&self) -> Entry {
        match (self.protocol, self.payload.as_slice()) {
            (UDP, _) => Entry::Udp(self.dst.port()),
            // Type, code, checksum, identifier, sequence number, data (RFC 792, RFC 4443 §4).
            (ICMP, [0 | 8, 0, _, _, _, _, _, _, a, b, c, d, ..])
            | (ICMPV6, [128 | 129, 0, _, _, _, _, _, _, a, b, c, d, ..]) => {
                Entry::IcmpEcho(u32::from_be_bytes([*a, *b, *c, *d]))
            }
            (protocol, _) => Entry::Ip(protocol),
        }
    }

    /// The answer of a host to this packet; `None`: it is not an Echo Request to one host (RFC 792, RFC 4443 §4.1).
    pub(crate) fn echoed(&self) -> Option<Self> {
        let (request, reply) = match self.protocol {
            ICMP => (8, 0),
            ICMPV6 => (128, 129),
            _ => return None,
        };
        let [kind, 0, high, low, rest @ ..] = &self.payload[..] else { return None };
        if *kind != request || self.dst.ip().is_multicast() {
            return None;
        }
        // The type is all that changes; both addresses stay in the sum of ICMPv6 (RFC 1624 §3).
        let word = |kind: u8| u16::from_be_bytes([kind, 0]);
        let sum = add(add(!u16::from_be_bytes([*high, *low]), !word(request)), word(reply));
        let [high, low] = (!sum).to_be_bytes();
        let payload = [&[reply, 0, high, low], rest].concat();
        let (src, dst, options) = (self.dst, self.src, Vec::new());
        Some(Self { src, dst, ttl: 64, options, dont_fragment: false, payload, ..self.clone() })
    }

    /// The packet in the form in which a node receives it by `ifindex`.
    #[must_use]
    pub fn received(&self, ifindex: IfIndex) -> Received<'_> {
        self.received_by(self.entry(), ifindex)
    }

    /// The same for a packet that a node intercepts for another port of entry than its own.
    pub(crate) fn received_by(&self, entry: Entry, ifindex: IfIndex) -> Received<'_> {
        Received {
            entry,
            src: self.src,
            dst: self.dst,
            ifindex,
            ttl: self.ttl,
            tos: self.tos,
            options: &self.options,
            payload: &self.payload,
        }
    }
}

/// The sum of two words as the Internet checksum has it.
const fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u16
}

impl From<&Transmit<'_>> for Packet {
    fn from(t: &Transmit<'_>) -> Self {
        let protocol = match t.entry {
            Entry::Udp(_) => UDP,
            Entry::Ip(protocol) => protocol,
            Entry::IcmpEcho(_) if t.dst.is_ipv4() => ICMP,
            Entry::IcmpEcho(_) => ICMPV6,
        };
        Self {
            protocol,
            src: t.src,
            dst: t.dst,
            ttl: t.ttl,
            tos: t.tos,
            dont_fragment: t.dont_fragment,
            options: t.options.to_vec(),
            payload: t.payload.to_vec(),
        }
    }
}

/// Fate of a packet on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The packet was carried to the other end.
    Carried,
    /// The packet was carried to the other end twice.
    Doubled,
    /// The packet was lost at random.
    Lost,
    /// The test's filter dropped the packet.
    Filtered,
}

/// A packet in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Time at which it was put on the link.
    pub at: Time,
    /// The link.
    pub link: LinkId,
    /// Sending node.
    pub from: NodeId,
    /// Node at the other end.
    pub to: NodeId,
    /// The packet.
    pub packet: Packet,
    /// Fate of the packet.
    pub fate: Fate,
    /// When it comes to the other end, and when its copy does.
    pub arrives: [Option<Time>; 2],
}
