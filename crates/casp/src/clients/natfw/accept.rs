//! The other end of the path: what it sends because of NEXT, and the packets that its users accept.

use core::net::IpAddr;

use signalbox_core::traffic::FlowFilter;
use signalbox_core::{Key, Time, invariant};
use signalbox_resources::Resources;

use super::NatfwClient;
use super::output::{NatfwEnd, NatfwEvent};
use super::record::{Answered, Receiver, Turn};
use super::request::Contents;
use super::respond::Report;
use super::rules::filter_of;
use crate::engine::OwnedArrival;
use crate::wire::FlowId;
use crate::wire::natfw::{NatfwMessage, NatfwObject, NatfwStatus, NatfwType, NatfwValue};

/// Most sets of packets that users accept.
const MAX_ACCEPTED: usize = 1024;
/// Most passages of a user who leaves that are released at once.
const PART: usize = 128;

/// Whether a filter of a user has the packets of a flow.
fn has(filter: &FlowFilter, flow: &FlowId) -> bool {
    let packets = flow.filter();
    let same = |wanted: Option<u32>, have: Option<u32>| wanted.is_none() || wanted == have;
    let port = |port: Option<u16>| port.map(u32::from);
    filter.src.contains(packets.src.addr)
        && filter.dst.contains(packets.dst.addr)
        && same(filter.protocol.map(u32::from), packets.protocol.map(u32::from))
        && same(port(filter.src_port), port(packets.src_port))
        && same(port(filter.dst_port), port(packets.dst_port))
        && same(filter.spi, packets.spi)
        && same(filter.flow_label, packets.flow_label)
}

impl NatfwClient {
    /// A user accepts these packets until [`NatfwClient::close`]: a request for them by the sender of the data (PATH) is
    /// answered by CREATE, and the user gets [`NatfwEvent::Accepted`]. False: too many users do.
    pub fn accept(&mut self, now: Time, id: u64, packets: FlowFilter) -> bool {
        self.now = self.now.max(now);
        let room = self.accepted.len() < MAX_ACCEPTED;
        if room {
            self.accepted.insert(id, packets);
        }
        room
    }

    /// Whether a user accepts packets under this identifier.
    #[must_use]
    pub fn is_accepting(&self, id: u64) -> bool {
        self.accepted.contains_key(&id)
    }

    /// The user who accepts the packets of a flow, if one does.
    fn accepting(&self, flow: &FlowId) -> Option<u64> {
        self.accepted.iter().find(|(_, packets)| has(packets, flow)).map(|(id, _)| *id)
    }

    /// Whether a user accepts the packets of a flow.
    pub(super) fn accepts(&self, flow: &FlowId) -> bool {
        self.accepting(flow).is_some()
    }

    /// Whether a request is a PATH to a user of this node, which may be a firewall too.
    fn is_for_own_user(&self, job: &OwnedArrival, kind: NatfwType) -> bool {
        kind == NatfwType::PATH && job.last && self.local.has(job.flow.dst())
    }

    /// A request ends here: NEXT says what follows.
    pub(super) fn at_the_end(
        &mut self,
        key: Key,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        contents: &Contents,
        resources: &mut Resources,
    ) {
        if job.reverse {
            self.out.consume(job.id);
            return self.own_created(key, message, contents);
        }
        let default = (message.kind == NatfwType::PATH).then_some(NatfwType::CREATE);
        match contents.next.or(default) {
            None => {
                self.out.consume(job.id);
                self.triggered(job, message, contents);
            }
            Some(NatfwType::RESPONSE) => self.answer_done(key, job, 0),
            Some(next) if self.config.role.opens() && !self.is_for_own_user(job, message.kind) => {
                let asker = self.records.get(key).and_then(|record| record.asker(false).cloned());
                let wanted = !Self::wanted_back(message, contents).is_empty();
                let result = match asker.filter(|asker| asker.inside && wanted && next == NatfwType::CREATE) {
                    Some(asker) => self.open_back(job, message, contents, asker, resources),
                    None => Err(NatfwStatus::POLICY),
                };
                if let Err(status) = result {
                    self.refuse(job, status);
                }
            }
            Some(next) => self.follow(key, job, message, contents, next),
        }
    }

