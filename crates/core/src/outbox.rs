//! Messages of a signaling application to GIST: those that GIST has not yet taken, and those whose delivery
//! status is watched. Buffers are used again, so that a message that passes through allocates nothing.
//!
//! An engine stores a message with [`Outbox::put`], queues its key, and calls [`Outbox::give`] when that key
//! is polled. It calls [`Outbox::sweep`] at the start of each `handle` and `poll`, since a message that was
//! given out lives until then.
//!
//! A message is watched while GIST looks for the next node. Who asks for many routes to nodes that do not answer would have all
//! places: a quarter of them is for sources that hold few.

use core::net::IpAddr;
use core::time::Duration;

use crate::id::{NslpId, SessionId};
use crate::index::KeyedHasher;
use crate::invariant;
use crate::mri::Mri;
use crate::service::{MessageHandle, SendMessage, SiiHandle, StateHandle, TransferAttributes};
use crate::shares::{Place, Places};
use crate::slab::{Key, Slab};

/// Limit on messages between two polls that are not watched; further ones are dropped.
const UNWATCHED: u32 = 4096;
/// Buffers above this size are not kept: large messages are rare, and peers choose their number.
const KEPT_OCTETS: usize = 1024;
/// Limit on spare buffers: more messages than that are rarely in progress at one time.
const KEPT: usize = 256;

/// A message to be sent, with the purpose that its sender gave it.
#[derive(Debug)]
pub struct Parcel<P> {
    /// The application's octets.
    pub octets: Vec<u8>,
    /// The application.
    pub nslp: NslpId,
    /// The session.
    pub session: SessionId,
    /// Flow; its direction is the direction of the message.
    pub mri: Mri,
    /// Routing state that GIST may use.
    pub state: Option<StateHandle>,
    /// Peer to which the message is routed explicitly.
    pub sii: Option<SiiHandle>,
    /// GIST hop count to send; `None`: GIST's initial value.
    pub hops: Option<u8>,
    /// Transfer attributes (RFC 5971 §4.1.2).
    pub attributes: TransferAttributes,
    /// Time after which GIST gives up; `None`: GIST's own limit.
    pub timeout: Option<Duration>,
    /// The [source](crate::shares::source) that caused the message, whose share of the watched messages it takes; `None`: this
    /// node itself. Its messages have the limit alone.
    pub source: Option<IpAddr>,
    /// Purpose of the message, returned by [`Outbox::settle`] with its delivery status.
    pub purpose: P,
}

impl<P> Parcel<P> {
    /// A message that leaves all choices to GIST.
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
            source: None,
            purpose,
        }
    }
}

#[derive(Debug)]
struct Waiting<P> {
    parcel: Parcel<P>,
    /// The place of its source among the watched messages, if it is watched.
    watched: Option<Place>,
}

/// Table of the messages that are queued or watched.
#[derive(Debug)]
pub struct Outbox<P> {
    table: Slab<Waiting<P>>,
    spare: Vec<Vec<u8>>,
    /// Watched messages by their source.
    watched: Places,
    /// The message that was given out last, if it is not watched.
    given: Option<Key>,
}

impl<P> Outbox<P> {
    /// An empty outbox that watches at most `max_watched` messages. The hasher is for their sources.
    #[must_use]
    pub fn new(max_watched: u32, hasher: KeyedHasher) -> Self {
        let table = Slab::new(max_watched.saturating_add(UNWATCHED));
        Self { table, spare: Vec::new(), watched: Places::new(max_watched, hasher), given: None }
    }

    /// Watches at most `max_watched` messages from now on. Those that are watched stay.
    pub const fn set_limit(&mut self, max_watched: u32) {
        self.table.set_limit(max_watched.saturating_add(UNWATCHED));
        self.watched.set_limit(max_watched);
    }

    /// An empty buffer, a spare one if possible.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a buffer back for use by a later message.
    pub fn reuse(&mut self, mut octets: Vec<u8>) {
        if octets.capacity() <= KEPT_OCTETS && self.spare.len() < KEPT {
            octets.clear();
            self.spare.push(octets);
        }
    }

    /// Stores a message. It is watched if `watch` is set, and the limit and the share of its source allow it. `None`: the table
    /// is full.
    pub fn put(&mut self, parcel: Parcel<P>, watch: bool) -> Option<Key> {
        if self.table.len() >= self.table.limit() {
            return None;
        }
        let watched = if watch { self.watched.take(parcel.source) } else { None };
        self.table.insert(Waiting { parcel, watched }).ok()
    }

    /// Whether the delivery status of the message is watched.
    #[must_use]
    pub fn is_watched(&self, key: Key) -> bool {
        self.table.get(key).is_some_and(|waiting| waiting.watched.is_some())
    }

    /// The message to be sent now. If it is not watched, the next call of [`Outbox::sweep`] removes it.
    pub fn give(&mut self, key: Key) -> Option<SendMessage<'_>> {
        let Waiting { parcel, watched } = self.table.get(key)?;
        let handle = watched.as_ref().map(|_| MessageHandle(key.to_u64()));
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

