//! The record of a session.

use signalbox_core::Key;
use signalbox_core::stamp::Stamp;

use crate::engine::merging;
use crate::wire::{FlowSpec, SessionKind, Style};

/// Index of no record: the end of a list.
pub(crate) const NONE: u32 = u32::MAX;

/// Next hops from this number on stand for applications of this node, numbered within their session.
pub(crate) const APPLICATIONS: u32 = 1 << 31;

/// Whether a next hop is an application of this node.
pub(crate) const fn is_application(hop: u32) -> bool {
    hop >= APPLICATIONS
}

/// A session. It heads the lists of its senders (path state) and, with a shared style, of its reservations.
#[derive(Debug)]
pub(crate) struct Session {
    /// Destination address, packed.
    pub(crate) dest: u32,
    pub(crate) port: u16,
    pub(crate) protocol: u8,
    pub(crate) kind: SessionKind,
    pub(crate) v6: bool,
    /// Style of the reservations; `None`: there are no reservations.
    pub(crate) style: Option<Style>,
    pub(crate) multicast: bool,
    /// Number of senders.
    pub(crate) count: u16,
    /// First of its senders.
    pub(crate) first: u32,
    /// First of its reservations with a shared style.
    pub(crate) branches: u32,
    /// Number of reservations of any style.
    pub(crate) reserved: u16,
    pub(crate) extra: Option<Box<SessionExtra>>,
}

/// Fields that few sessions need.
#[derive(Debug, Default)]
pub(crate) struct SessionExtra {
    /// Applications that registered the session.
    pub(crate) applications: Vec<u64>,
    /// In the order of their subjects, of which each has one.
    pub(crate) blockades: Vec<Blockade>,
}

/// Subject of a piece of blockade state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Blocked {
    /// A sender (explicit styles).
    Sender(Key),
    /// A previous hop (wildcard style).
    Hop(u32),
}

/// An element of blockade state (RFC 2205 §3.5).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blockade {
    pub(crate) of: Blocked,
    /// The blockaded flowspec Qb (RFC 2205 §3.5).
    pub(crate) flowspec: FlowSpec,
    pub(crate) until: Stamp,
}

impl Session {
    pub(crate) fn applications(&self) -> &[u64] {
        self.extra.as_ref().map_or(&[], |extra| &extra.applications)
    }

    pub(crate) fn extra(&mut self) -> &mut SessionExtra {
        self.extra.get_or_insert_default()
    }

    /// Whether blockade state keeps a request out of the merge for the previous hop of a sender (RFC 2205 §3.5).
    pub(crate) fn is_blockaded(
        &self,
        now: signalbox_core::Time,
        sender: Key,
        hop: u32,
        request: &FlowSpec,
    ) -> bool {
        let Some(extra) = &self.extra else { return false };
        let of = |of| extra.blockades.binary_search_by_key(&of, |one| one.of).ok();
        let found = [Blocked::Sender(sender), Blocked::Hop(hop)].into_iter().filter_map(of);
        found
            .filter_map(|at| extra.blockades.get(at))
            .any(|one| !one.until.is_due(now) && merging::blockades(&one.flowspec, request))
    }

    /// Removes blockade state that ended.
    pub(crate) fn drop_ended_blockades(&mut self, now: signalbox_core::Time) {
        if let Some(extra) = &mut self.extra {
            extra.blockades.retain(|one| !one.until.is_due(now));
        }
    }

    /// Sets blockade state in place of that with the same subject; whether that is new, or was for another flowspec.
    pub(crate) fn blockade(&mut self, new: Blockade) -> bool {
        let list = &mut self.extra().blockades;
        match list.binary_search_by_key(&new.of, |one| one.of) {
            Ok(at) => {
                list.get_mut(at).is_some_and(|one| core::mem::replace(one, new).flowspec != new.flowspec)
            }
            Err(at) => {
                list.insert(at, new);
                true
            }
        }
    }

    /// Removes blockade state with this subject.
    pub(crate) fn unblock(&mut self, of: Blocked) {
        if let Some(extra) = &mut self.extra {
            extra.blockades.retain(|one| one.of != of);
            self.shrink();
        }
    }

    /// Frees the extra fields if they are empty.
    pub(crate) fn shrink(&mut self) {
        if self.extra.as_ref().is_some_and(|e| e.applications.is_empty() && e.blockades.is_empty()) {
            self.extra = None;
        }
    }

    /// Whether the session has no sender, reservation or application.
    pub(crate) fn is_idle(&self) -> bool {
        self.first == NONE && self.reserved == 0 && self.applications().is_empty()
    }
}
