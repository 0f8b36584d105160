//! Messages out: straight to the channel, or in the queue of their association (RFC 5971 §4.1, §5.4).

use core::time::Duration;

use signalbox_core::rng::Random;
use signalbox_core::service::{
    MessageHandle, MessageStatus, Security, SendError, SendMessage, TransferAttributes,
};
use signalbox_core::slab::Key;
use signalbox_core::{Direction, NslpId, SessionId, Time};
use signalbox_wire::Writer;

use super::{Association, Associations, Transport};
use crate::engine::Gist;
use crate::engine::counters::Counters;
use crate::engine::io::ChannelId;
use crate::engine::outbox::Outbox;
use crate::engine::record::{NONE, State};
use crate::engine::send::Outgoing;
use crate::wire::{Message, MessageType};

/// Most octets of an application's message: what the 12-bit length of an NSLP-Data object can say
/// (RFC 5971 A.2), although the message around it could be four times as long.
pub(in crate::engine) const MAX_DATA: usize = 0xfff * 4;

/// What carrying a message takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(in crate::engine) enum Need {
    /// A datagram will do.
    #[default]
    Datagram,
    /// An association, if the peer has connection mode.
    Preferred,
    /// An association.
    Association,
    /// A secure association.
    Secure,
}

/// A message that waits for its association's channel.
#[derive(Debug)]
pub(super) struct Waiting {
    octets: Box<[u8]>,
    stream: u16,
    /// The application and its session.
    pub(super) of: (NslpId, SessionId),
    pub(super) handle: Option<MessageHandle>,
    pub(super) reliable: bool,
    pub(super) deadline: Option<Time>,
}

impl Waiting {
    /// A message of GIST itself.
    pub(super) fn control(stream: u16, message: &Message<'_>) -> Self {
        let mut octets = Vec::new();
        // What GIST composes by itself is far below every limit.
        message.encode(&mut Writer::new(&mut octets)).unwrap_or_default();
        Self { octets: octets.into(), stream, of: GIST_ITSELF, handle: None, reliable: false, deadline: None }
    }

    pub(super) fn octets(&self) -> usize {
        self.octets.len()
    }
}

/// Whose GIST's own messages are: nobody hears what becomes of them.
const GIST_ITSELF: (NslpId, SessionId) = (NslpId::NONE, SessionId([0; 16]));

/// Whose message it is.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Owner {
    /// The application and its session.
    pub(in crate::engine) of: (NslpId, SessionId),
    pub(in crate::engine) handle: Option<MessageHandle>,
    pub(in crate::engine) reliable: bool,
    pub(in crate::engine) deadline: Option<Time>,
    /// Not of an application: there is room for it where the queue is full for them.
    pub(in crate::engine) control: bool,
}

impl Outgoing<'_> {
    const fn owner(&self, of: (NslpId, SessionId)) -> Owner {
        let Self { handle, reliable, deadline, .. } = *self;
        Owner { of, handle, reliable, deadline, control: false }
    }
}

impl Owner {
    /// Of GIST itself.
    pub(in crate::engine) const fn control() -> Self {
        Self { of: GIST_ITSELF, handle: None, reliable: false, deadline: None, control: true }
    }
}

/// A session's stream, the same at both ends (RFC 6084 §3.2): its identifier is random enough to spread sessions.
/// SCTP-3.2-02, SCTP-3.2-03.
fn stream(session: SessionId) -> u16 {
    session.0.chunks_exact(2).fold(0, |stream, pair| match *pair {
        [high, low] => stream ^ u16::from_be_bytes([high, low]),
        _ => stream,
    })
}

/// How long a message is worth sending (RFC 6084 §3.4). A reliable one is given up by the queue or not at all:
/// its application would not hear of what the channel drops (RFC 5971 §4.1.2). SCTP-3.3-02.
fn lifetime(reliable: bool, deadline: Option<Time>, now: Time) -> Option<Duration> {
    deadline.filter(|_| !reliable).map(|at| at.since(now))
}

/// What an application hears of a message that went this way.
const fn attributes(transport: Transport, lifetime: Option<Duration>) -> TransferAttributes {
    let security = if transport.is_secure() { Security::Channel } else { Security::None };
    let reliable = lifetime.is_none() || !matches!(transport, Transport::Sctp);
    TransferAttributes { reliable, stateless: false, security }
}

