//! Steps 6 to 8 of the procedure of a node on the path (§2.3): what a message does to the reservations of this node.

use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use signalbox_core::shares::source;
use signalbox_core::traffic::{FlowFilter, ServiceClass, TrafficSpec};
use signalbox_core::wheel::Link;
use signalbox_core::{Key, invariant};
use signalbox_resources::{
    Admitted, Cause, End, GrantId, GrantRequest, Neighbor, Owner, Proof as Proved, Refusal, Requester,
    Resources,
};

use super::adopt::Proposal;
use super::domain::Stamp;
use super::flow::{Flow, FlowKey, IS_INTSERV, IS_LOST, IS_MARKED};
use super::interfaces::Iface;
use super::io::Reason;
use super::path::{Origin, Proof};
use super::proof::Head;
use super::service::Demand;
use super::{Boomerang, PROTOCOL};
use crate::wire::{Body, Message, Pass, Qos};

/// What a message asks for at this node.
pub(super) struct FlowRequest<'a> {
    pub(super) key: FlowKey,
    pub(super) demand: Demand,
    pub(super) tos: u8,
    pub(super) marked: bool,
    pub(super) refresh: u8,
    pub(super) body: &'a Body<'a>,
    /// What the initiating node proved.
    pub(super) proof: Proof,
    /// The aggregate that another node proposes for the flow.
    pub(super) proposal: Option<Proposal>,
}

impl FlowRequest<'_> {
    pub(super) fn service(&self) -> ServiceClass {
        self.demand.service(self.tos >> 2)
    }

    /// What a reservation stores of its demand, of which it was granted `rate`.
    fn tag(&self, rate: u32) -> u32 {
        self.demand.intserv.map_or(rate, |intserv| intserv.tag)
    }

    /// The first rate of a list that is available, or the only rate. BOOM-3.2.3-08.
    pub(super) fn first_that_fits(&self, pass: Pass, available: u32) -> u32 {
        let wanted = self.demand.rate;
        match self.body.qos {
            Qos::Downgrade(list) => {
                list.pairs().map(|pair| pair.of(pass)).find(|rate| *rate <= available).unwrap_or(wanted)
            }
            Qos::BitRate(_) | Qos::IntServ(_) => wanted,
        }
    }

    /// The marks of a reservation.
    const fn marks(&self) -> u8 {
        (if self.marked { IS_MARKED } else { 0 })
            | (if self.demand.intserv.is_some() { IS_INTSERV } else { 0 })
    }
}

/// A flow in the tables: its hash, and its reservation if it has one of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lookup {
    pub(super) hash: u64,
    pub(super) found: Option<Key>,
}

/// What admission control is asked for.
pub(super) struct RequestedRate {
    /// Rate, bit/s.
    pub(super) rate: u32,
    pub(super) dscp: u8,
    pub(super) filter: FlowFilter,
    pub(super) oif: Iface,
    pub(super) refresh: u8,
}

/// This node cannot reserve: the reason, the largest rate that it could, bit/s, and what it tells the initiating node besides.
pub(super) struct Refused {
    pub(super) reason: Reason,
    pub(super) available: u32,
    pub(super) note: Option<String>,
}

impl Refused {
    fn by(refusal: &Refusal, available: u32, resources: &Resources) -> Self {
        Self { reason: Reason::of_cause(refusal.cause()), available, note: resources.told(refusal) }
    }
}

/// What a message changed.
#[derive(Debug)]
pub(super) enum Effect {
    Nothing,
    Created,
    /// The flow became a member of an aggregate.
    Joined,
    Changed,
    Refreshed,
    Released,
}

/// Octets a second of a rate in bit/s.
fn octets(rate: u32) -> u64 {
    u64::from(rate).div_ceil(8)
}

/// A rate in bit/s of octets a second.
fn bits(octets: u64) -> u32 {
    u32::try_from(octets.saturating_mul(8)).unwrap_or(u32::MAX)
}

