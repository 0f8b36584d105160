//! The packets of all links, read once and put into order.

use std::any::Any;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::plan::Leg;
use crate::protocols::fields::Message;
use crate::protocols::frame::Frame;
use crate::protocols::packet::{Datagram, Ip, Layers};
use crate::protocols::{self, Observer};

/// How the payload of the lab's own datagrams begins.
pub(crate) const PROBE_PAYLOAD: &[u8] = b"signalbox lab probe ";

/// A datagram of the lab's own on a link.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    /// Since 1970.
    pub(crate) at: Duration,
    pub(crate) outgoing: bool,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) ttl: u8,
    /// What its payload has behind [`PROBE_PAYLOAD`].
    pub(crate) name: Vec<u8>,
}

/// What passed a link.
#[derive(Debug)]
pub(crate) struct LinkTrace {
    /// Index of the node at the first end.
    first: usize,
    pub(crate) probes: Vec<Probe>,
    /// Frames that the capture had no room for.
    pub(crate) missed: u64,
    /// The octets of each layer of each frame's IP packet.
    layers: Vec<Layers>,
    /// The TCP segments without payload, by their kind and size.
    pub(crate) bare: BTreeMap<(&'static str, Layers), usize>,
    /// What each protocol found.
    seen: Vec<Box<dyn Observer>>,
}

/// What passed all links, by the links' indexes.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) links: Vec<LinkTrace>,
}

impl LinkTrace {
    /// Returns the trace of a link on which nothing passed; captures are taken at the node `first`.
    pub(crate) fn new(first: usize) -> Self {
        let seen = protocols::all().filter_map(|protocol| protocol.observer()).collect();
        Self { first, probes: Vec::new(), missed: 0, layers: Vec::new(), bare: BTreeMap::new(), seen }
    }

    /// Reads the frames of a capture.
    pub(crate) fn read(first: usize, frames: &[Frame], missed: u64) -> Self {
        let mut trace = Self { missed, ..Self::new(first) };
        for frame in frames {
            let ip = Ip::read(&frame.octets);
            trace.layers.push(ip.map_or_else(Layers::default, |ip| ip.layers()));
            let Some(ip) = ip else { continue };
            if let Some(kind) = ip.bare_segment() {
                *trace.bare.entry((kind, ip.layers())).or_default() += 1;
            }
            match Datagram::read(ip) {
                Some(datagram) if datagram.payload.starts_with(PROBE_PAYLOAD) => {
                    let Ip { src, dst, ttl, .. } = ip;
                    let name = datagram.payload.get(PROBE_PAYLOAD.len()..).unwrap_or_default().to_vec();
                    trace.probes.push(Probe { at: frame.at, outgoing: frame.outgoing, src, dst, ttl, name });
                }
                _ => trace.seen.iter_mut().for_each(|seen| seen.take(frame, ip)),
            }
        }
        trace.seen.iter_mut().for_each(|seen| seen.finish());
        trace
    }

    /// Returns what the observer of this type found.
    ///
    /// # Panics
    /// If no protocol of the table has such an observer.
    pub(crate) fn seen<T: Observer>(&self) -> &T {
        let mut all = self.seen.iter().filter_map(|seen| {
            let seen: &dyn Any = &**seen;
            seen.downcast_ref()
        });
        all.next().expect("a protocol of the table has this observer")
    }

    /// Returns the same, to be changed by a test.
    #[cfg(test)]
    pub(crate) fn seen_mut<T: Observer>(&mut self) -> &mut T {
        let mut all = self.seen.iter_mut().filter_map(|seen| {
            let seen: &mut dyn Any = &mut **seen;
            seen.downcast_mut()
        });
        all.next().expect("a protocol of the table has this observer")
    }

    /// Returns the octets of each layer of the IP packet in a frame, by the frame's number.
    pub(crate) fn layers(&self, frame: usize) -> Layers {
        frame.checked_sub(1).and_then(|index| self.layers.get(index)).copied().unwrap_or_default()
    }

    /// Returns the octets of the IP packet in a frame, by the frame's number.
    pub(crate) fn octets(&self, frame: usize) -> u32 {
        let Layers { network, transport, message } = self.layers(frame);
        u32::try_from(network + transport + message).unwrap_or(0)
    }

    /// Returns the index of the node at the end of `link` that sent a frame.
    pub(crate) fn sender(&self, outgoing: bool, [one, other]: [usize; 2]) -> usize {
        if outgoing == (one == self.first) { one } else { other }
    }

    /// Returns the messages of a protocol, in the order in which they passed.
    pub(crate) fn messages(&self, protocol: &str) -> Vec<&dyn Message> {
        self.seen.iter().filter(|seen| seen.protocol() == protocol).flat_map(|seen| seen.messages()).collect()
    }

    /// Whether a frame went along `leg`, which is on this link.
    pub(crate) fn along(&self, outgoing: bool, leg: Leg) -> bool {
        outgoing == (leg.from == self.first)
    }
}
