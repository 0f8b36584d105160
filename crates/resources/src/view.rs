//! What `show reservations` and `show interfaces` tell.

use signalbox_core::traffic::{ReservationId, ServiceClass, TrafficSpec, Treatment};
use signalbox_core::{IfIndex, Time};

use crate::ask::{Asker, GrantId, Owner, Policing, Priority, Session};
use crate::intserv::RSpec;
use crate::refusal::RuleName;

/// One grant.
#[derive(Debug, Clone, PartialEq)]
pub struct ReservationView<'a> {
    /// Which one.
    pub grant: GrantId,
    /// The kernel's name of it.
    pub reservation: ReservationId,
    /// Whose it is.
    pub owner: Owner,
    /// Who asked for it.
    pub asker: &'a Asker,
    /// The rule that allowed it; `None`: the default.
    pub rule: Option<RuleName>,
    /// Where packets leave.
    pub ifindex: IfIndex,
    /// Name of that interface.
    pub interface: &'a str,
    /// Which packets; of all grants of its session, if it shares.
    pub filters: &'a [signalbox_core::traffic::FlowFilter],
    /// As asked.
    pub traffic: TrafficSpec,
    /// Of guaranteed service, as given.
    pub rspec: Option<RSpec>,
    /// Which service.
    pub service: ServiceClass,
    /// Which queue.
    pub treatment: Treatment,
    /// With which it was asked for.
    pub priority: Priority,
    /// With which others it shares.
    pub session: Option<Session>,
    /// What the reservation costs the link, octets a second; once for all that share.
    pub charged: u64,
    /// Since when it stands.
    pub since: Time,
    /// Where more may come than is reserved.
    pub policing: Policing,
    /// The kernel has said that it has it.
    pub in_kernel: bool,
}

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkView<'a> {
    /// Its number.
    pub ifindex: IfIndex,
    /// Its name.
    pub name: &'a str,
    /// Whether packets can pass.
    pub up: bool,
    /// Largest IP packet, octets.
    pub mtu: u32,
    /// Octets a second; `None`: neither declared nor measured, nothing can be reserved.
    pub capacity: Option<u64>,
    /// The capacity was measured, not declared.
    pub measured: bool,
    /// Octets a second that can be reserved.
    pub share: u64,
    /// Octets a second that are.
    pub reserved: u64,
    /// The most that ever were.
    pub most_reserved: u64,
    /// Octets of buffer that reservations may need.
    pub buffer: u64,
    /// Reservations.
    pub reservations: u32,
    /// Those with a queue of their own.
    pub own_queues: u32,
    /// Of each service that was ever reserved here.
    pub services: Vec<ServiceView>,
}

/// One service at one interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceView {
    /// Which one.
    pub service: ServiceClass,
    /// Octets a second that are reserved.
    pub reserved: u64,
    /// Octets a second that can be.
    pub limit: u64,
    /// Reservations.
    pub reservations: u32,
}
