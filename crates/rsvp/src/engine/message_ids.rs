//! MESSAGE_IDs of state (RFC 2961): those that this node sent for its state, so that an Srefresh can refresh it, and
//! those that neighbours sent for theirs. Nothing is stored here without refresh reduction.

use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::slab::Slab;
use signalbox_core::stamp::Stamp;
use signalbox_core::{IfIndex, Key, Time};
use smallvec::SmallVec;

use super::Rsvp;
use super::interfaces::Iface;
use super::neighbour::{
    Incoming, Outgoing, ReceivedHandle, SendReason, SentHandle, SummaryTo, Unknown, Upcall,
};
use super::outbox::Envelope;
use super::slow::Pace;
use crate::wire::{Class, ErrorCode, ErrorSpec};

/// Senders of one source in one group of which the first ones show by which interface data arrive.
const ALIKE: usize = 16;

/// States of a lost neighbour that are sent at once, and the pause after them.
const AT_ONCE: usize = 64;
const PAUSE: Duration = Duration::from_millis(10);

/// The state that a message to a neighbour is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SentState {
    /// Path state of a sender, at one interface.
    Path(Key, Iface),
    /// All requests of a session towards a previous hop.
    Resv(Key, u32),
    /// Path state of a sender that ends, at one interface.
    PathTear(Key, Iface),
    /// No lasting state.
    Nothing,
}

/// State that was sent to a neighbour.
#[derive(Debug)]
struct SentEntry {
    about: SentState,
    state: Option<SentHandle>,
    /// Digest of the last message.
    digest: u64,
    pace: Pace,
}

/// State that a neighbour sent.
#[derive(Debug)]
struct ReceivedEntry {
    what: ReceivedState,
    handle: Option<ReceivedHandle>,
    /// Lifetime after each refresh.
    life: Duration,
}

/// Records that one Resv is about: seldom more than one. They take no memory of their own then.
pub(super) type Keys = SmallVec<[Key; 2]>;

/// The state that a received message is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReceivedState {
    /// Path state of a sender.
    Path(Key),
    /// Requests of a next hop.
    Resv {
        /// The next hop.
        hop: u32,
        /// The reservations that hold the requests.
        branches: Keys,
        /// With SE the senders.
        senders: Keys,
    },
}

/// All MESSAGE_IDs of state.
#[derive(Debug)]
pub(super) struct MessageIds {
    sent: Slab<SentEntry>,
    /// The entries of `sent` by the state that they are about.
    by_state: Index,
    received: Slab<ReceivedEntry>,
    /// The entries of `received` that are about path state, by the sender.
    of_sender: Index,
    hasher: KeyedHasher,
    of_request: HashMap<(Key, u32), Key, KeyedHasher>,
    /// State that lost neighbours had, and the time when the next part of it is sent.
    lost: VecDeque<SentState>,
    lost_at: Time,
}

impl MessageIds {
    pub(super) fn new(limit: u32, mut hasher: impl FnMut() -> KeyedHasher) -> Self {
        Self {
            sent: Slab::new(limit),
            by_state: Index::new(),
            received: Slab::new(limit),
            of_sender: Index::new(),
            hasher: hasher(),
            of_request: HashMap::with_hasher(hasher()),
            lost: VecDeque::new(),
            lost_at: Time::ZERO,
        }
    }

    /// Stores at most `limit` MESSAGE_IDs of this node, and as many of neighbours, from now on.
    pub(super) const fn set_limit(&mut self, limit: u32) {
        self.sent.set_limit(limit);
        self.received.set_limit(limit);
    }

    /// Whether no MESSAGE_ID is stored.
    pub(super) fn is_empty(&self) -> bool {
        let maps = self.by_state.is_empty() && self.of_sender.is_empty() && self.of_request.is_empty();
        maps && self.sent.is_empty() && self.received.is_empty()
    }

    fn key_of(&self, what: &ReceivedState) -> Option<Key> {
        match what {
            ReceivedState::Path(sender) => self.of_sender(*sender),
            ReceivedState::Resv { hop, branches, .. } => {
                self.of_request.get(&(*branches.first()?, *hop)).copied()
            }
        }
    }

    /// The entry of sent state.
    fn of_state(&self, about: &SentState) -> Option<Key> {
        let is = |at| self.sent.get_index(at).is_some_and(|sent| sent.about == *about);
        self.sent.key_of(self.by_state.find(self.hasher.hash_one(about), is)?)
    }

