//! Sending of messages: directly to the channel, or by the queue of their association (RFC 5971 §4.1, §5.4).

use core::time::Duration;

use signalbox_core::node::REPORT_EVERY;
use signalbox_core::rng::Random;
use signalbox_core::service::{
    MessageHandle, MessageStatus, NetworkEvent, Security, SendError, SendMessage, TransferAttributes,
};
use signalbox_core::shares::source;
use signalbox_core::slab::Key;
use signalbox_core::{Direction, Mri, NslpId, SessionId, Time, invariant};
use signalbox_wire::Writer;

use super::{Association, Associations, Transport};
use crate::engine::Gist;
use crate::engine::applications::Outgoing;
use crate::engine::counters::Counters;
use crate::engine::io::ChannelId;
use crate::engine::outbox::Outbox;
use crate::engine::routing::{ASSOCIATED, Record, State};
use crate::wire::{Encapsulation, Message, MessageType};

/// Most octets of an application's message: the 12-bit length of an NSLP-Data object (RFC 5971 A.2), although the whole
/// message could be four times as long.
pub(in crate::engine) const MAX_DATA: usize = 0xfff * 4;

/// The least number of octets that a channel may buffer before messages wait for its report.
pub(super) const LEAST_WINDOW: usize = 2 * REPORT_EVERY;

/// Sessions of an association of which explicitly routed messages are noted, at most.
const MOST_EXPLICIT: usize = 256;

/// The transport that a message needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(in crate::engine) enum Need {
    /// A datagram is enough.
    #[default]
    Datagram,
    /// An association, if the peer has connection mode.
    Preferred,
    /// An association.
    Association,
    /// A secure association.
    Secure,
}

/// A message in the queue of its association.
#[derive(Debug)]
pub(super) struct Waiting {
    octets: Box<[u8]>,
    stream: u16,
    owner: Owner,
}

impl Waiting {
    /// A message of GIST itself.
    pub(super) fn control(stream: u16, message: &Message<'_>) -> Self {
        let mut octets = Vec::new();
        // Messages of GIST itself are far below all limits.
        message.encode(&mut Writer::new(&mut octets)).unwrap_or_default();
        Self { octets: octets.into(), stream, owner: Owner::Gist }
    }

    /// Whether its loss has to be reported.
    pub(super) const fn is_reliable(&self) -> bool {
        self.owner.is_reliable()
    }

    /// It fails.
    pub(super) fn fail(&self, out: &mut Outbox, error: SendError) {
        self.owner.report(out, MessageStatus::Failed(error));
    }

    pub(super) fn octets(&self) -> usize {
        self.octets.len()
    }
}

/// The owner of a message, and how it is sent.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) enum Owner {
    /// GIST itself. The message may use the queue beyond the limit for applications, and its status is not reported.
    Gist,
    /// An application.
    Application(ApplicationMessage),
}

/// A message of an application.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct ApplicationMessage {
    /// The application and its session.
    app_session: (NslpId, SessionId),
    handle: Option<MessageHandle>,
    reliable: bool,
    deadline: Option<Time>,
    /// The session of the message, and the transport that it needs. `None`: it cannot be sent in another way.
    by: Option<(Key, Direction, Need)>,
}

impl Outgoing<'_> {
    const fn owner(&self, app_session: (NslpId, SessionId), by: Option<(Key, Direction, Need)>) -> Owner {
        let Self { handle, reliable, deadline, .. } = *self;
        Owner::Application(ApplicationMessage { app_session, handle, reliable, deadline, by })
    }
}

impl Owner {
    const fn is_reliable(&self) -> bool {
        matches!(self, Self::Application(ApplicationMessage { reliable: true, .. }))
    }

    /// When the timeout of the message ends.
    const fn deadline(&self) -> Option<Time> {
        match self {
            Self::Gist => None,
            Self::Application(message) => message.deadline,
        }
    }

    /// Reports the status of the message, if its application wants to know.
    fn report(&self, out: &mut Outbox, status: MessageStatus) {
        if let Self::Application(ApplicationMessage { app_session, handle, .. }) = *self {
            out.status(app_session, handle, status);
        }
    }
}

/// The SCTP stream of a session, the same at both ends (RFC 6084 §3.2). Session identifiers are random, which spreads the
/// sessions.
/// SCTP-3.2-02, SCTP-3.2-03.
fn stream(session: SessionId) -> u16 {
    session.0.chunks_exact(2).fold(0, |stream, pair| match *pair {
        [high, low] => stream ^ u16::from_be_bytes([high, low]),
        _ => stream,
    })
}

