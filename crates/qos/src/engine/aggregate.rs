//! Aggregates that begin here (RFC 5974 §4.5, §4.6). Flows that enter an aggregation region are forwarded under an
//! NSLPID that the nodes inside ignore. One session of this node, to the node where the region ends, reserves for all
//! of them.

use signalbox_core::mri::PathCoupled;
use signalbox_core::node::Route;
use signalbox_core::slab::Key;
use signalbox_core::{Mri, NslpId, invariant};
use signalbox_resources::Resources;
use signalbox_wire::Writer;

use super::Qos;
use super::command::{QosRequest, Service};
use super::compose::{Extra, Form};
use super::rmf;
use super::session::{Local, Marks, Origin, RequestKind, Stage};
use super::table::shared_qspec;
use super::waiting::Arrival;
use crate::wire::{BindingCode, BoundSession, Carried, Classifier, MessageId};

/// The state of one aggregate.
#[derive(Debug, Default)]
pub(super) struct AggregateState {
    /// Its session, once a flow has entered.
    pub(super) key: Option<Key>,
    /// Sum of the rates of its flows, in octets a second.
    used: u64,
    /// Requested rate and confirmed rate, in octets a second.
    size: u64,
    confirmed: u64,
    /// A flow left since the last check.
    left: bool,
}

impl Qos {
    /// Whether routers before this node provide no QoS. Nodes inside an aggregation region do not count: the aggregate
    /// reserves there and reports its own gaps.
    pub(super) fn after_gap(&self, arrival: &Arrival) -> bool {
        arrival.after_gap() && Some(arrival.nslp) != self.config.bypass_nslp
    }

    /// The aggregate that a flow enters: its interface is the egress interface of the flow, and the flow is in no
    /// aggregate yet.
    pub(super) fn aggregate_for(&self, arrival: &Arrival, route: &Route) -> Option<usize> {
        self.config.bypass_nslp?;
        if route.local || arrival.nslp != self.config.nslp {
            return None;
        }
        let name = self.interfaces.name(route.ifindex)?;
        self.config.aggregates.iter().position(|aggregate| aggregate.interface == name)
    }

    /// Adds a flow to an aggregate, or changes its rate there. Returns the NSLPID of its messages and, if the
    /// aggregate has to grow first, the MSG-ID that they are bound to (RFC 5974 §4.6).
    pub(super) fn join_aggregate(
        &mut self,
        key: Key,
        number: usize,
        rate: u64,
        route: &Route,
    ) -> (NslpId, Option<MessageId>) {
        let bypass = self.config.bypass_nslp.unwrap_or(self.config.nslp);
        self.leave_aggregate(key);
        if let Some(session) = invariant!(self.sessions.get_mut(key), "who joins has a session") {
            session.rare.change(|rare| rare.aggregate = Some((number, rate)));
        }
        let Some(step) = invariant!(self.config.aggregates.get(number), "a member has an aggregate")
            .map(|aggregate| aggregate.step.max(1))
        else {
            return (bypass, None);
        };
        let Some(entry) = invariant!(self.aggregates.get_mut(number), "an aggregate has a state") else {
            return (bypass, None);
        };
        entry.used = entry.used.saturating_add(rate);
        let wanted = entry.used.div_ceil(step).saturating_mul(step);
        if wanted <= entry.size {
            self.bind_to_aggregate(key, number);
            return (bypass, None);
        }
        entry.size = wanted;
        let id = MessageId { bidirectional: false, id: self.rng.array() };
        self.resize(number, Some(route), Some(id));
        self.bind_to_aggregate(key, number);
        (bypass, Some(id))
    }

    /// Removes a flow from its aggregate.
    pub(super) fn leave_aggregate(&mut self, key: Key) {
        let Some(session) = invariant!(self.sessions.get_mut(key), "who leaves has a session") else {
            return;
        };
        if let Some((number, rate)) = session.rare.change(|rare| rare.aggregate.take())
            && let Some(entry) = invariant!(self.aggregates.get_mut(number), "a former aggregate has a state")
        {
            entry.used = entry.used.saturating_sub(rate);
            entry.left = true;
        }
    }

    /// Shrinks aggregates that flows have left, and tears down those without flows.
    pub(super) fn step_aggregates(&mut self, resources: &mut Resources) {
        for number in 0..self.aggregates.len() {
            let Some(entry) = invariant!(self.aggregates.get_mut(number), "each aggregate has a state")
            else {
                return;
            };
            if !core::mem::take(&mut entry.left) {
                continue;
            }
            if entry.used == 0 {
                let key = core::mem::take(entry).key;
                if let Some(key) = key {
                    self.release_local(key, resources);
                    self.rearm(key);
                }
                continue;
            }
            let Some(step) = invariant!(self.config.aggregates.get(number), "each aggregate is configured")
                .map(|aggregate| aggregate.step.max(1))
            else {
                continue;
            };
            let wanted = entry.used.div_ceil(step).saturating_mul(step);
            // At least two steps: a flow that comes and goes does not change the aggregate each time.
            if entry.size >= wanted.saturating_add(step.saturating_mul(2)) {
                entry.size = wanted;
                self.resize(number, None, None);
            }
        }
    }