    /// Sends the CREATE or PATH that a request asks for, if a user accepts its packets.
    pub(super) fn follow(
        &mut self,
        key: Key,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        contents: &Contents,
        next: NatfwType,
    ) {
        // At the border of a scope the request itself was granted, and no user of the firewall takes part.
        let user = self.accepting(&job.flow);
        let of_user = !self.config.role.opens() || self.is_for_own_user(job, message.kind);
        if user.is_none() && of_user {
            return self.refuse(job, NatfwStatus::POLICY);
        }
        self.out.consume(job.id);
        let known = self.records.get(key).and_then(|record| record.answered);
        // The answer to a request goes back over its path; within a scope that of NEXT, too.
        let back = match message.kind {
            NatfwType::PATH => true,
            NatfwType::CREATE => self.config.role.opens(),
            _ => false,
        };
        let number = self.rng.u64();
        // The AGE changes only with that of the request.
        let (session, flow) = (job.session, job.flow);
        let answered = match known.filter(|answered| answered.of == contents.age) {
            // The passage ended, but its sender has not learned that: it opens again. The user is informed when no node has
            // refused it until the next refresh, so that one that always fails gives no further events.
            Some(answered) if of_user && answered.receiver == Receiver::Absent => {
                self.answered.extend(user.map(|user| (user, key)));
                let receiver = user.map_or(Receiver::Absent, Receiver::Reopened);
                Answered { number, refreshed: false, receiver, ..answered }
            }
            Some(answered) => {
                let receiver = match answered.receiver {
                    Receiver::Reopened(user) => {
                        self.out.event(user, NatfwEvent::Accepted { session, flow });
                        Receiver::Informed(user)
                    }
                    other => other,
                };
                Answered { number, refreshed: true, receiver, ..answered }
            }
            None => {
                if let Some(user) = user {
                    self.out.event(user, NatfwEvent::Accepted { session, flow });
                }
                if let Some(former) = known.and_then(|answered| answered.receiver.user()) {
                    self.answered.remove(&(former, key));
                }
                self.answered.extend(user.map(|user| (user, key)));
                let (of, age) = (contents.age, self.clock.next_age(self.now));
                let receiver = user.map_or(Receiver::Absent, Receiver::Informed);
                Answered { of, age, number, refreshed: false, back, receiver }
            }
        };
        if let Some(record) = self.records.get_mut(key) {
            record.answered = Some(answered);
        }
        let mut values = vec![NatfwValue::MsgId(number), NatfwValue::Age(answered.age)];
        let nested = message.values().find_map(|value| match value {
            NatfwValue::Next(_, nested) => Some(nested),
            _ => None,
        });
        match nested.filter(|nested| nested.iter().next().is_some()) {
            Some(nested) => {
                let own = |kind| matches!(kind, NatfwObject::MSG_ID | NatfwObject::AGE);
                values.extend(
                    nested.iter().filter(|tlv| !own(tlv.kind)).filter_map(|tlv| NatfwValue::of(&tlv)),
                );
            }
            // What PATH and TRIGGER have is what the CREATE shall have.
            None if matches!(message.kind, NatfwType::PATH | NatfwType::TRIGGER) => {
                values.extend(message.values().filter(|value| is_of_create(value.kind())));
                let has_nat = message.values().any(|value| value.kind() == NatfwObject::NAT_OBJECT);
                if has_nat {
                    let filter = contents.filters.first().cloned().unwrap_or_else(|| filter_of(&job.flow));
                    values.push(NatfwValue::Nat(Some(filter)));
                }
            }
            None => {}
        }
        let list = self.list_begun(job, message);
        values.extend(list.as_deref().map(|list| NatfwValue::Unknown(NatfwObject::HOPS, list)));
        let flow = if back { job.flow } else { job.flow.reversed() };
        let mut data = Vec::new();
        if NatfwMessage::compose(next, &values, &mut data).is_ok() {
            self.send((job.session, flow), back, data);
        }
    }

    /// The user who accepted a passage is informed of its end, once for each [`NatfwEvent::Accepted`].
    pub(super) fn accepted_ends(&mut self, key: Key, why: NatfwEnd) {
        let Some(record) = invariant!(self.records.get_mut(key), "what ends has a record") else { return };
        // A request of this node may have no name yet.
        let (Some(session), flow) = (record.origin.session(), record.flow) else { return };
        let Some(answered) = record.answered.as_mut() else { return };
        let receiver = core::mem::replace(&mut answered.receiver, Receiver::Absent);
        let Some(user) = receiver.user() else { return };
        self.answered.remove(&(user, key));
        if receiver == Receiver::Informed(user) && self.accepted.contains_key(&user) {
            self.out.event(user, NatfwEvent::Ended { session, flow, why });
        }
    }

    /// A user accepts nothing any more: what was accepted ends on the whole path.
    pub(super) fn leave(&mut self, id: u64, resources: &mut Resources) {
        if self.accepted.remove(&id).is_some() && self.answered_by(id).is_some() {
            self.leaving.push_back(id);
            self.leave_part(resources);
        }
    }

    /// The first record whose packets a user accepted.
    fn answered_by(&self, id: u64) -> Option<Key> {
        let (user, key) = self.answered.range((id, Key::default())..).next()?;
        (*user == id).then_some(*key)
    }

    /// Releases the next part of the passages that users who left had accepted. The rules at the firewalls are those of this node's
    /// CREATE, so that it may release them. Who sent the request has the RELEASE too, and tears the session down.
    pub(super) fn leave_part(&mut self, resources: &mut Resources) {
        for _ in 0..PART {
            let Some(id) = self.leaving.front().copied() else { return };
            let Some(key) = self.answered_by(id) else {
                self.leaving.pop_front();
                continue;
            };
            self.answered.remove(&(id, key));
            let Some(record) = invariant!(self.records.get(key), "what a user accepted has a record") else {
                continue;
            };
            if let (Some(session), Some(answered)) = (record.origin.session(), record.answered) {
                let flow = if answered.back { record.flow } else { record.flow.reversed() };
                self.release((session, flow), answered.back);
            }
            self.end(key, None, resources);
        }
    }

    /// Handles a RESPONSE about what this node sent because of NEXT or TRIGGER. A refresh that fails ends nothing: rules stay
    /// until they expire.
    pub(super) fn answer_reported(
        &mut self,
        key: Key,
        report: &Report,
        node: Option<IpAddr>,
        resources: &mut Resources,
    ) {
        let Some(record) = invariant!(self.records.get(key), "a report has a record") else { return };
        let Some(answered) = record.answered.filter(|answered| answered.number == report.msg_id) else {
            return;
        };
        let status = report.status;
        if status == NatfwStatus::DONE || (answered.refreshed && !report.withdrawn) {
            return;
        }
        if record.turn == Turn::Triggered {
            self.withdraw(key, (status, node), resources);
        } else {
            self.accepted_ends(key, NatfwEnd::Removed { status, node });
        }
    }
}

/// Whether CREATE takes an object over from PATH.
const fn is_of_create(kind: NatfwObject) -> bool {
    matches!(
        kind,
        NatfwObject::LIFETIME
            | NatfwObject::PACKET_FILTER
            | NatfwObject::LOGGING_ACTION
            | NatfwObject::APPLICATION_ID
            | NatfwObject::TIME
    )
}
