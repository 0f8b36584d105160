//! The contents of HOPS, an object of both clients: the nodes that granted a request.

use signalbox_wire::Writer;
use signalbox_wire::hops::Hops;

/// The nodes that granted a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Listed<'a> {
    /// Number of nodes that the message had passed at the last one of them.
    pub last_hops: u8,
    /// The nodes.
    pub hops: Hops<'a>,
}

impl<'a> Listed<'a> {
    /// Parses the contents of the object.
    #[must_use]
    pub fn parse(contents: &'a [u8]) -> Option<Self> {
        let ([last_hops, ..], list) = contents.split_first_chunk::<4>()?;
        Some(Self { last_hops: *last_hops, hops: Hops::from_octets(list)? })
    }

    /// Appends the contents of the object.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&[self.last_hops, 0, 0, 0]);
        w.bytes(self.hops.octets());
    }

    /// Nodes that only passed the message on since the last one of the list, if it had passed `hops` nodes.
    #[must_use]
    pub const fn unaware(&self, hops: u8) -> u8 {
        hops.saturating_sub(self.last_hops).saturating_sub(1)
    }
}