    /// Removes the message that was given out last, if it is not watched.
    pub fn sweep(&mut self) {
        let Some(key) = self.given.take() else { return };
        // There is no handle of a message that is not watched.
        if let Some(waiting) =
            invariant!(self.table.get_mut(key), "a message that was given out is swept once")
        {
            let octets = core::mem::take(&mut waiting.parcel.octets);
            self.table.discard(key);
            self.reuse(octets);
        }
    }

    /// Removes a watched message that GIST has sent, and uses its buffer again. Nothing happens if the handle is stale or belongs to
    /// another session. It is [`Outbox::settle`] without moving the message: half of its instructions.
    pub fn sent(&mut self, handle: MessageHandle, session: SessionId) {
        let key = Key::from_u64(handle.0);
        let waiting = self.table.get_mut(key).filter(|one| one.parcel.session == session);
        let Some(waiting) = waiting else { return };
        let Some(place) = waiting.watched.take() else { return };
        let octets = core::mem::take(&mut waiting.parcel.octets);
        self.watched.release(place);
        self.table.discard(key);
        self.reuse(octets);
    }

    /// Removes a watched message whose delivery status GIST has reported. `None`: the handle is stale or
    /// belongs to another session. The caller returns the buffer by [`Outbox::reuse`].
    pub fn settle(&mut self, handle: MessageHandle, session: SessionId) -> Option<Parcel<P>> {
        let key = Key::from_u64(handle.0);
        self.table.get(key).filter(|one| one.watched.is_some() && one.parcel.session == session)?;
        let Waiting { parcel, watched } = self.table.remove(key)?;
        self.watched.release(watched?);
        Some(parcel)
    }

    /// Number of watched messages.
    #[must_use]
    pub const fn watched(&self) -> u32 {
        self.watched.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mri::PathCoupled;

    const SESSION: SessionId = SessionId([7; 16]);

    fn outbox<P>(max_watched: u32) -> Outbox<P> {
        Outbox::new(max_watched, KeyedHasher::with_key([3; 16]))
    }

    fn parcel(outbox: &mut Outbox<u8>, size: usize) -> Parcel<u8> {
        let mut octets = outbox.buffer();
        octets.resize(size, 1);
        let flow = PathCoupled::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        Parcel::new(octets, NslpId::QOS, SESSION, Mri::PathCoupled(flow), 5)
    }

    #[test]
    fn what_is_not_watched_lives_until_the_next_call() {
        let mut outbox = outbox(1);
        let first = parcel(&mut outbox, 8);
        let key = outbox.put(first, false).unwrap();
        assert_eq!(outbox.give(key).map(|m| (m.data.len(), m.handle)), Some((8, None)));
        outbox.sweep();
        assert!(outbox.give(key).is_none());
        assert!(outbox.buffer().capacity() >= 8, "its buffer is used again");
    }

    #[test]
    fn what_was_sent_gives_its_place_and_its_buffer_back() {
        let mut outbox = outbox(1);
        let first = parcel(&mut outbox, 8);
        let key = outbox.put(first, true).unwrap();
        let handle = outbox.give(key).unwrap().handle.unwrap();
        outbox.sent(handle, SessionId([8; 16]));
        assert_eq!(outbox.watched(), 1, "somebody else's");
        outbox.sent(handle, SESSION);
        outbox.sent(handle, SESSION);
        assert_eq!(outbox.watched(), 0);
        assert!(outbox.give(key).is_none() && outbox.buffer().capacity() >= 8);
    }

    #[test]
    fn as_many_are_watched_as_there_is_room_for() {
        let mut outbox = outbox(1);
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
    fn a_source_with_many_leaves_places_to_others_and_to_the_node_itself() {
        let mut outbox = outbox(64);
        let mut put = |last: Option<u8>| {
            let source = last.map(|last| IpAddr::from([10, 0, 0, last]));
            let message = Parcel { source, ..parcel(&mut outbox, 8) };
            let key = outbox.put(message, true).unwrap();
            outbox.is_watched(key)
        };
        assert_eq!((0..100).filter(|_| put(Some(1))).count(), 48);
        assert!(put(Some(2)) && !put(Some(2)), "a 64th of the rest, but at least one");
        assert!(put(None) && put(None) && put(Some(3)));
        assert_eq!((0..100).filter(|_| put(None)).count(), 64 - 52);
        assert!(!put(None) && !put(Some(4)));
        assert_eq!(outbox.watched(), 64);
    }

    #[test]
    fn large_buffers_are_given_back_and_so_are_those_beyond_need() {
        let mut outbox = outbox::<u8>(0);
        outbox.reuse(Vec::with_capacity(KEPT_OCTETS + 1));
        assert_eq!(outbox.buffer().capacity(), 0);
        for _ in 0..=KEPT {
            outbox.reuse(Vec::with_capacity(KEPT_OCTETS));
        }
        assert_eq!(outbox.spare.len(), KEPT);
    }

    #[test]
    fn a_full_table_takes_no_more() {
        let mut outbox = outbox(0);
        for _ in 0..UNWATCHED {
            let message = parcel(&mut outbox, 4);
            assert!(outbox.put(message, true).is_some());
        }
        let message = parcel(&mut outbox, 4);
        assert!(outbox.put(message, true).is_none());
    }
}
