//! Messages of a signaling application on their way to GIST: the ones that GIST has not taken yet, and the ones whose
//! fate is watched. Buffers go round, so that a message that passes allocates nothing.
//!
//! An engine puts a message in, queues its key, and gives it out by [`Outbox::give`] when that key is polled; it calls
//! [`Outbox::sweep`] at the start of each `handle` and `poll`, since what was given out lives until then.

use core::time::Duration;

use crate::id::{NslpId, SessionId};
use crate::mri::Mri;
use crate::service::{MessageHandle, SendMessage, SiiHandle, StateHandle, TransferAttributes};
use crate::slab::{Key, Slab};

/// Messages between two polls that are not watched, beyond which they are dropped.
const UNWATCHED: u32 = 4096;
/// Buffers above this size are not kept: large messages are seldom, and their number is a peer's choice.
const KEPT_OCTETS: usize = 1024;
/// Most buffers that wait for use: more messages than that are seldom under way at one time.
const KEPT: usize = 256;

/// A message to be sent, and what it is to whoever sends it.
#[derive(Debug)]
pub struct Parcel<P> {
    /// The application's octets.
    pub octets: Vec<u8>,
    /// The application.
    pub nslp: NslpId,
    /// Session.
    pub session: SessionId,
    /// Flow; its direction is the message's.
    pub mri: Mri,
    /// Routing state that may serve.
    pub state: Option<StateHandle>,
    /// Route explicitly to this peer.
    pub sii: Option<SiiHandle>,
    /// GIST hop count to send; `None`: GIST's initial value.
    pub hops: Option<u8>,
    /// How to handle it.
    pub attributes: TransferAttributes,
    /// Give up after this time; `None`: GIST's own limit.
    pub timeout: Option<Duration>,
    /// What it is for, to be found again when its fate is told.
    pub purpose: P,
}

impl<P> Parcel<P> {
    /// A message of GIST's own choices.
    #[must_use]
    pub fn new(octets: Vec<u8>, nslp: NslpId, session: SessionId, mri: Mri, purpose: P) -> Self {
        Self {
            octets,
            nslp,
            session,
            mri,
            state: None,
            sii: None,
            hops: None,
            attributes: TransferAttributes::default(),
            timeout: None,
            purpose,
        }
    }
}

#[derive(Debug)]
struct Waiting<P> {
    parcel: Parcel<P>,
    watched: bool,
}

/// The table of them.
#[derive(Debug)]
pub struct Outbox<P> {
    table: Slab<Waiting<P>>,
    spare: Vec<Vec<u8>>,
    watched: u32,
    max_watched: u32,
    /// The one that was given out last and is not watched.
    given: Option<Key>,
}

impl<P> Outbox<P> {
    /// An empty one, for so many messages whose fate is watched.
    #[must_use]
    pub const fn new(max_watched: u32) -> Self {
        let table = Slab::new(max_watched.saturating_add(UNWATCHED));
        Self { table, spare: Vec::new(), watched: 0, max_watched, given: None }
    }

