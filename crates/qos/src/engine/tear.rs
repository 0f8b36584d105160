//! The end of a reservation (RFC 5974 §5.4.1): torn down by a message, lost by this node, or given up by a user.

use signalbox_core::slab::Key;
use signalbox_resources::{GrantId, LostWhy, Resources};

use super::Qos;
use super::compose::{Extra, Form, Target, generic};
use super::event::{Failure, QosEvent};
use super::parked::Meta;
use super::session::{Marks, Stage, Want};
use crate::wire::{Info, InfoSpec, Message, MessageType};

impl Qos {
    /// A tear of the session's own peer, with a sequence number that is not old.
    pub(super) fn on_tear(
        &mut self,
        key: Key,
        message: &Message<'_>,
        meta: &Meta,
        resources: &mut Resources,
    ) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.rsn_in = message.rsn;
        session.state = meta.state;
        if session.stage == Stage::Reserved {
            self.counters.torn_down += 1;
            self.release(key, resources);
            self.on_gone(key, resources);
        }
        if message.session_ids.is_some() && message.rii.is_none() {
            return self.on_listed_tears(key, message, meta, resources);
        }
        self.tear_onward(key, message.rii, Some(message), meta.hops, resources);
    }

    /// Tears a session of this node's own down, which lives until that is confirmed.
    pub(super) fn tear_until_confirmed(&mut self, key: Key, resources: &mut Resources) {
        let rii = self.new_rii(key);
        let octets = self.tear_onward(key, Some(rii), None, 0, resources).unwrap_or_default();
        if let Some(session) = self.sessions.get_mut(key) {
            // It ends with the answer, or when nobody waits for that any longer.
            session.expires = None;
        }
        self.expect(key, rii, Want::Tear, octets);
        self.rearm(key);
    }

    /// Tears a session down onward, and forgets it unless somebody wants a confirmation. Gives the octets of an own
    /// tear that is to be confirmed.
    pub(super) fn tear_onward(
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
        let session = self.sessions.get_mut(key)?;
        // §5.1.2.1: after a tear there are no more refreshes, and none of what was asked is asked again.
        session.refresh_at = None;
        session.pending.clear();
        session.next_rsn();
        let ends = session.marks.has(Marks::END) || session.marks.has(Marks::SCOPED);
        let last = session.marks.has(Marks::LAST);
        if let Some(rii) = rii
            && session.back.is_some()
            && !ends
            && !last
        {
            session.remember(rii, until);
        }
        let mut octets = None;
        if !ends && message.is_none_or(|_| hops > 0) {
            let extra = Extra {
                rii: rii.filter(|_| !last),
                forwarded: message.map(|m| m.forwarded),
                gist_hops: message.map(|_| hops),
                sii: session.astray_onward(),
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
                // §5.4.1: operation state is kept for the RESPONSE, one refresh interval at most.
                if let Some(session) = self.sessions.get_mut(key) {
                    session.expires = Some(keep_until);
                }
            }
            None => {
                self.forget_route(key);
                self.close(key, resources);
            }
        }
        octets
    }

    /// A grant of ours is no more: the QNI is told, and decides (§5.4.4).
    pub(super) fn on_lost(&mut self, key: Key, grant: GrantId, why: LostWhy, resources: &mut Resources) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.kept.retain(|(_, kept)| *kept != grant);
        if session.grant != Some(grant) {
            return;
        }
        session.grant = None;
        session.rate = 0;
        self.counters.lost += 1;
        let info = match why {
            LostWhy::Preempted => Info::PREEMPTED,
            _ => Info::RESERVATION_FAILURE,
        };
        let text = why.to_string();
        self.give_up_here(key, info, &text, resources);
    }

    /// This node does not hold the session's reservation any more: it keeps what the tear to come needs.
    pub(super) fn give_up_here(&mut self, key: Key, info: Info, note: &str, resources: &mut Resources) {
        self.release(key, resources);
        let Some(session) = self.sessions.get(key) else { return };
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
                generic: generic(session),
                info: Some(InfoSpec { source, ..InfoSpec::from(info) }),
                note: Some(note).filter(|_| self.config.tell_rule),
                ..Message::new(MessageType::NOTIFY)
            };
            let to = Target::towards_initiator(session);
            self.send_notify(to, &notify);
            self.set_stage(key, Stage::Torn);
            if let Some(session) = self.sessions.get_mut(key) {
                session.refresh_at = None;
            }
            self.on_gone(key, resources);
        }
        self.rearm(key);
    }

    /// A session of a user's ends by the user's will or by failure: what it holds goes, here and onward.
    pub(super) fn end_local(&mut self, key: Key, event: Option<QosEvent>, resources: &mut Resources) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let stood = session.marks.has(Marks::QNI) && session.marks.has(Marks::STOOD) && !session.is_end();
        let command = session.local.as_mut().and_then(|local| local.command.take());
        if let Some(id) = command {
            // The name is free, whatever becomes of the tear.
            self.commands.remove(&id);
            if let Some(event) = event {
                self.out.event(id, event);
            }
        }
        self.release(key, resources);
        self.on_gone(key, resources);
        if stood && self.config.repeats_tears() {
            self.tear_until_confirmed(key, resources);
        } else {
            self.tear_onward(key, None, None, 0, resources);
        }
    }
}
