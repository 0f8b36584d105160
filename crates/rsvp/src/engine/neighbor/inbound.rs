//! The messages in received packets.

use core::net::IpAddr;

use signalbox_core::slab::Key;
use signalbox_core::{IfIndex, invariant};

use super::lists::{Lists, Unknown};
use super::message_ids::{ReceivedHandle, ReceivedId, SentHandle};
use super::peers::Age;
use super::traffic::is_error;
use super::{Neighbors, Upcall, hello};
use crate::engine::ahead::Group;
use crate::engine::packet::IpReceived;
use crate::wire::{
    Class, DecodeError, ErrorCode, HEADER_OCTETS, Message, MessageId, MessageType, ObjectType, Objects,
    Refusal, SubMessages,
};

/// Number of MESSAGE_ID_NACKs that have at most one and a half times the octets of a message, IP headers included.
const fn nacks_for(octets: usize) -> usize {
    const IP: usize = 20;
    let room = (octets + IP) * 3 / 2;
    let fit = room.saturating_sub(IP + HEADER_OCTETS) / 12;
    // They leave in several packets, whose headers are a 28th of them.
    fit - fit / 27
}

/// A packet whose messages are returned one by one.
#[derive(Debug)]
pub struct Arrivals<'a, 'p> {
    packet: IpReceived<'p>,
    stage: Stage<'p>,
    /// Each message is parsed here, because it is too large to be moved.
    incoming: &'a mut Incoming<'p>,
}

impl<'a, 'p> Arrivals<'a, 'p> {
    /// A message of a Bundle that waited: it is read as if it had come alone, by the rules of the Bundle.
    #[must_use]
    pub const fn again(incoming: &'a mut Incoming<'p>, non_rsvp: bool) -> Self {
        let packet = incoming.packet;
        incoming.non_rsvp = non_rsvp;
        Self { packet, stage: Stage::Again(packet.payload), incoming }
    }

    /// The message after [`Arrival::Message`].
    #[must_use]
    pub const fn message(&self) -> &Incoming<'p> {
        self.incoming
    }
}

#[derive(Debug)]
enum Stage<'p> {
    /// The packet was not parsed yet.
    Whole,
    /// Messages of a Bundle.
    Bundle {
        messages: SubMessages<'p>,
        lists: Option<Lists<'p>>,
    },
    /// A message of a Bundle that waited.
    Again(&'p [u8]),
    /// The lists of an Srefresh.
    Lists(Lists<'p>),
    Done,
}

/// An item of a packet.
#[derive(Debug)]
pub enum Arrival {
    /// A message for the engine: Path, Resv, their errors, tears and confirmation, diagnostics. [`Arrivals::message`]
    /// has it.
    Message,
    /// A summary refresh has the MESSAGE_IDs of these states: they are refreshed as by whole messages (RFC 2961 §5.3).
    Refreshed {
        /// The tags that [`Neighbors::store_received`] got, in the order of the list.
        tags: Group<u32>,
    },
    /// A summary refresh has an unknown MESSAGE_ID of a multicast session. If this node would forward packets of the
    /// source to the group from that interface, it calls [`Neighbors::nack`] (RFC 2961 §5.3).
    Unknown(Unknown),
    /// Octets that are not a valid message; the rest of the packet is dropped.
    Malformed(DecodeError),
}

/// A message and its arrival.
#[derive(Debug, Clone, Copy)]
pub struct Incoming<'p> {
    /// The message.
    pub message: Message<'p>,
    /// Its packet; in a Bundle that of the Bundle, with the TTL of the message.
    pub packet: IpReceived<'p>,
    /// Nodes without RSVP lie between the neighbor and this node, by the TTLs.
    pub non_rsvp: bool,
    /// The neighbor.
    pub neighbor: IpAddr,
    /// It came in a Bundle, so that the source of its packet is that of the neighbor.
    pub bundled: bool,
    peer: Option<Key>,
    age: Age,
}

impl<'p> Incoming<'p> {
    /// The state before anything of the packet is parsed, for [`Neighbors::receive`].
    #[must_use]
    pub const fn none(packet: IpReceived<'p>) -> Self {
        Self {
            message: Message::NOTHING,
            packet,
            non_rsvp: false,
            neighbor: packet.src,
            bundled: false,
            peer: None,
            age: Age::Newest,
        }
    }

