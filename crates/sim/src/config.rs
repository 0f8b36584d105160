//! Descriptions of nodes and links, as tests give them to a network.

use core::fmt;
use core::time::Duration;

/// A node of the simulation. Nodes are numbered from 0 in the order in which they were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A link of the simulation. Links are numbered from 0 in the order in which they were added.
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

/// Impairment of the packets of one direction of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Impairment {
    /// Delay on the link. 1 ms by default.
    pub delay: Duration,
    /// Largest extra delay, evenly distributed. Packets that are closer together than that may be reordered.
    /// Zero by default.
    pub jitter: Duration,
    /// Probability that a packet is lost, 0 to 1.
    pub loss: f64,
    /// Probability that a packet arrives twice, 0 to 1. Each copy has its own jitter.
    pub duplication: f64,
}

impl Default for Impairment {
    fn default() -> Self {
        Self { delay: Duration::from_millis(1), jitter: Duration::ZERO, loss: 0.0, duplication: 0.0 }
    }
}

impl Impairment {
    /// An impairment with the default delay and this probability of loss, 0 to 1.
    #[must_use]
    pub fn lossy(loss: f64) -> Self {
        Self { loss, ..Self::default() }
    }
}

/// A point-to-point link; the impairment holds in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkConfig {
    /// Impairment of packets, in both directions.
    pub impairment: Impairment,
    /// Largest IP packet, in octets. 1500 by default.
    pub mtu: u32,
    /// Cost of the link for shortest paths, at least 1. 1 by default.
    pub cost: u32,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self { impairment: Impairment::default(), mtu: 1500, cost: 1 }
    }
}

impl LinkConfig {
    /// A link with this impairment and default values otherwise.
    #[must_use]
    pub fn impaired(impairment: Impairment) -> Self {
        Self { impairment, ..Self::default() }
    }
}

/// Next hop of a prefix in a node's routing table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHop {
    /// The other end of this link. The entry does not count while the link is down.
    Link(LinkId),
    /// No next hop: the destination is unreachable.
    Unreachable,
    /// No next hop: an administrator prohibits the destination.
    Prohibited,
}
