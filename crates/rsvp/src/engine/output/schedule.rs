//! When Paths and Resvs are sent next (RFC 2205 §3.7).

use signalbox_core::stamp::Stamp;
use signalbox_core::{Key, Time, invariant};

use super::staged::Stage;
use crate::engine::Rsvp;
use crate::engine::interfaces::Iface;
use crate::engine::message_ids::SentState;
use crate::engine::path::{PATH, PathTime, REPAIR, RESV, Sender, UNSENT};

impl Rsvp {
    /// Sets the time of the next Path: soon after a change if staged refreshes are configured, else after a period.
    pub(in crate::engine) fn schedule_path(&mut self, key: Key, changed: bool) {
        let Some(sender) = invariant!(self.senders.get(key), "a scheduled sender stands") else { return };
        if sender.branches_out() {
            let all: Vec<Iface> = sender.egress().filter(|iface| iface.is_real()).collect();
            self.schedule_paths(key, changed, &all);
            return;
        }
        let oif = sender.oif;
        let stage = if changed { Stage::FIRST } else { sender.path_stage.next() };
        let (at, stage) = self.after_stage(oif, stage, &SentState::Path(key, oif));
        let Some(sender) = invariant!(self.senders.get_mut(key), "a staged sender stands") else { return };
        sender.path_at = Stamp::after(at);
        sender.set(PATH, true);
        sender.set(REPAIR | UNSENT, false);
        sender.path_stage = stage;
    }

    /// Refreshes a sender at those of its several outgoing interfaces where it is due.
    pub(in crate::engine) fn refresh_due_paths(&mut self, key: Key) {
        let now = self.now;
        let Some(sender) = invariant!(self.senders.get(key), "a refreshed sender stands") else { return };
        let waits = |way: &Iface| sender.path_time(*way).is_some_and(|one| !one.at.is_due(now));
        let due: Vec<(Iface, Stage)> = sender
            .egress()
            .filter(|iface| iface.is_real() && !waits(iface))
            .map(|iface| (iface, sender.path_time(iface).map_or(Stage::OVER, |one| one.stage)))
            .collect();
        for (iface, stage) in &due {
            if self.may_repeat(*stage) {
                self.refresh_path_by(key, *iface);
            }
        }
        let due: Vec<Iface> = due.into_iter().map(|(iface, _)| iface).collect();
        self.schedule_paths(key, false, &due);
    }

    /// Sets the times of the next Paths by these of several interfaces, each by its own refresh period.
    fn schedule_paths(&mut self, key: Key, changed: bool, ifaces: &[Iface]) {
        let mut path_times = Vec::with_capacity(ifaces.len());
        let last_trigger = self.output.last_trigger;
        for iface in ifaces {
            // A change of one state at several interfaces is no burst.
            self.output.last_trigger = last_trigger;
            let Some(sender) = invariant!(self.senders.get(key), "each stage has its sender") else { return };
            let before = sender.path_time(*iface).map_or(Stage::OVER, |one| one.stage);
            let stage = if changed { Stage::FIRST } else { before.next() };
            let (at, stage) = self.after_stage(*iface, stage, &SentState::Path(key, *iface));
            path_times.push(PathTime { iface: *iface, at: Stamp::after(at), stage });
        }
        let Some(sender) = invariant!(self.senders.get_mut(key), "a paced sender stands") else { return };
        let kept = sender.extra.iter().flat_map(|extra| extra.path_times.iter().copied());
        path_times.extend(kept.filter(|one| !ifaces.contains(&one.iface) && sender.leaves_by(one.iface)));
        let first = path_times.iter().map(|one| one.at).reduce(Stamp::min);
        sender.extra().path_times = path_times;
        sender.path_at = first.unwrap_or(sender.path_at);
        sender.set(PATH, true);
        sender.set(REPAIR | UNSENT, false);
    }

    /// Starts the Resv refreshes of a previous hop in the record of this sender.
    pub(in crate::engine) fn schedule_resv(&mut self, key: Key, at: Time) {
        let Some(sender) = invariant!(self.senders.get_mut(key), "a Resv's keeper stands") else { return };
        sender.resv_at = Stamp::after(at);
        sender.set(RESV, true);
        self.arm_sender(key);
    }

    /// Restarts the Resv refreshes of a previous hop after a change was sent.
    pub(super) fn resv_changed(&mut self, key: Key) {
        let Some(sender) = invariant!(self.senders.get(key), "a changed keeper stands") else { return };
        let (started, iif, about) = (sender.has(RESV), sender.iif, self.resvs_of(sender));
        let (at, stage) = self.after_stage(iif, Stage::FIRST, &about);
        if started && stage.is_over() {
            return; // the running refresh stays as it is
        }
        if let Some(sender) = self.senders.get_mut(key) {
            sender.resv_stage = stage;
        }
        self.schedule_resv(key, at);
    }

    /// Sets the time of the next Resv refresh of this record.
    pub(in crate::engine) fn later_resv(&mut self, key: Key) {
        let Some(sender) = invariant!(self.senders.get(key), "a refreshed keeper stands") else { return };
        let (stage, iif, about) = (sender.resv_stage.next(), sender.iif, self.resvs_of(sender));
        let (at, stage) = self.after_stage(iif, stage, &about);
        if let Some(sender) = self.senders.get_mut(key) {
            sender.resv_at = Stamp::after(at);
            sender.resv_stage = stage;
        }
    }

    /// The requests towards the previous hop of a sender.
    fn resvs_of(&self, sender: &Sender) -> SentState {
        match self.sessions.key_of(sender.session) {
            Some(session) => SentState::Resv(session, sender.hop),
            None => SentState::Nothing,
        }
    }
}
