//! The rate of answers to packets whose source may be forged: INITs, and packets of no association.
//!
//! Such an answer needs no state, and has at most one and a half times the octets of its cause. Its rate is limited all the same,
//! because every host can be made its receiver.

use std::net::IpAddr;

use signalbox_core::shares::{RateShares, source};
use signalbox_core::{IfIndex, KeyedHasher, SharedRate, Time};

/// The part of the rate that one source may take at one interface.
const OF_SOURCE: u32 = 4;

/// Limits of one kind of answers: one source gets at most a quarter of the rate.
#[derive(Debug)]
pub(super) struct Answers {
    all: SharedRate,
    sources: RateShares,
}

impl Answers {
    /// Limits of `rate` answers a second, `burst` of them at once, and as many once more to known sources.
    pub(super) fn new(rate: u32, burst: u32, hasher: KeyedHasher) -> Self {
        let sources = RateShares::new(rate.div_ceil(OF_SOURCE), hasher);
        Self { all: SharedRate::new(rate, burst, Some(hasher)), sources }
    }

    /// Whether an answer to a packet with this source, which came in by this interface, may leave. `is_known`: whether the user has state
    /// of the source.
    pub(super) fn allow(
        &mut self,
        now: Time,
        (src, ifindex): (IpAddr, IfIndex),
        is_known: &dyn Fn(IpAddr) -> bool,
    ) -> bool {
        self.sources.allow(now, &(source(src), ifindex))
            && self.all.allow(now, (src, ifindex), || is_known(src))
    }
}
