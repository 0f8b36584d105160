//! Messages without state that wait for their next hop: for its discovery, and for a connection.
//!
//! They have as many places as discoveries have. A quarter is for nodes that have few of them, and their octets count as those of
//! other messages that wait.

use core::net::IpAddr;

use signalbox_core::index::KeyedHasher;
use signalbox_core::shares::Shares;
use signalbox_core::{Key, SessionId, Slab};
use tracing::field::{DisplayValue, display};

use super::Casp;
use super::search::Answer;
use super::trace::session_of;
use crate::wire::ClientType;

/// A message that waits, without Length Header and cookie, and without the entry of this node.
#[derive(Debug)]
pub(super) struct Unsent {
    pub(super) octets: Vec<u8>,
    /// The node that sent the message here, or the client of this node, whose share it takes.
    owner: IpAddr,
    /// The client of this node that is informed if the message cannot be sent.
    pub(super) client: Option<ClientType>,
    /// Where data of the flow go: another answer of the discovery is tried if the first one cannot be reached.
    pub(super) dst: IpAddr,
    /// The next hop that was found.
    pub(super) answer: Option<Answer>,
    /// Another next hop was tried already.
    pub(super) retried: bool,
}

/// All messages that wait.
#[derive(Debug)]
pub(super) struct Pending {
    slab: Slab<Unsent>,
    by_owner: Shares<IpAddr>,
}

impl Pending {
    /// No message, and at most `limit` of them.
    pub(super) fn new(limit: u32, hasher: KeyedHasher) -> Self {
        Self { slab: Slab::new(limit), by_owner: Shares::new(limit, hasher) }
    }

    /// Has at most `limit` messages from now on. Those that are there stay.
    pub(super) const fn set_limit(&mut self, limit: u32) {
        self.slab.set_limit(limit);
        self.by_owner.set_limit(limit);
    }

    pub(super) const fn len(&self) -> u32 {
        self.slab.len()
    }

    pub(super) const fn limit(&self) -> u32 {
        self.slab.limit()
    }

    /// The session of a message for the log.
    pub(super) fn session_of(&self, key: Key) -> Option<DisplayValue<SessionId>> {
        self.slab.get(key).and_then(|unsent| session_of(&unsent.octets))
    }

    /// The next hop of a message for the log, or where its data go as long as no next hop is known.
    pub(super) fn towards(&self, key: Key) -> Option<DisplayValue<IpAddr>> {
        let unsent = self.slab.get(key)?;
        Some(display(unsent.answer.map_or(unsent.dst, |answer| answer.address)))
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Unsent> {
        self.slab.get_mut(key)
    }
}

impl Casp {
    /// Keeps a message until its next hop is known. `None`: too many messages wait.
    pub(super) fn keep_pending(
        &mut self,
        owner: IpAddr,
        octets: &[u8],
        client: Option<ClientType>,
        dst: IpAddr,
    ) -> Option<Key> {
        let count = u32::try_from(octets.len()).unwrap_or(u32::MAX);
        let Pending { slab, by_owner } = &mut self.pending;
        let fits = slab.len() < slab.limit() && by_owner.check(&owner, 1).is_ok();
        if !fits || self.waiting_octets.take_many(owner, count).is_err() {
            self.counters.stateless_full += 1;
            tracing::debug!(session = session_of(octets), source = %owner, reason = "too many messages without state wait", "message not sent");
            return None;
        }
        by_owner.hold(owner);
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(octets);
        slab.insert(Unsent { octets: kept, owner, client, dst, answer: None, retried: false }).ok()
    }

    /// Removes a message that waits.
    pub(super) fn drop_pending(&mut self, key: Key) -> Option<Unsent> {
        let unsent = self.pending.slab.remove(key)?;
        self.pending.by_owner.release(unsent.owner);
        let count = u32::try_from(unsent.octets.len()).unwrap_or(u32::MAX);
        self.waiting_octets.release_many(unsent.owner, count);
        Some(unsent)
    }
}
