//! Views for `show reservations` and `show interfaces`.

use signalbox_core::traffic::{FlowFilter, ReservationId, ServiceClass, TrafficSpec, Treatment};
use signalbox_core::{IfIndex, ReserverId, Time};

use crate::intserv::RSpec;
use crate::refusal::RuleName;
use crate::request::{GrantId, Owner, Policing, Priority, Requester, Session};

/// One grant.
#[derive(Debug, Clone, PartialEq)]
pub struct ReservationView<'a> {
    /// Its identifier.
    pub grant: GrantId,
    /// The kernel's identifier of the reservation.
    pub reservation: ReservationId,
    /// The owner.
    pub owner: Owner,
    /// The requester.
    pub requester: &'a Requester,
    /// The rule that allowed it; `None`: the default.
    pub rule: Option<RuleName>,
    /// The egress interface.
    pub ifindex: IfIndex,
    /// Name of the egress interface.
    pub interface: &'a str,
    /// Packet filters. If grants of a session share the reservation, those of all of them.
    pub filters: Vec<FlowFilter>,
    /// Traffic as requested.
    pub traffic: TrafficSpec,
    /// RSpec of guaranteed service as granted.
    pub rspec: Option<RSpec>,
    /// The service.
    pub service: ServiceClass,
    /// The queue.
    pub treatment: Treatment,
    /// The priorities of the request.
    pub priority: Priority,
    /// The session whose grants share the reservation.
    pub session: Option<Session>,
    /// Rate that the reservation takes of the link, octets a second; once for all grants that share it.
    pub charged: u64,
    /// Time of the first grant.
    pub since: Time,
    /// Conditions under which traffic may exceed the reservation.
    pub policing: Policing,
    /// The kernel confirmed the installation.
    pub in_kernel: bool,
}

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkView<'a> {
    /// Its number.
    pub ifindex: IfIndex,
    /// Its name.
    pub name: &'a str,
    /// Whether it is up.
    pub up: bool,
    /// Largest IP packet, octets.
    pub mtu: u32,
    /// Capacity in octets a second; `None`: neither declared nor measured, so that nothing can be reserved.
    pub capacity: Option<u64>,
    /// The capacity was measured, not declared.
    pub measured: bool,
    /// Rate that can be reserved, octets a second.
    pub share: u64,
    /// Rate that is reserved, octets a second: of reservations in advance at the moment at which they take most.
    pub reserved: u64,
    /// Largest rate that was reserved at one time, octets a second.
    pub most_reserved: u64,
    /// Octets of buffer that the reservations may need.
    pub buffer: u64,
    /// Number of reservations.
    pub reservations: u32,
    /// Number of reservations with a queue of their own.
    pub own_queues: u32,
    /// Each service that was ever reserved here.
    pub services: Vec<ServiceView>,
    /// Number of reservations of each protocol that ever reserved here.
    pub protocols: Vec<(ReserverId, u32)>,
}

/// One service at one interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceView {
    /// The service.
    pub service: ServiceClass,
    /// Rate that is reserved, octets a second.
    pub reserved: u64,
    /// Rate that can be reserved, octets a second.
    pub limit: u64,
    /// Number of reservations.
    pub reservations: u32,
}
