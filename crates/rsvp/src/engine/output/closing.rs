//! Repeated tears (draft-pan-rsvp-timer-00 §3.3, §5.3): a PathTear or ResvTear is sent again at the staged intervals. The
//! state and its resources are gone already; only the tear is stored. A tear with a MESSAGE_ID is repeated by RFC 2961 §6
//! instead.

use core::net::IpAddr;
use std::collections::HashMap;

use signalbox_core::index::KeyedHasher;
use signalbox_core::slab::Slab;
use signalbox_core::wheel::{Link, Timed, Wheel};
use signalbox_core::{Key, invariant};

use super::staged::Stage;
use crate::engine::Rsvp;
use crate::engine::interfaces::{Iface, InterfaceState};
use crate::engine::message_ids::SentState;
use crate::engine::outbox::Envelope;
use crate::wire::{Filter, HeaderFlags, MessageType, RsvpHop, Session, Writer};

/// Tears under repetition at most. Further ones are sent once.
const MOST: u32 = 16_384;
/// Octets of tears under repetition at most.
const MOST_OCTETS: usize = 4 << 20;
/// Tears of one state under repetition at most: by several interfaces, or for parts of a reservation.
const MOST_EACH: usize = 16;

/// The state that a tear is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::engine) enum Torn {
    /// Path state of a sender.
    Path(Session, Filter),
    /// Requests of a session towards the previous hop with this address and handle.
    Resv(Session, IpAddr, u32),
}

impl Torn {
    /// The requests of a session towards a previous hop.
    pub(in crate::engine) const fn resv(session: Session, hop: RsvpHop) -> Self {
        Self::Resv(session, hop.addr, hop.lih)
    }
}

#[derive(Debug)]
struct Closing {
    link: Link,
    torn: Torn,
    iface: Iface,
    stage: Stage,
    kind: MessageType,
    envelope: Envelope,
    /// The senders in a ResvTear; none: it is for all.
    senders: Vec<Filter>,
    /// The message as the neighbor layer takes it.
    octets: Vec<u8>,
}

impl Timed for Closing {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// All tears under repetition.
#[derive(Debug)]
pub(super) struct ClosingStates {
    tears: Slab<Closing>,
    by_state: HashMap<Torn, Vec<Key>, KeyedHasher>,
    wheel: Wheel,
    octets: usize,
}

impl ClosingStates {
    pub(in crate::engine) fn new(hasher: KeyedHasher) -> Self {
        Self {
            tears: Slab::new(MOST),
            by_state: HashMap::with_hasher(hasher),
            wheel: Wheel::default(),
            octets: 0,
        }
    }

    pub(in crate::engine) const fn len(&self) -> u32 {
        self.tears.len()
    }

    pub(in crate::engine) const fn is_empty(&self) -> bool {
        self.tears.is_empty()
    }

    pub(in crate::engine) fn next_deadline(&self) -> Option<signalbox_core::Time> {
        self.wheel.next_deadline()
    }

    /// Stores a tear; `None`: there is no room.
    fn insert(&mut self, closing: Closing) -> Option<Key> {
        let (torn, octets) = (closing.torn, self.octets + closing.octets.len());
        let full = self.by_state.get(&torn).is_some_and(|keys| keys.len() >= MOST_EACH);
        if full || octets > MOST_OCTETS {
            return None;
        }
        let key = self.tears.insert(closing).ok()?;
        self.octets = octets;
        self.by_state.entry(torn).or_default().push(key);
        Some(key)
    }

    fn remove(&mut self, key: Key) {
        if self.tears.get(key).is_none() {
            return;
        }
        self.wheel.cancel(&mut self.tears, key.index());
        let Some(gone) = invariant!(self.tears.remove(key), "a tear ends once") else { return };
        self.octets -= gone.octets.len();
        if let Some(keys) = self.by_state.get_mut(&gone.torn) {
            keys.retain(|one| *one != key);
            if keys.is_empty() {
                self.by_state.remove(&gone.torn);
            }
        }
    }

    /// Ends the repetition of tears of a state; with `senders` of those for all senders, and those that name one of them.
    fn end(&mut self, torn: &Torn, senders: Option<&[Filter]>) {
        let Some(keys) = self.by_state.get(torn) else { return };
        let concerned = |key: &Key| {
            self.tears.get(*key).is_some_and(|one| {
                let named = |senders: &[Filter]| one.senders.iter().any(|sender| senders.contains(sender));
                one.senders.is_empty() || senders.is_none_or(named)
            })
        };
        let over: Vec<Key> = keys.iter().copied().filter(concerned).collect();
        for key in over {
            self.remove(key);
        }
    }
}

impl Rsvp {
    /// Number of tears that the node repeats: those of state that is gone (draft-pan-rsvp-timer-00 §5.3).
    #[must_use]
    pub const fn tears_repeated(&self) -> u32 {
        self.output.closing.len()
    }

