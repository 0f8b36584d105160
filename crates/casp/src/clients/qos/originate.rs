//! The node that asks for a reservation: Reserve, Commit and their refreshes, Query, Release.

use core::net::IpAddr;
use core::time::Duration;

use signalbox_core::{Key, SessionId, Time, invariant};
use signalbox_resources::{End, Resources};
use signalbox_wire::hops::Hops;

use super::amount::{Amount, Range};
use super::output::{QosEvent, Told};
use super::record::{Originator, Places, Record, Stage};
use super::segment::with_objects;
use super::{NO_USER, QosClient, QosRequest, Waiting, allowance, seconds};
use crate::clients::shared::{Message, ntp};
use crate::wire::Listed;
use crate::wire::qos::{QosErrorCode, QosFlags, QosMessage, QosType};

impl QosClient {
    /// Asks for a reservation. The events have the identifier `id`, which no other request of a user has.
    pub fn reserve(&mut self, now: Time, id: u64, request: &QosRequest, resources: &mut Resources) {
        let stage = if request.by_receiver { Stage::Query } else { Stage::Reserve };
        self.start(now, id, request, stage, resources);
    }

    /// Asks what the path could reserve. The session stays until [`QosClient::release`], and a later
    /// [`QosClient::change`] reserves in it.
    pub fn query(&mut self, now: Time, id: u64, request: &QosRequest, resources: &mut Resources) {
        self.start(now, id, request, Stage::Query, resources);
    }

    /// Asks for another amount. If that fails, the reservation stays as it was.
    pub fn change(&mut self, now: Time, id: u64, range: Range, resources: &mut Resources) {
        self.now = self.now.max(now);
        // The user may not know yet that the reservation has ended; so below.
        let Some(key) = self.by_user.get(&id).copied() else { return };
        let age = self.clock.next_age(self.now);
        let Some(own) = invariant!(
            self.records.get_mut(key).and_then(|record| record.own.as_mut()),
            "a user's reservation has a record with its own part"
        ) else {
            return;
        };
        // A change of a change goes back to what stood before both.
        if own.reported {
            own.before = Some((own.age, own.range));
        }
        (own.range, own.age, own.stage, own.reported) = (range, age, Stage::Reserve, false);
        self.send_own(key, resources);
        self.arm(key);
    }

    /// Releases a reservation. The last event is [`QosEvent::Released`].
    pub fn release(&mut self, now: Time, id: u64, resources: &mut Resources) {
        self.now = self.now.max(now);
        let Some(key) = self.by_user.get(&id).copied() else { return };
        self.begin_release(key, resources);
    }

    /// Gives back what this node holds, and asks the others to.
    pub(super) fn begin_release(&mut self, key: Key, resources: &mut Resources) {
        let Some(record) = invariant!(self.records.get_mut(key), "a Release has a record") else { return };
        let Some(own) = invariant!(record.own.as_mut(), "who releases has asked") else { return };
        own.stage = Stage::Release;
        if record.session.is_none() {
            self.out.event(own.id, QosEvent::Released { confirmed: false });
            return self.end(key, None, resources);
        }
        resources.because(End::User);
        self.release_all(key, resources);
        self.send_own(key, resources);
        self.arm(key);
    }

