//! CASP: scout over UDP, and messages over TCP and UDP.

mod fields;
mod message;

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::protocols::fields::{Message, described};
use crate::protocols::frame::Frame;
use crate::protocols::packet::{Datagram, Ip, Segment};
use crate::protocols::{Observer, Protocol};
use message::{CaspMessage, MESSAGES, SCOUT, Way};

/// Longest message that is read from a stream.
const LONGEST: usize = 1 << 20;

/// The entry of the table of protocols.
#[derive(Debug)]
pub(crate) struct Casp;

impl Protocol for Casp {
    fn name(&self) -> &'static str {
        "casp"
    }

    fn title(&self) -> &'static str {
        "CASP"
    }

    fn reserves(&self) -> bool {
        true
    }

    /// With the QoS client.
    fn reserves_by(&self, config: &toml::Table) -> bool {
        let clients = config.get("casp").and_then(|casp| casp.get("clients")).and_then(toml::Value::as_array);
        clients.is_some_and(|clients| clients.iter().any(|client| client.as_str() == Some("qos")))
    }

    fn fields(&self) -> Vec<(&'static str, &'static str)> {
        described(fields::FIELDS)
    }

    fn observer(&self) -> Option<Box<dyn Observer>> {
        Some(Box::new(Seen::default()))
    }
}

/// One direction of a TCP connection: the number of the next octet, and octets of a message whose end has not come.
#[derive(Debug, Default)]
struct Direction {
    next: u32,
    octets: Vec<u8>,
}

/// What passed a link.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    messages: Vec<CaspMessage>,
    streams: HashMap<(SocketAddr, SocketAddr), Direction>,
}

impl Seen {
    /// Returns the numbers of Scout Requests, Scout Responses and signaling messages.
    pub(crate) fn counts(&self) -> [usize; 3] {
        [2, 3, 1].map(|kind| self.messages.iter().filter(|one| one.kind == kind).count())
    }

    /// Reads a segment. The links of the lab keep the order of segments: one that was sent again adds nothing.
    fn segment(&mut self, frame: &Frame, ip: &Ip<'_>, segment: &Segment<'_>) {
        if segment.src.port() != MESSAGES && segment.dst.port() != MESSAGES {
            return;
        }
        let direction = self.streams.entry((segment.src, segment.dst)).or_default();
        if segment.syn {
            *direction = Direction { next: segment.sequence.wrapping_add(1), octets: Vec::new() };
            return;
        }
        let known = direction.next.wrapping_sub(segment.sequence) as usize;
        let Some(new) = segment.payload.get(known..) else { return };
        direction.next = direction.next.wrapping_add(u32::try_from(new.len()).unwrap_or(0));
        direction.octets.extend_from_slice(new);
        while let Some(length) = direction.octets.first_chunk::<4>() {
            // The Length Header counts itself.
            let length = u32::from_be_bytes(*length) as usize;
            if !(4..=LONGEST).contains(&length) {
                return direction.octets.clear();
            }
            let Some(octets) = direction.octets.get(4..length) else { return };
            self.messages.extend(message::read(frame, ip, Way::Tcp, octets));
            direction.octets.drain(..length);
        }
    }
}

impl Observer for Seen {
    fn take(&mut self, frame: &Frame, ip: Ip<'_>) {
        if let Some(datagram) = Datagram::read(ip) {
            let port = datagram.dst_port;
            if port == MESSAGES || port == SCOUT {
                self.messages.extend(message::read(frame, &ip, Way::Udp, datagram.payload));
            }
        } else if let Some(segment) = Segment::read(ip) {
            self.segment(frame, &ip, &segment);
        }
    }

    fn protocol(&self) -> &'static str {
        "casp"
    }

    fn messages(&self) -> Vec<&dyn Message> {
        self.messages.iter().map(|message| message as &dyn Message).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn frame(number: usize) -> Frame {
        Frame { number, at: Duration::ZERO, outgoing: true, octets: Vec::new() }
    }

    /// Messages come out whole, however segments cut them, and once.
    #[test]
    fn messages_of_a_stream_are_read_whole_and_once() {
        let (src, dst) = ("10.0.0.1:999".parse().unwrap(), "10.0.0.2:50003".parse().unwrap());
        let octets = message::tests::framed();
        let two = [octets.clone(), octets].concat();
        let packet = message::tests::packet(17, &[]);
        let ip = Ip::read(&packet).unwrap();
        for cut in 1..two.len() {
            let mut seen = Seen::default();
            let mut give = |sequence: u32, syn, payload: &[u8]| {
                let segment = Segment { src, dst, sequence, acknowledgment: 0, syn, ack: !syn, payload };
                seen.segment(&frame(1), &ip, &segment);
            };
            give(u32::MAX - 3, true, &[]);
            let at = |offset: usize| (u32::MAX - 2).wrapping_add(u32::try_from(offset).unwrap());
            give(at(0), false, &two[..cut]);
            give(at(0), false, &two[..cut]);
            give(at(cut), false, &two[cut..]);
            give(at(0), false, &two);
            assert_eq!(seen.counts(), [0, 0, 2], "cut at {cut}");
        }
    }
}
