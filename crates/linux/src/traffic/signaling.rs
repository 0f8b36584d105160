//! The share of signaling at each link: a flood must not displace the messages that act against it.
//!
//! Three kinds of signaling have a bucket each; packets beyond it are best effort. The packets of this node have a mark
//! that only its daemon can set. Port and protocol identify the signaling that passes by, and any host can send such
//! packets. Therefore passing packets cannot use the share of this node's own messages, and a flood of them gets no
//! more than its bucket. The third kind are the packets by which the kernel finds the next hop.

use signalbox_core::traffic::TrafficSpec;

use super::htb::{OWN_SIGNALING, PASSING_SIGNALING};
use crate::io::IoConfig;

/// The properties by which signaling is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signaling {
    /// Packet mark of packets that this node's daemon sends: [`crate::IoConfig::own_mark`]. Not 0.
    pub mark: u32,
    /// UDP, TCP or SCTP port, at either end, of signaling that passes by. RSVP (IP protocol 46) is recognised besides.
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
    /// Packets that this node sends.
    Own = 0,
    /// Packets that look like signaling of other nodes.
    Passing = 1,
    /// ARP and neighbor discovery.
    Neighbors = 2,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Own, Self::Passing, Self::Neighbors];

    /// Minor number of its class.
    pub(super) const fn class(self) -> u16 {
        match self {
            Self::Own => OWN_SIGNALING,
            Self::Passing | Self::Neighbors => PASSING_SIGNALING,
        }
    }

    /// The token bucket of this kind, a part of the share of signaling at a link.
    pub(super) fn bucket(self, signaling: u64) -> TrafficSpec {
        let rate = match self {
            Self::Own => signaling / 2,
            Self::Passing | Self::Neighbors => signaling / 4,
        };
        // A refresh of many sessions arrives in bursts: a quarter of a second, ten large packets at least.
        let burst = u32::try_from((rate / 4).clamp(16_000, 1_000_000)).unwrap_or(16_000);
        TrafficSpec { rate: rate.max(1), burst, peak: None, min_policed: 0, max_packet: 0 }
    }
}

/// The rate guaranteed to a class of signaling.
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