/// How long the channel may delay a message (RFC 6084 §3.4). A reliable message is dropped by the queue only: the
/// application must be notified, and the channel reports no drops (RFC 5971 §4.1.2). SCTP-3.3-02.
fn lifetime(owner: &Owner, now: Time) -> Option<Duration> {
    owner.deadline().filter(|_| !owner.is_reliable()).map(|at| at.since(now))
}

/// The transfer attributes of a sent message.
const fn attributes(transport: Transport, lifetime: Option<Duration>) -> TransferAttributes {
    let security = if transport.is_secure() { Security::Channel } else { Security::None };
    let reliable = lifetime.is_none() || !matches!(transport, Transport::Sctp);
    TransferAttributes { reliable, stateless: false, security }
}

impl Associations {
    /// Stores who is to be notified of the loss of a reliable message that was explicitly routed (RFC 5971 §4.1.2).
    fn sent_explicitly(&mut self, index: u32, who: (NslpId, SessionId, Mri)) {
        let association = invariant!(self.get_mut(index), "an explicitly routed message has its association");
        let Some(association) = association else { return };
        let same = |(nslp, session, _): &(NslpId, SessionId, Mri)| (*nslp, *session) == (who.0, who.1);
        if association.explicit.len() < MOST_EXPLICIT && !association.explicit.iter().any(same) {
            association.explicit.push(who);
        }
    }

    /// Octets that one channel may buffer. When all channels together buffer much, because many peers read slowly, each has
    /// the least that the reports of channels permit, so that a driver's limit is never the first to be reached.
    pub(super) const fn window(&self) -> usize {
        if self.unsent < self.config.max_queued_total { self.config.max_unsent } else { LEAST_WINDOW }
    }

    /// Notes what a channel buffers by its own report.
    fn set_reported(&mut self, index: u32, unsent: usize) {
        let association =
            invariant!(self.slab.get_index_mut(index), "the report of a channel is for its association");
        let Some(association) = association else { return };
        self.unsent = self.unsent - association.unsent() + unsent;
        (association.reported, association.written) = (unsent, 0);
    }

    /// Sends a message over an association, or queues it (RFC 5971 §6.4 rule 5; GIST-6.4-02, GIST-3.7-04, GIST-4.1.2-02,
    /// GIST-4.1.2-08). GIST-5.4-02: only flow control delays messages.
    pub(in crate::engine) fn send(
        &mut self,
        (out, rng, counters): (&mut Outbox, &mut Random, &mut Counters),
        now: Time,
        index: u32,
        message: &Message<'_>,
        owner: &Owner,
    ) -> Result<(), SendError> {
        let window = self.window();
        let max = self.config.max_queued;
        let association =
            invariant!(self.slab.get_index_mut(index), "a message is sent over an association that stands");
        let Some(association) = association else { return Err(SendError::NoNextNode) };
        // GIST's own messages of a session use the session's stream as well, so that the Confirm stays before the Data.
        let stream = message.session.map_or(0, stream);
        if association.is_up() && association.queue.is_empty() && association.unsent() < window {
            let lifetime = lifetime(owner, now);
            let size = out
                .send_channel(association.channel, (stream, lifetime), message)
                .map_err(|_| SendError::Refused)?;
            association.written += size;
            self.unsent += size;
            let sent = MessageStatus::Sent(attributes(association.transport, lifetime));
            owner.report(out, sent);
            self.tg_raw_data(index, now, rng);
            return Ok(());
        }
        let mut octets = Vec::new();
        message.encode(&mut Writer::new(&mut octets)).map_err(|_| SendError::Refused)?;
        let size = octets.len();
        let from = source(association.remote);
        // Messages of GIST itself have a higher limit.
        let max = if matches!(owner, Owner::Gist) { 2 * max } else { max };
        let is_full = association.queued + size > max || self.queued.limit() == 0;
        if is_full || self.queued.take_many(from, super::octets(size)).is_err() {
            counters.queue_full += 1;
            return Err(SendError::Overload);
        }
        association.queued += size;
        association.queue.push_back(Waiting { octets: octets.into(), stream, owner: *owner });
        if let Some(deadline) = owner.deadline() {
            association.expires =
                association.expires.map_or(Some(deadline), |first| Some(first.min(deadline)));
            self.arm(index);
        }
        Ok(())
    }
}

