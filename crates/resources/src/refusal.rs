//! The reason of a refusal: the rule, as text and as a kind.

use core::fmt;
use std::sync::Arc;

use signalbox_core::IfIndex;
use signalbox_core::traffic::{FlowFilter, ServiceClass};

use crate::intserv::SpecError;
use crate::units::{Rate, Span, UsedOf};

/// A policy rule, by its position in the configuration and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleName {
    /// Position. The first is 1.
    pub number: u32,
    /// Name as configured; may be empty.
    pub name: Arc<str>,
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}", self.number)?;
        if self.name.is_empty() { Ok(()) } else { write!(f, " '{}'", self.name) }
    }
}

/// A request was refused. Its text is one line that names the rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The rule that refused.
    pub rule: Rule,
    /// Rate still available to this service at the interface, octets a second.
    pub available: u64,
}

impl core::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rule.fmt(f)
    }
}

/// The kind of a refusal, from which protocols choose an error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A policy rule does not allow the request.
    Policy,
    /// The token does not cover the request.
    Token,
    /// Not enough rate.
    Bandwidth,
    /// Not enough buffer.
    Buffer,
    /// Packets are larger than the link allows.
    Mtu,
    /// The request contradicts itself or the RFCs.
    BadRequest,
    /// The service is not offered here.
    Unsupported,
    /// Its flow or session belongs to a reservation that cannot be shared.
    Conflict,
    /// The interface does not exist, is down, or has no resources to reserve.
    Interface,
    /// A table is full.
    Full,
    /// The grant does not exist.
    NoGrant,
}

impl Refusal {
    /// The kind of the refusal.
    #[must_use]
    pub const fn cause(&self) -> Cause {
        match &self.rule {
            Rule::Policy { .. } | Rule::Default => Cause::Policy,
            Rule::Token(_) => Cause::Token,
            Rule::NoInterface(_) => Cause::Interface,
            Rule::Link { why, .. } => why.cause(),
            Rule::Spec(_) | Rule::Request(_) => Cause::BadRequest,
            Rule::TableFull { .. } => Cause::Full,
            Rule::NoGrant => Cause::NoGrant,
        }
    }
}

/// The rule that refused.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    /// A policy rule.
    Policy {
        /// The rule.
        rule: RuleName,
        /// What it forbids.
        why: PolicyWhy,
    },
    /// No policy rule applies, and the default is to deny.
    Default,
    /// The token of the requester does not cover the request.
    Token(&'static str),
    /// No such interface.
    NoInterface(IfIndex),
    /// A limit of the interface.
    Link {
        /// Its name.
        interface: Arc<str>,
        /// The limit.
        why: LinkWhy,
    },
    /// An invalid traffic specification or service request.
    Spec(SpecError),
    /// Another error of the request.
    Request(&'static str),
    /// A table of this node is full.
    TableFull {
        /// The setting that limits it.
        setting: &'static str,
        /// Its value.
        limit: u32,
    },
    /// The grant to be changed does not exist.
    NoGrant,
}

/// The limit of a policy rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyWhy {
    /// The rule denies.
    Denied,
    /// The rate exceeds the limit for one reservation.
    Rate {
        /// Octets a second.
        asked: u64,
        /// Octets a second.
        limit: u64,
    },
    /// The burst exceeds the limit.
    Burst {
        /// Octets.
        asked: u32,
        /// Octets.
        limit: u32,
    },
    /// The rate exceeds the limit for one requester at one interface.
    Total {
        /// Rate of the existing reservations of the requester, octets a second.
        used: u64,
        /// Octets a second.
        asked: u64,
        /// Octets a second.
        limit: u64,
    },
    /// The number of reservations exceeds the limit for one requester at one interface.
    Count {
        /// The limit.
        limit: u32,
    },
    /// The setup priority exceeds the limit.
    SetupPriority {
        /// Requested.
        asked: u16,
        /// Allowed.
        limit: u16,
    },
    /// The defending priority exceeds the limit.
    DefendingPriority {
        /// Requested.
        asked: u16,
        /// Allowed.
        limit: u16,
    },
    /// The lifetime exceeds the limit, or the request has none.
    Lifetime {
        /// Requested.
        asked: Option<Span>,
        /// Allowed.
        limit: Span,
    },
}

