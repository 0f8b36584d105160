//! What goes upstream for each sender, and what a change makes go upstream at once (RESV REFRESH of RFC 2209).
//!
//! Code that changes reservation state first records what each previous hop was sent until now (an [`UpstreamChange`]).
//! After the change [`Rsvp::send_upstream`] sends the differences. A change therefore travels as far as it changes
//! anything, and no farther (RFC 2205 §2.3).

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::stamp::Stamp;
use signalbox_core::{Key, invariant};

use super::merge;
use crate::engine::Rsvp;
use crate::engine::interfaces::Iface;
use crate::engine::io::RsvpEvent;
use crate::engine::output::Stage;
use crate::engine::path::{LOCAL, RESV, Sender, policy_in};
use crate::engine::session::NONE;
use crate::wire::{FlowSpec, Style};

/// Previous hops that get a Resv at once after a change. The others follow in parts, so that one message does not cause a burst of
/// any size. A RESV_CONFIRM goes to the first ones only: no confirmation is guaranteed (RFC 2205 §2.6).
pub(in crate::engine) const AT_ONCE: usize = 64;
/// Time between two parts.
const PAUSE: Duration = Duration::from_millis(20);

/// The flowspec that goes to the previous hop of one sender, before and after a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct SenderChange {
    sender: Key,
    /// The previous hop, shared; [`NONE`]: the sender is an application of this node.
    hop: u32,
    before: Option<FlowSpec>,
    after: Option<FlowSpec>,
    /// What the previous hop has: `before`, or what it was sent before the data left by another route.
    sent: Option<FlowSpec>,
    /// The request that asked for a confirmation is for this sender.
    confirm: bool,
    /// A Resv goes to the previous hop even if both flowspecs are equal.
    forced: bool,
}

/// What went upstream before a change of reservation state: recorded before it, compared and sent after it.
///
/// It is a value that the functions of one change pass on. Its list borrows an allocation of the engine, which
/// [`Rsvp::send_upstream`] or [`Rsvp::recycle_change`] gives back.
#[derive(Debug, Default)]
pub(in crate::engine) struct UpstreamChange {
    entries: Vec<SenderChange>,
    /// The session's style when the entries were recorded: ResvTears need it after the last reservation is gone.
    style: Option<Style>,
    /// Unknown objects of the ResvTear that causes the change; the ResvTears that it causes carry them on.
    pub(in crate::engine) tear_objects: Vec<u8>,
}

impl UpstreamChange {
    /// Marks a sender as one that the confirmed request is for. Most often it was recorded last.
    pub(in crate::engine) fn confirm(&mut self, sender: Key) {
        if let Some(entry) = self.entries.iter_mut().rfind(|entry| entry.sender == sender) {
            entry.confirm = true;
        }
    }

    /// Marks all senders of a list in ascending order as those that the confirmed request is for.
    pub(in crate::engine) fn confirm_all(&mut self, senders: &[Key]) {
        for entry in &mut self.entries {
            entry.confirm |= senders.binary_search(&entry.sender).is_ok();
        }
    }

    /// A Resv goes to the previous hop of `sender`, or of all senders, even if no flowspec differs.
    pub(in crate::engine) fn force(&mut self, sender: Option<Key>) {
        for entry in self.entries.iter_mut().filter(|entry| sender.is_none_or(|one| one == entry.sender)) {
            entry.forced = true;
        }
    }

    /// The sender has another previous hop now, which gets a Resv in any case.
    pub(in crate::engine) fn redirect(&mut self, sender: Key, hop: Option<u32>) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.sender == sender) {
            entry.hop = hop.unwrap_or(entry.hop);
            entry.forced = true;
        }
    }
}

/// A confirmation that a receiver waits for (RESV_CONFIRM, RFC 2205 §3.1.9).
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct Confirm {
    /// The receiver.
    pub(in crate::engine) receiver: IpAddr,
    /// Interface of the request.
    pub(in crate::engine) oif: Iface,
    /// The next hop, or application of this node, that requested it.
    pub(in crate::engine) hop: u32,
}

/// Whether a change may cause ResvTears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Tears {
    /// ResvTears go to previous hops whose reservation is gone.
    Send,
    /// No ResvTear is sent: the reservation may come back by another route.
    Withhold,
}

