//! Nodes that keep no state of sessions (RFC 5974 §4.7): they look, note in the QSPEC what they cannot do, and pass on.
//! They answer nothing (§5.3.5).

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
use super::parked::{Meta, Parked, route_query};
use super::rmf::{self, Flow};
use crate::wire::{Carried, Message, MessageType};

/// What a reduced-state node holds at each interface for each code point: one reservation for everybody, as large as what was asked for in
/// the present or the last refresh period. It cannot tell a refresh from a new request, and need not.
#[derive(Debug, Default)]
pub(super) struct Sums(BTreeMap<(IfIndex, u8), Sum>);

#[derive(Debug)]
struct Sum {
    grant: Option<GrantId>,
    /// Octets a second asked for in this period and in the one before.
    now: u64,
    before: u64,
    turns: Time,
}

impl Qos {
    pub(super) fn pass_without_state(
        &mut self,
        octets: &[u8],
        meta: &Meta,
        route: Option<Result<Route, NoRoute>>,
        resources: &mut Resources,
    ) {
        let message = Message::parse(octets)
            .ok()
            .filter(|message| matches!(message.kind, MessageType::RESERVE | MessageType::QUERY));
        let (Some(message), Some(qspec)) = (message, message.and_then(|message| message.qspec)) else {
            // §5.3.5: nothing of a message with an error is processed, and it goes on.
            if message.is_none() {
                self.counters.malformed += 1;
            }
            return self.forward_octets(octets, meta);
        };
        let Some(route) = route else {
            let mut copy = self.out.buffer();
            copy.extend_from_slice(octets);
            self.look_up(Parked::Message(copy, meta.clone()), route_query(&meta.mri));
            return;
        };
        let Ok(route) = route else { return self.forward_octets(octets, meta) };
        let flow = Flow {
            key: Key::default(),
            session: meta.session,
            mri: meta.mri,
            classifier: message.classifier,
            ifindex: (!route.local).then_some(route.ifindex),
            mtu: route.mtu,
            initiator: meta.initiator(),
            peer: meta.peer.clone(),
            auth: Carried::auth(&[]),
            lifetime: self.config.lifetime(self.config.period_ms()),
            mark_dscp: None,
        };
        let query = message.kind == MessageType::QUERY;
        let rate = rmf::rate(qspec).unwrap_or(0);
        let refused = match (self.config.state, flow.ifindex) {
            (StateKeeping::Reduced, Some(ifindex)) if !query => {
                // Flows are told by their code point only: a request that names none cannot be held.
                let class = rmf::dscp(qspec).or(mri_dscp(&meta.mri));
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
        self.forward(buffer, meta);
    }

    fn forward_octets(&mut self, octets: &[u8], meta: &Meta) {
        let mut buffer = self.out.buffer();
        buffer.extend_from_slice(octets);
        self.forward(buffer, meta);
    }

    fn forward(&mut self, octets: Vec<u8>, meta: &Meta) {
        if meta.hops == 0 {
            self.counters.hop_limit += 1;
            return self.out.reuse(octets);
        }
        // No GIST state either: neither asked for nor kept.
        let attributes = TransferAttributes { stateless: meta.stateless, ..self.attributes() };
        self.post(Parcel {
            octets,
            session: meta.session,
            nslp: meta.nslp,
            mri: meta.mri,
            state: meta.state,
            sii: None,
            hops: Some(meta.hops),
            attributes,
            timeout: Some(self.config.relay_timeout),
            purpose: Purpose::Unwatched,
        });
    }

    /// Adds a request to the sum of its interface; whether there is room.
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

    /// A refresh period is over: what was not asked for again in it is no longer held.
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
