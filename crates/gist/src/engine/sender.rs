//! Who sent a message: the name that its application knows the sender by (RFC 5971 §7.1.4, B.2).
//!
//! The name is that of a peer which this node has interned because a handshake showed it, in this session or in
//! another one, and keeps for a while after its last state went. Nothing is made for a message. A name is worth
//! what the message is worth that it comes with:
//!
//! * Over an association it is the node at the other end, which opened it or confirmed over it.
//! * In a datagram it is what the NLI says, if the packet has that address as its source and came in by the interface
//!   towards that peer: whoever forges it must be able to forge a packet of that peer's address, which is what
//!   a Data message in datagram mode protects at most. Of a Query, whose source may be the flow's, and of Data
//!   without routing state only the session's present peer is told.

use signalbox_core::Direction;
use signalbox_core::service::SiiHandle;
use signalbox_core::slab::Key;

use super::Gist;
use super::receive::{Arrival, Subject};
use super::record::NONE;
use crate::wire::{Encapsulation, Message, MessageType, PORT};

/// The sender of a message, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// The peer that the session's state points to.
    Present(SiiHandle),
    /// A peer of former times, or of other sessions.
    Other(SiiHandle),
    /// Nobody that this node knows.
    Unknown,
}

impl Sender {
    pub(super) const fn sii(self) -> Option<SiiHandle> {
        match self {
            Self::Present(sii) | Self::Other(sii) => Some(sii),
            Self::Unknown => None,
        }
    }
}

impl Gist {
    /// Who sent a message of the session `state`. GIST-7.1.4-02, GIST-B.2-03.
    pub(super) fn sender(
        &self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
        state: Option<(Key, Direction)>,
    ) -> Sender {
        // What completed a handshake is from the peer that it brought.
        let completes = matches!(message.header.kind, MessageType::RESPONSE | MessageType::CONFIRM);
        if let Some((key, direction)) = state
            && let Some(record) = self.records.get(key)
            && let Some(sii) = self.peers.sii(record.half(direction).peer)
            && (completes || self.is_present_peer(a, subject, key, direction))
        {
            return Sender::Present(sii);
        }
        let sii = match a.encapsulation {
            Encapsulation::Association => self.peer_at_the_end(a.association),
            Encapsulation::Normal if a.src.ip() == subject.nli.interface => self
                .peers
                .find(&subject.nli, a.src.port(), a.ifindex)
                .or_else(|| self.peers.find(&subject.nli, PORT, a.ifindex)),
            _ => None,
        };
        sii.map_or(Sender::Unknown, Sender::Other)
    }

    /// Whether the sender is the peer that state points to: by the association that the session uses, else by
    /// what it calls itself. By which interface it comes does not matter: ways may differ by direction.
    pub(super) fn is_present_peer(
        &self,
        a: &Arrival<'_>,
        subject: &Subject<'_>,
        key: Key,
        direction: Direction,
    ) -> bool {
        let Some(record) = self.records.get(key) else { return false };
        let Some(peer) = self.peers.peer(record.half(direction).peer) else { return false };
        if a.association == NONE {
            let direct = a.encapsulation == Encapsulation::Normal;
            return peer.is_node(subject.nli.peer_identity, subject.nli.interface)
                && !(direct && a.src.ip() != subject.nli.interface);
        }
        self.association_of(key, direction) == Some(a.association)
            || self.associations.is_with(a.association, &peer.identity, peer.address.ip())
    }
}
