//! Addresses in 4 octets: those of IPv4 as they are, those of IPv6 as the number of an entry that all who use it share.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use signalbox_core::index::KeyedHasher;
use signalbox_core::intern::Interner;
use signalbox_core::slab::Full;

/// The IPv6 addresses in use.
#[derive(Debug)]
pub(crate) struct Addresses {
    v6: Interner<Ipv6Addr>,
}

impl Addresses {
    pub(crate) const fn new(limit: u32, hasher: KeyedHasher) -> Self {
        Self { v6: Interner::new(limit, hasher) }
    }

    /// Takes a reference, which [`Self::release`] gives back.
    pub(crate) fn pack(&mut self, address: IpAddr) -> Result<u32, Full> {
        match address {
            IpAddr::V4(a) => Ok(a.to_bits()),
            IpAddr::V6(a) => self.v6.intern(a),
        }
    }

    /// What [`Self::pack`] gave for this address, if anybody holds it.
    pub(crate) fn find(&self, address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(a) => Some(a.to_bits()),
            IpAddr::V6(a) => self.v6.find(&a),
        }
    }

    pub(crate) fn unpack(&self, packed: u32, v6: bool) -> IpAddr {
        if v6 {
            IpAddr::V6(self.v6.lookup(packed).copied().unwrap_or(Ipv6Addr::UNSPECIFIED))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits(packed))
        }
    }

    pub(crate) fn release(&mut self, packed: u32, v6: bool) {
        if v6 {
            self.v6.release(packed);
        }
    }

    /// No IPv6 address is held.
    pub(crate) const fn is_empty(&self) -> bool {
        self.v6.is_empty()
    }
}
