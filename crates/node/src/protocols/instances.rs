//! The protocols of a node, without regard to which they are.

use core::fmt;

use super::{Instances, ProtocolId};
use crate::protocol::{Protocol, Size};

impl fmt::Display for ProtocolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Instances {
    /// The identifiers of those that the node runs.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ProtocolId> {
        ProtocolId::ALL.iter().zip(self.slots()).filter(|(_, slot)| slot.is_some()).map(|(id, _)| *id)
    }

    /// Those that the node runs, in the order of the table.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Protocol> {
        self.slots().into_iter().flatten()
    }

    /// How much state each protocol has that the node runs.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (ProtocolId, Size)> {
        self.named().map(|(id, protocol)| (id, protocol.size()))
    }

    /// Those that the node runs with their identifiers, in the order of the table.
    pub(crate) fn named(&self) -> impl Iterator<Item = (ProtocolId, &dyn Protocol)> {
        let slots = ProtocolId::ALL.iter().zip(self.slots());
        slots.filter_map(|(id, slot)| Some((*id, slot?)))
    }

    /// The instance of GIST, which has peers and associations to watch.
    pub(crate) fn gist_mut(&mut self) -> Option<&mut super::gist::Instance> {
        self.gist.as_deref_mut()
    }

    /// Those that the node runs, in the order of the table.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut dyn Protocol> {
        self.slots_mut().into_iter().flatten()
    }
}
