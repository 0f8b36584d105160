//! Records. A grant is the resource of one owner. A group is one reservation in the kernel, for all grants of a
//! session.

use core::cmp::Reverse;
use core::net::IpAddr;
use core::num::NonZeroU64;
use core::time::Duration;
use std::sync::Arc;

use signalbox_core::shares::source;
use signalbox_core::traffic::{Excess, FlowFilter, Reservation, ServiceClass, TrafficSpec, Treatment};
use signalbox_core::{IfIndex, Key, Recent, ReserverId, Time, recent};

use super::filters::Filters;
use super::link::{Charge, Entry, Rank};
use super::members::Members;
use crate::intserv::RSpec;
use crate::policy::AccountId;
use crate::request::{During, GuaranteedRequest, Owner, Policing, Priority, Requester, Session};

#[derive(Debug)]
pub(crate) struct Grant {
    /// The key that its owner gave it. The reservation has the owner's protocol.
    pub(crate) owner: u64,
    pub(crate) group: Key,
    /// Grants of one requester share it ([`Recent`]).
    pub(crate) requester: Arc<Requester>,
    /// Grants with equal terms share one copy, also if their requesters differ.
    pub(crate) terms: Arc<Terms>,
    pub(crate) extra: Option<Box<GrantExtra>>,
    pub(crate) since: Time,
}

/// Fields that few grants need.
#[derive(Debug, Default)]
pub(crate) struct GrantExtra {
    /// The request of guaranteed service, and the RSpec that was granted.
    pub(crate) guaranteed: Option<(GuaranteedRequest, RSpec)>,
    /// Filters of one of several grants of a session. Any other grant has its filters in the reservation.
    pub(crate) filters: Vec<FlowFilter>,
}

/// The parts of a grant that other grants have, too: a neighbor or a host often has many of one size.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Terms {
    pub(crate) traffic: TrafficSpec,
    pub(crate) charge: Charge,
    pub(crate) priority: Priority,
    pub(crate) reducible: bool,
    pub(crate) lifetime: Option<Duration>,
    pub(crate) rule: Option<u32>,
    pub(crate) policing: Policing,
    /// The flow does not get the resources.
    pub(crate) held: bool,
    /// The time in which it counts; `None`: from now on.
    pub(crate) during: Option<During>,
}

/// The number of a requester among those that were stored lately.
pub(crate) fn number_of(requester: &Requester) -> u64 {
    match requester.claimed.unwrap_or_else(|| requester.holder()) {
        IpAddr::V4(address) => recent::sum(&address.octets()),
        IpAddr::V6(address) => recent::sum(&address.octets()),
    }
}

impl Terms {
    /// These terms, in the storage of equal ones that were stored lately.
    pub(crate) fn shared(self, lately: &mut Recent<Self>) -> Arc<Self> {
        lately.shared(number_of_traffic(&self.traffic), &self)
    }
}

const fn number_of_traffic(traffic: &TrafficSpec) -> u64 {
    traffic.rate.wrapping_mul(31).wrapping_add(traffic.burst as u64)
}

/// The parts of a reservation that others have, too.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parameters {
    pub(crate) installed: Installed,
    pub(crate) service: ServiceClass,
    pub(crate) charge: Charge,
    /// Defending priority of its strongest grant.
    pub(crate) defending: u16,
    /// The time in which it counts; `None`: from now on.
    pub(crate) during: Option<During>,
}

/// Those of its parameters that the kernel gets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Installed {
    pub(crate) traffic: TrafficSpec,
    pub(crate) served: Option<u64>,
    pub(crate) treatment: Treatment,
    pub(crate) mark_dscp: Option<u8>,
    pub(crate) excess: Excess,
}

impl Parameters {
    /// These parameters, in the storage of equal ones that were stored lately.
    pub(crate) fn shared(self, lately: &mut Recent<Self>) -> Arc<Self> {
        lately.shared(number_of_traffic(&self.installed.traffic), &self)
    }
}

impl From<&Reservation> for Installed {
    fn from(reservation: &Reservation) -> Self {
        let Reservation { ifindex: _, filters: _, traffic, served, treatment, mark_dscp, excess } =
            *reservation;
        Self { traffic, served, treatment, mark_dscp, excess }
    }
}

