//! The Messaging-Association state machine (RFC 5971 §6.4): one function per rule.
//!
//! Three differences to the RFC:
//!
//! * Rule 2 takes an association from Idle to Connected without starting `SendHello`, so that the peer would close it;
//!   `SendHello` is started here.
//! * Connected has no timer for a peer that fails without a message; here a diagnostic MA-Hello, which §6.4 allows, is sent
//!   if no message was received for the hold time of this node.
//! * §6.4 allows this MA-Hello in Idle too, and the state stays; here an Idle association that asks its peer is Connected, so
//!   that the time for the reply is limited.
//!
//! The wait for the first Confirm of a peer that opened an association is one of the timers of the set-up, which §6.4
//! mentions and does not model.

use signalbox_core::rng::Random;
use signalbox_core::service::{NetworkEvent, SendError};
use signalbox_core::shares::source;
use signalbox_core::slab::Key;
use signalbox_core::wheel::AT_ONCE;
use signalbox_core::{Direction, NslpId, Time, invariant};

use super::state::{Ended, Hellos, Opened, Reached, Silence};
use super::transfer::Waiting;
use super::{Association, AssociationState, Associations, State};
use crate::engine::counters::Counters;
use crate::engine::outbox::Outbox;
use crate::engine::{Gist, Transport};
use crate::wire::{Message, MessageType};

/// Hop count of MA-Hello, which is for the peer only.
const HELLO_HOPS: u8 = 1;

/// A channel that was not set up within this time did not answer; a shorter attempt was refused.
const SLOW: core::time::Duration = core::time::Duration::from_secs(3);

/// Why an association ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It was not established.
    NotConnected,
    /// Neither node uses it.
    Unused,
    /// The peer closed it, and all messages were delivered.
    Orderly,
    /// It failed.
    Failure,
    /// The peer is not authorised.
    Unauthorised,
}

impl Association {
    /// (Re)starts `SendHello`: after half to three quarters of the peer's hold time. GIST-4.4.5-09,
    /// GIST-4.4.5-10, GIST-6.4-18.
    fn start_send_hello(&mut self, now: Time, rng: &mut Random) {
        let at = now + rng.jitter(self.hold_time, 0.5, 0.75);
        if let Some(hellos) = self.state.hellos_mut() {
            hellos.send = Some(at);
        }
    }
}

impl Associations {
    /// Rule 1, `tg_RawData` in Connected and Idle, once the message is with the channel: `NoHello` stops,
    /// `SendHello` (re)starts; Connected. GIST-6.4-05, GIST-6.4-10.
    pub(super) fn tg_raw_data(&mut self, index: u32, now: Time, rng: &mut Random) {
        self.connected_again(index, now);
        self.start_send_hello(index, now, rng);
    }

    fn start_send_hello(&mut self, index: u32, now: Time, rng: &mut Random) {
        let association = invariant!(self.get_mut(index), "a message is with the channel of an association");
        let Some(association) = association else { return };
        association.start_send_hello(now, rng);
        self.arm(index);
    }

    /// From Idle to Connected, where the caller starts `SendHello`.
    fn connected_again(&mut self, index: u32, now: Time) {
        let (idle_after, silence) = (self.config.idle_after, self.next_probe(now));
        let association = invariant!(self.get_mut(index), "an association that is used again stands");
        let Some(association) = association else { return };
        if let State::Idle { .. } = association.state {
            association_transition!(association, Connected, "used again");
            association.state = State::Connected(Hellos { send: None, silence });
            association.unused = (association.sessions == 0).then_some(now + idle_after);
            let channel = association.channel;
            self.changes.note(|| channel);
        }
    }

    /// The time of the next diagnostic MA-Hello, after a message of the peer was received now.
    pub(super) fn next_probe(&self, now: Time) -> Silence {
        if self.config.probe { Silence::Until(now + self.config.hold_time) } else { Silence::Allowed }
    }

