//! Aggregated messages: one that ends all sessions of a peer (RFC 5973 §3.7.4, §3.7.5).
//!
//! The table is visited in parts, one at each turn of the engine, so that one message never costs a whole walk.

use core::net::IpAddr;

use signalbox_core::Mri;
use signalbox_core::service::{RecvMessage, SiiHandle};
use signalbox_core::slab::Key;
use signalbox_resources::Resources;

use super::Natfw;
use super::session::Origin;
use crate::wire::{Info, Message};

/// Sweeps that wait at one time. Each is of one peer.
const MOST: usize = 64;

/// A message for all sessions of a peer, and how far it has come.
#[derive(Debug)]
pub(super) struct Sweep {
    peer: SiiHandle,
    what: What,
    /// Slot of the table where it goes on.
    from: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Deletes the sessions that this initiator made.
    Delete(IpAddr),
    /// An event of the sessions whose next peer it is.
    Event(Info),
}

impl Natfw {
    /// CREATE or EXTERNAL with lifetime 0 for all sessions of an initiator (§3.7.4).
    pub(super) fn on_aggregate_deletion(
        &mut self,
        received: &RecvMessage<'_>,
        message: &Message<'_>,
        msn: u32,
    ) {
        if !message.deletes() {
            return self.refuse(received, msn, Info::AUTHORIZATION, None, None);
        }
        // Over an established messaging association with the initiator itself: its address is the source of the flows.
        let from = received.mri.src();
        let Some(peer) = received.sii.filter(|_| received.attributes.reliable) else {
            return self.refuse(received, msn, Info::AUTHENTICATION, None, None);
        };
        if received.peer_address != Some(from) {
            return self.refuse(received, msn, Info::AUTHORIZATION, None, None);
        }
        self.sweep(Sweep { peer, what: What::Delete(from), from: 0 });
    }

    /// NOTIFY for all sessions that lead to a peer (§3.7.5).
    pub(super) fn on_aggregate_notify(&mut self, received: &RecvMessage<'_>, info: Info) {
        match received.sii {
            Some(peer) => self.sweep(Sweep { peer, what: What::Event(info), from: 0 }),
            None => self.counters.stray_notifies += 1,
        }
    }

    fn sweep(&mut self, sweep: Sweep) {
        let waits =
            self.sweeps.iter().any(|one| one.peer == sweep.peer && one.what == sweep.what && one.from == 0);
        if waits {
            return;
        }
        if self.sweeps.len() >= MOST {
            self.counters.overload += 1;
            return;
        }
        self.sweeps.push_back(sweep);
    }

    /// Does the next part of a sweep.
    pub(super) fn step_sweep(&mut self, resources: &mut Resources) {
        let Some(Sweep { peer, what, from }) = self.sweeps.pop_front() else { return };
        let mut found: Vec<Key> = Vec::new();
        let next = self.sessions.walk(from, |key, session| {
            let concerned = match what {
                What::Delete(source) => {
                    session.previous == Some(peer) && initiator(&session.asked.mri) == source
                }
                What::Event(_) => session.next == Some(peer),
            };
            if concerned && (matches!(session.origin, Origin::Peer) || session.next == Some(peer)) {
                found.push(key);
            }
            true
        });
        for key in found {
            match what {
                What::Delete(_) => {
                    self.counters.deleted += 1;
                    // §3.7.4: the aggregated message is not sent on, but one for each session may be. Only the initiator
                    // numbers messages (§3.5), so a NOTIFY reports the end to the nodes beyond.
                    self.notify(key, Info::TERMINATED, true);
                    self.close(key, resources);
                }
                What::Event(info) => {
                    self.notified(key, info, false, resources);
                    self.rearm(key);
                }
            }
        }
        if let Some(from) = next {
            self.sweeps.push_back(Sweep { peer, what, from });
        }
    }
}

/// The address of the initiator by the MRI of its request: the sender of a CREATE, the receiver of an EXTERNAL.
const fn initiator(mri: &Mri) -> IpAddr {
    match mri.direction() {
        signalbox_core::Direction::Downstream => mri.src(),
        signalbox_core::Direction::Upstream => mri.dst(),
    }
}