/// The result of an attempt to send a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Outcome {
    /// The message was sent with the transport of the session, or failed.
    Sent(Result<(), SendError>),
    /// The session lacks the transport that the message needs; and the error of datagram mode.
    Needs(Need, SendError),
}

impl Gist {
    /// Sends Data of established state: over the association of the session if it has one, else in a datagram (RFC 5971 §5.5).
    /// GIST-5.5-02, GIST-4.3.3-05.
    pub(in crate::engine) fn send_established(
        &mut self,
        key: Key,
        direction: Direction,
        outgoing: &Outgoing<'_>,
        need: Need,
    ) -> Outcome {
        match self.association_of(key, direction) {
            Some(index) if need != Need::Secure || self.associations.is_secure(index) => {
                Outcome::Sent(self.send_over((key, direction, need), index, outgoing))
            }
            None if need <= Need::Preferred => match self.send_data(key, direction, outgoing) {
                Err(error @ SendError::TooLarge { .. }) if self.associations.enabled() => {
                    Outcome::Needs(Need::Association, error)
                }
                result => Outcome::Sent(result),
            },
            _ => Outcome::Needs(need, SendError::Refused),
        }
    }

    /// Sends or queues an application's message with established state (RFC 5971 §4.3.3). GIST-4.3.3-12, GIST-5972-03.
    pub(in crate::engine) fn send_along(
        &mut self,
        key: Key,
        direction: Direction,
        m: &SendMessage<'_>,
        outgoing: &Outgoing<'_>,
        need: Need,
    ) -> Result<(), SendError> {
        let mut lost = false;
        // One look at the record shows that most sessions have neither queue nor association.
        let plain = |record: &Record| record.pending.is_none() && !record.half(direction).has(ASSOCIATED);
        if !self.records.get(key).is_some_and(plain) {
            if self.waits_for_drain(key, direction) || self.waits_behind(key, direction) {
                return self.store(key, direction, m, need);
            }
            lost = self.binding(key, direction).is_some() && self.association_of(key, direction).is_none();
            if lost && self.pauses(key, direction) {
                return Err(SendError::Unreached(self.unreached_by(key, direction)));
            }
        }
        let (need, error) = match self.send_established(key, direction, outgoing, need) {
            Outcome::Sent(result) => return result,
            Outcome::Needs(need, error) => (need, error),
        };
        let queries = self.records.state(key, direction).is_querying();
        // Only the Querying node can open an association. After a lost association the Responding node waits for the peer's
        // refresh, which opens another one.
        if !queries && !lost {
            return Err(error);
        }
        let timeout = m.timeout.or(Some(self.associations.config.setup_timeout).filter(|_| !queries));
        self.store(key, direction, &SendMessage { timeout, ..*m }, need)?;
        if self.records.state(key, direction) == State::Established {
            self.start_refresh(key, direction);
        }
        Ok(())
    }

    /// Whether messages of a session wait until its previous association is drained (RFC 5971 §4.4.5).
    pub(in crate::engine) fn waits_for_drain(&self, key: Key, direction: Direction) -> bool {
        self.binding(key, direction).is_some_and(|binding| binding.held)
    }

    /// Whether queued reliable messages wait for an association, which a new message must not overtake.
    fn waits_behind(&self, key: Key, direction: Direction) -> bool {
        let record = invariant!(self.records.get(key), "a message waits in a session that stands");
        let Some(record) = record else { return false };
        let Some(pending) = &record.pending else { return false };
        pending.queued(direction).iter().any(|queued| queued.reliable)
    }