impl GrantExtra {
    /// These fields, if any of them has a value.
    pub(crate) fn of(
        guaranteed: Option<(GuaranteedRequest, RSpec)>,
        filters: Vec<FlowFilter>,
    ) -> Option<Box<Self>> {
        (guaranteed.is_some() || !filters.is_empty()).then(|| Box::new(Self { guaranteed, filters }))
    }
}

impl Grant {
    /// The owner, of the protocol that its reservation has.
    pub(crate) const fn owner(&self, protocol: ReserverId) -> Owner {
        Owner { protocol, key: self.owner }
    }

    /// The request of guaranteed service, and the RSpec that was granted.
    pub(crate) fn guaranteed(&self) -> Option<(GuaranteedRequest, RSpec)> {
        self.extra.as_ref()?.guaranteed
    }

    /// Its filters, if it is one of several grants of a session.
    pub(crate) fn filters(&self) -> &[FlowFilter] {
        self.extra.as_ref().map_or(&[], |extra| &extra.filters)
    }

    /// The traffic that conforms at this node. Guaranteed service polices with the token bucket itself only at the
    /// edge. Further in, queues have changed the spacing of packets that conformed: the bucket is larger by Csum +
    /// Dsum·r, the buffer that reshaping would need, and the peak rate is not checked (RFC 2212 "Policing"). With
    /// controlled load each node polices for itself (RFC 2211 §7).
    pub(crate) fn conforming(&self) -> TrafficSpec {
        let inside = self.guaranteed().filter(|_| !self.terms.policing.entry || self.terms.policing.merge);
        let Some((asked, _)) = inside else { return self.terms.traffic };
        let micro = u128::from(asked.terms.d_sum) * u128::from(self.terms.traffic.rate);
        let pushed = micro.div_ceil(1_000_000) + u128::from(asked.terms.c_sum);
        let burst = u32::try_from(pushed.saturating_add(self.terms.traffic.burst.into())).unwrap_or(u32::MAX);
        TrafficSpec { burst, peak: self.terms.traffic.peak.filter(|_| pushed == 0), ..self.terms.traffic }
    }

    /// Service rate of its queue if it is not the token rate: R of guaranteed service, octets a second.
    pub(crate) fn served(&self) -> Option<u64> {
        let rate = self.guaranteed().map(|(_, given)| crate::intserv::whole(given.rate()));
        rate.filter(|rate| *rate > self.terms.traffic.rate)
    }
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) ifindex: IfIndex,
    pub(crate) filters: Filters,
    /// Reservations with equal parameters share one copy.
    pub(crate) parameters: Arc<Parameters>,
    /// The protocol of its grants.
    pub(crate) protocol: ReserverId,
    /// The session of its protocol by which other grants find it.
    pub(crate) session: Option<Session>,
    /// The grants; never empty.
    pub(crate) members: Members,
    /// Number of the reservation in the order of creation.
    pub(crate) age: u64,
    /// Its charge is booked on its link and its account.
    pub(crate) booked: bool,
    /// The key of no account if no rule limits the requester.
    pub(crate) account: AccountId,
    /// The requester of its first grant, whose source has its place at the link.
    pub(crate) opener: Arc<Requester>,
    pub(crate) in_kernel: InKernel,
    /// Number of answers that are due.
    pub(crate) pending: u32,
    /// Position in the queue of outputs of an installation that was not polled yet.
    pub(crate) queued: Option<NonZeroU64>,
}

/// What the kernel has of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InKernel {
    /// Nothing: all its grants are held back only.
    Held,
    /// Nothing yet: its first installation was not polled.
    ToCome,
    /// Its installation was polled. The kernel's last answer did not confirm it, or there is no answer yet.
    Announced,
    /// The kernel's last answer confirmed it.
    Standing,
}

impl InKernel {
    /// Whether an installation was polled, so that the kernel may have it.
    pub(crate) const fn is_announced(self) -> bool {
        matches!(self, Self::Announced | Self::Standing)
    }

