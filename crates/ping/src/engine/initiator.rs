//! The node that starts a ping: sends, waits, reports.

use signalbox_core::outbox::Parcel;
use signalbox_core::service::{RecvMessage, SendError};
use signalbox_core::slab::Key;
use signalbox_core::{SessionId, Time};

use super::event::{Hop, LostReason, PingEvent, PingRequest, Refusal, Reply};
use super::session::{Probe, Session, flow};
use super::{Origin, Ping, Queued};
use crate::wire::{Flags, Message, Records};

impl Ping {
    pub(super) fn on_start(&mut self, now: Time, id: u64, request: PingRequest) {
        match self.open(now, id, request) {
            Ok(key) => self.step(now, key),
            Err(refusal) => self.tell(id, PingEvent::Refused(refusal)),
        }
    }

    fn open(&mut self, now: Time, id: u64, request: PingRequest) -> Result<Key, Refusal> {
        let mri = flow(&request)?;
        if self.key_of(id).is_some() || self.is_waiting(id) {
            return Err(Refusal::IdInUse);
        }
        let session = self.rng.session_id();
        let record = Session::new(id, session, mri, self.rng.u64(), request, now);
        let key = self.sessions.insert(record).map_err(|_| Refusal::TooMany)?;
        let sessions = &self.sessions;
        let rehash = |index| sessions.get_index(index).map_or(0, |s: &Session| hash(s.session));
        self.by_session.insert(hash(session), key.index(), rehash);
        self.tell(id, PingEvent::Started { session, mri });
        Ok(key)
    }

    pub(super) fn on_stop(&mut self, id: u64) {
        if self.routes.remove(id) {
            self.tell(id, PingEvent::Done { sent: 0, received: 0 });
        } else if let Some(key) = self.key_of(id) {
            self.close(key);
        }
    }

    pub(super) fn on_timer(&mut self, now: Time) {
        while let Some(index) = self.wheel.pop_due(&mut self.sessions, now) {
            if let Some(key) = self.sessions.key_of(index) {
                self.step(now, key);
            }
        }
    }

    /// A reply for a session of ours. False if the session is not.
    pub(super) fn on_reply(&mut self, now: Time, received: &RecvMessage<'_>, message: &Message<'_>) -> bool {
        let Some(key) = self.find(received.session) else { return false };
        let Some(session) = self.sessions.get_mut(key) else { return false };
        let probe =
            (message.identifier == session.identifier).then(|| session.settle(message.sequence)).flatten();
        let Some(probe) = probe else {
            self.counters.unexpected_replies += 1;
            return true;
        };
        let wanted = padding(session.identifier, probe.seq, session.request.padding);
        if message.padding != wanted.as_deref() {
            self.counters.damaged_replies += 1;
            self.lost(key, probe, LostReason::Damaged);
            self.step(now, key);
            return true;
        }
        let reached_end = message.flags.contains(Flags::END_REACHED);
        session.state = received.state;
        session.received = session.received.wrapping_add(u32::from(reached_end));
        self.counters.probes_answered += 1;
        let truncated =
            message.flags.contains(Flags::THERE_TRUNCATED) || message.flags.contains(Flags::BACK_TRUNCATED);
        let reply = Reply {
            seq: probe.seq,
            sent_us: probe.sent_us,
            rtt: now.since(probe.sent),
            hops: hops(message.there),
            back: hops(message.back),
            reached_end,
            truncated,
            padding: session.request.padding,
        };
        let id = session.id;
        self.tell(id, PingEvent::Reply(reply));
        self.step(now, key);
        true
    }

    /// GIST could not send a message of ours.
    pub(super) fn on_probe_failed(&mut self, now: Time, key: Key, seq: u32, error: SendError) {
        let Some(probe) = self.sessions.get_mut(key).and_then(|s| s.settle(seq)) else { return };
        self.lost(key, probe, error.into());
        self.step(now, key);
    }

    /// Does what is due for a session at `now`, and ends it or sets its timer.
    fn step(&mut self, now: Time, key: Key) {
        let wall_us = self.wall_us(now);
        while let Some(probe) = self.sessions.get_mut(key).and_then(|s| s.expired(now)) {
            self.lost(key, probe, LostReason::Timeout);
        }
        if let Some(probe) = self.sessions.get_mut(key).and_then(|s| s.next_probe(now, wall_us)) {
            self.probe(key, probe);
        }
        let Some(session) = self.sessions.get(key) else { return };
        if session.is_done() {
            self.close(key);
        } else if let Some(deadline) = session.deadline() {
            self.wheel.arm(&mut self.sessions, key.index(), deadline);
        }
    }

    fn probe(&mut self, key: Key, probe: Probe) {
        let Some(session) = self.sessions.get(key) else { return };
        let padding = padding(session.identifier, probe.seq, session.request.padding);
        let request = Message::request(probe.seq, session.identifier, probe.sent_us);
        let message = Message { padding: padding.as_deref(), ..request };
        let origin = Origin::Probe(key, probe.seq);
        let parcel = Parcel {
            state: session.state,
            // So that what GIST has to say comes before our own timeout.
            timeout: Some(session.request.timeout / 8 * 7),
            ..Parcel::new(Vec::new(), self.config.nslp, session.session, session.mri, origin)
        };
        self.counters.probes_sent += 1;
        // If there is no room, the message times out.
        self.send(parcel, |w| message.encode(None, w));
    }

    fn lost(&mut self, key: Key, probe: Probe, reason: LostReason) {
        let Some(id) = self.sessions.get(key).map(|session| session.id) else { return };
        self.counters.probes_lost += 1;
        self.tell(id, PingEvent::Lost { seq: probe.seq, reason });
    }

    fn close(&mut self, key: Key) {
        self.wheel.cancel(&mut self.sessions, key.index());
        let Some(session) = self.sessions.remove(key) else { return };
        self.by_session.remove(hash(session.session), |index| index == key.index());
        // No further interest: the state on the path expires by itself.
        self.queue.push_back(Queued::Lifetime(Box::new((session.mri, session.session))));
        self.tell(session.id, PingEvent::Done { sent: session.sent, received: session.received });
    }

    fn find(&self, session: SessionId) -> Option<Key> {
        let is = |index| self.sessions.get_index(index).is_some_and(|s| s.session == session);
        self.by_session.find(hash(session), is).and_then(|index| self.sessions.key_of(index))
    }

    /// Users come seldom: a search will do.
    pub(super) fn key_of(&self, id: u64) -> Option<Key> {
        self.sessions.iter().find(|(_, session)| session.id == id).map(|(key, _)| key)
    }
}

/// So many octets that are different in each message, so that a piece of another one is noticed; any even mixing
/// will do, and this one is splitmix64. `None`: no padding.
fn padding(identifier: u64, sequence: u32, octets: u16) -> Option<Vec<u8>> {
    let octets = usize::from(octets);
    let mut state = identifier ^ u64::from(sequence).rotate_left(32);
    let word = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_be_bytes()
    };
    (octets > 0).then(|| core::iter::repeat_with(word).flatten().take(octets).collect())
}

fn hash(session: SessionId) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = session.0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

fn hops(records: Records<'_>) -> Vec<Hop> {
    let hop = |record: crate::wire::Record| Hop {
        address: record.address,
        received_us: record.received_us,
        sent_us: record.sent_us(),
        ip_distance: record.ip_distance,
    };
    records.iter().map(hop).collect()
}
