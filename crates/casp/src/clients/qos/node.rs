//! A node of the path: it admits what requests ask for, and sends them on.

use core::net::IpAddr;

use signalbox_core::shares::source;
use signalbox_core::{Key, SessionId, invariant};
use signalbox_resources::{End, Resources};
use signalbox_wire::hops::Hops;

use super::amount::{Amount, Range};
use super::answer::Failed;
use super::grant::Asker;
use super::output::{QosEvent, Told};
use super::period::Period;
use super::record::{Last, Level, Places, Record};
use super::segment::with_objects;
use super::{QosClient, Waiting, branch_of, seconds};
use crate::clients::shared::Hop;
use crate::engine::Arrival;
use crate::wire::qos::{Partial, QosErrorCode, QosFlags, QosMessage, QosType};
use crate::wire::{FlowId, Listed};

/// A message that arrived, with owned octets.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) id: u64,
    pub(super) session: SessionId,
    pub(super) flow: FlowId,
    /// The opposite flow, if the message asks for it.
    pub(super) opposite: Option<FlowId>,
    /// It asks for nothing else.
    pub(super) instead: bool,
    pub(super) reverse: bool,
    pub(super) unsecure: bool,
    pub(super) hops: u8,
    pub(super) hop: Hop,
    pub(super) branch: u16,
    pub(super) last: bool,
    pub(super) timeout: u32,
    pub(super) data: Vec<u8>,
}

/// Why a request fails here: code and detail. Only a lack of resources may be tolerated.
pub(super) type Failure = (QosErrorCode, u16);

impl Job {
    fn of(arrival: &Arrival<'_>, reverse_flow: Option<(FlowId, bool)>) -> Self {
        Self {
            opposite: reverse_flow.map(|(flow, _)| flow),
            instead: reverse_flow.is_some_and(|(_, also)| !also),
            id: arrival.id,
            session: arrival.session,
            flow: arrival.flow,
            reverse: arrival.reverse,
            unsecure: arrival.unsecure,
            hops: arrival.hops,
            hop: Hop::of(arrival),
            branch: arrival.branch,
            last: arrival.last,
            timeout: arrival.timeout,
            data: arrival.data.to_vec(),
        }
    }

    pub(super) fn asker(&self) -> Asker {
        Some(self.hop.clone())
    }
}

impl QosClient {
    /// Takes a message of the client.
    pub(super) fn received(&mut self, arrival: &Arrival<'_>, resources: &mut Resources) {
        self.told = Told::default();
        let message = match QosMessage::parse(arrival.data) {
            Ok(message) => message,
            Err(fault) => {
                match fault.sequence {
                    Some(sequence) => {
                        let (job, why) = (Job::of(arrival, None), (fault.code, fault.detail));
                        let (removes, version, partial) = (false, None, None);
                        self.refuse(&job, Failed { sequence, removes, version, partial, why });
                    }
                    None => {
                        self.counters.unreadable += 1;
                        tracing::debug!(session = %arrival.session, peer = %arrival.peer, reason = "malformed", "message dropped");
                    }
                }
                return self.out.consume(arrival.id);
            }
        };
        self.counters.foreign_objects += u64::from(message.foreign);
        if message.flow != arrival.flow {
            self.counters.other_flow += 1;
            tracing::debug!(session = %arrival.session, peer = %arrival.peer, flow = %message.flow, reason = "its flow differs from that of the messaging layer", "message taken for the flow of the messaging layer");
        }
        let job = Job::of(arrival, message.reverse_flow);
        let request = matches!(message.kind, QosType::QUERY | QosType::RESERVE | QosType::COMMIT);
        let known = self.find_all(job.session).into_iter().flatten().next();
        let known = known.and_then(|key| self.records.get(key));
        if !request && known.is_some_and(|record| record.flow != job.flow) {
            // It concerns the flow that the source of the data has left.
            return self.hand_on(&job, &message);
        }
        match message.kind {
            QosType::RELEASE => self.release_received(&job, &message, resources),
            QosType::SUCCESS => self.success(&job, &message, resources),
            QosType::ERROR => self.error(&job, &message, resources),
            _ => self.locate(Waiting::Message(Box::new(job)), resources),
        }
    }