    /// Any message of the peer shows that it runs, and defers the diagnostic MA-Hello. If sessions wait for an answer to
    /// one, it is not deferred.
    /// GIST-4.2.2-02.
    pub(super) fn message_received(&mut self, index: u32, now: Time) {
        let silence = self.next_probe(now);
        if let Some(association) =
            invariant!(self.get_mut(index), "a message of the peer came over an association")
            && association.held.is_empty()
            && let Some(hellos) = association.state.hellos_mut()
        {
            hellos.silence.defer(silence);
        }
    }

    /// Sends an MA-Hello (RFC 5971 §5.1). GIST-5.1-22, GIST-5.1-25, GIST-5.2.2-10. If it requests a reply, it is sent after
    /// the queued messages, since the reply acknowledges them. Other MA-Hellos overtake them.
    fn send_hello(
        &mut self,
        (out, counters): (&mut Outbox, &mut Counters),
        index: u32,
        stream: u16,
        id: u32,
        ask: bool,
    ) {
        let window = self.window();
        let association =
            invariant!(self.slab.get_index_mut(index), "an MA-Hello is sent over an association");
        let Some(association) = association else { return };
        let full = association.unsent() >= window;
        let mut message = Message::new(MessageType::MA_HELLO, NslpId::NONE, HELLO_HOPS);
        message.header.r = ask;
        message.hello_id = Some(id);
        counters.hellos_sent += 1;
        if ask && (!association.queue.is_empty() || full) {
            let waiting = Waiting::control(stream, &message);
            association.queued += waiting.octets();
            self.queued.hold_many(source(association.remote), super::octets(waiting.octets()));
            association.queue.push_back(waiting);
        } else {
            // It is within all limits of a message.
            let size = out.send_channel(association.channel, (stream, None), &message).unwrap_or_default();
            association.written += size;
            self.unsent += size;
        }
    }

    /// Replies to an MA-Hello. If the channel buffers too many octets, the reply is kept for later: a peer that asks without
    /// reading gets one reply, to its last request, when it reads again.
    fn reply(&mut self, (out, counters): (&mut Outbox, &mut Counters), index: u32, id: u32) {
        let window = self.window();
        let association = invariant!(self.get_mut(index), "an MA-Hello is answered over its association");
        let Some(association) = association else { return };
        let full = association.unsent() >= window;
        association.reply = full.then_some(id);
        if !full {
            self.send_hello((out, counters), index, 0, id, false);
        }
    }
}

impl Gist {
    /// Rule 2, `rx_Message` in Connected and Idle: `NoHello` stops (and `SendHello` starts, see above);
    /// Connected. [`Gist::rx_associated`] delivers the message. GIST-6.4-06, GIST-6.4-11.
    pub(super) fn ma_rx_message(&mut self, index: u32) {
        let Self { associations, rng, now, .. } = self;
        associations.message_received(index, *now);
        let association =
            invariant!(associations.get_mut(index), "a message came over an association that stands");
        let Some(association) = association else { return };
        if let State::Idle { .. } = association.state {
            associations.connected_again(index, *now);
            associations.start_send_hello(index, *now, rng);
        }
    }

    /// Rules 3 and 9, `rx_MA-Hello`: a reply, if it is requested; Connected then restarts `SendHello`, Idle restarts
    /// `NoHello`. GIST-6.4-07, GIST-6.4-12, GIST-5.1-24. A reply to an MA-Hello of this node ends the wait for it.
    pub(super) fn ma_rx_hello(&mut self, index: u32, id: u32, asks: bool) {
        self.counters.hellos_received += 1;
        let Self { associations, rng, now, out, counters, .. } = self;
        if asks {
            associations.reply((out, counters), index, id);
        }
        let hold_time = associations.config.hold_time;
        let association =
            invariant!(associations.get_mut(index), "an MA-Hello came over an association that stands");
        let Some(association) = association else { return };
        let answers = !asks && id != 0;
        let hellos = association.state.hellos_mut().filter(|_| answers);
        let answered = hellos.is_some_and(|hellos| hellos.silence.take_reply(id));
        if let State::Idle { no_hello } = &mut association.state {
            *no_hello = *now + hold_time;
        } else if asks {
            association.start_send_hello(*now, rng);
        }
        let about_stream = matches!(association.transport, Transport::Sctp) && answers;
        if about_stream {
            self.drained(index, |pending_hello| pending_hello == id);
        } else if answered {
            self.drained(index, |_| true);
        }
        // It comes last: no message defers the diagnostic MA-Hello while sessions wait, and the reply ends their wait.
        self.associations.message_received(index, self.now);
        self.associations.arm(index);
    }