impl Associations {
    /// Sends a message over an association, or queues it behind those that wait (rule 5 of §6.4; GIST-6.4-02,
    /// GIST-3.7-04, GIST-4.1.2-02, GIST-4.1.2-08). GIST-5.4-02: nothing is held back but by flow control.
    pub(in crate::engine) fn send(
        &mut self,
        (out, rng, counters): (&mut Outbox, &mut Random, &mut Counters),
        now: Time,
        index: u32,
        message: &Message<'_>,
        owner: &Owner,
    ) -> Result<(), SendError> {
        let (max_unsent, max, max_total) =
            (self.config.max_unsent, self.config.max_queued, self.config.max_queued_total);
        let Some(association) = self.slab.get_index_mut(index) else { return Err(SendError::NoNextNode) };
        // GIST's own message of a session takes the session's stream as well: a Confirm stays before the Data.
        let stream = message.session.map_or(0, stream);
        if association.is_up() && association.queue.is_empty() && association.unsent < max_unsent {
            let lifetime = lifetime(owner.reliable, owner.deadline, now);
            out.send_channel(association.channel, (stream, lifetime), message)
                .map_err(|_| SendError::Refused)?;
            let sent = MessageStatus::Sent(attributes(association.transport, lifetime));
            out.status(owner.of, owner.handle, sent);
            self.tg_raw_data(index, now, rng);
            return Ok(());
        }
        let mut octets = Vec::new();
        message.encode(&mut Writer::new(&mut octets)).map_err(|_| SendError::Refused)?;
        let size = octets.len();
        // What GIST itself has to say gets through a full queue, but not without limit either.
        let max = if owner.control { 2 * max } else { max };
        if association.queued + size > max || self.queued + size > max_total {
            counters.queue_full += 1;
            return Err(SendError::Overload);
        }
        association.queued += size;
        self.queued += size;
        let Owner { of, handle, reliable, deadline, .. } = *owner;
        let octets = octets.into();
        association.queue.push_back(Waiting { octets, stream, of, handle, reliable, deadline });
        if deadline.is_some() {
            self.arm(index);
        }
        Ok(())
    }
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Outcome {
    /// It went the session's way, or failed on it.
    Sent(Result<(), SendError>),
    /// The session has no way that is good enough: this is needed, and why datagrams do not do.
    Needs(Need, SendError),
}

impl Gist {
    /// Sends Data along established state: over the session's association if it has one, else in a datagram.
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
                Outcome::Sent(self.send_over(key, direction, index, outgoing))
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

    /// An application's message, where state is established. GIST-4.3.3-12, GIST-5972-03.
    pub(in crate::engine) fn send_along(
        &mut self,
        key: Key,
        direction: Direction,
        m: &SendMessage<'_>,
        outgoing: &Outgoing<'_>,
        need: Need,
    ) -> Result<(), SendError> {
        if self.waits_for_drain(key, direction) || self.waits_behind(key, direction) {
            return self.store(key, direction, m, need);
        }
        let lost = self.binding(key, direction).is_some_and(|b| b.association == NONE);
        if lost && self.retry_at(key, direction).is_some() {
            return Err(SendError::NoNextNode);
        }
        let (need, error) = match self.send_established(key, direction, outgoing, need) {
            Outcome::Sent(result) => return result,
            Outcome::Needs(need, error) => (need, error),
        };
        let queries = self.state(key, direction).is_querying();
        // Only the Querying node can open an association. The other waits for one that was lost, which the
        // peer's refresh brings back.
        if !queries && !lost {
            return Err(error);
        }
        let timeout = m.timeout.or(Some(self.associations.config.setup_timeout).filter(|_| !queries));
        self.store(key, direction, &SendMessage { timeout, ..*m }, need)?;
        if self.state(key, direction) == State::Established {
            self.start_refresh(key, direction);
        }
        Ok(())
    }

    /// Whether a session's messages wait until the association that it used before is drained.
    pub(in crate::engine) fn waits_for_drain(&self, key: Key, direction: Direction) -> bool {
        self.binding(key, direction).is_some_and(|binding| binding.held)
    }

    /// Whether messages wait that a new one must not overtake: those that wait for an association, once there
    /// is one.
    fn waits_behind(&self, key: Key, direction: Direction) -> bool {
        let Some(record) = self.records.get(key) else { return false };
        let Some(pending) = &record.pending else { return false };
        pending.queued(direction).iter().any(|queued| queued.reliable)
    }

    /// Data over an association. GIST-5.1-17, GIST-5.2.1-02.
    fn send_over(
        &mut self,
        key: Key,
        direction: Direction,
        index: u32,
        outgoing: &Outgoing<'_>,
    ) -> Result<(), SendError> {
        let now = self.now;
        let Some(record) = self.records.get_mut(key) else { return Err(SendError::NoNextNode) };
        let hops = outgoing.hops.unwrap_or(self.config.hops);
        let mut message = Message::new(MessageType::DATA, record.nslp, hops);
        message.mri = Some(self.nat.mri_for_peer(key, direction, record.flow.mri(direction)).into());
        message.session = Some(record.session);
        message.nslp_data = Some(outgoing.data);
        let owner = outgoing.owner((record.nslp, record.session));
        let tools = (&mut self.out, &mut self.rng, &mut self.counters);
        self.associations.send(tools, now, index, &message, &owner)?;
        self.counters.associated_sent += 1;
        let half = record.half_mut(direction);
        if half.state.is_querying() {
            half.start_inactive(now);
        }
        if outgoing.reliable
            && let Some(binding) = self.binding_mut(key, direction)
        {
            binding.reliable = true;
        }
        Ok(())
    }

