//! Whether a relay is still on the path.
//!
//! A node whose next peer is gone or new reserves along the new route by itself (RFC 5974 §5.2.5.2). But a node that lost
//! its own previous peer cannot distinguish that from the end of its branch: the reservation may have moved, or have been
//! released, and a RESERVE of this node would take the session from the new branch, or restore it after its end. So a
//! relay first requires a sign of its previous peer. It sends the RESPONSE "Full QSPEC required" (§5.4.1) for the RSN of
//! that peer, which answers with a RESERVE if this node is its next peer. A previous peer that is a relay asks in turn, so
//! that the answer comes from the initiator. A node without an answer sends nothing, and its state expires.

use core::time::Duration;

use signalbox_core::slab::Key;
use signalbox_core::{Direction, Time};

use super::Qos;
use super::compose::{Target, generic_back};
use super::session::{Marks, RequestKind, Session, Stage};
use crate::wire::{Hops, Info, InfoSpec, Message, MessageType};

/// What a relay does after the RESERVE of its previous peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Looks up the route, and reserves along it.
    Route,
    /// Sends a full RESERVE to the next peer.
    Whole,
}

/// A relay waits for a RESERVE of its previous peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Doubt {
    then: Then,
    /// Time of the next request.
    pub(super) at: Time,
    interval: Duration,
}

/// A request of the previous peer that goes along the new route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) rii: u32,
    /// Its list of hops, with this node.
    pub(super) hops: Vec<u8>,
}

impl Qos {
    /// Asks the previous peer for a RESERVE if this node is a relay. False: this node is not a relay, and acts at once.
    pub(super) fn ask_previous_peer(&mut self, key: Key, then: Then) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return false };
        let relays = session.previous_peer().is_some() && !session.marks.has(Marks::QNI);
        // RESERVEs upstream follow the Queries of the nodes before this one, which only nodes on the path send.
        let downstream = session.direction == Direction::Downstream;
        if !relays || !downstream || session.stage != Stage::Reserved {
            return false;
        }
        let interval = self.config.request_retry;
        let (doubt, first) = match session.seldom.doubt {
            Some(doubt) => {
                (Doubt { then: if then == Then::Route { then } else { doubt.then }, ..doubt }, false)
            }
            None => (Doubt { then, at: self.now + interval, interval }, true),
        };
        session.seldom.change(|seldom| seldom.doubt = Some(doubt));
        if !first {
            return true;
        }
        self.require_reserve(key);
        true
    }

    /// Asks again when it is time. The wait doubles; the state of a node without an answer expires.
    pub(super) fn step_doubt(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(doubt) = session.seldom.doubt.filter(|doubt| doubt.at <= self.now) else { return };
        let interval = doubt.interval.saturating_mul(2);
        let doubt = Doubt { interval, at: self.now + interval, ..doubt };
        session.seldom.change(|seldom| seldom.doubt = Some(doubt));
        self.require_reserve(key);
    }

    fn require_reserve(&mut self, key: Key) {
        let Some(session) = self.sessions.get(key) else { return };
        tracing::debug!(session = %session.id, "previous peer asked for a RESERVE");
        let source = self.own_source(session);
        let response = Message {
            generic: generic_back(session),
            rsn: session.rsn_in.get(),
            info: Some(InfoSpec { source, ..InfoSpec::from(Info::FULL_QSPEC_REQUIRED) }),
            ..Message::new(MessageType::RESPONSE)
        };
        self.send_response(Target::towards_initiator(session), &response);
    }

    /// Does what waited for the RESERVE of the previous peer that has come, which perhaps is a request. True: that RESERVE
    /// needs nothing more.
    ///
    /// The path has perhaps never answered the reservation, because the route changed before. Then the RESERVE along the new route
    /// is the request of that peer: its user gets the answer of the whole path, and no second request is on the way.
    pub(super) fn end_doubt(&mut self, key: Key, request: Option<Request>) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return false };
        let Some(doubt) = session.seldom.change(|seldom| seldom.doubt.take()) else { return false };
        match (doubt.then, request) {
            (Then::Route, request) => {
                let answered = session.marks.has(Marks::ONCE_CONFIRMED);
                match request {
                    Some(request) if answered => {
                        self.respond(key, request.rii, Info::RESERVED, None::<Hops<'_>>);
                    }
                    request => session.seldom.change(|seldom| seldom.request = request),
                }
                self.look_up_repair(key);
                true
            }
            // The RESERVE itself is forwarded.
            (Then::Whole, Some(_)) => false,
            (Then::Whole, None) => {
                self.send_whole(key, RequestKind::Repair);
                true
            }
        }
    }
}

impl Session {
    /// Whether this node sends nothing to the next peer until its previous peer has sent a RESERVE.
    pub(super) fn is_doubted(&self) -> bool {
        self.seldom.doubt.is_some()
    }
}
