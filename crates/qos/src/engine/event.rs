//! What a user hears.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::{Mri, SessionId};

use crate::wire;

/// What a user hears of a command. [`QosEvent::Refused`], [`QosEvent::Failed`], [`QosEvent::Lost`],
/// [`QosEvent::Released`] and [`QosEvent::Answer`] are the last of their command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum QosEvent {
    /// Signaling began.
    Started {
        /// The session.
        session: SessionId,
        /// Its flow.
        mri: Mri,
    },
    /// It never began: the command itself is wrong.
    Refused(Refusal),
    /// The whole path granted it.
    Granted(Granted),
    /// The path, or a node of it, did not grant it. A change that was not granted leaves what stood before; then
    /// this is not the last event.
    Failed(Failure),
    /// The path changed, and the new one granted it too.
    Rerouted(Granted),
    /// A node does not hold it any more.
    Lost(Failure),
    /// It is torn down.
    Released,
    /// What the path could give.
    Answer(Answer),
}

/// A granted reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Granted {
    /// The session.
    pub session: SessionId,
    /// What it gives.
    pub quality: Quality,
    /// Nodes on the way that told what they hold, this one first, in the order in which the request met them.
    pub hops: Vec<HopGrant>,
    /// Somewhere on the path there are routers that provide no QoS.
    pub gaps: bool,
    /// The session of the way back, where there is one; it stands as well.
    pub back: Option<SessionId>,
}

/// What a node holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HopGrant {
    /// The node's address on the side that the request came from.
    pub address: IpAddr,
    /// Rate in octets a second; 0 where the flow ends and nothing needs to be held.
    pub rate: u64,
    /// There are routers without the application before it.
    pub after_gap: bool,
}

impl From<wire::Hop> for HopGrant {
    fn from(hop: wire::Hop) -> Self {
        Self { address: hop.address, rate: hop.rate, after_gap: hop.after_gap }
    }
}

/// The quality of a path, as the QSPEC says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Quality {
    /// Rate in octets a second, if it is told.
    pub rate: Option<u64>,
    /// Burst in octets.
    pub burst: Option<u32>,
    /// Bound of the queueing delay (RFC 2212), if the path exports what it takes to compute it.
    pub delay_bound: Option<Duration>,
    /// Latency of the path without queueing, in microseconds, if told.
    pub latency_us: Option<u32>,
}

/// What a path could give.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Answer {
    /// The session of the question.
    pub session: SessionId,
    /// What is available.
    pub available: Quality,
    /// Nodes on the way and what each could give, in octets a second.
    pub hops: Vec<HopGrant>,
    /// Somewhere on the path there are routers that provide no QoS.
    pub gaps: bool,
}

/// What went wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Failure {
    /// Class of the INFO-SPEC (RFC 5974 §5.1.3.6); 0 if no node said anything.
    pub class: u8,
    /// Code within the class.
    pub code: u8,
    /// What that means.
    pub meaning: String,
    /// The node that says so, if it tells.
    pub node: Option<String>,
    /// The rule that refused, or other words of that node.
    pub rule: Option<String>,
    /// What could be had, in octets a second, if the node tells.
    pub available: Option<u64>,
    /// Nodes before it that granted.
    pub hops: Vec<HopGrant>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.meaning)?;
        if let Some(node) = &self.node {
            write!(f, " at {node}")?;
        }
        if let Some(rule) = &self.rule {
            write!(f, ": {rule}")?;
        }
        Ok(())
    }
}

/// Why a command is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Refusal {
    /// The node does not run the application.
    NoApplication,
    /// A command with this id runs already.
    IdInUse,
    /// As many run as the configuration allows.
    TooMany,
    /// No source address is given, and no route to the destination gives one.
    NoRoute,
    /// The addresses are not unicast, or of different IP versions.
    Address,
    /// Ports or an SPI without a protocol.
    Ports,
    /// A value out of its range, or two wishes that exclude each other.
    Value,
    /// This node keeps no state, so it starts nothing.
    Stateless,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoApplication => "this node does not run the QoS application",
            Self::IdInUse => "a command with this id runs already",
            Self::TooMany => "as many reservations run as the configuration allows",
            Self::NoRoute => "no route to the destination",
            Self::Address => "source and destination must be unicast addresses of the same IP version",
            Self::Ports => "ports and SPI need a protocol",
            Self::Value => "a value is out of its range, or two wishes exclude each other",
            Self::Stateless => "this node keeps no state of sessions and starts none",
        })
    }
}
