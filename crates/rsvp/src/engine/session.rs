//! The record of a session.

use signalbox_core::Key;
use signalbox_core::stamp::Stamp;

use super::merge;
use crate::wire::{FlowSpec, SessionKind, Style};

/// No record, end of a list.
pub(crate) const NONE: u32 = u32::MAX;

/// Next hops from this number on are applications of this node, numbered within their session.
pub(crate) const APPLICATIONS: u32 = 1 << 31;

/// Whether a next hop is an application of this node.
pub(crate) const fn is_application(hop: u32) -> bool {
    hop >= APPLICATIONS
}

/// A session: its senders (path state) and, of shared styles, its reservations hang on it.
#[derive(Debug)]
pub(crate) struct Session {
    /// Destination, packed.
    pub(crate) dest: u32,
    pub(crate) port: u16,
    pub(crate) protocol: u8,
    pub(crate) kind: SessionKind,
    pub(crate) v6: bool,
    /// Of the reservations in iface; `None`: there are none.
    pub(crate) style: Option<Style>,
    pub(crate) multicast: bool,
    /// Senders.
    pub(crate) count: u16,
    /// First of its senders.
    pub(crate) first: u32,
    /// First of its reservations, of a shared style.
    pub(crate) branches: u32,
    /// Reservations, of any style.
    pub(crate) reserved: u16,
    pub(crate) extra: Option<Box<SessionExtra>>,
}

/// What few sessions have.
#[derive(Debug, Default)]
pub(crate) struct SessionExtra {
    /// Applications that registered it.
    pub(crate) applications: Vec<u64>,
    pub(crate) blockades: Vec<Blockade>,
}

/// What a piece of blockade state is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Qb.
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

    /// Whether a blockade keeps `request` out of what goes to a sender's previous hop now.
    pub(crate) fn is_blockaded(
        &self,
        now: signalbox_core::Time,
        sender: Key,
        hop: u32,
        request: &FlowSpec,
    ) -> bool {
        let Some(extra) = &self.extra else { return false };
        extra.blockades.iter().any(|one| {
            (one.of == Blocked::Sender(sender) || one.of == Blocked::Hop(hop))
                && !one.until.is_due(now)
                && merge::blockades(&one.flowspec, request)
        })
    }

    /// Sets a blockade anew.
    pub(crate) fn blockade(&mut self, now: signalbox_core::Time, new: Blockade) {
        let list = &mut self.extra().blockades;
        list.retain(|one| one.of != new.of && !one.until.is_due(now));
        list.push(new);
    }

    /// Forgets blockades of a sender that is gone.
    pub(crate) fn unblock(&mut self, of: Blocked) {
        if let Some(extra) = &mut self.extra {
            extra.blockades.retain(|one| one.of != of);
            self.shrink();
        }
    }

    /// Gives back what is empty.
    pub(crate) fn shrink(&mut self) {
        if self.extra.as_ref().is_some_and(|e| e.applications.is_empty() && e.blockades.is_empty()) {
            self.extra = None;
        }
    }

    /// Nobody needs it any more.
    pub(crate) fn is_idle(&self) -> bool {
        self.first == NONE && self.reserved == 0 && self.applications().is_empty()
    }
}
