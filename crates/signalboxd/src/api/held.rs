//! Reservations that admission control holds.

use signalbox_api::v1;
use signalbox_core::ReserverId;
use signalbox_core::node::Interface;
use signalbox_core::traffic::TrafficSpec;
use signalbox_linux::traffic::Statistics;
use signalbox_node::Node;
use signalbox_node::resources::GrantId;
use signalbox_node::resources::intserv::RSpec;
use signalbox_node::resources::view::ReservationView;

use super::errors::Wrong;
use super::types;
use crate::protocols::RESERVERS;
use crate::view::{Kernel, View};

/// The protocol that owns a reservation.
pub(crate) fn protocol(owner: ReserverId) -> v1::Protocol {
    let known = RESERVERS.iter().find(|one| one.owner() == owner);
    known.map_or(v1::Protocol::Unspecified, |one| types::protocol(one.id()))
}

/// The identifier of a reservation for administrators.
pub(crate) fn id(grant: GrantId) -> String {
    format!("{:x}", grant.0)
}

/// The reservation with an identifier.
pub(crate) fn grant(id: &str) -> Result<GrantId, Wrong> {
    let number = u64::from_str_radix(id, 16).map(GrantId);
    number.map_err(|_| Wrong::new("id", "the `id` of a row of ListReservations"))
}

/// A token bucket.
pub(crate) fn traffic(traffic: &TrafficSpec) -> v1::TokenBucket {
    v1::TokenBucket {
        rate_octets_per_s: traffic.rate,
        burst_octets: Some(traffic.burst.into()),
        peak_octets_per_s: traffic.peak,
        min_policed_octets: Some(traffic.min_policed),
        max_packet_octets: Some(traffic.max_packet),
    }
}

/// A rate in floating point as a whole number, rounded up.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the conversion saturates")]
pub(crate) fn whole(rate: f32) -> u64 {
    rate.ceil() as u64
}

/// Guaranteed service with these parameters.
pub(crate) fn guaranteed(rspec: Option<RSpec>) -> v1::Guaranteed {
    v1::Guaranteed {
        rate_octets_per_s: rspec.map(|rspec| whole(rspec.rate())),
        slack_us: rspec.map(|rspec| rspec.slack().into()),
        delay_bound_us: None,
    }
}

/// What a grant holds, and what the kernel has counted of it; `None` if it is gone.
pub(crate) fn of_grant(view: &mut View<'_>, grant: GrantId) -> Option<v1::Reservation> {
    let held = view.node.resources().reservation(grant)?;
    Some(reservation(view.node, &held, &mut *view.kernel))
}

/// A reservation with what the kernel has counted of it.
pub(crate) fn reservation(
    node: &Node,
    held: &ReservationView<'_>,
    kernel: &mut dyn Kernel,
) -> v1::Reservation {
    let (enforced, statistics) = kernel.enforcer().map_or((false, None), |enforcer| {
        let read = enforcer.statistics(held.reservation);
        let statistics = read.inspect_err(|error| tracing::debug!(%error, "statistics")).ok().flatten();
        (enforcer.is_enforced(held.reservation), statistics)
    });
    v1::Reservation { enforced, statistics: statistics.map(counted), ..row(node, held, kernel.interfaces()) }
}

/// A reservation without what the kernel has counted of it. `enforced` means that the kernel confirmed it.
pub(crate) fn row(node: &Node, held: &ReservationView<'_>, interfaces: &[Interface]) -> v1::Reservation {
    let session = node.qos().filter(|_| held.owner.protocol == ReserverId::QOS);
    let session = session.and_then(|qos| qos.session_of(held.owner.key));
    let here = interfaces.iter().any(|one| one.addresses.contains(&held.requester.address));
    v1::Reservation {
        id: id(held.grant),
        protocol: protocol(held.owner.protocol).into(),
        session_id: session.map(types::session_id),
        flows: held.filters.iter().map(types::filter).collect(),
        interface: Some(v1::InterfaceRef { name: held.interface.to_owned(), index: held.ifindex.0 }),
        traffic: Some(traffic(&held.traffic)),
        service: Some(types::service(held.service, || guaranteed(held.rspec))),
        rule: held.rule.as_ref().map(ToString::to_string),
        peer: (!here).then(|| held.requester.address.to_string()),
        enforced: held.in_kernel,
        statistics: None,
        priority: Some(v1::Priority {
            setup: held.priority.setup.into(),
            defending: Some(held.priority.defending.into()),
        }),
    }
}

fn counted(seen: Statistics) -> v1::TrafficStatistics {
    v1::TrafficStatistics {
        packets: seen.packets,
        octets: seen.octets,
        policed_packets: seen.policed_packets,
        policed_octets: seen.policed_octets,
    }
}
