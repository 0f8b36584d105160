//! The configuration of enforcement, and the capabilities of this machine.

use std::fmt;

use signalbox_core::IfIndex;

use super::htb;
use super::signaling::Signaling;
use crate::scope::Scope;

/// The reaction where the kernel cannot enforce everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Enforcement {
    /// Refuse to start, and refuse reservations that cannot be enforced completely.
    #[default]
    Required,
    /// Enforce what the kernel can, and grant the other reservations without enforcement.
    BestEffort,
    /// Change nothing in the kernel, and grant everything.
    Off,
}

/// The configuration of the enforcer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficConfig {
    /// The reaction where the kernel cannot enforce everything.
    pub enforcement: Enforcement,
    /// The VRF that the interfaces belong to: one of another is like one that does not exist.
    pub scope: Scope,
    /// The outgoing interfaces with reservations; the enforcer does not touch others.
    pub links: Vec<LinkConfig>,
    /// Whether to use eBPF where the kernel allows it. Without it there is no strict policing, and no more
    /// reservations than classes.
    pub ebpf: bool,
    /// The properties by which signaling is recognised, which has a share of each link.
    pub signaling: Signaling,
}

impl Default for TrafficConfig {
    fn default() -> Self {
        Self {
            enforcement: Enforcement::default(),
            scope: Scope::default(),
            links: Vec::new(),
            ebpf: true,
            signaling: Signaling::default(),
        }
    }
}

/// An outgoing interface with reservations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkConfig {
    /// Name of the interface.
    pub name: String,
    /// The rate of the link, in octets of IP packets a second, from 1,000.
    pub rate: u64,
    /// The most that all reservations may have together, in octets a second, at most `rate`. Best effort is guaranteed
    /// the rest.
    pub reservable: u64,
    /// The rate guaranteed to signaling, in octets a second, at most half of `rate`. With 0, signaling is best effort.
    /// The rate is taken from the rest that best effort has. Where that is too small, the guarantees exceed the link's
    /// rate by the difference.
    pub signaling: u64,
    /// Number of reservations with a queue of their own, 0–2,000. Those beyond it share a queue, and each is policed.
    pub classes: u16,
    /// Most reservations at a time, 1–1,000,000. Each takes about 400 octets in the kernel.
    pub max_reservations: u32,
}

impl LinkConfig {
    /// A link with 1,000 queues and 16,384 reservations, which may have 90 % of `rate` (octets a second), and 2 % for
    /// signaling, as [`Self::signaling`] computes.
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

    /// The rate for signaling, `wanted` octets a second within the useful limits of a link of `rate`: not less than 64
    /// kbit/s, and not more than a quarter of the link. 0 stays 0.
    #[must_use]
    pub fn signaling(wanted: u64, rate: u64) -> u64 {
        if wanted == 0 { 0 } else { wanted.max(8000).min(rate / 4) }
    }

    /// The fault of the configuration, if it has one.
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

/// The method that keeps traffic beyond a reservation from harming other traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policing {
    /// A token bucket for each reservation, exactly as specified (eBPF).
    TokenBucket,
    /// The class is never served faster than reserved: the excess waits, and is then lost.
    ClassCeiling,
    /// No policing.
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

/// The enforcement at an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Name of the interface.
    pub name: String,
    /// The number of the interface; [`IfIndex::NONE`] while there is no such interface.
    pub ifindex: IfIndex,
    /// Whether reserved packets have queues of their own.
    pub queues: bool,
    /// The policing of excess.
    pub policing: Policing,
    /// Whether the enforcer can mark conforming packets with another code point.
    pub marking: bool,
    /// Number of own queues, and number of those in use.
    pub classes: (u16, u16),
    /// Most reservations, and number of present ones.
    pub reservations: (u32, u32),
    /// The missing capabilities and the reasons, as text for users.
    pub lacking: Vec<String>,
}
