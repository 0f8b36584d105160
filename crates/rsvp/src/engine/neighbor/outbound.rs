//! Packets of composed messages.

use core::hint::black_box;
use core::net::IpAddr;

use signalbox_core::slab::Key;
use signalbox_core::{IfIndex, invariant};

use super::association::ChallengeRequest;
use super::config::Interface;
use super::message_ids::SentHandle;
use super::outbox::Envelope;
use super::standing::Naming;
use super::{Neighbors, Upcall};
use crate::engine::packet::IpReceived;
use crate::wire::{
    Challenge, HEADER_OCTETS, HeaderFlags, Hello, ListedId, Message, MessageId, MessageType, Writer, checksum,
};

/// TTL of messages to a neighbor.
pub(super) const TTL: u8 = 255;
/// TOS of this layer's own messages: class selector 6, network control.
const TOS: u8 = 0xc0;
/// A message to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// Its addressing.
    pub envelope: Envelope,
    /// The next RSVP node of a message that is not addressed to it (Path, PathTear, ResvConf), if routing gives it. The
    /// message is bundled only if that is a neighbor with the same address.
    pub next_hop: Option<IpAddr>,
    /// The whole message, without INTEGRITY, acknowledgments and MESSAGE_ID.
    pub octets: &'a [u8],
    /// Why it is sent.
    pub reason: SendReason,
}

/// Reason for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendReason {
    /// A trigger message: it changes lasting state (Path, Resv) and gets a new MESSAGE_ID (RFC 2961 §1.1).
    Trigger {
        /// Handle of the state, if it was sent before.
        state: Option<SentHandle>,
        /// The owner's tag, for [`Upcall::SendWhole`]: any number but the largest.
        tag: u32,
    },
    /// A refresh: it repeats the last message about the state.
    Refresh {
        /// Handle of the state.
        state: Option<SentHandle>,
    },
    /// No handle stands for the message: errors, tears, confirmations, and what makes a part of a state.
    Once {
        /// The mark of the state that it makes or ends, for [`Neighbors::end_waiting`]; 0: it does neither.
        about: u64,
    },
}

/// Destination of a summary refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryTo {
    /// The neighbor that has the state: for Resv, and for Path of a unicast session.
    Neighbor {
        /// Its address.
        neighbor: IpAddr,
        /// This node's address in the RSVP_HOP of the state.
        src: IpAddr,
        /// Outgoing interface.
        ifindex: IfIndex,
    },
    /// All members of a group: for Path of a multicast session.
    Group {
        /// The group.
        group: IpAddr,
        /// The source.
        source: IpAddr,
        /// This node's address in the RSVP_HOP of the state.
        src: IpAddr,
        /// Outgoing interface.
        ifindex: IfIndex,
        /// TTL of the Path.
        ttl: u8,
    },
}

/// How a message is signed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Signed {
    /// By the settings of the interface.
    AsConfigured,
    /// By this key, in answer to a challenge.
    By(usize),
    /// Not at all: a challenge.
    Not,
}

/// Objects in front of a message's own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Preface<'a> {
    pub(super) signed: Signed,
    pub(super) acks: &'a [(MessageId, bool)],
    pub(super) message_id: Option<MessageId>,
}

impl Neighbors {
    /// Sends a message (RFC 2961 §4). Its packet may leave later, together with others. Returns the handle of the state
    /// after a trigger message; `None` without MESSAGE_IDs and for other messages.
    pub fn send(&mut self, outgoing: &Outgoing<'_>) -> Option<SentHandle> {
        let key = self.send_with_id(outgoing);
        key.filter(|_| matches!(outgoing.reason, SendReason::Trigger { .. })).map(SentHandle)
    }

    /// Sends a message about no lasting state to a group. It is sent again until all these neighbors acknowledged it, up
    /// to the limit (RFC 2961 §6).
    pub fn send_to_all(&mut self, outgoing: &Outgoing<'_>, neighbors: Vec<IpAddr>) {
        if let Some(key) = self.send_with_id(outgoing) {
            self.sent.await_all(key, neighbors);
        }
    }

