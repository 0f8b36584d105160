//! What is asked of [`Resources`](crate::Resources), and what it answers.

use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use signalbox_core::security::Identity;
use signalbox_core::traffic::{
    Excess, FlowFilter, Reservation, ReservationId, ReserveError, ServiceClass, TrafficSpec, Treatment,
};
use signalbox_core::{IfIndex, ReserverId};

use crate::intserv::{ErrorTerms, Latency, LocalTerms, RSpec, whole};
use crate::refusal::{Refusal, RuleName};
use crate::token::Token;

/// The owner of a reservation: a protocol, and the protocol's own key of the reservation. It is given back with
/// [`ResourceOutput::Lost`] and [`ResourceOutput::Reduced`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The protocol; the node gives reports about the reservation to its engine.
    pub protocol: ReserverId,
    /// The key that the protocol chose.
    pub key: u64,
}

/// Who asks, for the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// Address that the request came from, as far as anybody knows: the signaling initiator or the last hop, which
    /// the engine decides.
    pub address: IpAddr,
    /// The peer that proved who it is, if it did.
    pub peer: Option<Arc<Identity>>,
    /// A token that was verified, if there was one.
    pub token: Option<Arc<Token>>,
    /// Who the request says that it is for: names of users and applications, and distinguished names (RFC 3182). Nobody has
    /// proven them.
    pub names: Option<Arc<Vec<String>>>,
}

impl Asker {
    /// Somebody of whom no more is known than an address.
    #[must_use]
    pub const fn at(address: IpAddr) -> Self {
        Self { address, peer: None, token: None, names: None }
    }
}

/// Priorities of RFC 3181: higher is stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Priority {
    /// Strength in taking from others.
    pub setup: u16,
    /// Strength in keeping what was got; a reservation is lost only to a setup priority above this.
    pub defending: u16,
}

/// Reservations of one engine at one interface with the same session share one grant of the link: of all that differs
/// the larger counts, once. An engine sets it only where it knows that it is the same session, and the kernel has one
/// reservation for all their filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub u128);

/// What guaranteed service needs to be told on top.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GuaranteedAsk {
    /// Rate and slack.
    pub rspec: RSpec,
    /// Error terms of the path up to this node, its own not yet included.
    pub terms: ErrorTerms,
}

/// Where more may come than is reserved for it (RFC 2205 §3.8): what a service may have to police. Everything is policed
/// here at each node; these say where it was bound to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Policing {
    /// No node before this one polices: `E_Police_Flag`.
    pub entry: bool,
    /// Flows of several senders share it: `M_Police_Flag`.
    pub merge: bool,
    /// At another interface more is reserved, or something else, for the same flow: `B_Police_Flag`.
    pub branch: bool,
}

/// A request for a share of an interface.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// Who owns the reservation.
    pub owner: Owner,
    /// Who asks for it.
    pub asker: Asker,
    /// The interface by which the packets leave.
    pub ifindex: IfIndex,
    /// Which packets: those of any of these, at least one.
    pub filters: Vec<FlowFilter>,
    /// How much.
    pub traffic: TrafficSpec,
    /// Which service; a code point for a DiffServ behaviour or an aggregate.
    pub service: ServiceClass,
    /// Only with [`ServiceClass::Guaranteed`]; without it the rate is that of `traffic` and the path begins here.
    pub guaranteed: Option<GuaranteedAsk>,
    /// Against others, where the configuration allows preemption.
    pub priority: Priority,
    /// Whether a part may be taken where that is enough for a stronger request (RFC 4495): then
    /// [`ResourceOutput::Reduced`] tells what is left.
    pub reducible: bool,
    /// With which reservations it shares.
    pub session: Option<Session>,
    /// How long it will stand without a refresh, if known: a rule may limit it. The engine ends it, not this room.
    pub lifetime: Option<Duration>,
    /// The queue; `None`: as configured for the service.
    pub treatment: Option<Treatment>,
    /// The code point that conforming packets get, 0–63.
    pub mark_dscp: Option<u8>,
    /// What becomes of packets beyond `traffic`; `None`: as configured for the service.
    pub excess: Option<Excess>,
    /// Where more may come.
    pub policing: Policing,
}

impl Ask {
    /// Controlled load for one flow, with nothing special: the other fields are there to be changed.
    #[must_use]
    pub fn new(
        owner: Owner,
        asker: Asker,
        ifindex: IfIndex,
        filter: FlowFilter,
        traffic: TrafficSpec,
    ) -> Self {
        Self::of_all(owner, asker, ifindex, vec![filter], traffic)
    }

