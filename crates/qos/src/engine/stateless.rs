//! Stateless and reduced-state nodes (RFC 5974 §4.7). They compare a request with their resources, set flags in the
//! QSPEC, and forward it. They send no RESPONSE (§5.3.5).

use std::collections::BTreeMap;

use signalbox_core::node::{NoRoute, Route};
use signalbox_core::service::TransferAttributes;
use signalbox_core::slab::Key;
use signalbox_core::{IfIndex, Mri, Time};
use signalbox_resources::{GrantId, Resources};
use signalbox_wire::Writer;

use super::Qos;
use super::config::StateKeeping;
use super::outbox::{Parcel, Purpose};
use super::rmf::{self, Flow};
use super::waiting::{Arrival, Waiting};
use crate::wire::{Carried, Message, MessageType};

/// Reservations of a reduced-state node for each interface and code point: one for all flows, as large as the sum of
/// requests in the present or the last refresh period. The node cannot distinguish a refresh from a new request.
#[derive(Debug, Default)]
pub(super) struct Sums(BTreeMap<(IfIndex, u8), Sum>);

#[derive(Debug)]
struct Sum {
    grant: Option<GrantId>,
    /// Sums of requested rates in octets a second, in this period and in the one before.
    now: u64,
    before: u64,
    turns: Time,
}

impl Qos {
    pub(super) fn pass_without_state(
        &mut self,
        octets: &[u8],
        arrival: &Arrival,
        route: Option<Result<Route, NoRoute>>,
        resources: &mut Resources,
    ) {
        let message = Message::parse(octets).ok();
        if let Some(message) = message.as_ref().filter(|_| route.is_none()) {
            self.counters.received(message);
        }
        let message =
            message.filter(|message| matches!(message.kind, MessageType::RESERVE | MessageType::QUERY));
        let (Some(message), Some(qspec)) = (message, message.and_then(|message| message.qspec)) else {
            // §5.3.5: a message with an error is not processed, and is forwarded.
            if message.is_none() {
                self.counters.malformed += 1;
                tracing::debug!(
                    session = %arrival.session,
                    reason = "malformed",
                    "message forwarded unprocessed"
                );
            }
            // A tear does not leave a RESERVE behind it that waits for its route.
            if let Some(rsn) = message.filter(Message::is_tear).and_then(|tear| tear.rsn) {
                self.end_reserves(arrival.session, arrival.sii, rsn);
            }
            return self.forward_octets(octets, arrival);
        };
        let Some(route) = route else {
            let mut copy = self.out.buffer();
            copy.extend_from_slice(octets);
            self.look_up(Waiting::Message(copy, arrival.clone()), arrival.route_query());
            return;
        };
        let Ok(route) = route else { return self.forward_octets(octets, arrival) };
        let flow = Flow {
            auth: Carried::auth(&[]),
            ..self.flow_of(Key::default(), &message, arrival, &route, self.config.period_ms())
        };
        let query = message.kind == MessageType::QUERY;
        let rate = rmf::rate(qspec).unwrap_or(0);
        let refused = match (self.config.state, flow.ifindex) {
            (StateKeeping::Reduced, Some(ifindex)) if !query => {
                // Flows are classified by their code point only: a request without one cannot be granted.
                let class = rmf::dscp(qspec).or(mri_dscp(&arrival.mri));
                !class
                    .is_some_and(|dscp| self.sum((ifindex, dscp), rate, message.is_tear(), &flow, resources))
            }
            (_, Some(_)) if !message.is_tear() => !rmf::would_fit(resources, self.now, &flow, qspec),
            _ => false,
        };
        let passed = rmf::pass_stateless(resources, &flow, qspec, query, refused);
        let onward = Message { qspec: Some(&passed), ..message };
        let mut buffer = self.out.buffer();
        if onward.encode(&mut Writer::new(&mut buffer)).is_err() {
            buffer.clear();
            buffer.extend_from_slice(octets);
        }
        self.forward(buffer, arrival);
    }

    fn forward_octets(&mut self, octets: &[u8], arrival: &Arrival) {
        let mut buffer = self.out.buffer();
        buffer.extend_from_slice(octets);
        self.forward(buffer, arrival);
    }

    fn forward(&mut self, octets: Vec<u8>, arrival: &Arrival) {
        if !arrival.may_pass(&mut self.counters) {
            return self.out.reuse(octets);
        }
        // Without state a message that comes back is not known: a circle gets a bounded rate.
        if !arrival.counted && !self.uncounted.allow(self.now) {
            self.counters.rate_limited += 1;
            tracing::debug!(session = %arrival.session, reason = "its peer preserves no hop count", "message dropped");
            return self.out.reuse(octets);
        }
        // GIST keeps no state either.
        let attributes = TransferAttributes { stateless: arrival.stateless, ..self.attributes() };
        self.post(Parcel {
            octets,
            session: arrival.session,
            nslp: arrival.nslp,
            mri: arrival.mri,
            state: arrival.state,
            sii: None,
            hops: Some(arrival.hops),
            attributes,
            timeout: Some(self.config.relay_timeout),
            source: None,
            purpose: Purpose::Unwatched,
        });
    }

    /// Adds a request to the sum of its class. False: admission control refuses it.
    fn sum(
        &mut self,
        class: (IfIndex, u8),
        rate: u64,
        tear: bool,
        flow: &Flow<'_>,
        resources: &mut Resources,
    ) -> bool {
        let period = self.config.refresh.mul_f32(1.5);
        let sum = self.sums.0.entry(class).or_insert(Sum {
            grant: None,
            now: 0,
            before: 0,
            turns: self.now + period,
        });
        let old = (sum.now, sum.before);
        if tear {
            sum.now = sum.now.saturating_sub(rate);
            sum.before = sum.before.saturating_sub(rate);
        } else {
            sum.now = sum.now.saturating_add(rate);
        }
        let wanted = sum.now.max(sum.before);
        match rmf::hold(resources, self.now, flow, class, wanted, sum.grant) {
            Ok(grant) => {
                sum.grant = grant;
                true
            }
            Err(()) => {
                (sum.now, sum.before) = old;
                false
            }
        }
    }

    /// Ends a refresh period: rates that were not requested again are released.
    pub(super) fn turn_sums(&mut self, resources: &mut Resources) {
        let period = self.config.refresh.mul_f32(1.5);
        for sum in self.sums.0.values_mut() {
            if sum.turns > self.now {
                continue;
            }
            sum.turns = self.now + period;
            sum.before = core::mem::take(&mut sum.now);
            if let Some(grant) = sum.grant {
                sum.grant = rmf::shrink(resources, self.now, grant, sum.before);
            }
        }
        self.sums.0.retain(|_, sum| sum.grant.is_some() || sum.now > 0 || sum.before > 0);
    }

    pub(super) fn sums_deadline(&self) -> Option<Time> {
        self.sums.0.values().map(|sum| sum.turns).min()
    }
}

const fn mri_dscp(mri: &Mri) -> Option<u8> {
    match mri {
        Mri::PathCoupled(flow) => flow.dscp,
        Mri::LooseEnd(_) => None,
    }
}
