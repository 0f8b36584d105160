//! Answers, and messages that a node makes itself: Success, Error, Release, and the Commit that answers a Reserve.

use signalbox_core::{IfIndex, Key, SessionId, invariant};
use signalbox_resources::{End, Resources};

use super::amount::{Amount, Range};
use super::node::{Failure, Job, counters_of};
use super::output::Told;
use super::record::Branch;
use super::segment::with_objects;
use super::{QosClient, branch_of};
use crate::clients::shared::Message;
use crate::wire::FlowId;
use crate::wire::qos::{Partial, QosErrorCode, QosFlags, QosMessage, QosType, QosVersion, Refusal};

/// What an Error is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failed {
    /// Number of the failed request.
    pub(super) sequence: u32,
    /// All state of the session is removed.
    pub(super) removes: bool,
    pub(super) version: Option<QosVersion>,
    pub(super) partial: Option<Partial>,
    pub(super) why: Failure,
}

impl QosClient {
    /// Sends a message of this node in an existing session.
    pub(super) fn send(
        &mut self,
        (session, flow): (SessionId, FlowId),
        reverse: bool,
        branch: Option<u16>,
        message: &QosMessage<'_>,
    ) {
        let mut data = Vec::new();
        if message.encode(&mut data).is_err() {
            return;
        }
        self.out.send(Message { reverse, branch, ..Message::new(Some(session), flow, data) });
    }

    /// Answers a message.
    pub(super) fn answer(&mut self, job: &Job, message: &QosMessage<'_>) {
        self.send((job.session, job.flow), !job.reverse, None, message);
    }

    /// Answers a request by an Error, if not too many left already.
    pub(super) fn refuse(&mut self, job: &Job, failed: Failed) {
        tracing::debug!(session = %job.session, peer = %job.hop.address, code = %failed.why.0, detail = failed.why.1, "request refused");
        let now = self.now;
        let known = self.find_all(job.session).into_iter().flatten().next();
        let from = known.and_then(|key| self.records.get_mut(key)).map(|record| &mut record.errors_from);
        if !self.errors.allow(now, from, job.hop.address) {
            self.counters.errors_limited += 1;
            tracing::debug!(session = %job.session, peer = %job.hop.address, reason = "too many of its source", "Error not sent");
            self.told = Told::default();
            return;
        }
        self.send_error((job.session, job.flow), !job.reverse, failed);
    }

    /// Sends an Error in one direction.
    pub(super) fn send_error(&mut self, of: (SessionId, FlowId), reverse: bool, failed: Failed) {
        let (code, _) = failed.why;
        let mut message = QosMessage::new(QosType::ERROR, of.1);
        if failed.removes {
            message.flags = QosFlags::REMOVE;
        }
        message.echo = Some(failed.sequence);
        message.version = Some(failed.version.unwrap_or(QosVersion::FLOWSPEC));
        message.partial = Some(counters_of(failed.partial, code));
        let like = of.1.dst();
        message.error_node = self.local.like(like).or(Some(like));
        message.error = Some(failed.why);
        let told = core::mem::take(&mut self.told);
        if matches!(code, QosErrorCode::BELOW_MINIMUM | QosErrorCode::POLICY) && told != Told::default() {
            message.refusal = Some(Refusal::new(told.available, told.note.as_deref().unwrap_or_default()));
            return self.send(of, reverse, None, &message);
        }
        self.send(of, reverse, None, &message);
    }

    /// Sends a Release.
    pub(super) fn send_release(&mut self, key: Key, reverse: bool, branch: Option<u16>) {
        let Some(record) = invariant!(self.records.get_mut(key), "a Release has a record") else { return };
        // A request of this node may have no name yet.
        let (Some(session), flow, number) = (record.session, record.flow, record.number()) else { return };
        let mut message = QosMessage::new(QosType::RELEASE, flow);
        message.flags = QosFlags::REMOVE;
        message.sequence = Some(number);
        self.send((session, flow), reverse, branch, &message);
    }

    /// Sends an answer on, or ends it here.
    pub(super) fn hand_on(&mut self, job: &Job, message: &QosMessage<'_>) {
        if job.last {
            return self.out.consume(job.id);
        }
        let mut message = *message;
        let crossed;
        if !self.segments.is_empty() {
            let known = self.find(job.session, false).and_then(|key| self.records.get(key));
            let way = self.way(job, known.map_or([IfIndex::NONE; 2], |record| record.places));
            crossed = self.cross(&way, &message);
            message = with_objects(&message, &crossed.objects);
        }
        message.flow = job.flow;
        if job.unsecure {
            message.flags = message.flags.with(QosFlags::UNSECURE);
        }
        let mut data = Vec::new();
        let data = message.encode(&mut data).is_ok().then_some(data);
        self.out.forward(job.id, data);
    }

