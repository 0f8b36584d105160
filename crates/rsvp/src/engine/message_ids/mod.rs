//! MESSAGE_IDs of state that this node sent (RFC 2961), so that an Srefresh can refresh it, and the upcalls of the
//! neighbor layer; `received` has those of state that neighbors sent. Nothing is stored here without refresh reduction.

mod received;
mod slow;
mod unnamed;

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::slab::Slab;
use signalbox_core::{IfIndex, Key, Time, invariant};

use crate::engine::Rsvp;
use crate::engine::ahead::Group;
use crate::engine::interfaces::Iface;
use crate::engine::neighbor::{Outgoing, SendReason, SentHandle, SummaryTo, Unknown, Upcall};
use crate::engine::outbox::Envelope;
use crate::engine::output::Torn;
pub(super) use received::{Keys, ReceivedState};

use received::ReceivedStates;
use slow::Pace;
use unnamed::Unnamed;

/// Senders of one source in one group of which the first ones show by which interface data arrive.
const ALIKE: usize = 16;

/// States of a lost neighbor that are sent at once, and the pause after them.
const AT_ONCE: usize = 64;
const PAUSE: Duration = Duration::from_millis(10);

/// The state that a message to a neighbor is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SentState {
    /// Path state of a sender, at one interface.
    Path(Key, Iface),
    /// All requests of a session towards a previous hop.
    Resv(Key, u32),
    /// Requests of a session towards a previous hop, in a message that does not contain all of them, or that is not repeated
    /// as it is.
    Part(Key, u32),
    /// Path state of a sender that ends, at one interface.
    PathTear(Key, Iface),
    /// Requests that end, by the mark of what ends ([`Rsvp::torn_mark`]).
    ResvTear(u64),
    /// No lasting state.
    Nothing,
}

impl SentState {
    fn hash(&self, hasher: &KeyedHasher) -> u64 {
        let (kind, key, at) = match *self {
            Self::Path(key, iface) => (0, key, iface.0.into()),
            Self::Resv(key, hop) => (1, key, hop),
            Self::PathTear(key, iface) => (2, key, iface.0.into()),
            Self::Part(key, hop) => (3, key, hop),
            Self::ResvTear(_) | Self::Nothing => (4, Key::NONE, 0),
        };
        hasher.hash_octets([kind, key.index(), key.generation(), at].map(u32::to_ne_bytes).as_flattened())
    }
}

/// State that was sent to a neighbor.
#[derive(Debug)]
struct SentEntry {
    about: SentState,
    /// The handle of its MESSAGE_ID, or one that nothing has: an optional one would take 4 octets more.
    state: SentHandle,
    /// Digest of the last message, in two halves that need no alignment.
    digest: [u32; 2],
}

/// A handle that no MESSAGE_ID has.
const NO_HANDLE: SentHandle = SentHandle(Key::NONE);

impl SentEntry {
    /// The handle of its MESSAGE_ID.
    fn handle(&self) -> Option<SentHandle> {
        Some(self.state).filter(|state| *state != NO_HANDLE)
    }
}

/// All MESSAGE_IDs of state.
#[derive(Debug)]
pub(super) struct MessageIds {
    sent: Slab<SentEntry>,
    /// The entries of `sent` by the state that they are about.
    by_state: Index,
    hasher: KeyedHasher,
    /// Refresh periods of sent state that are not R, by the slot of its entry.
    paces: HashMap<u32, Pace, KeyedHasher>,
    pub(super) received: ReceivedStates,
    /// State that lost neighbors had, and the time when the next part of it is sent.
    lost: VecDeque<SentState>,
    lost_at: Time,
    unnamed: Unnamed,
}

impl MessageIds {
    pub(super) fn new(limit: u32, mut hasher: impl FnMut() -> KeyedHasher) -> Self {
        Self {
            sent: Slab::new(limit),
            by_state: Index::new(),
            hasher: hasher(),
            paces: HashMap::with_hasher(hasher()),
            received: ReceivedStates::new(limit, hasher()),
            lost: VecDeque::new(),
            lost_at: Time::ZERO,
            unnamed: Unnamed::default(),
        }
    }

