//! The sender of a message: its SII handle for the application (RFC 5971 §7.1.4, B.2).
//!
//! The handle is that of a peer with which this node had a handshake, in this session or another one. It stays valid for
//! a while after the last routing state with the peer is removed. A message does not create a handle. The trust in a
//! handle is the trust in its message:
//!
//! * Over an association the sender is the node at the other end, which opened it or sent a Confirm over it.
//! * In a datagram it is the node of the NLI, if the packet has that source address and was received by the interface
//!   towards that peer. An attacker must be able to forge packets with the address of that peer, as for any Data message
//!   in datagram mode. For a Query, which may have the flow's source address, and for Data without routing state only the
//!   current peer of the session is reported.

use signalbox_core::service::SiiHandle;
use signalbox_core::slab::Key;
use signalbox_core::{Direction, invariant};

use super::Gist;
use super::receive::{Arrival, Subject};
use super::routing::NONE;
use crate::wire::{Encapsulation, Message, MessageType, PORT};

/// The sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// The current peer of the session.
    Present(SiiHandle),
    /// A former peer, or a peer of other sessions.
    Other(SiiHandle),
    /// The sender is not known.
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
    /// The sender of a message with routing state `state` (RFC 5971 B.2). GIST-7.1.4-02, GIST-B.2-03.
    pub(super) fn sender(
        &self,
        a: &Arrival<'_>,
        message: &Message<'_>,
        subject: &Subject<'_>,
        state: Option<(Key, Direction)>,
    ) -> Sender {
        // The sender of a Response or Confirm is the new peer.
        let completes = matches!(message.header.kind, MessageType::RESPONSE | MessageType::CONFIRM);
        if let Some((key, direction)) = state
            && let Some(record) =
                invariant!(self.records.get(key), "a sender is looked for in a session that stands")
            && let Some(sii) = self.peers.sii(record.half(direction).peer)
            && (completes || self.is_present_peer(a, subject, key, direction))
        {
            return Sender::Present(sii);
        }
        let sii = match a.encapsulation {
            Encapsulation::Association => self.sii_of_association(a.association),
            Encapsulation::Normal if a.src.ip() == subject.nli.interface => self
                .peers
                .find(&subject.nli, a.src.port(), a.ifindex)
                .or_else(|| self.peers.find(&subject.nli, PORT, a.ifindex)),
            _ => None,
        };
        sii.map_or(Sender::Unknown, Sender::Other)
    }

    /// Whether the sender is the current peer of the session: by the association of the session, else by its NLI. The
    /// interface is not compared, since routes may differ by direction.
    pub(super) fn is_present_peer(
        &self,
        a: &Arrival<'_>,
        subject: &Subject<'_>,
        key: Key,
        direction: Direction,
    ) -> bool {
        let Some(record) =
            invariant!(self.records.get(key), "a sender is compared with the peer of a session")
        else {
            return false;
        };
        let peer =
            invariant!(self.peers.peer(record.half(direction).peer), "a peer with a handle is in the table");
        let Some(peer) = peer else { return false };
        if a.association == NONE {
            let direct = a.encapsulation == Encapsulation::Normal;
            return peer.is_node(subject.nli.peer_identity, subject.nli.interface)
                && !(direct && a.src.ip() != subject.nli.interface);
        }
        self.association_of(key, direction) == Some(a.association)
            || self.associations.is_with(a.association, &peer.identity, peer.address.ip())
    }
}