    fn enter_state(&mut self, about: SentState, key: Key) {
        let (sent, hasher) = (&self.sent, &self.hasher);
        self.by_state.insert(hasher.hash_one(&about), key.index(), |at| {
            sent.get_index(at).map_or(0, |sent| hasher.hash_one(&sent.about))
        });
    }

    fn remove_state(&mut self, about: &SentState) -> Option<SentEntry> {
        let key = self.of_state(about)?;
        self.by_state.remove(self.hasher.hash_one(about), |at| at == key.index());
        self.sent.remove(key)
    }

    /// The entry of the path state of a sender.
    fn of_sender(&self, sender: Key) -> Option<Key> {
        let is = |at| {
            let received = self.received.get_index(at);
            received.is_some_and(|received| received.what == ReceivedState::Path(sender))
        };
        self.received.key_of(self.of_sender.find(self.hasher.hash_one(&sender), is)?)
    }

    /// Enters the path state of a sender, whose entry has this key.
    fn enter_sender(&mut self, sender: Key, key: Key) {
        let (received, hasher) = (&self.received, &self.hasher);
        self.of_sender.insert(hasher.hash_one(&sender), key.index(), |at| {
            match received.get_index(at).map(|received| &received.what) {
                Some(ReceivedState::Path(sender)) => hasher.hash_one(sender),
                Some(ReceivedState::Resv { .. }) | None => 0,
            }
        });
    }

    fn remove_sender(&mut self, sender: Key) -> Option<Key> {
        let key = self.of_sender(sender)?;
        self.of_sender.remove(self.hasher.hash_one(&sender), |at| at == key.index());
        Some(key)
    }

    /// The refresh periods of sent state; `None`: it was not sent with a MESSAGE_ID.
    pub(super) fn pace(&self, about: &SentState) -> Option<Pace> {
        Some(self.sent.get(self.of_state(about)?)?.pace)
    }

    pub(super) fn set_pace(&mut self, about: &SentState, pace: Pace) {
        if let Some(sent) = self.of_state(about).and_then(|key| self.sent.get_mut(key)) {
            sent.pace = pace;
        }
    }

    /// The handle of the MESSAGE_ID of sent state.
    pub(super) fn handle_of(&self, about: &SentState) -> Option<SentHandle> {
        self.sent.get(self.of_state(about)?)?.state
    }

    /// The handle of the MESSAGE_ID of received state.
    pub(super) fn received_handle(&self, what: &ReceivedState) -> Option<ReceivedHandle> {
        self.received.get(self.key_of(what)?)?.handle
    }
}

impl Rsvp {
    /// Sends a composed message: with a new MESSAGE_ID if it differs from the last one about the state, else as a
    /// refresh, which may be a MESSAGE_ID in an Srefresh (RFC 2961 §4, §5). Returns whether the message itself is sent.
    pub(super) fn dispatch(
        &mut self,
        envelope: Envelope,
        octets: &[u8],
        about: SentState,
        by_id: bool,
    ) -> bool {
        let ifindex = envelope.ifindex.unwrap_or_default();
        let mut envelope = envelope.at(ifindex);
        if envelope.towards == 0 && self.neighbours.config().of(ifindex).reduction.reliable {
            envelope.towards = self.mark(envelope.dst);
        }
        let named = matches!(about, SentState::Path(..) | SentState::Resv(..))
            && self.neighbours.config().of(ifindex).reduction.reliable;
        let Some(key) = named.then(|| self.sent_key(about)).flatten() else {
            let outgoing = Outgoing { envelope, next_hop: None, octets, reason: SendReason::Once };
            match about {
                SentState::PathTear(key, iface) if envelope.dst.is_multicast() => {
                    self.neighbours.send_to_all(&outgoing, self.reserving_hops(key, iface));
                }
                SentState::PathTear(..) | SentState::Path(..) | SentState::Resv(..) | SentState::Nothing => {
                    self.neighbours.send(&outgoing);
                }
            }
            return true;
        };
        let digest = self.hasher.hash_octets(octets);
        let Some(sent) = self.message_ids.sent.get_mut(key) else { return false };
        let (before, same) = (sent.state, sent.digest == digest);
        sent.digest = digest;
        let next_hop = before.and_then(|state| self.neighbours.acknowledged_by(state));
        if let Some(state) = before.filter(|_| same) {
            // An Srefresh leaves by the interface of its list.
            if by_id && !envelope.routed && self.summarise(state, about, &envelope, next_hop) {
                return false;
            }
            let reason = SendReason::Refresh { state: Some(state) };
            self.neighbours.send(&Outgoing { envelope, next_hop, octets, reason });
            return true;
        }
        let reason = SendReason::Trigger { state: before, tag: key.to_u64() };
        let state = self.neighbours.send(&Outgoing { envelope, next_hop, octets, reason });
        if let Some(sent) = self.message_ids.sent.get_mut(key) {
            sent.state = state;
        }
        true
    }

