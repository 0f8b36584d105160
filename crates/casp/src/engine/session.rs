//! State of an M-session: one session with one flow (section 1 of the draft).

use core::net::IpAddr;
use core::time::Duration;
use std::collections::VecDeque;
use std::hash::{Hash as _, Hasher as _};

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::wheel::{Link, Timed};
use signalbox_core::{Key, SessionId, Slab, Time};

use super::branch::Side;
use super::search::Answer;
use crate::wire::{ClientType, FlowId};

/// Lifetime of state whose messages have no CASP_TIMEOUT, seconds.
pub(super) const DEFAULT_TIMEOUT: u32 = 30;
/// Most messages that wait for one next hop or connection of one session, and their octets.
const MAX_WAITING: usize = 16;
const MAX_WAITING_OCTETS: usize = 64 << 10;

/// The clients of this node that took part in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Users {
    /// None of them.
    None,
    /// One of them.
    One(ClientType),
    /// Several: each client of this node is informed.
    Many,
}

impl Users {
    pub(super) fn add(&mut self, client: ClientType) {
        *self = match *self {
            Self::None => Self::One(client),
            Self::One(one) if one == client => Self::One(one),
            Self::One(_) | Self::Many => Self::Many,
        };
    }
}

/// A message that waits, without Length Header and cookie.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) octets: Box<[u8]>,
    /// The client of this node that is informed if the message cannot be sent on.
    pub(super) client: Option<ClientType>,
    /// It only concerns state.
    pub(super) refresh: bool,
}

/// Messages of a session that wait for its next hop, or for a connection.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) down: VecDeque<Queued>,
    pub(super) up: VecDeque<Queued>,
    pub(super) octets: usize,
    /// A search has this session on its list.
    pub(super) searching: bool,
    /// The next hop that is tried: a connection to it has this session on its list.
    pub(super) candidate: Option<IpAddr>,
    /// A connection to the previous hop has this session on its list.
    pub(super) connecting_up: bool,
    /// The next hop that was found, with the cookie for the first message to it.
    pub(super) answer: Option<Answer>,
    /// The first message to a hop that scout found, until the hop has accepted it.
    pub(super) unproved: Option<Queued>,
    /// A cookie was refused once already.
    pub(super) retried: bool,
}

impl Waiting {
    /// Whether a message fits.
    pub(super) fn fits(&self, queue_length: usize, octets: usize) -> bool {
        queue_length < MAX_WAITING && self.octets + octets <= MAX_WAITING_OCTETS
    }

    pub(super) fn is_idle(&self) -> bool {
        self.down.is_empty()
            && self.up.is_empty()
            && !self.searching
            && self.candidate.is_none()
            && !self.connecting_up
            && self.answer.is_none()
            && self.unproved.is_none()
            && !self.retried
    }
}

/// State of one session with one flow.
#[derive(Debug)]
pub(super) struct Session {
    link: Link,
    pub(super) id: SessionId,
    pub(super) flow: FlowId,
    pub(super) previous: Side,
    pub(super) next: Side,
    /// Who made the state; [`Branch::LOCAL`](super::branch::Branch::LOCAL): a client of this node. Its share pays for it.
    pub(super) owner: Key,
    /// Lifetime without refresh, seconds.
    pub(super) timeout: u32,
    /// Messages contain the lifetime.
    pub(super) explicit: bool,
    /// When this node makes a refresh, unless a message is sent on before.
    pub(super) refresh_at: Time,
    /// No discovery before this time.
    pub(super) discover_at: Time,
    /// No error before this time.
    pub(super) error_at: Time,
    /// A client of this node holds the session.
    pub(super) held: bool,
    /// A client keeps old branches.
    pub(super) kept: bool,
    /// The next message starts a discovery.
    pub(super) rediscover: bool,
    /// Another session that is torn down as soon as a message left for this one.
    pub(super) replaces: Option<Key>,
    pub(super) users: Users,
    pub(super) waiting: Option<Box<Waiting>>,
}