    /// Sends a message, and returns its MESSAGE_ID if it has one.
    fn send_with_id(&mut self, outgoing: &Outgoing<'_>) -> Option<Key> {
        self.out.recycle();
        let Outgoing { envelope, octets, reason, .. } = *outgoing;
        let settings = *self.config.of(envelope.ifindex);
        let reliable = settings.reduction.reliable;
        let plain = reliable && !self.is_reliable(envelope.ifindex, envelope.towards);
        // A state that went without a MESSAGE_ID gets one when its neighbor may have one again.
        let again = |state: SentHandle| {
            let sent = self.sent.get(state.0).filter(|sent| sent.plain)?;
            (reliable && !plain && envelope.towards != 0).then(|| sent.tag())?
        };
        let (reason, again) = match reason {
            SendReason::Trigger { state: Some(state), .. } => (reason, again(state).is_some()),
            SendReason::Refresh { state: Some(state) } => match again(state) {
                Some(tag) => (SendReason::Trigger { state: Some(state), tag }, true),
                None => (reason, false),
            },
            _ => (reason, false),
        };
        let key = match reason {
            SendReason::Trigger { state, tag } if reliable => {
                if let Some(state) = state {
                    self.set_acknowledged(state.0, None);
                }
                self.sent.give(state.map(|state| state.0), Some(tag))
            }
            SendReason::Once { .. } if reliable && !plain => self.sent.give(None, None),
            SendReason::Refresh { state } if reliable => state.map(|state| state.0),
            SendReason::Trigger { state, .. } | SendReason::Refresh { state } => {
                state.iter().for_each(|state| self.remove_sent(*state));
                None
            }
            SendReason::Once { .. } => None,
        };
        if let Some(sent) = key.filter(|_| plain || again).and_then(|key| self.sent.get_mut(key)) {
            sent.plain = plain;
        }
        if reliable && !plain && key.is_none() && !matches!(reason, SendReason::Refresh { .. }) {
            self.counters.overload += 1;
        }
        let repeated = matches!(reason, SendReason::Refresh { .. });
        let owner = match reason {
            SendReason::Once { about } => about,
            SendReason::Trigger { .. } | SendReason::Refresh { .. } => 0,
        };
        let mut message_id = None;
        if let Some((key, sent)) = key.and_then(|key| Some((key, self.sent.get_mut(key)?)))
            && !sent.plain
        {
            let instead = core::mem::take(&mut sent.summaries) > 0;
            sent.ifindex = envelope.ifindex;
            let (id, acknowledged) = (sent.id, sent.peer().is_some() && !instead);
            // A refresh desires an acknowledgment if there was none before, and after Srefreshes: another router may have taken
            // the place of the one that they went to.
            let times = (self.now, settings.reduction.first);
            let kept = !repeated && self.sent.keep(times, key, envelope, octets, owner);
            if kept && !envelope.dst.is_multicast() {
                let until = self.now + settings.reduction.first * 2;
                self.standings.tried(self.now, (envelope.ifindex, envelope.towards), until);
            }
            let waits = kept || self.sent.waiting(key).is_some();
            message_id = Some(MessageId {
                ack_desired: if repeated { !acknowledged } else { waits },
                epoch: self.epoch,
                id,
            });
            if !repeated && !kept {
                self.counters.overload += 1;
            }
        }
        self.dispatch(outgoing, key, message_id, repeated);
        key
    }

    /// Whether messages to the next router with this mark have a MESSAGE_ID.
    #[must_use]
    pub fn is_reliable(&self, ifindex: IfIndex, towards: u32) -> bool {
        self.naming(ifindex, towards) == Naming::Yes
    }

    /// Whether messages to the next router with this mark have a MESSAGE_ID, now or later.
    pub(in crate::engine) fn naming(&self, ifindex: IfIndex, towards: u32) -> Naming {
        if !self.config.of(ifindex).reduction.reliable {
            return Naming::No;
        }
        self.standings.naming(self.now, (ifindex, towards))
    }

    /// Whether messages leave an interface without objects of this layer.
    #[must_use]
    pub fn is_plain(&self, ifindex: IfIndex) -> bool {
        let settings = self.config.of(ifindex);
        !settings.reduction.reliable && !settings.integrity.sending
    }

