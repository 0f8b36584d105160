//! The contents of TCP connections in order, and the messages of GIST and CASP in them.

use core::net::SocketAddr;
use std::collections::{BTreeMap, HashMap};

use signalbox_casp::wire::frame;
use signalbox_gist::wire::{Encapsulation, Header, Message, PORT};
use signalbox_wire::Reader;

use crate::capture::IpPacket;
use crate::casp;

/// The most octets that wait for earlier ones in one direction; more than a receive window.
const EARLY: usize = 8 << 20;
/// The most directions of connections that are followed at one time; others are not read.
const MOST: usize = 65_536;
/// The longest CASP message that is read, with its Length Header: more than any node of this suite takes.
const LONGEST: u32 = 1 << 20;
/// Octets of a common header (RFC 5971 A.1).
const HEADER: usize = 8;
const TCP: u8 = 6;

/// One direction of a TCP connection: octets by sequence number come in, and they come out in order.
#[derive(Debug, Clone, Default)]
pub struct Ordered {
    octets: Vec<u8>,
    /// Sequence number of the next octet, once the first one is known.
    next: Option<u32>,
    early: BTreeMap<u32, Vec<u8>>,
}

impl Ordered {
    /// A direction whose first octet has this number.
    #[must_use]
    pub fn from(first: u32) -> Self {
        Self { next: Some(first), ..Self::default() }
    }

    /// Sets the number of the first octet if it is not known yet.
    pub fn begin(&mut self, first: u32) {
        self.next.get_or_insert(first);
    }

    /// All octets up to the first that is missing, without those that were discarded.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// Sequence number of the first octet of [`Self::octets`].
    #[must_use]
    pub fn start(&self) -> Option<u32> {
        #[expect(clippy::cast_possible_truncation, reason = "modulo 2^32, as sequence numbers are")]
        self.next.map(|next| next.wrapping_sub(self.octets.len() as u32))
    }

    /// Adds octets at their place; those that were there already are ignored. False: the place is not known, or too many
    /// octets wait for earlier ones.
    pub fn take(&mut self, sequence: u32, payload: &[u8]) -> bool {
        let Some(next) = self.next else { return false };
        if distance(next, sequence) > 0 {
            let waiting: usize = self.early.values().map(Vec::len).sum();
            if waiting + payload.len() > EARLY {
                return false;
            }
            let place = self.early.entry(sequence).or_default();
            if place.len() < payload.len() {
                *place = payload.to_vec();
            }
            return true;
        }
        self.append(sequence, payload);
        // The segments that wait may overlap; the first that fits goes first, until no other fits.
        while let Some(sequence) = self.early.keys().copied().find(|early| !self.is_early(*early)) {
            let payload = self.early.remove(&sequence).unwrap_or_default();
            self.append(sequence, &payload);
        }
        true
    }

    /// Removes the first octets.
    fn discard(&mut self, octets: usize) {
        self.octets.drain(..octets.min(self.octets.len()));
    }

    fn is_early(&self, sequence: u32) -> bool {
        self.next.is_none_or(|next| distance(next, sequence) > 0)
    }

    fn append(&mut self, sequence: u32, payload: &[u8]) {
        let Some(next) = self.next else { return };
        let had = usize::try_from(distance(sequence, next)).unwrap_or(0);
        let Some(new) = payload.get(had..) else { return };
        self.octets.extend_from_slice(new);
        #[expect(clippy::cast_possible_truncation, reason = "a payload is shorter than an IP packet")]
        let octets = new.len() as u32;
        self.next = Some(next.wrapping_add(octets));
    }
}

/// Returns the distance from `from` to `to` modulo 2^32; negative if `to` is before `from`.
const fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from).cast_signed()
}

/// A TCP segment.
struct Segment<'a> {
    src: SocketAddr,
    dst: SocketAddr,
    /// The number of the SYN, or of the first octet of the payload.
    sequence: u32,
    syn: bool,
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    fn read(ip: &IpPacket<'a>) -> Option<Self> {
        if ip.protocol != TCP {
            return None;
        }
        let mut r = Reader::new(ip.payload);
        let (src_port, dst_port, sequence) = (r.u16().ok()?, r.u16().ok()?, r.u32().ok()?);
        r.take(4).ok()?;
        let [offset, flags] = r.array().ok()?;
        r.take((usize::from(offset >> 4) * 4).checked_sub(14)?).ok()?;
        Some(Self {
            src: SocketAddr::new(ip.src, src_port),
            dst: SocketAddr::new(ip.dst, dst_port),
            sequence,
            syn: flags & 0x02 != 0,
            payload: r.take_rest(),
        })
    }
}

