//! RESPONSE: what nodes report, and how it passes.

use core::net::IpAddr;

use signalbox_core::{Key, SessionId, invariant};
use signalbox_resources::Resources;

use super::NatfwClient;
use super::record::{Answer, Last, Passed};
use super::request::{Contents, left};
use super::rules::filter_of;
use crate::clients::shared::Message;
use crate::engine::OwnedArrival;
use crate::wire::FlowId;
use crate::wire::natfw::{
    IdentityKind, NatfwFilter, NatfwIdentity, NatfwMessage, NatfwObject, NatfwResult, NatfwStatus, NatfwType,
    NatfwValue, REACHED, REMOVED, Tlvs,
};

/// Octets of the text that is added to a refusal, at most.
const MAX_NOTE: usize = 128;

/// The first STATUS of a RESPONSE, and the filters of all.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) msg_id: u64,
    pub(super) status: NatfwStatus,
    /// A node removed its rules, for another reason than RELEASE.
    pub(super) withdrawn: bool,
    /// It is about no request: a node has no passage for the session.
    pub(super) unknown: bool,
    pub(super) filters: Vec<NatfwFilter>,
}

impl Report {
    fn of(message: &NatfwMessage<'_>) -> Option<Self> {
        let mut all = message.values().filter_map(|value| match value {
            NatfwValue::Status(status) => Some(status),
            _ => None,
        });
        let first = all.next()?;
        let filters = |status: &NatfwResult<'_>| {
            let filter = |tlv: &_| match NatfwValue::of(tlv) {
                Some(NatfwValue::Filter(filter) | NatfwValue::Nat(Some(filter))) => Some(filter),
                _ => None,
            };
            status.nested.iter().filter_map(|tlv| filter(&tlv)).collect::<Vec<_>>()
        };
        let mut found = filters(&first);
        all.for_each(|status| found.extend(filters(&status)));
        let NatfwResult { msg_id, status, flags, request, .. } = first;
        let withdrawn = status != NatfwStatus::DONE && flags & REMOVED != 0;
        let unknown = withdrawn && status == NatfwStatus::NO_STATE && request == 0;
        Some(Self { msg_id, status, withdrawn, unknown, filters: found })
    }
}

/// Number and type of a request, as far as they can be read.
fn number_of(octets: &[u8]) -> Option<(u64, u8)> {
    let kind = u16::from_be_bytes([*octets.first()?, *octets.get(1)?]);
    let msg_id = match NatfwMessage::parse(octets) {
        Ok(message) => Contents::of(&message).msg_id,
        Err(fault) => fault.msg_id?,
    };
    (NatfwType(kind) != NatfwType::RESPONSE).then_some((msg_id, u8::try_from(kind).unwrap_or(0)))
}

impl NatfwClient {
    /// Sends a message of this node in an existing session.
    pub(super) fn send(&mut self, (session, flow): (SessionId, FlowId), reverse: bool, data: Vec<u8>) {
        self.out.send(Message { reverse, ..Message::new(Some(session), flow, data) });
    }