    /// Handles a Query, Reserve or Commit. `places`: where the data leave; `None`: there is no route.
    pub(super) fn request(&mut self, job: &Job, places: Option<Places>, resources: &mut Resources) {
        self.told = Told::default();
        // It was parsed before.
        let Ok(mut message) = QosMessage::parse(&job.data) else { return self.out.consume(job.id) };
        let sequence = message.sequence.unwrap_or(0);
        message.flow = job.flow;
        if job.unsecure {
            message.flags = message.flags.with(QosFlags::UNSECURE);
        }
        if self.is_stale(job, sequence) {
            return self.out.consume(job.id);
        }
        let (range, period) = match self.acceptable(job, &message) {
            Ok(accepted) => accepted,
            Err(why) => {
                let removes = message.kind != QosType::QUERY && !self.holds(job.session);
                self.refuse(job, failed(&message, removes, why));
                return self.out.consume(job.id);
            }
        };
        let Some(key) = self.record_of(job.session, job, job.instead) else {
            self.refuse(job, failed(&message, false, (QosErrorCode::BELOW_MINIMUM, 0)));
            return self.out.consume(job.id);
        };
        if let Some(record) = self.records.get_mut(key) {
            record.priority = message.priority;
        }
        self.branches(key, job, &message);
        let (local, mut marked) = (self.segments_of(key, job, places, &message), false);
        if let Some(crossing) = &local {
            marked = message.kind != QosType::QUERY && self.marked(key, crossing);
            message = with_objects(&message, &crossing.objects);
        }
        let (first, placed) = self.update(key, job, (places, marked), period, resources);
        if !placed {
            self.release_all(key, resources);
        }
        let done = match places {
            Some(_) if placed => self.carry_out(key, job, &message, &range, resources),
            Some(_) | None => Err((QosErrorCode::BELOW_MINIMUM, 0)),
        };
        let counted = message.partial.as_mut().map(|partial| partial.count_indeterminate(job.hops));
        let result =
            done.or_else(|failure| self.tolerate(key, &mut message, &range, failure)).and_then(|most| {
                let indeterminate = message.partial.map_or(0, |partial| partial.indeterminate);
                let over = counted == Some(false) && message.flags.contains(QosFlags::PARTIAL);
                if over { Err((QosErrorCode::TOO_MANY_INDETERMINATE, indeterminate)) } else { Ok(most) }
            });
        match result {
            Ok(most) => {
                let last = Last { sequence, reverse: job.reverse, first, partial: message.partial };
                if let Some(record) = self.records.get_mut(key) {
                    record.last = Some(last);
                }
                // A refresh that asks for more than what stands gets what stands.
                let least = if range.least.rate() > most.rate() { most } else { range.least };
                Range { least, most }.write(&mut message);
                let list = self.list_with_own(key, job, &message, &most);
                message.listed = list
                    .as_deref()
                    .and_then(Hops::from_octets)
                    .map(|hops| Listed { last_hops: job.hops, hops });
                self.pass_on(key, job, &message, &range, most, resources);
            }
            Err(failure) => {
                // What was there before stays; the first reservation goes altogether.
                self.settle(key, sequence, End::Released, resources);
                let gone = (first || !placed) && message.kind != QosType::QUERY;
                if gone {
                    self.release_all(key, resources);
                }
                let removes = gone && !self.holds(job.session);
                let failed = failed(&message, removes, failure);
                self.refuse(job, failed);
                if let Some(echo) = message.echo.filter(|_| message.kind == QosType::COMMIT) {
                    // The Reserve that asked for this Commit failed too.
                    let failed = Failed { sequence: echo, ..failed };
                    self.send_error((job.session, job.flow), job.reverse, failed);
                }
                self.out.consume(job.id);
            }
        }
        self.arm(key);
    }