    /// Sends the reply to the last MA-Hello of the peer, if it waits and the channel takes messages again.
    pub(super) fn reply_late(&mut self, index: u32) {
        let Self { associations, out, counters, .. } = self;
        let reply = associations.get_mut(index).and_then(|association| association.reply.take());
        if let Some(id) = reply {
            associations.reply((out, counters), index, id);
        }
    }

    /// Rule 4, `to_SendHello`: MA-Hello, `SendHello` starts again. GIST-6.4-08, GIST-4.4.5-02.
    fn send_hello_due(&mut self, index: u32) {
        let Self { associations, rng, now, out, counters, .. } = self;
        associations.send_hello((out, counters), index, 0, 0, false);
        if let Some(association) =
            invariant!(associations.get_mut(index), "an MA-Hello is due in an association that stands")
        {
            association.start_send_hello(*now, rng);
        }
    }

    /// Sends a diagnostic MA-Hello on `stream`, behind the messages sent before. The reply shows that the peer runs and
    /// has received these messages. An earlier MA-Hello without reply is no longer checked. GIST-5.1-23, GIST-4.4.5-08,
    /// GIST-6.4-15.
    pub(super) fn request_hello(&mut self, index: u32, stream: u16) -> u32 {
        let Self { associations, rng, now, out, counters, .. } = self;
        associations.next_hello_id = associations.next_hello_id.wrapping_add(1).max(1);
        let id = associations.next_hello_id;
        associations.send_hello((out, counters), index, stream, id, true);
        let until = *now + associations.config.hold_time;
        associations.connected_again(index, *now);
        if let Some(association) =
            invariant!(associations.get_mut(index), "an association stands while it asks its peer")
        {
            if let Some(hellos) = association.state.hellos_mut() {
                hellos.silence = Silence::Asked { hello_id: id, until };
            }
            association.start_send_hello(*now, rng);
        }
        associations.arm(index);
        id
    }

    /// Rule 6, `tg_Connected`: queued messages go to the channel, the setup timer stops, `SendHello`
    /// starts. GIST-6.4-03, GIST-4.2.2-01.
    pub(super) fn tg_connected(&mut self, index: u32) {
        let now = self.now;
        let silence = self.associations.next_probe(now);
        let rng = &mut self.rng;
        let association =
            invariant!(self.associations.get_mut(index), "an association that is connected stands");
        let Some(association) = association else { return };
        association_transition!(association, Connected, "channel connected and confirmed");
        association.state = State::Connected(Hellos { send: None, silence });
        association.start_send_hello(now, rng);
        let channel = association.channel;
        self.associations.changes.note(|| channel);
        self.counters.associations_opened += 1;
        self.flush_queue(index);
        self.associations.arm(index);
    }

    /// Rule 7, `tg_MAIdle`: no session of this node uses it. `SendHello` stops, `NoHello` starts. GIST-6.4-09,
    /// GIST-6.4-19, GIST-4.4.5-01.
    fn tg_ma_idle(&mut self, index: u32) {
        let now = self.now;
        let hold_time = self.associations.config.hold_time;
        let association =
            invariant!(self.associations.get_mut(index), "an association that becomes Idle stands");
        let Some(association) = association else { return };
        association.unused = None;
        association_transition!(association, Idle, "no session uses it");
        association.state = State::Idle { no_hello: now + hold_time };
        let channel = association.channel;
        self.associations.changes.note(|| channel);
    }

