//! What sessions keep of messages as it came: QSPECs and other objects (RFC 5974 §5.1.3), which a peer may make long.
//!
//! A session keeps [`FREE`] octets in any case, so that the limit of sessions limits them. Longer contents have a limit for all sessions
//! together, and sources have shares of it, so that a peer which sends long objects leaves room to those of others.
//!
//! A QSPEC cannot be cut instead: this node must forward and repeat the parameters that it does not know (RFC 5975 §4.2.1).

use signalbox_core::slab::Key;

use super::Qos;
use super::holders::Holder;
use super::session::Session;
use crate::wire::{Carried, Message, MessageType};

/// Octets that a session, or a message that waits for another one, keeps without using the share of its source.
const FREE: usize = 512;

/// The octets that count.
pub(super) fn counted(octets: usize) -> u32 {
    u32::try_from(octets.saturating_sub(FREE)).unwrap_or(u32::MAX)
}

fn length(objects: &Carried<'_>) -> usize {
    objects.iter().map(|object| object.octets.len()).sum()
}

impl Session {
    fn kept_octets(&self) -> usize {
        let pending: usize = self.pending.iter().map(|pending| pending.octets.len()).sum();
        let objects = self.rare.bound.len() + self.rare.auth.len() + self.rare.refreshed.len();
        self.qspec.len() + self.init_qspec().len() + objects + pending
    }
}

impl Qos {
    /// Whether there is room for what a session keeps of a RESERVE or QUERY: a new session of this holder, or a known one in the place
    /// of what it has.
    pub(super) fn has_room(&mut self, key: Option<Key>, holder: Holder, message: &Message<'_>) -> bool {
        let objects = length(&message.bound_sessions) + length(&message.auth) + length(&message.refreshed);
        let session = key.and_then(|key| self.sessions.get(key));
        // A RESERVE leaves the QSPEC of the last QUERY, and a QUERY that of the last RESERVE.
        let stays = session.map_or(0, |session| match message.kind {
            MessageType::QUERY => session.qspec.len(),
            _ => session.init_qspec().len(),
        });
        let octets = counted(objects + stays + message.qspec.map_or(0, <[u8]>::len));
        let (holder, has) =
            session.map_or((holder, 0), |session| (session.source.holder, session.rare.contents));
        // Most messages are short.
        if octets <= has || self.holders.has_room(holder, octets - has) {
            return true;
        }
        self.counters.contents_full += 1;
        tracing::debug!(octets, reason = "no room for long objects", "message refused");
        false
    }

    /// Counts what a session keeps now.
    pub(super) fn count_contents(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return }; // timers are armed after the end, too
        let octets = counted(session.kept_octets());
        let before = session.rare.contents;
        if octets != before {
            self.holders.keep(session.source.holder, before, octets);
            session.rare.change(|rare| rare.contents = octets);
        }
    }
}