impl Boomerang {
    /// Steps 6 to 8. The result is the rate that is reserved now.
    pub(super) fn reserve(
        &mut self,
        lookup: Lookup,
        request: &FlowRequest<'_>,
        message: &Message<'_>,
        origin: &Origin,
        resources: &mut Resources,
    ) -> Result<(u32, Effect), Refused> {
        let Demand { rate: wanted, intserv } = request.demand;
        let Lookup { hash, mut found } = lookup;
        if wanted == 0 {
            let left = self.leave_aggregate(hash, resources);
            let Some(key) = found else {
                // BOOM-G12-04
                return Ok((0, if left { Effect::Released } else { Effect::Nothing }));
            };
            self.note_proof(key, request.proof);
            // A session of this node has its own reason.
            if origin.iif.is_some() {
                resources.because(End::TornDown);
            }
            // BOOM-G12-02
            self.remove(key, Some(resources));
            return Ok((0, Effect::Released));
        }
        let lookup = self.settle_loss(lookup, message, origin).map_err(|reason| {
            let available = self.available(origin, request.service(), None, resources);
            Refused { reason, available, note: None }
        })?;
        found = lookup.found;
        // 8. A member of an aggregate has no reservation of its own.
        if let Some(proposal) = &request.proposal {
            if let Some(result) = self.join(proposal, lookup, request, message.pass, origin, resources) {
                return result;
            }
            self.counters.options_ignored += 1;
            found = found.filter(|key| self.flows.get(*key).is_some());
        }
        let standing = found.and_then(|key| Some((key, self.flows.get(key)?)));
        let unchanged = standing.filter(|(_, flow)| {
            flow.rate == request.demand.tag()
                && flow.has(IS_INTSERV) == intserv.is_some()
                // BOOM-F3.5-03
                && flow.oif == origin.oif
                // BOOM-G7-03
                && flow.tos == request.tos
                && flow.has(IS_MARKED) == request.marked
        });
        // BOOM-P-04
        if let Some((key, _)) = unchanged {
            self.note_proof(key, request.proof);
            self.hold(key, request.refresh);
            return Ok((wanted, Effect::Refreshed));
        }
        let here = standing.filter(|(_, flow)| flow.oif == origin.oif && !flow.has(IS_INTSERV));
        let held = here.map(|(_, flow)| flow.rate);
        let standing = standing.map(|(key, flow)| (key, flow.grant, flow.oif));
        let available = self.available(origin, request.service(), held, resources);
        // Of a list, the first element that fits.
        let rate = request.first_that_fits(message.pass, available);
        if rate == 0 {
            // A list that ends with 0 in this direction is satisfied by nothing.
            self.leave_aggregate(hash, resources);
            if let Some((key, ..)) = standing {
                self.note_proof(key, request.proof);
                resources.because(End::TornDown);
                self.remove(key, Some(resources));
            }
            return Ok((0, Effect::Released));
        }
        // BOOM-2.3-01
        let Some((key, grant, oif)) = standing else {
            let key = self.create(hash, request, rate, message, origin, resources)?;
            self.note_proof(key, request.proof);
            self.hold(key, request.refresh);
            return Ok((rate, Effect::Created));
        };
        let grant_request = self.flow_grant_request(key, request, rate, message, origin);
        let admitted = if oif == origin.oif {
            resources.modify(self.now, grant, &grant_request)
        } else {
            // The path changed: the grant at the former interface is not needed any more.
            let new = self.admit(grant_request, &request.key, resources);
            if new.is_ok() {
                resources.because(End::Rerouted);
                resources.release(grant);
            }
            new
        };
        // BOOM-G17-01
        let Admitted { grant, .. } =
            admitted.map_err(|refusal| Refused::by(&refusal, available, resources))?;
        self.leave_class(key);
        if let Some(flow) = self.flows.get_mut(key) {
            (flow.grant, flow.rate, flow.oif) = (grant, request.tag(rate), origin.oif);
            (flow.tos, flow.marks) = (request.tos, request.marks());
        }
        self.enter_class(key);
        self.note_proof(key, request.proof);
        self.hold(key, request.refresh);
        Ok((rate, Effect::Changed))
    }