    fn summarise(
        &mut self,
        state: SentHandle,
        about: SentState,
        envelope: &super::neighbour::Envelope,
        next_hop: Option<core::net::IpAddr>,
    ) -> bool {
        let ifindex = envelope.ifindex;
        let iface = self.interfaces.iface(ifindex);
        let src = self.own_address(iface, envelope.dst.is_ipv6());
        let to = match about {
            SentState::Path(..) if envelope.dst.is_multicast() => SummaryTo::Group {
                group: envelope.dst,
                source: envelope.src,
                src,
                ifindex,
                ttl: envelope.ttl,
            },
            SentState::Path(..) => match next_hop {
                Some(neighbour) => SummaryTo::Neighbour { neighbour, src, ifindex },
                None => return false,
            },
            _ => SummaryTo::Neighbour { neighbour: envelope.dst, src, ifindex },
        };
        self.neighbours.summarise(state, &to)
    }

    fn sent_key(&mut self, about: SentState) -> Option<Key> {
        if let Some(key) = self.message_ids.of_state(&about) {
            return Some(key);
        }
        let entry = SentEntry { about, state: None, digest: 0, pace: Pace::default() };
        let Ok(key) = self.message_ids.sent.insert(entry) else {
            self.counters.overload += 1;
            return None;
        };
        self.message_ids.enter_state(about, key);
        Some(key)
    }

    /// Handles an error about the class MESSAGE_ID (RFC 2961 §4.8): the state goes without one from now on. Whether the
    /// error is about that.
    pub(super) fn message_ids_refused(&mut self, states: &[SentState], error: &ErrorSpec) -> bool {
        let class = Class(error.value.to_be_bytes()[0]);
        if error.code != ErrorCode::UNKNOWN_CLASS
            || !matches!(class, Class::MESSAGE_ID | Class::MESSAGE_ID_ACK)
        {
            return false;
        }
        let mut refused = false;
        for about in states {
            let Some(state) = self.message_ids.handle_of(about) else { continue };
            refused = true;
            tracing::debug!(?about, "neighbor refuses MESSAGE_IDs");
            let (iface, towards) = self.next_of(about);
            let ifindex = self.interfaces.get(iface).map_or(IfIndex::NONE, |known| known.ifindex);
            if !self.neighbours.refused(state, ifindex, towards) {
                self.send_again(*about);
            }
        }
        refused
    }

    /// The interface and the mark of the next node that a state was sent to.
    fn next_of(&self, about: &SentState) -> (Iface, u32) {
        match about {
            SentState::Path(key, iface) | SentState::PathTear(key, iface) => {
                let Some(sender) = self.senders.get(*key) else { return (Iface::NONE, 0) };
                let dest = self.sessions.get_index(sender.session);
                let dest = dest.map(|one| self.addresses.unpack(one.dest, one.v6));
                let towards =
                    if sender.gateway == 0 { dest.map_or(0, |dest| self.mark(dest)) } else { sender.gateway };
                (*iface, towards)
            }
            SentState::Resv(session, hop) => {
                let mut senders = self.senders_of(*session);
                let iface = senders.find(|(_, one)| one.hop == *hop).map_or(Iface::NONE, |(_, one)| one.iif);
                (iface, self.hops.lookup(*hop).map_or(0, |hop| self.mark(hop.addr)))
            }
            SentState::Nothing => (Iface::NONE, 0),
        }
    }

    /// Whether the messages about a state have a MESSAGE_ID.
    pub(super) fn has_message_ids(&self, about: &SentState) -> bool {
        let (iface, towards) = self.next_of(about);
        let ifindex = self.interfaces.get(iface).map_or(IfIndex::NONE, |known| known.ifindex);
        self.neighbours.is_reliable(ifindex, towards)
    }

    /// Whether any state was sent with a MESSAGE_ID.
    pub(super) fn has_sent_ids(&self) -> bool {
        !self.message_ids.by_state.is_empty()
    }

    /// Forgets the MESSAGE_ID of sent state.
    pub(super) fn forget_sent(&mut self, about: SentState) {
        if self.message_ids.by_state.is_empty() {
            return;
        }
        let sent = self.message_ids.remove_state(&about);
        if let Some(state) = sent.and_then(|sent| sent.state) {
            self.neighbours.forget(state);
        }
    }

