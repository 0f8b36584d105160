//! A check of each request of a node to its kernel: the reservations installed at an interface never exceed its share.

use std::collections::{BTreeMap, VecDeque};

use signalbox_core::IfIndex;
use signalbox_core::node::{Input, Output};
use signalbox_core::traffic::ReservationId;
use signalbox_sim::NodeId;

/// An interface, and the installed rate there in octets a second.
type Standing = (IfIndex, u64);

/// The reservations of one node.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    installed: BTreeMap<ReservationId, Standing>,
    /// The reservations before the requests that are not answered yet.
    before: VecDeque<(ReservationId, Option<Standing>)>,
}

impl Kernel {
    /// Removes the reservations that the kernel refuses.
    pub(crate) fn answers<C>(&mut self, input: &Input<'_, C>) {
        let Input::Reserved { id, result } = input else { return };
        let Some(at) = self.before.iter().position(|(of, _)| of == id) else { return };
        if let Some((id, before)) = self.before.remove(at)
            && result.is_err()
        {
            match before {
                Some(before) => self.installed.insert(id, before),
                None => self.installed.remove(&id),
            };
        }
    }

    /// Records a request to the kernel. Fails when an interface has more than `share` octets a second.
    pub(crate) fn take_request<E>(
        &mut self,
        node: NodeId,
        output: &Output<'_, E>,
        share: impl Fn(IfIndex) -> u64,
    ) {
        match output {
            Output::Reserve { id, reservation } => {
                let ifindex = reservation.ifindex;
                let stood = self.installed.insert(*id, (ifindex, reservation.rate()));
                self.before.push_back((*id, stood));
                let at = self.installed.values().filter(|(at, _)| *at == ifindex);
                let (sum, share) = (at.map(|(_, rate)| rate).sum::<u64>(), share(ifindex));
                assert!(sum <= share, "{node} holds {sum} of {share} at {ifindex:?}");
            }
            Output::Release { id } => {
                self.installed.remove(id);
                self.before.retain(|(of, _)| of != id);
            }
            _ => {}
        }
    }
}
