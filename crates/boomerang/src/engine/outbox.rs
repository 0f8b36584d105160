//! Queued outputs: small values in a queue, their octets in one buffer that is cleared when the queue is empty.

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use std::collections::VecDeque;

use signalbox_core::node::RouteQuery;
use signalbox_core::packet::Transmit;
use signalbox_core::{Entry, IfIndex};

use super::io::{BoomerangEvent, Output};
use crate::wire::{Ends, MAGIC};

/// TTL of the packets that this node composes.
pub(super) const TTL: u8 = 64;

/// The IP header of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Envelope {
    pub(super) ends: Ends,
    pub(super) ttl: u8,
    pub(super) tos: u8,
    /// A message of this node is sent with DF; a passing one as routers forward it.
    pub(super) own: bool,
    /// The interface that it leaves by; `None`: that of the kernel's route.
    pub(super) by: Option<IfIndex>,
}

#[derive(Debug)]
enum Queued {
    Send { envelope: Envelope, options: Range<usize>, payload: Range<usize> },
    Lookup(u64, IpAddr),
    LookupGroup(IpAddr, IpAddr),
    ReleaseGroup(IpAddr, IpAddr),
    Event(u64, BoomerangEvent),
}

/// The queue of outputs.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Queued>,
    octets: Vec<u8>,
}

impl Outbox {
    /// Frees the octets of outputs that were taken. It is called before anything is queued.
    pub(super) fn recycle(&mut self) {
        if self.queue.is_empty() {
            self.octets.clear();
        }
    }

    /// Queues a packet with these IP options and this ICMP message.
    pub(super) fn send(&mut self, envelope: Envelope, options: &[u8], payload: &[u8]) {
        let start = self.octets.len();
        self.octets.extend_from_slice(options);
        let middle = self.octets.len();
        self.octets.extend_from_slice(payload);
        let end = self.octets.len();
        self.queue.push_back(Queued::Send { envelope, options: start..middle, payload: middle..end });
    }

    pub(super) fn look_up(&mut self, id: u64, dst: IpAddr) {
        self.queue.push_back(Queued::Lookup(id, dst));
    }

    /// Asks for the multicast route of packets from `source` to `group`, and for its changes.
    pub(super) fn look_up_group(&mut self, group: IpAddr, source: IpAddr) {
        self.queue.push_back(Queued::LookupGroup(group, source));
    }

    /// Ends the reports about a multicast route.
    pub(super) fn release_group(&mut self, group: IpAddr, source: IpAddr) {
        self.queue.push_back(Queued::ReleaseGroup(group, source));
    }

    pub(super) fn event(&mut self, id: u64, event: BoomerangEvent) {
        self.queue.push_back(Queued::Event(id, event));
    }

    /// Whether no output is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The next output.
    pub(super) fn poll(&mut self) -> Option<Output<'_>> {
        Some(match self.queue.pop_front()? {
            Queued::Send { envelope, options, payload } => {
                let Envelope { ends, ttl, tos, own, by } = envelope;
                Output::Send(Transmit {
                    entry: Entry::IcmpEcho(MAGIC),
                    src: SocketAddr::new(ends.src, 0),
                    dst: SocketAddr::new(ends.dst, 0),
                    ifindex: by,
                    gateway: None,
                    ttl,
                    tos,
                    dont_fragment: own,
                    flow_label: 0,
                    unproved: !own,
                    options: self.octets.get(options).unwrap_or_default(),
                    payload: self.octets.get(payload).unwrap_or_default(),
                })
            }
            Queued::Lookup(id, dst) => Output::RouteLookup { id, query: RouteQuery::to(dst) },
            Queued::LookupGroup(group, source) => Output::MulticastLookup { group, source },
            Queued::ReleaseGroup(group, source) => Output::MulticastRelease { group, source },
            Queued::Event(id, event) => Output::Event { id, event },
        })
    }
}
