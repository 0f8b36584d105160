//! The object by which a receiver asks to be reached at once, through all nodes of the path. It is private to Signalbox.
//!
//! An EXTERNAL of RFC 5973 opens nothing by itself, and the CREATE that opens names its sender. With this object the rule of each node
//! becomes active when the success RESPONSE passes, for all senders that are meant.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_wire::{Reader, Short, Writer};

use super::code_points::{Info, ObjectType};
use super::object::Object;
use crate::error::DecodeError;

/// Its type. A node of another make rejects the message because of the flags of the object (AB=00).
pub const PUBLICATION: ObjectType = ObjectType(2005);
/// Filters of one publication, at most.
pub const MAX_FILTERS: usize = 8;

/// Flags, wished port, wished address and lease key.
const FIXED_OCTETS: usize = 16;
const FILTER_OCTETS: usize = 20;
const OPENS: u8 = 0x80;
const EXACTLY: u8 = 0x40;
/// Bits of an IPv6 address before the IPv4 address that is mapped into it.
const MAPPED: u8 = 96;

/// Senders that may reach a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Filter {
    /// Their address.
    pub address: IpAddr,
    /// The bits of it that count.
    pub prefix: u8,
    /// Their port; `None`: any.
    pub port: Option<u16>,
}

/// What a publication asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wish {
    /// The rules become active without a CREATE.
    pub opens: bool,
    /// The edge grants the wished place or nothing.
    pub exactly: bool,
    /// The external address; `None`: any.
    pub address: Option<Ipv4Addr>,
    /// The external port; `None`: any.
    pub port: Option<u16>,
    /// What a node knows the lease of an earlier session by, whose initiator has lost it; zeros: nothing.
    pub key: [u8; 8],
    /// The senders that are meant; empty: those that NATFW_DTINFO names. Those beyond [`MAX_FILTERS`] are left out.
    pub filters: Vec<Filter>,
}

impl Wish {
    /// The value of the object.
    #[must_use]
    pub fn octets(&self) -> Vec<u8> {
        let mut octets = Vec::with_capacity(FIXED_OCTETS + FILTER_OCTETS * self.filters.len());
        let mut w = Writer::new(&mut octets);
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        w.u8(flag(self.opens, OPENS) | flag(self.exactly, EXACTLY));
        w.u8(0);
        w.u16(self.port.unwrap_or(0));
        w.bytes(&self.address.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
        w.bytes(&self.key);
        for filter in self.filters.iter().take(MAX_FILTERS) {
            let (prefix, address) = match filter.address {
                IpAddr::V4(v4) => (MAPPED + filter.prefix.min(32), v4.to_ipv6_mapped()),
                IpAddr::V6(v6) => (filter.prefix.min(128), v6),
            };
            w.u8(0);
            w.u8(prefix);
            w.u16(filter.port.unwrap_or(0));
            w.bytes(&address.octets());
        }
        octets
    }
}

/// The object in a message: its value, which was checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Publication<'a>(&'a [u8]);

impl<'a> Publication<'a> {
    /// The object with this value; `None`: it is no such value.
    #[must_use]
    pub fn of(octets: &'a [u8]) -> Option<Self> {
        let filters = octets.get(FIXED_OCTETS..)?;
        let whole =
            filters.len().is_multiple_of(FILTER_OCTETS) && filters.len() / FILTER_OCTETS <= MAX_FILTERS;
        let publication = Self(octets);
        (whole && publication.read().all(|filter| filter.is_some())).then_some(publication)
    }

    pub(super) fn parse(object: &Object<'a>) -> Result<Self, DecodeError> {
        let filters = object.value.len().checked_sub(FIXED_OCTETS).ok_or_else(|| object.wrong_length())?;
        if !filters.is_multiple_of(FILTER_OCTETS) || filters / FILTER_OCTETS > MAX_FILTERS {
            return Err(object.wrong_length());
        }
        let publication = Self(object.value);
        match publication.read().position(|filter| filter.is_none()) {
            Some(at) => {
                let offset = FIXED_OCTETS + at * FILTER_OCTETS + 1;
                Err(object.error(Info::UNKNOWN_VALUE, "prefix length of a filter", offset))
            }
            None => Ok(publication),
        }
    }

    /// The value of the object.
    #[must_use]
    pub const fn octets(&self) -> &'a [u8] {
        self.0
    }

    /// Whether the rules become active without a CREATE.
    #[must_use]
    pub fn opens(&self) -> bool {
        self.flags() & OPENS != 0
    }

    /// Whether the edge grants the wished place or nothing.
    #[must_use]
    pub fn exactly(&self) -> bool {
        self.flags() & EXACTLY != 0
    }

    /// The wished external port.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        let port =
            self.0.get(2..).and_then(|octets| octets.first_chunk()).map(|port| u16::from_be_bytes(*port));
        port.filter(|port| *port != 0)
    }

    /// The wished external address.
    #[must_use]
    pub fn address(&self) -> Option<Ipv4Addr> {
        let address = self.0.get(4..).and_then(|octets| octets.first_chunk::<4>());
        address.map(|address| Ipv4Addr::from(*address)).filter(|address| !address.is_unspecified())
    }

    /// What a node knows the lease of an earlier session by.
    #[must_use]
    pub fn key(&self) -> Option<[u8; 8]> {
        self.0.get(8..).and_then(|octets| octets.first_chunk::<8>()).copied().filter(|key| *key != [0; 8])
    }

    /// The senders that are meant.
    pub fn filters(&self) -> impl Iterator<Item = Filter> + use<'a> {
        self.read().flatten()
    }

    /// All of it.
    #[must_use]
    pub fn wish(&self) -> Wish {
        Wish {
            opens: self.opens(),
            exactly: self.exactly(),
            address: self.address(),
            port: self.port(),
            key: self.key().unwrap_or_default(),
            filters: self.filters().collect(),
        }
    }

    fn flags(&self) -> u8 {
        self.0.first().copied().unwrap_or(0)
    }

    /// Each filter; `None`: its prefix is longer than the address.
    fn read(&self) -> impl Iterator<Item = Option<Filter>> + use<'a> {
        let filters = self.0.get(FIXED_OCTETS..).unwrap_or_default();
        filters.as_chunks::<FILTER_OCTETS>().0.iter().map(filter)
    }
}

impl fmt::Debug for Publication<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wish().fmt(f)
    }
}

fn filter(octets: &[u8; FILTER_OCTETS]) -> Option<Filter> {
    let mut r = Reader::new(octets);
    let read = (|| Ok::<_, Short>((r.u8()?, r.u8()?, r.u16()?, r.array::<16>()?)))();
    let (_, prefix, port, address) = read.ok()?;
    let v6 = Ipv6Addr::from(address);
    let (address, prefix) = match v6.to_ipv4_mapped() {
        Some(v4) => (IpAddr::V4(v4), prefix.checked_sub(MAPPED)?),
        None => (IpAddr::V6(v6), prefix),
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    (prefix <= most).then_some(Filter { address, prefix, port: (port != 0).then_some(port) })
}
