//! The list of grants on the path: a private object with AB=10, so that nodes of other makes forward it unread (RFC
//! 5974 §5.1.3, §6.2). The requesting node inserts an empty list, each node that grants appends an entry, and the
//! answering node returns the list.
//!
//! An entry is a word `family (4 or 6), flags, routers, 0`, the node's address, and the rate as 64 bits. `routers` is the number of
//! routers without the application before the node, 0 if it is not known.

use core::fmt;
use core::net::IpAddr;

use signalbox_wire::{Reader, Writer};

use super::code_points::Info;
use super::object::RawObject;
use crate::error::DecodeError;

/// A node appends no entry beyond this size. With the other objects a RESERVE then stays within the 512 octets that
/// GIST may send over a path of unknown MTU. It has room for 9 IPv4 or 5 IPv6 nodes.
pub const MAX_HOPS_OCTETS: usize = 144;

/// A node that granted a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// Address of the interface by which the request arrived.
    pub address: IpAddr,
    /// Rate that it reserved, in octets a second; 0 at the end of the flow.
    pub rate: u64,
    /// There are routers without the application between the node before it and this one.
    pub after_gap: bool,
    /// How many, by the TTL of the message; 0 if that is not known.
    pub routers: u8,
}

const AFTER_GAP: u8 = 0x01;

impl Hop {
    fn parse(r: &mut Reader<'_>) -> Option<Self> {
        let [family, flags, routers, _] = r.array().ok()?;
        let address = match family {
            4 => IpAddr::from(r.array::<4>().ok()?),
            6 => IpAddr::from(r.array::<16>().ok()?),
            _ => return None,
        };
        let rate = r.u64().ok()?;
        Some(Self { address, rate, after_gap: flags & AFTER_GAP != 0, routers })
    }

    /// Appends the entry.
    pub fn write(&self, w: &mut Writer<'_>) {
        let flags = if self.after_gap { AFTER_GAP } else { 0 };
        match self.address {
            IpAddr::V4(v4) => {
                w.bytes(&[4, flags, self.routers, 0]);
                w.bytes(&v4.octets());
            }
            IpAddr::V6(v6) => {
                w.bytes(&[6, flags, self.routers, 0]);
                w.bytes(&v6.octets());
            }
        }
        w.u64(self.rate);
    }

    /// Octets of the entry.
    #[must_use]
    pub const fn octets(&self) -> usize {
        12 + if self.address.is_ipv4() { 4 } else { 16 }
    }
}

/// The list, in the order of the path.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Hops<'a>(&'a [u8]);

impl<'a> Hops<'a> {
    /// From entries one after the other.
    ///
    /// # Errors
    /// `None` if one is cut or of an unknown family.
    #[must_use]
    pub fn from_octets(octets: &'a [u8]) -> Option<Self> {
        let mut r = Reader::new(octets);
        while !r.is_empty() {
            Hop::parse(&mut r)?;
        }
        Some(Self(octets))
    }

    pub(crate) fn parse(object: &RawObject<'a>) -> Result<Self, DecodeError> {
        Self::from_octets(object.value).ok_or_else(|| object.error(Info::BAD_VALUE, "hops", 0))
    }

    /// Each in turn.
    pub fn iter(&self) -> impl Iterator<Item = Hop> + use<'a> {
        let mut r = Reader::new(self.0);
        core::iter::from_fn(move || Hop::parse(&mut r))
    }

    /// As in the object's value.
    #[must_use]
    pub const fn octets(&self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for Hops<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
