//! Reservations that admission control holds, and its interfaces.

use signalbox_api::v1;
use signalbox_core::ReserverId;
use signalbox_core::traffic::TrafficSpec;
use signalbox_node::Node;
use signalbox_node::resources::GrantId;
use signalbox_node::resources::intserv::RSpec;
use signalbox_node::resources::view::{LinkView, ReservationView};

use crate::requester::{RequesterFields, requester_fields};
use crate::types;

/// The identifier of a reservation for administrators.
#[must_use]
pub fn id(grant: GrantId) -> String {
    format!("{:x}", grant.0)
}

/// A token bucket.
#[must_use]
pub fn traffic(traffic: &TrafficSpec) -> v1::TokenBucket {
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
#[must_use]
pub fn whole(rate: f32) -> u64 {
    rate.ceil() as u64
}

/// Guaranteed service with these parameters.
#[must_use]
pub fn guaranteed(rspec: Option<RSpec>) -> v1::Guaranteed {
    v1::Guaranteed {
        rate_octets_per_s: rspec.map(|rspec| whole(rspec.rate())),
        slack_us: rspec.map(|rspec| rspec.slack().into()),
        delay_bound_us: None,
    }
}

/// A reservation without what the kernel has counted of it. `enforced` means that the kernel confirmed it.
#[must_use]
pub fn row(node: &Node, held: &ReservationView<'_>) -> v1::Reservation {
    let session = node.qos().filter(|_| held.owner.protocol == ReserverId::QOS);
    let session = session.and_then(|qos| qos.session_of(held.owner.key));
    let RequesterFields { neighbor, proof, identity, claimed } = requester_fields(held.requester);
    v1::Reservation {
        id: id(held.grant),
        protocol: types::owner(held.owner.protocol).into(),
        session_id: session.map(types::session_id),
        flows: held.filters.iter().map(types::filter).collect(),
        interface: Some(v1::InterfaceRef { name: held.interface.to_owned(), index: held.ifindex.0 }),
        traffic: Some(traffic(&held.traffic)),
        service: Some(types::service(held.service, || guaranteed(held.rspec))),
        rule: held.rule.as_ref().map(ToString::to_string),
        peer: neighbor.clone(),
        neighbor,
        proof,
        identity,
        claimed,
        enforced: held.in_kernel,
        statistics: None,
        priority: Some(v1::Priority {
            setup: held.priority.setup.into(),
            defending: Some(held.priority.defending.into()),
        }),
    }
}

/// An interface without what the kernel enforces there.
#[must_use]
pub fn interface(link: &LinkView<'_>) -> v1::Interface {
    let services = link.services.iter().map(|service| v1::InterfaceService {
        service: Some(types::service(service.service, v1::Guaranteed::default)),
        reserved_octets_per_s: service.reserved,
        limit_octets_per_s: service.limit,
        reservations: service.reservations,
    });
    v1::Interface {
        interface: Some(v1::InterfaceRef { name: link.name.to_owned(), index: link.ifindex.0 }),
        up: link.up,
        capacity_octets_per_s: link.capacity,
        measured: link.measured,
        reservable_octets_per_s: link.share,
        reserved_octets_per_s: link.reserved,
        reservations: link.reservations,
        services: services.collect(),
        enforcement: None,
        addresses: Vec::new(),
        sent_octets: None,
    }
}