    /// Data to a peer that the application names, over an association with it if there is a good one.
    /// GIST-4.1.2-10.
    pub(in crate::engine) fn send_explicitly_over(
        &mut self,
        peer: u32,
        m: &SendMessage<'_>,
        outgoing: &Outgoing<'_>,
        need: Need,
    ) -> Result<(), SendError> {
        let mri = self.mri_for_explicit_peer(peer, m);
        let Some(peer) = self.peers.peer(peer) else { return Err(SendError::NoNextNode) };
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
        table.send(tools, self.now, index, &message, &outgoing.owner((m.nslp, m.session)))?;
        self.counters.associated_sent += 1;
        Ok(())
    }

    /// The channel took something, or takes no more: back-pressure stops one association without the others.
    pub(in crate::engine) fn channel_drained(&mut self, channel: ChannelId, unsent: usize) {
        let Some(key) = self.associations.of_channel(channel) else { return };
        if let Some(association) = self.associations.get_mut(key.index()) {
            association.unsent = unsent;
        }
        self.flush_queue(key.index());
    }

    /// Hands waiting messages to the channel, if it does not hold too much.
    pub(super) fn flush_queue(&mut self, index: u32) {
        let Self { associations, out, rng, now, .. } = self;
        let max = associations.config.max_unsent;
        let Some(association) = associations.slab.get_index_mut(index).filter(|a| a.is_up()) else { return };
        if association.unsent >= max || association.queue.is_empty() {
            return;
        }
        // All of it, which the limit of the queue bounds: a channel that holds nothing never says so again.
        associations.queued -= core::mem::take(&mut association.queued);
        for waiting in association.queue.drain(..) {
            let lifetime = lifetime(waiting.reliable, waiting.deadline, *now);
            out.send_channel_octets(association.channel, (waiting.stream, lifetime), &waiting.octets);
            let status = MessageStatus::Sent(attributes(association.transport, lifetime));
            out.status(waiting.of, waiting.handle, status);
        }
        associations.tg_raw_data(index, *now, rng);
    }

    /// Messages whose application gave them a time that is over. GIST-B.1-04.
    pub(super) fn expire_waiting(&mut self, index: u32) {
        let Self { associations, out, now, .. } = self;
        let Some(association) = associations.slab.get_index_mut(index) else { return };
        if association.queue.iter().all(|waiting| waiting.deadline.is_none_or(|at| at > *now)) {
            return;
        }
        let mut gone = 0;
        association.queue.retain(|waiting| {
            let over = waiting.deadline.is_some_and(|at| at <= *now);
            if over {
                gone += waiting.octets.len();
                let status = MessageStatus::Failed(SendError::NoNextNode);
                out.status(waiting.of, waiting.handle, status);
            }
            !over
        });
        association.queued -= gone;
        associations.queued -= gone;
    }

    /// A session has moved from association `old`, over which reliable messages of it went: its messages wait
    /// until the peer has answered behind them (RFC 5971 §4.4.5). GIST-4.4.5-07.
    pub(super) fn hold_until_drained(&mut self, key: Key, direction: Direction, old: u32) {
        let Some(association) = self.associations.get_mut(old).filter(|a| a.is_up()) else { return };
        let held = association.held.len();
        association.held.push((key, direction, 0));
        if let Some(binding) = self.binding_mut(key, direction) {
            binding.held = true;
        }
        let session = self.records.get(key).map(|record| record.session);
        let pending_hello = self.request_hello(old, session.map_or(0, stream));
        if let Some(entry) = self.associations.get_mut(old).and_then(|a| a.held.get_mut(held)) {
            entry.2 = pending_hello;
        }
    }

    /// Nothing sent over an association is outstanding (or it is no more): those that waited go on, if `answers` is
    /// true of the pending_hello that they asked. An answer speaks of all that was sent before its pending_hello or, where streams do
    /// not wait for each other, of that stream.
    pub(super) fn drained(&mut self, index: u32, answers: impl Fn(u32) -> bool) {
        let Some(association) = self.associations.get_mut(index) else { return };
        let held = core::mem::take(&mut association.held);
        let (free, held): (Vec<_>, Vec<_>) = held.into_iter().partition(|entry| answers(entry.2));
        association.held = held;
        for (key, direction, _) in free {
            if let Some(binding) = self.binding_mut(key, direction) {
                binding.held = false;
                self.send_stored(key, direction);
                self.settle(key);
            }
        }
    }
}
