//! The protocols of a node, without regard to which they are.

use core::fmt;

use super::{Instance, Instances, ProtocolId};
use crate::protocol::Protocol;

impl fmt::Display for ProtocolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Instances {
    pub(super) fn get_as_mut(&mut self, id: ProtocolId) -> Option<&mut Instance> {
        self.0.get_mut(id as usize)?.as_mut()
    }

    /// The identifiers of those that the node runs.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ProtocolId> {
        ProtocolId::ALL.iter().zip(&self.0).filter(|(_, slot)| slot.is_some()).map(|(id, _)| *id)
    }

    /// A protocol, if the node runs it.
    pub(crate) fn get_mut(&mut self, id: ProtocolId) -> Option<&mut dyn Protocol> {
        self.get_as_mut(id).map(Instance::protocol_mut)
    }

    /// Two different protocols at a time, if the node runs both.
    pub(crate) fn pair_mut(&mut self, ids: [ProtocolId; 2]) -> Option<[&mut dyn Protocol; 2]> {
        let [first, second] = self.0.get_disjoint_mut(ids.map(|id| id as usize)).ok()?;
        Some([first.as_mut()?.protocol_mut(), second.as_mut()?.protocol_mut()])
    }

    /// Those that the node runs, in the order of the table.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Protocol> {
        self.0.iter().flatten().map(Instance::protocol)
    }

    /// Those that the node runs, in the order of the table.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (ProtocolId, &mut dyn Protocol)> {
        let slots = ProtocolId::ALL.iter().zip(&mut self.0);
        slots.filter_map(|(id, slot)| Some((*id, slot.as_mut()?.protocol_mut())))
    }
}
