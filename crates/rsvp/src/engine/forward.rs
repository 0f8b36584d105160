//! What goes upstream for each sender, and what a change makes go upstream at once (RESV REFRESH of RFC 2209).
//!
//! Whatever changes reservation state takes down before what it makes each sender's previous hop hear (a [`Line`]), and
//! afterwards has the differences told. So a change goes as far as it changes anything, and no farther (RFC 2205 §2.3).

use core::net::IpAddr;

use signalbox_core::stamp::Stamp;
use signalbox_core::{Key, Time};

use super::Rsvp;
use super::interfaces::Place;
use super::io::RsvpEvent;
use super::merge;
use super::path::policy_in;
use super::sender::{LOCAL, RESV, Sender};
use super::session::NONE;
use crate::wire::{FlowSpec, Style};

/// What a sender's previous hop hears of it, before and after a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    pub(super) sender: Key,
    pub(super) hop: u32,
    pub(super) before: Option<FlowSpec>,
    pub(super) after: Option<FlowSpec>,
    /// The change is about this sender: a confirmation that was asked for is about it as well.
    pub(super) named: bool,
    /// Its previous hop is to hear even if nothing differs.
    pub(super) forced: bool,
}

/// A confirmation that somebody waits for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Confirm {
    /// The receiver.
    pub(super) receiver: IpAddr,
    /// Where its request has been reserved.
    pub(super) oif: Place,
    /// The next hop, or application of this node, that asked.
    pub(super) hop: u32,
}

/// What may be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tell {
    /// Everything.
    All,
    /// No tears: what is gone may be about to come back another way.
    NoTears,
}