    /// Sends Data over an association (RFC 5971 §5.1). GIST-5.1-17, GIST-5.2.1-02.
    fn send_over(
        &mut self,
        (key, direction, need): (Key, Direction, Need),
        index: u32,
        outgoing: &Outgoing<'_>,
    ) -> Result<(), SendError> {
        let now = self.now;
        if let Some(transport) = self.associations.get(index).map(|association| association.transport)
            && self.end_stale(index)
        {
            return Err(SendError::Unreached(transport.into()));
        }
        let record = invariant!(self.records.get_mut(key), "a session with an association stands");
        let Some(record) = record else { return Err(SendError::NoNextNode) };
        let hops = outgoing.hops.unwrap_or(self.config.hops);
        let mut message = Message::new(MessageType::DATA, record.nslp, hops);
        message.mri = Some(self.nat.mri_for_peer(key, direction, record.flow.mri(direction)).into());
        message.session = Some(record.session);
        message.nslp_data = Some(outgoing.data);
        let owner = outgoing.owner((record.nslp, record.session), Some((key, direction, need)));
        let tools = (&mut self.out, &mut self.rng, &mut self.counters);
        self.associations.send(tools, now, index, &message, &owner)?;
        self.counters.associated_sent += 1;
        if record.half(direction).state.is_querying() {
            record.start_inactive(direction, now);
        }
        if outgoing.reliable
            && let Some(binding) =
                invariant!(self.binding_mut(key, direction), "a session with an association is bound")
        {
            binding.reliable = true;
        }
        Ok(())
    }

    /// Sends explicitly routed Data over a suitable association with the peer (RFC 5971 §7.1.4).
    /// GIST-4.1.2-10.
    pub(in crate::engine) fn send_explicitly_over(
        &mut self,
        peer: u32,
        m: &SendMessage<'_>,
        outgoing: &Outgoing<'_>,
        need: Need,
    ) -> Result<(), SendError> {
        let (mri, _) = self.mri_for_explicit_peer(peer, m);
        let peer = invariant!(self.peers.peer(peer), "a valid handle is that of a peer");
        let Some(peer) = peer else { return Err(SendError::NoNextNode) };
        let fits = |x: &Association| x.is_up() && (need != Need::Secure || x.transport.is_secure());
        let table = &mut self.associations;
        let index = table.find(&self.config.identity, &peer.identity, peer.address.ip(), fits);
        let index = index.ok_or(SendError::Refused)?;
        let hops = outgoing.hops.unwrap_or(self.config.hops);
        let mut message = Message::new(MessageType::DATA, m.nslp, hops);
        message.header.e = true;
        message.mri = Some(mri.into());
        message.session = Some(m.session);
        message.nslp_data = Some(outgoing.data);
        let tools = (&mut self.out, &mut self.rng, &mut self.counters);
        table.send(tools, self.now, index, &message, &outgoing.owner((m.nslp, m.session), None))?;
        self.counters.associated_sent += 1;
        if outgoing.reliable {
            table.sent_explicitly(index, (m.nslp, m.session, m.mri));
        }
        Ok(())
    }

    /// Takes the number of octets that a channel buffers. Back-pressure stops one association without the others.
    pub(in crate::engine) fn channel_drained(&mut self, channel: ChannelId, unsent: usize) {
        let Some(key) = self.associations.of_channel(channel) else { return };
        self.associations.set_reported(key.index(), unsent);
        self.flush_queue(key.index());
        self.reply_late(key.index());
    }

    /// Gives queued messages to the channel, as long as it does not buffer too many octets. The rest waits for a report of
    /// the channel, which comes at the latest when it has sent what it buffers ([`REPORT_EVERY`]).
    pub(super) fn flush_queue(&mut self, index: u32) {
        let Self { associations, out, rng, now, .. } = self;
        let window = associations.window();
        let association = associations.slab.get_index_mut(index);
        let association = invariant!(association, "a queue is emptied while its association stands");
        let Some(association) = association.filter(|a| a.is_up()) else { return };
        if association.unsent() >= window || association.queue.is_empty() {
            return;
        }
        while association.unsent() < window
            && let Some(waiting) = association.queue.pop_front()
        {
            let size = waiting.octets.len();
            association.queued -= size;
            associations.queued.release_many(source(association.remote), super::octets(size));
            association.written += size;
            associations.unsent += size;
            let lifetime = lifetime(&waiting.owner, *now);
            out.send_channel_octets(association.channel, (waiting.stream, lifetime), &waiting.octets);
            let status = MessageStatus::Sent(attributes(association.transport, lifetime));
            waiting.owner.report(out, status);
        }
        if association.queue.is_empty() {
            association.expires = None;
        }
        associations.tg_raw_data(index, *now, rng);
    }

