//! Views for users.

use signalbox_core::{IfIndex, Key, invariant};

use super::Resources;
use super::group::InKernel;
use super::outputs::id_of;
use crate::request::GrantId;
use crate::view::{LinkView, ReservationView, ServiceView};

impl Resources {
    /// All grants, always in the same order.
    pub fn reservations(&self) -> impl Iterator<Item = ReservationView<'_>> {
        self.grants.iter().filter_map(|(key, _)| self.view(key))
    }

    /// Visits the grants that [have a row](Self::has_row) from a place in the table on; see
    /// [`Slab::walk`](signalbox_core::Slab::walk).
    pub fn walk(&self, from: u32, mut visit: impl FnMut(ReservationView<'_>) -> bool) -> Option<u32> {
        self.grants.walk(from, |key, _| {
            let view = Some(GrantId(key.to_u64())).filter(|grant| self.has_row(*grant));
            view.and_then(|grant| self.reservation(grant)).is_none_or(&mut visit)
        })
    }

    /// One grant.
    #[must_use]
    pub fn reservation(&self, grant: GrantId) -> Option<ReservationView<'_>> {
        self.view(Key::from_u64(grant.0))
    }

    /// All interfaces, by number.
    pub fn links(&self) -> impl Iterator<Item = LinkView<'_>> {
        self.links_from(IfIndex::NONE)
    }

    /// Interfaces from this number on, by number.
    pub fn links_from(&self, from: IfIndex) -> impl Iterator<Item = LinkView<'_>> {
        self.links.range(from..).map(|(ifindex, link)| {
            let capacity = link.capacity();
            let declared = link.config.as_ref().is_some_and(|config| config.capacity.is_some());
            let services = link.services.iter().map(|(service, used)| ServiceView {
                service: *service,
                reserved: link.reserved_for(*service),
                limit: link.service_share(*service),
                reservations: used.reservations,
            });
            LinkView {
                ifindex: *ifindex,
                name: &link.name,
                up: link.up,
                mtu: link.mtu,
                capacity: (capacity > 0).then_some(capacity),
                measured: capacity > 0 && !declared,
                share: link.share(),
                reserved: link.reserved(),
                most_reserved: link.peak,
                buffer: link.buffered(),
                reservations: link.reservations,
                own_queues: link.own_queues,
                services: services.collect(),
                protocols: link.protocols.iter().map(|(protocol, count)| (*protocol, *count)).collect(),
            }
        })
    }

    /// The smallest capacity that a link is configured with, octets a second; `None`: no link has one.
    #[must_use]
    pub fn slowest_declared(&self) -> Option<u64> {
        self.config.slowest_link()
    }

    /// Whether the capacity of an interface is not declared, or is that of a tunnel, whose packets use another link. False
    /// if there is no such interface.
    #[must_use]
    pub fn is_measured(&self, ifindex: IfIndex) -> bool {
        self.links.get(&ifindex).is_some_and(|link| {
            !link.tunnel && link.config.as_ref().is_none_or(|config| config.capacity.is_none())
        })
    }

    /// The number of grants.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.grants.len()
    }

    /// Whether there are no grants.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    fn view(&self, key: Key) -> Option<ReservationView<'_>> {
        let grant = self.grants.get(key)?;
        let group = invariant!(self.groups.get(grant.group), "a shown grant has a reservation")?;
        let ifindex = group.ifindex;
        Some(ReservationView {
            grant: GrantId(key.to_u64()),
            reservation: id_of(grant.group),
            owner: grant.owner(group.protocol),
            requester: &grant.requester,
            rule: grant.terms.rule.and_then(|rule| self.policy.name(rule)),
            ifindex,
            interface: self.links.get(&ifindex).map_or("", |link| &link.name),
            filters: group.filters.iter().collect(),
            traffic: grant.terms.traffic,
            rspec: grant.guaranteed().map(|(_, given)| given),
            service: group.parameters.service,
            treatment: group.parameters.installed.treatment,
            priority: grant.terms.priority,
            session: group.session,
            charged: group.parameters.charge.rate,
            since: grant.since,
            policing: grant.terms.policing,
            in_kernel: group.in_kernel == InKernel::Standing,
        })
    }
}
