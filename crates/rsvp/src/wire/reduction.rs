//! MESSAGE_IDs and lists of them (RFC 2961 §4, §5).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::code_points::Class;
use super::object::{ObjectType, RawObject};
use crate::error::{DecodeError, Fault};

/// MESSAGE_ID (RFC 2961 §4.2), or its copy in a MESSAGE_ID_ACK or MESSAGE_ID_NACK (§4.3). It is unique together with
/// the address of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// The flag ACK_Desired; false in ACKs.
    pub ack_desired: bool,
    /// The epoch of its node, 24 bits; it changes with each restart.
    pub epoch: u32,
    /// The identifier; it grows within an epoch, and wraps.
    pub id: u32,
}

impl MessageId {
    /// Largest epoch.
    pub const MAX_EPOCH: u32 = 0x00ff_ffff;
    const ACK_DESIRED: u8 = 0x01;

    /// Parses a MESSAGE_ID, MESSAGE_ID_ACK or MESSAGE_ID_NACK (RFC 2961 §4.2, §4.3).
    pub(crate) fn parse(object: &RawObject<'_>) -> Result<Self, DecodeError> {
        let [flags, e2, e1, e0, i3, i2, i1, i0] = object.array()?;
        Ok(Self {
            ack_desired: object.kind.class == Class::MESSAGE_ID && flags & Self::ACK_DESIRED != 0,
            epoch: u32::from_be_bytes([0, e2, e1, e0]),
            id: u32::from_be_bytes([i3, i2, i1, i0]),
        })
    }

    /// Flags and epoch as one integer.
    pub(crate) const fn word(&self) -> u32 {
        (self.epoch & Self::MAX_EPOCH) | if self.ack_desired { 1 << 24 } else { 0 }
    }

    /// Whether identifier `new` is lower than `old`, across the wrap (RFC 2961 §4.5).
    #[must_use]
    pub const fn is_before(new: u32, old: u32) -> bool {
        old.wrapping_sub(new).cast_signed() > 0
    }
}

/// One entry of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListedId {
    /// The identifier of the state.
    pub id: u32,
    /// Source of the multicast flow; in SRC_LISTs and MCAST_LISTs.
    pub source: Option<IpAddr>,
    /// Its group; in MCAST_LISTs.
    pub group: Option<IpAddr>,
}

/// MESSAGE_ID LIST, SRC_LIST or MCAST_LIST (RFC 2961 §5.1): identifiers of state to be refreshed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdList<'a> {
    /// The epoch of all identifiers.
    pub epoch: u32,
    c_type: u8,
    entries: &'a [u8],
}

impl<'a> IdList<'a> {
    /// Parses a MESSAGE_ID LIST, SRC_LIST or MCAST_LIST (RFC 2961 §5.1).
    pub(crate) fn parse(object: &RawObject<'a>) -> Result<Self, DecodeError> {
        let short = object.error(Fault::ObjectLength);
        let (&[_, e2, e1, e0], entries) = object.content().split_first_chunk().ok_or(short)?;
        let list = Self { epoch: u32::from_be_bytes([0, e2, e1, e0]), c_type: object.kind.c_type, entries };
        if entries.is_empty() || !entries.len().is_multiple_of(Self::entry_octets(list.c_type)) {
            return Err(short);
        }
        Ok(list)
    }

    /// Length of one entry, by C-Type.
    pub(crate) const fn entry_octets(c_type: u8) -> usize {
        match c_type {
            2 => 8,
            3 => 20,
            4 => 12,
            5 => 36,
            _ => 4,
        }
    }

    /// Its type; the C-Type shows which list it is.
    #[must_use]
    pub const fn kind(&self) -> ObjectType {
        ObjectType::new(Class::MESSAGE_ID_LIST, self.c_type)
    }

    /// Whether it is an SRC_LIST, which is sent to the address of a multicast session.
    #[must_use]
    pub const fn is_source_list(&self) -> bool {
        matches!(self.c_type, 2 | 3)
    }

    /// Number of entries, at least one.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len() / Self::entry_octets(self.c_type)
    }

    /// Whether there are no entries; always false.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry with this index.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<ListedId> {
        let octets = Self::entry_octets(self.c_type);
        let entry = self.entries.get(at.checked_mul(octets)?..)?.get(..octets)?;
        let (id, rest) = entry.split_first_chunk()?;
        let (source, group) = match self.c_type {
            2 => (v4(rest), None),
            3 => (v6(rest), None),
            4 => (v4(rest), rest.get(4..).and_then(v4)),
            5 => (v6(rest), rest.get(16..).and_then(v6)),
            _ => (None, None),
        };
        Some(ListedId { id: u32::from_be_bytes(*id), source, group })
    }

    /// The entries.
    pub fn ids(&self) -> impl Iterator<Item = ListedId> + use<'a> {
        let list = *self;
        (0..self.len()).map_while(move |at| list.get(at))
    }
}

fn v4(octets: &[u8]) -> Option<IpAddr> {
    octets.first_chunk().map(|octets: &[u8; 4]| IpAddr::V4(Ipv4Addr::from(*octets)))
}

fn v6(octets: &[u8]) -> Option<IpAddr> {
    octets.first_chunk().map(|octets: &[u8; 16]| IpAddr::V6(Ipv6Addr::from(*octets)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves RSVPRR-2961-4.5-10.
    #[test]
    fn identifiers_are_compared_across_the_wrap() {
        assert!(MessageId::is_before(4, 5));
        assert!(!MessageId::is_before(5, 5));
        assert!(!MessageId::is_before(6, 5));
        assert!(!MessageId::is_before(1, u32::MAX), "1 is newer than 0xFFFFFFFF");
        assert!(MessageId::is_before(u32::MAX, 1));
        assert!(MessageId::is_before(0x8000_0001, 0));
    }
}
