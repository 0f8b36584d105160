//! What changes in the node, for users who watch.

use signalbox_core::{SessionChange, Time};
use signalbox_gist::engine::{ChannelId, PeerChange};
use signalbox_resources::{Decision, GrantId};

use crate::composition::{Composition, Place};
use crate::node::Node;
use crate::protocols::ProtocolId;

/// What the kernel keeps for the node that starts in place of one that stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeptInKernel {
    /// The queues of reservations.
    pub queues: bool,
    /// The pinholes that the node [leaves](Node::leaves).
    pub pinholes: bool,
}

/// A change of the node's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A session of a protocol appeared, changed or disappeared.
    Session(ProtocolId, SessionChange),
    /// A peer of GIST appeared or disappeared.
    Peer(PeerChange),
    /// The messaging association of this channel appeared, changed its state or disappeared.
    Association(ChannelId),
    /// A reservation was made, changed or ended. It ended if admission control does not hold it any more.
    Reservation(GrantId),
}

impl Node {
    /// Starts or ends the watch of changes. They cost one comparison each without a watch.
    pub fn watch(&mut self, on: bool) {
        self.resources.changes().watch(on);
        self.protocols.each(|protocol| {
            if let Some(changes) = protocol.changes() {
                changes.watch(on);
            }
        });
        if let Some(gist) = &mut self.protocols.gist {
            gist.engine.peer_changes().watch(on);
            gist.engine.association_changes().watch(on);
        }
    }

    /// The next change. Changes of one kind come in their order; those of reservations come first.
    pub fn next_change(&mut self) -> Option<Change> {
        if let Some(grant) = self.resources.changes().take() {
            return Some(Change::Reservation(grant));
        }
        if let Some(gist) = &mut self.protocols.gist {
            if let Some(peer) = gist.engine.peer_changes().take() {
                return Some(Change::Peer(peer));
            }
            if let Some(channel) = gist.engine.association_changes().take() {
                return Some(Change::Association(channel));
            }
        }
        ProtocolId::ALL.iter().find_map(|id| {
            let change = self.protocols.get_mut(id.place())?.changes()?.take()?;
            Some(Change::Session(*id, change))
        })
    }

    /// The number of changes that were lost since the last call, because they were not taken.
    pub fn changes_lost(&mut self) -> u64 {
        let mut lost = 0;
        self.protocols.each(|protocol| lost += protocol.changes().map_or(0, |changes| changes.take_lost()));
        let gist = self.protocols.gist.as_mut().map_or(0, |gist| {
            gist.engine.peer_changes().take_lost() + gist.engine.association_changes().take_lost()
        });
        lost + gist + self.resources.changes().take_lost()
    }
}

impl<P: Composition> Node<P> {
    /// Starts or ends the record of what becomes of requests. Without it a decision costs one comparison.
    pub fn record_decisions(&mut self, on: bool) {
        self.resources.record_decisions(on);
    }

    /// The node stops: reservations and passages end, unless the kernel keeps them for the next start. Each end is a decision, for
    /// `take`. It walks over all state, so it is for a node that ends.
    pub fn record_stop(&mut self, now: Time, kept: KeptInKernel, mut take: impl FnMut(Decision)) {
        self.resources.begin(now);
        for protocol in Place::all() {
            let mut place = Some(0);
            while let Some(from) = place.take() {
                self.one(protocol, |protocol, cx| {
                    place = protocol.restart().and_then(|one| one.record_stop(cx, from, kept.pinholes));
                });
                while let Some(decision) = self.resources.next_decision() {
                    take(decision);
                }
            }
        }
        let mut place = Some(0).filter(|_| !kept.queues);
        while let Some(from) = place {
            place = self.resources.record_stop(from);
            while let Some(decision) = self.resources.next_decision() {
                take(decision);
            }
        }
    }

    /// The oldest decision that was not taken yet. A driver takes them after each input or each turn.
    #[inline]
    pub fn next_decision(&mut self) -> Option<Decision> {
        self.resources.next_decision()
    }
}