    /// Rule 8, `er_MAConnect`, `er_MAFailure`, `to_NoHello`: routing state machines and applications are notified, and the
    /// association is removed. GIST-6.4-04, GIST-6.4-13, GIST-6.4-14, GIST-6.4-16. `lost`: messages of this node may not
    /// have arrived. Nothing happens if it has ended before.
    pub(super) fn end_association(&mut self, key: Key, end: End, lost: bool) {
        let index = key.index();
        let Some(association) = self.associations.live_mut(key) else { return };
        tracing::debug!(
            channel = association.channel.0,
            peer = %association.remote,
            transport = ?association.transport,
            from = %association.state.logged(),
            reason = ?end,
            lost,
            "messaging association ended"
        );
        let unsent = core::mem::take(&mut association.queue);
        let queued = core::mem::take(&mut association.queued);
        let attempt = association.unanswered().filter(|_| end != End::Unused).cloned();
        let refused = attempt.is_some();
        let (opened, transport, remote) = (association.since, association.transport, association.remote);
        self.associations.queued.release_many(source(remote), super::octets(queued));
        if let Some(Opened { peer: name, alternative, reached, .. }) = attempt {
            let unproved = reached == Reached::Unproved;
            let Associations { retry_delays, avoided, filtered, config, .. } = &mut self.associations;
            // A port that does not answer is filtered. Each attempt delays messages, so the next one is late.
            let silent = end == End::NotConnected && self.now.since(opened) >= SLOW;
            let least = if silent { config.retry_max } else { core::time::Duration::ZERO };
            let since = if end == End::NotConnected { self.now } else { opened };
            let way = (name.clone(), transport);
            // A peer without valid credentials gets no datagrams instead.
            let mut noted = true;
            if alternative || !(unproved || end == End::Unauthorised) {
                noted = avoided.failed_for(self.now, since, &way, least);
                if silent {
                    noted &= filtered.failed(self.now, since, &way);
                }
            }
            if !alternative {
                noted &= retry_delays.failed(self.now, opened, &name);
            }
            self.counters.waits_full += u64::from(!noted);
        }
        match end {
            End::NotConnected => self.counters.associations_not_connected += 1,
            End::Unused | End::Orderly => self.counters.associations_closed += 1,
            End::Failure => self.counters.associations_failed += 1,
            End::Unauthorised => self.counters.associations_unauthorized += 1,
        }
        // Over a channel that was not set up no message was sent.
        let waits = end != End::NotConnected && unsent.iter().any(Waiting::is_reliable);
        let lost = lost || end == End::Failure || waits;
        for waiting in unsent {
            if end == End::NotConnected && self.take_back(&waiting) {
                continue;
            }
            let error = if refused { SendError::Unreached(transport.into()) } else { SendError::NoNextNode };
            waiting.fail(&mut self.out, error);
        }
        if lost {
            self.held_lost(index);
        }
        self.drained(index, |_| true);
        self.associations.withdraw(key, Ended { end, lost });
        // A peer chooses how many sessions use an association. Those of a peer that is not authorised any more end at once.
        let most = if end == End::Unauthorised { u32::MAX } else { AT_ONCE };
        self.inform_users(key, most);
    }

    /// Informs sessions of the end of their association, `most` of them. The rest follows with the next timer input.
    fn inform_users(&mut self, key: Key, most: u32) {
        let index = key.index();
        let ended = self.associations.get(index).and_then(|association| association.state.ended());
        let Some(ended) = invariant!(ended, "sessions are informed of an end") else { return };
        for _ in 0..most {
            let Some((session, direction)) = self.first_user(index) else { break };
            self.notify_of_loss(session, direction, index);
            self.association_lost(session, direction, ended.end);
        }
        if self.first_user(index).is_some() {
            return self.associations.withdrawn.push_back(key);
        }
        let explicit = self.associations.remove(key).map(|association| association.explicit);
        for (nslp, session, mri) in explicit.into_iter().flatten().filter(|_| ended.lost) {
            self.out.notify(nslp, mri, session, NetworkEvent::CommunicationFailure);
        }
    }

    /// Goes on with the first association whose sessions are being informed of its end.
    pub(in crate::engine) fn run_withdrawn(&mut self, most: u32) {
        if let Some(key) = self.associations.withdrawn.pop_front() {
            self.inform_users(key, most);
        }
    }

