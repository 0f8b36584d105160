//! A short way to what was found lately: messages of one neighbour come many in a row.

use core::net::IpAddr;

/// Power of two.
const PLACES: usize = 16;

/// Numbers of records that were found lately, by a few bits of an address. They may be of other records by now: whoever
/// asks compares, and looks where all are if it is none.
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

    /// Some number, probably that of this address.
    #[expect(clippy::indexing_slicing, reason = "a remainder")]
    pub(crate) const fn get(&self, addr: IpAddr) -> u32 {
        self.0[Self::place(addr)]
    }

    #[expect(clippy::indexing_slicing, reason = "a remainder")]
    pub(crate) const fn set(&mut self, addr: IpAddr, number: u32) {
        self.0[Self::place(addr)] = number;
    }
}
