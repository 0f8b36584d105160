//! Events for users.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::{Mri, SessionId};

use crate::wire::{self, Part};

/// An event of a command. [`QosEvent::Refused`], [`QosEvent::Failed`], [`QosEvent::Lost`], [`QosEvent::Released`] and
/// [`QosEvent::Answer`] are the last of their command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum QosEvent {
    /// Signaling has started.
    Started {
        /// The session.
        session: SessionId,
        /// Its flow.
        mri: Mri,
    },
    /// The command is invalid or cannot run here: no signaling has started.
    Refused(Refusal),
    /// The whole path granted the reservation.
    Granted(Granted),
    /// A node of the path refused the reservation, or no RESPONSE came. If a change is refused, the earlier
    /// reservation stays, and this is not the last event.
    Failed(Failure),
    /// The path has changed, and the new one granted the reservation.
    Rerouted(Granted),
    /// A node has lost the reservation.
    Lost(Failure),
    /// The reservation is torn down.
    Released,
    /// The QoS that the path can give.
    Answer(Answer),
}

/// A granted reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Granted {
    /// The session.
    pub session: SessionId,
    /// The QoS of the reservation.
    pub quality: Quality,
    /// Nodes that reported their grant, this one first, in the order of the request.
    pub hops: Vec<HopGrant>,
    /// Some routers of the path provide no QoS.
    pub gaps: bool,
    /// Whether the end of the flow itself answered; `None` if the answer does not report it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub far_end: Option<bool>,
    /// The session of the reverse direction of a bidirectional reservation; it is granted too.
    pub back: Option<SessionId>,
}

/// The grant of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HopGrant {
    /// Address of the interface by which the request arrived.
    pub address: IpAddr,
    /// Rate in octets a second; 0 at the end of the flow.
    pub rate: u64,
    /// Routers without QoS NSLP are before it.
    pub after_gap: bool,
    /// How many; 0 if that is not known.
    #[cfg_attr(feature = "serde", serde(default))]
    pub routers: u8,
}

impl From<wire::Hop> for HopGrant {
    fn from(hop: wire::Hop) -> Self {
        let rate = match hop.part {
            Part::Rate(rate) => rate,
            Part::End | Part::Opened | Part::Translated | Part::Reserved | Part::Blocked | Part::Passed => 0,
        };
        Self { address: hop.address, rate, after_gap: hop.after_gap, routers: hop.routers }
    }
}

/// The QoS of a path by its QSPEC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Quality {
    /// Rate in octets a second, if the QSPEC has one.
    pub rate: Option<u64>,
    /// Burst in octets.
    pub burst: Option<u32>,
    /// Largest packet in octets.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_packet: Option<u32>,
    /// Bound of the queueing delay (RFC 2212), if the QSPEC has the parameters to compute it.
    pub delay_bound: Option<Duration>,
    /// Latency of the path without queueing, in microseconds, if the QSPEC has it.
    pub latency_us: Option<u32>,
}

/// The result of a QUERY.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Answer {
    /// The session of the QUERY.
    pub session: SessionId,
    /// The available QoS.
    pub available: Quality,
    /// Nodes of the path, and the rate available at each, in octets a second.
    pub hops: Vec<HopGrant>,
    /// Some routers of the path provide no QoS.
    pub gaps: bool,
    /// Whether the end of the flow itself answered; `None` if the answer does not report it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub far_end: Option<bool>,
}

/// An error, and the node that reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Failure {
    /// Class of the INFO-SPEC (RFC 5974 §5.1.3.6); 0 if no node reported an error.
    pub class: u8,
    /// Code within the class.
    pub code: u8,
    /// Meaning of class and code.
    pub meaning: String,
    /// The node that reported the error, if known.
    pub node: Option<String>,
    /// The rule that refused, or another text of that node.
    pub rule: Option<String>,
    /// Available rate in octets a second, if the node reports it.
    pub available: Option<u64>,
    /// Nodes that granted the request before it failed.
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

/// The reason why a command is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Refusal {
    /// The node does not run the application.
    NoApplication,
    /// A command with this id runs already.
    IdInUse,
    /// The configured number of commands runs.
    TooMany,
    /// The command has no source address, and no route gives one.
    NoRoute,
    /// The addresses are not unicast, or of different IP versions.
    Address,
    /// Ports or an SPI without a protocol.
    Ports,
    /// A value is out of its range, or two values exclude each other.
    Value,
    /// This node keeps no session state, so it cannot start a session.
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
