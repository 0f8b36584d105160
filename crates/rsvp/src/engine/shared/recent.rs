//! A cache in front of an index of addresses: a neighbor often sends many messages in a row.

use core::net::IpAddr;

/// Entries of the cache, a power of two.
const PLACES: usize = 16;

/// Numbers of records that were found last, by the last bits of their addresses. A number may belong to another record by
/// now: the caller compares the address, and looks in the index if it differs.
#[derive(Debug)]
pub(crate) struct Recent([u32; PLACES]);

impl Recent {
    pub(crate) const fn new() -> Self {
        Self([0; PLACES])
    }

    const fn place(addr: IpAddr) -> usize {
        let last = match addr {
            IpAddr::V4(v4) => v4.octets()[3],
            IpAddr::V6(v6) => v6.octets()[15],
        };
        last as usize % PLACES
    }

    /// The number stored for an address, or for another address with the same last bits.
    pub(crate) fn get(&self, addr: IpAddr) -> u32 {
        self.0.get(Self::place(addr)).copied().unwrap_or_default()
    }

    /// Stores the number of an address.
    pub(crate) fn set(&mut self, addr: IpAddr, number: u32) {
        if let Some(stored) = self.0.get_mut(Self::place(addr)) {
            *stored = number;
        }
    }
}
