//! Rules that this node removes although no message asked for it: an administrator ends the session, the policy changed, or
//! the kernel does not have them. The host that asked gets a RESPONSE about its last request, with the reason, and so does the
//! receiver of the data about its last CREATE.

use core::net::IpAddr;

use signalbox_core::{Key, SessionId, Time, invariant};
use signalbox_resources::Resources;

use super::output::{NatfwEnd, NatfwEvent};
use super::record::{Asked, Record, Stage, Turn};
use super::{NatfwClient, Waiting};
use crate::wire::FlowId;
use crate::wire::natfw::{NatfwMessage, NatfwStatus, NatfwType, NatfwValue, REMOVED};

/// The number of the request in a direction that waits for the kernel.
fn waiting(record: &Record, reverse: bool) -> Option<u64> {
    let change = record.change.as_ref().filter(|change| change.job.reverse == reverse)?;
    Some(change.asked.number)
}

/// The number of the last request in a direction: the one that waits for the kernel, or the one that was accepted.
fn number_of(record: &Record, reverse: bool) -> Option<u64> {
    let [along, against] = &record.asked;
    let accepted: &Option<Asked> = if reverse { against } else { along };
    waiting(record, reverse).or_else(|| accepted.as_ref().map(|asked| asked.number))
}

/// The request that a report about the rules of a record is for: its type and its number.
fn request_of(record: &Record) -> Option<(NatfwType, u64)> {
    let kind = match record {
        Record { turn: Turn::Against | Turn::Triggered, .. } => NatfwType::TRIGGER,
        Record { wanted: Some(_), .. } => NatfwType::PATH,
        _ => NatfwType::CREATE,
    };
    Some((kind, number_of(record, false)?))
}

/// The CREATE of the receiver of the data that a report about the rules of a record is for.
fn answer_of(record: &Record) -> Option<(NatfwType, u64)> {
    let number = number_of(record, true).filter(|_| !record.turn.is_back())?;
    Some((NatfwType::CREATE, number))
}

impl NatfwClient {
    /// An administrator ends a session at this node. The host that asked for it gets [`NatfwEvent::Lost`], and releases it on
    /// the whole path.
    pub fn delete(&mut self, now: Time, session: SessionId, resources: &mut Resources) {
        self.now = self.now.max(now);
        for Waiting { job, .. } in self.waiting.end(session, |_| true) {
            self.refuse(&job, NatfwStatus::ADMINISTRATOR);
        }
        for key in self.of_session(session) {
            self.withdraw(key, (NatfwStatus::ADMINISTRATOR, None), resources);
        }
    }

    /// The rules of the policy changed: all passages are judged again, in parts, each by a call of [`NatfwClient::timer`].
    pub fn rules_changed(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.judging = Some(0);
    }

    /// Judges the next part of the passages.
    pub(super) fn judge_part(&mut self, resources: &mut Resources) {
        let Some(from) = self.judging else { return };
        let mut found = Vec::new();
        self.judging = self.records.walk(from, |key, record| {
            let mut passages = record.opened.rules().iter().flat_map(|rule| &rule.passages);
            if passages.any(|passage| resources.is_outdated(passage)) {
                found.push(key);
            }
            true
        });
        for key in found {
            self.judge(key, resources);
        }
    }

    /// Judges the rules of a record by the present policy, as far as the answer may be another one than before. If it refuses one,
    /// all of them go. Whether they stay.
    pub(super) fn judge(&mut self, key: Key, resources: &mut Resources) -> bool {
        let Some(record) = invariant!(self.records.get_mut(key), "rules have a record") else { return false };
        for rule in record.opened.rules_mut() {
            let pinhole = rule.pinhole();
            let outdated = rule.passages.extract_if(.., |passage| resources.may_differ(passage));
            let outdated: Vec<_> = outdated.collect();
            let mut refused = None;
            for passage in outdated {
                match resources.judge_passage(self.now, passage, &pinhole, record.lifetime) {
                    Ok(passage) => rule.passages.push(passage),
                    Err(refusal) => refused = Some(refusal),
                }
            }
            if let Some(refusal) = refused {
                tracing::info!(session = ?record.origin.session(), reason = %refusal, "passage ended by the rules");
                self.withdraw(key, (NatfwStatus::POLICY, None), resources);
                return false;
            }
        }
        true
    }

    /// Removes a record with its rules, and reports it to who asked for them: a request of this node is released. The reason is
    /// that of this node, or of the node that is named.
    pub(super) fn withdraw(
        &mut self,
        key: Key,
        (status, node): (NatfwStatus, Option<IpAddr>),
        resources: &mut Resources,
    ) {
        let Some(record) = invariant!(self.records.get(key), "what ends has a record") else { return };
        if record.origin.own().is_some() {
            self.tear_down(key);
            return self.end(key, Some(NatfwEvent::Lost { status, node }), resources);
        }
        self.counters.withdrawn += 1;
        let session = record.origin.session();
        if let Some(session) = session {
            self.end_waiting(session, |_| true);
        }
        let Some(record) = invariant!(self.records.get(key), "its messages do not end it") else { return };
        if let Some(session) = session {
            // Rules for packets against the flow of a request are reported along that flow.
            let flow = if record.turn.is_back() { record.flow.reversed() } else { record.flow };
            let asked = self.find(session, &flow).and_then(|key| self.records.get(key)).unwrap_or(record);
            let requests = [(true, flow, request_of(asked)), (false, record.flow, answer_of(record))];
            for (reverse, flow, request) in requests {
                if let Some((kind, number)) = request {
                    let request = (number, u8::try_from(kind.0).unwrap_or(0));
                    self.report((session, flow), reverse, request, (status, REMOVED, node), &[]);
                }
            }
        }
        self.release_triggered(key);
        self.accepted_ends(key, NatfwEnd::Removed { status, node });
        self.end(key, None, resources);
    }

    /// What this node asked of firewalls inside because of TRIGGER ends with its own rules.
    pub(super) fn release_triggered(&mut self, key: Key) {
        let Some(record) = self.records.get(key).filter(|record| record.turn == Turn::Triggered) else {
            return;
        };
        if let Some(session) = record.origin.session() {
            self.release((session, record.flow), false);
        }
    }

    /// Sends a RELEASE without NEXT: no RESPONSE follows.
    pub(super) fn release(&mut self, of: (SessionId, FlowId), reverse: bool) {
        let mut data = Vec::new();
        let values = [NatfwValue::MsgId(self.rng.u64())];
        if NatfwMessage::compose(NatfwType::RELEASE, &values, &mut data).is_ok() {
            self.send(of, reverse, data);
        }
    }

    /// Removes the record of a session that a RELEASE ended here. If this node asked for the session, its user is informed: who asked
    /// does not send RELEASE to itself, so it is of the receiver of the data.
    pub(super) fn released(&mut self, key: Key, resources: &mut Resources) {
        match self.records.get(key).and_then(|record| record.origin.own()).map(|own| own.stage) {
            None => self.end(key, None, resources),
            Some(Stage::Closing | Stage::Lost) => self.closed(key, resources),
            Some(Stage::Opening | Stage::Standing { .. } | Stage::Failing { .. } | Stage::Failed) => {
                self.tear_down(key);
                let lost = NatfwEvent::Lost { status: NatfwStatus::RECEIVER, node: None };
                self.end(key, Some(lost), resources);
            }
        }
    }
}