    /// An empty buffer.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub fn reuse(&mut self, mut octets: Vec<u8>) {
        if octets.capacity() <= KEPT_OCTETS && self.spare.len() < KEPT {
            octets.clear();
            self.spare.push(octets);
        }
    }

    /// Puts a message in; it is watched if that is wanted and there is room. `None`: there is no room for it at all.
    pub fn put(&mut self, parcel: Parcel<P>, watch: bool) -> Option<Key> {
        let watched = watch && self.watched < self.max_watched;
        let key = self.table.insert(Waiting { parcel, watched }).ok()?;
        self.watched += u32::from(watched);
        Some(key)
    }

    /// Whether the message's fate is watched.
    #[must_use]
    pub fn is_watched(&self, key: Key) -> bool {
        self.table.get(key).is_some_and(|waiting| waiting.watched)
    }

    /// The message to be sent now. Unless watched it is forgotten with the next call of [`Outbox::sweep`].
    pub fn give(&mut self, key: Key) -> Option<SendMessage<'_>> {
        let Waiting { parcel, watched } = self.table.get(key)?;
        let handle = watched.then(|| MessageHandle(key.to_u64()));
        if handle.is_none() {
            self.given = Some(key);
        }
        Some(SendMessage {
            data: &parcel.octets,
            handle,
            nslp: parcel.nslp,
            session: parcel.session,
            mri: parcel.mri,
            state: parcel.state,
            sii: parcel.sii,
            attributes: parcel.attributes,
            timeout: parcel.timeout,
            ip_ttl: None,
            hops: parcel.hops,
        })
    }

    /// Forgets the message that was given out last, if nobody watches it.
    pub fn sweep(&mut self) {
        if let Some(waiting) = self.given.take().and_then(|key| self.table.remove(key)) {
            self.reuse(waiting.parcel.octets);
        }
    }

    /// Takes a watched message out, whose fate GIST told; `None` if the handle is of another session or time. Its buffer
    /// is to come back by [`Outbox::reuse`].
    pub fn settle(&mut self, handle: MessageHandle, session: SessionId) -> Option<Parcel<P>> {
        let key = Key::from_u64(handle.0);
        let known = self.table.get(key).is_some_and(|w| w.watched && w.parcel.session == session);
        if !known {
            return None;
        }
        self.watched -= 1;
        self.table.remove(key).map(|waiting| waiting.parcel)
    }

    /// Messages watched.
    #[must_use]
    pub const fn watched(&self) -> u32 {
        self.watched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mri::PathCoupled;

    const SESSION: SessionId = SessionId([7; 16]);

    fn parcel(outbox: &mut Outbox<u8>, size: usize) -> Parcel<u8> {
        let mut octets = outbox.buffer();
        octets.resize(size, 1);
        let flow = PathCoupled::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        Parcel::new(octets, NslpId::QOS, SESSION, Mri::PathCoupled(flow), 5)
    }

    #[test]
    fn what_is_not_watched_lives_until_the_next_call() {
        let mut outbox = Outbox::new(1);
        let first = parcel(&mut outbox, 8);
        let key = outbox.put(first, false).unwrap();
        assert_eq!(outbox.give(key).map(|m| (m.data.len(), m.handle)), Some((8, None)));
        outbox.sweep();
        assert!(outbox.give(key).is_none());
        assert!(outbox.buffer().capacity() >= 8, "its buffer is used again");
    }

    #[test]
    fn as_many_are_watched_as_there_is_room_for() {
        let mut outbox = Outbox::new(1);
        let (first, second) = (parcel(&mut outbox, 8), parcel(&mut outbox, 8));
        let (first, second) = (outbox.put(first, true).unwrap(), outbox.put(second, true).unwrap());
        assert!(outbox.is_watched(first) && !outbox.is_watched(second));
        let handle = outbox.give(first).unwrap().handle.unwrap();
        outbox.sweep();
        assert!(outbox.settle(handle, SessionId([8; 16])).is_none(), "somebody else's");
        assert_eq!(outbox.settle(handle, SESSION).map(|parcel| parcel.purpose), Some(5));
        assert!(outbox.settle(handle, SESSION).is_none(), "only once");
        assert_eq!(outbox.watched(), 0);
    }

    #[test]
    fn large_buffers_are_given_back_and_so_are_those_beyond_need() {
        let mut outbox = Outbox::<u8>::new(0);
        outbox.reuse(Vec::with_capacity(KEPT_OCTETS + 1));
        assert_eq!(outbox.buffer().capacity(), 0);
        for _ in 0..=KEPT {
            outbox.reuse(Vec::with_capacity(KEPT_OCTETS));
        }
        assert_eq!(outbox.spare.len(), KEPT);
    }

    #[test]
    fn a_full_table_takes_no_more() {
        let mut outbox = Outbox::new(0);
        for _ in 0..UNWATCHED {
            let one = parcel(&mut outbox, 4);
            assert!(outbox.put(one, true).is_some());
        }
        let one = parcel(&mut outbox, 4);
        assert!(outbox.put(one, true).is_none());
    }
}
