//! The packets of all links, read once and put into order.

use std::any::Any;
use std::net::IpAddr;

use crate::plan::Leg;
use crate::protocols::fields::Message;
use crate::protocols::frame::Frame;
use crate::protocols::packet::{Datagram, Ip};
use crate::protocols::{self, Observer};

/// How the payload of the lab's own datagrams begins.
pub(crate) const PROBE_PAYLOAD: &[u8] = b"signalbox lab probe ";

/// A datagram of the lab's own on a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    pub(crate) outgoing: bool,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) ttl: u8,
}

/// What passed a link.
#[derive(Debug)]
pub(crate) struct LinkTrace {
    /// Index of the node at the first end.
    first: usize,
    pub(crate) probes: Vec<Probe>,
    /// Frames that the capture had no room for.
    pub(crate) missed: u64,
    /// Octets of the IP packet of each frame.
    octets: Vec<u32>,
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
        Self { first, probes: Vec::new(), missed: 0, octets: Vec::new(), seen }
    }

    /// Reads the frames of a capture.
    pub(crate) fn read(first: usize, frames: &[Frame], missed: u64) -> Self {
        let mut trace = Self { missed, ..Self::new(first) };
        for frame in frames {
            let ip = Ip::read(&frame.octets);
            trace.octets.push(ip.map_or(0, |ip| u32::try_from(ip.packet.len()).unwrap_or(0)));
            let Some(ip) = ip else { continue };
            match Datagram::read(ip) {
                Some(datagram) if datagram.payload.starts_with(PROBE_PAYLOAD) => {
                    let Ip { src, dst, ttl, .. } = ip;
                    trace.probes.push(Probe { outgoing: frame.outgoing, src, dst, ttl });
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

    /// Returns the octets of the IP packet in a frame, by the frame's number.
    pub(crate) fn octets(&self, frame: usize) -> u32 {
        frame.checked_sub(1).and_then(|index| self.octets.get(index)).copied().unwrap_or(0)
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
