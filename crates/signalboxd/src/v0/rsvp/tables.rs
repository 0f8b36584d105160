//! RSVP's tables over the control socket.

use signalbox_api::v0;
use signalbox_node::resources::GrantId;

use super::convert;
use crate::view::{Portion, View, portion};

/// Sessions from row `from` on, with what the kernel keeps of their reservations.
pub(super) fn sessions(view: &mut View<'_>, from: usize) -> Portion<v0::RsvpSession> {
    let (sessions, next) = portion(view.node.rsvp_sessions(), from, |_| true, Clone::clone);
    let interfaces = view.kernel.interfaces().to_vec();
    let enforcer = view.kernel.enforcer();
    let enforced = |grant: Option<GrantId>| {
        let held = grant.and_then(|grant| view.node.resources().reservation(grant));
        held.is_some_and(|held| enforcer.as_ref().is_some_and(|kernel| kernel.is_enforced(held.reservation)))
    };
    let rows = sessions.iter().map(|session| convert::listed(session, view.now, &interfaces, enforced));
    (rows.collect(), next)
}

/// Neighbours from row `from` on.
pub(super) fn neighbours(view: &mut View<'_>, from: usize) -> Portion<v0::RsvpNeighbour> {
    let interfaces = view.kernel.interfaces();
    let neighbours = view.node.rsvp_neighbours(view.now);
    let convert = |neighbour: &_| convert::neighbour(neighbour, view.now, interfaces);
    portion(neighbours.into_iter(), from, |_| true, convert)
}
