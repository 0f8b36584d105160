//! Signaling has a share of each link: a flood must not push out the messages by which it is fought.
//!
//! Three kinds have a bucket each, and what exceeds it is best effort. What this node sends is known by a mark that only
//! its daemon can set. What passes by is known by port and protocol, which anybody can write on a packet; so it cannot
//! use up what this node's own messages are sure of, and gives a flood no more than its bucket. The packets by which the
//! kernel finds the next hop are the third.

use signalbox_core::traffic::TrafficSpec;

use super::htb::{OWN_SIGNALING, PASSING_SIGNALING};
use crate::io::IoConfig;

/// How packets of signaling are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signaling {
    /// Packet mark of what this node's daemon sends: [`crate::IoConfig::own_mark`]. Not 0.
    pub mark: u32,
    /// UDP, TCP or SCTP port, at either end, of what passes by. RSVP (IP protocol 46) passes besides.
    pub port: u16,
}

impl Default for Signaling {
    fn default() -> Self {
        Self { mark: IoConfig::default().own_mark, port: 270 }
    }
}

/// A kind of signaling, numbered as in `bpf/traffic.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What this node sends.
    Own = 0,
    /// What looks like signaling of others.
    Passing = 1,
    /// ARP and neighbour discovery.
    Neighbours = 2,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Own, Self::Passing, Self::Neighbours];

    /// Minor number of its class.
    pub(super) const fn class(self) -> u16 {
        match self {
            Self::Own => OWN_SIGNALING,
            Self::Passing | Self::Neighbours => PASSING_SIGNALING,
        }
    }

    /// Its part of what signaling has of a link.
    pub(super) fn bucket(self, signaling: u64) -> TrafficSpec {
        let rate = match self {
            Self::Own => signaling / 2,
            Self::Passing | Self::Neighbours => signaling / 4,
        };
        // A refresh of many sessions comes in bursts: a quarter of a second, ten large packets at least.
        let burst = u32::try_from((rate / 4).clamp(16_000, 1_000_000)).unwrap_or(16_000);
        TrafficSpec { rate: rate.max(1), burst, peak: None, min_policed: 0, max_packet: 0 }
    }
}

/// What a class of signaling is sure of.
pub(super) fn class_rate(class: u16, signaling: u64) -> u64 {
    Kind::ALL.into_iter().filter(|kind| kind.class() == class).map(|kind| kind.bucket(signaling).rate).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_have_no_more_than_the_whole() {
        for whole in [4, 8000, 25_000, 125_000_000] {
            let sum: u64 = Kind::ALL.map(|kind| kind.bucket(whole).rate).into_iter().sum();
            let classes = class_rate(OWN_SIGNALING, whole) + class_rate(PASSING_SIGNALING, whole);
            assert!(sum <= whole && sum + 3 >= whole, "{sum} of {whole}");
            assert_eq!(classes, sum);
        }
    }

    #[test]
    fn buckets_hold_some_packets_and_not_too_many() {
        assert_eq!(Kind::Own.bucket(8000).burst, 16_000);
        assert_eq!(Kind::Own.bucket(1_000_000).burst, 125_000);
        assert_eq!(Kind::Passing.bucket(1_000_000_000).burst, 1_000_000);
    }
}
