//! Requests to [`Resources`](crate::Resources), and its results.

use core::fmt;
use core::num::NonZeroU64;
use core::time::Duration;

use signalbox_core::traffic::{
    Excess, FlowFilter, Reservation, ReservationId, ReserveError, ServiceClass, TrafficSpec, Treatment,
};
use signalbox_core::{IfIndex, Key, ReserverId, SessionId, Time};

use crate::intserv::{ErrorTerms, Latency, LocalTerms, RSpec, whole};
use crate::refusal::{Refusal, RuleName};
pub use crate::requester::{Neighbor, Proof, RequestedBy, Requester};

/// The owner of a reservation: a protocol, and the protocol's own key of the reservation. It is given back with
/// [`ResourceOutput::Lost`] and [`ResourceOutput::Reduced`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The protocol; the node gives reports about the reservation to its engine.
    pub protocol: ReserverId,
    /// The key that the protocol chose.
    pub key: u64,
}

/// Priorities of RFC 3181: higher is stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Priority {
    /// Setup priority: the request preempts reservations with a lower defending priority.
    pub setup: u16,
    /// Defending priority: the reservation is preempted only by a higher setup priority.
    pub defending: u16,
}

/// Reservations of one engine at one interface with the same session share one grant of the link. Where they differ,
/// the larger value counts, once. An engine sets it only for reservations that belong to the same session. The kernel
/// has one reservation for all their filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(NonZeroU64);

impl Session {
    /// The session with this key in the table of its engine; `None`: the key matches no record.
    #[must_use]
    pub fn of(key: Key) -> Option<Self> {
        NonZeroU64::new(key.to_u64()).map(Self)
    }

    /// The session of the opposite direction. Its reservations share nothing with those of this one. A table has at most
    /// 2³¹ records.
    #[must_use]
    pub fn back(self) -> Self {
        NonZeroU64::new(self.0.get() ^ 1 << 31).map_or(self, Self)
    }

    /// Its number.
    pub(crate) const fn number(self) -> u64 {
        self.0.get()
    }
}

/// Additional parameters of guaranteed service.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GuaranteedRequest {
    /// Rate and slack.
    pub rspec: RSpec,
    /// Error terms of the path up to this node, without its own.
    pub terms: ErrorTerms,
}

/// Conditions under which traffic may exceed the reservation, so that a service may have to police (RFC 2205 §3.8).
/// This node polices every reservation; the flags give the reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Policing {
    /// No node before this one polices: `E_Police_Flag`.
    pub entry: bool,
    /// Flows of several senders share the reservation: `M_Police_Flag`.
    pub merge: bool,
    /// Another interface has a larger or different reservation for the same flow: `B_Police_Flag`.
    pub branch: bool,
}

/// A time, from one moment to another that is later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct During {
    /// Its first moment.
    pub from: Time,
    /// The first moment behind it.
    pub until: Time,
}

impl During {
    /// Whether it lies within another one.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.from >= other.from && self.until <= other.until
    }

    /// Whether a moment is in both.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.from < other.until && other.from < self.until
    }

    /// The time from the first moment of both to the last one.
    pub(crate) fn with(&self, other: &Self) -> Self {
        Self { from: self.from.min(other.from), until: self.until.max(other.until) }
    }
}

/// A request for a share of an interface.
#[derive(Debug, Clone, PartialEq)]
pub struct GrantRequest {
    /// The owner of the reservation.
    pub owner: Owner,
    /// The requester.
    pub requester: Requester,
    /// The session, of a protocol whose sessions have identifiers.
    pub session_id: Option<SessionId>,
    /// The egress interface.
    pub ifindex: IfIndex,
    /// Packet filters, at least one. A packet belongs to the reservation if any of them matches.
    pub filters: Vec<FlowFilter>,
    /// The traffic.
    pub traffic: TrafficSpec,
    /// The service: an IntServ service, or a code point for a DiffServ behaviour or an aggregate.
    pub service: ServiceClass,
    /// Parameters of [`ServiceClass::Guaranteed`]. Without them the rate is that of `traffic`, and the path begins
    /// here.
    pub guaranteed: Option<GuaranteedRequest>,
    /// Priorities, used where the configuration allows preemption.
    pub priority: Priority,
    /// Whether a stronger request may take a part of the reservation (RFC 4495). [`ResourceOutput::Reduced`] then
    /// reports the rest.
    pub reducible: bool,
    /// The session whose reservations share the grant.
    pub session: Option<Session>,
    /// A grant of the same engine for the same packets at the same interface, without a session. Both share one reservation of
    /// the kernel. The larger value counts, once.
    pub shared_with: Option<GrantId>,
    /// Lifetime without a refresh, if known: a rule may limit it. The engine ends the reservation, not this crate.
    pub lifetime: Option<Duration>,
    /// The resources are held back, but the flow does not get them: the kernel does not know the reservation. A change
    /// without it gives them to the flow. In a session the kernel gets what the other grants need.
    pub held: bool,
    /// The time in which the reservation takes its rate and its buffer; `None`: from now on, without an end. Before it the request
    /// is `held`, and the owner releases the grant at its end. The places in tables and the totals of rules count from the request on.
    /// A link has a bounded number of such reservations, as a whole and of each source; others count from the request on, too.
    pub during: Option<During>,
    /// The queue; `None`: as configured for the service.
    pub treatment: Option<Treatment>,
    /// Code point that conforming packets get, 0–63.
    pub mark_dscp: Option<u8>,
    /// Treatment of packets beyond `traffic`; `None`: as configured for the service.
    pub excess: Option<Excess>,
    /// Conditions under which traffic may exceed the reservation.
    pub policing: Policing,
}

