//! Discoveries that go on: one for each destination (section 9 of the draft).

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use signalbox_core::index::KeyedHasher;
use signalbox_core::node::{NoRoute, Route};
use signalbox_core::shares::{Shares, source};
use signalbox_core::wheel::{Link, Timed, Wheel};
use signalbox_core::{Key, Slab, Time, invariant};

use crate::wire::Cookie;

/// Scout Requests of one discovery.
pub(super) const REQUESTS: u8 = 5;
/// How long the first of them is waited for; then twice as long each time.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// How long a further answer is remembered.
pub(super) const REMEMBER: Duration = Duration::from_secs(15);
/// How long a mechanism outside of the engine may take.
pub(super) const EXTERNAL_WAIT: Duration = Duration::from_secs(5);

/// A node that a discovery found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) address: IpAddr,
    /// Its cookie, if scout found it.
    pub(super) cookie: Option<Cookie>,
    /// The address from which it was asked: the cookie is good for it only.
    pub(super) local: Option<IpAddr>,
    /// The address of this node towards the destination, if the discovery has looked it up.
    pub(super) src: Option<IpAddr>,
}

impl Answer {
    /// A node that was found without scout.
    pub(super) const fn at(address: IpAddr) -> Self {
        Self { address, cookie: None, local: None, src: None }
    }
}

/// What a discovery waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The route.
    Route,
    /// A mechanism outside of the engine.
    External,
    /// A Scout Response.
    Scout,
    /// Nothing: it is over, and remembers one further answer.
    Over,
}

/// What waits for a discovery or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiter {
    /// A session with its messages.
    Session(Key),
    /// A message without state.
    Message(Key),
}

/// A discovery.
#[derive(Debug)]
pub(super) struct Search {
    link: Link,
    pub(super) dst: IpAddr,
    /// Flow label of the data, for Scout Requests.
    pub(super) label: u32,
    pub(super) phase: Phase,
    /// The mechanism that is tried, by its place in the list.
    pub(super) mechanism: usize,
    pub(super) route: Option<Result<Route, NoRoute>>,
    pub(super) cookie: Cookie,
    /// The address that asks, if it is not that of the route.
    pub(super) asks_from: Option<IpAddr>,
    pub(super) sent: u8,
    /// A report of an unreachable destination came.
    pub(super) unreachable: bool,
    pub(super) found: Option<IpAddr>,
    pub(super) other: Option<Answer>,
    /// What waits for the answer.
    pub(super) waiting: VecDeque<Waiter>,
    /// Whose share it takes.
    asked_by: IpAddr,
}

impl Timed for Search {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Search {
    /// The address of this node in Scout Requests.
    pub(super) fn source(&self) -> Option<IpAddr> {
        self.asks_from.or_else(|| Some(self.route?.ok()?.src))
    }

    /// The time after the last Scout Request until the next one, or until the discovery fails.
    pub(super) fn wait(&self) -> Duration {
        FIRST_WAIT * (1 << self.sent.saturating_sub(1).min(REQUESTS))
    }
}

/// All discoveries.
#[derive(Debug)]
pub(super) struct Searches {
    pub(super) slab: Slab<Search>,
    pub(super) wheel: Wheel,
    by_dst: HashMap<IpAddr, Key, KeyedHasher>,
    by_cookie: HashMap<Cookie, Key>,
    by_source: Shares<IpAddr>,
}

impl Searches {
    pub(super) fn new(limit: u32, hasher: impl Fn() -> KeyedHasher) -> Self {
        Self {
            slab: Slab::new(limit),
            wheel: Wheel::default(),
            by_dst: HashMap::with_hasher(hasher()),
            by_cookie: HashMap::new(),
            by_source: Shares::new(limit, hasher()),
        }
    }

    /// Has at most `limit` discoveries from now on. Those that are there stay.
    pub(super) const fn set_limit(&mut self, limit: u32) {
        self.slab.set_limit(limit);
        self.by_source.set_limit(limit);
    }

    /// The discovery for a destination, also one that is over.
    pub(super) fn to(&self, dst: IpAddr) -> Option<Key> {
        self.by_dst.get(&dst).copied()
    }

    /// The discovery whose Scout Request has this cookie.
    pub(super) fn of_cookie(&self, cookie: &Cookie) -> Option<Key> {
        self.by_cookie.get(cookie).copied()
    }

    /// Stores a new discovery; one for the same destination that is over is removed. `None`: there are too many.
    pub(super) fn insert(
        &mut self,
        dst: IpAddr,
        label: u32,
        cookie: Cookie,
        asked_by: IpAddr,
    ) -> Option<Key> {
        if let Some(former) = self.to(dst) {
            self.remove(former);
        }
        let asked_by = source(asked_by);
        self.by_source.take(asked_by).ok()?;
        let search = Search {
            link: Link::default(),
            dst,
            label,
            phase: Phase::Route,
            mechanism: 0,
            route: None,
            cookie,
            asks_from: None,
            sent: 0,
            unreachable: false,
            found: None,
            other: None,
            waiting: VecDeque::new(),
            asked_by,
        };
        let Ok(key) = self.slab.insert(search) else {
            self.by_source.release(asked_by);
            return None;
        };
        self.by_dst.insert(dst, key);
        self.by_cookie.insert(cookie, key);
        Some(key)
    }

    /// A discovery begins to ask from another address. Responses to its former requests are not counted any more.
    pub(super) fn ask_from(&mut self, key: Key, address: IpAddr, cookie: Cookie) {
        let Some(search) = invariant!(self.slab.get_mut(key), "a search that asks goes on") else { return };
        let former = core::mem::replace(&mut search.cookie, cookie);
        (search.asks_from, search.sent) = (Some(address), 0);
        self.by_cookie.remove(&former);
        self.by_cookie.insert(cookie, key);
    }

    pub(super) fn arm(&mut self, key: Key, at: Time) {
        if self.slab.get(key).is_some() {
            self.wheel.arm(&mut self.slab, key.index(), at);
        }
    }

    pub(super) fn remove(&mut self, key: Key) {
        if self.slab.get(key).is_none() {
            return;
        }
        self.wheel.cancel(&mut self.slab, key.index());
        let Some(search) = invariant!(self.slab.remove(key), "a discovery ends once") else { return };
        self.by_source.release(search.asked_by);
        self.by_cookie.remove(&search.cookie);
        if self.by_dst.get(&search.dst) == Some(&key) {
            self.by_dst.remove(&search.dst);
        }
    }
}
