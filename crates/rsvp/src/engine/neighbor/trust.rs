//! Which messages count as those of a neighbor: by their addresses and their TTL.
//!
//! RFC 2205 trusts every packet. This node accepts a message that changes state only if it looks as if its hop had sent
//! it on the link. [`super::Trust`] has the exceptions for networks that need them.

use core::net::IpAddr;

use signalbox_core::IfIndex;
use signalbox_core::slab::Key;

use super::Neighbors;
use super::inbound::Incoming;
use super::outbox::Envelope;
use super::peers::Peer;
use crate::wire::MessageType;

impl Neighbors {
    /// Whether a message was routed on its way from its sender, although no hops without RSVP are expected.
    pub(super) fn is_distant(&self, incoming: &Incoming<'_>) -> bool {
        let settings = self.config.of(incoming.packet.ifindex);
        incoming.non_rsvp && !settings.trust.distant_hops && !settings.integrity.receiving
    }

    /// Whether the next node of a packet is there for certain: a router, a group, or a neighbor that has proved it.
    /// Messages name addresses that perhaps no node has. A packet to such an address waits in the kernel for a
    /// link-layer address.
    pub(super) fn is_reached(&self, envelope: &Envelope) -> bool {
        let Envelope { dst, ifindex, through, .. } = *envelope;
        through
            || dst.is_multicast()
            || self.peers.find(dst, ifindex).and_then(|key| self.peers.get(key)).is_some_and(Peer::is_proved)
    }

    /// A neighbor has shown something that only the receiver of this node's messages knows.
    pub fn proved(&mut self, neighbor: IpAddr, ifindex: IfIndex) {
        if let Some(key) = self.peers.find(neighbor, ifindex) {
            self.prove(Some(key));
        }
    }

    /// The same, of a neighbor that was found.
    pub(super) fn prove(&mut self, peer: Option<Key>) {
        if let Some(peer) = peer.and_then(|key| self.peers.get_mut(key)) {
            peer.prove();
        }
    }

    /// Whether a message counts as one of a neighbor. `bundled`: it came in a Bundle.
    pub(super) fn is_neighborly(&mut self, incoming: &Incoming<'_>, bundled: bool) -> bool {
        let Incoming { message, packet, neighbor, .. } = incoming;
        let trust = self.config.of(packet.ifindex).trust;
        let to_session = matches!(message.kind, MessageType::PATH | MessageType::PATH_TEAR);
        // A ResvConf changes no state and passes nodes of all kinds, like diagnostics.
        if message.kind == MessageType::RESV_CONF {
            return true;
        }
        let (counter, reason) = if self.is_distant(incoming) {
            (&mut self.counters.distant, "a lower TTL than its sender gave it")
        } else if (bundled || !to_session) && packet.src != *neighbor && !trust.any_source {
            (&mut self.counters.wrong_source, "the IP source is not its RSVP_HOP")
        } else if !bundled
            && to_session
            && message.sender.is_some_and(|sender| sender.src != packet.src)
            && !trust.any_source
        {
            // Where kernels filter forged sources, no other node can announce the sender (RFC 2205 §3.1.3).
            (&mut self.counters.wrong_source, "the IP source is not its sender")
        } else if !bundled
            && to_session
            && message.session.is_some_and(|session| session.dest != packet.dst)
            && !trust.any_destination
        {
            (&mut self.counters.wrong_destination, "not addressed to the destination of its session")
        } else {
            return true;
        };
        *counter += 1;
        tracing::debug!(kind = %message.kind, peer = %neighbor, src = %packet.src, reason, "message dropped");
        false
    }
}
