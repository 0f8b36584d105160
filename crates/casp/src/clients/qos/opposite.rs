//! A receiver that reserves the opposite flow in the session of a source: its Reserve answers the one that it received, and comes
//! back over the same nodes (REVERSE_FLOW with C-Type 2).

use core::net::IpAddr;

use signalbox_core::{Key, invariant};
use signalbox_resources::{End, Resources};

use super::amount::{Amount, Range};
use super::answer::Failed;
use super::node::Job;
use super::record::{Originator, Stage};
use super::suggest::as_asked;
use super::{QosClient, seconds};
use crate::wire::qos::{QosErrorCode, QosFlags, QosMessage, QosType};

impl QosClient {
    /// Answers a Reserve by one for the opposite flow, if this node does so. False: an answer of its own has to follow. The
    /// opposite flow gets what arrived here, so that one amount stands for both.
    pub(super) fn reserve_opposite(
        &mut self,
        job: &Job,
        message: &QosMessage<'_>,
        most: Amount,
        resources: &mut Resources,
    ) -> bool {
        let wanted = self.config.reserve_opposite
            && message.kind == QosType::RESERVE
            && message.reverse_flow.is_none()
            && !message.flags.contains(QosFlags::COMMIT)
            && !job.reverse;
        if !wanted {
            return false;
        }
        let Ok(period) = self.period(message.time) else { return false };
        let Some(key) = self.record_of(job.session, job, true) else { return false };
        let (now, range, age) = (self.now, Range::only(most), self.clock.next_age(self.now));
        let partial = message.partial.filter(|_| message.flags.contains(QosFlags::PARTIAL)).map(as_asked);
        let Some(record) = invariant!(self.records.get(key), "a new flow has a record") else { return false };
        let moved = record.flow != job.flow;
        if record.own().is_some_and(|own| own.range == range && own.reported) && !moved {
            // A refresh.
            return false;
        }
        self.set_period(key, period);
        let Some(record) = invariant!(self.records.get_mut(key), "a time ends nothing") else { return false };
        if moved {
            record.sides = [Vec::new(), Vec::new()];
        }
        record.flow = job.flow;
        record.set_opposite(Some(job.flow.reversed()));
        (record.asker, record.priority) = (job.asker(), message.priority);
        record.lifetime = seconds(job.timeout.max(1));
        let before = record.own().filter(|own| own.reported).map(|own| (own.age, own.range));
        let mut own = Originator::of_receiver(range, age, partial, now, now + record.lifetime);
        (own.before, own.answers) = (before, message.sequence);
        if moved {
            own.flags = own.flags.with(QosFlags::BRANCH);
        }
        record.own = Some(Box::new(own));
        self.seek(key, resources);
        self.arm(key);
        true
    }

    /// A Reserve for the opposite flow, which answers one of this session, was carried out here. It may fail further on: the
    /// nodes on the way wait for the Commit.
    pub(super) fn opposite_passes(
        &mut self,
        job: &Job,
        message: &QosMessage<'_>,
        most: &Amount,
        resources: &mut Resources,
    ) {
        let (Some(echo), QosType::RESERVE) = (message.echo, message.kind) else { return };
        let Some(key) = self.find(job.session, false).filter(|_| job.instead) else { return };
        self.enter_answer(key, job);
        if job.last {
            self.settle(key, echo, End::Replaced, resources);
            self.trim(key, most, resources);
            self.own_success(key, echo, Some(*most), resources);
            self.arm(key);
        }
    }

    /// The reservation of the opposite flow failed: so does the Reserve that it answers. What stood before, `stood`, stands on.
    pub(super) fn opposite_failed(
        &mut self,
        key: Key,
        answers: u32,
        stood: bool,
        (code, detail, node): (QosErrorCode, u16, Option<IpAddr>),
        resources: &mut Resources,
    ) {
        let interval = self.interval(key);
        let Some(record) = invariant!(self.records.get_mut(key), "a failure has a record") else { return };
        let version = record.own.as_ref().map(|own| own.range.most.version());
        let (session, why) = (record.session, (code, detail));
        let failed = Failed { sequence: answers, removes: !stood, version, partial: None, why };
        if stood && let Some(own) = record.own.as_mut() {
            if let Some((age, range)) = own.before.take() {
                (own.age, own.range) = (age, range);
            }
            (own.stage, own.waits, own.due, own.reported) =
                (Stage::Standing, None, self.now + interval, true);
        }
        self.report_failure(key, failed, node);
        match session.and_then(|session| self.find(session, false)) {
            Some(main) if stood => self.settle(main, answers, End::RefusedBeyond(node), resources),
            _ if stood => {}
            _ => self.end_session(key, None, resources),
        }
        self.arm(key);
    }
}
