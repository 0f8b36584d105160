//! Merging (RFC 2205 §2.2, §3.11.6): what goes upstream for the requests of all next hops, and when.
//!
//! [`Merging`] owns what previous hops still have after a change of routes, and the lists of the change that is under way.
//!
//! * `merge`: comparing and merging flowspecs.
//! * `forward`: what goes to each previous hop, and what a change makes go at once.
//! * `withheld`: requests that previous hops keep while data are on their way to another route (§3.6).

mod forward;
mod merge;
mod withheld;

use signalbox_core::Key;

use crate::wire::FlowSpec;

pub(in crate::engine) use forward::{AT_ONCE, Confirm, Tears, UpstreamChange};
pub(in crate::engine) use merge::{blockades, compare, exceeds, is_at_least, merged};

use forward::SenderChange;
use withheld::Withheld;

/// What merging stores. Both lists are allocations that are used again and hold no facts: who takes one clears it first.
#[derive(Debug, Default)]
pub(in crate::engine) struct Merging {
    withheld: Withheld,
    /// Entries of an [`UpstreamChange`].
    changes: Vec<SenderChange>,
    /// Senders of one previous hop with the flowspec of each, for a Resv.
    flows: Vec<(Key, FlowSpec)>,
}

impl Merging {
    /// Drops what is withheld of a sender: it ends, or another previous hop takes its place.
    pub(in crate::engine) fn end_withheld(&mut self, sender: Key) {
        self.withheld.remove(sender);
    }

    /// A neighbor may have lost its state: no previous hop is known to have a request.
    pub(in crate::engine) fn end_all_withheld(&mut self) {
        self.withheld.clear();
    }

    /// Whether no request is withheld.
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.withheld.is_empty()
    }

    /// Takes the list of [`Rsvp::resv_contents`](crate::engine::Rsvp::resv_contents) back.
    pub(in crate::engine) fn give_back(&mut self, flows: Vec<(Key, FlowSpec)>) {
        self.flows = flows;
    }
}
