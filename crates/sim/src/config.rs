//! What a network is made of, as tests describe it.

use core::fmt;
use core::time::Duration;

/// A node of the simulation; numbered from 0 as added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A link of the simulation; numbered from 0 as added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl NodeId {
    pub(crate) const fn at(self) -> usize {
        self.0 as usize
    }
}

impl LinkId {
    pub(crate) const fn at(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "l{}", self.0)
    }
}

/// IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What a link does to the packets of one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Impairment {
    /// Time on the way. 1 ms by default.
    pub delay: Duration,
    /// Up to this much more, evenly spread: packets closer together than that change order. None by default.
    pub jitter: Duration,
    /// Chance that a packet is lost, 0 to 1.
    pub loss: f64,
    /// Chance that a packet arrives twice, 0 to 1; each copy has its own jitter.
    pub duplication: f64,
}

impl Default for Impairment {
    fn default() -> Self {
        Self { delay: Duration::from_millis(1), jitter: Duration::ZERO, loss: 0.0, duplication: 0.0 }
    }
}

impl Impairment {
    /// Default delay and this chance of loss, 0 to 1.
    #[must_use]
    pub fn lossy(loss: f64) -> Self {
        Self { loss, ..Self::default() }
    }
}

/// A point-to-point link; the impairment holds in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkConfig {
    /// What happens to packets.
    pub impairment: Impairment,
    /// Largest IP packet, in octets. 1500 by default.
    pub mtu: u32,
    /// What shortest paths add up, at least 1. 1 by default.
    pub cost: u32,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self { impairment: Impairment::default(), mtu: 1500, cost: 1 }
    }
}

impl LinkConfig {
    /// Everything by default but the impairment.
    #[must_use]
    pub fn impaired(impairment: Impairment) -> Self {
        Self { impairment, ..Self::default() }
    }
}

/// Where a node's routing table sends a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHop {
    /// To the other end of this link; the entry does not count while the link is down.
    Link(LinkId),
    /// Nowhere.
    Unreachable,
    /// Nowhere, by somebody's will.
    Prohibited,
}