    /// Parses a message.
    fn read(&mut self, octets: &'p [u8], reduction: bool) -> Result<(), DecodeError> {
        let message = &mut self.message;
        message.without_reduction = !reduction;
        message.read(octets)?;
        // The RSVP_HOP of a DREP is that of its DREQ.
        let hop = message.hop.filter(|_| message.kind != MessageType::DREP);
        self.neighbor = hop.map_or(self.packet.src, |hop| hop.addr);
        Ok(())
    }
}

/// How to handle a message, by its MESSAGE_ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Handle all of it.
    Process,
    /// It repeats the last message: only restart the lifetime of the state (RFC 2961 §4.5).
    Refresh,
    /// It is older than the last message about the state: drop it (RFC 2961 §4.5).
    OutOfOrder,
}

impl Neighbors {
    /// Begins to handle the packet of `incoming`, which [`Incoming::none`] made.
    #[must_use]
    #[inline]
    pub fn receive<'a, 'p>(&mut self, incoming: &'a mut Incoming<'p>) -> Arrivals<'a, 'p> {
        Arrivals { packet: incoming.packet, stage: Stage::Whole, incoming }
    }

    /// The next item of a packet, in order; `None`: all were returned. The engine handles it before the next call.
    pub fn next(&mut self, arrivals: &mut Arrivals<'_, '_>) -> Option<Arrival> {
        self.out.recycle();
        let Arrivals { packet, stage, incoming } = arrivals;
        let incoming = &mut **incoming;
        let reduction = self.config.of(packet.ifindex).reduction.reliable;
        loop {
            match stage {
                Stage::Whole => {
                    *stage = Stage::Done;
                    if let Err(error) = incoming.read(packet.payload, reduction) {
                        return Some(Arrival::Malformed(error));
                    }
                    self.count_received(incoming.message.kind, packet.ifindex);
                    let message = &incoming.message;
                    incoming.non_rsvp = message.send_ttl != packet.ttl;
                    if message.kind == MessageType::BUNDLE {
                        if !self.config.of(packet.ifindex).reduction.summary {
                            self.counters.bundles_refused += 1;
                            tracing::debug!(peer = %packet.src, reason = "Bundles are off", "Bundle dropped");
                            continue;
                        }
                        self.counters.bundles_received += 1;
                        *stage = Stage::Bundle { messages: message.sub_messages(), lists: None };
                        continue;
                    }
                    match self.admit(incoming, false) {
                        Admission::Message => return Some(Arrival::Message),
                        Admission::Lists(lists) => *stage = Stage::Lists(lists),
                        Admission::Over => {}
                    }
                }
                Stage::Bundle { lists: Some(lists), .. } | Stage::Lists(lists) => {
                    match self.listed(packet, lists) {
                        Some(arrival) => return Some(arrival),
                        None => match stage {
                            Stage::Bundle { lists, .. } => *lists = None,
                            _ => *stage = Stage::Done,
                        },
                    }
                }
                Stage::Bundle { messages, lists } => {
                    let Some(octets) = messages.next() else {
                        *stage = Stage::Done;
                        continue;
                    };
                    let non_rsvp = incoming.non_rsvp;
                    *incoming = Incoming { non_rsvp, ..Incoming::none(*packet) };
                    if let Err(error) = incoming.read(octets, reduction) {
                        return Some(Arrival::Malformed(error));
                    }
                    self.count_received(incoming.message.kind, packet.ifindex);
                    // The TTL of the data is in the message; the Bundle shows how far the message came (§3.4).
                    (incoming.packet.ttl, incoming.packet.payload) = (incoming.message.send_ttl, octets);
                    incoming.bundled = true;
                    match self.admit(incoming, true) {
                        Admission::Message => return Some(Arrival::Message),
                        Admission::Lists(new) => *lists = Some(new),
                        Admission::Over => {}
                    }
                }
                Stage::Again(octets) => {
                    let octets = *octets;
                    *stage = Stage::Done;
                    if let Err(error) = incoming.read(octets, reduction) {
                        return Some(Arrival::Malformed(error));
                    }
                    match self.admit(incoming, true) {
                        Admission::Message => return Some(Arrival::Message),
                        Admission::Lists(lists) => *stage = Stage::Lists(lists),
                        Admission::Over => {}
                    }
                }
                Stage::Done => return None,
            }
        }
    }

