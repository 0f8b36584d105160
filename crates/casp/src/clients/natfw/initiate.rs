//! The node that asks for a passage: its requests, their refreshes and their end.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use signalbox_core::{Key, SessionId, Time, invariant};
use signalbox_resources::Resources;

use super::listed::listed;
use super::output::{NatfwEvent, NatfwNode};
use super::record::{LEAST_WAIT, LocalRequest, Name, Origin, Record, Stage};
use super::request::Contents;
use super::respond::Report;
use super::rules::packets;
use super::terms::{NatfwPackets, against};
use super::{NatfwClient, NatfwRequest, seconds};
use crate::clients::shared::Message;
use crate::wire::natfw::{
    IdentityKind, NatfwFilter, NatfwMessage, NatfwObject, NatfwResult, NatfwStatus, NatfwType, NatfwValue,
    Tlvs,
};

impl NatfwClient {
    /// Asks for a passage. The events have the identifier `id`, which no other request of a user has.
    pub fn open(&mut self, now: Time, id: u64, request: &NatfwRequest) {
        self.now = self.now.max(now);
        let age = self.clock.next_age(self.now);
        let until = self.now + seconds(self.config.lifetime);
        let kept = request.kept.filter(|kept| self.of_session(*kept).is_empty());
        let refused = match packets(&request.filters, &request.flow) {
            _ if self.by_user.contains_key(&id) => Some(NatfwStatus::POLICY),
            _ if !request.filters.iter().all(NatfwFilter::is_valid) => Some(NatfwStatus::MALFORMED),
            Err(status) => Some(status),
            Ok(_) => request.terms.check(request.by_receiver).err(),
        };
        let inserted = match refused {
            Some(status) => Err(status),
            None => {
                let own = LocalRequest {
                    id,
                    name: kept.map_or(Name::Drawn, Name::Wished),
                    former: None,
                    kind: LocalRequest::kind_of(request.by_receiver, &request.terms),
                    filters: request.filters.clone(),
                    terms: request.terms.clone(),
                    lifetime: request
                        .lifetime
                        .unwrap_or(self.config.lifetime)
                        .clamp(1, self.config.lifetime.max(1)),
                    age,
                    stage: Stage::Opening,
                    number: 0,
                    waits: None,
                    sent: self.now,
                    due: until,
                    early_from: self.now,
                    query: None,
                };
                let record = Record::new(Origin::User(Box::new(own)), request.flow, until);
                self.records.insert(record).map_err(|_| NatfwStatus::RESOURCES)
            }
        };
        match inserted {
            Ok(key) => {
                self.by_user.insert(id, key);
                if let Some(kept) = kept {
                    self.by_session.insert((kept, request.flow), key);
                }
                self.send_own(key);
                self.arm(key);
            }
            Err(status) => self.out.event(id, NatfwEvent::Refused { status, node: None, note: None }),
        }
    }

    /// Asks the nodes of the path what they have. The answer is [`NatfwEvent::State`].
    pub fn query(&mut self, now: Time, id: u64) {
        self.now = self.now.max(now);
        let msg_id = self.rng.u64();
        let Some(record) = self.by_user.get(&id).and_then(|key| self.records.get_mut(*key)) else { return };
        let flow = record.flow;
        let Some(own) = record.origin.own_mut() else { return };
        let Some(session) = own.name.session() else { return };
        own.query = Some(msg_id);
        let values = [NatfwValue::MsgId(msg_id), NatfwValue::Next(NatfwType::RESPONSE, Tlvs::of(&[]))];
        let mut data = Vec::new();
        if NatfwMessage::compose(NatfwType::QUERY, &values, &mut data).is_ok() {
            self.send((session, flow), false, data);
        }
    }

    /// Closes a passage, or ends what [`NatfwClient::accept`] began, with all passages that the user accepted. The last event of a
    /// passage is [`NatfwEvent::Closed`]; a user who accepted has none.
    pub fn close(&mut self, now: Time, id: u64, resources: &mut Resources) {
        self.now = self.now.max(now);
        self.leave(id, resources);
        let Some(key) = self.by_user.get(&id).copied() else { return };
        let Some(record) = invariant!(self.records.get_mut(key), "what closes has a record") else { return };
        let Some(own) = record.origin.own_mut().filter(|own| !own.stage.is_closing()) else { return };
        own.stage = Stage::Closing;
        if own.name.session().is_some() {
            self.send_own(key);
            self.arm(key);
        } else {
            self.end(key, Some(NatfwEvent::Closed), resources);
        }
    }

