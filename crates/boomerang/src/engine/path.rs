//! A node on the path: what a passing message does to the reservations of this node, and what this node writes into it.
//!
//! The numbers are the steps of the procedure in `docs/wire/boomerang.md`.

use core::net::IpAddr;
use core::time::Duration;
use std::sync::Arc;

use signalbox_core::Key;
use signalbox_core::shares::source;
use signalbox_core::traffic::{ServiceClass, TrafficSpec};
use signalbox_core::wheel::Link;
use signalbox_resources::{
    Admitted, GrantId, GrantRequest, LostWhy, Neighbour, Owner, RequestedBy, Requester, Resources,
};

use super::domain::{Proven, Stamp};
use super::flow::{Flow, FlowKey, IS_INTSERV, IS_MARKED, demanded_dscp};
use super::interfaces::Iface;
use super::io::Reason;
use super::proof::{divides, multiplied};
use super::service::Demand;
use super::{Boomerang, PROTOCOL};
use crate::wire::{Body, Ends, FlowSpec, Message, Pass, Qos, edit};

/// Where a message comes from and where it goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    /// Addresses of the packet.
    pub(super) ends: Ends,
    /// The interface that it came in by; `None`: this node is the initiating node.
    pub(super) iif: Option<Iface>,
    /// The interface that it leaves by.
    pub(super) oif: Iface,
}

impl Origin {
    /// Address of the initiating node.
    const fn initiator(&self, pass: Pass) -> IpAddr {
        match pass {
            Pass::Request => self.ends.src,
            Pass::Reply => self.ends.dst,
        }
    }
}

/// What a message asks for at this node.
struct Asked<'a> {
    key: FlowKey,
    demand: Demand,
    tos: u8,
    marked: bool,
    refresh: u8,
    body: &'a Body<'a>,
    /// What the initiating node proved.
    proof: Proof,
}

impl Asked<'_> {
    fn service(&self) -> ServiceClass {
        self.demand.service(self.tos >> 2)
    }

    /// What a reservation stores of its demand, of which it was granted `rate`.
    fn tag(&self, rate: u32) -> u32 {
        self.demand.intserv.map_or(rate, |intserv| intserv.tag)
    }

    /// The marks of a reservation.
    const fn marks(&self) -> u8 {
        (if self.marked { IS_MARKED } else { 0 })
            | (if self.demand.intserv.is_some() { IS_INTSERV } else { 0 })
    }
}

/// What the initiating node of a message proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// Nothing is demanded.
    Nothing,
    /// It receives replies: this prime divides the KEY.
    Prime(u32),
    /// It is a member of the domain.
    Member(Stamp),
}

/// A message that is not granted because of what it does not prove.
enum Unproved {
    /// It has to prove that it receives replies, by this prime.
    Prime(u32),
    /// It is not authenticated.
    Member,
    /// A newer message of the reservation was received.
    Stale,
}

/// This node cannot reserve: the reason, and the largest rate that it could, bit/s.
struct Refused {
    reason: Reason,
    available: u32,
}

