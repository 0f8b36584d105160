//! What is configured of enforcement, and what this machine can do of it.

use std::fmt;

use signalbox_core::IfIndex;

use super::htb;
use super::signaling::Signaling;

/// What to do where the kernel cannot enforce everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Enforcement {
    /// Refuse to start, and refuse reservations that cannot be enforced whole.
    #[default]
    Required,
    /// Enforce what can be, grant the rest without.
    BestEffort,
    /// Touch nothing in the kernel; everything is granted.
    Off,
}

/// What the enforcer is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficConfig {
    /// What to do where the kernel cannot.
    pub enforcement: Enforcement,
    /// The outgoing interfaces to reserve at; others are not touched.
    pub links: Vec<LinkConfig>,
    /// Use eBPF where the kernel allows it. Without it there is no strict policing, no marking, and no more
    /// reservations than classes.
    pub ebpf: bool,
    /// How signaling is known, which has a share of each link.
    pub signaling: Signaling,
}

impl Default for TrafficConfig {
    fn default() -> Self {
        Self {
            enforcement: Enforcement::default(),
            links: Vec::new(),
            ebpf: true,
            signaling: Signaling::default(),
        }
    }
}

/// An outgoing interface to reserve at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkConfig {
    /// Name of the interface.
    pub name: String,
    /// What the link carries, octets of IP packets a second, from 1,000.
    pub rate: u64,
    /// How much of it reservations may have together, octets a second, at most `rate`. Best effort is sure of the
    /// rest.
    pub reservable: u64,
    /// How much of it signaling is sure of, octets a second, at most half of `rate`; 0: it is best effort. It is taken
    /// from the rest that best effort has; where that is too small, the link is promised that much more than whole.
    pub signaling: u64,
    /// Reservations with a queue of their own, 0–2,000; those beyond it share one and are policed each.
    pub classes: u16,
    /// Most reservations at a time, 1–1,000,000. Each takes about 400 octets in the kernel.
    pub max_reservations: u32,
}

impl LinkConfig {
    /// A link with room for 1,000 queues and 16,384 reservations, which may have 90 % of `rate` (octets a second), and
    /// 2 % for signaling, as [`Self::signaling`] says.
    #[must_use]
    pub fn new(name: impl Into<String>, rate: u64) -> Self {
        Self {
            name: name.into(),
            rate,
            reservable: rate / 10 * 9,
            signaling: Self::signaling(rate / 50, rate),
            classes: 1000,
            max_reservations: 16_384,
        }
    }

    /// `wanted` octets a second for signaling, as far as it makes sense at a link of `rate`: not less than 64 kbit/s, and
    /// not more than a quarter of the link. 0 stays 0.
    #[must_use]
    pub fn signaling(wanted: u64, rate: u64) -> u64 {
        if wanted == 0 { 0 } else { wanted.max(8000).min(rate / 4) }
    }

    /// What is wrong with it, if anything.
    pub(super) fn fault(&self) -> Option<String> {
        let Self { name, rate, reservable, signaling, classes, max_reservations } = self;
        if *rate < 1000 {
            Some(format!("{name}: a rate of {rate} octets/s, but 1,000 is the least"))
        } else if reservable > rate {
            Some(format!("{name}: {reservable} octets/s to reserve of {rate}"))
        } else if *signaling > rate / 2 {
            Some(format!("{name}: {signaling} octets/s for signaling of {rate}"))
        } else if *classes > htb::MOST_CLASSES {
            Some(format!("{name}: {classes} classes, but {} is the most", htb::MOST_CLASSES))
        } else if !(1..=1_000_000).contains(max_reservations) {
            Some(format!("{name}: {max_reservations} reservations, but 1 to 1,000,000 can be"))
        } else {
            None
        }
    }
}

/// How traffic beyond a reservation is kept from harming others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policing {
    /// A token bucket a reservation, exactly as specified (eBPF).
    TokenBucket,
    /// The class is never served faster than reserved: the excess waits, then is lost.
    ClassCeiling,
    /// Not at all.
    None,
}

impl fmt::Display for Policing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TokenBucket => "token bucket per reservation",
            Self::ClassCeiling => "ceiling of the class",
            Self::None => "none",
        })
    }
}

/// What is enforced at an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Name of the interface.
    pub name: String,
    /// Its number; [`IfIndex::NONE`] while there is no such interface.
    pub ifindex: IfIndex,
    /// Whether reserved packets have queues of their own.
    pub queues: bool,
    /// How excess is handled.
    pub policing: Policing,
    /// Whether conforming packets can get another code point.
    pub marking: bool,
    /// Own queues, and how many of them are taken.
    pub classes: (u16, u16),
    /// Reservations that can be, and that are.
    pub reservations: (u32, u32),
    /// What is missing and why, for people.
    pub lacking: Vec<String>,
}