    /// Checks a message: INTEGRITY, neighbor, and the objects of this layer. `bundled`: it came in a Bundle.
    fn admit<'p>(&mut self, incoming: &mut Incoming<'p>, bundled: bool) -> Admission<'p> {
        let Incoming { message, packet, neighbor, .. } = incoming;
        if message.kind == MessageType::INTEGRITY_CHALLENGE {
            self.challenged(packet, message);
            return Admission::Over;
        }
        if !self.verify(packet, message, *neighbor) {
            return Admission::Over;
        }
        if matches!(message.kind, MessageType::DREQ | MessageType::DREP) {
            // A requester is not a neighbor; diagnostics leave no state (RFC 2745 §1).
            message.message_id = None;
            return Admission::Message;
        }
        if incoming.message.kind == MessageType::RESV_CONF && self.is_distant(incoming) {
            // Whoever sent it gets no acknowledgment and no record.
            incoming.message.message_id = None;
            return Admission::Message;
        }
        if !self.is_neighborly(incoming, bundled) {
            return Admission::Over;
        }
        let Incoming { message, packet, non_rsvp, neighbor, .. } = incoming;
        if message.kind == MessageType::HELLO {
            self.hello_from(*neighbor, packet, message);
            return Admission::Over;
        }
        let peer = self.peers.received_from(self.now, *neighbor, packet.ifindex, (message.flags, *non_rsvp));
        incoming.peer = peer;
        if let Some(peer) = peer.filter(|_| is_error(message.kind)).and_then(|key| self.peers.get_mut(key)) {
            peer.traffic.errors_received += 1;
        }
        if peer.is_none() {
            self.counters.overload += 1;
            tracing::debug!(peer = %neighbor, reason = "table of neighbors full", "neighbor not stored");
        }
        if let Some(peer) = peer {
            self.start_hello(peer);
        }
        if self.config.of(packet.ifindex).integrity.receiving {
            self.prove(peer);
        }
        let reduction = &self.config.of(packet.ifindex).reduction;
        if !reduction.reliable {
            return Self::without_reduction(message);
        }
        let summary = reduction.summary;
        let shown = bundled || message.message_id.is_some() || message.acks().next().is_some();
        if let Some(able) = peer.and_then(|key| self.peers.get_mut(key)).and_then(|peer| peer.shows(shown)) {
            let towards = (packet.ifindex, self.mark(*neighbor));
            if self.standings.shows(self.now, towards, able) {
                self.upcalls.push_back(Upcall::Shown { towards, able });
            }
        }
        for (message_id, negative) in message.acks() {
            self.acknowledged(peer, packet.ifindex, message_id, negative);
        }
        incoming.age = match (message.message_id, peer.and_then(|peer| self.peers.get_mut(peer))) {
            (Some(message_id), Some(peer)) => peer.record_id(message_id),
            _ => Age::Newest,
        };
        match message.kind {
            MessageType::ACK => Admission::Over,
            MessageType::SREFRESH => {
                let Some(key) = peer.filter(|_| summary) else { return Admission::Over };
                self.counters.srefreshes_received += 1;
                if let Some(message_id) = message.message_id {
                    self.acknowledge(key, packet, message_id, false);
                }
                // A neighbor without state may be anybody: it gets at most one and a half times the octets that it sent.
                let known = self.peers.get(key).is_some_and(|peer| peer.refs > 0);
                let nacks = if known { usize::MAX } else { nacks_for(message.octets.len()) };
                Admission::Lists(Lists { peer: key, objects: Objects::of(message.octets), list: None, nacks })
            }
            _ => {
                if peer.is_none() {
                    // Without a neighbor record there is no acknowledgment and no order.
                    message.message_id = None;
                }
                Admission::Message
            }
        }
    }

    /// Treats a message like a node without RFC 2961: the classes are unknown and reject the message (RFC 2961 §4.8).
    fn without_reduction<'p>(message: &mut Message<'p>) -> Admission<'p> {
        if matches!(message.kind, MessageType::ACK | MessageType::SREFRESH) {
            return Admission::Over;
        }
        let ack = message.acks().next().and_then(|_| message.object(Class::MESSAGE_ID_ACK));
        let named = message.message_id.map(|_| ObjectType::new(Class::MESSAGE_ID, 1));
        if let Some(kind) = ack.map(|object| object.kind).or(named) {
            if !matches!(message.kind, MessageType::PATH | MessageType::RESV) {
                return Admission::Over;
            }
            message.refusal = Some(Refusal { code: ErrorCode::UNKNOWN_CLASS, value: kind.number() });
        }
        message.message_id = None;
        Admission::Message
    }

    /// Handles a Hello. It is answered where Hello is configured, to neighbors that are known by other messages.
    fn hello_from(&mut self, neighbor: IpAddr, packet: &IpReceived<'_>, message: &Message<'_>) {
        let (Some(configured), Some(hello), Some(key)) =
            (self.config.of(packet.ifindex).hello, message.hello, self.peers.find(neighbor, packet.ifindex))
        else {
            self.counters.hellos_refused += 1;
            tracing::debug!(peer = %neighbor, reason = "Hello is off, or the neighbor is unknown", "Hello dropped");
            return;
        };
        self.counters.hellos_received += 1;
        let Some(peer) = invariant!(self.peers.get_mut(key), "a Hello's sender stands") else { return };
        peer.received(self.now);
        peer.traffic.received += 1;
        let state = peer.hello.get_or_insert_with(|| hello::State::new(self.now, &mut self.rng));
        let verdict = state.received(self.now, &hello, &configured, &mut self.rng);
        let answer = if hello.ack { None } else { state.answer(self.now) };
        let (neighbor, ifindex) = (peer.addr, peer.ifindex);
        match verdict {
            hello::Verdict::Same => {}
            hello::Verdict::Up => {
                tracing::info!(peer = %neighbor, ifindex = ifindex.0, "neighbor answers Hellos");
            }
            hello::Verdict::Lost => self.lost(neighbor, ifindex),
        }
        if let Some(answer) = answer {
            self.send_hello(neighbor, ifindex, &answer);
        }
        self.start_hello(key);
        self.peers.rearm(key);
    }

    /// Starts requests where they are configured.
    fn start_hello(&mut self, key: Key) {
        let Some(peer) = invariant!(self.peers.get_mut(key), "a started neighbor stands") else { return };
        if self.config.of(peer.ifindex).hello.is_none() {
            return;
        }
        let state = peer.hello.get_or_insert_with(|| hello::State::new(self.now, &mut self.rng));
        if state.due().is_none() {
            state.start(self.now);
            self.peers.rearm(key);
        }
    }

    pub(super) fn lost(&mut self, neighbor: IpAddr, ifindex: IfIndex) {
        self.counters.neighbors_lost += 1;
        tracing::info!(peer = %neighbor, ifindex = ifindex.0, "neighbor lost");
        self.upcalls.push_back(Upcall::Lost { neighbor, ifindex });
    }

    /// Handles a MESSAGE_ID_ACK, or with `negative` a MESSAGE_ID_NACK (RFC 2961 §4.3), that came by this interface. Whoever
    /// acknowledges a Path is the next hop, to which the refreshes go: only a node on the link of the Path can be that.
    fn acknowledged(&mut self, peer: Option<Key>, ifindex: IfIndex, message_id: MessageId, negative: bool) {
        if message_id.epoch != self.epoch {
            return;
        }
        let Some(key) = self.sent.find(message_id.id) else { return };
        let sent_by = self.sent.get(key).map_or(ifindex, |sent| sent.ifindex);
        let anywhere =
            self.config.of(sent_by).trust.distant_hops || self.config.of(ifindex).integrity.receiving;
        // Routing chose the interface of a message without one: a ResvConf, which is about no lasting state.
        let elsewhere = sent_by != ifindex && sent_by != IfIndex::NONE;
        if elsewhere && !anywhere {
            self.counters.acks_elsewhere += 1;
            tracing::debug!(
                id = message_id.id,
                reason = "by another interface than its message left",
                "acknowledgment ignored"
            );
            return;
        }
        self.prove(peer);
        if negative {
            self.counters.nacks_received += 1;
            tracing::debug!(id = message_id.id, "neighbor does not know a MESSAGE_ID");
            if let Some(tag) = self.sent.get(key).and_then(|sent| sent.tag()) {
                self.set_acknowledged(key, None);
                self.upcalls.push_back(Upcall::SendWhole { tag });
            }
            return;
        }
        self.counters.acks_received += 1;
        if let Some(waiting) = self.sent.waiting(key) {
            let towards = (waiting.envelope.ifindex, waiting.envelope.towards);
            if self.standings.acknowledged(self.now, towards) {
                self.upcalls.push_back(Upcall::Shown { towards, able: true });
            }
        }
        let from = peer.and_then(|peer| self.peers.get(peer)).map(|peer| peer.addr);
        if self.sent.waits_for_others(key, from) {
            return;
        }
        self.sent.settle(key);
        if self.sent.get(key).is_some_and(|sent| sent.tag().is_none()) {
            self.sent.remove(key);
        } else {
            self.set_acknowledged(key, peer);
        }
    }

    /// Stores that a neighbor has a state of this node; `None`: it is not known that any has it.
    pub(super) fn set_acknowledged(&mut self, key: Key, peer: Option<Key>) {
        // The engine may have the handle of a MESSAGE_ID that this layer removed.
        let Some(sent) = self.sent.get_mut(key) else { return };
        let Some(peer) = peer else {
            let before = sent.take_peers();
            return before.for_each(|peer| self.count_refs(Some(peer), None));
        };
        let (less, more) = sent.add_peer(peer.index());
        self.count_refs(less, more);
    }

    /// Counts a MESSAGE_ID less for a neighbor, and one more.
    pub(super) fn count_refs(&mut self, less: Option<u32>, more: Option<u32>) {
        if let Some(peer) = more.and_then(|peer| self.peers.at_mut(peer)) {
            peer.refs = peer.refs.saturating_add(1);
        }
        if let Some(peer) = less.and_then(|peer| self.peers.at_mut(peer)) {
            peer.refs = peer.refs.saturating_sub(1);
        }
    }

    /// Compares the MESSAGE_ID of a message with the stored one (RFC 2961 §4.5); `stored`: the handle of the state, if
    /// there is one. It queues the acknowledgment, so it must be called for valid messages only.
    pub fn judge(&mut self, incoming: &Incoming<'_>, stored: Option<ReceivedHandle>) -> Verdict {
        let (Some(message_id), Some(peer)) = (incoming.message.message_id, incoming.peer) else {
            return Verdict::Process;
        };
        let stored = stored.and_then(|stored| self.received.get(stored)).map(|received| received.id);
        let verdict = match stored {
            // Order is known only within one neighbor and epoch.
            Some((of, epoch, id))
                if of == peer.index() && epoch == message_id.epoch && incoming.age != Age::NewEpoch =>
            {
                if id == message_id.id {
                    Verdict::Refresh
                } else if incoming.age == Age::Older && MessageId::is_before(message_id.id, id) {
                    Verdict::OutOfOrder
                } else {
                    Verdict::Process
                }
            }
            _ => Verdict::Process,
        };
        if verdict == Verdict::OutOfOrder {
            self.counters.out_of_order += 1;
            tracing::debug!(peer = %incoming.neighbor, id = message_id.id, reason = "older than what was received", "message dropped");
        } else {
            self.acknowledge(peer, &incoming.packet, message_id, false);
        }
        verdict
    }

    /// Stores the MESSAGE_ID of the message for its state, in place of `stored` (RFC 2961 §4.5). `None`: the message
    /// has no MESSAGE_ID, or the table is full, and no Srefresh can refresh the state.
    pub fn store_received(
        &mut self,
        incoming: &Incoming<'_>,
        stored: Option<ReceivedHandle>,
        tag: u32,
    ) -> Option<ReceivedHandle> {
        if let Some(stored) = stored {
            self.remove_received(stored);
        }
        let (message_id, peer) = (incoming.message.message_id?, incoming.peer?.index());
        // One message may be about several states of the engine; the last one has the MESSAGE_ID.
        if self.received.find((peer, message_id.epoch, message_id.id)).is_some() {
            return None;
        }
        let received = self.received.insert((peer, message_id.epoch, message_id.id), tag);
        match received {
            Some(_) => self.count_refs(None, Some(peer)),
            None => self.counters.overload += 1,
        }
        received
    }

    /// The tag of a stored MESSAGE_ID.
    #[must_use]
    pub fn tag_of(&self, stored: ReceivedHandle) -> Option<u32> {
        self.received.get(stored).map(ReceivedId::tag)
    }

    /// Removes the MESSAGE_ID of a state that ended.
    pub fn remove_received(&mut self, stored: ReceivedHandle) {
        if let Some(received) = self.received.remove(stored) {
            self.count_refs(Some(received.id.0), None);
        }
    }

    /// An error message shows that the message arrived (RFC 2961 §4.5).
    pub fn implicitly_acknowledged(&mut self, state: SentHandle) {
        self.sent.settle(state.0);
    }
}

enum Admission<'p> {
    /// A message for the engine.
    Message,
    Lists(Lists<'p>),
    Over,
}
