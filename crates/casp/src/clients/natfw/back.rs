//! Packets against the flow of a request: what the border of a scope opens because of TRIGGER, or because NEXT asks for a
//! CREATE, and what nodes inside open when that CREATE comes back.

use signalbox_core::{Key, SessionId, invariant};
use signalbox_resources::Resources;
use signalbox_resources::config::Opening;

use super::record::{Answer, Asked, Asker, Last, Turn};
use super::request::Contents;
use super::rules::{PolicyRequest, packets};
use super::{Failure, NatfwClient, Role};
use crate::clients::shared::Message;
use crate::engine::OwnedArrival;
use crate::wire::FlowId;
use crate::wire::natfw::{NatfwFilter, NatfwMessage, NatfwStatus, NatfwType, NatfwValue};

/// The filters of the packets against the flow: NEXT of a CREATE along the flow has them, other messages have them themselves.
fn filters_of(message: &NatfwMessage<'_>, contents: &Contents, reverse: bool) -> Vec<NatfwFilter> {
    if message.kind != NatfwType::CREATE || reverse {
        return contents.filters.clone();
    }
    let nested = message.values().find_map(|value| match value {
        NatfwValue::Next(NatfwType::CREATE, nested) => Some(nested),
        _ => None,
    });
    let filter = |value| if let NatfwValue::Filter(filter) = value { Some(filter) } else { None };
    let values = nested.iter().flat_map(|nested| nested.iter()).filter_map(|tlv| NatfwValue::of(&tlv));
    values.filter_map(filter).collect()
}

impl NatfwClient {
    /// Handles a TRIGGER at its target, which sends the request that it names, for the packets that it has.
    pub(super) fn trigger(
        &mut self,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        contents: &Contents,
        inside: bool,
        resources: &mut Resources,
    ) -> Result<(), Failure> {
        if job.reverse {
            return Err(NatfwStatus::MALFORMED);
        }
        packets(&contents.filters, &job.flow.reversed())?;
        let next = contents.next.unwrap_or(NatfwType::CREATE);
        if self.is_border(contents, inside) {
            // The CREATE that answers a PATH would end here, not at the sender of the data.
            if next != NatfwType::CREATE {
                return Err(NatfwStatus::NEXT);
            }
            let known = self.find(job.session, &job.flow.reversed());
            let same = Last { number: contents.msg_id, reverse: false, answer: Answer::Unsent };
            let known = known
                .and_then(|key| self.records.get(key))
                .is_some_and(|record| record.last == Some(same) && record.is_of_asker(job));
            if known {
                self.counters.repeated += 1;
                self.out.consume(job.id);
                return Ok(());
            }
            return self.open_back(
                job,
                message,
                contents,
                Asker::of(job, inside, self.way.sender),
                resources,
            );
        }
        if !self.accepts(&job.flow) {
            return Err(NatfwStatus::POLICY);
        }
        let key = self.record_of(job).ok_or(NatfwStatus::RESOURCES)?;
        let until = self.now + Self::lifetime(job, contents);
        if let Some(record) = self.records.get_mut(key) {
            record.until = record.until.max(until);
            record.last =
                Some(Last { number: contents.msg_id, reverse: job.reverse, answer: Answer::Unsent });
        }
        self.follow(key, job, message, contents, next);
        self.arm(key);
        Ok(())
    }

    /// Opens this firewall for packets against the flow of a request, because `asker` on the inner side asks for them.
    pub(super) fn open_back(
        &mut self,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        contents: &Contents,
        asker: Asker,
        resources: &mut Resources,
    ) -> Result<(), Failure> {
        // Nothing inside of a NAT is reached at an address of its own.
        if self.config.role == Role::Nat && job.flow.src().is_ipv4() {
            return Err(NatfwStatus::GRANULARITY);
        }
        let flow = job.flow.reversed();
        let wanted = packets(&filters_of(message, contents, job.reverse), &flow)?;
        let key = self.record_of(&OwnedArrival { flow, ..job.clone() }).ok_or(NatfwStatus::RESOURCES)?;
        let lifetime = Self::lifetime(job, contents);
        let Some(record) = self.records.get_mut(key).filter(|record| record.change.is_none()) else {
            return Err(NatfwStatus::RESOURCES);
        };
        // The host inside ends the session.
        *record.asked(false) = Some(Asked { asker: asker.clone(), number: contents.msg_id });
        let triggered = message.kind == NatfwType::TRIGGER;
        record.turn = if triggered { Turn::Triggered } else { Turn::Against };
        let policy_request = PolicyRequest {
            asker: &asker,
            claimed: job.flow.src(),
            token: None,
            opening: Opening::Reserve,
            lifetime,
        };
        self.install(key, (job, contents), wanted, &policy_request, None, resources)
    }

    /// The kernel has the packets against the flow of a request: its target sends a CREATE for them, other nodes send the CREATE
    /// on.
    pub(super) fn opened_back(
        &mut self,
        key: Key,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        contents: &Contents,
    ) {
        if let Some(record) = self.records.get_mut(key) {
            record.opened.accept(contents.age);
            record.last =
                Some(Last { number: contents.msg_id, reverse: job.reverse, answer: Answer::Unsent });
            record.filters = filters_of(message, contents, job.reverse);
        }
        if job.reverse {
            self.go_on(job, None);
        } else {
            self.follow(key, job, message, contents, NatfwType::CREATE);
        }
    }

    /// Handles the CREATE by which a border answers NEXT of a request from inside. `None`: it is another one.
    pub(super) fn create_back(
        &mut self,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        contents: &Contents,
        resources: &mut Resources,
    ) -> Option<Result<(), Failure>> {
        if job.reverse && job.last && self.own_answered(job, message, contents) {
            return Some(Ok(()));
        }
        let key = self.find(job.session, &job.flow).filter(|_| job.reverse && self.config.role.opens())?;
        let record = invariant!(self.records.get(key), "the index names records that stand")?;
        if record.next_filters.is_empty() || record.next_filters != contents.filters {
            return None;
        }
        let asker = record.asker(false).filter(|asker| asker.inside)?.clone();
        Some(self.open_back(job, message, contents, asker, resources))
    }

    /// The filters that a request of the inner side wants the border of its scope to answer with.
    pub(super) fn wanted_back(message: &NatfwMessage<'_>, contents: &Contents) -> Vec<NatfwFilter> {
        let asks = message.kind == NatfwType::CREATE
            && contents.next == Some(NatfwType::CREATE)
            && contents.is_scoped();
        if asks { filters_of(message, contents, false) } else { Vec::new() }
    }

    /// The messaging layer ended a flow of a session. The packets against it go with the request that asked for them: a border tears
    /// down what it asked of the firewalls inside because of TRIGGER. A RELEASE would also end the flow of the host's new address.
    pub(super) fn end_back(&mut self, session: SessionId, flow: &FlowId, resources: &mut Resources) {
        let Some(key) = self.find(session, &flow.reversed()) else { return };
        let Some(record) = self.records.get(key).filter(|record| record.turn.is_back()) else { return };
        if record.turn == Turn::Triggered {
            self.out.send(Message::tear_down(session, record.flow));
        }
        self.end(key, None, resources);
    }
}
