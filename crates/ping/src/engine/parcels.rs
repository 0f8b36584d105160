//! Messages on their way out: the ones that GIST has not taken yet, and the ones whose fate is watched.
//!
//! Buffers go round, so that a message that passes allocates nothing.

use signalbox_core::service::{MessageHandle, StateHandle};
use signalbox_core::slab::{Key, Slab};
use signalbox_core::{Mri, SessionId};
use signalbox_wire::Writer;

/// Buffers above this size are not kept: large messages are seldom, and their number is a peer's choice.
const KEPT_OCTETS: usize = 1024;
/// Messages between two polls that are not watched, beyond which they are dropped.
const UNWATCHED: u32 = 1024;

/// Whose message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Ours, of this ping, with this sequence number.
    Probe(Key, u32),
    /// A request that passes by; the state that leads back to where it came from.
    Request(Option<StateHandle>),
    /// A reply; nothing is to be done if it fails.
    Reply,
}

/// A message to be sent.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) octets: Vec<u8>,
    pub(super) session: SessionId,
    pub(super) mri: Mri,
    /// Routing state that may serve.
    pub(super) state: Option<StateHandle>,
    /// GIST hop count.
    pub(super) hops: Option<u8>,
    pub(super) timeout: Option<core::time::Duration>,
    pub(super) origin: Origin,
    /// It is kept until its status is known.
    pub(super) watched: bool,
}

/// The table of them.
#[derive(Debug)]
pub(super) struct Parcels {
    table: Slab<Parcel>,
    spare: Vec<Vec<u8>>,
    watched: u32,
    max_watched: u32,
    /// The one that was given out last and is not watched.
    given: Option<Key>,
}

impl Parcels {
    pub(super) const fn new(max_watched: u32) -> Self {
        let table = Slab::new(max_watched.saturating_add(UNWATCHED));
        Self { table, spare: Vec::new(), watched: 0, max_watched, given: None }
    }

    /// Puts in a message that `write` composes. It is watched if it can go wrong and there is room.
    pub(super) fn put(&mut self, mut parcel: Parcel, write: impl FnOnce(&mut Writer<'_>)) -> Option<Key> {
        parcel.octets = self.spare.pop().unwrap_or_default();
        write(&mut Writer::new(&mut parcel.octets));
        parcel.watched = parcel.origin != Origin::Reply && self.watched < self.max_watched;
        let watched = parcel.watched;
        let key = self.table.insert(parcel).ok()?;
        self.watched += u32::from(watched);
        Some(key)
    }

    /// Whether the message's fate is watched.
    pub(super) fn is_watched(&self, key: Key) -> bool {
        self.table.get(key).is_some_and(|parcel| parcel.watched)
    }

    /// The message to be sent now; it is forgotten with the next call of [`Parcels::sweep`] unless watched.
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
        let watched = self.table.get(key).is_some_and(|p| p.watched && p.session == session);
        if !watched {
            return None;
        }
        self.watched -= 1;
        self.table.remove(key)
    }

    /// Takes back the buffer of a message that [`Parcels::settle`] gave.
    pub(super) fn reuse(&mut self, mut octets: Vec<u8>) {
        if octets.capacity() <= KEPT_OCTETS {
            octets.clear();
            self.spare.push(octets);
        }
    }

    /// Messages watched.
    pub(super) const fn watched(&self) -> u32 {
        self.watched
    }
}
