//! Timers: refreshes of Paths and Resvs (RFC 2205 §3.7), expiry of state.

use signalbox_core::wheel::Timed as _;
use signalbox_core::{Key, Time, invariant};
use signalbox_resources::End;

use super::merging::Tears;
use super::path::{LOCAL, PATH, REPAIR, RESV};
use super::reservation::Branch;
use super::session::is_application;
use super::{Admission, Rsvp};

impl Rsvp {
    /// Handles `most` of the records that are due; the rest stays due.
    pub(super) fn run_timers(&mut self, most: u32, resources: &mut dyn Admission) {
        let mut left = most;
        // Senders whose records were read ahead.
        let mut ahead = 0;
        while left > 0
            && let Some(index) = self.senders.pop_due(self.now)
        {
            ahead = if ahead == 0 { self.read_ahead(index) } else { ahead - 1 };
            let cost = self.senders.key_of(index).map_or(0, |key| self.step_sender(key, resources));
            left = left.saturating_sub(cost.saturating_add(1));
        }
        while left > 0
            && let Some(index) = self.branches.pop_due(self.now)
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
    fn step_sender(&mut self, key: Key, resources: &mut dyn Admission) -> u32 {
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
                self.merging.give_back(flows);
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

    fn step_branch(&mut self, key: Key, resources: &mut dyn Admission) {
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
            Some(at) => self.senders.arm_by(key, at.time(self.now)),
            None => self.senders.disarm(key),
        }
    }

    /// Starts the timer of a new sender for the time of its first refresh, if the sender lives that long. The answer
    /// about its route and its first reservation do not restart the timer; it is corrected when it fires.
    pub(super) fn start_sender(&mut self, key: Key) {
        let Some(sender) = invariant!(self.senders.get(key), "a started sender stands") else { return };
        let (iif, expires) = (sender.iif, sender.expires.time(self.now));
        let period = core::time::Duration::from_millis(u64::from(self.interfaces.period(iif, self.now)));
        let deadline = expires.min(self.now + period / 2);
        self.senders.arm_by(key, deadline);
    }

    /// (Re)starts the timer of a reservation for its first deadline. It is called when a deadline may be sooner than
    /// before.
    pub(super) fn arm_branch(&mut self, key: Key) {
        // It ended if all its requests did.
        let Some(branch) = self.branches.get(key) else { return };
        match branch.deadline() {
            Some(at) => self.branches.arm_by(key, at.time(self.now)),
            None => self.branches.disarm(key),
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