    /// Handles a Success: the node gives back what it holds beyond the minimum of the path.
    pub(super) fn success(&mut self, job: &Job, message: &QosMessage<'_>, resources: &mut Resources) {
        let Some(key) = self.answered_by(job) else { return self.hand_on(job, message) };
        if !self.comes_from_hop(key, job) {
            return;
        }
        self.hand_on(job, message);
        let echo = message.echo.unwrap_or(0);
        let Some(record) = invariant!(self.records.get(key), "an answer has a record") else { return };
        let waits = record.own.as_ref().and_then(|own| own.waits);
        let answers = waits == Some(echo) || record.last.is_some_and(|last| last.sequence == echo);
        let reserved = record.has_state() && message.age.is_some();
        let amount = Amount::of_answer(message);
        self.settle(key, echo, End::Replaced, resources);
        if let Some(amount) = amount.filter(|_| reserved && answers) {
            self.trim(key, &amount, resources);
        }
        self.enter_answer(key, job);
        if job.last {
            self.keep_list(key, message.listed);
            self.own_success(key, echo, amount, resources);
        }
        self.arm(key);
    }

    /// Handles an Error: with R it removes the reservation, else what the failed request replaced comes back.
    pub(super) fn error(&mut self, job: &Job, message: &QosMessage<'_>, resources: &mut Resources) {
        let Some(answered) = self.answered_by(job) else { return self.hand_on(job, message) };
        if !self.comes_from_hop(answered, job) {
            return;
        }
        self.hand_on(job, message);
        let removes = message.flags.contains(QosFlags::REMOVE);
        if removes {
            self.counters.released += 1;
        } else {
            self.enter_answer(answered, job);
            let end = End::RefusedBeyond(message.error_node);
            self.settle(answered, message.echo.unwrap_or(0), end, resources);
        }
        // With R it is for all that the session has.
        for key in self.find_all(job.session).into_iter().flatten().filter(|key| removes || *key == answered)
        {
            if removes {
                self.enter_answer(key, job);
                resources.because(End::RefusedBeyond(message.error_node));
                self.release_all(key, resources);
            }
            let own = self.records.get(key).is_some_and(|record| record.own.is_some());
            if job.last && own {
                self.own_error(key, message, resources);
            } else if removes {
                self.end(key, None, resources);
            }
            self.arm(key);
        }
    }

    /// The record whose request a message answers. Requests for the opposite flow come against the data of the session, so
    /// that their answers go with them.
    fn answered_by(&self, job: &Job) -> Option<Key> {
        let [main, opposite] = self.find_all(job.session);
        opposite.filter(|_| !job.reverse).or(main)
    }

    /// Handles a Release.
    pub(super) fn release_received(
        &mut self,
        job: &Job,
        message: &QosMessage<'_>,
        resources: &mut Resources,
    ) {
        let sequence = message.sequence.unwrap_or(0);
        let known = self.find_all(job.session).into_iter().flatten().next();
        let mut version = QosVersion::FLOWSPEC;
        if let Some(key) = known {
            if !self.comes_from_hop(key, job) {
                return;
            }
            if let Some(record) = self.records.get_mut(key) {
                let side = record.side(job.reverse);
                let newest = side.last().filter(|last| last.id == job.branch);
                if !side.is_empty() && newest.is_none() {
                    // An old branch ends; another one leads to this node.
                    side.retain(|one| one.id != job.branch);
                    let of_branch = |one: &Job| (one.reverse, one.branch) == (job.reverse, job.branch);
                    self.end_waiting(job.session, of_branch);
                    return self.out.consume(job.id);
                }
                if newest.is_some_and(Branch::is_new) {
                    // The path came back to this hop, and what it sent before arrives after a lost link.
                    self.counters.strangers += 1;
                    tracing::debug!(session = %job.session, peer = %job.hop.address, reason = "it was sent before the path came back", "message dropped");
                    return self.out.consume(job.id);
                }
                let amount = record.reserve.now.or(record.commit.now).map(|level| level.amount);
                version = amount.map_or(version, |amount| amount.version());
            }
            self.counters.released += 1;
            self.end_session(key, Some(QosErrorCode::NO_RESERVATION), resources);
        }
        // The request that it releases may wait yet: then there is no record.
        let of_hop = |one: &Job| {
            (one.reverse, one.branch, one.hop.address) == (job.reverse, job.branch, job.hop.address)
        };
        let ended = self.end_waiting(job.session, of_hop);
        if !job.last {
            return self.hand_on(job, message);
        }
        self.out.consume(job.id);
        if known.is_none() && !ended {
            let why = (QosErrorCode::NO_RESERVATION, 0);
            return self.refuse(job, Failed { sequence, removes: false, version: None, partial: None, why });
        }
        let mut answer = QosMessage::new(QosType::SUCCESS, job.flow);
        answer.echo = Some(sequence);
        answer.version = Some(version);
        self.answer(job, &answer);
    }