    fn start(&mut self, now: Time, id: u64, request: &QosRequest, stage: Stage, resources: &mut Resources) {
        self.now = self.now.max(now);
        let refuse = |client: &mut Self, code| {
            let told = Told::default();
            client.out.event(id, QosEvent::Refused { code, detail: 0, node: None, told, stands: false });
        };
        if self.by_user.contains_key(&id) {
            return refuse(self, QosErrorCode::POLICY);
        }
        let stamps = |(start, end)| (if start == 0 { 0 } else { ntp::stamp(start) }, ntp::stamp(end));
        let period = match self.period(request.time.map(stamps)) {
            Ok(period) => period,
            Err((code, _)) => return refuse(self, code),
        };
        let found = match request.session {
            Some(session) => self.find(session, false),
            None => self.make_record(None, request.flow, None),
        };
        let Some(key) = found else { return refuse(self, QosErrorCode::NO_RESERVATION) };
        let age = self.clock.next_age(self.now);
        let kept = request.kept.filter(|kept| self.find_all(*kept) == [None; 2] && request.session.is_none());
        let (due, lifetime) =
            (self.now + Duration::from_secs(self.config.lifetime.into()), self.config.lifetime);
        let Some(record) = invariant!(self.records.get_mut(key), "a start has a record") else { return };
        if record.own.is_some() {
            return refuse(self, QosErrorCode::NOT_OWNER);
        }
        // The side that reserves stays within the bounds that the other one suggested.
        let range = match &record.suggested {
            Some(suggested) => request.range.within(suggested),
            None => Some(request.range),
        };
        let Some(range) = range else { return refuse(self, QosErrorCode::BELOW_MINIMUM) };
        let mut flags = QosFlags::NONE;
        if request.at_once || request.by_receiver {
            flags = flags.with(QosFlags::COMMIT);
        }
        if request.partial.is_some() {
            flags = flags.with(QosFlags::PARTIAL);
        }
        if request.session.is_none() {
            record.lifetime = Duration::from_secs(lifetime.into());
        }
        // The receiver of a suggestion keeps the priority that it has.
        record.priority = request.priority.map(u32::from).or(record.priority);
        if request.both {
            record.set_opposite(Some(record.flow.reversed()));
        }
        if kept.is_some() {
            record.next_sequence = sequence_by_age(age);
        }
        record.own = Some(Box::new(Originator {
            id,
            reverse: request.session.is_some(),
            suggests: request.by_receiver,
            range,
            age,
            before: None,
            flags,
            partial: request.partial.map(allowance),
            stage,
            answers: None,
            waits: None,
            due,
            reported: false,
            answered: self.now,
            kept,
        }));
        self.by_user.insert(id, key);
        if let Some(kept) = kept {
            self.by_session.insert((kept, false), key);
        }
        if period.is_some() {
            self.set_period(key, period);
        }
        self.seek(key, resources);
        self.arm(key);
    }

    /// Asks by which interfaces the data leave; the request of the present stage follows.
    pub(super) fn seek(&mut self, key: Key, resources: &mut Resources) {
        self.locate(Waiting::Own(key), resources);
    }

    /// The interfaces of the data are known: the request of the present stage leaves.
    pub(super) fn begin(&mut self, key: Key, places: Option<Places>, resources: &mut Resources) {
        // It may have ended while its interfaces were looked up.
        let Some(record) = self.records.get_mut(key) else { return };
        let Some(own) = invariant!(record.own(), "who seeks interfaces has asked") else { return };
        let Some(places) = places else {
            if !self.retry(key, QosErrorCode::NO_ANSWER, resources) {
                self.own_refused(key, (QosErrorCode::BELOW_MINIMUM, 0), resources);
            }
            return;
        };
        let mut moved = record.places != places || own.flags.contains(QosFlags::BRANCH);
        record.places = places;
        let has_state = record.has_state();
        moved |= self.enter_segments(key, own.reverse);
        if moved && has_state && !self.replace(key, resources) {
            return self.end(key, Some(QosErrorCode::BELOW_MINIMUM), resources);
        }
        self.send_own(key, resources);
        self.arm(key);
    }

    /// Sends the request of the present stage.
    fn send_own(&mut self, key: Key, resources: &mut Resources) {
        let again = self.now + self.interval(key);
        let Some(record) = invariant!(self.records.get_mut(key), "a request has a record") else { return };
        let (number, flow, session, until) =
            (record.number(), record.flow, record.session, self.now + record.lifetime);
        let (priority, opposite) = (record.priority, record.reverse_flow());
        let time = record.period.as_deref().map(|period| period.stamps);
        let Some(own) = invariant!(record.own.as_mut(), "who sends a request has asked") else { return };
        // A refresh without an answer is repeated before the reservation expires.
        (own.waits, own.due) = (Some(number), if own.reported { again } else { until });
        let own = **own;
        let kind = match own.stage {
            Stage::Query => QosType::QUERY,
            Stage::Commit => QosType::COMMIT,
            Stage::Release => QosType::RELEASE,
            Stage::Reserve | Stage::Standing => QosType::RESERVE,
        };
        let list;
        let mut message = QosMessage::new(kind, flow);
        message.sequence = Some(number);
        if kind == QosType::RELEASE {
            message.flags = QosFlags::REMOVE;
        } else {
            let range = match self.own_part(key, kind, &own, number, resources) {
                Ok(range) => range,
                Err(code) => return self.own_refused(key, (code, 0), resources),
            };
            message.flags = match kind {
                QosType::RESERVE => own.flags,
                QosType::QUERY if own.suggests => own.flags,
                _ if own.partial.is_some() => QosFlags::PARTIAL,
                _ => QosFlags::NONE,
            };
            message.age = (kind != QosType::QUERY).then_some(own.age);
            (message.partial, message.priority) = (own.partial, priority);
            (message.reverse_flow, message.time) = (opposite, time);
            message.echo = own.answers.filter(|_| kind == QosType::RESERVE);
            range.write(&mut message);
            list = match kind {
                // The source of the data learns from it who reserved.
                QosType::COMMIT if own.reverse => self.lists.get(key).map(|hops| hops.octets().to_vec()),
                QosType::COMMIT => None,
                _ => Some(self.list_begun(flow.dst(), own.reverse, &range.most)),
            };
            let hops = list.as_deref().and_then(Hops::from_octets);
            message.listed = hops.map(|hops| Listed { last_hops: 0, hops });
        }
        let local = if kind == QosType::RELEASE { Vec::new() } else { self.local_of(key) };
        let mut data = Vec::new();
        if with_objects(&message, &local).encode(&mut data).is_ok() {
            self.out.send(Message {
                tag: key.to_u64(),
                reverse: own.reverse,
                hold: true,
                ..Message::new(session.or(own.kept), flow, data)
            });
        }
    }

