//! Changes of the path of a session, and of the address of its source (section 7 of the draft).

use signalbox_core::{Key, Time, invariant};
use signalbox_resources::Resources;

use super::amount::Range;
use super::record::{Branch, Places, Stage};
use super::segment::with_objects;
use super::{QosClient, Waiting};
use crate::clients::shared::Message;
use crate::wire::FlowId;
use crate::wire::qos::{QosErrorCode, QosFlags, QosMessage, QosType};

impl QosClient {
    /// A session has a new hop. If it is on the side to which the requests go, the last request goes there at once.
    pub(super) fn new_hop(&mut self, key: Key, previous: bool, id: u16, resources: &mut Resources) {
        // What the session's first record did may have ended the one for the opposite flow.
        let Some(record) = self.records.get_mut(key) else { return };
        let reverse = match (&record.own, record.last) {
            (Some(own), _) => own.reverse || own.suggests,
            (None, last) => last.is_some_and(|last| last.reverse),
        };
        if reverse != previous {
            return;
        }
        // A Release by the former hop ends nothing here from now on, nor one by the new hop before it has answered.
        record.enter(!previous, Branch::to_new_hop(id));
        if record.has_state() {
            self.locate(Waiting::Again(key), resources);
        }
    }

    /// Sends the last requests of a session to its new hop: the Reserve first, then the Commit, as its originator sent them.
    /// `places`: where the data leave now.
    pub(super) fn send_again(&mut self, key: Key, places: Option<Places>, resources: &mut Resources) {
        let Some(places) = places else { return };
        // It may have ended while its interfaces were looked up.
        let Some(record) = self.records.get_mut(key).filter(|record| record.has_state()) else { return };
        if let Some(own) = record.own.as_mut() {
            own.flags = own.flags.with(QosFlags::BRANCH);
            if own.stage == Stage::Standing {
                own.stage = Stage::Reserve;
                self.begin(key, Some(places), resources);
            }
            return;
        }
        let moved = record.places != places;
        record.places = places;
        if moved && !self.replace(key, resources) {
            self.counters.lost += 1;
            self.report_lost(key, QosErrorCode::BELOW_MINIMUM);
            return self.end(key, None, resources);
        }
        let Some(record) = invariant!(self.records.get(key), "a new place ends nothing") else { return };
        let (Some(session), Some(last)) = (record.session, record.last) else { return };
        let flow = record.flow;
        let mut message = QosMessage::new(QosType::RESERVE, flow);
        message.flags = QosFlags::BRANCH;
        message.priority = record.priority;
        message.time = record.period.as_deref().map(|period| period.stamps);
        message.reverse_flow = record.reverse_flow();
        if last.partial.is_some() {
            message.flags = message.flags.with(QosFlags::PARTIAL);
        }
        (message.sequence, message.partial) = (Some(last.sequence), last.partial);
        let levels = [(QosType::RESERVE, record.reserve.now), (QosType::COMMIT, record.commit.now)];
        let local = self.local_of(key);
        for (kind, level) in levels {
            let Some(level) = level else { continue };
            let mut message = QosMessage { kind, age: Some(level.age), ..message };
            Range::only(level.amount).write(&mut message);
            self.send((session, flow), last.reverse, None, &with_objects(&message, &local));
        }
    }

    /// The source of the data, this node, has another address: the reservation goes on for another flow, under the same
    /// session identifier.
    pub fn move_to(&mut self, now: Time, id: u64, flow: FlowId, resources: &mut Resources) {
        self.now = self.now.max(now);
        let Some(key) = self.by_user.get(&id).copied() else { return };
        let Some(record) = self.records.get_mut(key).filter(|record| record.flow != flow) else { return };
        let former = record.flow;
        let Some(own) = record.own.as_mut().filter(|own| !own.reverse) else { return };
        let asks = if own.suggests { Stage::Query } else { Stage::Reserve };
        // A query ends with its answer, and so does what the receiver has not reserved yet.
        if own.stage == Stage::Release || own.stage == Stage::Query && !own.reported {
            return;
        }
        own.flags = own.flags.with(QosFlags::BRANCH);
        (own.stage, own.waits, own.due) = (asks, None, now + record.lifetime);
        record.flow = flow;
        if record.opposite.is_some() {
            record.set_opposite(Some(flow.reversed()));
        }
        record.sides = [Vec::new(), Vec::new()];
        let (session, older) = (record.session, record.former.replace(Box::new(former)));
        if let (Some(session), Some(older)) = (session, older) {
            self.out.send(Message::tear_down(session, *older));
        }
        self.seek(key, resources);
        self.arm(key);
    }

    /// The session with the flow that the source has left ends in the messaging layer.
    pub(super) fn leave_former(&mut self, key: Key) {
        let Some(record) = invariant!(self.records.get_mut(key), "a move has a record") else { return };
        if let (Some(session), Some(former)) = (record.session, record.former.take()) {
            self.out.send(Message::tear_down(session, *former));
        }
    }

    /// A refresh of this node failed: it is repeated until the reservation expires. False: it was no refresh.
    pub(super) fn retry(&mut self, key: Key, code: QosErrorCode, resources: &mut Resources) -> bool {
        let interval = self.interval(key);
        let now = self.now;
        let Some(record) = invariant!(self.records.get_mut(key), "a refresh that failed has a record") else {
            return false;
        };
        let lifetime = record.lifetime;
        let Some(own) = record.own.as_mut().filter(|own| own.reported) else { return false };
        let expires = own.answered + lifetime;
        if expires <= now {
            self.end(key, Some(code), resources);
            return true;
        }
        (own.stage, own.waits, own.due) = (Stage::Standing, None, (now + interval).min(expires));
        self.arm(key);
        true
    }
}