    /// Sends a tear, and stores it for its repetition if the interface repeats tears and the neighbor gets no
    /// MESSAGE_IDs.
    pub(super) fn send_tear(
        &mut self,
        (iface, envelope): (Iface, Envelope),
        kind: MessageType,
        (torn, senders): (Torn, Vec<Filter>),
        about: SentState,
        compose: impl Fn(&Self, &mut Writer<'_>),
    ) {
        let sent = self.transmit_state(envelope, kind, about, false, &compose);
        let repeats = |known: &InterfaceState| known.config.staged.is_some_and(|one| one.tears);
        if !sent || !self.interfaces.get(iface).is_some_and(repeats) || self.is_acknowledged_there(&envelope)
        {
            return;
        }
        let Some(wait) = self.staged_wait(iface, Stage::FIRST) else { return };
        let mut octets = Vec::new();
        let mut writer = Writer::new(&mut octets, kind, HeaderFlags::default(), envelope.ttl);
        compose(self, &mut writer);
        if writer.finish_without_checksum().is_err() {
            return;
        }
        let (link, stage) = (Link::default(), Stage::FIRST);
        let closing = Closing { link, torn, iface, stage, kind, envelope, senders, octets };
        match self.output.closing.insert(closing) {
            Some(key) => {
                self.output.closing.wheel.arm(&mut self.output.closing.tears, key.index(), self.now + wait)
            }
            None => self.counters.overload += 1,
        }
    }

    /// Whether messages with this addressing have a MESSAGE_ID.
    fn is_acknowledged_there(&self, envelope: &Envelope) -> bool {
        let towards = if envelope.towards == 0 { self.mark(envelope.dst) } else { envelope.towards };
        self.neighbors.is_reliable(envelope.ifindex.unwrap_or_default(), towards)
    }

    /// The next hops at an interface with a reservation for a sender: at most `max_next_hops` of each reservation.
    pub(in crate::engine) fn reserving_hops(&self, key: Key, iface: Iface) -> Vec<IpAddr> {
        let Some(sender) = invariant!(self.senders.get(key), "next hops are those of a sender that stands")
        else {
            return Vec::new();
        };
        let there = self.branches_of(sender).filter(|(_, branch)| branch.oif == iface);
        let requests = there.flat_map(|(_, branch)| branch.requests());
        let hops = requests.filter_map(|request| self.hops.lookup(request.hop));
        let mut hops: Vec<_> = hops.map(|hop| hop.addr).collect();
        hops.sort_unstable();
        hops.dedup();
        hops
    }

    /// A Path or Resv goes out: no tear of the same state follows it. `senders`: those in a Resv; `None`: all.
    pub(super) fn end_repetition(&mut self, torn: &Torn, senders: Option<&[Filter]>) {
        self.output.closing.end(torn, senders);
    }

    /// The next tear whose interval has ended.
    pub(in crate::engine) fn due_tear(&mut self) -> Option<Key> {
        let index = self.output.closing.wheel.pop_due(&mut self.output.closing.tears, self.now)?;
        self.output.closing.tears.key_of(index)
    }

    /// Sends a tear again, or ends its repetition after the last stage (draft-pan-rsvp-timer-00 §3.3).
    pub(in crate::engine) fn step_tear(&mut self, key: Key) {
        let Some(closing) = invariant!(self.output.closing.tears.get(key), "a timer ends with its tear")
        else {
            return;
        };
        let Closing { iface, envelope, kind, .. } = *closing;
        let stage = closing.stage.next();
        let usable = self.interfaces.get(iface).is_some_and(InterfaceState::is_usable);
        let wait = self.staged_wait(iface, stage);
        let Some(wait) = wait.filter(|_| usable && !self.is_acknowledged_there(&envelope)) else {
            return self.output.closing.remove(key);
        };
        if self.may_repeat(stage) {
            if let Some(closing) = self.output.closing.tears.get(key) {
                self.neighbors.send_alone(envelope.at(envelope.ifindex.unwrap_or_default()), &closing.octets);
            }
            let counters = &mut self.counters;
            let counter = if kind == MessageType::PATH_TEAR {
                &mut counters.path_tears_sent
            } else {
                &mut counters.resv_tears_sent
            };
            *counter += 1;
            tracing::trace!(%kind, dst = %envelope.dst, "tear sent again");
        }
        if let Some(closing) = self.output.closing.tears.get_mut(key) {
            closing.stage = stage;
        }
        self.output.closing.wheel.arm(&mut self.output.closing.tears, key.index(), self.now + wait);
    }
}