/// What a message changed.
enum Effect {
    Nothing,
    Created,
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
    /// Carries a message through this node: reserves what it asks for in the direction of its pass, and changes `octets`,
    /// which are those of the message. The checksum of changed octets is left to the caller. Whether they changed.
    pub(super) fn procedure(
        &mut self,
        octets: &mut Vec<u8>,
        message: &Message<'_>,
        origin: Origin,
        resources: &mut Resources,
    ) -> bool {
        let Some(body) = &message.body else {
            return self.refuse(octets, message, &origin, Reason::Unsupported);
        };
        if body.flow.classifier.dst.is_ipv6() != origin.ends.is_ipv6() {
            return self.refuse(octets, message, &origin, Reason::Unsupported);
        }
        // 3. The interval is lowered on every message. An interval of 0 is not valid.
        let refresh = match message.refresh {
            0 => self.config.max_refresh,
            asked => asked.min(self.config.max_refresh),
        };
        let shortened = refresh != message.refresh;
        if shortened {
            edit::set_refresh(octets, refresh);
        }
        if message.refresh == 0 {
            return self.refuse(octets, message, &origin, Reason::BadRequest);
        }
        let demand = match Demand::read(&body.qos, message.pass, &self.hasher) {
            Ok(demand) => demand,
            Err(reason) => return self.refuse(octets, message, &origin, reason),
        };
        let rate = demand.rate;
        let tos = body.flow.classifier.tos & 0xfc;
        let service = demand.service(tos >> 2);
        // 5. After a refusal the message is a query.
        if message.is_refused() {
            self.counters.without_effect += 1;
            let available = self.available(&origin, service, None, resources);
            return self.lower(octets, message, available) || shortened;
        }
        let Ok(key) = FlowKey::of(&body.flow, message.pass) else {
            return self.refuse(octets, message, &origin, Reason::Unsupported);
        };
        let initiator = origin.initiator(message.pass);
        if self.config.same_source && origin.iif.is_some() && !is_own(&body.flow, initiator) {
            return self.refuse(octets, message, &origin, Reason::Policy);
        }
        let hash = self.hasher.hash_octets(key.octets());
        let found = self.find(hash, &key);
        let proven = match origin.iif {
            None => Proven::Nothing,
            Some(_) => {
                let (integrity, ipv6) = (&self.config.integrity, origin.ends.is_ipv6());
                let option = body.options.authentication();
                self.domain.proven(integrity, self.now, octets, ipv6, option)
            }
        };
        let proof = match self.proof(found, hash, &key, message, &origin, rate, proven) {
            Ok(proof) => proof,
            Err(Unproved::Member) => {
                self.counters.unauthenticated += 1;
                if rate == 0 && found.is_none() {
                    return shortened;
                }
                return self.refuse(octets, message, &origin, Reason::Unauthenticated);
            }
            Err(Unproved::Stale) => {
                self.counters.stale += 1;
                return shortened;
            }
            Err(Unproved::Prime(prime)) => {
                self.counters.unproved += 1;
                if rate == 0 && found.is_none() {
                    return shortened;
                }
                let Some(product) = multiplied(message.key, prime) else {
                    return self.refuse(octets, message, &origin, Reason::Unsupported);
                };
                edit::set_key(octets, product);
                return true;
            }
        };
        let marked = demanded_dscp(&body.flow.classifier, &body.flow.mask).is_some();
        let asked = Asked { key, demand, tos, marked, refresh, body, proof };
        match self.reserve(hash, found, asked, message, &origin, resources) {
            Ok((granted, effect)) => {
                self.count(&effect);
                shortened | self.write_grant(octets, message, granted)
            }
            Err(refused) => {
                tracing::debug!(
                    filter = %key.filter(None), rate, reason = %refused.reason, "reservation refused"
                );
                self.refuse(octets, message, &origin, refused.reason);
                self.lower(octets, message, refused.available);
                true
            }
        }
    }

    const fn count(&mut self, effect: &Effect) {
        match effect {
            Effect::Nothing => self.counters.without_effect += 1,
            Effect::Created => self.counters.created += 1,
            Effect::Changed => self.counters.changed += 1,
            Effect::Refreshed => self.counters.refreshed += 1,
            Effect::Released => self.counters.released += 1,
        }
    }

    fn find(&self, hash: u64, key: &FlowKey) -> Option<Key> {
        let is_it = |index| self.flows.get_index(index).is_some_and(|flow| flow.key == *key);
        self.by_flow.find(hash, is_it).and_then(|index| self.flows.key_of(index))
    }

    /// What a message proved, if that is enough here.
    #[expect(clippy::too_many_arguments, reason = "one place decides about all kinds of proofs")]
    fn proof(
        &self,
        found: Option<Key>,
        hash: u64,
        flow: &FlowKey,
        message: &Message<'_>,
        origin: &Origin,
        rate: u32,
        proven: Proven,
    ) -> Result<Proof, Unproved> {
        let standing = found.and_then(|found| self.flows.get(found));
        match proven {
            Proven::Wrong => return Err(Unproved::Member),
            Proven::Member { most, .. } if rate > most.of(message.pass) => return Err(Unproved::Member),
            Proven::Member { stamp, .. } => {
                let newer = match standing.map(Flow::stamp) {
                    Some(last) => last.is_none_or(|last| stamp.is_after(last)),
                    None => self.domain.is_new(hash, stamp),
                };
                return if newer { Ok(Proof::Member(stamp)) } else { Err(Unproved::Stale) };
            }
            Proven::Nothing => {}
        }
        if origin.iif.is_none() {
            return Ok(Proof::Nothing);
        }
        if self.config.integrity.require || standing.is_some_and(|flow| flow.signed) {
            return Err(Unproved::Member);
        }
        match standing.map(|flow| flow.proof) {
            Some(0) => return Ok(Proof::Nothing),
            Some(prime) if divides(prime, message.key) => return Ok(Proof::Prime(prime)),
            Some(prime) => return Err(Unproved::Prime(prime)),
            None if !self.config.prove => return Ok(Proof::Nothing),
            None => {}
        }
        let initiator = origin.initiator(message.pass);
        let confirmed = self.primes.confirmed(self.now, flow, initiator, message.key);
        let prime = || Unproved::Prime(self.primes.current(self.now, flow, initiator));
        confirmed.map(Proof::Prime).ok_or_else(prime)
    }

