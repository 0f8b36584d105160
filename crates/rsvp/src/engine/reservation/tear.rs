//! Reservations that end: ResvTears that arrive (RFC 2205 §3.1.6; RTEAR MESSAGE ARRIVES of RFC 2209), and senders that
//! end.

use signalbox_core::{Key, invariant};
use signalbox_resources::End;

use crate::engine::interfaces::Iface;
use crate::engine::merging::{Tears, UpstreamChange};
use crate::engine::{Admission, Rsvp};
use crate::wire::{Message, RsvpHop, Style};

impl Rsvp {
    /// Handles a ResvTear (RFC 2205 §3.1.6).
    pub(in crate::engine) fn on_resv_tear(
        &mut self,
        message: &Message<'_>,
        iface: Iface,
        resources: &mut dyn Admission,
    ) {
        let (Some(session), Some(hop), Some(style)) = (message.session, message.hop, message.style) else {
            return;
        };
        let Some(oif) = self.interfaces.of_handle(hop.lih) else {
            self.counters.bad_handle += 1;
            tracing::debug!(%session, peer = %hop.addr, handle = hop.lih, reason = "no such interface handle", "ResvTear dropped");
            return;
        };
        if !self.may_come_by(oif, iface) {
            return self.wrong_interface(message.kind, &session, hop.addr);
        }
        let known = self.find_session(&session);
        let matching =
            known.filter(|key| self.sessions.get(*key).is_some_and(|one| one.style == Some(style)));
        let next = self.hops.find(&RsvpHop { lih: 0, ..hop });
        let (Some(key), Some(next)) = (matching, next) else {
            self.counters.unmatched += 1;
            tracing::debug!(%session, peer = %hop.addr, reason = "no such reservation", "ResvTear dropped");
            return;
        };
        let senders: Vec<Key> = message
            .flows()
            .filter_map(|flow| flow.filter)
            .filter_map(|filter| self.find_sender(key, &filter))
            .collect();
        resources.because(End::TornDown);
        let mut upstream = self.begin_change();
        for object in message.kept() {
            upstream.tear_objects.extend_from_slice(object.octets);
        }
        let ended = match style {
            Style::Ff => {
                let mut ended = false;
                for sender in &senders {
                    let branch = self.find_branch(key, Some(*sender), oif);
                    ended |= branch
                        .is_some_and(|branch| self.release(&mut upstream, key, branch, next, &[], resources));
                }
                ended
            }
            Style::Se | Style::Wf => {
                let branch = self.find_branch(key, None, oif);
                branch
                    .is_some_and(|branch| self.release(&mut upstream, key, branch, next, &senders, resources))
            }
        };
        if ended {
            self.counters.reservations_torn += 1;
            tracing::debug!(%session, peer = %hop.addr, "reservation torn down");
            self.send_upstream(upstream, key, Tears::Send, None);
        } else {
            self.counters.unmatched += 1;
            tracing::debug!(%session, peer = %hop.addr, reason = "no such request", "ResvTear dropped");
            self.recycle_change(upstream);
        }
        self.close_if_idle(key);
    }

    /// Ends the request of a next hop at an interface: with SE for these senders, else all of it. `false`: there was none.
    /// What goes upstream is recorded before, and not sent yet.
    pub(in crate::engine) fn release(
        &mut self,
        upstream: &mut UpstreamChange,
        session: Key,
        branch: Key,
        hop: u32,
        senders: &[Key],
        resources: &mut dyn Admission,
    ) -> bool {
        let style = self.sessions.get(session).and_then(|one| one.style);
        let Some(record) = invariant!(self.branches.get(branch), "a released reservation stands") else {
            return false;
        };
        let Some(request) = record.request(hop) else { return false };
        if style == Some(Style::Se) && !senders.iter().any(|sender| request.names(*sender)) {
            return false;
        }
        self.record_branch(upstream, session, branch);
        let mut whole = true;
        if style == Some(Style::Se)
            && let Some(request) = invariant!(
                self.branches.get_mut(branch).and_then(|one| one.request_mut(hop)),
                "a released request stands"
            )
        {
            let named = &mut request.extra().senders;
            named.retain(|(sender, _)| !senders.contains(sender));
            whole = named.is_empty();
        }
        if whole {
            self.remove_request(branch, hop, resources);
        } else {
            // The MESSAGE_ID stands for the whole message, of which a part ended.
            self.remove_request_id(branch, hop);
        }
        self.reinstall(branch, resources);
        true
    }

