//! Whether a relay is still on the path.
//!
//! A node whose next peer is gone or new reserves along the new route by itself (RFC 5974 §5.2.5.2). But a node that lost
//! its own previous peer cannot distinguish that from the end of its branch: the reservation may have moved, or have been
//! released, and a RESERVE of this node would take the session from the new branch, or restore it after its end. So a
//! relay first requires a sign of its previous peer. It sends the RESPONSE "Full QSPEC required" (§5.4.1) for the RSN of
//! that peer, which answers with a RESERVE if this node is its next peer. A previous peer that is a relay asks in turn, so
//! that the answer comes from the initiator. A node without an answer sends nothing, and its state expires.
//!
//! The next peer may report that the route before it changed (§5.2.5.3). The node where the routes part tears the old branch
//! down, but not if the link to it is lost. So a relay that gets this report, and soon neither a tear nor a RESERVE, asks its
//! previous peer too. If that peer does not answer either, the relay is off the path, and gives its part back. Each relay of the
//! branch gets the report, so no tear is needed. A report alone ends no reservation.

use core::time::Duration;

use signalbox_core::slab::Key;
use signalbox_core::{Direction, Time, invariant};
use signalbox_resources::{End, Resources};

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
    /// Nothing more: it stays on the path.
    Stay,
}

/// How often a relay asks its previous peer after a report of the next one, once in each `request_retry`, before it leaves the path.
const QUESTIONS: u8 = 3;

/// A relay waits for a RESERVE of its previous peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PathCheck {
    then: Then,
    /// Time of the next request.
    pub(super) at: Time,
    interval: Duration,
    /// Requests until this node leaves the path without an answer, if the next peer has reported a route change. Otherwise it waits
    /// until its state expires.
    left: Option<u8>,
    /// The hop count with which that report is passed on again; `None`: it is not.
    hops: Option<u8>,
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
        let Some(session) = invariant!(self.sessions.get_mut(key), "a relay has a session") else {
            return false;
        };
        let relays = session.previous_peer().is_some() && !session.marks.has(Marks::QNI);
        // RESERVEs upstream follow the Queries of the nodes before this one, which only nodes on the path send. But the next peer may
        // have reported that it has another path.
        let reported = session.rare.path_check.is_some_and(|path_check| path_check.left.is_some());
        let asks = session.direction == Direction::Downstream || reported;
        if !relays || !asks || session.stage != Stage::Reserved {
            return false;
        }
        let interval = self.config.request_retry;
        let (path_check, first) = match session.rare.path_check {
            Some(path_check) if path_check.then != Then::Stay => (
                PathCheck { then: if then == Then::Route { then } else { path_check.then }, ..path_check },
                false,
            ),
            reported => {
                let (left, hops) =
                    reported.map_or((None, None), |path_check| (path_check.left, path_check.hops));
                (PathCheck { then, at: self.now + interval, interval, left, hops }, true)
            }
        };
        session.rare.change(|rare| rare.path_check = Some(path_check));
        if !first {
            return true;
        }
        self.require_reserve(key);
        true
    }

    /// Handles the report of the next peer that the route before it changed. The first question waits for the tear of the node where
    /// the routes part, or for a RESERVE. `hops`: with which the report is passed on again, with each question.
    pub(super) fn check_path(&mut self, key: Key, hops: Option<u8>) {
        let interval = self.config.request_retry;
        let first = self.now + interval / 2;
        let tears = self.config.tear_old_branch;
        let Some(session) = invariant!(self.sessions.get_mut(key), "a report has a session") else { return };
        let relays = session.previous_peer().is_some() && !session.marks.has(Marks::QNI);
        let kept = session.marks.has(Marks::NO_REPLACE) || !tears;
        if !relays || kept || session.stage != Stage::Reserved {
            return;
        }
        session.rare.change(|rare| {
            let (then, at) =
                rare.path_check.map_or((Then::Stay, first), |known| (known.then, known.at.min(first)));
            rare.path_check = Some(PathCheck { then, at, interval, left: Some(QUESTIONS), hops });
        });
    }

    /// Forgets what the next peer reported: another one is the next peer now.
    pub(super) fn forget_report(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.rare.no_report_until.is_some() {
            session.rare.change(|rare| rare.no_report_until = None);
        }
        let Some(path_check) = session.rare.path_check.filter(|path_check| path_check.left.is_some()) else {
            return;
        };
        let waits = (path_check.then != Then::Stay).then_some(PathCheck { left: None, ..path_check });
        session.rare.change(|rare| rare.path_check = waits);
    }

    /// Asks again when it is time. Without a report of the next peer the wait doubles, and the state of a node without an answer
    /// expires.
    pub(super) fn step_path_check(&mut self, key: Key, resources: &mut Resources) {
        let Some(session) = self.sessions.get_mut(key) else { return }; // what was due before may have ended it
        let Some(path_check) = session.rare.path_check.filter(|path_check| path_check.at <= self.now) else {
            return;
        };
        if path_check.left == Some(0) {
            return self.leave_old_branch(key, resources);
        }
        let left = path_check.left.map(|left| left - 1);
        let interval =
            if left.is_some() { path_check.interval } else { path_check.interval.saturating_mul(2) };
        let path_check = PathCheck { interval, at: self.now + interval, left, ..path_check };
        session.rare.change(|rare| rare.path_check = Some(path_check));
        self.require_reserve(key);
        if left.is_some() && path_check.hops.is_some() {
            self.send_report(key, None, path_check.hops);
        }
    }

    /// Gives back what this node holds of an old branch. It sends no tear: should the next peer have this node as its previous peer
    /// all the same, only this node has lost anything, and has it back with the next refresh.
    fn leave_old_branch(&mut self, key: Key, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get(key), "an old branch has a session") else { return };
        self.counters.left += 1;
        tracing::debug!(
            session = %session.id,
            reason = "the next peer has another previous peer, and that of this node does not answer",
            "reservation released"
        );
        resources.because(End::Rerouted);
        self.release(key, resources);
        self.on_gone(key);
        self.release_route(key);
        self.close(key, resources);
    }

    fn require_reserve(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get(key), "a question has a session") else { return };
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
    pub(super) fn end_path_check(&mut self, key: Key, request: Option<Request>) -> bool {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a sign of life has a session") else {
            return false;
        };
        let Some(path_check) = session.rare.change(|rare| rare.path_check.take()) else { return false };
        match (path_check.then, request) {
            (Then::Route, request) => {
                let answered = session.is_answered();
                match request {
                    Some(request) if answered => {
                        self.respond(key, request.rii, Info::RESERVED, None::<Hops<'_>>);
                    }
                    request => session.rare.change(|rare| rare.request = request),
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
            (Then::Stay, _) => false,
        }
    }
}

impl Session {
    /// Whether the path has answered the reservation with its contents, perhaps before the route changed. Then a node of the path may
    /// answer for it. A refresh that a peer wants whole, or a repair, is no change of the contents.
    pub(super) fn is_answered(&self) -> bool {
        self.marks.has(Marks::ONCE_CONFIRMED) && !self.marks.has(Marks::UNANSWERED)
    }

    /// Whether this node sends nothing to the next peer until its previous peer has sent a RESERVE.
    pub(super) fn checks_path(&self) -> bool {
        self.rare.path_check.is_some()
    }

    /// Whether it then sends one along its route, or to the next peer.
    pub(super) fn holds_reserve(&self) -> bool {
        self.rare.path_check.is_some_and(|path_check| path_check.then != Then::Stay)
    }
}