    // BOOM-F6.1-01, BOOM-F6.2-08
    fn create(
        &mut self,
        hash: u64,
        request: &FlowRequest<'_>,
        rate: u32,
        message: &Message<'_>,
        origin: &Origin,
        resources: &mut Resources,
    ) -> Result<Key, Refused> {
        // A flow that was a member counts in its former aggregate no more.
        self.leave_aggregate(hash, resources);
        let full = |available| Refused { reason: Reason::Full, available, note: None };
        let iif = origin.iif.unwrap_or(Iface::LOCAL);
        if !self.take_place(request.key.initiator(), iif) {
            self.counters.flows_full += 1;
            tracing::debug!(peer = %request.key.initiator(), reason = "share of its source or interface in the table of reservations is used up", "reservation refused");
            return Err(full(0));
        }
        let flow = Flow {
            key: request.key,
            link: Link::default(),
            grant: GrantId(0),
            rate: request.tag(rate),
            proof: 0,
            oif: origin.oif,
            iif,
            tos: request.tos,
            refresh: request.refresh,
            marks: request.marks(),
            signed: false,
        };
        let Ok(key) = self.flows.insert(flow) else {
            self.give_place_back(request.key.initiator(), iif);
            self.counters.flows_full += 1;
            tracing::debug!(peer = %request.key.initiator(), reason = "table of reservations full", "reservation refused");
            return Err(full(0));
        };
        let grant_request = self.flow_grant_request(key, request, rate, message, origin);
        match self.admit(grant_request, &request.key, resources) {
            Ok(admitted) => {
                if let Some(flow) = self.flows.get_mut(key) {
                    flow.grant = admitted.grant;
                }
                self.enter_class(key);
                let Self { by_flow, flows, hasher, .. } = self;
                by_flow.insert(hash, key.index(), |index| {
                    flows.get_index(index).map_or(0, |flow| flow.key.hash(flow.oif, hasher))
                });
                Ok(key)
            }
            Err(refusal) => {
                self.flows.remove(key);
                self.give_place_back(request.key.initiator(), iif);
                let available = self.available(origin, request.service(), None, resources);
                Err(Refused::by(&refusal, available, resources))
            }
        }
    }

    /// The request to admission control for a reservation. BOOM-G8-03.
    fn flow_grant_request(
        &self,
        key: Key,
        request: &FlowRequest<'_>,
        rate: u32,
        message: &Message<'_>,
        origin: &Origin,
    ) -> GrantRequest {
        let initiator = origin.initiator(message.pass);
        let requester = match origin.iif {
            None => Requester::local(initiator, self.command_for(request.key.of_pass(Pass::Request))),
            Some(iif) => Requester::neighbor(Neighbor {
                address: initiator,
                ifindex: self.interfaces.ifindex(iif),
                proof: match request.proof {
                    Proof::Member(_) => Proved::Identity,
                    Proof::Returned(_) => Proved::Handshake,
                    Proof::Nothing => Proved::None,
                },
            }),
        };
        let user = request.body.options.user();
        let names = user.and_then(|uid| Some(Arc::new(vec![uid.name()?.to_owned()])));
        let requester = Requester { names, ..requester };
        let dscp = request.tos >> 2;
        let filter = request.key.filter(request.marked.then_some(dscp));
        let requested = RequestedRate { rate, dscp, filter, oif: origin.oif, refresh: request.refresh };
        let mut grant_request = self.grant_request(key, requester, &requested);
        request.demand.complete(&mut grant_request, dscp);
        grant_request
    }

    /// The request to admission control for a rate. BOOM-G32-01, BOOM-P-06.
    pub(super) fn grant_request(
        &self,
        key: Key,
        requester: Requester,
        requested: &RequestedRate,
    ) -> GrantRequest {
        let RequestedRate { rate, dscp, filter, oif, refresh } = *requested;
        let mtu = self.interfaces.mtu(oif);
        let rate = octets(rate);
        // Ten milliseconds of the rate, or two packets.
        let burst = u32::try_from(rate / 100).unwrap_or(u32::MAX).max(mtu.saturating_mul(2));
        let traffic = TrafficSpec { rate, burst, peak: None, min_policed: 20, max_packet: mtu };
        let owner = Owner { protocol: PROTOCOL, key: key.to_u64() };
        let ifindex = self.interfaces.ifindex(oif);
        let hold = self.holding_time(refresh);
        GrantRequest {
            lifetime: Some(hold),
            mark_dscp: Some(dscp),
            service: ServiceClass::Dscp(dscp),
            ..GrantRequest::new(owner, requester, ifindex, filter, traffic)
        }
    }