impl Rsvp {
    /// The flowspec that goes to the previous hop of a sender: the merge of the reservations that its data meet,
    /// without those that are blockaded; if all are blockaded, their greatest lower bound, or nothing with `barred`
    /// (RFC 2205 §3.5).
    pub(in crate::engine) fn forwarded(&self, key: Key, sender: &Sender, barred: bool) -> Option<FlowSpec> {
        let session =
            invariant!(self.sessions.get_index(sender.session), "a sender is in a session that stands")?;
        if session.reserved == 0 {
            return None;
        }
        if session.extra.is_none() && session.style == Some(Style::Ff) {
            // There is no blockade state and no application of this node.
            let met = self.branches_of(sender).filter(|(_, branch)| sender.leaves_by(branch.oif));
            return met.map(|(_, branch)| branch.forwarded()).reduce(|a, b| merge::merged(&a, &b));
        }
        let explicit = session.style == Some(Style::Se);
        // No next hop requests the data of a sender that is in no SCOPE (RFC 2205 §3.4).
        let mut in_scope = session.style != Some(Style::Wf) || !self.config.source_trees;
        let (mut open, mut least): (Option<FlowSpec>, Option<FlowSpec>) = (None, None);
        for (_, branch) in self.branches_of(sender) {
            if !sender.leaves_by(branch.oif) || explicit && !branch.names(key) {
                continue;
            }
            in_scope = in_scope || branch.is_for(sender.src);
            let blocked = |flowspec: &FlowSpec| session.is_blockaded(self.now, key, sender.hop, flowspec);
            let mut take = |flowspec: FlowSpec, blocked: bool| {
                if blocked {
                    least = Some(least.map_or(flowspec, |least| merge::lower_bound(&least, &flowspec)));
                } else {
                    open = Some(open.map_or(flowspec, |open| merge::merged(&open, &flowspec)));
                }
            };
            if branch.oif.is_real() {
                take(branch.forwarded(), session.extra.is_some() && blocked(&branch.flowspec()));
            } else {
                // Applications of this node share no grant: each request is blockaded by itself.
                for request in branch.requests().filter(|one| !explicit || one.names(key)) {
                    take(*request.flowspec, blocked(&request.flowspec));
                }
            }
        }
        open.or(least.filter(|_| !barred)).filter(|_| in_scope)
    }

    /// An empty record of a change; its list uses an allocation that was returned before.
    pub(in crate::engine) fn begin_change(&mut self) -> UpstreamChange {
        UpstreamChange { entries: core::mem::take(&mut self.merging.changes), ..UpstreamChange::default() }
    }

    /// Ends a change of which nothing is sent.
    pub(in crate::engine) fn recycle_change(&mut self, change: UpstreamChange) {
        let mut entries = change.entries;
        if entries.capacity() > self.merging.changes.capacity() {
            entries.clear();
            self.merging.changes = entries;
        }
    }

    /// Records what goes upstream for one sender.
    pub(in crate::engine) fn record_sender(&self, change: &mut UpstreamChange, key: Key) {
        if change.entries.iter().any(|entry| entry.sender == key) {
            return;
        }
        let Some(sender) = invariant!(self.senders.get(key), "a recorded sender stands") else { return };
        let style = self.sessions.get_index(sender.session).and_then(|session| session.style);
        change.style = style.or(change.style);
        change.entries.push(self.upstream_of(key, sender));
    }

    /// Records what goes upstream for all senders of a session.
    pub(in crate::engine) fn record_session(&self, change: &mut UpstreamChange, session: Key) {
        change.style = self.sessions.get(session).and_then(|one| one.style);
        change.entries.extend(self.senders_of(session).map(|(key, sender)| self.upstream_of(key, sender)));
    }

    fn upstream_of(&self, key: Key, sender: &Sender) -> SenderChange {
        let before = self.forwarded(key, sender, false);
        SenderChange {
            sender: key,
            hop: if sender.has(LOCAL) { NONE } else { sender.hop },
            before,
            after: None,
            sent: before.or_else(|| self.merging.withheld.get(key)),
            confirm: false,
            forced: false,
        }
    }