impl GrantRequest {
    /// A request for controlled load for one flow, with defaults for all other fields.
    #[must_use]
    pub fn new(
        owner: Owner,
        requester: Requester,
        ifindex: IfIndex,
        filter: FlowFilter,
        traffic: TrafficSpec,
    ) -> Self {
        Self::of_all(owner, requester, ifindex, vec![filter], traffic)
    }

    /// A request for the packets of several filters, at least one.
    #[must_use]
    pub fn of_all(
        owner: Owner,
        requester: Requester,
        ifindex: IfIndex,
        filters: Vec<FlowFilter>,
        traffic: TrafficSpec,
    ) -> Self {
        Self {
            owner,
            requester,
            session_id: None,
            ifindex,
            filters,
            traffic,
            service: ServiceClass::ControlledLoad,
            guaranteed: None,
            priority: Priority::default(),
            reducible: false,
            session: None,
            shared_with: None,
            lifetime: None,
            held: false,
            during: None,
            treatment: None,
            mark_dscp: None,
            excess: None,
            policing: Policing::default(),
        }
    }
}

impl GrantRequest {
    /// The requested rate in octets a second: R of guaranteed service, else r.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.guaranteed.map_or(self.traffic.rate, |asked| whole(asked.rspec.rate()).max(self.traffic.rate))
    }
}

/// Identifies a grant. Identifiers are never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GrantId(pub u64);

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grant {}", self.0)
    }
}

/// A request was granted.
#[derive(Debug, Clone, PartialEq)]
pub struct Admitted {
    /// Identifies the grant in later calls.
    pub grant: GrantId,
    /// The kernel's identifier of the reservation. The grants of one session share it.
    pub reservation: ReservationId,
    /// The granted traffic: as requested.
    pub given: TrafficSpec,
    /// The RSpec of guaranteed service to send upstream. The rate may be lower than requested, with less slack.
    pub rspec: Option<RSpec>,
    /// The rule that allowed the request; `None`: the default.
    pub rule: Option<RuleName>,
    /// Number of reservations that were preempted or reduced. Each gets a [`ResourceOutput::Lost`] or
    /// [`ResourceOutput::Reduced`].
    pub preempted: u32,
}

/// The result that a request would have.
#[derive(Debug, Clone, PartialEq)]
pub struct DryRun {
    /// The policy rule that applies; `None`: the default.
    pub rule: Option<RuleName>,
    /// The grant or refusal.
    pub result: Result<WouldAdmit, Refusal>,
}

/// A request would be granted.
#[derive(Debug, Clone, PartialEq)]
pub struct WouldAdmit {
    /// The RSpec of guaranteed service.
    pub rspec: Option<RSpec>,
    /// The owners that would lose a reservation.
    pub victims: Vec<Owner>,
}

/// The resources of an interface that are available to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Available {
    /// Rate in octets a second, with the headers that the configuration counts.
    pub rate: u64,
    /// Octets of buffer, if it is limited.
    pub buffer: Option<u64>,
    /// Largest IP packet of the service, octets; not over [`Self::link_mtu`].
    pub mtu: u32,
    /// Largest IP packet of the interface, octets.
    pub link_mtu: u32,
    /// Capacity of the link, octets a second.
    pub capacity: u64,
    /// Configured latency of the link without queueing.
    pub latency: Latency,
    /// Error terms of guaranteed service at this node.
    pub terms: LocalTerms,
}

/// The reason why a grant ended that its owner did not release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LostWhy {
    /// A stronger request preempted it.
    Preempted,
    /// The kernel refused it.
    KernelRefused(ReserveError),
    /// The interface is gone.
    InterfaceGone,
    /// The interface has less capacity than before.
    CapacityReduced,
    /// An administrator ended it.
    Deleted,
    /// Other rules came into force, which do not allow it.
    Rules,
}

impl fmt::Display for LostWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preempted => f.write_str("preempted by a stronger request"),
            Self::KernelRefused(error) => write!(f, "the kernel did not install it: {error}"),
            Self::InterfaceGone => f.write_str("the interface is gone"),
            Self::CapacityReduced => f.write_str("the interface has less to give than before"),
            Self::Deleted => f.write_str("an administrator ended it"),
            Self::Rules => f.write_str("the rules do not allow it any more"),
        }
    }
}

/// An action for the kernel or a report for an engine. In the order of the outputs, no link ever holds more than its
/// share.
#[derive(Debug, PartialEq)]
pub enum ResourceOutput<'a> {
    /// For [`Output::Reserve`](signalbox_core::node::Output::Reserve). The answer is one
    /// [`Resources::installed`](crate::Resources::installed).
    Install {
        /// Identifier of the reservation.
        id: ReservationId,
        /// The reservation to install.
        reservation: &'a Reservation,
    },
    /// For [`Output::Release`](signalbox_core::node::Output::Release).
    Remove {
        /// Identifier of the reservation.
        id: ReservationId,
    },
    /// For the engine of the owner: a stronger request took a part of the grant. The rest stays.
    Reduced {
        /// The owner.
        owner: Owner,
        /// The grant.
        grant: GrantId,
        /// The remaining rate in octets a second: token rate and, for guaranteed service, R.
        rate: u64,
    },
    /// For the engine of the owner: the grant has ended. The owner does not release it.
    Lost {
        /// The owner.
        owner: Owner,
        /// The grant.
        grant: GrantId,
        /// The reason.
        why: LostWhy,
    },
}