    /// Asks admission control for a reservation. If the other end initiated one for the same packets, both share it: the
    /// larger rate counts.
    fn admit(
        &self,
        mut grant_request: GrantRequest,
        key: &FlowKey,
        resources: &mut Resources,
    ) -> Result<Admitted, Refusal> {
        let result = resources.admit(self.now, &grant_request);
        if !result.as_ref().is_err_and(|refusal| refusal.cause() == Cause::Conflict) {
            return result;
        }
        let (other, anywhere) = (key.of_other_end(), Iface::LOCAL);
        let found = self.find(other.hash(anywhere, &self.hasher), &other, anywhere);
        let Some(flow) = found.and_then(|found| self.flows.get(found)).filter(|flow| !flow.has(IS_LOST))
        else {
            return result;
        };
        grant_request.shared_with = Some(flow.grant);
        resources.admit(self.now, &grant_request)
    }

    /// The largest rate that the interface could give, `held` included, bit/s. BOOM-G19-02.
    pub(super) fn available(
        &self,
        origin: &Origin,
        service: ServiceClass,
        held: Option<u32>,
        resources: &Resources,
    ) -> u32 {
        let ifindex = self.interfaces.ifindex(origin.oif);
        let free = resources.available(ifindex, service);
        bits(free.map_or(0, |free| free.rate)).saturating_add(held.unwrap_or(0))
    }

    // BOOM-A4.1.1-01, BOOM-G13-01
    pub(super) fn holding_time(&self, refresh: u8) -> Duration {
        Duration::from_secs(refresh.into()).mul_f64(self.config.hold)
    }

    /// Restarts the holding time of a reservation. BOOM-G13-02.
    fn hold(&mut self, key: Key, refresh: u8) {
        let due = self.now + self.holding_time(refresh);
        if let Some(flow) = self.flows.get_mut(key) {
            flow.refresh = refresh;
            self.wheel.arm(&mut self.flows, key.index(), due);
        }
    }

    /// Notes what the last message of a reservation proved.
    fn note_proof(&mut self, key: Key, proof: Proof) {
        let Some(flow) = invariant!(self.flows.get_mut(key), "a proof is of a known flow") else { return };
        (flow.proof, flow.signed) = match proof {
            Proof::Nothing => (0, false),
            Proof::Returned(Head(head)) => (head, false),
            Proof::Member(Stamp(stamp)) => (stamp, true),
        };
    }

    /// Removes a reservation, and with `resources` its grant. BOOM-G37-01, BOOM-P-03.
    pub(super) fn remove(&mut self, key: Key, resources: Option<&mut Resources>) {
        if self.flows.get(key).is_none() {
            return;
        }
        self.leave_class(key);
        self.wheel.cancel(&mut self.flows, key.index());
        let Some(flow) = invariant!(self.flows.remove(key), "a reservation ends once") else { return };
        let hash = flow.key.hash(flow.oif, &self.hasher);
        self.by_flow.remove(hash, |index| index == key.index());
        if let Some(stamp) = flow.stamp() {
            self.domain.note_end(hash, stamp);
        }
        self.give_place_back(flow.key.initiator(), flow.iif);
        if flow.has(IS_LOST) {
            self.lost_flows = self.lost_flows.saturating_sub(1);
        } else if let Some(resources) = resources {
            resources.release(flow.grant);
        }
    }

    /// Reservations that expired, some of them at a time: who makes them chooses when they end. BOOM-F3.5-01, BOOM-F3.5-02.
    pub(super) fn run_flows(&mut self, most: u32, resources: &mut Resources) {
        for _ in 0..most {
            let Some(index) = self.wheel.pop_due(&mut self.flows, self.now) else { return };
            if let Some(key) = invariant!(self.flows.key_of(index), "the timer of a flow ends with it") {
                let held = self.flows.get(key).filter(|flow| !flow.has(IS_LOST)).map(|flow| flow.grant.0);
                if let Some(grant) = held {
                    self.counters.expired += 1;
                    tracing::debug!(grant, "reservation expired");
                }
                resources.because(End::Expired);
                self.remove(key, Some(resources));
            }
        }
    }

    fn take_place(&mut self, initiator: IpAddr, iif: Iface) -> bool {
        let source = source(initiator);
        if self.by_source.take(source).is_err() {
            return false;
        }
        if self.by_interface.take(iif).is_err() {
            self.by_source.release(source);
            return false;
        }
        true
    }

    fn give_place_back(&mut self, initiator: IpAddr, iif: Iface) {
        self.by_source.release(source(initiator));
        self.by_interface.release(iif);
    }
}
