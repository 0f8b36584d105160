//! Addresses packed in 4 octets: an IPv4 address as it is, an IPv6 address as the number of a shared entry.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_core::index::KeyedHasher;
use signalbox_core::intern::Interner;
use signalbox_core::slab::Full;

/// The IPv6 addresses that records refer to.
#[derive(Debug)]
pub(crate) struct Packed {
    v6: Interner<Ipv6Addr>,
}

impl Packed {
    pub(crate) const fn new(limit: u32, hasher: KeyedHasher) -> Self {
        Self { v6: Interner::new(limit, hasher) }
    }

    /// Packs an address and takes a reference to it, which [`Self::release`] gives back.
    pub(crate) fn pack(&mut self, address: IpAddr) -> Result<u32, Full> {
        match address {
            IpAddr::V4(a) => Ok(a.to_bits()),
            IpAddr::V6(a) => self.v6.intern(a),
        }
    }

    /// The packed form of an address that some record refers to; `None` if none does.
    pub(crate) fn find(&self, address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(a) => Some(a.to_bits()),
            IpAddr::V6(a) => self.v6.find(&a),
        }
    }

    /// The address of a packed form.
    pub(crate) fn unpack(&self, packed: u32, v6: bool) -> IpAddr {
        if v6 {
            IpAddr::V6(self.v6.lookup(packed).copied().unwrap_or(Ipv6Addr::UNSPECIFIED))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits(packed))
        }
    }

    /// Gives back a reference.
    pub(crate) fn release(&mut self, packed: u32, v6: bool) {
        if v6 {
            self.v6.release(packed);
        }
    }

    /// Whether no record refers to an IPv6 address.
    pub(crate) const fn is_empty(&self) -> bool {
        self.v6.is_empty()
    }
}