    /// Whether the node may handle a request at all; its bounds and its time.
    fn acceptable(
        &mut self,
        job: &Job,
        message: &QosMessage<'_>,
    ) -> Result<(Range, Option<Period>), Failure> {
        let range = Range::of(message)?;
        let period = self.period(message.time)?;
        let ends = |flow: &FlowId| (flow.src(), flow.dst());
        if message.reverse_flow.is_some_and(|(back, _)| ends(&back) != ends(&job.flow.reversed())) {
            // Other packets than those of the session are no matter of its path.
            return Err((QosErrorCode::MALFORMED, 8));
        }
        if self.config.refuse_unsecure && message.flags.contains(QosFlags::UNSECURE) {
            return Err((QosErrorCode::UNSECURE, 0));
        }
        let branch = branch_of(job.branch, job.hop.address);
        // The first request of the opposite direction comes by a hop of the other one.
        let known = self.find(job.session, job.instead).or(self.find(job.session, false));
        let strange = known
            .and_then(|key| self.records.get_mut(key))
            .is_some_and(|record| !record.knows(&job.flow, job.reverse, branch));
        if strange && job.hop.identity.is_none() && !self.config.merge_unauthenticated {
            return Err((QosErrorCode::NOT_OWNER, 0));
        }
        Ok((range, period))
    }

    /// The record of the session of a message; `None`: there are too many.
    pub(super) fn record_of(&mut self, session: SessionId, job: &Job, instead: bool) -> Option<Key> {
        if let Some(key) = self.find(session, instead) {
            return Some(key);
        }
        let holder = source(job.hop.address);
        let key = self.make_record(Some(session), job.flow, Some(holder))?;
        if let Some(record) = self.records.get_mut(key) {
            record.instead = instead;
        }
        self.by_session.insert((session, instead), key);
        Some(key)
    }

    /// Whether a session has a reservation here.
    fn holds(&self, session: SessionId) -> bool {
        let mut records =
            self.find_all(session).into_iter().flatten().filter_map(|key| self.records.get(key));
        records.any(Record::has_state)
    }

    /// A new record; `None`: there are too many.
    pub(super) fn make_record(
        &mut self,
        session: Option<SessionId>,
        flow: FlowId,
        holder: Option<IpAddr>,
    ) -> Option<Key> {
        if let Some(holder) = holder
            && self.holders.take(holder).is_err()
        {
            self.counters.sessions_full += 1;
            tracing::debug!(session = session.map(display), source = %holder, reason = "share of its source in the table of sessions is used up", "message dropped");
            return None;
        }
        let record = Record::new(session, flow, holder, self.now);
        match self.records.insert(record) {
            Ok(key) => Some(key),
            Err(_) => {
                holder.into_iter().for_each(|holder| self.holders.release(holder));
                self.counters.sessions_full += 1;
                tracing::debug!(
                    session = session.map(display),
                    source = holder.map(display),
                    reason = "table of sessions full",
                    "message dropped"
                );
                None
            }
        }
    }

    /// Enters the branch by which a request came. A request by a new branch is a merge: the old ones are released if it says
    /// so, else they stay until they expire.
    fn branches(&mut self, key: Key, job: &Job, message: &QosMessage<'_>) {
        let branch = branch_of(job.branch, job.hop.address);
        let Some(record) = invariant!(self.records.get_mut(key), "a branch has a record") else { return };
        if record.flow != job.flow {
            return self.source_moved(key, job, message.flags.contains(QosFlags::BRANCH));
        }
        if record.side(job.reverse).iter().any(|one| one.id == branch.id) {
            return;
        }
        let others = record.enter(job.reverse, branch);
        if others.is_empty() {
            return;
        }
        if !message.flags.contains(QosFlags::BRANCH) {
            return self.out.keep_branches(job.session, job.flow);
        }
        for old in others {
            self.send_release(key, !job.reverse, Some(old.id));
            if let Some(record) = self.records.get_mut(key) {
                record.side(job.reverse).retain(|one| one.id != old.id);
            }
        }
    }

    /// The source of the data has moved: the branches of the former flow are old ones. They are released if the request says
    /// so, except one that leads to the same hop.
    fn source_moved(&mut self, key: Key, job: &Job, remove: bool) {
        let Some(record) = invariant!(self.records.get_mut(key), "who moved has a record") else { return };
        let former = record.flow;
        let old = core::mem::take(record.side(job.reverse));
        record.side(!job.reverse).clear();
        record.enter(job.reverse, branch_of(job.branch, job.hop.address));
        for one in old.into_iter().filter(|one| one.peer != job.hop.address) {
            if remove {
                self.send_release(key, !job.reverse, Some(one.id));
            } else {
                self.out.keep_branches(job.session, former);
            }
        }
    }