    /// Records what goes upstream for all senders that a reservation may concern.
    pub(in crate::engine) fn record_branch(&self, change: &mut UpstreamChange, session: Key, key: Key) {
        let Some(branch) = invariant!(self.branches.get(key), "a recorded reservation stands") else {
            return;
        };
        if branch.sender == NONE {
            self.record_session(change, session);
        } else if let Some(sender) =
            invariant!(self.senders.key_of(branch.sender), "a recorded reservation ends before its sender")
        {
            self.record_sender(change, sender);
        }
    }

    /// Records what goes upstream when a sender changes: for the sender alone, with shared styles for all of the session.
    /// `None`: nothing is reserved in the session.
    pub(in crate::engine) fn change_of_sender(
        &mut self,
        session: Key,
        sender: Key,
    ) -> Option<UpstreamChange> {
        let record = self.sessions.get(session).filter(|one| one.reserved > 0)?;
        let shared = record.style.is_some_and(|style| style != Style::Ff);
        let mut change = self.begin_change();
        if shared {
            self.record_session(&mut change, session);
        } else {
            self.record_sender(&mut change, sender);
        }
        Some(change)
    }

    /// Sends previous hops, and reports to senders of this node, what differs from the record.
    pub(in crate::engine) fn send_upstream(
        &mut self,
        mut change: UpstreamChange,
        session: Key,
        tears: Tears,
        confirm: Option<Confirm>,
    ) {
        for entry in &mut change.entries {
            let sender = self.senders.get(entry.sender);
            entry.after = sender.and_then(|sender| self.forwarded(entry.sender, sender, false));
        }
        if change.entries.len() > 1 {
            change.entries.sort_by_key(|entry| entry.hop);
        }
        if let Some(style) = self.sessions.get(session).and_then(|one| one.style).or(change.style) {
            let mut confirmed = Vec::new();
            for (place, group) in change.entries.chunk_by(|a, b| a.hop == b.hop).enumerate() {
                let tear_objects = (tears == Tears::Send).then_some(&*change.tear_objects);
                confirmed.extend(self.update_hop(session, style, (group, place), tear_objects, confirm));
            }
            if let Some(asked) = &confirm {
                self.send_confirmations(session, style, asked, &confirmed);
            }
            if tears == Tears::Withhold || !self.merging.withheld.is_empty() {
                for entry in &change.entries {
                    let held = tears == Tears::Withhold && entry.after.is_none() && !entry.forced;
                    self.withhold(entry.sender, style, entry.sent.filter(|_| held));
                }
            }
        }
        self.recycle_change(change);
    }

    /// Sends one previous hop what differs for its senders. `place`: its number among those of the change. `tear_objects`: what ResvTears carry; `None`: no ResvTear may
    /// be sent. Returns the senders that this node confirms.
    fn update_hop(
        &mut self,
        session: Key,
        style: Style,
        (group, place): (&[SenderChange], usize),
        tear_objects: Option<&[u8]>,
        confirm: Option<Confirm>,
    ) -> Vec<Key> {
        let Some(first) = group.first() else { return Vec::new() };
        let confirmed = confirm.map(|confirm| self.split_confirm(&confirm, group));
        if first.hop == NONE {
            self.report_reservations(style, group);
        } else if style == Style::Ff {
            let up = confirmed.as_ref().map_or(&[][..], |(up, _)| up);
            self.update_hop_ff(session, (group, place), tear_objects, up, confirm);
        } else {
            let up = confirmed.as_ref().is_some_and(|(up, _)| !up.is_empty());
            self.update_hop_shared(session, style, (group, place), tear_objects, confirm.filter(|_| up));
        }
        confirmed.map(|(_, here)| here).unwrap_or_default()
    }

