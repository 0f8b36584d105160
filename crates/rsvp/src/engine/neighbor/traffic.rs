//! Messages received and sent at each interface, by their type, and of each neighbor.
//!
//! All messages count: those in Bundles, and retransmissions. A message that is malformed does not count; one that is dropped
//! for its sender does.

use core::net::IpAddr;

use signalbox_core::IfIndex;

use super::Neighbors;
use super::outbox::Envelope;
use crate::wire::{HEADER_OCTETS, MessageType};

/// The types that are counted, in the order in which they are shown.
pub const TYPES: [MessageType; 15] = [
    MessageType::PATH,
    MessageType::RESV,
    MessageType::PATH_ERR,
    MessageType::RESV_ERR,
    MessageType::PATH_TEAR,
    MessageType::RESV_TEAR,
    MessageType::RESV_CONF,
    MessageType::DREQ,
    MessageType::DREP,
    MessageType::BUNDLE,
    MessageType::ACK,
    MessageType::SREFRESH,
    MessageType::HELLO,
    MessageType::INTEGRITY_CHALLENGE,
    MessageType::INTEGRITY_RESPONSE,
];

/// The place of a type in [`TYPES`].
const fn place(kind: MessageType) -> Option<usize> {
    Some(match kind.0 {
        1..=9 => kind.0 as usize - 1,
        12 => 9,
        13 => 10,
        15 => 11,
        20 => 12,
        25 => 13,
        26 => 14,
        _ => return None,
    })
}

/// Messages at an interface by their type, in the order of [`TYPES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Received.
    pub received: [u64; TYPES.len()],
    /// Sent.
    pub sent: [u64; TYPES.len()],
    /// PathErrs and ResvErrs received.
    pub errors_received: u64,
}

/// Messages of one neighbor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerTraffic {
    /// Received from it.
    pub received: u64,
    /// Sent to its address. Paths are addressed to their session, and do not count.
    pub sent: u64,
    /// PathErrs and ResvErrs among those received.
    pub errors_received: u64,
}

pub(super) const fn is_error(kind: MessageType) -> bool {
    matches!(kind, MessageType::PATH_ERR | MessageType::RESV_ERR)
}

/// Calls `each` with the types of the messages in a packet: of a Bundle its own, and those in it.
fn types(packet: &[u8], mut each: impl FnMut(MessageType)) {
    let Some(kind) = packet.get(1).map(|kind| MessageType(*kind)) else { return };
    each(kind);
    if kind != MessageType::BUNDLE {
        return;
    }
    let mut rest = packet.get(HEADER_OCTETS..).unwrap_or_default();
    while let Some(&[_, kind, _, _, _, _, high, low]) = rest.first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        // INTEGRITY and acknowledgments of the Bundle stand before its messages; this node writes none there.
        each(MessageType(kind));
        rest = rest.get(length.max(HEADER_OCTETS)..).unwrap_or_default();
    }
}

impl Neighbors {
    /// Counts a message that was received by an interface.
    pub(super) fn count_received(&mut self, kind: MessageType, ifindex: IfIndex) {
        let counters = &mut self.counters;
        match kind {
            MessageType::PATH => counters.paths_received += 1,
            MessageType::RESV => counters.resvs_received += 1,
            MessageType::PATH_ERR => counters.path_errors_received += 1,
            MessageType::RESV_ERR => counters.resv_errors_received += 1,
            MessageType::PATH_TEAR => counters.path_tears_received += 1,
            MessageType::RESV_TEAR => counters.resv_tears_received += 1,
            MessageType::RESV_CONF => counters.confirmations_received += 1,
            MessageType::DREP => counters.dreps_received += 1,
            _ => {}
        }
        let Some(at) = self.own.get_mut(&ifindex) else { return };
        if let Some(count) = place(kind).and_then(|place| at.traffic.received.get_mut(place)) {
            *count += 1;
        }
        at.traffic.errors_received += u64::from(is_error(kind));
    }

    /// Counts the messages of a packet that leaves.
    pub(super) fn count_sent(&mut self) {
        let Some((envelope, packet)) = self.out.next() else { return };
        let Envelope { dst, ifindex, .. } = *envelope;
        let mut count = 0;
        if let Some(at) = self.own.get_mut(&ifindex) {
            types(packet, |kind| {
                if let Some(count) = place(kind).and_then(|place| at.traffic.sent.get_mut(place)) {
                    *count += 1;
                }
                count += u64::from(kind != MessageType::BUNDLE);
            });
        }
        if let Some(peer) = self.peers.find(dst, ifindex).and_then(|key| self.peers.get_mut(key)) {
            peer.traffic.sent += count;
        }
    }

    /// The messages at an interface.
    #[must_use]
    pub fn traffic(&self, ifindex: IfIndex) -> Traffic {
        self.own.get(&ifindex).map_or_else(Traffic::default, |own| own.traffic)
    }

    /// Number of neighbors at an interface.
    #[must_use]
    pub fn count_at(&self, ifindex: IfIndex) -> usize {
        self.peers.slab.iter().filter(|(_, peer)| peer.ifindex == ifindex).count()
    }

    /// The messages of a neighbor, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn traffic_of(&self, neighbor: IpAddr, ifindex: IfIndex) -> PeerTraffic {
        let peer = self.peers.find(neighbor, ifindex).and_then(|key| self.peers.get(key));
        peer.map_or_else(PeerTraffic::default, |peer| peer.traffic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_its_place() {
        for (at, kind) in TYPES.into_iter().enumerate() {
            assert_eq!(place(kind), Some(at), "{kind}");
        }
        assert!([0, 10, 11, 14, 21, 255].into_iter().all(|kind| place(MessageType(kind)).is_none()));
    }

    #[test]
    fn messages_in_a_bundle_count() {
        let message = |kind, length: u8| {
            let mut octets = vec![0x11, kind, 0, 0, 255, 0, 0, length];
            octets.resize(length.into(), 0);
            octets
        };
        let bundle = [message(12, 8), message(1, 20), message(2, 8)].concat();
        let mut all = Vec::new();
        types(&bundle, |kind| all.push(kind.0));
        assert_eq!(all, [12, 1, 2]);
        for octets in
            [&bundle[..9], &[0x10][..], &[], &message(12, 8), &[message(12, 8), message(1, 0)].concat()]
        {
            types(octets, |_| {});
        }
    }
}
