//! Queued packets: their addressing in a queue, their octets in one buffer that is cleared when the queue is empty.

use core::net::IpAddr;
use core::ops::Range;
use std::collections::VecDeque;

use signalbox_core::IfIndex;

use crate::engine::packet::IpTransmit;

/// The addressing of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Source address; with a Path that of the sender.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Outgoing interface, whose settings apply.
    pub ifindex: IfIndex,
    /// Routing decides the outgoing interface.
    pub routed: bool,
    /// IP TTL, which should be the message's Send_TTL.
    pub ttl: u8,
    /// TOS octet or traffic class.
    pub tos: u8,
    /// The packet has a Router Alert; IPv6 packets always have one.
    pub router_alert: bool,
    /// A mark of the next RSVP node or router, the same for all messages to it; 0: it is not known.
    pub towards: u32,
    /// The next node is not the destination but a router or RSVP node that this node knows.
    pub through: bool,
    /// The next hop of the data's route, for messages that follow it; `None`: the kernel's routing chooses it.
    pub gateway: Option<IpAddr>,
}

impl Envelope {
    /// A packet from `src` to `dst` by an interface, without Router Alert, whose next node is its destination.
    pub(crate) const fn direct(src: IpAddr, dst: IpAddr, ifindex: IfIndex, ttl: u8, tos: u8) -> Self {
        let (routed, router_alert, through) = (false, false, false);
        Self { src, dst, ifindex, routed, ttl, tos, router_alert, towards: 0, through, gateway: None }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<(Envelope, Range<usize>)>,
    pub(crate) octets: Vec<u8>,
}

impl Outbox {
    /// Frees the octets of packets that were taken.
    pub(crate) fn recycle(&mut self) {
        if self.queue.is_empty() {
            self.octets.clear();
        }
    }

    /// Queues the octets since `start` as a packet.
    pub(crate) fn push(&mut self, envelope: Envelope, start: usize) {
        if self.octets.len() > start {
            self.queue.push_back((envelope, start..self.octets.len()));
        }
    }

    /// Queues a packet with these octets.
    pub(crate) fn put(&mut self, envelope: Envelope, payload: &[u8]) {
        let start = self.octets.len();
        self.octets.extend_from_slice(payload);
        self.push(envelope, start);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The addressing of the next packet, and its octets.
    pub(crate) fn next(&self) -> Option<(&Envelope, &[u8])> {
        let (envelope, span) = self.queue.front()?;
        Some((envelope, self.octets.get(span.clone()).unwrap_or_default()))
    }

    /// The next packet; `unproved`: its next node has proved nothing.
    pub(crate) fn poll(&mut self, unproved: bool) -> Option<IpTransmit<'_>> {
        let (Envelope { src, dst, ifindex, routed, ttl, tos, router_alert, gateway, .. }, span) =
            self.queue.pop_front()?;
        let payload = self.octets.get(span).unwrap_or_default();
        let ifindex = (ifindex != IfIndex::NONE && !routed).then_some(ifindex);
        let router_alert = router_alert || dst.is_ipv6(); // RFC 2711: all RSVP packets
        Some(IpTransmit { src, dst, ifindex, gateway, ttl, tos, router_alert, unproved, payload })
    }
}