    /// The same for the packets of several filters, at least one.
    #[must_use]
    pub fn of_all(
        owner: Owner,
        asker: Asker,
        ifindex: IfIndex,
        filters: Vec<FlowFilter>,
        traffic: TrafficSpec,
    ) -> Self {
        Self {
            owner,
            asker,
            ifindex,
            filters,
            traffic,
            service: ServiceClass::ControlledLoad,
            guaranteed: None,
            priority: Priority::default(),
            reducible: false,
            session: None,
            lifetime: None,
            treatment: None,
            mark_dscp: None,
            excess: None,
            policing: Policing::default(),
        }
    }
}

impl Ask {
    /// The rate that is asked for, octets a second: R of guaranteed service, else r.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.guaranteed.map_or(self.traffic.rate, |asked| whole(asked.rspec.rate()).max(self.traffic.rate))
    }
}

/// Names what was granted; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId(pub u64);

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "grant {}", self.0)
    }
}

/// A request was granted.
#[derive(Debug, Clone, PartialEq)]
pub struct Admitted {
    /// To change and release it.
    pub grant: GrantId,
    /// The kernel's name of it; shared by the grants of one session.
    pub reservation: ReservationId,
    /// As asked.
    pub given: TrafficSpec,
    /// Of guaranteed service: what to pass upstream. The rate may be lower than asked, with less slack.
    pub rspec: Option<RSpec>,
    /// The rule that allowed it; `None`: the default.
    pub rule: Option<RuleName>,
    /// How many others were taken from; each gets a [`ResourceOutput::Lost`] or [`ResourceOutput::Reduced`].
    pub preempted: u32,
}

/// What would become of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct DryRun {
    /// The policy rule that applies; `None`: the default.
    pub rule: Option<RuleName>,
    /// Whether it would be granted.
    pub result: Result<WouldAdmit, Refusal>,
}

/// A request would be granted.
#[derive(Debug, Clone, PartialEq)]
pub struct WouldAdmit {
    /// Of guaranteed service.
    pub rspec: Option<RSpec>,
    /// Who would lose.
    pub victims: Vec<Owner>,
}

/// What an interface can still give to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Available {
    /// Octets a second, the headers that the configuration counts included.
    pub rate: u64,
    /// Octets of buffer, if it is limited.
    pub buffer: Option<u64>,
    /// Largest IP packet of the service, octets; not over [`Self::link_mtu`].
    pub mtu: u32,
    /// Largest IP packet of the interface, octets.
    pub link_mtu: u32,
    /// The whole link, octets a second.
    pub capacity: u64,
    /// Of the link without queueing, as configured.
    pub latency: Latency,
    /// Error terms of guaranteed service here.
    pub terms: LocalTerms,
}

/// Why a grant ended without its owner's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LostWhy {
    /// A stronger request needed the room.
    Preempted,
    /// The kernel did not do it.
    KernelRefused(ReserveError),
    /// The interface is gone.
    InterfaceGone,
    /// The interface has less to give than before.
    CapacityReduced,
}

impl fmt::Display for LostWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preempted => f.write_str("preempted by a stronger request"),
            Self::KernelRefused(error) => write!(f, "the kernel did not install it: {error}"),
            Self::InterfaceGone => f.write_str("the interface is gone"),
            Self::CapacityReduced => f.write_str("the interface has less to give than before"),
        }
    }
}

/// What has to be done or told; poll until there is nothing. The order is such that, done one after the other, no
/// link ever holds more than its share.
#[derive(Debug, PartialEq)]
pub enum ResourceOutput<'a> {
    /// To [`Output::Reserve`](signalbox_core::node::Output::Reserve). Answered by one
    /// [`Resources::installed`](crate::Resources::installed).
    Install {
        /// Its name.
        id: ReservationId,
        /// What it shall be.
        reservation: &'a Reservation,
    },
    /// To [`Output::Release`](signalbox_core::node::Output::Release).
    Remove {
        /// Its name.
        id: ReservationId,
    },
    /// To the engine that owns it: a part of the grant was taken for a stronger request, and the rest stands.
    Reduced {
        /// Whose it is.
        owner: Owner,
        /// Which one.
        grant: GrantId,
        /// What is left, octets a second: token rate, and of guaranteed service rate.
        rate: u64,
    },
    /// To the engine that owns it: the grant is no more, and need not be released.
    Lost {
        /// Whose it was.
        owner: Owner,
        /// Which one.
        grant: GrantId,
        /// Why.
        why: LostWhy,
    },
}
