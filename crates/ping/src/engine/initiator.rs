//! The node that starts a ping: it sends requests, waits for replies and reports them.

use signalbox_core::outbox::Parcel;
use signalbox_core::service::{RecvMessage, SendError};
use signalbox_core::slab::Key;
use signalbox_core::wheel::AT_ONCE;
use signalbox_core::{SessionId, invariant};

use super::Ping;
use super::event::{Format, Hop, LostReason, PingEvent, PingRequest, Refusal, Reply};
use super::outbox::Origin;
use super::session::{Probe, Session, flow};
use super::trace::Trace;
use crate::wire::nsis::{self, Stamp};
use crate::wire::{Flags, Message, Records};

impl Ping {
    /// Starts a ping whose source address is given.
    pub(super) fn start(&mut self, id: u64, request: PingRequest) {
        match self.open(id, request) {
            Ok(key) => self.step(key),
            Err(refusal) => self.refuse(id, refusal),
        }
    }

    fn open(&mut self, id: u64, request: PingRequest) -> Result<Key, Refusal> {
        let mri = flow(&request)?;
        if self.key_of(id).is_some() || self.is_waiting(id) {
            return Err(Refusal::IdInUse);
        }
        let nslp = match request.format {
            Format::Signalbox => self.config.nslp,
            Format::Nsis => self.config.nsis.ok_or(Refusal::Format)?,
        };
        let session = self.rng.session_id();
        let record = Session::new(id, session, nslp, mri, self.rng.u64(), request, self.now);
        let key = self.sessions.insert(record).map_err(|_| Refusal::TooMany)?;
        let sessions = &self.sessions;
        let rehash = |index| {
            invariant!(sessions.get_index(index), "each entry of the index is a ping")
                .map_or(0, |s: &Session| hash(s.session))
        };
        self.by_session.insert(hash(session), key.index(), rehash);
        tracing::debug!(%session, id, src = %mri.src(), dst = %mri.dst(), "ping started");
        self.out.event(id, PingEvent::Started { session, mri });
        Ok(key)
    }

    pub(super) fn refuse(&mut self, id: u64, refusal: Refusal) {
        tracing::debug!(id, reason = %refusal, "ping refused");
        self.out.event(id, PingEvent::Refused(refusal));
    }

    pub(super) fn stop(&mut self, id: u64) {
        if self.routes.remove(id) {
            self.out.event(id, PingEvent::Done { sent: 0, received: 0 });
        } else if let Some(key) = self.key_of(id) {
            self.close(key);
        }
    }

    pub(super) fn run_timers(&mut self) {
        for _ in 0..AT_ONCE {
            let Some(index) = self.wheel.pop_due(&mut self.sessions, self.now) else { return };
            if let Some(key) = invariant!(self.sessions.key_of(index), "a timer ends with its ping") {
                self.step(key);
            }
        }
    }

    /// Takes a reply, if this node started the session. False if it did not.
    pub(super) fn receive_reply(&mut self, received: &RecvMessage<'_>, message: &Message<'_>) -> bool {
        let Some(key) = self.find(received.session) else { return false };
        let Some(session) = invariant!(self.sessions.get_mut(key), "a ping that was found runs") else {
            return false;
        };
        let ours = session.nslp == received.nslp && message.identifier == session.identifier;
        let probe = ours.then(|| session.settle(message.sequence)).flatten();
        let Some(probe) = probe else {
            self.unexpected(received, message.sequence);
            return true;
        };
        let sent_padding = padding(session.identifier, probe.seq, session.request.padding);
        if message.padding != sent_padding.as_deref() {
            self.counters.damaged_replies += 1;
            self.report_lost(key, probe, LostReason::Damaged);
            self.step(key);
            return true;
        }
        let reached_end = message.flags.contains(Flags::END_REACHED);
        let truncated =
            message.flags.contains(Flags::THERE_TRUNCATED) || message.flags.contains(Flags::BACK_TRUNCATED);
        let reply = Reply {
            seq: probe.seq,
            sent_us: probe.sent_us,
            rtt: self.now.since(probe.sent),
            hops: hops(message.there),
            back: hops(message.back),
            reached_end,
            truncated,
            padding: session.request.padding,
        };
        self.report_reply(key, received, reply);
        true
    }

    /// Takes a reply in the format of the NSIS Ping tool, if this node started the session. False if it did not.
    pub(super) fn receive_nsis_reply(
        &mut self,
        received: &RecvMessage<'_>,
        message: &nsis::Message<'_>,
    ) -> bool {
        let Some(key) = self.find(received.session) else { return false };
        let Some(session) =
            invariant!(self.sessions.get_mut(key), "a ping of the NSIS Ping tool that was found runs")
        else {
            return false;
        };
        let ours = session.nslp == received.nslp;
        let Some(probe) = ours.then(|| session.settle(message.sequence)).flatten() else {
            self.unexpected(received, message.sequence);
            return true;
        };
        let trace = Trace::of(message);
        let reply = Reply {
            seq: probe.seq,
            sent_us: probe.sent_us,
            rtt: self.now.since(probe.sent),
            // The message has no flag for it: the node where the flow ends writes the flow's destination.
            reached_end: trace.there.last().is_some_and(|hop| hop.address == session.mri.dst())
                && trace.turned,
            hops: trace.there,
            back: trace.back,
            truncated: trace.truncated,
            padding: 0,
        };
        self.report_reply(key, received, reply);
        true
    }

