//! The table of reservations: how they are found, entered and removed, and the lists that connect them.

use signalbox_core::slab::Slab;
use signalbox_core::{Key, invariant};

use super::Branches;
use super::branch::{Branch, Request};
use crate::engine::interfaces::Iface;
use crate::engine::path::Sender;
use crate::engine::session::{NONE, Refusal};
use crate::engine::{Admission, Rsvp};
use crate::wire::Style;

/// Iterator over a list of reservations.
pub(in crate::engine) struct BranchList<'a> {
    branches: &'a Slab<Branch>,
    next: u32,
}

impl<'a> Iterator for BranchList<'a> {
    type Item = (Key, &'a Branch);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, branch) = self.branches.entry(self.next)?;
        self.next = branch.next;
        Some((key, branch))
    }
}

impl Branches {
    /// A list of reservations, from its first one on.
    fn list(&self, first: u32) -> BranchList<'_> {
        BranchList { branches: &self.slab, next: first }
    }
}

impl Rsvp {
    /// The reservations that may be for a sender: its own with FF, else those of the session.
    pub(in crate::engine) fn branches_of(&self, sender: &Sender) -> BranchList<'_> {
        let session = self.sessions.get_index(sender.session);
        let next = match session.and_then(|session| session.style.map(|style| (style, session.branches))) {
            Some((Style::Ff, _)) => sender.branches,
            Some((_, shared)) => shared,
            None => NONE,
        };
        self.branches.list(next)
    }

    /// The reservations of a session with a shared style.
    pub(in crate::engine) fn shared_branches(&self, session: Key) -> BranchList<'_> {
        self.branches.list(self.sessions.get(session).map_or(NONE, |one| one.branches))
    }

    /// The reservation at an interface: of a sender with FF, of the session otherwise.
    pub(in crate::engine) fn find_branch(
        &self,
        session: Key,
        sender: Option<Key>,
        oif: Iface,
    ) -> Option<Key> {
        let next = match sender {
            Some(sender) => self.senders.get(sender)?.branches,
            None => self.sessions.get(session)?.branches,
        };
        self.branches.list(next).find(|(_, branch)| branch.oif == oif).map(|(key, _)| key)
    }

    /// Creates a reservation with the request of one next hop.
    pub(super) fn open_branch(
        &mut self,
        session: Key,
        sender: Option<Key>,
        oif: Iface,
        request: Request,
        style: Style,
    ) -> Result<Key, Refusal> {
        if self.sessions.get(session).is_none_or(|record| record.reserved == u16::MAX) {
            self.counters.reservations_full += 1;
            return Err(Refusal::Full);
        }
        if !self.take_reservation(oif) {
            self.counters.reservations_full += 1;
            return Err(Refusal::Full);
        }
        let mut branch =
            Branch::new(session.index(), sender.map_or(NONE, |sender| sender.index()), oif, request);
        let head = match sender {
            Some(sender) => self.senders.get(sender).map(|one| one.branches),
            None => self.sessions.get(session).map(|one| one.branches),
        };
        branch.next = head.unwrap_or(NONE);
        let Ok(key) = self.branches.slab.insert(branch) else {
            self.give_reservation_back(oif);
            self.counters.reservations_full += 1;
            tracing::debug!(session = %self.logged(session), reason = "table of reservations full", "reservation not created");
            return Err(Refusal::Full);
        };
        self.note_changed(session);
        if let Some(of) = sender
            && let Some(of) =
                invariant!(self.senders.get_mut(of), "a reservation is made for a sender that stands")
        {
            of.branches = key.index();
        }
        if let Some(record) =
            invariant!(self.sessions.get_mut(session), "a reservation is made in a session that stands")
        {
            if sender.is_none() {
                record.branches = key.index();
            }
            record.reserved = record.reserved.saturating_add(1);
            record.style = Some(style);
        }
        Ok(key)
    }

    /// Removes a reservation with all its requests and releases its grant.
    pub(super) fn remove_branch(&mut self, key: Key, resources: &mut dyn Admission) {
        self.queue_policing_check(key);
        let Some(branch) = invariant!(self.branches.get(key), "a branch is removed once") else { return };
        let (session, sender, next) = (branch.session, branch.sender, branch.next);
        let oif = branch.oif;
        if let Some(grant) = branch.grant() {
            resources.release(grant);
        }
        let hops: Vec<u32> = branch.requests().map(|request| request.hop).collect();
        for hop in hops {
            self.remove_request_id(key, hop);
            self.release_hop(hop);
        }
        let head = if sender == NONE {
            self.sessions.get_index_mut(session).map(|one| &mut one.branches)
        } else {
            self.senders.get_index_mut(sender).map(|one| &mut one.branches)
        };
        match invariant!(head, "a reservation ends before its sender and its session") {
            Some(head) if *head == key.index() => *head = next,
            Some(head) => {
                let mut at = *head;
                while let Some(one) = self.branches.slab.get_index_mut(at) {
                    if one.next == key.index() {
                        one.next = next;
                        break;
                    }
                    at = one.next;
                }
            }
            None => {}
        }
        self.branches.disarm(key);
        self.branches.slab.remove(key);
        self.give_reservation_back(oif);
        if let Some(record) =
            invariant!(self.sessions.get_index_mut(session), "a reservation ends before its session")
        {
            record.reserved = record.reserved.saturating_sub(1);
            if record.reserved == 0 {
                record.style = None;
            }
        }
        if let Some(session) =
            invariant!(self.sessions.key_of(session), "a session stands while its reservation ends")
        {
            self.note_changed(session);
        }
    }
}