    /// Does at this node what its own request asks for. The result is the bounds that go to the next one.
    fn own_part(
        &mut self,
        key: Key,
        kind: QosType,
        own: &Originator,
        number: u32,
        resources: &mut Resources,
    ) -> Result<Range, QosErrorCode> {
        if kind == QosType::QUERY {
            let most = self.could(key, &own.range, resources)?;
            return Ok(Range { most, ..own.range });
        }
        let Some(record) = invariant!(self.records.get_mut(key), "the own part of a request has a record")
        else {
            return Err(QosErrorCode::NO_RESERVATION);
        };
        let until = self.now + record.lifetime;
        let reserved = record.reserve.now.filter(|level| level.age == own.age);
        if let Some(level) = record.part(kind).now.as_mut().filter(|level| level.age == own.age) {
            level.until = until;
            let most = level.amount;
            let least = if kind == QosType::COMMIT { most } else { own.range.least };
            return Ok(Range { least, most });
        }
        let range = match reserved.filter(|_| kind == QosType::COMMIT) {
            Some(level) => Range::only(level.amount),
            None => own.range,
        };
        let most = self.admit(key, (kind, own.age, number), &range, resources)?;
        Ok(Range { most, ..range })
    }

    /// The messaging layer named a session of this node.
    pub(super) fn opened(&mut self, tag: u64, session: SessionId) {
        let key = Key::from_u64(tag);
        // It may have been released before the messaging layer named it.
        let Some(record) = self.records.get_mut(key) else { return };
        record.session = Some(session);
        if let Some(own) = &record.own {
            self.by_session.insert((session, false), key);
            self.out.event(own.id, QosEvent::Opened { session });
        }
    }

    /// Handles a Success for a request of this node.
    pub(super) fn own_success(
        &mut self,
        key: Key,
        echo: u32,
        amount: Option<Amount>,
        resources: &mut Resources,
    ) {
        let interval = self.interval(key);
        let Some(record) = invariant!(self.records.get_mut(key), "an answer has a record") else { return };
        let held = record.commit.now.or(record.reserve.now).map(|level| level.amount);
        let Some(own) = record.own.as_mut().filter(|own| own.waits == Some(echo)) else { return };
        (own.waits, own.due, own.answered) = (None, self.now + interval, self.now);
        let (id, reported, range) = (own.id, own.reported, own.range);
        let amount_held = held.unwrap_or(range.most);
        match own.stage {
            Stage::Query => {
                own.stage = Stage::Standing;
                if own.suggests && !own.flags.contains(QosFlags::BRANCH) {
                    own.due = self.now + seconds(self.config.lifetime);
                }
                self.out.event(id, QosEvent::Available { amount });
            }
            Stage::Reserve => {
                own.stage = Stage::Commit;
                if !reported {
                    self.out.event(id, QosEvent::Reserved { amount: amount_held });
                }
                self.send_own(key, resources);
            }
            Stage::Commit => self.stands(key, amount_held),
            Stage::Release => self.released(key, true, resources),
            Stage::Standing => {}
        }
    }

    /// The flow has its resources.
    fn stands(&mut self, key: Key, amount: Amount) {
        let interval = self.interval(key);
        let Some(own) = invariant!(
            self.records.get_mut(key).and_then(|record| record.own.as_mut()),
            "a reservation that stands has its own part"
        ) else {
            return;
        };
        (own.stage, own.waits, own.due) = (Stage::Standing, None, self.now + interval);
        (own.before, own.answers, own.answered) = (None, None, self.now);
        let rerouted = own.flags.contains(QosFlags::BRANCH);
        own.flags = own.flags.without(QosFlags::BRANCH);
        if !core::mem::replace(&mut own.reported, true) || rerouted {
            self.out.event(own.id, QosEvent::Committed { amount });
        }
        self.leave_former(key);
    }