impl Rsvp {
    /// What goes to a sender's previous hop for it: the merge of the reservations that its data meet, but for those that
    /// are blockaded, or if all are, the least of all; not if `barred`.
    pub(super) fn forwarded(&self, key: Key, sender: &Sender, barred: bool) -> Option<FlowSpec> {
        let session = self.sessions.get_index(sender.session)?;
        if session.reserved == 0 {
            return None;
        }
        if session.extra.is_none() && session.style == Some(Style::Ff) {
            // Nothing is blockaded, and nothing is for applications of this node.
            let met = self.branches_of(sender).filter(|(_, branch)| sender.goes_by(branch.oif));
            return met.map(|(_, branch)| branch.forwarded()).reduce(|a, b| merge::merged(&a, &b));
        }
        let explicit = session.style == Some(Style::Se);
        // Where no next hop's SCOPE has the sender, nobody wants its data (RFC 2205 §3.4).
        let mut in_scope = session.style != Some(Style::Wf) || !self.config.source_trees;
        let (mut open, mut least): (Option<FlowSpec>, Option<FlowSpec>) = (None, None);
        for (_, branch) in self.branches_of(sender) {
            if !sender.goes_by(branch.oif) || explicit && !branch.names(key) {
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
            if branch.oif.is_link() {
                take(branch.forwarded(), session.extra.is_some() && blocked(&branch.flowspec()));
            } else {
                // Nothing is installed for applications of this node together: each is blockaded by itself.
                for request in branch.requests().filter(|one| !explicit || one.names(key)) {
                    take(request.flowspec, blocked(&request.flowspec));
                }
            }
        }
        open.or(least.filter(|_| !barred)).filter(|_| in_scope)
    }

    /// Takes down what goes upstream for one sender.
    pub(super) fn note(&mut self, key: Key, named: bool, forced: bool) {
        if let Some(line) = self.lines.iter_mut().find(|line| line.sender == key) {
            line.named |= named;
            line.forced |= forced;
            return;
        }
        let Some(sender) = self.senders.get(key) else { return };
        self.noted = self.sessions.get_index(sender.session).and_then(|session| session.style).or(self.noted);
        let before = self.forwarded(key, sender, false);
        let hop = if sender.has(LOCAL) { NONE } else { sender.hop };
        self.lines.push(Line { sender: key, hop, before, after: None, named, forced });
    }

    /// Takes down what goes upstream for all senders of a session.
    pub(super) fn note_all(&mut self, session: Key) {
        self.noted = self.sessions.get(session).and_then(|one| one.style);
        let mut lines = core::mem::take(&mut self.lines);
        lines.extend(self.mates(session).map(|(key, sender)| Line {
            sender: key,
            hop: if sender.has(LOCAL) { NONE } else { sender.hop },
            before: self.forwarded(key, sender, false),
            after: None,
            named: false,
            forced: false,
        }));
        self.lines = lines;
    }

    /// Marks a sender that was taken down as one that the change is about.
    pub(super) fn name(&mut self, key: Key) {
        if let Some(line) = self.lines.iter_mut().find(|line| line.sender == key) {
            line.named = true;
        }
    }

    /// Tells previous hops and applications of this node what differs from what was taken down.
    pub(super) fn tell(&mut self, session: Key, tell: Tell, confirm: Option<Confirm>) {
        let mut lines = core::mem::take(&mut self.lines);
        for line in &mut lines {
            line.after =
                self.senders.get(line.sender).and_then(|sender| self.forwarded(line.sender, sender, false));
        }
        if lines.len() > 1 {
            lines.sort_by_key(|line| line.hop);
        }
        if let Some(style) = self.sessions.get(session).and_then(|one| one.style).or(self.noted) {
            for group in lines.chunk_by(|a, b| a.hop == b.hop) {
                self.tell_hop(session, style, group, tell, confirm);
            }
        }
        lines.clear();
        self.lines = lines;
    }

    fn tell_hop(&mut self, session: Key, style: Style, group: &[Line], tell: Tell, confirm: Option<Confirm>) {
        let Some(first) = group.first() else { return };
        let confirmed = confirm.map(|confirm| self.split_confirm(&confirm, group));
        if first.hop == NONE {
            self.tell_applications(style, group);
        } else {
            let tears = tell == Tell::All;
            if style == Style::Ff {
                if tears && group.iter().any(|line| line.after.is_none()) {
                    let gone = group.iter().filter(|line| line.after.is_none() && line.before.is_some());
                    self.send_resv_tear(session, first.hop, style, gone.map(|line| line.sender));
                }
                let up = confirmed.as_ref().map_or(&[][..], |(up, _)| up);
                let changed = |line: &&Line| line.after != line.before || line.forced;
                let said = |line: &Line| Some((line.sender, line.after?));
                // What is confirmed here is not asked about farther up: two messages.
                let plain = group.iter().filter(|line| changed(line) && !up.contains(&line.sender));
                self.said.clear();
                self.said.extend(plain.filter_map(said));
                self.send_resv(session, first.hop, style, None);
                if !up.is_empty() {
                    self.said.clear();
                    self.said.extend(group.iter().filter(|line| up.contains(&line.sender)).filter_map(said));
                    self.send_resv(session, first.hop, style, confirm.map(|confirm| confirm.receiver));
                }
            } else {
                self.tell_shared(
                    session,
                    style,
                    group,
                    tears,
                    confirm,
                    confirmed.as_ref().is_some_and(|(up, _)| !up.is_empty()),
                );
            }
        }
        if let (Some(confirm), Some((_, here))) = (confirm, confirmed)
            && !here.is_empty()
        {
            self.send_confirmation(session, style, &confirm, &here);
        }
    }

    fn tell_shared(
        &mut self,
        session: Key,
        style: Style,
        group: &[Line],
        tears: bool,
        confirm: Option<Confirm>,
        up: bool,
    ) {
        let Some(first) = group.first() else { return };
        let merge = |of: fn(&Line) -> Option<FlowSpec>| {
            group.iter().filter_map(of).reduce(|a, b| merge::merged(&a, &b))
        };
        let (before, after) = (merge(|line| line.before), merge(|line| line.after));
        let gone = group.iter().filter(|line| line.after.is_none() && line.before.is_some());
        // With WF one ResvTear ends all; a part of it ends by the next SCOPE.
        if tears && (after.is_none() || style == Style::Se) {
            self.send_resv_tear(session, first.hop, style, gone.map(|line| line.sender));
        }
        let joined = group.iter().any(|line| line.after.is_some() && line.before.is_none());
        let forced = group.iter().any(|line| line.forced);
        if after.is_some() && (after != before || joined || forced || up) {
            self.gather(session, first.hop);
            self.send_resv(session, first.hop, style, confirm.filter(|_| up).map(|c| c.receiver));
        }
    }

    /// Collects what a whole Resv to a previous hop says, in `self.said`.
    pub(super) fn gather(&mut self, session: Key, hop: u32) {
        let mut said = core::mem::take(&mut self.said);
        said.clear();
        said.extend(
            self.mates(session)
                .filter(|(_, sender)| sender.hop == hop && !sender.has(LOCAL))
                .filter_map(|(key, sender)| Some((key, self.forwarded(key, sender, false)?))),
        );
        self.said = said;
    }

    /// For which senders a confirmation is to be asked for farther up, and for which it is given here (RFC 2205
    /// §3.1.4): farther up where the request is larger than all others that are not blockaded.
    fn split_confirm(&self, confirm: &Confirm, group: &[Line]) -> (Vec<Key>, Vec<Key>) {
        let (mut up, mut here) = (Vec::new(), Vec::new());
        for line in group.iter().filter(|line| line.named && line.after.is_some()) {
            let Some(sender) = self.senders.get(line.sender) else { continue };
            let Some(session) = self.sessions.get_index(sender.session) else { continue };
            let mut met = self.branches_of(sender);
            let Some((own, branch)) = met.find(|(_, branch)| branch.oif == confirm.oif) else { continue };
            let link = branch.oif.is_link();
            let asked = branch.request(confirm.hop).map(|one| one.flowspec).filter(|_| !link);
            let (installed, flowspec) =
                asked.map_or_else(|| (branch.flowspec(), branch.forwarded()), |asked| (asked, asked));
            let blockaded =
                |flowspec: &FlowSpec| session.is_blockaded(self.now, line.sender, sender.hop, flowspec);
            if blockaded(&installed) {
                continue; // neither forwarded nor answered
            }
            let mut others = self.branches_of(sender).filter(|(key, other)| {
                *key != own
                    && sender.goes_by(other.oif)
                    && (session.style != Some(Style::Se) || other.names(line.sender))
                    && !blockaded(&other.flowspec())
            });
            let largest = others.all(|(_, other)| merge::exceeds(&flowspec, &other.forwarded()));
            if largest && line.hop != NONE { up.push(line.sender) } else { here.push(line.sender) }
        }
        (up, here)
    }

    /// Senders of this node hear what is reserved for them.
    fn tell_applications(&mut self, style: Style, group: &[Line]) {
        for line in group.iter().filter(|line| line.before != line.after) {
            let Some(sender) = self.senders.get(line.sender) else { continue };
            let Some(id) = sender.extra.as_ref().and_then(|extra| extra.application) else { continue };
            let filter = self.filter_of(sender);
            let event = match line.after {
                None => RsvpEvent::ResvGone { sender: filter },
                Some(flowspec) => {
                    let senders = if style.is_explicit() { vec![filter] } else { Vec::new() };
                    let policy = policy_in(&self.carried_for(&[(line.sender, flowspec)]));
                    RsvpEvent::Resv { style, flowspec, senders, policy }
                }
            };
            self.out.event(id, event);
        }
    }

    /// Takes up the refresh timer of a previous hop whose keeper is gone. It runs on as it did: that a sender is gone is
    /// no reason for a Resv (RFC 2205 §3.1.5).
    pub(super) fn hand_over_refresh(&mut self, session: Key, hop: u32, at: Stamp) {
        let mut from_there =
            self.mates(session).filter(|(_, sender)| sender.hop == hop && !sender.has(LOCAL));
        let Some(key) = from_there.next().map(|(key, _)| key) else { return };
        if let Some(sender) = self.senders.get_mut(key) {
            sender.resv_at = at;
            sender.set(RESV, true);
        }
        self.arm_sender(key);
    }

    /// The sender whose record has the refresh timer of a previous hop.
    pub(super) fn refresh_keeper(&self, session: Key, hop: u32, first: Key) -> Key {
        if self.sessions.get(session).is_some_and(|one| one.count <= 1) {
            return first;
        }
        self.mates(session)
            .find(|(_, sender)| sender.hop == hop && sender.has(RESV))
            .map_or(first, |(key, _)| key)
    }

    /// The time by which a stage or period that begins now has passed.
    pub(super) fn after_stage(&mut self, stage: u8, period_ms: u32) -> (Time, bool) {
        let period = core::time::Duration::from_millis(u64::from(period_ms));
        if let Some(staged) = self.config.staged {
            let wait = staged.first.as_secs_f64() * staged.factor.powi(i32::from(stage));
            if wait < period.as_secs_f64()
                && let Ok(wait) = core::time::Duration::try_from_secs_f64(wait)
            {
                return (self.now + wait, true);
            }
        }
        let wait = self.rng.jitter(period, 0.5, 1.5);
        (self.now + wait, false)
    }
}
