//! Queued outputs: small values in a queue, their octets in one buffer that is cleared when the queue is empty.

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use std::collections::VecDeque;

use signalbox_core::Entry;
use signalbox_core::node::{RouteQuery, StreamId};
use signalbox_core::packet::Transmit;

use super::io::{Arrival, Indication, Next, Output, Transport};
use crate::wire::ClientType;

/// A datagram without its octets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Datagram {
    pub(super) port: u16,
    pub(super) src: Option<IpAddr>,
    pub(super) dst: SocketAddr,
    pub(super) tos: u8,
    pub(super) flow_label: u32,
    pub(super) unproved: bool,
}

#[derive(Debug)]
enum Queued {
    Send {
        datagram: Datagram,
        options: Range<usize>,
        payload: Range<usize>,
    },
    Lookup(u64, IpAddr),
    Discover {
        id: u64,
        mechanism: u8,
        dst: IpAddr,
    },
    Open {
        stream: StreamId,
        transport: Transport,
        local: Option<IpAddr>,
        peer: SocketAddr,
    },
    Write(StreamId, Range<usize>),
    Close(StreamId),
    /// With the octets of the data and of the route.
    Received(ClientType, Box<Arrival<'static>>, [Range<usize>; 2]),
    Indication(ClientType, Indication<'static>),
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

    fn store(&mut self, octets: &[u8]) -> Range<usize> {
        let start = self.octets.len();
        self.octets.extend_from_slice(octets);
        start..self.octets.len()
    }

    pub(super) fn send(&mut self, datagram: Datagram, options: &[u8], payload: &[u8]) {
        let (options, payload) = (self.store(options), self.store(payload));
        self.queue.push_back(Queued::Send { datagram, options, payload });
    }

    pub(super) fn look_up(&mut self, id: u64, dst: IpAddr) {
        self.queue.push_back(Queued::Lookup(id, dst));
    }

    pub(super) fn discover(&mut self, id: u64, mechanism: u8, dst: IpAddr) {
        self.queue.push_back(Queued::Discover { id, mechanism, dst });
    }

    pub(super) fn open(
        &mut self,
        stream: StreamId,
        transport: Transport,
        local: Option<IpAddr>,
        peer: SocketAddr,
    ) {
        self.queue.push_back(Queued::Open { stream, transport, local, peer });
    }

    pub(super) fn write(&mut self, stream: StreamId, octets: &[u8]) {
        let range = self.store(octets);
        self.queue.push_back(Queued::Write(stream, range));
    }

    pub(super) fn close(&mut self, stream: StreamId) {
        self.queue.push_back(Queued::Close(stream));
    }

    /// Announces a message to a client. `arrival` has no octets yet: they are `data`, and `route`.
    pub(super) fn received(
        &mut self,
        client: ClientType,
        arrival: Arrival<'static>,
        data: &[u8],
        route: &[u8],
    ) {
        let ranges = [self.store(data), self.store(route)];
        self.queue.push_back(Queued::Received(client, Box::new(arrival), ranges));
    }

    pub(super) fn indicate(&mut self, client: ClientType, indication: Indication<'static>) {
        self.queue.push_back(Queued::Indication(client, indication));
    }

    /// Whether no output is queued.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Who takes the next output.
    pub(super) fn next(&self) -> Option<Next> {
        Some(match self.queue.front()? {
            Queued::Send { .. } | Queued::Lookup(..) => Next::Driver,
            Queued::Write(stream, _) => Next::Write(*stream),
            Queued::Open { .. } | Queued::Close(_) => Next::Stream,
            Queued::Discover { .. } => Next::Discover,
            Queued::Received(client, ..) | Queued::Indication(client, _) => Next::Client(*client),
        })
    }

    /// The next output.
    pub(super) fn poll(&mut self) -> Option<Output<'_>> {
        let octets = |range: Range<usize>| self.octets.get(range).unwrap_or_default();
        Some(match self.queue.pop_front()? {
            Queued::Send { datagram, options, payload } => {
                let Datagram { port, src, dst, tos, flow_label, unproved } = datagram;
                let any = match dst.ip() {
                    IpAddr::V4(_) => IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
                    IpAddr::V6(_) => IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED),
                };
                Output::Send(Transmit {
                    entry: Entry::Udp(port),
                    src: SocketAddr::new(src.unwrap_or(any), port),
                    dst,
                    ifindex: None,
                    gateway: None,
                    ttl: 64,
                    tos,
                    dont_fragment: true,
                    flow_label,
                    unproved,
                    options: octets(options),
                    payload: octets(payload),
                })
            }
            Queued::Lookup(id, dst) => Output::RouteLookup { id, query: RouteQuery::to(dst) },
            Queued::Discover { id, mechanism, dst } => Output::Discover { id, mechanism, dst },
            Queued::Open { stream, transport, local, peer } => {
                Output::Open { stream, transport, local, peer }
            }
            Queued::Write(stream, range) => Output::Write { stream, octets: octets(range) },
            Queued::Close(stream) => Output::Close { stream },
            Queued::Received(client, arrival, [data, route]) => {
                let (data, route) = (octets(data), octets(route));
                let indication = Indication::Received(Arrival { data, route, ..*arrival });
                Output::Indication { client, indication }
            }
            Queued::Indication(client, indication) => Output::Indication { client, indication },
        })
    }
}
