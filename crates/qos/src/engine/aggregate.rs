//! Aggregates that begin here (RFC 5974 §4.5, §4.6): flows that enter a region go on under a number that its nodes pass
//! by, and one session of this node's own, to the node where the region ends, reserves for all of them.

use signalbox_core::mri::PathCoupled;
use signalbox_core::node::Route;
use signalbox_core::slab::Key;
use signalbox_core::{Mri, NslpId};
use signalbox_resources::Resources;
use signalbox_wire::Writer;

use super::Qos;
use super::command::{QosRequest, Service};
use super::compose::{Extra, Form};
use super::parked::Meta;
use super::rmf;
use super::session::{Local, Marks, Stage, Want, Wish};
use crate::wire::{BindingCode, BoundSession, Carried, Classifier, MessageId};

/// One aggregate.
#[derive(Debug, Default)]
pub(super) struct Trunk {
    /// Its session, once a flow has entered.
    pub(super) key: Option<Key>,
    /// Octets a second that its members hold.
    used: u64,
    /// Octets a second that are asked for, and that the far end confirmed.
    size: u64,
    confirmed: u64,
    /// A member has left since it was looked at.
    left: bool,
}

impl Qos {
    /// Routers before this node provide no QoS. Those that a flow's messages pass by inside a region are none of them:
    /// the aggregate reserves there, and sees its own gaps.
    pub(super) fn after_gap(&self, meta: &Meta) -> bool {
        meta.after_gap() && Some(meta.nslp) != self.config.bypass_nslp
    }

    /// The aggregate that a flow enters: it leaves by the aggregate's interface and is in none yet.
    pub(super) fn trunk_for(&self, meta: &Meta, route: &Route) -> Option<usize> {
        self.config.bypass_nslp?;
        if route.local || meta.nslp != self.config.nslp {
            return None;
        }
        let name = self.interfaces.name(route.ifindex)?;
        self.config.aggregates.iter().position(|aggregate| aggregate.interface == name)
    }

    /// A flow enters an aggregate, or holds another rate in it. Gives the number under which its messages go on and,
    /// where the aggregate has to grow first, the message that they have to wait for.
    pub(super) fn join(
        &mut self,
        key: Key,
        trunk: usize,
        rate: u64,
        route: &Route,
    ) -> (NslpId, Option<MessageId>) {
        let bypass = self.config.bypass_nslp.unwrap_or(self.config.nslp);
        self.leave(key);
        if let Some(session) = self.sessions.get_mut(key) {
            session.trunk = Some((trunk, rate));
        }
        let Some(step) = self.config.aggregates.get(trunk).map(|aggregate| aggregate.step.max(1)) else {
            return (bypass, None);
        };
        let Some(entry) = self.trunks.get_mut(trunk) else { return (bypass, None) };
        entry.used = entry.used.saturating_add(rate);
        let wanted = entry.used.div_ceil(step).saturating_mul(step);
        if wanted <= entry.size {
            self.bind_to_trunk(key, trunk);
            return (bypass, None);
        }
        entry.size = wanted;
        let id = MessageId { bidirectional: false, id: self.rng.array() };
        self.resize(trunk, Some(route), Some(id));
        self.bind_to_trunk(key, trunk);
        (bypass, Some(id))
    }

    /// A flow leaves the aggregate that it is in.
    pub(super) fn leave(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if let Some((trunk, rate)) = session.trunk.take()
            && let Some(entry) = self.trunks.get_mut(trunk)
        {
            entry.used = entry.used.saturating_sub(rate);
            entry.left = true;
        }
    }

    /// Aggregates that flows have left become smaller; one that nobody is in is torn down.
    pub(super) fn step_trunks(&mut self, resources: &mut Resources) {
        for trunk in 0..self.trunks.len() {
            let Some(entry) = self.trunks.get_mut(trunk) else { return };
            if !core::mem::take(&mut entry.left) {
                continue;
            }
            if entry.used == 0 {
                let key = core::mem::take(entry).key;
                if let Some(key) = key {
                    self.let_go(key, resources);
                    self.rearm(key);
                }
                continue;
            }
            let Some(step) = self.config.aggregates.get(trunk).map(|aggregate| aggregate.step.max(1)) else {
                continue;
            };
            let wanted = entry.used.div_ceil(step).saturating_mul(step);
            // By two steps at least: a flow that comes and goes does not move it each time.
            if entry.size >= wanted.saturating_add(step.saturating_mul(2)) {
                entry.size = wanted;
                self.resize(trunk, None, None);
            }
        }
    }