    /// Its installation is polled.
    pub(crate) const fn announce(&mut self) {
        if !self.is_announced() {
            *self = Self::Announced;
        }
    }

    /// Takes an answer of the kernel. False: nothing is new.
    pub(crate) fn answered(&mut self, stands: bool) -> bool {
        let answered = if stands { Self::Standing } else { Self::Announced };
        self.is_announced() && core::mem::replace(self, answered) != answered
    }
}

impl Group {
    /// What the kernel gets. `filters` gives its list the allocation.
    pub(crate) fn reservation(&self, mut filters: Vec<FlowFilter>) -> Reservation {
        filters.clear();
        filters.extend(self.filters.iter());
        let Installed { traffic, served, treatment, mark_dscp, excess } = self.parameters.installed;
        Reservation { ifindex: self.ifindex, filters, traffic, served, treatment, mark_dscp, excess }
    }

    pub(crate) fn entry(&self) -> Entry {
        Entry {
            service: self.parameters.service,
            protocol: self.protocol,
            charge: self.parameters.charge,
            own_queue: self.parameters.installed.treatment == Treatment::OwnQueue,
            during: self.parameters.during,
        }
    }

    /// Its position in the order of preemption.
    pub(crate) fn rank(&self, key: Key) -> Rank {
        let Parameters { defending, charge, .. } = *self.parameters;
        Rank { defending, rate: charge.rate, age: Reverse(self.age), group: key }
    }

    /// The source that has its place at the link.
    pub(crate) fn holder(&self) -> IpAddr {
        holder(&self.opener)
    }
}

/// The source whose share of a link's places a request takes: the adjacent node, as far as it is known, else the address in
/// the request.
pub(crate) fn holder(requester: &Requester) -> IpAddr {
    source(requester.holder())
}

/// A specification that is sufficient for either of two flows of one session, in whole octets: the least common TSpec
/// of RFC 2212.
pub(crate) fn least_common(a: &TrafficSpec, b: &TrafficSpec) -> TrafficSpec {
    TrafficSpec {
        rate: a.rate.max(b.rate),
        burst: a.burst.max(b.burst),
        peak: a.peak.zip(b.peak).map(|(a, b)| a.max(b)),
        min_policed: a.min_policed.min(b.min_policed),
        max_packet: a.max_packet.max(b.max_packet),
    }
}

/// Whether `a` requests no more than `b` in any respect.
pub(crate) fn is_within(a: &TrafficSpec, b: &TrafficSpec) -> bool {
    let peak = match (a.peak, b.peak) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(a), Some(b)) => a <= b,
    };
    peak && a.rate <= b.rate
        && a.burst <= b.burst
        && a.min_policed >= b.min_policed
        && a.max_packet <= b.max_packet
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records of a reservation with one filter, which need no other memory.
    #[test]
    fn a_reservation_is_small() {
        assert_eq!((size_of::<Option<Grant>>(), size_of::<Option<Group>>()), (48, 96));
    }

    #[test]
    fn equal_terms_are_stored_once() {
        let mut lately = Recent::default();
        let terms = |rate| Terms {
            traffic: TrafficSpec { rate, burst: 1500, peak: None, min_policed: 40, max_packet: 1500 },
            charge: Charge { rate, buffer: 1500 },
            priority: Priority::default(),
            reducible: false,
            lifetime: None,
            rule: None,
            policing: Policing::default(),
            held: false,
            during: None,
        };
        let all = [10, 10, 20].map(|rate| terms(rate).shared(&mut lately));
        assert!(Arc::ptr_eq(&all[0], &all[1]));
        assert_eq!(all[2].traffic.rate, 20);
    }

    /// A subnet of requesters has a place for each of its hosts.
    #[test]
    fn requesters_are_stored_once() {
        let mut lately = Recent::default();
        let mut shared = |last| {
            let requester = Requester::at(IpAddr::from([192, 0, 2, last]));
            lately.shared(number_of(&requester), &requester)
        };
        let first: Vec<_> = (0..=255).map(&mut shared).collect();
        assert!((0..=255).all(|last| Arc::ptr_eq(&first[usize::from(last)], &shared(last))));
    }
}
