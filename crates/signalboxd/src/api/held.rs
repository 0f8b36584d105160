//! Reservations that admission control holds, with what the kernel has counted of them.

use signalbox_api::v1;
use signalbox_linux::traffic::Statistics;
use signalbox_node::Node;
use signalbox_node::resources::GrantId;
use signalbox_node::resources::view::ReservationView;
pub(crate) use signalbox_show::held::{guaranteed, id, interface, row, whole};

use super::errors::FieldError;
use crate::course;
use crate::view::{Kernel, View};

/// The reservation with an identifier.
pub(crate) fn grant(id: &str) -> Result<GrantId, FieldError> {
    let number = u64::from_str_radix(id, 16).map(GrantId);
    number.map_err(|_| FieldError::new("id", "the `id` of a row of ListReservations"))
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
    let enforced = enforced && course::elsewhere(kernel, held.ifindex, &held.filters).is_none();
    v1::Reservation { enforced, statistics: statistics.map(counted), ..row(node, held) }
}

fn counted(seen: Statistics) -> v1::TrafficStatistics {
    v1::TrafficStatistics {
        packets: seen.packets,
        octets: seen.octets,
        policed_packets: seen.policed_packets,
        policed_octets: seen.policed_octets,
    }
}