    /// Whether a request is for a flow that the source of the data has left since, or came round to the node that makes the
    /// requests of its session: while routes change, nodes on the way repeat the last one.
    fn is_stale(&self, job: &Job, sequence: u32) -> bool {
        let record = self.find(job.session, job.instead).and_then(|key| self.records.get(key));
        if record.and_then(Record::own).is_some_and(|own| own.reverse == job.reverse) {
            return true;
        }
        let last = record.filter(|record| record.flow != job.flow).and_then(|record| record.last);
        last.filter(|last| last.reverse == job.reverse)
            .is_some_and(|last| sequence.wrapping_sub(last.sequence).wrapping_sub(1) >= 1 << 31)
    }

    /// Takes over what a request says of the session. The results are whether it has no reservation yet, and whether what is
    /// reserved is at the place where the data leave. The places are followed by whether the packets get another DSCP.
    fn update(
        &mut self,
        key: Key,
        job: &Job,
        (places, marked): (Option<Places>, bool),
        period: Option<Period>,
        resources: &mut Resources,
    ) -> (bool, bool) {
        let now = self.now;
        let when = |record: &Record| (record.is_early(), record.period.as_deref().map(Period::during));
        let Some(record) = invariant!(self.records.get(key), "a request that is taken over has a record")
        else {
            return (true, true);
        };
        let before = (record.data(), record.places, when(record));
        self.set_period(key, period);
        let Some(record) = invariant!(self.records.get_mut(key), "a record stands while its time is noted")
        else {
            return (true, true);
        };
        let places = places.unwrap_or(record.places);
        record.flow = job.flow;
        record.set_opposite(job.opposite);
        record.places = places;
        let moved = marked || (record.data(), places, when(record)) != before;
        record.asker = job.asker();
        record.lifetime = seconds(job.timeout.max(1));
        record.used = now;
        let first = !record.has_state();
        (first, first || !moved || self.replace(key, resources))
    }

    /// Carries out a request at this node. The result is the upper bound that is left.
    fn carry_out(
        &mut self,
        key: Key,
        job: &Job,
        message: &QosMessage<'_>,
        range: &Range,
        resources: &mut Resources,
    ) -> Result<Amount, Failure> {
        let (age, sequence) = (message.age.unwrap_or(0), message.sequence.unwrap_or(0));
        let plain = |code| (code, 0);
        if message.kind == QosType::QUERY {
            return self.could(key, range, resources).map_err(plain);
        }
        let lifetime = seconds(job.timeout.max(1));
        let Some(record) =
            invariant!(self.records.get_mut(key), "a request that is carried out has a record")
        else {
            return Err(plain(QosErrorCode::NO_RESERVATION));
        };
        if message.kind == QosType::COMMIT && record.skipped == Some(age) {
            return Ok(range.most);
        }
        let stands = [record.reserve.now, record.commit.now];
        let of_other_kind =
            |level: &Level| level.age == age && level.amount.version() != range.most.version();
        if stands.iter().flatten().any(of_other_kind) {
            return Err((QosErrorCode::MALFORMED, 8));
        }
        let until = self.now + lifetime;
        let reserved = record.reserve.now.filter(|level| level.age == age);
        if let Some(level) = record.part(message.kind).now.as_mut().filter(|level| level.age == age) {
            // A refresh: no new decision.
            level.until = until;
            let held = level.amount;
            self.counters.refreshed += 1;
            let most = if held.rate() < range.most.rate() { held } else { range.most };
            if message.kind == QosType::COMMIT {
                self.trim(key, &most, resources);
            }
            return Ok(most);
        }
        let range = match reserved.filter(|_| message.kind == QosType::COMMIT) {
            // What was reserved is committed, as far as the whole path has it.
            Some(level) if level.amount.rate() < range.most.rate() => Range::only(level.amount),
            Some(_) => Range::only(range.most),
            None => *range,
        };
        let step = (message.kind, age, sequence);
        let most = self.admit(key, step, &range, resources).map_err(plain)?;
        if message.kind == QosType::COMMIT {
            match reserved {
                Some(_) => {
                    self.trim(key, &most, resources);
                    self.confirm_reserve(key, resources);
                }
                // Another reservation takes the place of the one that was reserved.
                None => self.drop_reserve(key, resources),
            }
        } else if let Some(record) = self.records.get_mut(key) {
            record.skipped = None;
        }
        Ok(most)
    }