    /// Steps 6 to 8. The result is the rate that is reserved now.
    fn reserve(
        &mut self,
        hash: u64,
        found: Option<Key>,
        asked: Asked<'_>,
        message: &Message<'_>,
        origin: &Origin,
        resources: &mut Resources,
    ) -> Result<(u32, Effect), Refused> {
        let Demand { rate: wanted, intserv } = asked.demand;
        if wanted == 0 {
            let Some(key) = found else { return Ok((0, Effect::Nothing)) };
            self.note_proof(key, asked.proof);
            self.remove(key, Some(resources));
            return Ok((0, Effect::Released));
        }
        let standing = found.and_then(|key| Some((key, self.flows.get(key)?)));
        let unchanged = standing.filter(|(_, flow)| {
            flow.rate == asked.demand.tag()
                && flow.has(IS_INTSERV) == intserv.is_some()
                && flow.oif == origin.oif
                && flow.tos == asked.tos
                && flow.has(IS_MARKED) == asked.marked
        });
        if let Some((key, _)) = unchanged {
            self.note_proof(key, asked.proof);
            self.hold(key, asked.refresh);
            return Ok((wanted, Effect::Refreshed));
        }
        let here = standing.filter(|(_, flow)| flow.oif == origin.oif && !flow.has(IS_INTSERV));
        let held = here.map(|(_, flow)| flow.rate);
        let standing = standing.map(|(key, flow)| (key, flow.grant, flow.oif));
        let available = self.available(origin, asked.service(), held, resources);
        // Of a list, the first element that fits.
        let rate = match asked.body.qos {
            Qos::Downgrade(list) => list
                .pairs()
                .map(|pair| pair.of(message.pass))
                .find(|rate| *rate <= available)
                .unwrap_or(wanted),
            Qos::BitRate(_) | Qos::IntServ(_) => wanted,
        };
        if rate == 0 {
            // A list that ends with 0 in this direction is satisfied by nothing.
            if let Some((key, ..)) = standing {
                self.note_proof(key, asked.proof);
                self.remove(key, Some(resources));
            }
            return Ok((0, Effect::Released));
        }
        let Some((key, grant, oif)) = standing else {
            let key = self.create(hash, &asked, rate, message, origin, resources)?;
            self.note_proof(key, asked.proof);
            self.hold(key, asked.refresh);
            return Ok((rate, Effect::Created));
        };
        let ask = self.ask(key, &asked, rate, message, origin);
        let admitted = if oif == origin.oif {
            resources.modify(self.now, grant, &ask)
        } else {
            // The path changed: the grant at the former interface is not needed any more.
            let new = resources.admit(self.now, &ask);
            if new.is_ok() {
                resources.release(grant);
            }
            new
        };
        let Admitted { grant, .. } =
            admitted.map_err(|refusal| Refused { reason: Reason::of_cause(refusal.cause()), available })?;
        if let Some(flow) = self.flows.get_mut(key) {
            (flow.grant, flow.rate, flow.oif) = (grant, asked.tag(rate), origin.oif);
            (flow.tos, flow.marks) = (asked.tos, asked.marks());
        }
        self.note_proof(key, asked.proof);
        self.hold(key, asked.refresh);
        Ok((rate, Effect::Changed))
    }

    fn create(
        &mut self,
        hash: u64,
        asked: &Asked<'_>,
        rate: u32,
        message: &Message<'_>,
        origin: &Origin,
        resources: &mut Resources,
    ) -> Result<Key, Refused> {
        let full = |available| Refused { reason: Reason::Full, available };
        let iif = origin.iif.unwrap_or(Iface::LOCAL);
        if !self.take_place(asked.key.initiator(), iif) {
            self.counters.flows_full += 1;
            return Err(full(0));
        }
        let flow = Flow {
            key: asked.key,
            link: Link::default(),
            grant: GrantId(0),
            rate: asked.tag(rate),
            proof: 0,
            oif: origin.oif,
            iif,
            tos: asked.tos,
            refresh: asked.refresh,
            marks: asked.marks(),
            signed: false,
        };
        let Ok(key) = self.flows.insert(flow) else {
            self.give_place_back(asked.key.initiator(), iif);
            self.counters.flows_full += 1;
            return Err(full(0));
        };
        let ask = self.ask(key, asked, rate, message, origin);
        match resources.admit(self.now, &ask) {
            Ok(admitted) => {
                if let Some(flow) = self.flows.get_mut(key) {
                    flow.grant = admitted.grant;
                }
                let Self { by_flow, flows, hasher, .. } = self;
                by_flow.insert(hash, key.index(), |index| {
                    flows.get_index(index).map_or(0, |flow| hasher.hash_octets(flow.key.octets()))
                });
                Ok(key)
            }
            Err(refusal) => {
                self.flows.remove(key);
                self.give_place_back(asked.key.initiator(), iif);
                let available = self.available(origin, asked.service(), None, resources);
                Err(Refused { reason: Reason::of_cause(refusal.cause()), available })
            }
        }
    }