    /// FF: sends the flow descriptors that differ. Those of the senders `up` go in a message of their own, with the
    /// RESV_CONFIRM.
    fn update_hop_ff(
        &mut self,
        session: Key,
        (group, place): (&[SenderChange], usize),
        tear_objects: Option<&[u8]>,
        up: &[Key],
        confirm: Option<Confirm>,
    ) {
        let Some(first) = group.first() else { return };
        if let Some(objects) = tear_objects.filter(|_| group.iter().any(|entry| entry.after.is_none())) {
            let gone = group.iter().filter(|entry| entry.after.is_none() && entry.before.is_some());
            self.send_resv_tear(session, first.hop, Style::Ff, gone.map(|entry| entry.sender), objects);
        }
        let mut flows = core::mem::take(&mut self.merging.flows);
        let flow = |entry: &SenderChange| Some((entry.sender, entry.after?));
        let changed = |entry: &&SenderChange| entry.after != entry.sent || entry.forced;
        let plain = group.iter().filter(|entry| changed(entry) && !up.contains(&entry.sender));
        flows.clear();
        flows.extend(plain.filter_map(flow));
        let one = flows.first().map(|(sender, _)| *sender).or(up.first().copied());
        if let Some(sender) = one.filter(|_| place >= AT_ONCE) {
            self.merging.flows = flows;
            return self.send_resv_soon(session, first.hop, sender, place);
        }
        self.send_resv(session, first.hop, Style::Ff, &flows, None);
        if !up.is_empty() {
            flows.clear();
            flows.extend(group.iter().filter(|entry| up.contains(&entry.sender)).filter_map(flow));
            let receiver = confirm.map(|confirm| confirm.receiver);
            self.send_resv(session, first.hop, Style::Ff, &flows, receiver);
        }
        self.merging.flows = flows;
    }

    /// SE and WF: a Resv names all senders of the previous hop; `confirm`: the confirmation that it asks for.
    fn update_hop_shared(
        &mut self,
        session: Key,
        style: Style,
        (group, place): (&[SenderChange], usize),
        tear_objects: Option<&[u8]>,
        confirm: Option<Confirm>,
    ) {
        let Some(first) = group.first() else { return };
        let merge = |of: fn(&SenderChange) -> Option<FlowSpec>| {
            group.iter().filter_map(of).reduce(|a, b| merge::merged(&a, &b))
        };
        let (before, after) = (merge(|entry| entry.before), merge(|entry| entry.after));
        let gone = group.iter().filter(|entry| entry.after.is_none() && entry.before.is_some());
        // With WF one ResvTear ends all; a part of it ends by the next SCOPE.
        if let Some(objects) = tear_objects.filter(|_| after.is_none() || style == Style::Se) {
            self.send_resv_tear(session, first.hop, style, gone.map(|entry| entry.sender), objects);
        }
        let joined = group.iter().any(|entry| entry.after.is_some() && entry.before.is_none());
        let forced = group.iter().any(|entry| entry.forced);
        if after.is_some() && (after != before || joined || forced || confirm.is_some()) {
            if place >= AT_ONCE {
                return self.send_resv_soon(session, first.hop, first.sender, place);
            }
            let flows = self.resv_contents(session, first.hop);
            self.send_resv(session, first.hop, style, &flows, confirm.map(|confirm| confirm.receiver));
            self.merging.flows = flows;
        }
    }

    /// Sends a previous hop a Resv in the part of its place among those that a change concerns, together with the changes until
    /// then.
    pub(in crate::engine) fn send_resv_soon(&mut self, session: Key, hop: u32, sender: Key, place: usize) {
        let keeper = self.refresh_keeper(session, hop, sender);
        let part = u32::try_from(place / AT_ONCE).unwrap_or(u32::MAX);
        let at = self.now + PAUSE.saturating_mul(part);
        let Some(sender) = invariant!(self.senders.get(keeper), "a refresh keeper stands") else { return };
        if !sender.has(RESV) || Stamp::after(at).min(sender.resv_at) == Stamp::after(at) {
            if let Some(sender) = self.senders.get_mut(keeper) {
                sender.resv_stage = Stage::CHANGE;
            }
            self.schedule_resv(keeper, at);
        }
    }

    /// The senders and flowspecs of a whole Resv to a previous hop. The caller gives the list back by
    /// [`Merging::give_back`](super::Merging::give_back).
    pub(in crate::engine) fn resv_contents(&mut self, session: Key, hop: u32) -> Vec<(Key, FlowSpec)> {
        let mut flows = core::mem::take(&mut self.merging.flows);
        flows.clear();
        flows.extend(
            self.senders_of(session)
                .filter(|(_, sender)| sender.hop == hop && !sender.has(LOCAL))
                .filter_map(|(key, sender)| Some((key, self.forwarded(key, sender, false)?))),
        );
        flows
    }

