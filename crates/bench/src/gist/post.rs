//! Packets between the three nodes: octets in one buffer that is used again, so that carrying them allocates
//! nothing once it has grown.

use std::net::SocketAddr;
use std::ops::Range;

use signalbox_core::IfIndex;
use signalbox_core::packet::{Received, Transmit};

/// Packets that were sent and not yet delivered, in order.
#[derive(Default)]
pub(super) struct Post {
    octets: Vec<u8>,
    packets: Vec<Packet>,
}

#[derive(Clone)]
struct Packet {
    src: SocketAddr,
    dst: SocketAddr,
    ttl: u8,
    tos: u8,
    options: Range<usize>,
    payload: Range<usize>,
}

/// The message type in the common header of a packet (RFC 5971 A.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Kind {
    Query,
    Response,
    Confirm,
    Data,
    Other,
}

impl Kind {
    /// All kinds, in the order of the messages of one session.
    pub(super) const ALL: [Self; 5] = [Self::Query, Self::Response, Self::Confirm, Self::Data, Self::Other];

    /// Returns the name of such a message while a session is set up.
    pub(super) const fn in_a_handshake(self) -> &'static str {
        match self {
            Self::Query => "Query",
            Self::Response => "Response",
            Self::Confirm => "Confirm",
            Self::Data => "first Data",
            Self::Other => "other",
        }
    }

    /// The type octet follows the magic number and six octets of header; its top bit is the C-flag.
    pub(in super::super) fn of(payload: &[u8]) -> Self {
        match payload.get(10).map(|octet| octet & 0x7f) {
            Some(0) => Self::Query,
            Some(1) => Self::Response,
            Some(2) => Self::Confirm,
            Some(3) => Self::Data,
            _ => Self::Other,
        }
    }
}

impl Post {
    pub(super) fn clear(&mut self) {
        self.octets.clear();
        self.packets.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Takes a packet as a node sends it; `own` stands for an unspecified source address.
    pub(super) fn push(&mut self, packet: &Transmit<'_>, own: std::net::IpAddr) {
        let mut src = packet.src;
        if src.ip().is_unspecified() {
            src.set_ip(own);
        }
        let options = self.append(packet.options);
        let payload = self.append(packet.payload);
        self.packets.push(Packet {
            src,
            dst: packet.dst,
            ttl: packet.ttl,
            tos: packet.tos,
            options,
            payload,
        });
    }

    fn append(&mut self, octets: &[u8]) -> Range<usize> {
        let start = self.octets.len();
        self.octets.extend_from_slice(octets);
        start..self.octets.len()
    }

    /// Moves the packets that `keep` picks to another post.
    pub(super) fn sort_into(&self, other: &mut Self, pick: impl Fn(SocketAddr) -> bool) {
        for packet in self.packets.iter().filter(|packet| pick(packet.dst)) {
            let options = other.append(self.slice(&packet.options));
            let payload = other.append(self.slice(&packet.payload));
            other.packets.push(Packet { options, payload, ..packet.clone() });
        }
    }

    /// Returns the packets as the receiver sees them, one IP hop later.
    pub(super) fn arriving(&self, ifindex: IfIndex) -> impl Iterator<Item = (Kind, Received<'_>)> {
        self.packets.iter().map(move |packet| {
            let payload = self.slice(&packet.payload);
            let received = Received {
                entry: signalbox_core::Entry::Udp(270),
                src: packet.src,
                dst: packet.dst,
                ifindex,
                ttl: packet.ttl,
                tos: packet.tos,
                options: self.slice(&packet.options),
                payload,
            };
            (Kind::of(payload), received)
        })
    }

    fn slice(&self, range: &Range<usize>) -> &[u8] {
        self.octets.get(range.clone()).unwrap_or_default()
    }
}
