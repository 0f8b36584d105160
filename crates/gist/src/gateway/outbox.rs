//! Outputs that wait to be polled. Octets are kept in one buffer, which is used again when all have been polled.

use core::net::SocketAddr;
use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use signalbox_core::packet::{Received, Transmit};
use signalbox_core::pinhole::{Pinhole, PinholeId};
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{Entry, IfIndex};

use super::io::Output;
use crate::wire::PORT;

/// The UDP port of GIST.
pub(super) const ENTRY: Entry = Entry::Udp(PORT);

/// The headers of a packet to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Envelope {
    pub(super) src: SocketAddr,
    pub(super) dst: SocketAddr,
    pub(super) ifindex: Option<IfIndex>,
    pub(super) ttl: u8,
    pub(super) tos: u8,
    pub(super) dont_fragment: bool,
}

#[derive(Debug)]
enum Queued {
    Packet { envelope: Envelope, options: Range<usize>, payload: Range<usize> },
    Open { id: PinholeId, pinhole: Pinhole, lifetime: Duration },
    Close { id: PinholeId },
    Find { id: PinholeId, packets: FlowFilter },
}

/// A packet that waits for an answer of the kernel.
#[derive(Debug)]
pub(super) struct Waiting {
    src: SocketAddr,
    dst: SocketAddr,
    ifindex: IfIndex,
    ttl: u8,
    tos: u8,
    options: Vec<u8>,
    payload: Vec<u8>,
}

impl Waiting {
    pub(super) fn of(packet: &Received<'_>) -> Self {
        Self {
            src: packet.src,
            dst: packet.dst,
            ifindex: packet.ifindex,
            ttl: packet.ttl,
            tos: packet.tos,
            options: packet.options.to_vec(),
            payload: packet.payload.to_vec(),
        }
    }

    /// Becomes a copy of another packet.
    pub(super) fn set(&mut self, packet: &Received<'_>) {
        (self.src, self.dst, self.ifindex) = (packet.src, packet.dst, packet.ifindex);
        (self.ttl, self.tos) = (packet.ttl, packet.tos);
        for (to, from) in [(&mut self.options, packet.options), (&mut self.payload, packet.payload)] {
            to.clear();
            to.extend_from_slice(from);
        }
    }

    pub(super) fn as_received(&self) -> Received<'_> {
        Received {
            entry: ENTRY,
            src: self.src,
            dst: self.dst,
            ifindex: self.ifindex,
            ttl: self.ttl,
            tos: self.tos,
            options: &self.options,
            payload: &self.payload,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Queued>,
    octets: Vec<u8>,
}

impl Outbox {
    /// Removes the octets that were polled, if no output waits.
    pub(super) fn sweep(&mut self) {
        if self.queue.is_empty() {
            self.octets.clear();
        }
    }

    /// Queues a packet whose payload `compose` appends; nothing is queued if it returns `None`. `compose` gets the place
    /// where the payload begins.
    pub(super) fn packet<T>(
        &mut self,
        envelope: Envelope,
        options: &[u8],
        compose: impl FnOnce(&mut Vec<u8>, usize) -> Option<T>,
    ) -> Option<T> {
        let start = self.octets.len();
        self.octets.extend_from_slice(options);
        let at = self.octets.len();
        let Some(done) = compose(&mut self.octets, at) else {
            self.octets.truncate(start);
            return None;
        };
        let payload = at..self.octets.len();
        self.queue.push_back(Queued::Packet { envelope, options: start..at, payload });
        Some(done)
    }

    pub(super) fn open(&mut self, id: PinholeId, pinhole: Pinhole, lifetime: Duration) {
        self.queue.push_back(Queued::Open { id, pinhole, lifetime });
    }

    pub(super) fn close(&mut self, id: PinholeId) {
        self.queue.push_back(Queued::Close { id });
    }

    pub(super) fn find(&mut self, id: PinholeId, packets: FlowFilter) {
        self.queue.push_back(Queued::Find { id, packets });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn poll(&mut self) -> Option<Output<'_>> {
        Some(match self.queue.pop_front()? {
            Queued::Packet { envelope, options, payload } => Output::Transmit(Transmit {
                entry: ENTRY,
                src: envelope.src,
                dst: envelope.dst,
                ifindex: envelope.ifindex,
                gateway: None,
                ttl: envelope.ttl,
                tos: envelope.tos,
                dont_fragment: envelope.dont_fragment,
                flow_label: 0,
                unproved: true,
                options: self.octets.get(options).unwrap_or_default(),
                payload: self.octets.get(payload).unwrap_or_default(),
            }),
            Queued::Open { id, pinhole, lifetime } => Output::Open { id, pinhole, lifetime },
            Queued::Close { id } => Output::Close { id },
            Queued::Find { id, packets } => Output::Find { id, packets },
        })
    }
}
