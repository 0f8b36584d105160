//! NOTIFYs (RFC 5974 §5.4.4).

use signalbox_core::invariant;
use signalbox_core::slab::Key;
use signalbox_resources::Resources;

use super::Qos;
use super::compose::{Target, generic, generic_back};
use super::event::Failure;
use super::receive::cut;
use super::response::failure;
use super::session::{Marks, RequestKind, Stage};
use super::waiting::Arrival;
use crate::wire::{Info, InfoClass, InfoSpec, Message, MessageType, Source};

impl Qos {
    pub(super) fn on_notify(&mut self, message: &Message<'_>, arrival: &Arrival, resources: &mut Resources) {
        let (Some(info), Some(key)) = (message.info, self.find(arrival.session)) else {
            self.counters.stray_notifies += 1;
            tracing::debug!(session = %arrival.session, reason = "session is not known", "NOTIFY dropped");
            return;
        };
        let Some(session) = invariant!(self.sessions.get_mut(key), "a NOTIFY's key is valid") else { return };
        let towards_initiator = arrival.mri.direction() != session.direction;
        tracing::debug!(session = %arrival.session, peer = ?arrival.sii, info = %info.info, "NOTIFY");
        // Errors are accepted from the next peer of the session only.
        let stranger =
            towards_initiator && session.next_peer().is_some() && session.next_peer() != arrival.sii;
        if stranger && info.info.is_error() {
            self.counters.stray_notifies += 1;
            tracing::debug!(
                session = %arrival.session,
                peer = ?arrival.sii,
                reason = "not from the next peer",
                "NOTIFY dropped"
            );
            return;
        }
        if info.info == Info::ROUTE_CHANGE && towards_initiator {
            if stranger {
                return; // it comes from an old branch, whose route change is the one that was repaired (§3.2.12)
            }
            if session.marks.has(Marks::ROUTE_REPORTED) {
                return; // an earlier one was passed on, and nothing has come back since
            }
            if !self.takes_report(key) {
                return; // a copy of one that was taken
            }
            let Some(session) = self.sessions.get_mut(key) else { return };
            session.marks.set(Marks::ROUTE_REPORTED, true);
            if session.marks.has(Marks::QNI) {
                return self.verify_route(key);
            }
            if session.next_peer() == arrival.sii || session.was_next_peer(arrival.sii) {
                self.check_path(key, self.hops_of_copies(arrival));
            }
        }
        let Some(session) = invariant!(self.sessions.get(key), "a path check ends no session") else {
            return;
        };
        if !towards_initiator {
            // The receiver, or a node on the way from it, refuses what this sender asked it for.
            let waits = session.local.is_some()
                && session.pending.iter().any(|pending| pending.kind == RequestKind::ReserveInit);
            if waits && info.info.is_error() {
                let failure = failure(message, &info);
                return self.on_refused(key, RequestKind::ReserveInit, failure, resources);
            }
            let concerns = session.stage == Stage::Reserved || session.marks.has(Marks::RECEIVER_INITIATED);
            if concerns && !session.is_end() {
                self.pass_notify(key, message, arrival, true);
            }
            return;
        }
        if !session.marks.has(Marks::QNI) {
            if session.previous_peer().is_some() {
                self.pass_notify(key, message, arrival, false);
            }
            return;
        }
        // The QNI decides what to do (§5.4.4): here, a reservation that is not complete on the path ends.
        if info.info.is_error() {
            let failure = failure(message, &info);
            self.fail(key, failure, resources);
        }
    }

    /// Forwards a NOTIFY towards the QNI or QNR. RFC 5974 §5.4.4 lets no NOTIFY cause another message, §5.2.5.3
    /// propagates them. Without forwarding, the QNI would not learn of a preemption.
    ///
    /// The hop count of GIST goes on with it: while routes form a circle, the previous peers of a session can form one
    /// too.
    fn pass_notify(&mut self, key: Key, message: &Message<'_>, arrival: &Arrival, onward: bool) {
        if !self.may_pass_back(key, None, arrival) {
            return;
        }
        let Some(session) = invariant!(self.sessions.get(key), "a passed NOTIFY has a session") else {
            return;
        };
        let notify = Message {
            generic: if onward { generic(session) } else { generic_back(session) },
            info: message.info,
            qspec: message.qspec,
            note: message.note,
            available: message.available,
            forwarded: message.forwarded,
            refreshed: message.refreshed,
            ..Message::new(MessageType::NOTIFY)
        };
        let to = if onward { Target::towards_responder(session) } else { Target::towards_initiator(session) };
        self.send_notify(Target { gist_hops: Some(arrival.hops), ..to }, &notify);
    }

    /// Notifies the QNI that the user at the QNR does not need the reservation any more (RFC 5974 §5.4.4). Returns the
    /// octets, to be sent again.
    pub(super) fn notify_receiver(&mut self, key: Key) -> Option<Vec<u8>> {
        self.notify_back(key, Info::RESERVATION_FAILURE, Some("released by the sender"), true)
    }

    /// Notifies the sender of a flow that the reservation which it asked this node for failed. No RESPONSE reaches it: a QUERY with
    /// RESERVE-INIT is answered by a RESERVE (RFC 5974 §4.3), and the errors of a RESERVE go to the node that sent it (§5.4.3).
    pub(super) fn notify_sender(&mut self, key: Key, failure: &Failure) {
        let Some(session) = invariant!(self.sessions.get(key), "a failure has a session") else { return };
        let node = failure.node.as_deref().and_then(|node| node.parse().ok());
        let source = node.map_or_else(|| self.own_source(session), Source::Address);
        let info = Info { class: InfoClass(failure.class), code: failure.code };
        let info = if info.is_error() { info } else { Info::RESERVATION_FAILURE };
        let notify = Message {
            generic: generic(session),
            info: Some(InfoSpec { source, ..InfoSpec::from(info) }),
            note: failure.rule.as_deref().and_then(|note| self.told(note)).map(cut),
            available: failure.available,
            ..Message::new(MessageType::NOTIFY)
        };
        self.send_notify(Target::towards_responder(session), &notify);
    }

    /// Notifies the QNI of a session.
    pub(super) fn notify_initiator(&mut self, key: Key, info: Info, note: Option<&str>) {
        self.notify_back(key, info, note, false);
    }

    /// Sends a NOTIFY towards the QNI. Returns the octets if `keep`, else an empty vector.
    fn notify_back(&mut self, key: Key, info: Info, note: Option<&str>, keep: bool) -> Option<Vec<u8>> {
        let session = invariant!(self.sessions.get(key), "a report has a session")?;
        session.previous_peer()?;
        let notify = Message {
            generic: generic_back(session),
            info: Some(InfoSpec { source: self.own_source(session), ..InfoSpec::from(info) }),
            note: note.filter(|_| self.config.report_rule),
            ..Message::new(MessageType::NOTIFY)
        };
        let to = Target::towards_initiator(session);
        self.post_notify(to, &notify, keep)
    }
}
