//! What a request of this node says besides its flow and its packets.

use super::NatfwClient;
use super::record::LocalRequest;
use super::request::Contents;
use super::rules::filter_of;
use crate::clients::shared::ntp;
use crate::engine::OwnedArrival;
use crate::wire::FlowId;
use crate::wire::natfw::{NatfwFilter, NatfwMessage, NatfwStatus, NatfwType, NatfwValue, Tlvs};

/// How far a request goes, if not to the other end of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum NatfwScope {
    /// To the border of the local network.
    Local,
    /// To the border of the domain with this name.
    Domain(String),
}

/// The packets that a request is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum NatfwPackets {
    /// Those of its flow.
    #[default]
    Along,
    /// Those of its flow and those against it: CREATE with NEXT CREATE, answered at the border of the scope.
    Both,
    /// Those against its flow only: TRIGGER, for which the border of the scope sends CREATE.
    Against,
}

/// What a request of this node says besides its flow and its packets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct NatfwTerms {
    /// How far the request goes; `None`: to the other end.
    pub scope: Option<NatfwScope>,
    /// The packets that it is for. All but those of the flow need a scope.
    pub packets: NatfwPackets,
    /// The application (APPLICATION_ID).
    pub application: Option<String>,
    /// When the rules begin, microseconds since 1970; `None`: at once.
    pub start_us: Option<u64>,
    /// Objects AUTH_TOKEN, one behind the other; empty: the request has no token.
    pub tokens: Vec<u8>,
}

impl NatfwTerms {
    /// Checks that the terms fit each other. `by_receiver`: the request is a PATH.
    ///
    /// # Errors
    /// The scope is missing or too much, or the tokens are no AUTH_TOKEN objects.
    pub fn check(&self, by_receiver: bool) -> Result<(), NatfwStatus> {
        let needs_scope = self.packets != NatfwPackets::Along;
        if (needs_scope && self.scope.is_none()) || (by_receiver && (needs_scope || self.scope.is_some())) {
            return Err(NatfwStatus::SCOPE);
        }
        let tokens = Tlvs::of(&self.tokens);
        let valid = |tlv| matches!(NatfwValue::of(&tlv), Some(NatfwValue::Token(_)));
        let length = tokens.iter().map(|tlv| tlv.contents.len() + 4).sum::<usize>();
        let complete = length == self.tokens.len() && tokens.iter().all(valid);
        if complete { Ok(()) } else { Err(NatfwStatus::TOKEN) }
    }

    /// The objects TIME and APPLICATION_ID.
    pub(super) fn begin<'a>(&'a self, values: &mut Vec<NatfwValue<'a>>) {
        values.extend(self.application.iter().map(|name| NatfwValue::ApplicationId(name.as_bytes())));
        values.extend(self.start_us.map(|us| NatfwValue::Time(ntp::stamp(us))));
    }

    /// The object SCOPE, and the tokens.
    pub(super) fn end<'a>(&'a self, kind: NatfwType, values: &mut Vec<NatfwValue<'a>>) {
        values.extend(self.scope.iter().map(|scope| match scope {
            NatfwScope::Local => NatfwValue::Scope(1, b""),
            NatfwScope::Domain(name) => NatfwValue::Scope(2, name.as_bytes()),
        }));
        if kind != NatfwType::RELEASE {
            values.extend(Tlvs::of(&self.tokens).iter().filter_map(|tlv| NatfwValue::of(&tlv)));
        }
    }
}

/// A filter with its ends exchanged.
fn reversed(filter: &NatfwFilter) -> NatfwFilter {
    NatfwFilter {
        src: filter.dst,
        dst: filter.src,
        src_ports: filter.dst_ports.clone(),
        dst_ports: filter.src_ports.clone(),
        ..filter.clone()
    }
}

/// The filters of the packets against the flow of a request of this node.
pub(super) fn against(filters: &[NatfwFilter], flow: &FlowId) -> Vec<NatfwFilter> {
    if filters.is_empty() {
        vec![filter_of(&flow.reversed())]
    } else {
        filters.iter().map(reversed).collect()
    }
}

impl LocalRequest {
    /// The type of its request.
    pub(super) const fn kind_of(by_receiver: bool, terms: &NatfwTerms) -> NatfwType {
        match terms.packets {
            NatfwPackets::Against => NatfwType::TRIGGER,
            NatfwPackets::Along | NatfwPackets::Both if by_receiver => NatfwType::PATH,
            NatfwPackets::Along | NatfwPackets::Both => NatfwType::CREATE,
        }
    }
}

impl NatfwClient {
    /// Handles the CREATE by which the border of a scope answers NEXT of a request of this node. False: it is another one.
    pub(super) fn own_answered(
        &mut self,
        job: &OwnedArrival,
        message: &NatfwMessage<'_>,
        contents: &Contents,
    ) -> bool {
        let Some(key) = self.find(job.session, &job.flow) else { return false };
        let own = self.records.get(key).and_then(|record| record.origin.own());
        let is_answer = own.is_some_and(|own| {
            own.terms.packets == NatfwPackets::Both && against(&own.filters, &job.flow) == contents.filters
        });
        if is_answer {
            self.out.consume(job.id);
            self.own_created(key, message, contents);
            self.arm(key);
        }
        is_answer
    }

    /// A CREATE along the flow ended here: it may be what TRIGGER of this node asked for.
    pub(super) fn triggered(&mut self, job: &OwnedArrival, message: &NatfwMessage<'_>, contents: &Contents) {
        let Some(key) = self.find(job.session, &job.flow.reversed()) else { return };
        let own = self.records.get(key).and_then(|record| record.origin.own());
        if own.is_some_and(|own| own.kind == NatfwType::TRIGGER) {
            self.own_created(key, message, contents);
            self.arm(key);
        }
    }
}