    /// Lends the buffer for messages without objects of this layer, and returns their header flags;
    /// [`Self::send_plain`] takes the buffer back.
    pub fn lend(&mut self, ifindex: IfIndex) -> (Vec<u8>, HeaderFlags) {
        self.out.recycle();
        (core::mem::take(&mut self.out.octets), self.flags(ifindex))
    }

    /// Sends the octets that were appended to the lent buffer since `start`.
    pub fn send_plain(&mut self, envelope: Envelope, lent: Vec<u8>, start: usize) {
        self.out.octets = lent;
        self.out.push(envelope, start);
    }

    /// Sends a message alone: with INTEGRITY if configured, without MESSAGE_ID, in no Bundle.
    pub fn send_alone(&mut self, envelope: Envelope, octets: &[u8]) {
        self.out.recycle();
        let mut out = core::mem::take(&mut self.out.octets);
        let start = out.len();
        self.compose(&mut out, (envelope.ifindex, envelope.dst), octets, Self::PLAIN);
        self.out.octets = out;
        self.out.push(envelope, start);
    }

    /// The next RSVP node of a message, if it is known.
    pub(super) fn towards(envelope: &Envelope, next_hop: Option<IpAddr>, octets: &[u8]) -> Option<IpAddr> {
        match octets.get(1).map(|kind| MessageType(*kind)) {
            Some(MessageType::PATH | MessageType::PATH_TEAR | MessageType::RESV_CONF) => {
                next_hop.filter(|_| !envelope.dst.is_multicast())
            }
            _ => Some(envelope.dst),
        }
    }

    pub(super) fn flags(&self, ifindex: IfIndex) -> HeaderFlags {
        let reduction = self.config.of(ifindex).reduction;
        if reduction.reliable && reduction.summary {
            HeaderFlags::REFRESH_REDUCTION
        } else {
            HeaderFlags::default()
        }
    }

