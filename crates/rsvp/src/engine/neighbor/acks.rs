//! Acknowledgments (RFC 2961 §4.3), alone or in other messages.

use signalbox_core::slab::Key;
use signalbox_core::{IfIndex, invariant};

use super::Neighbors;
use super::outbound::{Preface, TTL};
use crate::engine::packet::IpReceived;
use crate::wire::{MessageId, MessageType};

/// Acknowledgments that wait for one neighbor at most; more are sent at once.
const MOST_ACKS: usize = 64;

impl Neighbors {
    /// Acknowledges a message if its sender desires that, or sends a MESSAGE_ID_NACK (RFC 2961 §4.3).
    pub(super) fn acknowledge(
        &mut self,
        peer: Key,
        packet: &IpReceived<'_>,
        message_id: MessageId,
        negative: bool,
    ) {
        if message_id.ack_desired || negative {
            self.queue_ack(peer, packet.ifindex, message_id, negative, packet.dst.is_multicast());
        }
    }

    pub(super) fn queue_ack(
        &mut self,
        key: Key,
        ifindex: IfIndex,
        message_id: MessageId,
        negative: bool,
        multicast: bool,
    ) {
        let settings = self.config.of(ifindex).reduction;
        let delay = if multicast {
            // Other nodes received it too and acknowledge it.
            self.rng.jitter(settings.multicast_ack_delay, 0.0, 1.0)
        } else {
            settings.ack_delay
        };
        let Some(peer) = invariant!(self.peers.get_mut(key), "an answered neighbor stands") else { return };
        let due = peer.acks_due.map_or(self.now + delay, |due| due.min(self.now + delay));
        peer.acks.push((message_id, negative));
        peer.acks_due = Some(due);
        if peer.acks.len() >= MOST_ACKS {
            self.flush_acks(key);
        } else {
            self.peers.rearm(key);
        }
    }

    /// Sends the acknowledgments that wait for a neighbor.
    pub(super) fn flush_acks(&mut self, key: Key) {
        let Some(peer) = invariant!(self.peers.get_mut(key), "a flushed neighbor stands") else { return };
        peer.acks_due = None;
        let (to, ifindex) = (peer.addr, peer.ifindex);
        let mut acks = core::mem::take(&mut peer.acks);
        if !acks.is_empty() {
            let preface = Preface { acks: &acks, ..Self::PLAIN };
            self.own_packet((to, ifindex, TTL), MessageType::ACK, preface, |_| {});
            self.count_acks(&acks);
            acks.clear();
        }
        if let Some(peer) = self.peers.get_mut(key) {
            peer.acks = acks;
        }
        self.peers.rearm(key);
    }

    pub(super) fn count_acks(&mut self, acks: &[(MessageId, bool)]) {
        let negative = acks.iter().filter(|(_, negative)| *negative).count() as u64;
        self.counters.nacks_sent += negative;
        self.counters.acks_sent += acks.len() as u64 - negative;
    }
}
