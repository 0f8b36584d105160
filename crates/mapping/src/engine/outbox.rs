//! Outputs that wait to be polled.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use signalbox_core::IfIndex;
use signalbox_core::entry::Entry;
use signalbox_core::packet::Transmit;

use super::io::{Event, MappingId, Next, Output, Wanted};
use crate::wire::SERVER_PORT;

/// Buffers that are kept for the next messages.
const KEPT: usize = 16;

/// Where a host asked from, and where its answer goes: back by the same addresses, ports and interface (RFC 6887 §8.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Back {
    pub(super) client: SocketAddr,
    pub(super) local: IpAddr,
    pub(super) ifindex: IfIndex,
}

#[derive(Debug)]
enum Queued {
    Datagram(Back, Vec<u8>),
    Open(MappingId, Box<Wanted>),
    Close(MappingId),
    Event(u64, Event),
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Queued>,
    /// The octets of the last polled datagram.
    lent: Vec<u8>,
    free: Vec<Vec<u8>>,
}

impl Outbox {
    /// An empty buffer to compose a message in.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_default()
    }

    fn reuse(&mut self, mut octets: Vec<u8>) {
        if self.free.len() < KEPT && octets.capacity() > 0 {
            octets.clear();
            self.free.push(octets);
        }
    }

    pub(super) fn send(&mut self, back: Back, octets: Vec<u8>) {
        self.queue.push_back(Queued::Datagram(back, octets));
    }

    pub(super) fn open(&mut self, id: MappingId, wanted: Wanted) {
        self.queue.push_back(Queued::Open(id, Box::new(wanted)));
    }

    pub(super) fn close(&mut self, id: MappingId) {
        self.queue.push_back(Queued::Close(id));
    }

    pub(super) fn event(&mut self, id: u64, event: Event) {
        self.queue.push_back(Queued::Event(id, event));
    }

    pub(super) fn next(&self) -> Option<Next> {
        Some(match self.queue.front()? {
            Queued::Datagram(..) | Queued::Event(..) => Next::Driver,
            Queued::Open(..) | Queued::Close(_) => Next::Path,
        })
    }

    pub(super) fn poll(&mut self) -> Option<Output<'_>> {
        let lent = core::mem::take(&mut self.lent);
        self.reuse(lent);
        Some(match self.queue.pop_front()? {
            Queued::Datagram(back, octets) => {
                self.lent = octets;
                Output::Transmit(transmit(back, &self.lent))
            }
            Queued::Open(id, wanted) => Output::Open { id, wanted: *wanted },
            Queued::Close(id) => Output::Close { id },
            Queued::Event(id, event) => Output::Event { id, event },
        })
    }
}

/// Answers leave with TTL 255, so that a host can see whether they come from its own link.
const TTL: u8 = 255;

fn transmit(back: Back, payload: &[u8]) -> Transmit<'_> {
    Transmit {
        entry: Entry::Udp(SERVER_PORT),
        src: SocketAddr::new(back.local, SERVER_PORT),
        dst: back.client,
        ifindex: Some(back.ifindex),
        gateway: None,
        ttl: TTL,
        tos: 0,
        dont_fragment: false,
        flow_label: 0,
        unproved: true,
        options: &[],
        payload,
    }
}
