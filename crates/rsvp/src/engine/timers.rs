//! Timers: refreshes of Paths and Resvs (RFC 2205 §3.7), expiry of state.

use signalbox_core::stamp::Stamp;
use signalbox_core::wheel::Timed as _;
use signalbox_core::{Key, Time, invariant};
use signalbox_resources::{End, Resources};

use super::Rsvp;
use super::branch::Branch;
use super::forward::Tears;
use super::interfaces::Iface;
use super::message_ids::SentState;
use super::sender::{LOCAL, LOCAL_ONLY, PATH, PathTime, REPAIR, RESV, Sender, UNSENT};
use super::session::is_application;
use super::staged::Stage;

impl Rsvp {
    /// Handles `most` of the records that are due; the rest stays due.
    pub(super) fn run_timers(&mut self, most: u32, resources: &mut Resources) {
        let mut left = most;
        // Senders whose records were read ahead.
        let mut ahead = 0;
        while left > 0
            && let Some(index) = self.sender_wheel.pop_due(&mut self.senders, self.now)
        {
            ahead = if ahead == 0 { self.read_ahead(index) } else { ahead - 1 };
            let cost = self.senders.key_of(index).map_or(0, |key| self.step_sender(key, resources));
            left = left.saturating_sub(cost.saturating_add(1));
        }
        while left > 0
            && let Some(index) = self.branch_wheel.pop_due(&mut self.branches, self.now)
        {
            if let Some(key) = self.branches.key_of(index) {
                resources.because(End::Expired);
                self.step_branch(key, resources);
            }
            left -= 1;
        }
        while left > 0
            && let Some(key) = self.due_tear()
        {
            self.step_tear(key);
            left -= 1;
        }
    }

    /// Handles what is due for one sender. Returns how many senders of the session it visited.
    fn step_sender(&mut self, key: Key, resources: &mut Resources) -> u32 {
        let now = self.now;
        let Some(sender) = invariant!(self.senders.get(key), "a timed sender stands") else { return 0 };
        let mates = self.sessions.get_index(sender.session).map_or(0, |session| u32::from(session.count));
        if sender.is_over(now) {
            self.counters.senders_expired += 1;
            tracing::debug!(session = %self.logged_of(key), "path state expired");
            resources.because(End::Expired);
            self.end_path(key, None, resources);
            return mates;
        }
        if sender.has(PATH) && sender.path_at.is_due(now) {
            if sender.branches_out() && !sender.has(REPAIR) {
                self.refresh_due_paths(key);
            } else if sender.has(REPAIR) {
                self.follow_route(key);
            } else {
                if self.may_repeat(sender.path_stage) {
                    self.refresh_path(key);
                }
                self.schedule_path(key, false);
            }
        }
        let mut seen = 0;
        if let Some(sender) = self.senders.get(key)
            && sender.has(RESV)
            && sender.resv_at.is_due(now)
        {
            seen = mates;
            let (hop, session, resv_stage) =
                (sender.hop, self.sessions.key_of(sender.session), sender.resv_stage);
            if let Some(session) = session {
                self.refresh_without_withheld(session, hop);
                let flows = self.resv_contents(session, hop);
                if flows.is_empty() {
                    if let Some(sender) = self.senders.get_mut(key) {
                        sender.set(RESV, false);
                    }
                } else {
                    if self.may_repeat(resv_stage) {
                        self.refresh_resv(session, hop, &flows);
                    }
                    self.later_resv(key);
                }
                self.buffers.flows = flows;
            }
        }
        let extra = self.senders.get_mut(key).and_then(|sender| sender.extra.as_mut());
        if extra.is_some_and(|extra| extra.carried.expire(now)) {
            self.path_event(key);
        }
        self.expire_unexpected(key);
        self.arm_sender(key);
        seen
    }

