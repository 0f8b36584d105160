//! Reservations that the receiver of the data makes because the source asks for it: by a Query with flag C *(ours)*.

use core::net::IpAddr;

use signalbox_core::{Key, invariant};
use signalbox_resources::Resources;

use super::amount::Amount;
use super::answer::Failed;
use super::output::QosEvent;
use super::record::{Originator, Stage};
use super::{NO_USER, QosClient, allowance, seconds};
use crate::wire::qos::{Partial, QosErrorCode, QosFlags, QosMessage, QosType, QosVersion};

/// The counters of a request as its originator sent them: the nodes of the path counted down what they counted up.
pub(super) fn as_asked(partial: Partial) -> Partial {
    let failures = partial.failures_allowed.saturating_add(partial.failed);
    allowance((failures, partial.indeterminate_allowed.saturating_add(partial.indeterminate)))
}

impl QosClient {
    /// Reserves as the receiver of the data what their source suggested. No user of this node takes part: the reservation
    /// lasts as long as the session. `moved`: the address of the source has changed. If the source asks again without that, it has
    /// lost the reservation, and this request takes its place.
    pub(super) fn reserve_back(
        &mut self,
        key: Key,
        partial: Option<Partial>,
        moved: bool,
        resources: &mut Resources,
    ) {
        let age = self.clock.next_age(self.now);
        let now = self.now;
        let Some(record) = self.records.get_mut(key) else { return };
        let Some(range) = record.suggested.as_deref().copied() else { return };
        match &record.own {
            Some(_) if moved => return self.reserve_again(key, resources),
            Some(own) if own.id != NO_USER || own.stage == Stage::Release => return,
            Some(_) | None => {}
        }
        let partial = partial.map(as_asked);
        let due = now + record.lifetime;
        record.own = Some(Box::new(Originator::of_receiver(range, age, partial, now, due)));
        self.seek(key, resources);
        self.arm(key);
    }

    /// The source of the data asks again because its address has changed: what this node reserved is reserved on the new path.
    fn reserve_again(&mut self, key: Key, resources: &mut Resources) {
        let due = self.now + seconds(self.config.lifetime);
        let own = self.records.get_mut(key).and_then(|record| record.own.as_mut());
        let Some(own) = own.filter(|own| own.id == NO_USER && own.stage != Stage::Release) else { return };
        own.flags = own.flags.with(QosFlags::BRANCH);
        (own.stage, own.waits, own.due) = (Stage::Reserve, None, due);
        self.seek(key, resources);
        self.arm(key);
    }

    /// The reservation that the source suggested failed: the source gets an Error that ends the session.
    pub(super) fn suggestion_failed(
        &mut self,
        key: Key,
        (code, detail, node): (QosErrorCode, u16, Option<IpAddr>),
    ) {
        let Some(record) = invariant!(self.records.get(key), "what fails has a record") else { return };
        let sequence = record.last.map_or(0, |last| last.sequence);
        let version = record.suggested.as_ref().map(|range| range.most.version());
        let failed = Failed { sequence, removes: true, version, partial: None, why: (code, detail) };
        self.report_failure(key, failed, node);
    }

    /// Informs the source of the data that the reservation of this node failed. `node`: the one where it did.
    pub(super) fn report_failure(&mut self, key: Key, failed: Failed, node: Option<IpAddr>) {
        let Some(record) = invariant!(self.records.get(key), "a report has a record") else { return };
        let Some(session) = invariant!(record.session, "a report is about a session") else { return };
        let flow = record.flow;
        let mut message = QosMessage::new(QosType::ERROR, flow);
        if failed.removes {
            message.flags = QosFlags::REMOVE;
        }
        message.echo = Some(failed.sequence);
        message.version = Some(failed.version.unwrap_or(QosVersion::FLOWSPEC));
        message.partial = Some(Partial::default());
        message.error_node = node.or(self.local.like(flow.dst())).or(Some(flow.dst()));
        message.error = Some(failed.why);
        self.send((session, flow), true, None, &message);
    }

    /// A Commit of the receiver reached the source of the data: the flow has its resources.
    pub(super) fn reserved_by_receiver(&mut self, key: Key, amount: Amount) {
        let until = self.now + seconds(self.config.lifetime);
        let own = self.records.get_mut(key).and_then(|record| record.own.as_mut());
        let Some(own) = own.filter(|own| own.suggests && own.stage != Stage::Release) else { return };
        (own.stage, own.waits, own.due, own.answered) = (Stage::Standing, None, until, self.now);
        let moved = own.flags.contains(QosFlags::BRANCH);
        own.flags = own.flags.without(QosFlags::BRANCH);
        if !core::mem::replace(&mut own.reported, true) || moved {
            self.out.event(own.id, QosEvent::Committed { amount });
        }
        self.leave_former(key);
    }

    /// Does what is due for a source whose receiver is to reserve: it gives up if the receiver does not, and ends when the
    /// reservation has expired.
    pub(super) fn suggestion_due(&mut self, key: Key, resources: &mut Resources) {
        let until = self.now + seconds(self.config.lifetime);
        let Some(record) = invariant!(self.records.get_mut(key), "who waits has a record") else { return };
        let has_state = record.has_state();
        let Some(own) = invariant!(record.own.as_mut(), "who waits has asked") else { return };
        if has_state && own.flags.contains(QosFlags::BRANCH) {
            // The receiver has not reserved on the new path.
            (own.stage, own.due) = (Stage::Query, until);
            self.seek(key, resources);
        } else if has_state {
            own.due = until;
        } else if own.reported {
            self.end(key, Some(QosErrorCode::NO_RESERVATION), resources);
        } else {
            self.after_failure(key, false, (QosErrorCode::NO_ANSWER, 0, None), resources);
        }
    }
}
