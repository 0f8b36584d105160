//! Reservations in the simulated kernel: it installs or refuses them, and answers in the next event.

use signalbox_core::node::NodeEngine;
use signalbox_core::traffic::{Reservation, ReservationId, ReserveError};

use super::{Occurrence, Sim};
use crate::config::NodeId;

impl<N: NodeEngine> Sim<N> {
    /// Reservations in the node's kernel, by id. They survive a crash of the engine and are removed when a
    /// new engine starts.
    pub fn reservations(&self, node: NodeId) -> impl Iterator<Item = (ReservationId, &Reservation)> {
        self.nodes[node.at()].reservations.iter().map(|(id, reservation)| (*id, reservation))
    }

    /// Sets the result of later requests to reserve. At first all of them succeed.
    pub fn set_reserve_result(&mut self, node: NodeId, result: Result<(), ReserveError>) {
        self.nodes[node.at()].reserve_result = result;
    }

    /// Handles requests in order: `None` releases a reservation, otherwise it is installed.
    pub(super) fn reserve(&mut self, node: NodeId, asked: Vec<(ReservationId, Option<Reservation>)>) {
        for (id, reservation) in asked {
            let state = &mut self.nodes[node.at()];
            let Some(reservation) = reservation else {
                state.reservations.remove(&id);
                continue;
            };
            let (incarnation, result) = (state.incarnation, state.reserve_result);
            if result.is_ok() {
                state.reservations.insert(id, reservation);
            }
            self.enqueue(self.now, Occurrence::Reserved { node, incarnation, id, result });
        }
    }
}
