//! What previous hops still have while data are on their way to another route.
//!
//! When the data of a sender leave by another interface, no reservation meets them until the Resv of the next hop there
//! arrives. No ResvTear goes upstream meanwhile (RFC 2205 §3.6), so the previous hop keeps the request. If the new one is the
//! same, nothing that a message contains has changed for the previous hop, and the next refresh is enough (RFC 2205 §2.3).

use std::collections::BTreeMap;

use signalbox_core::{Key, invariant};

use crate::engine::Rsvp;
use crate::engine::path::{PROTECTED, RESV, STANDBY};
use crate::engine::session::NONE;
use crate::wire::{FlowSpec, Style};

/// The flowspec that the previous hop of a sender was sent last, for senders that no reservation meets any more. There is
/// at most one for each sender. It ends with the next refresh.
#[derive(Debug, Default)]
pub(super) struct Withheld(BTreeMap<Key, FlowSpec>);

impl Withheld {
    pub(in crate::engine) fn get(&self, sender: Key) -> Option<FlowSpec> {
        self.0.get(&sender).copied()
    }

    pub(in crate::engine) fn remove(&mut self, sender: Key) {
        self.0.remove(&sender);
    }

    /// Removes all: a neighbor may have lost its state.
    pub(in crate::engine) fn clear(&mut self) {
        self.0.clear();
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Rsvp {
    /// Stores what the previous hop of a sender still has after a change that no ResvTear reports. `sent`: the flowspec that
    /// it was sent; `None`: it has nothing, or will be sent a Resv.
    ///
    /// Only FF: a Resv of a shared style names other senders, too. A request with POLICY_DATA or a standby copy is sent again,
    /// because more than its flowspec counts.
    pub(super) fn withhold(&mut self, key: Key, style: Style, sent: Option<FlowSpec>) {
        let kept = sent.filter(|_| {
            style == Style::Ff
                && self.senders.get(key).is_some_and(|sender| {
                    let plain = !sender.has(PROTECTED | STANDBY)
                        && !self.branches_of(sender).any(|(_, branch)| branch.carries());
                    plain && sender.hop != NONE && self.is_refreshed(key, sender.session, sender.hop)
                })
        });
        match kept {
            Some(flowspec) => {
                self.merging.withheld.0.insert(key, flowspec);
            }
            None => self.merging.withheld.remove(key),
        }
    }

    /// Whether the refresh timer of the previous hop of a sender runs.
    fn is_refreshed(&self, key: Key, session: u32, hop: u32) -> bool {
        let Some(session) =
            invariant!(self.sessions.key_of(session), "a withheld request is that of a session")
        else {
            return false;
        };
        let keeper = self.refresh_keeper(session, hop, key);
        self.senders.get(keeper).is_some_and(|sender| sender.has(RESV))
    }

    /// A refresh to a previous hop is due. What it does not contain will end there.
    pub(in crate::engine) fn refresh_without_withheld(&mut self, session: Key, hop: u32) {
        if self.merging.withheld.is_empty() {
            return;
        }
        let gone: Vec<Key> =
            self.senders_of(session).filter(|(_, sender)| sender.hop == hop).map(|(key, _)| key).collect();
        gone.into_iter().for_each(|key| self.merging.withheld.remove(key));
    }
}