    /// Whether a message comes from a hop of its session; others end here.
    fn comes_from_hop(&mut self, key: Key, job: &Job) -> bool {
        let branch = branch_of(job.branch, job.hop.address);
        let known =
            self.records.get_mut(key).is_some_and(|record| record.knows(&job.flow, job.reverse, branch));
        if !known {
            self.counters.strangers += 1;
            tracing::debug!(session = %job.session, peer = %job.hop.address, reason = "its sender is no hop of the session", "message dropped");
            self.out.consume(job.id);
        }
        known
    }

    /// Enters the branch by which an answer came.
    pub(super) fn enter_answer(&mut self, key: Key, job: &Job) {
        if let Some(record) = self.records.get_mut(key) {
            let branch = branch_of(job.branch, job.hop.address);
            if !record.side(job.reverse).contains(&branch) {
                record.enter(job.reverse, branch);
            }
        }
    }

    /// Answers a Reserve with C by a Commit.
    pub(super) fn commit_back(
        &mut self,
        key: Key,
        job: &Job,
        message: &QosMessage<'_>,
        most: Amount,
        resources: &mut Resources,
    ) {
        let (age, echo) = (message.age.unwrap_or(0), message.sequence.unwrap_or(0));
        // What it answers may have ended the session of both records.
        let Some(record) = self.records.get_mut(key) else { return };
        let (number, until) = (record.number(), self.now + record.lifetime);
        let done = match record.commit.now.as_mut().filter(|level| level.age == age) {
            Some(level) => {
                level.until = until;
                Ok(most)
            }
            None => {
                let step = (QosType::COMMIT, age, number);
                self.admit(key, step, &Range::only(most), resources)
            }
        };
        self.settle(key, number, End::Replaced, resources);
        if let Err(code) = done {
            let (version, partial) = (message.version, message.partial);
            let why = (code, 0);
            return self.refuse(job, Failed { sequence: echo, removes: false, version, partial, why });
        }
        self.trim(key, &most, resources);
        let mut commit = QosMessage::new(QosType::COMMIT, job.flow);
        commit.sequence = Some(number);
        commit.echo = Some(echo);
        commit.age = Some(age);
        (commit.priority, commit.reverse_flow, commit.time) =
            (message.priority, message.reverse_flow, message.time);
        commit.listed = message.listed;
        Range::only(most).write(&mut commit);
        self.enter_segments(key, !job.reverse);
        let local = self.local_of(key);
        self.answer(job, &with_objects(&commit, &local));
    }

    /// A message could not be sent on: this node fails in the place of the next one.
    pub(super) fn undelivered(&mut self, key: Key, resources: &mut Resources) {
        if self.records.get(key).is_some_and(|record| record.own.is_some()) {
            return self.no_answer(key, QosErrorCode::NO_ANSWER, resources);
        }
        // The failure of the session's own request ends the record for the opposite flow.
        let Some(record) = self.records.get_mut(key) else { return };
        let (Some(last), Some(session)) = (record.last.take(), record.session) else { return };
        let amount = record.reserve.now.or(record.commit.now).map(|level| level.amount);
        let (version, flow) = (amount.map(|amount| amount.version()), record.flow);
        self.settle(key, last.sequence, End::RefusedBeyond(None), resources);
        let why = (QosErrorCode::NO_ANSWER, 0);
        let failed =
            Failed { sequence: last.sequence, removes: last.first, version, partial: last.partial, why };
        self.send_error((session, flow), !last.reverse, failed);
        if last.first {
            self.end(key, None, resources);
        }
    }

    /// Reports a reservation that was taken back, in both directions.
    pub(super) fn report_lost(&mut self, key: Key, code: QosErrorCode) {
        let Some(record) = invariant!(self.records.get(key), "a loss has a record") else { return };
        // A request of this node may be lost before its session has a name.
        let Some(session) = record.session else { return };
        let (flow, last) = (record.flow, record.last);
        let amount = record.reserve.now.or(record.commit.now).map(|level| level.amount);
        let version = amount.map(|amount| amount.version());
        let sequence = last.map_or(0, |last| last.sequence);
        let [near, far] = [!record.sides[0].is_empty(), !record.sides[1].is_empty()];
        let why = (code, 0);
        let failed = Failed { sequence, removes: true, version, partial: Some(Partial::default()), why };
        for (there, reverse) in [(near, true), (far, false)] {
            if there {
                self.send_error((session, flow), reverse, failed);
            }
        }
    }
}
