//! Outputs of the channels for the driver, in order.

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use signalbox_core::Entry;
use signalbox_core::node::{Output, StreamId, StreamKind};
use signalbox_core::packet::Transmit;

/// IP protocol 132, of the SCTP that runs in this process.
pub(crate) const SCTP: Entry = Entry::Ip(132);
/// Octets of the buffer that are kept when the queue is empty.
const KEPT: usize = 1 << 16;

#[derive(Debug)]
pub(crate) enum DriverRequest {
    Listen(StreamKind, u16),
    Open { stream: StreamId, kind: StreamKind, local: IpAddr, peer: SocketAddr },
    Write { stream: StreamId, octets: Range<usize> },
    Message { stream: StreamId, sctp_stream: u16, lifetime: Option<Duration>, octets: Range<usize> },
    Read { stream: StreamId, on: bool },
    Close { stream: StreamId, abort: bool },
    Sctp { src: IpAddr, dst: IpAddr, packet: Range<usize> },
}

/// A queue whose octets lie in one buffer, which is reused.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<DriverRequest>,
    octets: Vec<u8>,
    /// TOS octet or traffic class of SCTP packets.
    tos: u8,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// SCTP packets carry `tos`.
    pub(crate) fn new(tos: u8) -> Self {
        Self { tos, ..Self::default() }
    }

    pub(crate) fn push(&mut self, request: DriverRequest) {
        self.queue.push_back(request);
    }

    /// Queues what `fill` appends as a write, unless it appends nothing.
    pub(crate) fn write(&mut self, stream: StreamId, fill: impl FnOnce(&mut Vec<u8>)) {
        let octets = self.append(fill);
        if !octets.is_empty() {
            self.queue.push_back(DriverRequest::Write { stream, octets });
        }
    }

    /// Queues a message for an association of the kernel.
    pub(crate) fn message(
        &mut self,
        stream: StreamId,
        (sctp_stream, lifetime): (u16, Option<Duration>),
        message: &[u8],
    ) {
        let octets = self.append(|octets| octets.extend_from_slice(message));
        self.queue.push_back(DriverRequest::Message { stream, sctp_stream, lifetime, octets });
    }

    pub(crate) fn sctp(&mut self, src: IpAddr, dst: IpAddr, packet: &[u8]) {
        let packet = self.append(|octets| octets.extend_from_slice(packet));
        self.queue.push_back(DriverRequest::Sctp { src, dst, packet });
    }

    fn append(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> Range<usize> {
        if self.queue.is_empty() {
            self.octets.clear();
            self.octets.shrink_to(KEPT);
        }
        let from = self.octets.len();
        fill(&mut self.octets);
        from..self.octets.len()
    }

    /// The next entry. Pass it to [`Outbox::output`] before another entry is queued.
    pub(crate) fn pop(&mut self) -> Option<DriverRequest> {
        self.queue.pop_front()
    }

    pub(crate) fn output<E>(&self, request: DriverRequest) -> Output<'_, E> {
        let octets = |range| self.octets.get(range).unwrap_or_default();
        match request {
            DriverRequest::Listen(kind, port) => Output::StreamListen { kind, port },
            DriverRequest::Open { stream, kind, local, peer } => {
                Output::StreamOpen { stream, kind, local, peer }
            }
            DriverRequest::Write { stream, octets: range } => {
                Output::StreamWrite { stream, octets: octets(range) }
            }
            DriverRequest::Message { stream, sctp_stream, lifetime, octets: range } => {
                Output::StreamMessage { stream, sctp_stream, lifetime, octets: octets(range) }
            }
            DriverRequest::Read { stream, on } => Output::StreamRead { stream, on },
            DriverRequest::Close { stream, abort } => Output::StreamClose { stream, abort },
            DriverRequest::Sctp { src, dst, packet } => Output::Transmit(Transmit {
                entry: SCTP,
                src: SocketAddr::new(src, 0),
                dst: SocketAddr::new(dst, 0),
                ifindex: None,
                gateway: None,
                ttl: 64,
                tos: self.tos,
                dont_fragment: false,
                flow_label: 0,
                unproved: false,
                options: &[],
                payload: octets(packet),
            }),
        }
    }
}
