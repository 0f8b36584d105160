//! Packets under way, and the log of those a test wants to see.

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

/// A packet on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// IP protocol.
    pub protocol: u8,
    /// Source address and port; 0 with other protocols than UDP.
    pub src: SocketAddr,
    /// Destination address and port; 0 with other protocols than UDP.
    pub dst: SocketAddr,
    /// TTL or hop limit.
    pub ttl: u8,
    /// TOS octet or traffic class.
    pub tos: u8,
    /// IPv4's DF bit.
    pub dont_fragment: bool,
    /// IPv4 options or IPv6 hop-by-hop options header.
    pub options: Vec<u8>,
    /// What follows the UDP header, or with another protocol the IP header and its options.
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

    /// The port of entry that it belongs to: that of ICMP Echo for a Request or Reply whose data have four octets.
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

    /// As a node gets it that receives it by `ifindex`.
    #[must_use]
    pub fn received(&self, ifindex: IfIndex) -> Received<'_> {
        Received {
            entry: self.entry(),
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

/// What a link did with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Carried to the other end.
    Carried,
    /// Carried to the other end twice.
    Doubled,
    /// Lost by chance.
    Lost,
    /// Taken out by the test's filter.
    Filtered,
}

/// A packet in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// When it was put on the link.
    pub at: Time,
    /// The link.
    pub link: LinkId,
    /// Who put it there.
    pub from: NodeId,
    /// Who was to get it.
    pub to: NodeId,
    /// The packet.
    pub packet: Packet,
    /// What became of it.
    pub fate: Fate,
}