/// How a connection is split into messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// By the common header (RFC 5971 A.1).
    Gist,
    /// By the Length Header, which is part of the message.
    Casp,
}

impl Framing {
    /// The framing of connections between these ports.
    fn of(src: u16, dst: u16) -> Self {
        if casp::is_stream(src, dst) { Self::Casp } else { Self::Gist }
    }

    /// The first message in a direction, if all of it is there.
    fn whole(self, octets: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Gist => {
                let [_, _, high, low, ..] = octets else { return None };
                octets.get(..HEADER + 4 * usize::from(u16::from_be_bytes([*high, *low])))
            }
            Self::Casp => octets.get(..frame(octets, LONGEST).ok()??),
        }
    }

    /// Whether these octets, of which more can follow, begin a message.
    fn goes_on(self, octets: &[u8]) -> bool {
        match self {
            // The content types of TLS. What begins with another version than 1 is a message that a node answers with an error.
            Self::Gist => octets.first().is_none_or(|first| !(20..=23).contains(first)),
            Self::Casp => frame(octets, LONGEST).is_ok(),
        }
    }

    fn is_message(self, octets: &[u8]) -> bool {
        match self {
            Self::Gist => Message::parse(octets, Encapsulation::Association).is_ok(),
            Self::Casp => casp::parse(octets).is_ok(),
        }
    }

    /// Whether a segment can begin with a message.
    fn begins(self, payload: &[u8]) -> bool {
        let header = match self {
            Self::Gist => Header::parse(payload).is_ok(),
            Self::Casp => payload.len() >= HEADER && self.goes_on(payload),
        };
        header && self.whole(payload).is_none_or(|octets| self.is_message(octets))
    }
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Flow {
    order: Ordered,
    /// A message was found in it.
    known: bool,
}

/// The connections of a capture.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    flows: HashMap<(SocketAddr, SocketAddr), Flow>,
}

impl Streams {
    /// Reads a packet; `message` is called with the addresses of each message that it completes, its framing, and the message.
    /// A direction is one of CASP by its port. It is one of GIST if its port is that of GIST, or if its first octets are a whole message.
    /// Other connections, TLS among them, are passed over.
    ///
    /// # Errors
    /// Those of `message`.
    pub(crate) fn take<E>(
        &mut self,
        ip: &IpPacket<'_>,
        mut message: impl FnMut(SocketAddr, SocketAddr, Framing, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(segment) = Segment::read(ip) else { return Ok(()) };
        let Segment { src, dst, sequence, syn, payload } = segment;
        if syn {
            if self.flows.len() < MOST {
                let flow = Flow { order: Ordered::from(sequence.wrapping_add(1)), known: false };
                self.flows.insert((src, dst), flow);
            }
            return Ok(());
        }
        if payload.is_empty() {
            return Ok(());
        }
        let framing = Framing::of(src.port(), dst.port());
        let known = self.flows.contains_key(&(src, dst));
        if !known {
            // The connection is older than the capture. It is followed from a segment that begins with a message.
            if !framing.begins(payload) || self.flows.len() >= MOST {
                return Ok(());
            }
            self.flows.insert((src, dst), Flow { order: Ordered::from(sequence), known: false });
        }
        let Some(flow) = self.flows.get_mut(&(src, dst)) else { return Ok(()) };
        let followed = flow.order.take(sequence, payload);
        let named = framing == Framing::Casp || src.port() == PORT || dst.port() == PORT;
        let mut is_ours = true;
        while let Some(octets) = framing.whole(flow.order.octets()) {
            is_ours = flow.known || named && framing.goes_on(octets) || framing.is_message(octets);
            if !is_ours {
                break;
            }
            flow.known = true;
            message(src, dst, framing, octets)?;
            let length = octets.len();
            flow.order.discard(length);
        }
        if !followed || !is_ours || !framing.goes_on(flow.order.octets()) {
            self.flows.remove(&(src, dst));
        }
        Ok(())
    }
}