    /// The channel of an association could not be set up: its messages go back to their sessions, which try another
    /// transport. False: the message cannot be kept.
    pub(super) fn take_back(&mut self, waiting: &Waiting) -> bool {
        let Owner::Application(owner) = waiting.owner else { return false };
        let Some((key, direction, need)) = owner.by else { return false };
        // The application has ended the session in this direction: a later message of it must not take this one along.
        if self.records.state(key, direction) == State::None {
            return false;
        }
        let Ok(message) = Message::parse(&waiting.octets, Encapsulation::Association) else { return false };
        let record = invariant!(self.records.get(key), "a message comes back to a session that stands");
        let (Some(data), Some(record)) = (message.nslp_data, record) else { return false };
        let attributes = TransferAttributes { reliable: owner.reliable, ..Default::default() };
        let m = SendMessage {
            data,
            handle: owner.handle,
            nslp: record.nslp,
            session: record.session,
            mri: record.flow.mri(direction),
            state: None,
            sii: None,
            attributes,
            timeout: owner.deadline.map(|at| at.since(self.now)),
            ip_ttl: None,
            hops: Some(message.header.hops),
        };
        self.store(key, direction, &m, need).is_ok()
    }

    /// Fails queued messages whose timeout is over (RFC 5971 B.1). GIST-B.1-04.
    pub(super) fn expire_waiting(&mut self, index: u32) {
        let Self { associations, out, now, .. } = self;
        let association = associations.slab.get_index_mut(index);
        let association = invariant!(association, "queued messages are late while their association stands");
        let Some(association) = association else { return };
        if association.expires.is_none_or(|first| first > *now) {
            return;
        }
        let mut gone = 0;
        let unanswered = association.unanswered().is_some();
        let error = match association.transport {
            transport if unanswered && association.is_stale(*now) => SendError::Unreached(transport.into()),
            transport if unanswered => SendError::Connecting(transport.into()),
            _ => SendError::NoNextNode,
        };
        association.queue.retain(|waiting| {
            let over = waiting.owner.deadline().is_some_and(|at| at <= *now);
            if over {
                gone += waiting.octets.len();
                waiting.fail(out, error);
            }
            !over
        });
        association.expires = association.queue.iter().filter_map(|waiting| waiting.owner.deadline()).min();
        association.queued -= gone;
        associations.queued.release_many(source(association.remote), super::octets(gone));
    }

    /// A session with reliable messages over association `old` has moved to another one. Its messages wait until the peer
    /// has answered an MA-Hello behind them (RFC 5971 §4.4.5). GIST-4.4.5-07.
    pub(super) fn hold_until_drained(&mut self, key: Key, direction: Direction, old: u32) {
        let stands = |association: &&mut Association| association.is_up() && !association.has_ended();
        let Some(association) = self.associations.get_mut(old).filter(stands) else { return };
        let held = association.held.len();
        association.held.push((key, direction, 0));
        if let Some(binding) = invariant!(self.binding_mut(key, direction), "a session that waits is bound") {
            binding.held = true;
        }
        let session = self.records.get(key).map(|record| record.session);
        let pending_hello = self.request_hello(old, session.map_or(0, stream));
        let entry = self.associations.get_mut(old).and_then(|association| association.held.get_mut(held));
        if let Some(entry) = invariant!(entry, "a session waits until its MA-Hello is answered") {
            entry.2 = pending_hello;
        }
    }

    /// An association failed while sessions that had moved to another one waited for the arrival of their reliable messages:
    /// these may be lost (RFC 5971 §4.1.2). GIST-4.1.2-03.
    pub(super) fn held_lost(&mut self, index: u32) {
        let held = self.associations.get(index).map_or(0, |association| association.held.len());
        for at in 0..held {
            let entry = self.associations.get(index).and_then(|association| association.held.get(at));
            if let Some((key, direction, _)) = entry.copied() {
                self.notify_always(key, direction, NetworkEvent::CommunicationFailure);
            }
        }
    }

    /// An association is drained, or was removed: the sessions whose Hello-ID `answers` accepts continue. A reply
    /// acknowledges all messages before its MA-Hello or, with SCTP, all of its stream.
    pub(super) fn drained(&mut self, index: u32, answers: impl Fn(u32) -> bool) {
        let association =
            invariant!(self.associations.get_mut(index), "an association stands while it is drained");
        let Some(association) = association else { return };
        let held = core::mem::take(&mut association.held);
        let (free, held): (Vec<_>, Vec<_>) = held.into_iter().partition(|entry| answers(entry.2));
        association.held = held;
        for (key, direction, _) in free {
            // The session may have ended meanwhile.
            if let Some(binding) = self.binding_mut(key, direction) {
                binding.held = false;
                self.send_stored(key, direction);
                self.settle(key);
            }
        }
    }
}