    /// Splits the senders of a request that asked for a confirmation (RFC 2205 §3.1.4): the first list goes upstream with
    /// the RESV_CONFIRM, because the request is larger than all others that are not blockaded; the second list is
    /// confirmed by this node.
    fn split_confirm(&self, confirm: &Confirm, group: &[SenderChange]) -> (Vec<Key>, Vec<Key>) {
        let (mut up, mut here) = (Vec::new(), Vec::new());
        for entry in group.iter().filter(|entry| entry.confirm && entry.after.is_some()) {
            let Some(sender) = invariant!(self.senders.get(entry.sender), "a confirmed sender stands") else {
                continue;
            };
            let Some(session) =
                invariant!(self.sessions.get_index(sender.session), "a confirmed sender has a session")
            else {
                continue;
            };
            let mut met = self.branches_of(sender);
            let Some((own, branch)) = invariant!(
                met.find(|(_, branch)| branch.oif == confirm.oif),
                "a confirmed request is in a reservation"
            ) else {
                continue;
            };
            let link = branch.oif.is_real();
            let asked = branch.request(confirm.hop).map(|one| *one.flowspec).filter(|_| !link);
            let (installed, flowspec) =
                asked.map_or_else(|| (branch.flowspec(), branch.forwarded()), |asked| (asked, asked));
            let blockaded =
                |flowspec: &FlowSpec| session.is_blockaded(self.now, entry.sender, sender.hop, flowspec);
            if blockaded(&installed) {
                continue; // neither forwarded nor answered
            }
            let mut others = self.branches_of(sender).filter(|(key, other)| {
                *key != own
                    && sender.leaves_by(other.oif)
                    && (session.style != Some(Style::Se) || other.names(entry.sender))
                    && !blockaded(&other.flowspec())
            });
            let largest = others.all(|(_, other)| merge::exceeds(&flowspec, &other.forwarded()));
            if largest && entry.hop != NONE { up.push(entry.sender) } else { here.push(entry.sender) }
        }
        (up, here)
    }

    /// Reports to senders of this node what is reserved for them (RESV_EVENT, RFC 2205 §3.11.1).
    fn report_reservations(&mut self, style: Style, group: &[SenderChange]) {
        for entry in group.iter().filter(|entry| entry.before != entry.after) {
            let Some(sender) = invariant!(
                self.senders.get(entry.sender),
                "a reservation is reported of a sender that stands"
            ) else {
                continue;
            };
            let Some(id) = invariant!(
                sender.extra.as_ref().and_then(|extra| extra.application),
                "a sender of this node has an application"
            ) else {
                continue;
            };
            let filter = self.filter_of(sender);
            let event = match entry.after {
                None => RsvpEvent::ResvGone { sender: filter },
                Some(flowspec) => {
                    let senders = if style.is_explicit() { vec![filter] } else { Vec::new() };
                    let policy = policy_in(&self.carried_for(&[(entry.sender, flowspec)]));
                    let path = self.granting_path(entry.sender, flowspec);
                    RsvpEvent::Resv { style, flowspec, senders, policy, path }
                }
            };
            self.out.event(id, event);
        }
    }

    /// Moves the refresh timer of a previous hop to another sender, because the sender with the timer ended. The timer
    /// runs on: the end of a sender is no reason for a Resv (RFC 2205 §3.1.5).
    pub(in crate::engine) fn hand_over_refresh(&mut self, session: Key, hop: u32, at: Stamp) {
        let mut from_there =
            self.senders_of(session).filter(|(_, sender)| sender.hop == hop && !sender.has(LOCAL));
        let Some(key) = from_there.next().map(|(key, _)| key) else { return };
        if let Some(sender) = invariant!(self.senders.get_mut(key), "a sender of the same hop stands") {
            sender.resv_at = at;
            sender.set(RESV, true);
        }
        self.arm_sender(key);
    }

    /// The sender whose record has the refresh timer of a previous hop.
    pub(in crate::engine) fn refresh_keeper(&self, session: Key, hop: u32, first: Key) -> Key {
        if self.sessions.get(session).is_some_and(|one| one.count <= 1) {
            return first;
        }
        self.senders_of(session)
            .find(|(_, sender)| sender.hop == hop && sender.has(RESV))
            .map_or(first, |(key, _)| key)
    }
}