    /// Counts a failure that the originator tolerates. The result is the upper bound, which stays.
    fn tolerate(
        &mut self,
        key: Key,
        message: &mut QosMessage<'_>,
        range: &Range,
        (code, detail): Failure,
    ) -> Result<Amount, Failure> {
        if code != QosErrorCode::BELOW_MINIMUM {
            return Err((code, detail));
        }
        let partial = message.flags.contains(QosFlags::PARTIAL);
        match message.partial.as_mut() {
            Some(counters) => {
                let allowed = counters.count_failed();
                if !partial {
                    return Err((code, detail));
                }
                if !allowed {
                    return Err((QosErrorCode::TOO_MANY_FAILED, counters.failed));
                }
            }
            None if partial => {}
            None => return Err((code, detail)),
        }
        if let Some(record) = self.records.get_mut(key) {
            record.skipped = message.age;
        }
        Ok(range.most)
    }

    /// Sends a request on, or answers it where it ends.
    fn pass_on(
        &mut self,
        key: Key,
        job: &Job,
        message: &QosMessage<'_>,
        asked: &Range,
        most: Amount,
        resources: &mut Resources,
    ) {
        if let Some(echo) = message.echo.filter(|_| message.kind == QosType::COMMIT && !job.last) {
            self.settle(key, echo, End::Replaced, resources);
        }
        self.opposite_passes(job, message, &most, resources);
        if !job.last {
            let mut data = Vec::new();
            return match message.encode(&mut data) {
                Ok(()) => self.out.forward(job.id, Some(data)),
                Err(_) => self.out.forward(job.id, None),
            };
        }
        self.out.consume(job.id);
        let sequence = message.sequence.unwrap_or(0);
        if message.kind == QosType::COMMIT && self.committed_by_answer(key, message, most, resources) {
            return;
        }
        let end = if job.reverse { job.flow.src() } else { job.flow.dst() };
        if !self.local.has(end) && !self.config.proxy {
            self.settle(key, sequence, End::Released, resources);
            let first =
                self.records.get(key).is_some_and(|record| record.last.is_some_and(|last| last.first));
            let removes = first && message.kind != QosType::QUERY;
            if removes {
                self.release_all(key, resources);
            }
            return self.refuse(job, failed(message, removes, (QosErrorCode::NO_ANSWER, 0)));
        }
        self.settle(key, sequence, End::Replaced, resources);
        if message.kind == QosType::QUERY && !job.reverse {
            let range = Range { most, ..*asked };
            if let Some(record) = self.records.get_mut(key) {
                record.suggested = Some(Box::new(range));
            }
            let (session, flow) = (job.session, job.flow);
            self.out.event(0, QosEvent::Suggested { session, flow, range });
        }
        if message.kind == QosType::COMMIT && job.reverse {
            self.keep_list(key, message.listed);
            self.reserved_by_receiver(key, most);
        }
        if message.kind == QosType::RESERVE && message.flags.contains(QosFlags::COMMIT) {
            return self.commit_back(key, job, message, most, resources);
        }
        if self.reserve_opposite(job, message, most, resources) {
            return;
        }
        let mut answer = QosMessage::new(QosType::SUCCESS, job.flow);
        answer.echo = Some(sequence);
        answer.age = message.age;
        answer.version = Some(most.version());
        answer.listed = message.listed.filter(|_| message.kind != QosType::COMMIT);
        if asked.is_open() || message.kind == QosType::QUERY {
            most.answer(&mut answer);
        }
        self.answer(job, &answer);
        if message.kind == QosType::QUERY && !job.reverse && message.flags.contains(QosFlags::COMMIT) {
            let partial = message.partial.filter(|_| message.flags.contains(QosFlags::PARTIAL));
            self.reserve_back(key, partial, message.flags.contains(QosFlags::BRANCH), resources);
        }
    }
}

/// An Error about a request.
fn failed(message: &QosMessage<'_>, removes: bool, why: Failure) -> Failed {
    let (version, partial) = (message.version, message.partial);
    Failed { sequence: message.sequence.unwrap_or(0), removes, version, partial, why }
}

/// The counters of an Error: those of the request, or those of one that has no such object.
pub(super) fn counters_of(partial: Option<Partial>, code: QosErrorCode) -> Partial {
    let own = u16::from(code == QosErrorCode::BELOW_MINIMUM);
    partial.unwrap_or(Partial { failed: own, ..Partial::default() })
}