/// A limit of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkWhy {
    /// The interface is down.
    Down,
    /// The interface is not configured, or its capacity is neither declared nor measured.
    NoCapacity,
    /// Packets are larger than the largest packet.
    Mtu {
        /// *M*, octets.
        asked: u32,
        /// Octets.
        mtu: u32,
    },
    /// The service is switched off.
    NotOffered(ServiceClass),
    /// The reservable share of the link.
    Share {
        /// Octets a second.
        used: u64,
        /// Octets a second.
        asked: u64,
        /// Octets a second.
        limit: u64,
    },
    /// The part of the share for one service.
    Service {
        /// Which service.
        service: ServiceClass,
        /// Octets a second.
        used: u64,
        /// Octets a second.
        asked: u64,
        /// Octets a second.
        limit: u64,
    },
    /// The largest rate of one reservation of this service.
    Each {
        /// Which service.
        service: ServiceClass,
        /// Octets a second.
        asked: u64,
        /// Octets a second.
        limit: u64,
    },
    /// Buffer for bursts.
    Buffer {
        /// Octets.
        used: u64,
        /// Octets.
        asked: u64,
        /// Octets.
        limit: u64,
    },
    /// The places for reservations that are left are for neighbors that hold fewer.
    Places {
        /// Those of this neighbor.
        held: u32,
        /// All of them.
        limit: u32,
    },
    /// The number of reservations at the interface.
    Count {
        /// How many.
        limit: u32,
    },
    /// The number of queues for single reservations.
    Queues {
        /// How many.
        limit: u32,
    },
    /// Another reservation has the same flow.
    FlowTaken(FlowFilter),
    /// The session that it would share has another service.
    OtherService(ServiceClass),
    /// The session is shared by the largest number of reservations.
    Sharers {
        /// How many.
        limit: u32,
    },
}

impl LinkWhy {
    const fn cause(&self) -> Cause {
        match self {
            Self::Down | Self::NoCapacity => Cause::Interface,
            Self::Mtu { .. } => Cause::Mtu,
            Self::NotOffered(_) => Cause::Unsupported,
            Self::Share { .. } | Self::Service { .. } | Self::Each { .. } => Cause::Bandwidth,
            Self::Buffer { .. } => Cause::Buffer,
            Self::Count { .. } | Self::Places { .. } | Self::Queues { .. } | Self::Sharers { .. } => {
                Cause::Full
            }
            Self::FlowTaken(_) | Self::OtherService(_) => Cause::Conflict,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy { rule, why } => write!(f, "{rule}: {why}"),
            Self::Default => f.write_str("policy: no rule applies, and the default is to deny"),
            Self::Token(what) => write!(f, "token: {what}"),
            Self::NoInterface(ifindex) => write!(f, "{ifindex}: no such interface"),
            Self::Link { interface, why } => write!(f, "{interface}: {why}"),
            Self::Spec(error) => write!(f, "request: {error}"),
            Self::Request(what) => write!(f, "request: {what}"),
            Self::TableFull { setting, limit } => write!(f, "{setting}: all {limit} in use"),
            Self::NoGrant => f.write_str("no such grant"),
        }
    }
}

impl fmt::Display for PolicyWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied => f.write_str("denied"),
            Self::Rate { asked, limit } => write!(f, "rate {} over {}", Rate(*asked), Rate(*limit)),
            Self::Burst { asked, limit } => write!(f, "burst of {asked} octets over {limit}"),
            Self::Total { used, asked, limit } => {
                write!(f, "total: {} in use by this requester, {} asked", UsedOf(*used, *limit), Rate(*asked))
            }
            Self::Count { limit } => write!(f, "reservations: this requester has all {limit}"),
            Self::SetupPriority { asked, limit } => write!(f, "setup priority {asked} over {limit}"),
            Self::DefendingPriority { asked, limit } => write!(f, "defending priority {asked} over {limit}"),
            Self::Lifetime { asked: Some(asked), limit } => write!(f, "lifetime {asked} over {limit}"),
            Self::Lifetime { asked: None, limit } => write!(f, "no lifetime given, at most {limit}"),
        }
    }
}

impl fmt::Display for LinkWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down => f.write_str("down"),
            Self::NoCapacity => f.write_str("capacity neither declared nor measured"),
            Self::Mtu { asked, mtu } => write!(f, "mtu: packets of {asked} octets over {mtu}"),
            Self::NotOffered(service) => write!(f, "{service}: not offered"),
            Self::Share { used, asked, limit } => {
                write!(f, "share: {} in use, {} asked", UsedOf(*used, *limit), Rate(*asked))
            }
            Self::Service { service, used, asked, limit } => {
                write!(f, "{service}: {} in use, {} asked", UsedOf(*used, *limit), Rate(*asked))
            }
            Self::Each { service, asked, limit } => {
                write!(f, "{service}: rate {} over {} for each", Rate(*asked), Rate(*limit))
            }
            Self::Buffer { used, asked, limit } => {
                write!(f, "buffer: {used} of {limit} octets in use, {asked} asked")
            }
            Self::Count { limit } => write!(f, "max_reservations: all {limit} in use"),
            Self::Places { held, limit } => {
                write!(f, "max_reservations: this neighbor has {held} of {limit}, the rest is for others")
            }
            Self::Queues { limit } => write!(f, "per_flow_queues: all {limit} in use"),
            Self::FlowTaken(filter) => write!(f, "flow {filter} has a reservation already"),
            Self::OtherService(service) => write!(f, "the session has {service} here"),
            Self::Sharers { limit } => write!(f, "max_sharers: all {limit} in use"),
        }
    }
}
