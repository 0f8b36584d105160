//! The report to the former peer that the route before this node changed (RFC 5974 §5.2.5.3), again.
//!
//! No message answers it. If it is lost in a datagram, a router that the route has left keeps its part until it expires. So the node
//! that sends it sends it again with back-off, until a message of that peer shows that its branch has ended, or that the route leads by
//! it again. A relay that passes it on does so again with each question to its previous peer (see [`super::path_check`]).
//!
//! Copies do not multiply: a node takes one report of a session in [`TAKEN_APART`], and what it passes on has the hop count of what it
//! took. So in a circle of previous peers they come to an end, and a node passes few of them on.

use core::time::Duration;

use signalbox_core::service::SiiHandle;
use signalbox_core::slab::Key;
use signalbox_core::{Direction, Time};

use super::Qos;
use super::compose::{Target, generic_back};
use super::session::Session;
use super::waiting::Arrival;
use crate::wire::{Info, InfoSpec, Message, MessageType};

/// How often a report is sent again, after `request_retry` for the first time and after twice the time each other.
const COPIES: u8 = 3;
/// The time in which a node takes one report of a session, in `request_retry`: longer than a relay passes on what it took.
const TAKEN_APART: u32 = 4;

/// A report that is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Report {
    to: SiiHandle,
    pub(super) at: Time,
    interval: Duration,
    left: u8,
}

impl Qos {
    /// Plans the copies of a report to a former peer. Those of an earlier report of the session end.
    pub(super) fn repeat_report(&mut self, key: Key, to: SiiHandle) {
        if self.attributes().reliable {
            return;
        }
        let interval = self.config.request_retry;
        let report = Report { to, at: self.now + interval, interval, left: COPIES };
        if let Some(session) = self.sessions.get_mut(key) {
            session.rare.change(|rare| rare.report = Some(report));
        }
    }

    /// Sends a copy of a report that is due.
    pub(super) fn step_report(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(report) = session.rare.report.filter(|report| report.at <= self.now) else { return };
        let (interval, left) = (report.interval.saturating_mul(2), report.left.saturating_sub(1));
        let next = Report { at: self.now + interval, interval, left, ..report };
        session.rare.change(|rare| rare.report = Some(next).filter(|next| next.left > 0));
        self.send_report(key, Some(report.to), None);
    }

    /// Sends the report to a former peer, by explicit routing, or to the previous peer. `gist_hops`: the hop count of GIST of a report
    /// that is passed on.
    pub(super) fn send_report(&mut self, key: Key, peer: Option<SiiHandle>, gist_hops: Option<u8>) {
        let Some(session) = self.sessions.get(key) else { return };
        let notify = Message {
            generic: generic_back(session),
            info: Some(InfoSpec { source: self.own_source(session), ..InfoSpec::from(Info::ROUTE_CHANGE) }),
            ..Message::new(MessageType::NOTIFY)
        };
        let previous = Target::towards_initiator(session);
        let to = Target { sii: peer.or(previous.sii), gist_hops, ..previous };
        self.send_notify(to, &notify);
    }

    /// Whether a report of the next peer is taken. It is not if it may be a copy of one that was taken lately.
    pub(super) fn takes_report(&mut self, key: Key) -> bool {
        if self.attributes().reliable {
            return true;
        }
        let (now, apart) = (self.now, self.config.request_retry.saturating_mul(TAKEN_APART));
        let Some(session) = self.sessions.get_mut(key) else { return false };
        if session.rare.no_report_until.is_some_and(|until| now < until) {
            return false;
        }
        session.rare.change(|rare| rare.no_report_until = Some(now + apart));
        true
    }

    /// Forgets when reports are taken again, once it is over.
    pub(super) fn forget_taken(&mut self, key: Key) {
        let now = self.now;
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.rare.no_report_until.is_some_and(|until| until <= now) {
            session.rare.change(|rare| rare.no_report_until = None);
        }
    }

    /// The hop count of the copies of a report that this relay passes on; `None`: it passes no copies on. If the peer preserves no hop
    /// count, copies in a circle would not come to an end.
    pub(super) fn hops_of_copies(&self, arrival: &Arrival) -> Option<u8> {
        let passes = arrival.counted && arrival.hops > 0 && !self.attributes().reliable;
        passes.then_some(arrival.hops)
    }
}

impl Session {
    /// Whether RESERVEs went to this peer, and go to no other one since. A copy of its report may come after GIST has lost the route to
    /// it.
    ///
    /// Upstream only, where such a report always follows a RESERVE that came to the peer by another way. Downstream GIST also makes a
    /// peer report when it receives nothing of this node any more. A node that waits for its own previous peer sends nothing (see
    /// [`super::path_check`]). It would then regard a report that it has caused itself as a sign of another way, and what a crashed initiator
    /// has reserved would end before its time.
    pub(super) fn was_next_peer(&self, peer: Option<SiiHandle>) -> bool {
        self.direction == Direction::Upstream
            && self.next_peer().is_none()
            && peer.is_some_and(|peer| self.is_next_peer(peer))
    }

    /// Ends the copies of a report to this peer: it has torn its branch down, or is the previous peer again.
    pub(super) fn end_report(&mut self, to: Option<SiiHandle>) {
        if self.rare.report.is_some_and(|report| Some(report.to) == to) {
            self.rare.change(|rare| rare.report = None);
        }
    }
}
