//! What changes in the node, for users who watch.

use signalbox_core::SessionChange;
use signalbox_resources::GrantId;

use crate::node::Node;
use crate::protocols::ProtocolId;

/// A change of the node's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A session of a protocol appeared or disappeared.
    Session(ProtocolId, SessionChange),
    /// A reservation was made, changed or ended. It ended if admission control does not hold it any more.
    Reservation(GrantId),
}

impl Node {
    /// Starts or ends the watch of changes. They cost one comparison each while nobody watches.
    pub fn watch(&mut self, on: bool) {
        self.resources.changes().watch(on);
        for changes in self.protocols.iter_mut().filter_map(|protocol| protocol.changes()) {
            changes.watch(on);
        }
    }

    /// The next change. Changes of one protocol come in their order; those of reservations come first.
    pub fn next_change(&mut self) -> Option<Change> {
        if let Some(grant) = self.resources.changes().take() {
            return Some(Change::Reservation(grant));
        }
        ProtocolId::ALL.iter().find_map(|id| {
            let change = self.protocols.get_mut(*id)?.changes()?.take()?;
            Some(Change::Session(*id, change))
        })
    }

    /// The number of changes that were lost since the last call, because they were not taken.
    pub fn changes_lost(&mut self) -> u64 {
        let protocols = self.protocols.iter_mut().filter_map(|protocol| protocol.changes());
        let lost: u64 = protocols.map(|changes| changes.take_lost()).sum();
        lost + self.resources.changes().take_lost()
    }
}