impl Timed for Session {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Session {
    pub(super) fn new(id: SessionId, flow: FlowId, owner: Key) -> Self {
        Self {
            link: Link::default(),
            id,
            flow,
            previous: Side::default(),
            next: Side::default(),
            owner,
            timeout: DEFAULT_TIMEOUT,
            explicit: false,
            refresh_at: Time::from_micros(u64::MAX),
            discover_at: Time::ZERO,
            error_at: Time::ZERO,
            held: false,
            kept: false,
            rediscover: false,
            replaces: None,
            users: Users::None,
            waiting: None,
        }
    }

    /// Lifetime without refresh.
    pub(super) fn lifetime(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    /// Interval of refreshes: a third of the lifetime.
    pub(super) fn interval(&self) -> Duration {
        self.lifetime() / 3
    }

    /// Whether a client of this node opened the session.
    pub(super) fn is_own(&self) -> bool {
        self.previous.last().is_some_and(super::branch::Branch::is_local)
    }

    pub(super) fn waiting(&mut self) -> &mut Waiting {
        self.waiting.get_or_insert_default()
    }

    /// Frees what is not needed while nothing waits.
    pub(super) fn settle(&mut self) {
        if self.waiting.as_ref().is_some_and(|waiting| waiting.is_idle()) {
            self.waiting = None;
        }
    }

    /// When something is due.
    pub(super) fn due(&self) -> Time {
        let ends = [self.previous.first_end(), self.next.older().map(|branch| branch.until).min()];
        ends.into_iter().flatten().chain([self.refresh_at]).min().unwrap_or(self.refresh_at)
    }
}

/// All sessions, found by identifier and flow.
#[derive(Debug)]
pub(super) struct Sessions {
    pub(super) slab: Slab<Session>,
    index: Index,
    hasher: KeyedHasher,
}

impl Sessions {
    pub(super) fn new(limit: u32, hasher: KeyedHasher) -> Self {
        Self { slab: Slab::new(limit), index: Index::new(), hasher }
    }

    fn hash(hasher: &KeyedHasher, id: SessionId, flow: &FlowId) -> u64 {
        let mut state = core::hash::BuildHasher::build_hasher(hasher);
        id.hash(&mut state);
        flow.hash(&mut state);
        state.finish()
    }

    pub(super) fn find(&self, id: SessionId, flow: &FlowId) -> Option<Key> {
        let is_it = |index| self.slab.get_index(index).is_some_and(|one| one.id == id && one.flow == *flow);
        let found = self.index.find(Self::hash(&self.hasher, id, flow), is_it)?;
        self.slab.key_of(found)
    }

    /// Stores a session that is not in the table; `None`: the table is full.
    pub(super) fn insert(&mut self, session: Session) -> Option<Key> {
        let hash = Self::hash(&self.hasher, session.id, &session.flow);
        let key = self.slab.insert(session).ok()?;
        let Self { slab, index, hasher } = self;
        index.insert(hash, key.index(), |at| {
            slab.get_index(at).map_or(0, |one| Self::hash(hasher, one.id, &one.flow))
        });
        Some(key)
    }

    /// Removes a session whose timer is not armed.
    pub(super) fn remove(&mut self, key: Key) -> Option<Session> {
        let session = self.slab.remove(key)?;
        let hash = Self::hash(&self.hasher, session.id, &session.flow);
        self.index.remove(hash, |index| index == key.index());
        Some(session)
    }

    #[inline]
    pub(super) fn get(&self, key: Key) -> Option<&Session> {
        self.slab.get(key)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Session> {
        self.slab.get_mut(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CASP-P-25: a record without what waits for it, and without the four octets of its place in the table.
    #[test]
    fn a_record_is_small() {
        assert!(size_of::<Session>() <= 216, "{}", size_of::<Session>());
    }
}