    /// Sets the time of the next Path: soon after a change if staged refreshes are configured, else after a period.
    pub(super) fn schedule_path(&mut self, key: Key, changed: bool) {
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
    fn refresh_due_paths(&mut self, key: Key) {
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
        let last_trigger = self.last_trigger;
        for iface in ifaces {
            // A change of one state at several interfaces is no burst.
            self.last_trigger = last_trigger;
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
    pub(super) fn schedule_resv(&mut self, key: Key, at: Time) {
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
    fn later_resv(&mut self, key: Key) {
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

    /// Ends path state: PathTear goes downstream, its reservations end without a ResvTear upstream (RFC 2205 §3.1.5).
    /// `tear`: the PathTear that was received, if any.
    pub(super) fn end_sender(
        &mut self,
        key: Key,
        tear: Option<&crate::wire::Message<'_>>,
        resources: &mut Resources,
    ) {
        let Some(sender) = invariant!(self.senders.get(key), "a sender ends once") else { return };
        let Some(session) =
            invariant!(self.sessions.key_of(sender.session), "a session ends after its senders")
        else {
            return;
        };
        let apart = sender.has(LOCAL_ONLY).then(|| self.filter_of(sender));
        self.send_path_tear(key, tear);
        self.path_gone(key);
        self.leave_reservations(session, key, resources);
        self.remove_sender(key);
        if let Some(sender) = apart.and_then(|filter| self.find_sender(session, &filter)) {
            self.update_egress(sender, resources);
        }
        self.close_if_idle(session);
    }

    fn step_branch(&mut self, key: Key, resources: &mut Resources) {
        let now = self.now;
        let Some(branch) = invariant!(self.branches.get(key), "a timed branch stands") else { return };
        let Some(session) =
            invariant!(self.sessions.key_of(branch.session), "a session ends after its reservations")
        else {
            return;
        };
        let over = branch.requests().any(|one| {
            one.is_over(now) || !is_application(one.hop) && one.senders().iter().any(|(_, at)| at.is_due(now))
        });
        if over {
            self.counters.reservations_expired += 1;
            tracing::debug!(session = %self.logged(session), "reservation state expired");
            let mut upstream = self.begin_change();
            self.record_branch(&mut upstream, session, key);
            while let Some(hop) = self.branches.get_mut(key).and_then(|branch| ended(branch, now)) {
                self.doubt_next_hop(key, hop);
                self.remove_request(key, hop, resources);
            }
            self.reinstall(key, resources);
            self.send_upstream(upstream, session, Tears::Send, None);
            self.close_if_idle(session);
        }
        if self.branches.get_mut(key).is_some_and(|branch| branch.expire_policy(now)) {
            self.reinstall(key, resources);
        }
        self.arm_branch(key);
    }

    /// (Re)starts the timer of a sender for its first deadline. It is called when a deadline may be sooner than before.
    pub(super) fn arm_sender(&mut self, key: Key) {
        let Some(sender) = invariant!(self.senders.get(key), "an armed sender stands") else { return };
        match sender.deadline() {
            Some(at) => self.sender_wheel.arm_by(&mut self.senders, key.index(), at.time(self.now)),
            None => {
                self.sender_wheel.cancel(&mut self.senders, key.index());
            }
        }
    }

    /// Starts the timer of a new sender for the time of its first refresh, if the sender lives that long. The answer
    /// about its route and its first reservation do not restart the timer; it is corrected when it fires.
    pub(super) fn start_sender(&mut self, key: Key) {
        let Some(sender) = invariant!(self.senders.get(key), "a started sender stands") else { return };
        let (iif, expires) = (sender.iif, sender.expires.time(self.now));
        let period = core::time::Duration::from_millis(u64::from(self.interfaces.period(iif, self.now)));
        let deadline = expires.min(self.now + period / 2);
        self.sender_wheel.arm_by(&mut self.senders, key.index(), deadline);
    }

    /// (Re)starts the timer of a reservation for its first deadline. It is called when a deadline may be sooner than
    /// before.
    pub(super) fn arm_branch(&mut self, key: Key) {
        // It ended if all its requests did.
        let Some(branch) = self.branches.get(key) else { return };
        match branch.deadline() {
            Some(at) => self.branch_wheel.arm_by(&mut self.branches, key.index(), at.time(self.now)),
            None => {
                self.branch_wheel.cancel(&mut self.branches, key.index());
            }
        }
    }

    /// Makes sure that the timer of a reservation runs. It is called when all deadlines are later than before.
    pub(super) fn keep_branch(&mut self, key: Key) {
        if self.branches.get_mut(key).is_some_and(|branch| !branch.link().is_armed()) {
            self.arm_branch(key);
        }
    }

    /// Makes sure that the timer of a sender runs.
    pub(super) fn keep_sender(&mut self, key: Key) {
        if self.senders.get_mut(key).is_some_and(|one| !one.link().is_armed() && !one.has(LOCAL)) {
            self.arm_sender(key);
        }
    }
}

/// Removes what expired from the requests of a reservation; the next hop of a request that ended as a whole.
fn ended(branch: &mut Branch, now: Time) -> Option<u32> {
    branch.requests_mut().filter(|one| !is_application(one.hop)).find_map(|request| {
        let over = match request.extra.as_mut().filter(|extra| !extra.senders.is_empty()) {
            Some(extra) => {
                extra.senders.retain(|(_, at)| !at.is_due(now));
                extra.senders.is_empty()
            }
            None => request.expires.is_due(now),
        };
        over.then_some(request.hop)
    })
}