    /// Sends the request of the present stage.
    pub(super) fn send_own(&mut self, key: Key) {
        let msg_id = self.rng.u64();
        let now = self.now;
        let lifetime = seconds(self.config.lifetime);
        let Some(record) = invariant!(self.records.get_mut(key), "a request has a record") else { return };
        let flow = record.flow;
        record.until = record.until.max(now + lifetime);
        let Some(own) = invariant!(record.origin.own_mut(), "who sends a request has asked") else { return };
        // A refresh without an answer is repeated before the rules expire.
        let wait = if own.stage.is_standing() { lifetime / 3 } else { lifetime };
        (own.waits, own.sent, own.due) = (Some(msg_id), now, now + own.stage.in_time(now, wait));
        let mut values = vec![NatfwValue::MsgId(msg_id)];
        let kind = if own.stage.is_closing() { NatfwType::RELEASE } else { own.kind };
        let back = match own.terms.packets {
            NatfwPackets::Along => Vec::new(),
            NatfwPackets::Both | NatfwPackets::Against => against(&own.filters, &flow),
        };
        if kind != NatfwType::RELEASE {
            own.number = msg_id;
            values.extend((kind != NatfwType::TRIGGER).then_some(NatfwValue::Age(own.age)));
            values.push(NatfwValue::Lifetime(own.lifetime));
            let filters = if kind == NatfwType::TRIGGER { &back } else { &own.filters };
            values.extend(filters.iter().cloned().map(NatfwValue::Filter));
            own.terms.begin(&mut values);
        }
        if kind == NatfwType::PATH {
            // The CREATE that answers must agree with it here too.
            record.wanted = Some(own.filters.clone());
        }
        let both = kind == NatfwType::CREATE && own.terms.packets == NatfwPackets::Both;
        let create = both || matches!(kind, NatfwType::PATH | NatfwType::TRIGGER);
        let next = if create { NatfwType::CREATE } else { NatfwType::RESPONSE };
        let mut nested = Vec::new();
        for filter in back.iter().filter(|_| both) {
            // A filter that was parsed or made of a flow is never too long.
            let _ = NatfwValue::Filter(filter.clone()).encode(&mut nested);
        }
        values.push(NatfwValue::Next(next, Tlvs::of(&nested)));
        own.terms.end(kind, &mut values);
        // A CREATE for packets of both directions is answered by another one, of the border.
        if kind == NatfwType::PATH || kind == NatfwType::CREATE && !both {
            values.push(NatfwValue::Unknown(NatfwObject::HOPS, &[0; 4]));
        }
        let mut data = Vec::new();
        if NatfwMessage::compose(kind, &values, &mut data).is_ok() {
            self.out.send(Message {
                tag: key.to_u64(),
                // TRIGGER leaves sessions that expire.
                hold: own.kind != NatfwType::TRIGGER,
                ..Message::new(own.name.known(), flow, data)
            });
        }
    }

    /// The messaging layer named a session of this node.
    pub(super) fn named(&mut self, key: Key, session: SessionId) {
        // It may have been closed before the messaging layer named it.
        let Some(record) = self.records.get_mut(key) else { return };
        let flow = record.flow;
        if let Some(own) = record.origin.own_mut() {
            own.name = Name::Named { session, wished: own.name.is_wished() };
            self.out.event(own.id, NatfwEvent::Named { session });
            self.by_session.insert((session, flow), key);
        }
    }

    /// The messaging layer does not take the request.
    pub(super) fn own_failed(&mut self, key: Key, resources: &mut Resources) {
        let status = NatfwStatus::NOT_DELIVERED;
        if self.records.get(key).is_some_and(|record| record.origin.own().is_some()) {
            self.end(key, Some(NatfwEvent::Refused { status, node: None, note: None }), resources);
        }
    }

    /// A message of the session was not delivered, or came back.
    pub(super) fn undelivered(&mut self, key: Key, resources: &mut Resources) {
        if self.records.get(key).is_some_and(|record| record.origin.own().is_some()) {
            self.no_answer(key, resources);
        } else {
            self.not_delivered(key);
        }
        self.arm(key);
    }

    /// The CREATE that answers a PATH of this node arrived.
    pub(super) fn own_created(&mut self, key: Key, message: &NatfwMessage<'_>, contents: &Contents) {
        let nat = message.values().find_map(|value| match value {
            NatfwValue::Nat(filter) => filter,
            _ => None,
        });
        self.lists.keep(key, listed(&message.objects));
        let lifetime = contents.lifetime.unwrap_or(self.config.lifetime);
        self.stands(key, lifetime, nat);
    }

