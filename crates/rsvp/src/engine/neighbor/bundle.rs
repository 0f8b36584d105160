//! Messages that leave at once, or wait for others in a Bundle (RFC 2961 §3). A message that waits is dropped when its
//! state ends or a newer message about it is sent: it would make again what a tear ended.

use core::net::IpAddr;

use signalbox_core::slab::Key;

use super::Neighbors;
use super::message_ids::SentIds;
use super::outbound::{Outgoing, Preface, Signed, TTL};
use super::outbox::Envelope;
use crate::wire::{HEADER_OCTETS, Message, MessageId, MessageType, Writer};

/// Messages that wait for others.
#[derive(Debug, Default)]
pub(crate) struct Bundle {
    octets: Vec<u8>,
    parts: Vec<Part>,
    /// MESSAGE_IDs that had ended when the first was added.
    since: u64,
}

/// A message in a Bundle.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Its addressing, if it leaves alone.
    envelope: Envelope,
    /// The handle and identifier of the state that it makes.
    state: Option<(Key, u32)>,
    octets: usize,
}

impl Bundle {
    pub(crate) const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Removes the messages whose state ended or has a newer message, and returns the acknowledgments that were in them.
    fn drop_ended(&mut self, sent: &SentIds) -> Vec<(MessageId, bool)> {
        let mut acks = Vec::new();
        if self.since == sent.ended() {
            return acks;
        }
        let mut at = 0;
        let octets = &mut self.octets;
        self.parts.retain(|part| {
            let span = at..at + part.octets;
            if part.state.is_none_or(|(key, id)| sent.stands(key, id)) {
                at = span.end;
                return true;
            }
            let message = octets.get(span.clone()).unwrap_or_default();
            acks.extend(Message::parse(message).iter().flat_map(Message::acks));
            octets.drain(span);
            false
        });
        acks
    }

    fn clear(&mut self) {
        self.octets.clear();
        self.parts.clear();
    }
}

impl Neighbors {
    /// Composes and sends a message, in a Bundle if possible (RFC 2961 §3). `entry`: the handle of its state.
    pub(super) fn dispatch(
        &mut self,
        outgoing: &Outgoing<'_>,
        entry: Option<Key>,
        message_id: Option<MessageId>,
        patient: bool,
    ) {
        let Outgoing { envelope, octets, next_hop, .. } = *outgoing;
        let reduction = &self.config.of(envelope.ifindex).reduction;
        let bundles = reduction.reliable && reduction.summary;
        let towards = Self::towards(&envelope, next_hop, octets);
        let key = towards.and_then(|addr| self.peers.find(addr, envelope.ifindex));
        let own = towards.and_then(|addr| self.own(envelope.ifindex, addr));
        let mut acks = Vec::new();
        if let Some(peer) = key.and_then(|key| self.peers.get_mut(key))
            && peer.addr == envelope.dst
        {
            // Waiting acknowledgments leave in this message.
            acks = core::mem::take(&mut peer.acks);
            peer.acks_due = None;
        }
        let preface = Preface { signed: Signed::AsConfigured, acks: &acks, message_id };
        let to = towards.unwrap_or(envelope.dst);
        let bundles = bundles && own.is_some() && self.is_reliable(envelope.ifindex, envelope.towards);
        match key.filter(|key| bundles && self.peers.get(*key).is_some_and(|peer| peer.is_capable())) {
            Some(key) => {
                let makes = matches!(
                    octets.get(1).map(|kind| MessageType(*kind)),
                    Some(MessageType::PATH | MessageType::RESV)
                );
                let state = entry.filter(|_| makes).and_then(|key| Some((key, self.sent.get(key)?.id)));
                self.bundle(key, (envelope, to), octets, (preface, state), patient);
            }
            None => {
                let mut out = core::mem::take(&mut self.out.octets);
                let start = out.len();
                self.compose(&mut out, (envelope.ifindex, to), octets, preface);
                self.out.octets = out;
                self.out.push(envelope, start);
            }
        }
        self.count_acks(&acks);
        // The list keeps its allocation.
        if let Some(key) = key
            && let Some(peer) = self.peers.get_mut(key)
            && peer.acks.capacity() == 0
        {
            acks.clear();
            peer.acks = acks;
        }
    }

    /// Appends a message to the Bundle for a neighbor. One that is not patient sends the Bundle at once, which keeps
    /// the order of messages.
    fn bundle(
        &mut self,
        key: Key,
        (envelope, to): (Envelope, IpAddr),
        octets: &[u8],
        (preface, state): (Preface<'_>, Option<(Key, u32)>),
        patient: bool,
    ) {
        let settings = self.config.of(envelope.ifindex).reduction;
        let mut message = core::mem::take(&mut self.scratch);
        message.clear();
        self.compose(&mut message, (envelope.ifindex, to), octets, preface);
        let full = self.peers.get(key).is_some_and(|peer| {
            HEADER_OCTETS + peer.bundle.octets.len() + message.len() > usize::from(settings.largest)
        });
        if full {
            self.flush_bundle(key);
        }
        let since = self.sent.ended();
        if let Some(peer) = self.peers.get_mut(key)
            && !message.is_empty()
        {
            if peer.bundle.is_empty() {
                peer.bundle.since = since;
            }
            peer.bundle.octets.extend_from_slice(&message);
            peer.bundle.parts.push(Part { envelope, state, octets: message.len() });
            if patient {
                peer.bundle_due.get_or_insert(self.now + settings.bundle_delay);
                self.peers.rearm(key);
            } else {
                self.ready.push(key);
            }
        }
        self.scratch = message;
    }

    /// Sends the Bundle for a neighbor; a single message is sent without one (RFC 2961 §3).
    pub(super) fn flush_bundle(&mut self, key: Key) {
        // A Bundle in `ready` may have left before, and its neighbor ended.
        let Some(peer) = self.peers.get_mut(key) else { return };
        let mut bundle = core::mem::take(&mut peer.bundle);
        let addr = peer.addr;
        peer.bundle_due = None;
        let Some(ifindex) = bundle.parts.first().map(|part| part.envelope.ifindex) else {
            peer.bundle = bundle;
            return;
        };
        let acks = bundle.drop_ended(&self.sent);
        if !acks.is_empty() {
            let preface = Preface { acks: &acks, ..Self::PLAIN };
            self.own_packet((addr, ifindex, TTL), MessageType::ACK, preface, |_| {});
        }
        match (bundle.parts.as_slice(), self.own(ifindex, addr)) {
            ([], _) => {}
            ([Part { envelope, .. }, _, ..], Some(src)) => {
                let flags = self.flags(ifindex);
                let start = self.out.octets.len();
                let mut w = Writer::new(&mut self.out.octets, MessageType::BUNDLE, flags, TTL);
                w.body(&bundle.octets);
                if w.finish().is_ok() {
                    self.counters.bundles_sent += 1;
                    let Envelope { routed, tos, .. } = *envelope;
                    let envelope = Envelope { routed, ..Envelope::direct(src, addr, ifindex, TTL, tos) };
                    self.out.push(envelope, start);
                }
            }
            ([Part { envelope, .. }, ..], _) => self.out.put(*envelope, &bundle.octets),
        }
        bundle.clear();
        if let Some(peer) = self.peers.get_mut(key) {
            peer.bundle = bundle;
        }
        self.peers.rearm(key);
    }
}