    /// Stores the MESSAGE_ID of a received message; `life`: the lifetime after each refresh.
    pub(super) fn store_received_id(&mut self, incoming: &Incoming<'_>, what: ReceivedState, life: Duration) {
        let key = match self.message_ids.key_of(&what) {
            Some(key) => key,
            None if incoming.message.message_id.is_none() => return,
            None => {
                let received = ReceivedEntry { what: what.clone(), handle: None, life };
                let Ok(key) = self.message_ids.received.insert(received) else {
                    self.counters.overload += 1;
                    return;
                };
                key
            }
        };
        self.enter_received(key, &what);
        let Some(received) = self.message_ids.received.get_mut(key) else { return };
        received.handle = self.neighbours.store_received(incoming, received.handle, key.to_u64());
        (received.what, received.life) = (what, life);
    }

    /// Enters received state in the indexes. It replaces what earlier messages sent for the same requests.
    fn enter_received(&mut self, key: Key, what: &ReceivedState) {
        let (hop, branches) = match what {
            ReceivedState::Path(sender) => {
                // The entry of a sender stays the same as long as it is there.
                if self.message_ids.of_sender(*sender).is_none() {
                    self.message_ids.enter_sender(*sender, key);
                }
                return;
            }
            ReceivedState::Resv { hop, branches, .. } => (*hop, branches),
        };
        let MessageIds { received, of_request, .. } = &mut self.message_ids;
        if let Some(ReceivedState::Resv { hop, branches: before, .. }) =
            received.get(key).map(|received| &received.what)
        {
            for gone in before.iter().filter(|one| !branches.contains(one)) {
                of_request.remove(&(*gone, *hop));
            }
        }
        for branch in branches {
            let other = self.message_ids.of_request.insert((*branch, hop), key);
            self.forget_received_key(other.filter(|other| *other != key));
        }
    }

    /// Forgets the MESSAGE_ID of path state that ended.
    pub(super) fn forget_path_id(&mut self, sender: Key) {
        if !self.message_ids.of_sender.is_empty() {
            let key = self.message_ids.remove_sender(sender);
            self.forget_received_key(key);
        }
    }

    /// Forgets the MESSAGE_ID of a message of which a request ended: it does not stand for all of it any more.
    pub(super) fn forget_request_id(&mut self, branch: Key, hop: u32) {
        if !self.message_ids.of_request.is_empty() {
            let key = self.message_ids.of_request.get(&(branch, hop)).copied();
            self.forget_received_key(key);
        }
    }

    fn forget_received_key(&mut self, key: Option<Key>) {
        let Some((key, received)) = key.and_then(|key| Some((key, self.message_ids.received.remove(key)?)))
        else {
            return;
        };
        if let ReceivedState::Resv { hop, branches, .. } = &received.what {
            for branch in branches {
                if self.message_ids.of_request.get(&(*branch, *hop)) == Some(&key) {
                    self.message_ids.of_request.remove(&(*branch, *hop));
                }
            }
        }
        if let Some(handle) = received.handle {
            self.neighbours.forget_received(handle);
        }
    }

    /// A neighbour repeated a message with the same MESSAGE_ID.
    pub(super) fn refresh_received(&mut self, handle: Option<ReceivedHandle>) {
        let tag = handle.and_then(|handle| self.neighbours.tag_of(handle));
        if let Some(tag) = tag {
            self.refresh_by_id(tag);
        }
    }

    /// A neighbour refreshed a MESSAGE_ID by an Srefresh (RFC 2961 §5).
    pub(super) fn refresh_by_id(&mut self, tag: u64) {
        let Some(received) = self.message_ids.received.get(Key::from_u64(tag)) else { return };
        tracing::trace!(what = ?received.what, "state refreshed by its MESSAGE_ID");
        let (what, life) = (received.what.clone(), received.life);
        self.extend_lifetime(&what, life);
    }

