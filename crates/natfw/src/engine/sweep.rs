//! What concerns many sessions: aggregated messages, which end all sessions of a peer (RFC 5973 §3.7.4, §3.7.5), another
//! external address of a NAT, and other rules of the policy.
//!
//! The table is visited in parts, one at each turn of the engine, so that one message never costs a whole walk.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use signalbox_core::service::{RecvMessage, SiiHandle};
use signalbox_core::slab::Key;
use signalbox_core::{Mri, invariant};
use signalbox_resources::Resources;

use super::Natfw;
use super::response::rule;
use super::session::{Origin, Session};
use crate::wire::{Info, Message};

/// Sweeps that wait at one time. Each is of one peer.
const MOST: usize = 64;

/// What concerns many sessions, and how far it has come.
#[derive(Debug)]
pub(super) struct Sweep {
    what: What,
    /// Slot of the table where it goes on.
    from: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Deletes the sessions that this initiator made, whose previous peer it is.
    Delete(SiiHandle, IpAddr),
    /// An event of the sessions whose next peer it is.
    Event(SiiHandle, Info),
    /// Ends the sessions with bindings to an address that this NAT had.
    Moved(Ipv4Addr),
    /// Judges passages again.
    Rules,
}

impl What {
    fn concerns(self, session: &Session) -> bool {
        let of_peer = session.origin() == Origin::Peer;
        match self {
            Self::Delete(peer, source) => {
                of_peer
                    && session.peers.previous() == Some(peer)
                    && initiator(&session.request.mri()) == source
            }
            Self::Event(peer, _) => session.peers.next() == Some(peer),
            Self::Moved(former) => (of_peer || session.is_of_host()) && session.is_bound_to(former.into()),
            Self::Rules => session.plan.passage.is_some(),
        }
    }
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
            return self.refuse(received, msn, Info::AUTHORIZATION);
        }
        // Over an established messaging association with the initiator itself: its address is the source of the flows.
        let from = received.mri.src();
        let Some(peer) = received.sii.filter(|_| received.attributes.reliable) else {
            return self.refuse(received, msn, Info::AUTHENTICATION);
        };
        if received.peer_address != Some(from) {
            return self.refuse(received, msn, Info::AUTHORIZATION);
        }
        // What waits is not in the table yet.
        for (session, msn, peer) in self.parked.end_of(peer, from) {
            self.counters.deleted += 1;
            self.keep_number(session, peer, (msn, None));
        }
        self.sweep(What::Delete(peer, from));
    }

    /// NOTIFY for all sessions that lead to a peer (§3.7.5).
    pub(super) fn on_aggregate_notify(&mut self, received: &RecvMessage<'_>, info: Info) {
        match received.sii {
            Some(peer) => self.sweep(What::Event(peer, info)),
            None => {
                self.counters.stray_notifies += 1;
                tracing::debug!(session = %received.session, peer = ?received.sii, reason = "of no known peer", "NOTIFY dropped");
            }
        }
    }

    /// The external address of this NAT is another one than `former`: what was bound to it cannot stay. The initiators are
    /// notified as of a change of the route, and ask again (§3.9).
    pub(super) fn on_moved(&mut self, former: Ipv4Addr) {
        tracing::info!(%former, "the external address changed: bindings to the former one end");
        self.sweep(What::Moved(former));
    }

    /// The rules about passages changed. Peers cannot delay this with messages for many sessions.
    pub(super) fn on_rules(&mut self) {
        self.sweeps.retain(|sweep| sweep.what != What::Rules);
        self.sweeps.push_front(Sweep { what: What::Rules, from: 0 });
    }

    /// Judges the passage of a session again, if the answer may be another one than before. What the rules refuse ends. Whether the
    /// session stands.
    pub(super) fn judge(&mut self, key: Key, resources: &mut Resources) -> bool {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a passage has a session") else {
            return false;
        };
        if !session.plan.passages().any(|passage| resources.may_differ(passage)) {
            return true;
        }
        let Some(pinhole) = invariant!(rule(&session.request, &session.plan), "a passage has a rule") else {
            return true;
        };
        let lifetime = Duration::from_secs(session.accepted.into());
        let (mut allowed, mut ends) = (Vec::new(), false);
        for passage in session.plan.take_passages() {
            let (requester, opening) = (passage.requester().clone(), passage.opening());
            match resources.judge_passage(self.now, passage, &pinhole, lifetime) {
                Ok(passage) => allowed.push(passage),
                Err(refusal) => {
                    tracing::info!(session = %session.id, %opening, reason = %refusal, "passage ended by the rules");
                    Self::note_withdrawn(session, &requester, opening, &refusal, resources);
                    ends = true;
                }
            }
        }
        session.plan.set_passages(allowed);
        if ends {
            self.end(key, Info::TERMINATED, resources);
        }
        !ends
    }

    fn sweep(&mut self, what: What) {
        if self.sweeps.iter().any(|sweep| sweep.what == what && sweep.from == 0) {
            return;
        }
        if self.sweeps.len() >= MOST {
            self.counters.overload += 1;
            tracing::debug!(
                ?what,
                reason = "too many messages for all sessions are carried out",
                "message dropped"
            );
            return;
        }
        self.sweeps.push_back(Sweep { what, from: 0 });
    }

    /// Does the next part of a sweep.
    pub(super) fn step_sweep(&mut self, resources: &mut Resources) {
        let Some(Sweep { what, from }) = self.sweeps.pop_front() else { return };
        let mut found: Vec<Key> = Vec::new();
        let next = self.sessions.walk(from, |key, session| {
            if what.concerns(session) {
                found.push(key);
            }
            true
        });
        for key in found {
            match what {
                What::Delete(..) => {
                    self.counters.deleted += 1;
                    // §3.7.4: the aggregated message is not sent on, but one for each session may be. Only the initiator
                    // numbers messages (§3.5), so a NOTIFY reports the end to the nodes beyond.
                    self.notify(key, Info::TERMINATED, true);
                    self.close(key, resources);
                }
                What::Event(_, info) => {
                    self.notified(key, info, false, resources);
                    self.rearm(key);
                }
                What::Moved(_) => self.end(key, Info::ROUTE_CHANGE, resources),
                What::Rules => {
                    self.judge(key, resources);
                }
            }
        }
        match next {
            Some(from) if what == What::Rules => self.sweeps.push_front(Sweep { what, from }),
            Some(from) => self.sweeps.push_back(Sweep { what, from }),
            None => {}
        }
    }
}

/// The address of the initiator by the MRI of its request: the sender of a CREATE, the receiver of an EXTERNAL.
pub(super) const fn initiator(mri: &Mri) -> IpAddr {
    match mri.direction() {
        signalbox_core::Direction::Downstream => mri.src(),
        signalbox_core::Direction::Upstream => mri.dst(),
    }
}
