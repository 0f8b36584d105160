//! The kernel's part in reservations: it does what it is asked, or refuses, and answers in the next event.

use signalbox_core::node::NodeEngine;
use signalbox_core::traffic::{Reservation, ReservationId, ReserveError};

use super::{Sim, What};
use crate::config::NodeId;

impl<N: NodeEngine> Sim<N> {
    /// What stands in the node's kernel, by name. It stays when the engine crashes and goes when it starts anew.
    pub fn reservations(&self, node: NodeId) -> impl Iterator<Item = (ReservationId, &Reservation)> {
        self.nodes[node.at()].reservations.iter().map(|(id, reservation)| (*id, reservation))
    }

    /// How the node's kernel answers from now on. It does what it is asked at first.
    pub fn set_reserve_result(&mut self, node: NodeId, result: Result<(), ReserveError>) {
        self.nodes[node.at()].reserve_result = result;
    }

    /// Installs what has a reservation and removes what has none, in order.
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
            self.enqueue(self.now, What::Reserved { node, incarnation, id, result });
        }
    }
}
