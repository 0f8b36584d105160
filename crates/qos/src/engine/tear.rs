//! The end of a reservation (RFC 5974 §5.4.1): by a tear, by the loss of a grant, or by a user.

use signalbox_core::invariant;
use signalbox_core::slab::Key;
use signalbox_core::stamp::Moment;
use signalbox_resources::{End, GrantId, LostWhy, Resources};

use super::Qos;
use super::compose::{Extra, Form, Target, generic_back};
use super::event::{Failure, QosEvent};
use super::packed::Packed;
use super::session::{Marks, RequestKind, Stage};
use super::waiting::Arrival;
use crate::wire::{Info, InfoSpec, Message, MessageType};

impl Qos {
    /// Handles a tear of the previous peer whose RSN is not old (RFC 5974 §5.4.1).
    pub(super) fn on_tear(
        &mut self,
        key: Key,
        message: &Message<'_>,
        arrival: &Arrival,
        resources: &mut Resources,
    ) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "a tear has a session") else { return };
        session.rsn_in = message.rsn.into();
        session.state = arrival.state.into();
        if session.stage == Stage::Reserved {
            self.counters.torn_down += 1;
            tracing::debug!(session = %arrival.session, peer = ?arrival.sii, "reservation torn down");
            resources.because(End::TornDown);
            self.release(key, resources);
            self.on_gone(key);
        }
        if message.session_ids.is_some() && message.rii.is_none() {
            return self.on_listed_tears(key, message, arrival, resources);
        }
        self.tear_towards_qnr(key, message.rii, Some(message), arrival.hops, resources);
    }

    /// Sends a tear of this node. The session lives until it is confirmed.
    pub(super) fn tear_until_confirmed(&mut self, key: Key, resources: &mut Resources) {
        let rii = self.new_rii(key);
        let octets = self.tear_towards_qnr(key, Some(rii), None, 0, resources).unwrap_or_default();
        if let Some(session) = invariant!(self.sessions.get_mut(key), "an own tear has a session") {
            // The session ends with the RESPONSE, or when the request is given up.
            session.expires = Moment::NEVER;
        }
        self.expect(key, rii, RequestKind::Tear, octets);
        self.rearm(key);
    }

    /// Tears a session down towards the QNR, and removes it unless a confirmation is requested. Returns the octets of
    /// an own tear that is to be confirmed.
    pub(super) fn tear_towards_qnr(
        &mut self,
        key: Key,
        rii: Option<u32>,
        message: Option<&Message<'_>>,
        hops: u8,
        resources: &mut Resources,
    ) -> Option<Vec<u8>> {
        self.set_stage(key, Stage::Torn);
        let until = self.now + self.config.retry_max;
        let keep_until = self.now + self.config.refresh;
        let session = invariant!(self.sessions.get_mut(key), "a sent tear has a session")?;
        // §5.1.2.1: after a tear no refresh is sent, and no request is retransmitted.
        session.refresh_at = Moment::NEVER;
        session.rare.change(|rare| rare.path_check = None);
        session.pending.clear();
        session.next_rsn();
        let ends = session.marks.has(Marks::QNR) || session.marks.has(Marks::SCOPED);
        let last = session.marks.has(Marks::LAST_NODE);
        if let Some(rii) = rii
            && session.previous_peer().is_some()
            && !ends
            && !last
        {
            session.note(rii, until, hops);
        }
        let mut octets = None;
        if !ends && message.is_none_or(|_| hops > 0) {
            let extra = Extra {
                rii: rii.filter(|_| !last),
                forwarded: message.map(|m| m.forwarded),
                gist_hops: message.map(|_| hops),
                sii: session.explicit_next().or(session.next_off_path()),
                keep: message.is_none() && rii.is_some(),
                ..Extra::default()
            };
            if session.rsn_out.is_some() {
                octets = self.send_reserve(key, Form::Tear, extra);
                self.counters.tears_sent += u64::from(octets.is_some());
            }
            self.tear_old_branches(key, rii.filter(|_| !last));
        }
        match rii {
            Some(rii) => {
                if ends || last {
                    self.respond(key, rii, Info::TORN_DOWN, None);
                }
                // §5.4.1: operation state is kept for the RESPONSE, at most one refresh interval.
                if let Some(session) =
                    invariant!(self.sessions.get_mut(key), "a confirmed tear keeps its session")
                {
                    session.expires = keep_until.into();
                }
            }
            None => {
                self.release_route(key);
                self.close(key, resources);
            }
        }
        octets
    }

    /// Handles the loss of a grant: the QNI is notified, and decides (RFC 5974 §5.4.4).
    pub(super) fn on_lost(&mut self, key: Key, grant: GrantId, why: LostWhy, resources: &mut Resources) {
        let Some(session) = self.sessions.get_mut(key) else { return }; // it may have ended meanwhile
        session.rare.change(|rare| rare.kept.retain(|(_, kept)| *kept != grant));
        if session.grant.get() != Some(grant) {
            return;
        }
        session.grant = Packed::NONE;
        session.rate = 0;
        self.counters.lost += 1;
        tracing::debug!(session = %session.id, grant = grant.0, reason = %why, "reservation lost");
        let info = match why {
            LostWhy::Preempted => Info::PREEMPTED,
            LostWhy::Deleted | LostWhy::Rules => Info::AUTHORISATION,
            _ => Info::RESERVATION_FAILURE,
        };
        let text = why.to_string();
        self.give_up_here(key, info, &text, resources);
    }

    /// Ends the reservation at this node. Operation state stays for the tear that follows.
    pub(super) fn give_up_here(&mut self, key: Key, info: Info, note: &str, resources: &mut Resources) {
        self.release(key, resources);
        let Some(session) = invariant!(self.sessions.get(key), "a release ends no session") else { return };
        let source = self.own_source(session);
        if session.marks.has(Marks::QNI) {
            let failure = Failure {
                class: info.class.0,
                code: info.code,
                meaning: info.to_string(),
                node: super::response::source_text(&source),
                rule: Some(note.to_owned()),
                available: None,
                hops: Vec::new(),
            };
            self.fail(key, failure, resources);
        } else {
            let notify = Message {
                generic: generic_back(session),
                info: Some(InfoSpec { source, ..InfoSpec::from(info) }),
                note: Some(note).filter(|_| self.config.report_rule),
                ..Message::new(MessageType::NOTIFY)
            };
            let to = Target::towards_initiator(session);
            self.send_notify(to, &notify);
            self.set_stage(key, Stage::Torn);
            if let Some(session) = invariant!(self.sessions.get_mut(key), "a NOTIFY ends no session") {
                session.refresh_at = Moment::NEVER;
                session.rare.change(|rare| rare.path_check = None);
            }
            self.on_gone(key);
        }
        self.rearm(key);
    }

    /// Ends a session that began here, by command or by failure: grants are released, and the path is torn down. Whoever ends it has
    /// given the reason to `resources`.
    pub(super) fn end_local(&mut self, key: Key, event: Option<QosEvent>, resources: &mut Resources) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "an own end has a session") else {
            return;
        };
        let stood =
            session.marks.has(Marks::QNI) && session.marks.has(Marks::ONCE_CONFIRMED) && !session.is_end();
        let command = session.local.as_mut().and_then(|local| local.command.take());
        if let Some(id) = command {
            // The identifier is free before the tear is confirmed.
            self.commands.remove(&id);
            if let Some(event) = event {
                self.out.event(id, event);
            }
        }
        self.release(key, resources);
        self.on_gone(key);
        if stood && self.config.repeats_tears() {
            self.tear_until_confirmed(key, resources);
        } else {
            self.tear_towards_qnr(key, None, None, 0, resources);
        }
    }
}
