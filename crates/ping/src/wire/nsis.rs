//! The message of the NSIS Ping tool (draft-juchem-nsis-ping-tool-02 §2.1). `docs/wire/nsis-ping.md` has a drawing, test
//! vectors, and what this implementation decides where the draft says nothing.
//!
//! Requests and replies are the same message: GIST gives the direction. The initiator says once, in front, which objects
//! each node writes. So each record has the same number of octets, and records have no headers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_wire::{Reader, Short, Writer};

use crate::error::NsisDecodeError;

/// The version of the format. Version -01 of the draft has the same number and other octets.
pub const VERSION: u8 = 1;
/// Length of the header in front of the object headers, in octets.
pub const HEADER_OCTETS: usize = 8;
/// Length of an object header in octets.
pub const OBJECT_HEADER_OCTETS: usize = 4;
/// Largest message in octets: the length field has 8 bits (draft §2.1).
pub const MAX_OCTETS: usize = 255;

signalbox_wire::code_points! {
    /// Type of an object (draft §2.1.1).
    pub struct ObjectType(u16) {
        /// Address of a node, 16 octets; IPv4 addresses are mapped into IPv6.
        ADDRESS = 1, "IP address";
        /// Seconds since 1970 and microseconds, 4 octets each.
        TIMESTAMP = 2, "timestamp";
    }
}

/// The object headers of our requests: address and timestamp.
const USUAL_OBJECTS: [u8; 8] = [0, 1, 0, 16, 0, 2, 0, 8];

/// The header of an object: what each node writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    /// Its type.
    pub kind: ObjectType,
    /// Octets of its data in each record.
    pub octets: u16,
}

/// What a node writes into its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Address of the node.
    pub address: IpAddr,
    /// Microseconds since 1970 by the clock of the node. Seconds have 32 bits, until the year 2106.
    pub time_us: u64,
}

/// The record of a node, as read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Its address; `None`: not requested, or left empty.
    pub address: Option<IpAddr>,
    /// Microseconds since 1970 by its clock; `None`: not requested, or left empty.
    pub time_us: Option<u64>,
}

/// A message, received or to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// How many nodes processed it after the initiator, there and back; 255: that number or more.
    pub hops: u8,
    /// Number of the message, chosen by its initiator.
    pub sequence: u32,
    objects: &'a [u8],
    records: &'a [u8],
    record_octets: usize,
}

impl<'a> Message<'a> {
    /// A message without records that asks each node for its address and time.
    #[must_use]
    pub const fn request(sequence: u32) -> Self {
        Self { hops: 0, sequence, objects: &USUAL_OBJECTS, records: &[], record_octets: 24 }
    }

    /// Parses a message at the begin of `payload`, without copying. What follows its length is padding.
    ///
    /// # Errors
    /// [`NsisDecodeError`] names the field that is wrong.
    pub fn parse(payload: &'a [u8]) -> Result<Self, NsisDecodeError> {
        let mut r = Reader::new(payload);
        let cut = |field| move |short: Short| NsisDecodeError::Short { field, short };
        let [version, hops, length, count] = r.array().map_err(cut("first word"))?;
        if version != VERSION {
            return Err(NsisDecodeError::Version { found: version });
        }
        let octets = payload.get(..length.into());
        let octets = octets.ok_or(NsisDecodeError::Length { found: length, payload: payload.len() })?;
        let mut r = Reader::new(octets);
        let _ = r.take(4);
        let sequence = r.u32().map_err(cut("sequence number"))?;
        let objects = r.take(usize::from(count) * OBJECT_HEADER_OCTETS).map_err(cut("object headers"))?;
        let record_octets = headers(objects).map(|object| usize::from(object.octets)).sum();
        let records = r.take_rest();
        let whole = match record_octets {
            0 => records.is_empty(),
            each => records.len().is_multiple_of(each),
        };
        if !whole {
            return Err(NsisDecodeError::Records { octets: records.len(), each: record_octets });
        }
        Ok(Self { hops, sequence, objects, records, record_octets })
    }

