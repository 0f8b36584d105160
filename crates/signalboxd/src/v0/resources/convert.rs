//! Links and what is held at them, at the edge of the API.

use signalbox_api::v0;
use signalbox_core::traffic::ServiceClass;
use signalbox_linux::traffic::{Capabilities, Statistics};
use signalbox_node::resources::view::{LinkView, ReservationView};

/// What is held for a session.
pub(crate) fn held(
    view: &ReservationView<'_>,
    enforced: bool,
    statistics: Option<Statistics>,
) -> v0::HeldReservation {
    v0::HeldReservation {
        interface: view.interface.to_owned(),
        rate: view.traffic.rate,
        burst: view.traffic.burst,
        service: view.service.to_string(),
        rule: view.rule.as_ref().map(ToString::to_string).unwrap_or_default(),
        asker: view.requester.address.to_string(),
        enforced,
        statistics: statistics.map(|seen| v0::TrafficStatistics {
            packets: seen.packets,
            octets: seen.octets,
            policed_packets: seen.policed_packets,
            policed_octets: seen.policed_octets,
        }),
    }
}

/// An interface with what the kernel keeps there.
pub(crate) fn interface(link: &LinkView<'_>, kernel: Option<&Capabilities>) -> v0::Interface {
    let services = link.services.iter().map(|service| v0::InterfaceService {
        service: service_name(service.service),
        reserved: service.reserved,
        limit: service.limit,
        reservations: service.reservations,
    });
    v0::Interface {
        name: link.name.to_owned(),
        ifindex: link.ifindex.0,
        up: link.up,
        capacity: link.capacity,
        measured: link.measured,
        reservable: link.share,
        reserved: link.reserved,
        reservations: link.reservations,
        services: services.collect(),
        enforcement: kernel.map(|kernel| v0::InterfaceEnforcement {
            queues: kernel.queues,
            policing: kernel.policing.to_string(),
            marking: kernel.marking,
            classes: kernel.classes.0.into(),
            classes_taken: kernel.classes.1.into(),
            lacking: kernel.lacking.clone(),
        }),
    }
}

fn service_name(service: ServiceClass) -> String {
    service.to_string()
}
