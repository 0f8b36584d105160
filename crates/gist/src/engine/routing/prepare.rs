//! Routing state that datagrams need soon, read before they are handled.
//!
//! With many sessions neither the rows of the table nor its records are in the caches, and a row leads to a record: a message waits
//! for memory several times. The reads for several messages do not depend on each other. So they are made for a group of messages
//! at once, one table after the other. With a million sessions this takes a fifth off the time of a Data message (`signalbox bench
//! engine gist`).

use core::hint::black_box;

use signalbox_core::{Mri, NslpId, SessionId};

use super::triple;
use crate::engine::Gist;
use crate::wire::{ObjectType, Objects, mri_parse, strip_magic};

/// Datagrams of one group.
const AT_ONCE: usize = 16;

/// Objects until the session, at most: only a NAT traversal object and the MRI precede it (RFC 5971 §5.1).
const FIRST: usize = 3;

/// With fewer sessions most of the records are in the caches, and it would cost more to look for them
/// twice. Tests have few.
const MANY: u32 = if cfg!(debug_assertions) { 4 } else { 1 << 15 };

impl Gist {
    /// Whether [`Gist::prepare`] is worth its time: the routing state is larger than the caches.
    #[must_use]
    pub const fn is_large(&self) -> bool {
        self.records.len() >= MANY
    }

    /// Reads the routing state of the messages in these UDP payloads, of 16 at most. It changes nothing. It is for a driver that has
    /// received several datagrams: their messages then wait for memory at the same time, and not one after the other.
    pub fn prepare<'a>(&self, payloads: impl Iterator<Item = &'a [u8]>) {
        let mut hashes = [0; AT_ONCE];
        let mut count = 0;
        for (hash, payload) in hashes.iter_mut().zip(payloads) {
            // Any hash does for a datagram without.
            *hash = subject(payload)
                .map_or(0, |(mri, session, nslp)| triple::hash(&self.records.hasher, &mri, session, nslp));
            count += 1;
        }
        let mut rows = [u32::MAX; AT_ONCE];
        for (row, hash) in rows.iter_mut().zip(hashes).take(count) {
            *row = self.records.index.candidates(hash).next().unwrap_or(u32::MAX);
        }
        let mut read = false;
        for (_, record) in rows.iter().filter_map(|row| self.records.slab.entry(*row)) {
            read ^= record.is_read();
        }
        black_box(read);
    }
}

/// Flow, session and application of a message, which is not judged otherwise.
fn subject(payload: &[u8]) -> Option<(Mri, SessionId, NslpId)> {
    let octets = strip_magic(payload)?;
    let nslp = NslpId(u16::from_be_bytes(*octets.get(4..)?.first_chunk()?));
    let mut objects = Objects::of(octets);
    let (mut mri, mut session) = (None, None);
    for _ in 0..FIRST {
        let object = objects.next()?.ok()?;
        match object.kind {
            ObjectType::MRI => mri = Some(mri_parse(object.value).ok()?),
            ObjectType::SESSION_ID => session = Some(SessionId(object.value.try_into().ok()?)),
            _ => {}
        }
        if let (Some(mri), Some(session)) = (mri, session) {
            return Some((mri, session, nslp));
        }
    }
    None
}