    /// Appends a message as it leaves: with flags, INTEGRITY (RFC 2747 §4.1), acknowledgments and MESSAGE_ID before its
    /// objects, with lengths, digest and checksum. Appends nothing if there is no key.
    pub(super) fn compose(
        &mut self,
        out: &mut Vec<u8>,
        (ifindex, to): (IfIndex, IpAddr),
        octets: &[u8],
        preface: Preface<'_>,
    ) {
        let Some(&[_, kind, _, _, ttl, _, _, _]) = octets.first_chunk() else { return };
        let settings = &self.config.of(ifindex).integrity;
        let (sending, handshake) = (settings.sending, settings.handshake);
        let key = match preface.signed {
            Signed::By(key) => Some(key),
            Signed::AsConfigured if sending => {
                let Some((key, expired)) = self.keys.sending(self.config.wall(self.now), ifindex, to) else {
                    self.counters.no_key += 1;
                    tracing::debug!(dst = %to, ifindex = ifindex.0, reason = "no key", "message not sent");
                    return;
                };
                if expired {
                    self.counters.last_key_expired += 1;
                    let id = self.keys.get_mut(key).map_or(0, |key| key.id);
                    self.upcalls.push_back(Upcall::LastKeyExpired { id, ifindex });
                }
                Some(key)
            }
            _ => None,
        };
        let flags = self.flags(ifindex);
        let start = out.len();
        let mut w = Writer::new(out, MessageType(kind), flags, ttl);
        let mut signature = None;
        if let Some(key) = key.and_then(|key| self.keys.get_mut(key)) {
            let clock = (u64::from(self.config.real_time) + self.now.as_micros() / 1_000_000) << 32;
            // Seconds in the high half, a counter in the low one (RFC 2747 §3).
            key.sent = clock.max(key.sent.wrapping_add(1));
            let at = w.integrity(handshake, key.id, key.sent, key.digest_octets());
            signature = Some((&*key, at));
        }
        for (id, negative) in preface.acks {
            w.ack(id, *negative);
        }
        if let Some(message_id) = &preface.message_id {
            w.message_id(message_id);
        }
        w.body(octets.get(HEADER_OCTETS..).unwrap_or_default());
        let Some((key, at)) = signature else {
            let _ = w.finish(); // a message that is too long is removed again
            return;
        };
        if w.finish_without_checksum().is_err() {
            return;
        }
        let digest = key.digest(&[out.get(start..).unwrap_or_default()]);
        if let Some(field) = out.get_mut(at..at + key.digest_octets()) {
            field.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        }
        let sum = checksum(out.get(start..).unwrap_or_default());
        if let Some(field) = out.get_mut(start + 2..start + 4) {
            field.copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// Sends a message of this layer: the objects that `compose` writes.
    pub(super) fn own_packet(
        &mut self,
        (to, ifindex, ttl): (IpAddr, IfIndex, u8),
        kind: MessageType,
        preface: Preface<'_>,
        compose: impl FnOnce(&mut Writer<'_>),
    ) -> bool {
        let Some(src) = self.own(ifindex, to) else { return false };
        let mut message = core::mem::take(&mut self.scratch);
        message.clear();
        let mut w = Writer::new(&mut message, kind, HeaderFlags::default(), ttl);
        compose(&mut w);
        let whole = w.finish_without_checksum().is_ok();
        let mut out = core::mem::take(&mut self.out.octets);
        let start = out.len();
        if whole {
            self.compose(&mut out, (ifindex, to), &message, preface);
        }
        let sent = out.len() > start;
        self.out.octets = out;
        self.out.push(Envelope::direct(src, to, ifindex, ttl, TOS), start);
        self.scratch = message;
        sent
    }

    pub(super) const PLAIN: Preface<'static> =
        Preface { signed: Signed::AsConfigured, acks: &[], message_id: None };

    /// Refreshes a state by its MESSAGE_ID in an Srefresh (RFC 2961 §5); `false`: the engine must send the message.
    /// That is so if no neighbor with refresh reduction acknowledged the state, and now and then to repair errors
    /// (§5.5).
    pub fn summarise(&mut self, state: SentHandle, to: &SummaryTo) -> bool {
        let (envelope, source) = match *to {
            SummaryTo::Neighbor { neighbor, src, ifindex } => {
                (Envelope::direct(src, neighbor, ifindex, TTL, TOS), None)
            }
            SummaryTo::Group { group, source, src, ifindex, ttl } => {
                let direct = Envelope::direct(src, group, ifindex, ttl, TOS);
                (Envelope { router_alert: true, ..direct }, Some(source))
            }
        };
        let settings = self.config.of(envelope.ifindex).reduction;
        if !(settings.reliable && settings.summary) {
            return false;
        }
        let capable = match source {
            Some(_) => settings.all_nodes_capable.then_some(None),
            None => {
                let peer = self.peers.find(envelope.dst, envelope.ifindex);
                peer.filter(|peer| self.peers.get(*peer).is_some_and(|peer| peer.is_capable())).map(Some)
            }
        };
        let (Some(peer), Some(sent)) = (capable, self.sent.get(state.0)) else { return false };
        let acknowledged = sent.peer().is_some() && (peer.is_none() || sent.peer() == peer.map(Key::index));
        if sent.plain || !acknowledged || sent.summaries >= settings.summaries {
            return false;
        }
        let id = ListedId { id: sent.id, source, group: None };
        let (due, since) = (self.now + settings.summary_delay, self.sent.ended());
        let Some((key, count)) = self.summaries.add(envelope, (state.0, id), due, since) else {
            return false;
        };
        if let Some(sent) = self.sent.get_mut(state.0) {
            sent.summaries = sent.summaries.saturating_add(1);
        }
        self.counters.states_summarised += 1;
        // Common header, longest INTEGRITY, header of the list.
        let room = usize::from(settings.largest).saturating_sub(HEADER_OCTETS + 52 + 8);
        let entry = source.map_or(4, |source| if source.is_ipv4() { 8 } else { 20 });
        if (count + 1) * entry > room {
            self.flush_summary(key);
        }
        true
    }

    /// Reads the records of MESSAGE_IDs, so that they wait for memory at the same time.
    pub(in crate::engine) fn read_sent(&self, states: &[SentHandle]) {
        let records = states.iter().filter_map(|state| self.sent.get(state.0));
        black_box(records.fold(0, |read, sent| read ^ sent.id));
    }

    /// The neighbor that acknowledged a state.
    #[must_use]
    pub fn acknowledged_by(&self, state: SentHandle) -> Option<IpAddr> {
        let peer = self.sent.get(state.0)?.peer()?;
        self.peers.at(peer).map(|peer| peer.addr)
    }

    /// Whether the messages about a state have its MESSAGE_ID.
    #[must_use]
    pub fn has_id(&self, state: SentHandle) -> bool {
        self.sent.get(state.0).is_some_and(|sent| !sent.plain)
    }

    /// Whether this neighbor acknowledged a state. Others may have too.
    #[must_use]
    pub fn has_acknowledged(&self, state: SentHandle, neighbor: IpAddr) -> bool {
        // The engine may have the handle of a MESSAGE_ID that this layer removed.
        let Some(sent) = self.sent.get(state.0) else { return false };
        sent.peers().any(|peer| self.peers.at(peer).is_some_and(|peer| peer.addr == neighbor))
    }

    pub(super) fn flush_summary(&mut self, key: Key) {
        let Some(summary) =
            invariant!(self.summaries.take(key, &self.sent), "an Srefresh stands until it is sent")
        else {
            return;
        };
        if summary.ids.is_empty() {
            return self.summaries.recycle(summary);
        }
        let envelope = summary.envelope;
        let mut message = core::mem::take(&mut self.scratch);
        message.clear();
        let mut w = Writer::new(&mut message, MessageType::SREFRESH, HeaderFlags::default(), envelope.ttl);
        w.id_list(self.epoch, &summary.ids);
        if w.finish_without_checksum().is_ok() {
            self.counters.srefreshes_sent += 1;
            tracing::trace!(dst = %envelope.dst, states = summary.ids.len(), "Srefresh sent");
            let mut out = core::mem::take(&mut self.out.octets);
            let start = out.len();
            self.compose(&mut out, (envelope.ifindex, envelope.dst), &message, Self::PLAIN);
            self.out.octets = out;
            self.out.push(envelope, start);
        }
        self.scratch = message;
        self.summaries.recycle(summary);
    }

    /// Removes the MESSAGE_ID of a state: nothing about it is sent again.
    pub fn remove_sent(&mut self, state: SentHandle) {
        if let Some(sent) = self.sent.remove(state.0) {
            sent.peers().for_each(|peer| self.count_refs(Some(peer), None));
        }
    }

    /// Whether any message with the mark of a state waits for its acknowledgment.
    #[must_use]
    pub fn has_owned(&self) -> bool {
        self.sent.has_owned()
    }

    /// Whether a message with this mark waits for its acknowledgment.
    #[must_use]
    pub fn waits(&self, about: u64) -> bool {
        self.sent.owned(about, |_| true).is_some()
    }

    /// A state ends, or is made again: those messages with this mark that are `concerned` are not repeated any more. Whether
    /// there were any.
    pub fn end_waiting(&mut self, about: u64, concerned: impl Fn(&[u8]) -> bool) -> bool {
        let mut any = false;
        while let Some(key) = self.sent.owned(about, &concerned) {
            self.remove_sent(SentHandle(key));
            any = true;
        }
        any
    }

    /// A PathErr or ResvErr shows that the neighbor with this mark does not know MESSAGE_IDs (RFC 2961 §4.8): it gets none for
    /// some time. Whether it had some until now.
    pub fn refused(&mut self, ifindex: IfIndex, towards: u32) -> bool {
        self.counters.names_refused += 1;
        let news = self.standings.refuses(self.now, (ifindex, towards));
        if news {
            self.counters.neighbors_plain += 1;
            self.upcalls.push_back(Upcall::Shown { towards: (ifindex, towards), able: false });
            tracing::info!(
                ifindex = ifindex.0,
                "neighbor refuses MESSAGE_IDs, and gets plain RFC 2205 for some time"
            );
        }
        news
    }

    /// Sends the message of a state without its MESSAGE_ID, which the neighbor refused; `false`: none waits for an
    /// acknowledgment, and the engine must send it.
    pub fn repeat_without(&mut self, state: SentHandle) -> bool {
        let waits = self.sent.waiting(state.0).is_some();
        if waits {
            self.send_without(state.0);
        }
        waits
    }

    /// Sends the messages with this mark that wait for their acknowledgment without a MESSAGE_ID. Whether there were any.
    pub fn repeat_owned_without(&mut self, about: u64) -> bool {
        let mut any = false;
        while let Some(key) = self.sent.owned(about, |_| true) {
            self.send_without(key);
            any = true;
        }
        any
    }

    /// Sends a message that waits for its acknowledgment once more without a MESSAGE_ID, for the last time. Its state has no
    /// MESSAGE_ID from now on.
    pub(super) fn send_without(&mut self, entry: Key) {
        let Some(waiting) = invariant!(self.sent.waiting(entry), "a given-up message waits") else { return };
        let (envelope, octets) = (waiting.envelope, waiting.octets.clone());
        match self.sent.get_mut(entry).map(|sent| (sent.tag(), sent)) {
            Some((Some(_), sent)) => {
                sent.plain = true;
                self.sent.settle(entry);
            }
            _ => self.remove_sent(SentHandle(entry)),
        }
        let reason = SendReason::Refresh { state: None };
        self.dispatch(&Outgoing { envelope, next_hop: None, octets: &octets, reason }, None, None, false);
    }

    /// Retransmits a message that was not acknowledged (RFC 2961 §6).
    pub(super) fn retransmit(&mut self, envelope: Envelope, octets: &[u8], (entry, id): (Key, u32)) {
        let message_id = Some(MessageId { ack_desired: true, epoch: self.epoch, id });
        let reason = SendReason::Refresh { state: None };
        self.dispatch(&Outgoing { envelope, next_hop: None, octets, reason }, Some(entry), message_id, false);
    }

    /// Sends a Hello with TTL 1 (RFC 3209 §5.1).
    pub(super) fn send_hello(&mut self, to: IpAddr, ifindex: IfIndex, hello: &Hello) {
        let sent = self.own_packet((to, ifindex, 1), MessageType::HELLO, Self::PLAIN, |w| _ = w.hello(hello));
        self.counters.hellos_sent += u64::from(sent);
        tracing::trace!(peer = %to, ack = hello.ack, "Hello sent");
    }

    pub(super) fn challenge(&mut self, ask: &ChallengeRequest) {
        let challenge = Challenge { key_id: ask.key_id, cookie: ask.cookie };
        let preface = Preface { signed: Signed::Not, ..Self::PLAIN };
        let place = (ask.to, ask.ifindex, TTL);
        let kind = MessageType::INTEGRITY_CHALLENGE;
        let sent = self.own_packet(place, kind, preface, |w| _ = w.challenge(&challenge));
        self.counters.challenges_sent += u64::from(sent);
        tracing::debug!(peer = %ask.to, key = ask.key_id, "Integrity Challenge sent");
    }

    /// Handles an Integrity Challenge, which is not signed (RFC 2747 §4.3): it is answered to its source, with the key
    /// that it names, at a limited rate.
    pub(super) fn challenged(&mut self, packet: &IpReceived<'_>, message: &Message<'_>) {
        self.counters.challenges_received += 1;
        let Self { config, answers, peers, now, .. } = self;
        let (settings, origin): (&Interface, _) = (config.of(packet.ifindex), (packet.src, packet.ifindex));
        let is_known = || peers.find(packet.src, packet.ifindex).is_some();
        let Some(challenge) = message.challenge.filter(|_| {
            settings.integrity.sending
                && settings.integrity.handshake
                && answers.allow(*now, origin, is_known)
        }) else {
            return;
        };
        let Some(key) = self.keys.answering(challenge.key_id, packet.ifindex, packet.src) else { return };
        let preface = Preface { signed: Signed::By(key), ..Self::PLAIN };
        let place = (packet.src, packet.ifindex, TTL);
        let kind = MessageType::INTEGRITY_RESPONSE;
        let sent = self.own_packet(place, kind, preface, |w| _ = w.challenge(&challenge));
        self.counters.responses_sent += u64::from(sent);
        tracing::debug!(peer = %packet.src, key = challenge.key_id, "Integrity Response sent");
    }
}