    fn bind_to_trunk(&mut self, key: Key, trunk: usize) {
        let to = self.trunks.get(trunk).and_then(|entry| entry.key);
        let Some(session) = to.and_then(|to| self.sessions.get(to)).map(|session| session.id) else { return };
        let Some(member) = self.sessions.get(key) else { return };
        let mut bound = member.bound.clone();
        if Carried::bound_sessions(&bound).sessions().any(|b| b.session == session) {
            return;
        }
        let binding = BoundSession { code: BindingCode::AGGREGATE, session };
        if binding.write(&mut Writer::new(&mut bound)).is_ok() {
            self.bind(key, &Carried::bound_sessions(&bound));
        }
    }

    /// Asks the region for the aggregate's new size. What leaves here is held by the members; the session itself holds
    /// nothing at this node.
    fn resize(&mut self, trunk: usize, route: Option<&Route>, msg_id: Option<MessageId>) {
        let Some(aggregate) = self.config.aggregates.get(trunk) else { return };
        let Some(entry) = self.trunks.get(trunk) else { return };
        let (dscp, dst, size) = (aggregate.dscp, aggregate.deaggregator, entry.size);
        let key = match entry.key {
            Some(key) => key,
            None => {
                let Some(route) = route else { return };
                let src = self.interfaces.on(route.ifindex, dst).unwrap_or(route.src);
                let flow = PathCoupled { dscp: Some(dscp), ..PathCoupled::between(src, dst) };
                let id = self.rng.session_id();
                let Ok(key) = self.open(id, Mri::PathCoupled(flow), self.config.nslp, false) else { return };
                if let Some(session) = self.sessions.get_mut(key) {
                    session.marks.set(Marks::QNI, true);
                    // Its packets are known by their code point, wherever they come from and go to.
                    session.classifier = Some(Classifier::T);
                    session.local = Some(Box::new(Local::of(None, Wish::Aggregate(trunk))));
                    session.refresh_at = Some(self.now + self.rng.jitter(self.config.refresh, 0.5, 1.5));
                }
                if let Some(entry) = self.trunks.get_mut(trunk) {
                    entry.key = Some(key);
                }
                key
            }
        };
        let qos = QosRequest { service: Service::Dscp(dscp), ..QosRequest::rate(size.max(1)) };
        let qspec = rmf::initial(&qos, None, rmf::Aim::Reserve);
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.stage = Stage::Reserved;
        session.qspec = qspec;
        session.rate = size;
        session.marks.set(Marks::CONFIRMED, false);
        session.pending.retain(|p| p.want != Want::Reserve);
        session.next_rsn();
        let rii = self.new_rii(key);
        let extra = Extra { rii: Some(rii), msg_id, keep: true, ..Extra::default() };
        if let Some(octets) = self.send_reserve(key, Form::Full, extra) {
            self.counters.reserves_sent += 1;
            self.expect(key, rii, Want::Reserve, octets);
        }
        self.rearm(key);
    }

    /// The region granted the aggregate's size.
    pub(super) fn trunk_granted(&mut self, key: Key, trunk: usize) {
        if let Some(entry) = self.trunks.get_mut(trunk).filter(|entry| entry.key == Some(key)) {
            entry.confirmed = entry.size;
        }
    }

    /// The region did not: what stood stands; flows that waited for more fail where they wait.
    pub(super) fn trunk_refused(&mut self, key: Key, trunk: usize, resources: &mut Resources) {
        let Some(entry) = self.trunks.get_mut(trunk) else { return };
        if entry.key != Some(key) {
            return self.end_local(key, None, resources);
        }
        entry.size = entry.confirmed;
        if entry.confirmed == 0 {
            entry.key = None;
            return self.end_local(key, None, resources);
        }
        self.resize(trunk, None, None);
    }
}