    /// Stores at most `limit` MESSAGE_IDs of this node, and as many of neighbors, from now on.
    pub(super) const fn set_limit(&mut self, limit: u32) {
        self.sent.set_limit(limit);
        self.received.set_limit(limit);
    }

    /// Whether no MESSAGE_ID is stored.
    pub(super) fn is_empty(&self) -> bool {
        self.by_state.is_empty() && self.sent.is_empty() && self.paces.is_empty() && self.received.is_empty()
    }

    fn hash(&self, about: &SentState) -> u64 {
        about.hash(&self.hasher)
    }

    /// The entry of sent state.
    fn of_state(&self, about: &SentState) -> Option<Key> {
        let is = |at| self.sent.get_index(at).is_some_and(|sent| sent.about == *about);
        self.sent.key_of(self.by_state.find(self.hash(about), is)?)
    }

    fn enter_state(&mut self, about: SentState, key: Key) {
        let (sent, hasher) = (&self.sent, &self.hasher);
        self.by_state.insert(about.hash(hasher), key.index(), |at| {
            sent.get_index(at).map_or(0, |sent| sent.about.hash(hasher))
        });
    }

    fn remove_state(&mut self, about: &SentState) -> Option<SentEntry> {
        let key = self.of_state(about)?;
        self.by_state.remove(self.hash(about), |at| at == key.index());
        self.paces.remove(&key.index());
        self.sent.remove(key)
    }

    /// The refresh periods of sent state; `None`: it was not sent with a MESSAGE_ID.
    pub(super) fn pace(&self, about: &SentState) -> Option<Pace> {
        let key = self.of_state(about)?;
        Some(self.paces.get(&key.index()).copied().unwrap_or_default())
    }

    pub(super) fn set_pace(&mut self, about: &SentState, pace: Pace) {
        let Some(key) = invariant!(self.of_state(about), "a paced state has a MESSAGE_ID") else { return };
        if pace == Pace::default() {
            self.paces.remove(&key.index());
        } else {
            self.paces.insert(key.index(), pace);
        }
    }

    /// These states are sent soon, in parts.
    pub(super) fn send_soon(&mut self, states: Vec<SentState>) {
        self.lost.extend(states);
    }

    /// The handle of the MESSAGE_ID of sent state.
    pub(super) fn handle_of(&self, about: &SentState) -> Option<SentHandle> {
        self.sent.get(self.of_state(about)?)?.handle()
    }
}

