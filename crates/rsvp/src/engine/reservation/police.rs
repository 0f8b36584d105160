//! Where traffic is policed (RFC 2205 §3.8). Each request to admission control has this, and it is updated when
//! reservations at other interfaces change.

use signalbox_core::{Key, invariant};
use signalbox_resources::Policing;

use super::branch::Branch;
use crate::engine::path::E_POLICE;
use crate::engine::session::NONE;
use crate::engine::{Admission, Rsvp, merging};
use crate::wire::Style;

/// Reservations that have to be compared with each other again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PolicingCheck {
    /// The reservations of a sender (FF).
    Sender(Key),
    /// The reservations of a session (shared styles).
    Session(Key),
}

impl Rsvp {
    /// The policing flags of a reservation (RFC 2205 §3.8, §3.11.2).
    pub(super) fn policing(&self, key: Key, branch: &Branch) -> Policing {
        let own = branch.flowspec();
        let exceeds = |other: &Branch| !merging::is_at_least(&own, &other.flowspec());
        if let Some(sender) = self.senders.get_index(branch.sender) {
            return Policing {
                entry: sender.has(E_POLICE),
                merge: false,
                branch: self.branches_of(sender).any(|(other, one)| other != key && exceeds(one)),
            };
        }
        let Some(session) =
            invariant!(self.sessions.key_of(branch.session), "a policed reservation has a session")
        else {
            return Policing::default();
        };
        let all = self.sessions.get(session).is_some_and(|one| one.style == Some(Style::Wf));
        let (mut senders, mut entry, mut uneven) = (0_u32, false, false);
        for (sender, one) in self
            .senders_of(session)
            .filter(|(sender, one)| one.leaves_by(branch.oif) && (all || branch.names(*sender)))
        {
            senders = senders.saturating_add(1);
            entry |= one.has(E_POLICE);
            uneven = uneven
                || self.shared_branches(session).any(|(other, another)| {
                    other != key
                        && one.leaves_by(another.oif)
                        && (all || another.names(sender))
                        && exceeds(another)
                });
        }
        Policing { entry, merge: senders > 1, branch: uneven }
    }

    /// A reservation changes: it has to be compared with those of the same flow at other interfaces.
    pub(in crate::engine) fn queue_policing_check(&mut self, branch: Key) {
        let Some(branch) = invariant!(self.branches.get(branch), "a queued branch stands") else { return };
        if self.sessions.get_index(branch.session).is_none_or(|session| session.reserved <= 1) {
            return;
        }
        let which = if branch.sender == NONE {
            self.sessions.key_of(branch.session).map(PolicingCheck::Session)
        } else {
            self.senders.key_of(branch.sender).map(PolicingCheck::Sender)
        };
        if let Some(which) = which.filter(|which| self.branches.policing_checks.last() != Some(which)) {
            self.branches.policing_checks.push(which);
        }
    }

    /// Updates the policing flags at admission control.
    pub(in crate::engine) fn run_policing_checks(&mut self, resources: &mut dyn Admission) {
        while let Some(which) = self.branches.policing_checks.pop() {
            let list = match which {
                PolicingCheck::Sender(sender) => {
                    self.senders.get(sender).map(|sender| self.branches_of(sender))
                }
                PolicingCheck::Session(session) => Some(self.shared_branches(session)),
            };
            for (key, branch) in list.into_iter().flatten() {
                if let Some(grant) = branch.grant() {
                    resources.police(grant, self.policing(key, branch));
                }
            }
        }
    }
}