    /// The objects that each node writes, in order.
    pub fn objects(&self) -> impl Iterator<Item = Object> + use<'a> {
        headers(self.objects)
    }

    /// Octets of the message, which its length field contains.
    #[must_use]
    pub const fn octets(&self) -> usize {
        HEADER_OCTETS + self.objects.len() + self.records.len()
    }

    /// Whether the message has room for one more record.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.octets() + self.record_octets <= MAX_OCTETS
    }

    /// Number of records.
    #[must_use]
    pub fn count(&self) -> usize {
        self.records.len().checked_div(self.record_octets).unwrap_or(0)
    }

    /// The records, in the order in which the message met the nodes.
    pub fn records(&self) -> impl Iterator<Item = Record> + use<'a> {
        let objects = self.objects;
        self.records.chunks_exact(self.record_octets.max(1)).map(move |octets| Record::read(objects, octets))
    }

    /// Appends the message to `w`, with the record of a node at its end if `add` is given and there is room for it (draft
    /// §2.2). Zeros fill the last word, because GIST carries whole words; the length does not count them.
    pub fn encode(&self, add: Option<Stamp>, w: &mut Writer<'_>) {
        let add = add.filter(|_| self.has_room());
        let octets = self.octets() + if add.is_some() { self.record_octets } else { 0 };
        // A message that was read or made here has 255 octets at most, and has_room keeps this limit.
        let length = u8::try_from(octets).unwrap_or(u8::MAX);
        let count = u8::try_from(self.objects.len() / OBJECT_HEADER_OCTETS).unwrap_or(u8::MAX);
        w.bytes(&[VERSION, self.hops, length, count]);
        w.u32(self.sequence);
        w.bytes(self.objects);
        w.bytes(self.records);
        if let Some(stamp) = add {
            self.objects().for_each(|object| stamp.write(object, w));
        }
        w.bytes([0; 3].get(..octets.next_multiple_of(4) - octets).unwrap_or_default());
    }
}

fn headers(octets: &[u8]) -> impl Iterator<Item = Object> + use<'_> {
    octets.chunks_exact(OBJECT_HEADER_OCTETS).filter_map(|header| {
        let mut r = Reader::new(header);
        Some(Object { kind: ObjectType(r.u16().ok()?), octets: r.u16().ok()? })
    })
}

impl Stamp {
    /// Writes an object. One of unknown type, or of another length than the type has, is left empty (draft §2.1).
    fn write(&self, object: Object, w: &mut Writer<'_>) {
        match (object.kind, object.octets) {
            (ObjectType::ADDRESS, 16) => w.bytes(&mapped(self.address).octets()),
            (ObjectType::TIMESTAMP, 8) => {
                w.u32(u32::try_from(self.time_us / 1_000_000).unwrap_or(u32::MAX));
                w.u32(u32::try_from(self.time_us % 1_000_000).unwrap_or(0));
            }
            (_, octets) => (0..octets).for_each(|_| w.u8(0)),
        }
    }
}

const fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

impl Record {
    fn read(objects: &[u8], octets: &[u8]) -> Self {
        let mut record = Self { address: None, time_us: None };
        let mut r = Reader::new(octets);
        for object in headers(objects) {
            let Ok(data) = r.take(object.octets.into()) else { break };
            match (object.kind, <[u8; 16]>::try_from(data), <[u8; 8]>::try_from(data)) {
                (ObjectType::ADDRESS, Ok(octets), _) => record.address = record.address.or(address(octets)),
                (ObjectType::TIMESTAMP, _, Ok(octets)) => record.time_us = record.time_us.or(time(octets)),
                _ => {}
            }
        }
        record
    }
}

/// The address of an object. The draft does not say how 16 octets hold an IPv4 address: as a mapped address, or with zeros
/// in front of it or behind it.
fn address(octets: [u8; 16]) -> Option<IpAddr> {
    let v6 = Ipv6Addr::from(octets);
    match octets {
        _ if v6.is_unspecified() => None,
        _ if v6.is_loopback() => Some(IpAddr::V6(v6)),
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
        | [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
        _ => Some(v6.to_canonical()),
    }
}

fn time(octets: [u8; 8]) -> Option<u64> {
    let word = u64::from_be_bytes(octets);
    (word != 0).then(|| (word >> 32) * 1_000_000 + (word & 0xffff_ffff))
}
