//! Packets under way, and the log of those a test wants to see.

use core::net::{IpAddr, SocketAddr};

use signalbox_core::packet::{Received, Transmit, router_alert};
use signalbox_core::{Entry, IfIndex, Time};

use crate::config::{LinkId, NodeId};

/// IP protocol number of ICMP.
const ICMP: u8 = 1;
/// IP protocol number of UDP.
pub(crate) const UDP: u8 = 17;
/// IP protocol number of SCTP.
pub(crate) const SCTP: u8 = 132;
/// IP protocol number of RSVP.
pub(crate) const RSVP: u8 = 46;

/// A packet on a link: UDP, or SCTP or RSVP with their common header in the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// IP protocol: 17 (UDP), 46 (RSVP) or 132 (SCTP).
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
    /// UDP payload, or the whole SCTP or RSVP packet.
    pub payload: Vec<u8>,
}

impl Packet {
    /// A UDP packet with TTL 64 and no options.
    #[must_use]
    pub fn new(src: SocketAddr, dst: SocketAddr, payload: impl Into<Vec<u8>>) -> Self {
        let (options, payload) = (Vec::new(), payload.into());
        Self { protocol: UDP, src, dst, ttl: 64, tos: 0, dont_fragment: false, options, payload }
    }

    /// An SCTP packet with TTL 64 and no options.
    #[must_use]
    pub fn sctp(src: IpAddr, dst: IpAddr, packet: impl Into<Vec<u8>>) -> Self {
        Self { protocol: SCTP, ..Self::new(SocketAddr::new(src, 0), SocketAddr::new(dst, 0), packet) }
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

    /// As a node gets it that receives it by `ifindex`.
    #[must_use]
    pub fn received(&self, ifindex: IfIndex) -> Received<'_> {
        let entry = if self.protocol == UDP { Entry::Udp(self.dst.port()) } else { Entry::Ip(self.protocol) };
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

impl From<&Transmit<'_>> for Packet {
    fn from(t: &Transmit<'_>) -> Self {
        let protocol = match t.entry {
            Entry::Udp(_) => UDP,
            Entry::Ip(protocol) => protocol,
            Entry::IcmpEcho(_) => ICMP,
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