impl Rsvp {
    /// Reads the records of sent state, so that they wait for memory at the same time.
    pub(super) fn read_sent(&self, states: &[SentState]) {
        let ids = &self.message_ids;
        if ids.by_state.is_empty() {
            return;
        }
        let hashes: Group<u64> = states.iter().map(|about| ids.hash(about)).collect();
        let rows: Group<u32> =
            hashes.iter().filter_map(|hash| ids.by_state.candidates(*hash).next()).collect();
        let sent: Group<SentHandle> =
            rows.iter().filter_map(|at| Some(ids.sent.entry(*at)?.1.state)).collect();
        self.neighbors.read_sent(&sent);
    }

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
        if envelope.towards == 0 && self.neighbors.config().of(ifindex).reduction.reliable {
            envelope.towards = self.mark(envelope.dst);
        }
        let named = matches!(about, SentState::Path(..) | SentState::Resv(..))
            && self.neighbors.config().of(ifindex).reduction.reliable;
        let Some(key) = named.then(|| self.sent_key(about)).flatten() else {
            let reason = SendReason::Once { about: self.mark_of(&about) };
            let outgoing = Outgoing { envelope, next_hop: None, octets, reason };
            match about {
                SentState::PathTear(key, iface) if envelope.dst.is_multicast() => {
                    self.neighbors.send_to_all(&outgoing, self.reserving_hops(key, iface));
                }
                SentState::Path(..)
                | SentState::Resv(..)
                | SentState::Part(..)
                | SentState::PathTear(..)
                | SentState::ResvTear(..)
                | SentState::Nothing => {
                    self.neighbors.send(&outgoing);
                }
            }
            return true;
        };
        let digest = self.message_ids.hasher.hash_octets(octets);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves are taken apart")]
        let digest = [digest, digest >> 32].map(|half| half as u32);
        let Some(sent) =
            invariant!(self.message_ids.sent.get_mut(key), "a MESSAGE_ID stands while its message is sent")
        else {
            return false;
        };
        let (before, same) = (sent.handle(), sent.digest == digest);
        sent.digest = digest;
        let next_hop = before.and_then(|state| self.neighbors.acknowledged_by(state));
        if let Some(state) = before.filter(|_| same) {
            // An Srefresh leaves by the interface of its list.
            if by_id && !envelope.routed && self.summarise(state, about, &envelope, next_hop) {
                return false;
            }
            let reason = SendReason::Refresh { state: Some(state) };
            self.neighbors.send(&Outgoing { envelope, next_hop, octets, reason });
            return true;
        }
        let reason = SendReason::Trigger { state: before, tag: key.index() };
        let state = self.neighbors.send(&Outgoing { envelope, next_hop, octets, reason });
        if let Some(sent) = self.message_ids.sent.get_mut(key) {
            sent.state = state.unwrap_or(NO_HANDLE);
        }
        true
    }

    fn summarise(
        &mut self,
        state: SentHandle,
        about: SentState,
        envelope: &super::neighbor::Envelope,
        next_hop: Option<IpAddr>,
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
                Some(neighbor) => SummaryTo::Neighbor { neighbor, src, ifindex },
                None => return false,
            },
            _ => SummaryTo::Neighbor { neighbor: envelope.dst, src, ifindex },
        };
        self.neighbors.summarise(state, &to)
    }

    fn sent_key(&mut self, about: SentState) -> Option<Key> {
        if let Some(key) = self.message_ids.of_state(&about) {
            return Some(key);
        }
        let entry = SentEntry { about, state: NO_HANDLE, digest: [0; 2] };
        let Ok(key) = self.message_ids.sent.insert(entry) else {
            self.counters.overload += 1;
            return None;
        };
        self.message_ids.enter_state(about, key);
        Some(key)
    }

    /// The interface and the mark of the next node that a state was sent to.
    pub(super) fn next_of(&self, about: &SentState) -> (Iface, u32) {
        match about {
            SentState::Path(key, iface) | SentState::PathTear(key, iface) => {
                let Some(sender) = invariant!(self.senders.get(*key), "a Path is about a sender that stands")
                else {
                    return (Iface::NONE, 0);
                };
                let router = Self::next_router(sender, *iface);
                if router != 0 {
                    return (*iface, router);
                }
                let dest = self.sessions.get_index(sender.session);
                let dest = dest.map(|one| self.addresses.unpack(one.dest, one.v6));
                (*iface, dest.map_or(0, |dest| self.mark(dest)))
            }
            SentState::Resv(session, hop) | SentState::Part(session, hop) => {
                let mut senders = self.senders_of(*session);
                let iface = senders.find(|(_, one)| one.hop == *hop).map_or(Iface::NONE, |(_, one)| one.iif);
                (iface, self.hops.lookup(*hop).map_or(0, |hop| self.mark(hop.addr)))
            }
            SentState::ResvTear(_) | SentState::Nothing => (Iface::NONE, 0),
        }
    }

    /// Whether the messages about a state have a MESSAGE_ID.
    pub(super) fn has_message_ids(&self, about: &SentState) -> bool {
        let (iface, towards) = self.next_of(about);
        let ifindex = self.interfaces.get(iface).map_or(IfIndex::NONE, |known| known.ifindex);
        self.neighbors.is_reliable(ifindex, towards)
    }

    /// Whether any state was sent with a MESSAGE_ID.
    pub(super) fn has_sent_ids(&self) -> bool {
        !self.message_ids.by_state.is_empty()
    }

    /// The mark of what a message without a stored MESSAGE_ID makes or ends, for the neighbor layer; 0: it does neither.
    pub(super) fn mark_of(&self, about: &SentState) -> u64 {
        match *about {
            SentState::Nothing => 0,
            SentState::ResvTear(mark) => mark,
            SentState::PathTear(key, _) => {
                let Some(sender) =
                    invariant!(self.senders.get(key), "a PathTear is about a sender that stands")
                else {
                    return 0;
                };
                let Some(session) = invariant!(
                    self.sessions.get_index(sender.session),
                    "a PathTear is about a session that stands"
                ) else {
                    return 0;
                };
                self.torn_mark(&Torn::Path(self.session_of(session), self.filter_of(sender)))
            }
            SentState::Path(..) | SentState::Resv(..) | SentState::Part(..) => {
                self.message_ids.hash(about) | 1
            }
        }
    }

    /// The mark of tears of a state.
    pub(super) fn torn_mark(&self, torn: &Torn) -> u64 {
        self.message_ids.hasher.hash_one(torn) | 1
    }

    /// Requests towards a previous hop end: messages with a part of them are not repeated any more. What is left of the
    /// requests is sent as a whole message soon.
    pub(super) fn end_parts(&mut self, session: Key, hop: u32) {
        let part = SentState::Part(session, hop);
        if self.neighbors.has_owned() && self.neighbors.end_waiting(self.mark_of(&part), |_| true) {
            self.message_ids.lost.push_back(part);
        }
    }

    /// Removes the MESSAGE_ID of sent state: nothing about the state is sent again.
    pub(super) fn remove_sent(&mut self, about: SentState) {
        if self.neighbors.has_owned() {
            self.neighbors.end_waiting(self.mark_of(&about), |_| true);
        }
        if self.message_ids.by_state.is_empty() {
            return;
        }
        let sent = self.message_ids.remove_state(&about);
        if let Some(state) = sent.and_then(|sent| sent.handle()) {
            self.neighbors.remove_sent(state);
        }
    }

    /// A neighbor refreshed an unknown MESSAGE_ID of a multicast source. It gets a MESSAGE_ID_NACK if data of that
    /// source arrive by the same interface (RFC 2961 §5.3).
    pub(super) fn on_unknown_id(&mut self, unknown: &Unknown) {
        let iface = self.interfaces.iface(unknown.ifindex);
        let Some(pair) = self.find_pair(unknown.group, unknown.source) else { return };
        let here = match self.routes.expected(pair) {
            Some(expected) if expected != Iface::NONE => expected == iface,
            // A host has no multicast routes. Path state shows where data arrive; all that it has is alike.
            _ => {
                let mut some = self.routes.senders(pair).take(ALIKE);
                some.any(|sender| self.senders.get_index(sender).is_some_and(|one| one.iif == iface))
            }
        };
        if here {
            self.neighbors.nack(unknown);
        }
    }

    /// Handles the upcalls of the neighbor layer.
    pub(super) fn serve_neighbors(&mut self) {
        while let Some(upcall) = self.neighbors.upcall() {
            match upcall {
                Upcall::SendWhole { tag } => {
                    let about = self.message_ids.sent.get_index(tag).map(|sent| sent.about);
                    self.send_again(about.unwrap_or(SentState::Nothing));
                }
                Upcall::Lost { neighbor, ifindex } => {
                    self.neighbor_lost(neighbor, self.interfaces.iface(ifindex))
                }
                Upcall::Shown { towards, able } => self.neighbor_shown(towards, able),
                Upcall::LastKeyExpired { id, ifindex } => {
                    tracing::warn!(key = id, ifindex = ifindex.0, "the last key expired, and is used on");
                }
            }
        }
    }

    /// Sends state as a whole message.
    pub(super) fn send_again(&mut self, about: SentState) {
        match about {
            // What previous hops have is not concerned.
            SentState::Path(sender, iface) => self.send_path_again(sender, iface),
            SentState::Resv(session, hop) | SentState::Part(session, hop) => {
                self.merging.end_all_withheld();
                let flows = self.resv_contents(session, hop);
                self.repeat_resv(session, hop, &flows);
                self.merging.give_back(flows);
            }
            SentState::PathTear(..) | SentState::ResvTear(_) | SentState::Nothing => {}
        }
    }

    /// A neighbor restarted or cannot be reached: all state for it is sent again, because it may have lost it.
    fn neighbor_lost(&mut self, neighbor: IpAddr, iface: Iface) {
        tracing::info!(peer = %neighbor, "neighbor lost: its state is sent again");
        self.merging.end_all_withheld();
        let concerned = |about: &SentState| match about {
            SentState::Path(_, at) => *at == iface,
            SentState::Resv(_, hop) | SentState::Part(_, hop) => {
                self.hops.lookup(*hop).is_some_and(|hop| hop.addr == neighbor)
            }
            SentState::PathTear(..) | SentState::ResvTear(_) | SentState::Nothing => false,
        };
        // This walks all sent state; what is found is sent in parts.
        let all = self.message_ids.sent.iter().map(|(_, sent)| sent.about).filter(concerned);
        let lost = &mut self.message_ids.lost;
        lost.retain(|waiting| !concerned(waiting));
        lost.extend(all);
    }

    /// An administrator makes this node forget a neighbor: all state for it is sent again in whole messages, as to a new one. What it
    /// sent stays as it is. Returns the number of interfaces where it was known.
    pub(super) fn forget_neighbor(&mut self, neighbor: IpAddr, ifindex: Option<IfIndex>) -> u32 {
        let mark = self.mark(neighbor);
        let concerned = |about: &SentState| {
            let (iface, towards) = self.next_of(about);
            let number = self.interfaces.get(iface).map(|known| known.ifindex);
            let there = ifindex.is_none() || ifindex == number;
            let acknowledged = || {
                let state = self.message_ids.handle_of(about);
                state.is_some_and(|state| self.neighbors.has_acknowledged(state, neighbor))
            };
            there && (towards == mark || acknowledged())
        };
        // This walks all sent state; what is found is sent in parts.
        let all = self.message_ids.sent.iter().map(|(_, sent)| sent.about);
        let found: Vec<SentState> = all.filter(concerned).collect();
        let places = self.neighbors.forget(neighbor, ifindex);
        if places.is_empty() {
            return 0;
        }
        tracing::info!(peer = %neighbor, states = found.len(), "neighbor forgotten by an administrator: its state is sent again");
        self.merging.end_all_withheld();
        self.message_ids.send_soon(found);
        u32::try_from(places.len()).unwrap_or(u32::MAX)
    }

    /// The request of a next hop expired. If that node is gone, and another one has its place at the same address of the link
    /// (VRRP), the MESSAGE_IDs that the former node acknowledged refresh nothing: the Paths are sent as whole messages, in parts.
    pub(super) fn doubt_next_hop(&mut self, branch: Key, hop: u32) {
        if !self.has_sent_ids() {
            return;
        }
        let Some(branch) = invariant!(self.branches.get(branch), "a doubted branch stands") else { return };
        let (Some(session), Some(hop)) = (
            invariant!(
                self.sessions.key_of(branch.session),
                "a doubted next hop is in a session that stands"
            ),
            invariant!(self.hops.lookup(hop), "a doubted next hop is stored"),
        ) else {
            return;
        };
        let (oif, hop) = (branch.oif, hop.addr);
        let paths = self.senders_of(session).map(|(key, _)| SentState::Path(key, oif));
        let acknowledged = |about: &SentState| {
            let state = self.message_ids.handle_of(about);
            state.is_some_and(|state| self.neighbors.has_acknowledged(state, hop))
        };
        let doubtful: Vec<SentState> = paths.filter(acknowledged).collect();
        self.message_ids.send_soon(doubtful);
    }

    /// Sends a part of the state again that lost neighbors had, and Paths to neighbors whose place another router may have.
    pub(super) fn send_to_lost(&mut self) {
        if self.next_to_lost().is_none_or(|at| self.now < at) {
            return;
        }
        if self.message_ids.lost.is_empty() {
            let paths = self.paths_to_moved(AT_ONCE);
            self.counters.neighbors_followed += paths.len() as u64;
            self.message_ids.send_soon(paths);
        }
        for _ in 0..AT_ONCE {
            let Some(about) = self.message_ids.lost.pop_front() else { return };
            self.message_ids.lost_at = self.now + PAUSE;
            // Of a sender or requests that ended meanwhile nothing is sent; of requests only what is left.
            self.remove_sent(about);
            self.send_again(about);
        }
    }

    /// Time when the next part of lost neighbors' state is sent.
    pub(super) fn next_to_lost(&self) -> Option<Time> {
        let waits = !self.message_ids.lost.is_empty() || self.routes.has_moved();
        waits.then_some(self.message_ids.lost_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The record of sent state, with the slab's generation.
    #[test]
    fn a_sent_state_is_small() {
        assert_eq!(4 + size_of::<Option<SentEntry>>(), 36);
    }
}