    /// Removes the request of a next hop. A reservation ends with its last request.
    pub(in crate::engine) fn remove_request(&mut self, key: Key, hop: u32, resources: &mut dyn Admission) {
        self.remove_request_id(key, hop);
        let Some(branch) = invariant!(self.branches.get_mut(key), "a request has its branch") else { return };
        match branch.remove(hop) {
            Some(request) => self.release_hop(request.hop),
            None => self.remove_branch(key, resources),
        }
    }

    /// A sender ends: reservations for it alone end, shared ones go on without it.
    pub(in crate::engine) fn leave_reservations(
        &mut self,
        session: Key,
        key: Key,
        resources: &mut dyn Admission,
    ) {
        let Some(record) = invariant!(self.sessions.get(session), "a sender has its session") else { return };
        let Some(style) = record.style else { return };
        let Some(sender) = invariant!(self.senders.get(key), "a sender that leaves stands") else { return };
        let branches: Vec<Key> = self.branches_of(sender).map(|(branch, _)| branch).collect();
        let egress: Vec<_> = sender.egress().collect();
        if style != Style::Ff {
            // Its data meet no reservation from now on.
            self.set_egress(key, &[]);
        }
        for branch in branches {
            match style {
                Style::Ff => self.remove_branch(branch, resources),
                Style::Wf => self.without_sender(session, branch, &egress, resources),
                Style::Se => self.without_named(session, branch, key, resources),
            }
        }
    }

    fn without_sender(&mut self, session: Key, key: Key, egress: &[Iface], resources: &mut dyn Admission) {
        let Some(branch) = invariant!(self.branches.get(key), "a reservation that a sender leaves stands")
        else {
            return;
        };
        if !egress.contains(&branch.oif) {
            return;
        }
        if self.has_senders(session, branch) {
            self.reinstall(key, resources);
        } else {
            self.remove_branch(key, resources);
        }
    }

    fn without_named(&mut self, session: Key, key: Key, sender: Key, resources: &mut dyn Admission) {
        let Some(branch) = invariant!(self.branches.get_mut(key), "a shared branch stands") else { return };
        let mut ended: Vec<u32> = Vec::new();
        let mut named = false;
        for request in branch.requests_mut() {
            let hop = request.hop;
            if let Some(extra) = &mut request.extra {
                let before = extra.senders.len();
                extra.senders.retain(|(one, _)| *one != sender);
                named |= extra.senders.len() < before;
                if extra.senders.is_empty() {
                    ended.push(hop);
                }
            }
        }
        if !named {
            return;
        }
        // The MESSAGE_IDs of these requests stand for messages that name the sender.
        let hops: Vec<u32> = self
            .branches
            .get(key)
            .map(|one| one.requests().map(|request| request.hop).collect())
            .unwrap_or_default();
        for hop in hops {
            self.remove_request_id(key, hop);
        }
        for hop in ended {
            self.remove_request(key, hop, resources);
        }
        // It ended if all its requests did.
        let Some(branch) = self.branches.get(key) else { return };
        if self.has_senders(session, branch) {
            self.reinstall(key, resources);
        }
    }

    /// The reservation of an application of this node, if there is one.
    pub(in crate::engine) fn local_branch(&self, session: Key, sender: Option<Key>, hop: u32) -> Option<Key> {
        let key = self.find_branch(session, sender, Iface::LOCAL)?;
        self.branches.get(key)?.request(hop).map(|_| key)
    }
}
