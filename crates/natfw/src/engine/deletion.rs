//! Deletions of sessions that this node does not have (RFC 5973 §3.7.4).
//!
//! A deletion travels to the end of the flow. A node whose session ended before may have others behind it whose sessions did not: it
//! sends the deletion on. Nothing shows that it would have let a session in that it never had, so it sends on only what ended here of
//! late, by the same peer, for the same flow. The number of each other one is kept for the peer that sent it ([`super::ended`]).

use signalbox_core::Mri;
use signalbox_core::mri::Direction;
use signalbox_core::service::{Onward, RecvMessage};

use super::Natfw;
use super::compose::Target;
use super::config::Middlebox;
use super::ended::Holder;
use super::interfaces::Side;
use super::outbox::Purpose;
use super::request::{kind_of, numbered_peer};
use super::reservation::Invitation;
use super::session::Kind;
use crate::wire::Message;

impl Natfw {
    /// A deletion of a session that this node does not have: the session ended here before, or its request waits for a route, or the
    /// network delays it. It does not make the session any more.
    pub(super) fn on_early_deletion(&mut self, received: &RecvMessage<'_>, message: &Message<'_>, msn: u32) {
        let waited = self.parked.end(received.session, received.sii, msn).is_some();
        // A peer whose address GIST does not know has shown nothing.
        let holder = received.peer_address.map(|peer| Holder::of(&self.hasher, &received.mri, peer));
        let known = holder.filter(|holder| self.ended.was_held_by(self.now, received.session, *holder));
        // What has this number went on before, and may have come back.
        let first = self.outdated(received, msn).is_none()
            && self.keep_number(received.session, numbered_peer(received), (msn, known));
        let onward = if known.is_some() && first { self.beyond(received, message) } else { None };
        if let Some(mri) = onward {
            tracing::debug!(session = %received.session, peer = ?received.sii, "deletion of a session that ended here sent on");
            self.send_beyond(received, message, mri);
        } else if !waited {
            self.counters.unknown_session += 1;
            tracing::debug!(session = %received.session, peer = ?received.sii, reason = "no such session", "deletion without effect");
        }
        self.counters.deleted += u64::from(waited);
    }

    /// A deletion by a peer that does not have the session here. The route may have changed, so that its request comes later.
    pub(super) fn on_foreign_deletion(&mut self, received: &RecvMessage<'_>, msn: u32) {
        let waited = self.parked.end(received.session, received.sii, msn).is_some();
        self.counters.deleted += u64::from(waited);
        if self.outdated(received, msn).is_none() {
            self.keep_number(received.session, numbered_peer(received), (msn, None));
        }
    }

    /// Why a request is too old, if it is not newer than its session, which ended, or than a deletion by the same peer.
    pub(super) fn outdated(&self, received: &RecvMessage<'_>, msn: u32) -> Option<&'static str> {
        self.ended.outdated(self.now, received.session, numbered_peer(received), msn)
    }

    /// The MRI with which a deletion goes on past this node. `None`: it ends here, or the translation of its flow is not known any more.
    fn beyond(&self, received: &RecvMessage<'_>, message: &Message<'_>) -> Option<Mri> {
        if received.at_flow_end || received.onward() == Onward::Spent {
            return None;
        }
        let side = self.interfaces.side(received.ifindex);
        match (kind_of(message), &received.mri, self.config.middlebox) {
            (_, _, Middlebox::Nat) => None,
            (_, mri, Middlebox::None) => Some(*mri),
            (Kind::Create, Mri::PathCoupled(flow), middlebox) if flow.direction == Direction::Downstream => {
                if middlebox == Middlebox::TwiceNat {
                    return self.mapped(*flow, side == Side::Inside).ok().map(Mri::PathCoupled);
                }
                let ends = message.proxy && !message.extend && self.config.edge && side == Side::Inside;
                let second = message.efi.is_some_and(|efi| efi.sub_ports > 0);
                // §4.2.4: where data is blocked, signaling is not forwarded.
                let blocked = || self.invitation(flow, second) == Invitation::Blocked;
                Some(received.mri).filter(|_| !ends && !blocked())
            }
            // §3.7.2: EXTERNAL does not leave the network.
            (Kind::External, mri, Middlebox::Firewall) if !self.config.edge && side == Side::Inside => {
                Some(*mri)
            }
            (Kind::Create | Kind::External, _, Middlebox::Firewall | Middlebox::TwiceNat) => None,
        }
    }

    /// Sends a deletion on as it came. It is not answered.
    fn send_beyond(&mut self, received: &RecvMessage<'_>, message: &Message<'_>, mri: Mri) {
        let hops = match received.onward() {
            Onward::Preserved(hops) => Some(hops),
            Onward::Own | Onward::Spent => None,
        };
        let to = Target { session: received.session, mri, state: None, sii: None, hops };
        let deletion = Message { hops: None, neighbor: false, ..*message };
        self.send(to, &deletion, Purpose::Unwatched);
    }
}