    /// The passage is open; it is refreshed at a third of its lifetime.
    fn stands(&mut self, key: Key, lifetime: u32, nat: Option<NatfwFilter>) {
        let interval: Duration = self.rng.jitter(seconds(lifetime.max(1)) / 3, 0.5, 1.5).max(LEAST_WAIT);
        let now = self.now;
        // A CREATE against the flow may also end at a node that did not ask for it.
        let Some(own) = self.records.get_mut(key).and_then(|record| record.origin.own_mut()) else { return };
        if own.stage.is_closing() {
            return;
        }
        (own.waits, own.due) = (None, now + interval);
        let stands = Stage::Standing { until: now + seconds(lifetime.max(1)) };
        if !matches!(core::mem::replace(&mut own.stage, stands), Stage::Standing { .. }) {
            self.out.event(own.id, NatfwEvent::Opened { lifetime, nat });
        }
        self.leave_former(key);
    }

    /// Handles a RESPONSE for this node.
    pub(super) fn own_response(
        &mut self,
        key: Key,
        message: &NatfwMessage<'_>,
        report: &Report,
        resources: &mut Resources,
    ) {
        let results = || {
            message.values().filter_map(|value| match value {
                NatfwValue::Status(result) => Some(result),
                _ => None,
            })
        };
        let Some(own) = self.records.get_mut(key).and_then(|record| record.origin.own_mut()) else {
            let node = results().next().and_then(|result| node_of(&result).node);
            return self.answer_reported(key, report, node, resources);
        };
        if own.query.take_if(|query| *query == report.msg_id).is_some() {
            let event = if report.status == NatfwStatus::DONE {
                NatfwEvent::State { nodes: results().map(|result| node_of(&result)).collect() }
            } else {
                let node = results().next().and_then(|result| node_of(&result).node);
                NatfwEvent::Refused { status: report.status, node, note: None }
            };
            return self.out.event(own.id, event);
        }
        if report.unknown {
            return self.ask_soon(key);
        }
        if report.withdrawn && own.stage.is_standing() && own.number == report.msg_id {
            let node = results().next().and_then(|result| node_of(&result).node);
            let lost = NatfwEvent::Lost { status: report.status, node };
            if own.terms.scope.is_some() {
                self.tear_down(key);
                return self.end(key, Some(lost), resources);
            }
            // A tear-down would overtake the report to the receiver, which waits for the clients on its way. RELEASE does not.
            own.stage = Stage::Lost;
            self.out.event(own.id, lost);
            return self.send_own(key);
        }
        if own.waits != Some(report.msg_id) {
            return;
        }
        if own.stage.is_closing() {
            return self.closed(key, resources);
        }
        if report.status != NatfwStatus::DONE {
            let first = results().next();
            let node = first.and_then(|result| node_of(&result).node);
            let note = first.and_then(|result| note_of(&result));
            return self.own_refused(key, (report.status, node, note), resources);
        }
        let first = results().next();
        let (mut lifetime, mut nat) = (None, None);
        for value in
            first.iter().flat_map(|result| result.nested.iter()).filter_map(|tlv| NatfwValue::of(&tlv))
        {
            match value {
                NatfwValue::Lifetime(seconds) => lifetime = Some(seconds),
                NatfwValue::Nat(filter) => nat = filter,
                _ => {}
            }
        }
        self.lists.keep(key, first.and_then(|result| listed(&result.nested)));
        self.stands(key, lifetime.unwrap_or(self.config.lifetime), nat);
    }

    /// A request of this node failed. After a refresh the next one is due as before, or sooner if the rules expire sooner.
    fn own_refused(
        &mut self,
        key: Key,
        (status, node, note): (NatfwStatus, Option<IpAddr>, Option<String>),
        resources: &mut Resources,
    ) {
        let lifetime = seconds(self.config.lifetime);
        let retry = self.rng.jitter(lifetime / 3, 0.5, 1.5);
        let now = self.now;
        let Some(own) = invariant!(
            self.records.get_mut(key).and_then(|record| record.origin.own_mut()),
            "a request that was refused has its own part"
        ) else {
            return;
        };
        if own.stage.stands_until().is_some_and(|until| until <= now) {
            self.tear_down(key);
            return self.end(key, Some(NatfwEvent::Lost { status, node }), resources);
        }
        if own.stage == Stage::Opening && status == NatfwStatus::RESOURCES && own.name.is_wished() {
            return self.ask_anew(key);
        }
        own.waits = None;
        let wait = if own.stage.is_standing() { retry } else { lifetime };
        own.due = now + own.stage.in_time(now, wait);
        own.stage = match own.stage {
            Stage::Standing { until } => Stage::Failing { until },
            Stage::Opening => Stage::Failed,
            other => other,
        };
        self.out.event(own.id, NatfwEvent::Refused { status, node, note });
    }