    /// Handles a Commit that answers a Reserve of this node. False: it does not.
    pub(super) fn committed_by_answer(
        &mut self,
        key: Key,
        message: &QosMessage<'_>,
        most: Amount,
        resources: &mut Resources,
    ) -> bool {
        let Some(echo) = message.echo else { return false };
        let waits = self.records.get(key).and_then(Record::own).and_then(|own| own.waits);
        if waits != Some(echo) {
            return false;
        }
        self.keep_list(key, message.listed);
        self.settle(key, echo, End::Replaced, resources);
        self.settle(key, message.sequence.unwrap_or(0), End::Replaced, resources);
        self.stands(key, most);
        true
    }

    /// Handles an Error for a request of this node, or for its whole reservation.
    pub(super) fn own_error(&mut self, key: Key, message: &QosMessage<'_>, resources: &mut Resources) {
        let removes = message.flags.contains(QosFlags::REMOVE);
        let Some(own) = invariant!(
            self.records.get(key).and_then(Record::own),
            "an error for this node is about a request of its own"
        ) else {
            return;
        };
        let about = own.waits.is_some() && own.waits == message.echo;
        self.told = message.refusal.as_ref().map(Told::from).unwrap_or_default();
        let (code, detail) = message.error.unwrap_or((QosErrorCode::BELOW_MINIMUM, 0));
        if about && own.stage == Stage::Release {
            return self.released(key, true, resources);
        }
        if removes && !about {
            if own.suggests && !own.reported {
                let why = (code, detail, message.error_node);
                return self.after_failure(key, true, why, resources);
            }
            return self.end(key, Some(code), resources);
        }
        if about && (removes || !self.retry(key, code, resources)) {
            self.after_failure(key, removes, (code, detail, message.error_node), resources);
        }
    }

    /// A request of this node failed: what stood before it stands on, or the session ends.
    pub(super) fn after_failure(
        &mut self,
        key: Key,
        removes: bool,
        (code, detail, node): (QosErrorCode, u16, Option<IpAddr>),
        resources: &mut Resources,
    ) {
        let interval = self.interval(key);
        let Some(record) = invariant!(self.records.get_mut(key), "a failure has a record") else { return };
        let Some(own) = invariant!(record.own.as_mut(), "who fails has asked") else { return };
        let stood = own.reported || own.before.is_some();
        if !stood && code == QosErrorCode::NOT_OWNER && own.kept.is_some() {
            return self.ask_anew(key, node, resources);
        }
        if let Some(answers) = own.answers.take() {
            return self.opposite_failed(key, answers, stood, (code, detail, node), resources);
        }
        if own.id == NO_USER && !stood && !removes {
            self.suggestion_failed(key, (code, detail, node));
            return self.end(key, None, resources);
        }
        if stood && removes {
            return self.end(key, Some(code), resources);
        }
        let told = core::mem::take(&mut self.told);
        self.out.event(own.id, QosEvent::Refused { code, detail, node, told, stands: stood });
        if !stood {
            return self.end(key, None, resources);
        }
        if let Some((age, range)) = own.before.take() {
            (own.age, own.range) = (age, range);
        }
        (own.stage, own.waits, own.due, own.reported) = (Stage::Standing, None, self.now + interval, true);
    }

    /// A node has the session from a hop that is not the one of this request: the request goes on in a session of its own, and what the
    /// other one holds expires.
    fn ask_anew(&mut self, key: Key, node: Option<IpAddr>, resources: &mut Resources) {
        resources.because(End::RefusedBeyond(node));
        self.release_all(key, resources);
        self.tear_down(key);
        let age = self.clock.next_age(self.now);
        let Some(record) = self.records.get_mut(key) else { return };
        record.sides = [Vec::new(), Vec::new()];
        let (named, until) = (record.session.take(), self.now + record.lifetime);
        let Some(own) = record.own.as_mut() else { return };
        let former = named.or(own.kept.take());
        (own.kept, own.age, own.waits, own.due) = (None, age, None, until);
        own.stage = if own.suggests { Stage::Query } else { Stage::Reserve };
        if let Some(former) = former {
            self.by_session.remove(&(former, false));
        }
        self.seek(key, resources);
    }

