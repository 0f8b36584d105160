//! Messages on their way out: the ones that GIST has not taken yet, and the ones whose fate is watched. Buffers go
//! round, so that a message that passes allocates nothing.

use core::time::Duration;

use signalbox_core::service::{MessageHandle, SiiHandle, StateHandle, TransferAttributes};
use signalbox_core::slab::{Key, Slab};
use signalbox_core::{Mri, NslpId, SessionId};

/// Messages between two polls that are not watched, beyond which they are dropped.
const UNWATCHED: u32 = 4096;

/// What it means if GIST cannot send it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Nothing.
    Whatever,
    /// A RESERVE or QUERY that goes on: nobody may be there.
    Onward {
        /// The session's record.
        session: Key,
        /// The RII that whoever is last has to answer.
        rii: Option<u32>,
        /// It is a QUERY.
        query: bool,
    },
}

/// A message to be sent.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) octets: Vec<u8>,
    pub(super) session: SessionId,
    pub(super) nslp: NslpId,
    pub(super) mri: Mri,
    pub(super) state: Option<StateHandle>,
    pub(super) sii: Option<SiiHandle>,
    pub(super) hops: Option<u8>,
    pub(super) attributes: TransferAttributes,
    pub(super) timeout: Option<Duration>,
    pub(super) purpose: Purpose,
    pub(super) watched: bool,
}

/// The table of them.
#[derive(Debug)]
pub(super) struct Outbox {
    table: Slab<Parcel>,
    spare: Vec<Vec<u8>>,
    watched: u32,
    max_watched: u32,
    given: Option<Key>,
}

impl Outbox {
    pub(super) const fn new(max_watched: u32) -> Self {
        let table = Slab::new(max_watched.saturating_add(UNWATCHED));
        Self { table, spare: Vec::new(), watched: 0, max_watched, given: None }
    }

    /// An empty buffer.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub(super) fn reuse(&mut self, mut octets: Vec<u8>) {
        const MOST: usize = 256;
        if self.spare.len() < MOST {
            octets.clear();
            self.spare.push(octets);
        }
    }

    /// Puts a message in. It is watched if its fate matters and there is room.
    pub(super) fn put(&mut self, mut parcel: Parcel) -> Option<Key> {
        parcel.watched = parcel.purpose != Purpose::Whatever && self.watched < self.max_watched;
        let watched = parcel.watched;
        let key = self.table.insert(parcel).ok()?;
        self.watched += u32::from(watched);
        Some(key)
    }

    pub(super) fn is_watched(&self, key: Key) -> bool {
        self.table.get(key).is_some_and(|parcel| parcel.watched)
    }

    /// The message to be sent now; unless watched it is forgotten with the next call of [`Outbox::sweep`].
    pub(super) fn give(&mut self, key: Key) -> Option<(&Parcel, Option<MessageHandle>)> {
        let parcel = self.table.get(key)?;
        let handle = parcel.watched.then(|| MessageHandle(key.to_u64()));
        if handle.is_none() {
            self.given = Some(key);
        }
        Some((parcel, handle))
    }

    /// Forgets the message that was given out last, if nobody watches it.
    pub(super) fn sweep(&mut self) {
        if let Some(parcel) = self.given.take().and_then(|key| self.table.remove(key)) {
            self.reuse(parcel.octets);
        }
    }

    /// Takes a watched message out; `None` if the handle is of another session or time.
    pub(super) fn settle(&mut self, handle: MessageHandle, session: SessionId) -> Option<Parcel> {
        let key = Key::from_u64(handle.0);
        let known = self.table.get(key).is_some_and(|p| p.watched && p.session == session);
        if !known {
            return None;
        }
        self.watched -= 1;
        self.table.remove(key)
    }

    /// Messages watched.
    pub(super) const fn watched(&self) -> u32 {
        self.watched
    }
}