    /// Reports to the application that reliable messages of a session may be lost with its association. GIST-6.4-17, GIST-4.1.2-03,
    /// GIST-5.7.2-08.
    pub(super) fn notify_of_loss(&mut self, session: Key, direction: Direction, index: u32) {
        let lost = self
            .associations
            .get(index)
            .and_then(|association| association.state.ended())
            .is_some_and(|ended| ended.lost);
        let reliable = self.binding(session, direction).is_some_and(|b| b.reliable);
        if !(reliable && lost) {
            return;
        }
        self.notify_always(session, direction, NetworkEvent::CommunicationFailure);
        let app_session = self.records.get(session).map(|record| (record.nslp, record.session));
        if let Some(association) =
            invariant!(self.associations.get_mut(index), "a lost association stays until its sessions know")
        {
            association.explicit.retain(|(nslp, session, _)| Some((*nslp, *session)) != app_session);
        }
    }

    /// Handles associations whose timers are due, `most` of them.
    pub(in crate::engine) fn run_association_timers(&mut self, most: u32) {
        for _ in 0..most {
            let Associations { wheel, slab, .. } = &mut self.associations;
            let Some(index) = wheel.pop_due(slab, self.now) else { return };
            self.association_deadline(index);
        }
    }

    /// Handles the timers of an association that are due.
    fn association_deadline(&mut self, index: u32) {
        let now = self.now;
        let key = invariant!(self.associations.slab.key_of(index), "a timer ends with its association");
        let association =
            invariant!(self.associations.get(index), "a timer that fires is that of an association");
        let (Some(key), Some(association)) = (key, association) else { return };
        let due = |timer: Option<Time>| timer.is_some_and(|at| at <= now);
        let state = association.state;
        if due(state.setup()) {
            let up = association.is_up();
            self.close_channel(index, true);
            // What this node sent without the Confirm of the peer may not have arrived.
            return self.end_association(key, if up { End::Unused } else { End::NotConnected }, up);
        }
        if due(state.watched_until()) {
            let idle = matches!(state, State::Idle { .. });
            // While the channel is not read, messages of the peer may be unread, and the timers do not count (RFC 5971
            // §4.1.1). An Idle peer may not read: messages that this node has sent have not left. The channel fails if that
            // lasts.
            if !association.reading || idle && association.reported > 0 {
                let later = now + self.associations.config.hold_time;
                if let Some(association) =
                    invariant!(self.associations.get_mut(index), "an association stands while it is deferred")
                {
                    association.state.watch_until(later);
                }
                return self.associations.arm(index);
            }
            if idle {
                self.close_channel(index, false);
                return self.end_association(key, End::Unused, false);
            }
            if matches!(state.hellos(), Some(Hellos { silence: Silence::Asked { .. }, .. })) {
                self.close_channel(index, true);
                return self.end_association(key, End::Failure, true);
            }
            self.request_hello(index, 0);
        }
        match self.associations.get(index) {
            // Sessions that moved to another association wait for its reply.
            Some(a) if due(a.unused) && !a.held.is_empty() => {
                let later = Some(now + self.associations.config.idle_after);
                if let Some(association) = invariant!(
                    self.associations.get_mut(index),
                    "an association with waiting sessions stands"
                ) {
                    association.unused = later;
                }
            }
            Some(a) if due(a.unused) && a.is_up() => self.tg_ma_idle(index),
            Some(a) if due(a.unused) => {
                self.close_channel(index, true);
                return self.end_association(key, End::Unused, false);
            }
            _ => {}
        }
        let hellos = self.associations.get(index).and_then(|a| a.state.hellos());
        if hellos.is_some_and(|hellos| due(hellos.send)) {
            self.send_hello_due(index);
        }
        self.expire_waiting(index);
        self.associations.arm(index);
    }

    /// Closes the channel of an association.
    pub(super) fn close_channel(&mut self, index: u32, abort: bool) {
        if let Some(association) =
            invariant!(self.associations.get(index), "a channel is closed before its association is removed")
        {
            self.out.close_channel(association.channel, abort);
        }
    }
}