    /// A node may have too many flows of the session, of others: the request goes on in a session of its own.
    fn ask_anew(&mut self, key: Key) {
        self.tear_down(key);
        let age = self.clock.next_age(self.now);
        let Some(record) = self.records.get_mut(key) else { return };
        let flow = record.flow;
        let Some(own) = record.origin.own_mut() else { return };
        let former = own.name.known();
        (own.name, own.age) = (Name::Drawn, age);
        if let Some(former) = former {
            self.by_session.remove(&(former, flow));
        }
        self.send_own(key);
    }

    /// The wait for an answer is over.
    fn no_answer(&mut self, key: Key, resources: &mut Resources) {
        let Some(own) = invariant!(
            self.records.get(key).and_then(|record| record.origin.own()),
            "a request that waits for its answer has its own part"
        ) else {
            return;
        };
        if own.waits.is_none() {
            return;
        }
        self.counters.unanswered += 1;
        if own.stage.is_closing() {
            return self.closed(key, resources);
        }
        self.own_refused(key, (NatfwStatus::NOT_DELIVERED, None, None), resources);
    }

    /// The passage is closed.
    pub(super) fn closed(&mut self, key: Key, resources: &mut Resources) {
        self.tear_down(key);
        self.end(key, Some(NatfwEvent::Closed), resources);
    }

    /// The data of a passage leave by another next hop: its firewalls have the request at once, and not with the next refresh.
    pub(super) fn new_hop(&mut self, key: Key) {
        let own = self.records.get(key).and_then(|record| record.origin.own());
        let stands = own.is_some_and(|own| own.stage.is_standing() && own.waits.is_none());
        if stands && own.is_some_and(|own| own.kind != NatfwType::TRIGGER) {
            self.send_own(key);
            self.arm(key);
        }
    }

    /// Does what is due for a request of this node.
    pub(super) fn own_due(&mut self, key: Key, resources: &mut Resources) {
        let (now, lifetime) = (self.now, seconds(self.config.lifetime));
        // The policy may have ended it as its rules began.
        let Some(record) = self.records.get_mut(key) else { return };
        let Some(own) = record.origin.own_mut().filter(|own| own.due <= now) else { return };
        match own.stage {
            Stage::Standing { until } | Stage::Failing { until } if own.waits.is_some() && now < until => {
                self.counters.unanswered += 1;
                self.send_own(key);
            }
            _ if own.waits.is_some() => self.no_answer(key, resources),
            Stage::Standing { .. } | Stage::Failing { .. } => self.send_own(key),
            // The user decides whether the session goes on.
            Stage::Failed | Stage::Opening | Stage::Closing | Stage::Lost => own.due = now + lifetime,
        }
    }
}

fn address_of(kind: IdentityKind, value: &[u8]) -> Option<IpAddr> {
    match kind {
        IdentityKind::IPV4 => <[u8; 4]>::try_from(value).ok().map(|octets| Ipv4Addr::from(octets).into()),
        IdentityKind::IPV6 => <[u8; 16]>::try_from(value).ok().map(|octets| Ipv6Addr::from(octets).into()),
        _ => None,
    }
}

fn node_of(result: &NatfwResult<'_>) -> NatfwNode {
    let mut node = NatfwNode { node: None, lifetime: None, filters: Vec::new() };
    for value in result.nested.iter().filter_map(|tlv| NatfwValue::of(&tlv)) {
        match value {
            NatfwValue::Node(identity) => node.node = address_of(identity.kind, identity.value),
            NatfwValue::Lifetime(seconds) => node.lifetime = Some(seconds),
            NatfwValue::Filter(filter) => node.filters.push(filter),
            _ => {}
        }
    }
    node
}

/// What a node adds to its refusal, without control characters: a stranger may have written it.
fn note_of(result: &NatfwResult<'_>) -> Option<String> {
    let note =
        |value| if let NatfwValue::Unknown(NatfwObject::NOTE, octets) = value { Some(octets) } else { None };
    let octets = result.nested.iter().find_map(|tlv| note(NatfwValue::of(&tlv)?))?;
    let text: String =
        core::str::from_utf8(octets).ok()?.chars().filter(|one| !one.is_control()).take(128).collect();
    (!text.is_empty()).then_some(text)
}
