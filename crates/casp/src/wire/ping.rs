//! Ping, a client of this suite: each node on the way adds an entry. The paper on GoCASP has such a client; its octets were
//! not published.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_wire::{Reader, Short, Writer};

signalbox_wire::code_points! {
    /// Type of a Ping message.
    pub struct PingType(u8) {
        /// From the initiator.
        REQUEST = 1, "request";
        /// From the responder.
        REPLY = 2, "reply";
    }
}

/// Most entries of a message.
pub const MAX_ENTRIES: usize = 64;

/// A node that the request reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Entry {
    /// An address of the node.
    pub address: IpAddr,
    /// Hop count of the message there.
    pub hops: u8,
    /// When it came, microseconds by the node's own clock.
    pub time_us: u64,
}

/// Why octets are no Ping message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PingError {
    /// The octets end inside a field.
    #[error("{0}")]
    Short(Short),
    /// An unknown type.
    #[error("unknown type {0:?}")]
    Type(PingType),
    /// An entry whose address family is neither 4 nor 6.
    #[error("address family {family} at offset {offset}")]
    Family {
        /// The family.
        family: u8,
        /// Offset of the entry.
        offset: usize,
    },
    /// More entries than [`MAX_ENTRIES`], or octets behind the last one.
    #[error("{0} octets behind the entries")]
    Behind(usize),
}

impl From<Short> for PingError {
    fn from(short: Short) -> Self {
        Self::Short(short)
    }
}

/// A Ping message: type (8 bits), number of entries (8), zero (16), token (64), entries. An entry: family 4 or 6 (8), hop
/// count (8), zero (16), time (64), address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ping {
    /// Request or reply.
    pub kind: PingType,
    /// The initiator's number of the request.
    pub token: u64,
    /// The nodes that the request reached, in their order.
    pub entries: Vec<Entry>,
}

impl Ping {
    /// Reads a message.
    ///
    /// # Errors
    /// [`PingError`]: it is no Ping message.
    pub fn parse(octets: &[u8]) -> Result<Self, PingError> {
        let mut r = Reader::new(octets);
        let [kind, count, ..] = r.array::<4>()?;
        let (kind, token) = (PingType(kind), r.u64()?);
        if kind.name().is_none() {
            return Err(PingError::Type(kind));
        }
        if usize::from(count) > MAX_ENTRIES {
            return Err(PingError::Behind(r.left()));
        }
        let mut entries = Vec::with_capacity(count.into());
        for _ in 0..count {
            let offset = r.offset();
            let [family, hops, ..] = r.array::<4>()?;
            let time_us = r.u64()?;
            let address = match family {
                4 => IpAddr::V4(Ipv4Addr::from(r.array::<4>()?)),
                6 => IpAddr::V6(Ipv6Addr::from(r.array::<16>()?)),
                family => return Err(PingError::Family { family, offset }),
            };
            entries.push(Entry { address, hops, time_us });
        }
        if r.is_empty() { Ok(Self { kind, token, entries }) } else { Err(PingError::Behind(r.left())) }
    }

    /// Appends the message, with its first [`MAX_ENTRIES`] entries.
    pub fn encode(&self, octets: &mut Vec<u8>) {
        let mut w = Writer::new(octets);
        let entries = self.entries.get(..MAX_ENTRIES).unwrap_or(&self.entries);
        w.bytes(&[self.kind.0, u8::try_from(entries.len()).unwrap_or(u8::MAX), 0, 0]);
        w.u64(self.token);
        for entry in entries {
            w.bytes(&[if entry.address.is_ipv4() { 4 } else { 6 }, entry.hops, 0, 0]);
            w.u64(entry.time_us);
            match entry.address {
                IpAddr::V4(v4) => w.bytes(&v4.octets()),
                IpAddr::V6(v6) => w.bytes(&v6.octets()),
            }
        }
    }
}
