//! Queued outputs: small values in a queue, their octets in one buffer that is cleared when the queue is empty.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use signalbox_core::IfIndex;
use signalbox_core::node::RouteQuery;

use super::io::{Output, RsvpEvent};
use super::neighbor;
use crate::engine::packet::IpTransmit;

/// The addressing of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Envelope {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) ifindex: Option<IfIndex>,
    /// Routing decides the outgoing interface; the settings of `ifindex` apply.
    pub(crate) routed: bool,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    pub(crate) router_alert: bool,
    /// Hash of the next router or RSVP node; 0: it is the destination.
    pub(crate) towards: u32,
    /// The next hop of the data's route, for messages that follow it.
    pub(crate) gateway: Option<IpAddr>,
}

impl Envelope {
    /// The same for the neighbor layer, which knows the interface.
    pub(crate) const fn at(self, ifindex: IfIndex) -> neighbor::Envelope {
        let Self { src, dst, routed, ttl, tos, router_alert, towards, gateway, .. } = self;
        let through = towards != 0;
        neighbor::Envelope { src, dst, ifindex, routed, ttl, tos, router_alert, towards, through, gateway }
    }
}

#[derive(Debug)]
enum Entry {
    Send { envelope: Envelope, start: u32, end: u32 },
    Reply { src: SocketAddr, dst: SocketAddr, tos: u8, start: u32, end: u32 },
    Lookup { id: u64, query: RouteQuery },
    Multicast { group: IpAddr, source: IpAddr },
    ReleaseMulticast { group: IpAddr, source: IpAddr },
    Event { id: u64, event: Box<RsvpEvent> },
}

/// The queue of outputs.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<Entry>,
    octets: Vec<u8>,
}

impl Outbox {
    /// Frees the octets of outputs that were taken. It is called before anything is queued.
    pub(crate) fn recycle(&mut self) {
        if self.queue.is_empty() {
            self.octets.clear();
        }
    }

    /// Queues a packet whose payload `compose` appends; nothing if it appends nothing. Whether a packet was queued.
    pub(crate) fn send(&mut self, envelope: Envelope, compose: impl FnOnce(&mut Vec<u8>)) -> bool {
        let span = self.append(compose);
        self.queue.extend(span.map(|(start, end)| Entry::Send { envelope, start, end }));
        span.is_some()
    }

    /// Queues a UDP datagram whose payload `compose` appends; nothing if it appends nothing. Whether it was queued.
    pub(crate) fn reply(
        &mut self,
        src: SocketAddr,
        dst: SocketAddr,
        tos: u8,
        compose: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let span = self.append(compose);
        self.queue.extend(span.map(|(start, end)| Entry::Reply { src, dst, tos, start, end }));
        span.is_some()
    }

    /// The place of the octets that `compose` appends, if there are any.
    fn append(&mut self, compose: impl FnOnce(&mut Vec<u8>)) -> Option<(u32, u32)> {
        let whole = self.octets.len();
        compose(&mut self.octets);
        // One batch of outputs holds far less than 4 GiB; packets beyond that are not sent.
        match (u32::try_from(whole), u32::try_from(self.octets.len())) {
            (Ok(start), Ok(end)) if end > start => Some((start, end)),
            _ => {
                self.octets.truncate(whole);
                None
            }
        }
    }

    fn octets(&self, start: u32, end: u32) -> &[u8] {
        let span = usize::try_from(start).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(0);
        self.octets.get(span).unwrap_or_default()
    }

    pub(crate) fn lookup(&mut self, id: u64, query: RouteQuery) {
        self.queue.push_back(Entry::Lookup { id, query });
    }

    pub(crate) fn release_multicast(&mut self, group: IpAddr, source: IpAddr) {
        self.queue.push_back(Entry::ReleaseMulticast { group, source });
    }

    pub(crate) fn multicast(&mut self, group: IpAddr, source: IpAddr) {
        self.queue.push_back(Entry::Multicast { group, source });
    }

    pub(crate) fn event(&mut self, id: u64, event: RsvpEvent) {
        self.queue.push_back(Entry::Event { id, event: Box::new(event) });
    }

    /// Whether no output is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The next output.
    pub(crate) fn poll(&mut self) -> Option<Output<'_>> {
        Some(match self.queue.pop_front()? {
            Entry::Send { envelope, start, end } => {
                let Envelope { src, dst, ifindex, ttl, tos, router_alert, gateway, .. } = envelope;
                let payload = self.octets(start, end);
                // Only packets for other nodes leave here.
                Output::Send(IpTransmit {
                    src,
                    dst,
                    ifindex,
                    gateway,
                    ttl,
                    tos,
                    router_alert,
                    unproved: true,
                    payload,
                })
            }
            Entry::Reply { src, dst, tos, start, end } => {
                Output::Reply { src, dst, tos, payload: self.octets(start, end) }
            }
            Entry::Lookup { id, query } => Output::RouteLookup { id, query },
            Entry::Multicast { group, source } => Output::MulticastLookup { group, source },
            Entry::ReleaseMulticast { group, source } => Output::MulticastRelease { group, source },
            Entry::Event { id, event } => Output::Event { id, event: *event },
        })
    }
}
