//! Route lookups: whose they are.

use signalbox_core::slab::{Key, Slab};

use crate::composition::Place;

/// Lookups that wait for their answers. Protocols choose identifiers of their own; the driver gets the node's, which
/// name a protocol and its identifier. Each lookup is answered once, so the table holds no more than the protocols
/// wait for.
#[derive(Debug)]
pub(crate) struct Lookups(Slab<(Place, u64)>);

impl Default for Lookups {
    fn default() -> Self {
        Self(Slab::new(u32::MAX))
    }
}

impl Lookups {
    /// The table as one protocol uses it.
    pub(crate) fn of(&mut self, protocol: Place) -> ProtocolLookups<'_> {
        ProtocolLookups { table: self, protocol }
    }

    /// Whose lookup is answered, and the identifier that it knows; `None` if it was answered before.
    pub(crate) fn take(&mut self, id: u64) -> Option<(Place, u64)> {
        self.0.remove(Key::from_u64(id))
    }
}

/// The route lookups of one protocol: [`Composed::poll`](crate::protocol::Composed::poll) gets it.
#[derive(Debug)]
pub struct ProtocolLookups<'a> {
    table: &'a mut Lookups,
    protocol: Place,
}

impl ProtocolLookups<'_> {
    /// The node's identifier of the protocol's lookup, for [`Output::RouteLookup`](signalbox_core::node::Output::RouteLookup).
    /// The answer comes as [`Input::Route`](crate::protocol::Input::Route) with the protocol's own identifier, unless as many lookups
    /// wait as there are numbers: then no answer comes.
    #[must_use]
    pub fn put(self, id: u64) -> u64 {
        // The key of a full table names nothing: the answer goes nowhere, and the protocol gives up by its own timer.
        self.table.0.insert((self.protocol, id)).unwrap_or_default().to_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::ProtocolId;

    #[test]
    fn equal_identifiers_of_two_protocols_are_distinguished_and_answered_once() {
        let mut lookups = Lookups::default();
        let (first, second) =
            (lookups.of(ProtocolId::Ping.place()).put(7), lookups.of(ProtocolId::Rsvp.place()).put(7));
        assert_eq!(lookups.take(second), Some((ProtocolId::Rsvp.place(), 7)));
        assert_eq!(lookups.take(first), Some((ProtocolId::Ping.place(), 7)));
        let third = lookups.of(ProtocolId::Gist.place()).put(8);
        assert_eq!((lookups.take(first), lookups.take(0)), (None, None), "answered before, never asked");
        assert_eq!(lookups.take(third), Some((ProtocolId::Gist.place(), 8)));
    }
}