    /// Restarts the lifetime of received state.
    pub(super) fn extend_lifetime(&mut self, what: &ReceivedState, life: Duration) {
        let now = self.now;
        let expires = Stamp::after(now + life);
        match what {
            ReceivedState::Path(sender) => {
                let Some(record) = self.senders.get_mut(*sender) else { return };
                record.expires = expires;
                if let Some(extra) = &mut record.extra {
                    extra.carried.refresh(now, life);
                }
                self.counters.paths_refreshed += 1;
                self.keep_sender(*sender);
                self.resume(*sender);
            }
            ReceivedState::Resv { hop, branches, senders } => {
                for key in branches {
                    let Some(request) = self.branches.get_mut(*key).and_then(|one| one.request_mut(*hop))
                    else {
                        continue;
                    };
                    request.expires = expires;
                    if let Some(extra) = &mut request.extra {
                        extra.carried.refresh(now, life);
                        for (sender, until) in &mut extra.senders {
                            if senders.contains(sender) {
                                *until = expires;
                            }
                        }
                    }
                    self.counters.resvs_refreshed += 1;
                    self.keep_branch(*key);
                }
            }
        }
    }

    /// A neighbour refreshed an unknown MESSAGE_ID of a multicast source. It gets a MESSAGE_ID_NACK if data of that
    /// source arrive by the same interface (RFC 2961 §5.3).
    pub(super) fn on_unknown_id(&mut self, unknown: &Unknown) {
        let iface = self.interfaces.iface(unknown.ifindex);
        let Some(pair) = self.find_pair(unknown.group, unknown.source) else { return };
        let here = match self.trees.route(pair).map(|tree| tree.expected) {
            Some(expected) if expected != Iface::NONE => expected == iface,
            // A host has no multicast routes. Path state shows where data arrive; all that it has is alike.
            _ => {
                let mut some = self.trees.senders(pair).take(ALIKE);
                some.any(|sender| self.senders.get_index(sender).is_some_and(|one| one.iif == iface))
            }
        };
        if here {
            self.neighbours.nack(unknown);
        }
    }

    /// Handles the upcalls of the neighbour layer.
    pub(super) fn serve_neighbours(&mut self) {
        while let Some(upcall) = self.neighbours.upcall() {
            match upcall {
                Upcall::SendWhole { tag } => {
                    let about = self.message_ids.sent.get(Key::from_u64(tag)).map(|sent| sent.about);
                    self.send_again(about.unwrap_or(SentState::Nothing));
                }
                Upcall::Lost { neighbour, ifindex } => {
                    self.neighbour_lost(neighbour, self.interfaces.iface(ifindex))
                }
                Upcall::LastKeyExpired { id, ifindex } => {
                    tracing::warn!(key = id, ifindex = ifindex.0, "the last key expired, and is used on");
                }
            }
        }
    }

    /// Sends state as a whole message.
    fn send_again(&mut self, about: SentState) {
        self.withheld.clear();
        match about {
            SentState::Path(sender, iface) => self.send_path_again(sender, iface),
            SentState::Resv(session, hop) => {
                let flows = self.resv_contents(session, hop);
                self.repeat_resv(session, hop, &flows);
                self.buffers.flows = flows;
            }
            SentState::PathTear(..) | SentState::Nothing => {}
        }
    }

    /// A neighbour restarted or cannot be reached: all state for it is sent again, because it may have lost it.
    fn neighbour_lost(&mut self, neighbour: core::net::IpAddr, iface: Iface) {
        tracing::info!(peer = %neighbour, "neighbor lost: its state is sent again");
        self.withheld.clear();
        let concerned = |about: &SentState| match about {
            SentState::Path(_, at) => *at == iface,
            SentState::Resv(_, hop) => self.hops.lookup(*hop).is_some_and(|hop| hop.addr == neighbour),
            SentState::PathTear(..) | SentState::Nothing => false,
        };
        // This walks all sent state; what is found is sent in parts.
        let all = self.message_ids.sent.iter().map(|(_, sent)| sent.about).filter(concerned);
        let lost = &mut self.message_ids.lost;
        lost.retain(|waiting| !concerned(waiting));
        lost.extend(all);
    }

    /// Sends a part of the state again that lost neighbours had.
    pub(super) fn send_to_lost(&mut self) {
        if self.message_ids.lost.is_empty() || self.now < self.message_ids.lost_at {
            return;
        }
        for _ in 0..AT_ONCE {
            let Some(about) = self.message_ids.lost.pop_front() else { return };
            // State that ended meanwhile was forgotten.
            if self.message_ids.of_state(&about).is_some() {
                self.forget_sent(about);
                self.send_again(about);
            }
        }
        self.message_ids.lost_at = self.now + PAUSE;
    }

    /// Time when the next part of lost neighbours' state is sent.
    pub(super) fn next_to_lost(&self) -> Option<Time> {
        (!self.message_ids.lost.is_empty()).then_some(self.message_ids.lost_at)
    }
}
