//! Sessions: what path state and reservations have in common.
//!
//! [`Sessions`] owns the records with the indexes by which they are found, and the fair shares of all tables. Other rooms read and
//! change a [`Session`] by its key.
//!
//! * `record`: a session, with the heads of its lists and its blockade state (RFC 2205 §3.5).
//! * `table`: how a session is found, begins and ends, and the rules about ports (§3.2).
//! * `destinations`: the sessions that a change of routes concerns.
//! * `holders`: how the tables are divided among sources and interfaces.
//! * `logged`: sessions as log events name them.

mod destinations;
mod holders;
mod logged;
mod record;
mod table;

use core::ops::Deref;

use signalbox_core::index::{Index, KeyedHasher};
use signalbox_core::slab::Slab;
use signalbox_core::{Changes, Key, SessionChange};

pub(in crate::engine) use destinations::{MOST, Range};
pub(in crate::engine) use record::{APPLICATIONS, Blockade, Blocked, NONE, Session, is_application};
pub(in crate::engine) use table::Refusal;

use destinations::Destinations;
use holders::Holders;

/// All sessions of a node. Others read and change the records; only this room enters and removes them.
#[derive(Debug)]
pub(in crate::engine) struct Sessions {
    slab: Slab<Session>,
    index: Index,
    /// Keyed, because peers choose what is hashed.
    hasher: KeyedHasher,
    /// Number of sessions without a port.
    portless: u32,
    destinations: Destinations,
    /// Sessions that appeared and disappeared, while somebody watches.
    changes: Changes<SessionChange>,
    holders: Holders,
}

impl Sessions {
    /// An empty table for at most `limit` sessions.
    pub(in crate::engine) fn new(
        limit: u32,
        hasher: KeyedHasher,
        share: impl FnMut() -> KeyedHasher,
    ) -> Self {
        Self {
            slab: Slab::new(limit),
            index: Index::new(),
            hasher,
            portless: 0,
            destinations: Destinations::default(),
            changes: Changes::default(),
            holders: Holders::new(share),
        }
    }

    /// Number of sessions.
    pub(in crate::engine) const fn len(&self) -> u32 {
        self.slab.len()
    }

    /// Most sessions.
    pub(in crate::engine) const fn limit(&self) -> u32 {
        self.slab.limit()
    }

    /// Keeps at most `limit` sessions from now on. Those that are there stay.
    pub(in crate::engine) const fn set_limit(&mut self, limit: u32) {
        self.slab.set_limit(limit);
    }

    /// Whether no index and no share has an entry.
    pub(in crate::engine) fn holds_nothing(&self) -> bool {
        self.index.is_empty() && self.holders.is_empty()
    }

    pub(in crate::engine) fn get_mut(&mut self, key: Key) -> Option<&mut Session> {
        self.slab.get_mut(key)
    }

    pub(in crate::engine) fn get_index_mut(&mut self, index: u32) -> Option<&mut Session> {
        self.slab.get_index_mut(index)
    }

    /// The list of sessions that appear and disappear.
    pub(in crate::engine) const fn changes(&mut self) -> &mut Changes<SessionChange> {
        &mut self.changes
    }

    /// The next session of a range of destinations.
    pub(in crate::engine) fn step(&self, range: &mut Range) -> Option<u32> {
        self.destinations.step(range)
    }
}

impl Deref for Sessions {
    type Target = Slab<Session>;

    fn deref(&self) -> &Slab<Session> {
        &self.slab
    }
}