    /// The request to admission control for a reservation.
    fn ask(
        &self,
        key: Key,
        asked: &Asked<'_>,
        rate: u32,
        message: &Message<'_>,
        origin: &Origin,
    ) -> GrantRequest {
        let initiator = origin.initiator(message.pass);
        let requested_by = if origin.iif.is_none() {
            RequestedBy::LocalUser
        } else {
            let address = initiator;
            match asked.proof {
                Proof::Member(_) => RequestedBy::Neighbour(Neighbour { address, authenticated: true }),
                Proof::Prime(_) => RequestedBy::Neighbour(Neighbour { address, authenticated: false }),
                Proof::Nothing => RequestedBy::Unknown,
            }
        };
        let user = asked.body.options.user();
        let names = user.and_then(|uid| Some(Arc::new(vec![uid.name()?.to_owned()])));
        let requester = Requester { requested_by, names, ..Requester::at(initiator) };
        let mtu = self.interfaces.mtu(origin.oif);
        let rate = octets(rate);
        // Ten milliseconds of the rate, or two packets.
        let burst = u32::try_from(rate / 100).unwrap_or(u32::MAX).max(mtu.saturating_mul(2));
        let traffic = TrafficSpec { rate, burst, peak: None, min_policed: 20, max_packet: mtu };
        let dscp = asked.tos >> 2;
        let filter = asked.key.filter(asked.marked.then_some(dscp));
        let owner = Owner { protocol: PROTOCOL, key: key.to_u64() };
        let ifindex = self.interfaces.ifindex(origin.oif);
        let hold = self.holding_time(asked.refresh);
        let mut ask = GrantRequest {
            lifetime: Some(hold),
            mark_dscp: Some(dscp),
            ..GrantRequest::new(owner, requester, ifindex, filter, traffic)
        };
        asked.demand.complete(&mut ask, dscp);
        ask
    }

    /// The largest rate that the interface could give, `held` included, bit/s.
    fn available(
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

    fn holding_time(&self, refresh: u8) -> Duration {
        Duration::from_secs(refresh.into()).mul_f64(self.config.hold)
    }

    /// Restarts the holding time of a reservation.
    fn hold(&mut self, key: Key, refresh: u8) {
        let due = self.now + self.holding_time(refresh);
        if let Some(flow) = self.flows.get_mut(key) {
            flow.refresh = refresh;
            self.wheel.arm(&mut self.flows, key.index(), due);
        }
    }

    /// Notes what the last message of a reservation proved.
    fn note_proof(&mut self, key: Key, proof: Proof) {
        let Some(flow) = self.flows.get_mut(key) else { return };
        (flow.proof, flow.signed) = match proof {
            Proof::Nothing => (0, false),
            Proof::Prime(prime) => (prime, false),
            Proof::Member(Stamp(stamp)) => (stamp, true),
        };
    }

    /// Removes a reservation, and with `resources` its grant.
    fn remove(&mut self, key: Key, resources: Option<&mut Resources>) {
        self.wheel.cancel(&mut self.flows, key.index());
        let Some(flow) = self.flows.remove(key) else { return };
        let hash = self.hasher.hash_octets(flow.key.octets());
        self.by_flow.remove(hash, |index| index == key.index());
        if let Some(stamp) = flow.stamp() {
            self.domain.note_end(hash, stamp);
        }
        self.give_place_back(flow.key.initiator(), flow.iif);
        if let Some(resources) = resources {
            resources.release(flow.grant);
        }
    }

    /// Reservations that expired.
    pub(super) fn run_flows(&mut self, resources: &mut Resources) {
        while let Some(index) = self.wheel.pop_due(&mut self.flows, self.now) {
            if let Some(key) = self.flows.key_of(index) {
                self.counters.expired += 1;
                self.remove(key, Some(resources));
            }
        }
    }

    /// A grant was lost. The next message of the flow asks for it again.
    pub(super) fn on_lost(&mut self, key: Key, grant: GrantId, why: LostWhy) {
        if self.flows.get(key).is_some_and(|flow| flow.grant == grant) {
            tracing::debug!(grant = grant.0, reason = %why, "reservation lost");
            self.counters.lost += 1;
            self.remove(key, None);
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

/// Whether the flow's source is the initiating node itself.
fn is_own(flow: &FlowSpec, initiator: IpAddr) -> bool {
    let exact = match flow.mask.src {
        IpAddr::V4(mask) => mask.is_unspecified(),
        IpAddr::V6(mask) => mask.is_unspecified(),
    };
    exact && flow.classifier.src == initiator
}