    fn bind_to_aggregate(&mut self, key: Key, number: usize) {
        let to = self.aggregates.get(number).and_then(|entry| entry.key);
        // There was perhaps no place for it.
        let Some(session) = to.and_then(|to| self.sessions.get(to)).map(|session| session.id) else { return };
        let Some(member) = invariant!(self.sessions.get(key), "a member has a session") else { return };
        let mut bound = member.rare.bound.clone();
        if Carried::bound_sessions(&bound).sessions().any(|b| b.session == session) {
            return;
        }
        let binding = BoundSession { code: BindingCode::AGGREGATE, session };
        if binding.write(&mut Writer::new(&mut bound)).is_ok() {
            self.bind(key, &Carried::bound_sessions(&bound));
        }
    }

    /// Sends a RESERVE for the new size of an aggregate. The flows have the grants at this node; the session of the
    /// aggregate has none here.
    fn resize(&mut self, number: usize, route: Option<&Route>, msg_id: Option<MessageId>) {
        let Some(aggregate) = invariant!(self.config.aggregates.get(number), "a size is of an aggregate")
        else {
            return;
        };
        let Some(entry) = invariant!(self.aggregates.get(number), "a size has a state") else { return };
        let (dscp, dst, size) = (aggregate.dscp, aggregate.deaggregator, entry.size);
        tracing::debug!(peer = %dst, dscp, rate = size, "aggregate changes its size");
        let key = match entry.key {
            Some(key) => key,
            None => {
                let Some(route) = route else { return };
                let src = self.interfaces.on(route.ifindex, dst).unwrap_or(route.src);
                let flow = PathCoupled { dscp: Some(dscp), ..PathCoupled::between(src, dst) };
                let id = self.rng.session_id();
                let Ok(key) = self.open(id, Mri::PathCoupled(flow), self.config.nslp, false, None) else {
                    return;
                };
                if let Some(session) = invariant!(self.sessions.get_mut(key), "a new aggregate has a session")
                {
                    session.marks.set(Marks::QNI, true);
                    // Its packets are classified by their code point only.
                    session.classifier = Some(Classifier::T);
                    session.local = Some(Box::new(Local::of(None, Origin::Aggregate(number))));
                    session.refresh_at = (self.now + self.rng.jitter(self.config.refresh, 0.5, 1.5)).into();
                }
                if let Some(entry) =
                    invariant!(self.aggregates.get_mut(number), "a new aggregate has a state")
                {
                    entry.key = Some(key);
                }
                key
            }
        };
        let qos = QosRequest { service: Service::Dscp(dscp), ..QosRequest::rate(size.max(1)) };
        let qspec = rmf::initial(&qos, None, rmf::CarriedBy::Reserve);
        let Some(session) = invariant!(self.sessions.get_mut(key), "an aggregate's session stays") else {
            return;
        };
        session.stage = Stage::Reserved;
        session.qspec = shared_qspec(&mut self.qspecs, &qspec);
        session.rate = size;
        session.marks.set(Marks::CONFIRMED, false);
        session.pending.retain(|p| p.kind != RequestKind::Reserve);
        session.next_rsn();
        let rii = self.new_rii(key);
        let extra = Extra { rii: Some(rii), msg_id, keep: true, ..Extra::default() };
        if let Some(octets) = self.send_reserve(key, Form::Full, extra) {
            self.counters.reserves_sent += 1;
            self.expect(key, rii, RequestKind::Reserve, octets);
        }
        self.rearm(key);
    }

    /// Stores the size that the region granted.
    pub(super) fn aggregate_granted(&mut self, key: Key, number: usize) {
        if let Some(entry) = self.aggregates.get_mut(number).filter(|entry| entry.key == Some(key)) {
            entry.confirmed = entry.size;
        }
    }

    /// Restores the confirmed size after a refusal. Flows that wait for the new size fail at the end of the region.
    pub(super) fn aggregate_refused(&mut self, key: Key, number: usize, resources: &mut Resources) {
        let Some(entry) = invariant!(self.aggregates.get_mut(number), "a refused aggregate has a state")
        else {
            return;
        };
        if entry.key != Some(key) {
            return self.end_local(key, None, resources);
        }
        entry.size = entry.confirmed;
        if entry.confirmed == 0 {
            entry.key = None;
            return self.end_local(key, None, resources);
        }
        self.resize(number, None, None);
    }
}
