//! The record that one node adds to a message.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_wire::{Reader, Short, Writer};

use crate::error::DecodeError;

/// Length of a record with an IPv4 address, in octets.
pub const IPV4_RECORD_OCTETS: usize = 16;
/// Length of a record with an IPv6 address, in octets.
pub const IPV6_RECORD_OCTETS: usize = 28;
/// Largest time that a record holds: 52 bits of microseconds since 1970, until the year 2112.
pub const MAX_TIME_US: u64 = (1 << 52) - 1;

/// The record of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Record {
    /// The node's address.
    pub address: IpAddr,
    /// When the message reached the application, in microseconds since 1970 by the node's own clock;
    /// at most [`MAX_TIME_US`].
    pub received_us: u64,
    /// How long the application held the message, in microseconds; the largest value means this time or more.
    pub held_us: u32,
    /// Routers between the previous node that has the application and this one; 0: no router, or not known.
    pub ip_distance: u8,
}

impl Record {
    /// Length of this record in octets.
    #[must_use]
    pub const fn octets(&self) -> usize {
        if self.address.is_ipv4() { IPV4_RECORD_OCTETS } else { IPV6_RECORD_OCTETS }
    }

    /// When the application passed the message on, in microseconds since 1970 by the node's own clock.
    #[must_use]
    pub const fn sent_us(&self) -> u64 {
        self.received_us.saturating_add(self.held_us as u64)
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        let family: u64 = if self.address.is_ipv4() { 4 } else { 6 };
        w.u64(family << 60 | u64::from(self.ip_distance) << 52 | self.received_us.min(MAX_TIME_US));
        w.u32(self.held_us);
        match self.address {
            IpAddr::V4(address) => w.bytes(&address.octets()),
            IpAddr::V6(address) => w.bytes(&address.octets()),
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let offset = r.offset();
        let cut = |field| move |short: Short| DecodeError::Short { field, short };
        let word = r.u64().map_err(cut("received"))?;
        let held_us = r.u32().map_err(cut("held"))?;
        let [top, next, ..] = word.to_be_bytes();
        let address = match top >> 4 {
            4 => IpAddr::V4(Ipv4Addr::from(r.array::<4>().map_err(cut("address"))?)),
            6 => IpAddr::V6(Ipv6Addr::from(r.array::<16>().map_err(cut("address"))?)),
            found => return Err(DecodeError::Family { found, offset }),
        };
        let ip_distance = (top & 0x0f) << 4 | next >> 4;
        Ok(Self { address, received_us: word & MAX_TIME_US, held_us, ip_distance })
    }
}

/// The records of a list, as octets of the message. All were checked when the message was parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Records<'a> {
    octets: &'a [u8],
    count: u8,
}

impl<'a> Records<'a> {
    /// Number of records.
    #[must_use]
    pub const fn count(&self) -> u8 {
        self.count
    }

    /// The octets of all records.
    #[must_use]
    pub const fn octets(&self) -> &'a [u8] {
        self.octets
    }

    /// The records, in the order in which the message met the nodes.
    pub fn iter(&self) -> impl Iterator<Item = Record> + use<'a> {
        let mut r = Reader::new(self.octets);
        // All records were checked when the message was parsed.
        core::iter::from_fn(move || if r.is_empty() { None } else { Record::decode(&mut r).ok() })
    }

    pub(super) fn parse(r: &mut Reader<'a>, count: u8) -> Result<Self, DecodeError> {
        let start = r.peek_rest();
        for _ in 0..count {
            // Only the address family decides whether a record is right: the rest is not decoded yet.
            let octets = match r.peek_rest().first().map(|first| first >> 4) {
                Some(4) => IPV4_RECORD_OCTETS,
                Some(6) => IPV6_RECORD_OCTETS,
                _ => 0,
            };
            if octets == 0 || r.take(octets).is_err() {
                Record::decode(r)?;
            }
        }
        let (octets, _) = start.split_at(start.len() - r.left());
        Ok(Self { octets, count })
    }
}