    /// This node itself cannot do what it asks for.
    fn own_refused(&mut self, key: Key, (code, detail): (QosErrorCode, u16), resources: &mut Resources) {
        self.after_failure(key, false, (code, detail, None), resources);
        self.arm(key);
    }

    /// The messaging layer does not take the request.
    pub(super) fn own_failed(&mut self, key: Key, resources: &mut Resources) {
        // The messaging layer also refuses messages about requests of others, and of records that have ended.
        let Some(own) = self.records.get(key).and_then(Record::own) else { return };
        let (code, detail, node) = (QosErrorCode::NO_ANSWER, 0, None);
        if own.reported || own.before.is_some() {
            return self.end(key, Some(code), resources);
        }
        let told = Told::default();
        self.out.event(own.id, QosEvent::Refused { code, detail, node, told, stands: false });
        self.end(key, None, resources);
    }

    /// The wait of the originator for an answer is over.
    pub(super) fn no_answer(&mut self, key: Key, code: QosErrorCode, resources: &mut Resources) {
        let Some(own) = self.records.get(key).and_then(Record::own) else { return };
        let Some(number) = own.waits else { return };
        self.counters.unanswered += 1;
        if own.stage == Stage::Release {
            return self.released(key, false, resources);
        }
        if self.retry(key, code, resources) {
            return;
        }
        self.told = Told::default();
        self.settle(key, number, End::RefusedBeyond(None), resources);
        self.after_failure(key, false, (code, 0, None), resources);
        self.arm(key);
    }

    /// The Release was answered, or is not waited for any longer: the session ends in the messaging layer too.
    fn released(&mut self, key: Key, confirmed: bool, resources: &mut Resources) {
        let Some(own) =
            invariant!(self.records.get(key).and_then(Record::own), "a release was asked for by this node")
        else {
            return;
        };
        self.out.event(own.id, QosEvent::Released { confirmed });
        self.end(key, None, resources);
    }

    /// Ends the session in the messaging layer. The receiver of the data leaves that to their source, which opened it.
    pub(super) fn tear_down(&mut self, key: Key) {
        self.leave_former(key);
        let Some(record) = invariant!(self.records.get(key), "a tear-down has a record") else { return };
        let (Some(session), Some(own)) = (record.session, record.own()) else { return };
        if !own.reverse {
            self.out.send(Message::tear_down(session, record.flow));
        }
    }

    /// Does what is due for the originator.
    pub(super) fn own_due(&mut self, key: Key, resources: &mut Resources) {
        // The end of its time may have ended it.
        let Some(record) = self.records.get_mut(key) else { return };
        let (has_state, lifetime) = (record.has_state(), record.lifetime);
        let Some(own) = record.own.as_mut().filter(|own| own.due <= self.now) else { return };
        match own.stage {
            Stage::Standing if own.suggests => self.suggestion_due(key, resources),
            Stage::Standing if has_state => {
                own.stage = Stage::Reserve;
                own.due = self.now + lifetime;
                self.seek(key, resources);
            }
            Stage::Standing if own.reported => self.end(key, Some(QosErrorCode::NO_RESERVATION), resources),
            // Only the path was laid; the messaging layer keeps it.
            Stage::Standing => own.due = self.now + lifetime,
            // A refresh that is not answered is repeated, as long as the reservation stands.
            Stage::Reserve | Stage::Commit if own.reported && self.now < own.answered + lifetime => {
                own.stage = Stage::Reserve;
                own.due = self.now + lifetime;
                self.seek(key, resources);
            }
            // The interfaces of the data were never found.
            _ if own.waits.is_none() => self.own_failed(key, resources),
            Stage::Query | Stage::Reserve | Stage::Commit | Stage::Release => {
                self.no_answer(key, QosErrorCode::NO_ANSWER, resources);
            }
        }
    }

    /// The time to the next refresh: a third of the lifetime, from half to one and a half times that.
    pub(super) fn interval(&mut self, key: Key) -> Duration {
        let lifetime = self.records.get(key).map_or(Duration::ZERO, |record| record.lifetime);
        self.rng.jitter(lifetime / 3, 0.5, 1.5)
    }
}

/// The first number of a session that nodes of the path may have with numbers of an earlier start: sixteenths of a second, by the clock.
/// No session has as many requests.
fn sequence_by_age(age: u64) -> u32 {
    let [.., a, b, c, d] = (age >> 28).to_be_bytes();
    u32::from_be_bytes([a, b, c, d]).max(1)
}