    /// Counts and reports the answer to a request of this node, whose routing state the next request uses.
    fn report_reply(&mut self, key: Key, received: &RecvMessage<'_>, reply: Reply) {
        let Some(session) =
            invariant!(self.sessions.get_mut(key), "a reply does not end its ping before it is reported")
        else {
            return;
        };
        session.state = received.state;
        session.received = session.received.wrapping_add(u32::from(reply.reached_end));
        self.counters.probes_answered += 1;
        tracing::trace!(session = %received.session, seq = reply.seq, rtt = ?reply.rtt, "reply received");
        self.out.event(session.id, PingEvent::Reply(reply));
        self.step(key);
    }

    fn unexpected(&mut self, received: &RecvMessage<'_>, seq: u32) {
        self.counters.unexpected_replies += 1;
        tracing::debug!(session = %received.session, seq, reason = "no request waits", "reply dropped");
    }

    /// Handles the failure of a request that this node started. The ping may have ended in the meantime.
    pub(super) fn probe_not_sent(&mut self, key: Key, seq: u32, error: SendError) {
        let Some(probe) = self.sessions.get_mut(key).and_then(|s| s.settle(seq)) else { return };
        self.report_lost(key, probe, error.into());
        self.step(key);
    }

    /// Does everything that is due for a session, then ends it or sets its timer.
    fn step(&mut self, key: Key) {
        let (now, wall_us) = (self.now, self.wall_us());
        while let Some(probe) = self.sessions.get_mut(key).and_then(|s| s.expired(now)) {
            self.report_lost(key, probe, LostReason::Timeout);
        }
        if let Some(probe) = self.sessions.get_mut(key).and_then(|s| s.next_probe(now, wall_us)) {
            self.send_probe(key, probe);
        }
        let Some(session) = invariant!(self.sessions.get(key), "a ping runs until its last step") else {
            return;
        };
        if session.is_done() {
            self.close(key);
        } else if let Some(deadline) = session.deadline() {
            self.wheel.arm(&mut self.sessions, key.index(), deadline);
        }
    }

    fn send_probe(&mut self, key: Key, probe: Probe) {
        let Some(session) = invariant!(self.sessions.get(key), "only a ping that runs sends requests") else {
            return;
        };
        let origin = Origin::Probe(key, probe.seq);
        let parcel = Parcel {
            state: session.state,
            // The status from GIST must arrive before the timeout of the ping.
            timeout: Some(session.request.timeout / 8 * 7),
            ..Parcel::new(Vec::new(), session.nslp, session.session, session.mri, origin)
        };
        self.counters.probes_sent += 1;
        tracing::trace!(session = %session.session, seq = probe.seq, "request sent");
        // If the table of messages is full, the request times out.
        match session.request.format {
            Format::Signalbox => {
                let padding = padding(session.identifier, probe.seq, session.request.padding);
                let request = Message::request(probe.seq, session.identifier, probe.sent_us);
                let message = Message { padding: padding.as_deref(), ..request };
                self.send(parcel, |w| message.encode(None, w));
            }
            Format::Nsis => {
                let message = nsis::Message::request(probe.seq);
                let own = Stamp { address: session.mri.src(), time_us: probe.sent_us };
                self.send(parcel, |w| message.encode(Some(own), w));
            }
        }
    }

    fn report_lost(&mut self, key: Key, probe: Probe, reason: LostReason) {
        let Some(session) = invariant!(self.sessions.get(key), "a lost request is one of a ping that runs")
        else {
            return;
        };
        self.counters.probes_lost += 1;
        tracing::debug!(session = %session.session, seq = probe.seq, %reason, "request lost");
        self.out.event(session.id, PingEvent::Lost { seq: probe.seq, reason });
    }

    fn close(&mut self, key: Key) {
        self.wheel.cancel(&mut self.sessions, key.index());
        let Some(session) = invariant!(self.sessions.remove(key), "a ping ends once") else { return };
        let found = self.by_session.remove(hash(session.session), |index| index == key.index());
        invariant!(found, "a ping that ends is in the index");
        tracing::debug!(
            session = %session.session, sent = session.sent, received = session.received, "ping ended"
        );
        // GIST then stops the refreshes of this session, and the state on the path expires.
        self.out.set_state_lifetime(session.nslp, session.mri, session.session, self.config.linger);
        self.out.event(session.id, PingEvent::Done { sent: session.sent, received: session.received });
    }

    fn find(&self, session: SessionId) -> Option<Key> {
        let is = |index| {
            invariant!(self.sessions.get_index(index), "the index of sessions names pings")
                .is_some_and(|s| s.session == session)
        };
        self.by_session.find(hash(session), is).and_then(|index| self.sessions.key_of(index))
    }

    /// The running ping with a user's identifier. Users start and stop pings seldom: a search is fast enough.
    pub(super) fn key_of(&self, id: u64) -> Option<Key> {
        self.sessions.iter().find(|(_, session)| session.id == id).map(|(key, _)| key)
    }
}

/// Padding of a message; `None` if it has no padding. The octets differ from message to message, so that octets of
/// another message are noticed. The generator is splitmix64; any one with even mixing would do.
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
        round_trip: None,
    };
    records.iter().map(hop).collect()
}