    /// Composes a RESPONSE with one STATUS of this node.
    pub(super) fn respond(
        &mut self,
        of: (SessionId, FlowId),
        reverse: bool,
        request: (u64, u8),
        (status, flags): (NatfwStatus, u8),
        more: &[NatfwValue<'_>],
    ) {
        self.report(of, reverse, request, (status, flags, None), more);
    }

    /// Composes a RESPONSE with one STATUS, of this node or of the node that is named.
    pub(super) fn report(
        &mut self,
        of: (SessionId, FlowId),
        reverse: bool,
        (msg_id, request): (u64, u8),
        (status, flags, node): (NatfwStatus, u8, Option<IpAddr>),
        more: &[NatfwValue<'_>],
    ) {
        let mut nested = Vec::new();
        if let Some(address) = node.or_else(|| self.local.like(of.1.dst())) {
            // An address is never longer than a length can count.
            let _ = with_identity(address, |identity| NatfwValue::Node(identity).encode(&mut nested));
        }
        for value in more {
            if value.encode(&mut nested).is_err() {
                return;
            }
        }
        let nested = Tlvs::of(&nested);
        let result = NatfwResult { status, flags, request, msg_id, nested };
        let mut data = Vec::new();
        if NatfwMessage::compose(NatfwType::RESPONSE, &[NatfwValue::Status(result)], &mut data).is_ok() {
            self.send(of, reverse, data);
        }
    }

    /// Refuses a request: it ends here, and its sender gets the reason, if not too many got one already.
    pub(super) fn refuse(&mut self, job: &OwnedArrival, status: NatfwStatus) {
        tracing::debug!(session = %job.session, peer = %job.peer, reason = %status, "request refused");
        let note = self.note.take().unwrap_or_default();
        let note = signalbox_wire::beginning(&note, MAX_NOTE);
        self.out.consume(job.id);
        let Some(number) = number_of(job.data.as_slice()) else { return };
        let now = self.now;
        let found = self.find(job.session, &job.flow).and_then(|key| self.records.get_mut(key));
        let from = found.map(|record| {
            let answer = Answer::Refused(status);
            record.last = Some(Last { number: number.0, reverse: job.reverse, answer });
            &mut record.errors_from
        });
        if !self.errors.allow(now, from, job.peer) {
            self.counters.errors_limited += 1;
            tracing::debug!(session = %job.session, peer = %job.peer, reason = "too many of its source", "refusal not sent");
            return;
        }
        let more = [NatfwValue::Unknown(NatfwObject::NOTE, note.as_bytes())];
        let more = if note.is_empty() { &[] } else { more.as_slice() };
        self.respond((job.session, job.flow), !job.reverse, number, (status, 0), more);
    }

    /// Confirms a request where it ends, with what was opened.
    pub(super) fn answer_done(&mut self, key: Key, job: &OwnedArrival, flags: u8) {
        self.out.consume(job.id);
        let Some(number) = number_of(job.data.as_slice()) else { return };
        let nat = Contents::nat(job.data.as_slice());
        let request = NatfwMessage::parse(job.data.as_slice()).ok();
        let list = request.and_then(|request| self.list_with_own(key, job, &request, true));
        let now = self.now;
        let Some(record) = invariant!(self.records.get_mut(key), "an answer has a record") else { return };
        record.last = Some(Last { number: number.0, reverse: job.reverse, answer: Answer::Done });
        let mut more = vec![NatfwValue::Lifetime(left(record, now))];
        let wanted = record.wanted.as_deref().unwrap_or_default();
        let filters = if record.filters.is_empty() { wanted } else { &record.filters };
        more.extend(filters.iter().cloned().map(NatfwValue::Filter));
        // A NAT on the way left a NAT_OBJECT, or this node is one: the sender learns how its packets arrive.
        if nat || record.binding.is_some() {
            let filter = filters.first().cloned().unwrap_or_else(|| filter_of(&job.flow));
            let filter = match &record.binding {
                Some(binding) => binding.mapped(filter, true),
                None => filter,
            };
            more.push(NatfwValue::Nat(Some(filter)));
        }
        more.extend(list.as_deref().map(|list| NatfwValue::Unknown(NatfwObject::HOPS, list)));
        let session = (job.session, job.flow);
        self.respond(session, !job.reverse, number, (NatfwStatus::DONE, REACHED | flags), &more);
    }

    /// Handles a RESPONSE on its way to who asked.
    pub(super) fn response(
        &mut self,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        resources: &mut Resources,
    ) {
        let (Some(report), found) = (Report::of(message), self.find(job.session, &job.flow)) else {
            return self.out.consume(job.id);
        };
        let Some(key) = found else {
            return if job.last { self.out.consume(job.id) } else { self.go_on(job, None) };
        };
        if job.last {
            self.out.consume(job.id);
            self.own_response(key, message, &report, resources);
            return self.arm(key);
        }
        let now = self.now;
        let own_address = self.local.like(job.flow.dst());
        let Some(record) = invariant!(self.records.get_mut(key), "a RESPONSE has a record") else { return };
        let reply = record.reply.take_if(|reply| reply.msg_id == report.msg_id);
        let filters = self.hasher.hash_one(&report.filters);
        let passes = Some(Passed { number: report.msg_id, withdrawn: report.withdrawn, filters });
        if record.passed == passes {
            self.counters.duplicates += 1;
            tracing::debug!(session = %job.session, peer = %job.peer, reason = "another RESPONSE to the same request", "message dropped");
            return self.out.consume(job.id);
        }
        record.passed = passes;
        let query = reply.is_some_and(|reply| reply.kind == NatfwType::QUERY);
        let mut data = None;
        if query && !record.opened.rules().is_empty() {
            let mut nested = Vec::new();
            let mut add = |value: NatfwValue<'_>| value.encode(&mut nested).is_ok();
            let fits = own_address
                .is_none_or(|address| with_identity(address, |identity| add(NatfwValue::Node(identity))))
                && add(NatfwValue::Lifetime(left(record, now)))
                && record.filters.iter().cloned().all(|filter| add(NatfwValue::Filter(filter)));
            let own = NatfwValue::Status(NatfwResult {
                status: NatfwStatus::DONE,
                flags: 0,
                request: u8::try_from(NatfwType::QUERY.0).unwrap_or(0),
                msg_id: report.msg_id,
                nested: Tlvs::of(&nested),
            });
            let mut values: Vec<NatfwValue<'_>> = message.values().collect();
            values.push(own);
            let mut octets = Vec::new();
            let composed = NatfwMessage::compose(NatfwType::RESPONSE, &values, &mut octets).is_ok();
            data = (fits && composed).then_some(octets);
        }
        self.go_on(job, data);
        self.arm(key);
    }

    /// No RESPONSE passed in time: this node reports instead.
    pub(super) fn reply_due(&mut self, key: Key) {
        let now = self.now;
        let due = self.records.get(key).and_then(|record| record.reply).is_some_and(|reply| reply.due <= now);
        if due {
            self.counters.unanswered += 1;
            self.not_delivered(key);
        }
    }

    /// The request whose RESPONSE is missing does not reach its target. Rules stay.
    pub(super) fn not_delivered(&mut self, key: Key) {
        let Some(record) = invariant!(self.records.get_mut(key), "a loss has a record") else { return };
        let Some(reply) = record.reply.take() else { return };
        // A request of this node may have no name yet.
        let Some(session) = record.origin.session() else { return };
        let none: &[NatfwFilter] = &[];
        let filters = self.hasher.hash_one(none);
        record.passed = Some(Passed { number: reply.msg_id, withdrawn: false, filters });
        let flow = record.flow;
        let number = (reply.msg_id, u8::try_from(reply.kind.0).unwrap_or(0));
        self.respond((session, flow), !reply.reverse, number, (NatfwStatus::NOT_DELIVERED, 0), &[]);
    }
}

/// Calls `then` with the identity that an address is.
fn with_identity<R>(address: IpAddr, then: impl FnOnce(NatfwIdentity<'_>) -> R) -> R {
    match address {
        IpAddr::V4(v4) => then(NatfwIdentity { kind: IdentityKind::IPV4, value: &v4.octets() }),
        IpAddr::V6(v6) => then(NatfwIdentity { kind: IdentityKind::IPV6, value: &v6.octets() }),
    }
}
