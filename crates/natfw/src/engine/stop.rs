//! A node that stops tells who asked for what ends with it (RFC 5973 §3.7.5).
//!
//! What the next node takes over does not end, so nothing is said about it, and neither about sessions for which nothing is open here.
//! If all sessions of a peer end, it gets one NOTIFY for all of them; the nodes further on get one for each. The CREATE that an
//! edge began is left to its lifetime: an initiator generates no NOTIFY (§3.7.5), and the CREATE is torn down only after its EXTERNAL
//! (§3.7.6.1). The number of messages is bounded, since a stop waits for none of them: sessions beyond it end with their lifetime at
//! other nodes.

use std::collections::BTreeMap;

use signalbox_core::mri::{Direction, PathCoupled};
use signalbox_core::service::SiiHandle;
use signalbox_core::{Key, Mri};

use super::Natfw;
use super::compose::Target;
use super::outbox::Purpose;
use super::request::ALL_SESSIONS;
use super::session::{Origin, Session};
use crate::wire::{Info, Message, MessageType};

/// Most NOTIFYs of a node that stops.
const MOST: usize = 1000;

/// The sessions of a previous peer.
#[derive(Debug, Default, Clone, Copy)]
struct Sessions {
    /// Those that end.
    end: u32,
    /// Those that stay, or for which nothing is open here.
    stay: u32,
    ipv6: bool,
}

impl Sessions {
    /// Whether one NOTIFY is for all of them.
    fn end_together(self) -> bool {
        self.stay == 0 && self.end > 1
    }
}

impl Session {
    /// Whether something is open for it, which ends with the node.
    fn ends(&self, handed_over: bool) -> bool {
        self.plan.passage.is_some() && !(handed_over && self.is_handed_over())
    }

    /// The previous peer, if a node is to be told of the stop: `true` if the session ends.
    fn at_stop(&self, handed_over: bool) -> Option<(SiiHandle, bool)> {
        let peer = self.peers.previous().filter(|_| self.origin() == Origin::Peer)?;
        Some((peer, self.ends(handed_over)))
    }
}

impl Natfw {
    /// Sends the NOTIFYs of a node that stops. `handed_over`: the next node gets what [`Natfw::hand_over`] wrote. It walks over all
    /// sessions, so it is for a node that ends; the sessions stay as they are.
    pub(super) fn on_stop(&mut self, handed_over: bool) {
        // No node takes the requests of front ends over.
        self.delete_for_hosts(MOST);
        let mut peers: BTreeMap<u64, Sessions> = BTreeMap::new();
        let mut unknown_stays = false;
        for (_, session) in self.sessions.iter() {
            // GIST does not know the peer of such a session: it may be any, and a NOTIFY for all would end the session there.
            unknown_stays |= session.peers.are_former() && !session.ends(handed_over);
            let Some((peer, ends)) = session.at_stop(handed_over) else { continue };
            let of_peer = peers.entry(peer.0).or_default();
            *(if ends { &mut of_peer.end } else { &mut of_peer.stay }) += 1;
            of_peer.ipv6 = !session.request.mri().src().is_ipv4();
        }
        if unknown_stays {
            peers.values_mut().for_each(|sessions| sessions.stay += 1);
        }
        let together = |peer: SiiHandle| peers.get(&peer.0).is_some_and(|sessions| sessions.end_together());
        let lost = self.sessions.iter().filter_map(|(key, session)| {
            let (peer, _) = session.at_stop(handed_over).filter(|(_, ends)| *ends)?;
            Some((key, !together(peer), session.plan.forwards))
        });
        let lost: Vec<(Key, bool, bool)> = lost.collect();
        let mut left_out = 0_usize;
        let mut room = MOST;
        let mut take = || {
            let fits = room > 0;
            room = room.saturating_sub(1);
            left_out += usize::from(!fits);
            fits
        };
        // Those who asked come first.
        for (peer, sessions) in peers.iter().filter(|(_, sessions)| sessions.end_together()) {
            if take() {
                self.notify_all(SiiHandle(*peer), sessions.ipv6);
            }
        }
        for (key, _, _) in lost.iter().filter(|(_, alone, _)| *alone) {
            if take() {
                self.notify(*key, Info::TERMINATED, false);
            }
        }
        for (key, _, _) in lost.iter().filter(|(_, _, forwards)| *forwards) {
            if take() {
                self.notify(*key, Info::TERMINATED, true);
            }
        }
        if !lost.is_empty() {
            tracing::info!(
                sessions = lost.len(),
                left_out,
                "others are told of sessions that end with this node"
            );
        }
    }

    /// NOTIFY for all sessions that lead from a peer to this node, over the association with it.
    fn notify_all(&mut self, peer: SiiHandle, ipv6: bool) {
        let any = if ipv6 {
            core::net::Ipv6Addr::UNSPECIFIED.into()
        } else {
            core::net::Ipv4Addr::UNSPECIFIED.into()
        };
        let wildcards = PathCoupled {
            src_prefix: 0,
            dst_prefix: 0,
            direction: Direction::Upstream,
            ..PathCoupled::between(any, any)
        };
        let mri = Mri::PathCoupled(wildcards);
        let to = Target { session: ALL_SESSIONS, mri, state: None, sii: Some(peer), hops: None };
        let notify = Message { info: Some(Info::TERMINATED.into()), ..Message::new(MessageType::NOTIFY) };
        self.send(to, &notify, Purpose::Unwatched);
    }
}
