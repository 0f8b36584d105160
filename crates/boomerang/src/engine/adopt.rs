//! The aggregates of other nodes that this node adopts (§3.3.2, framework §6.2): one reservation for all members of an aggregate that
//! pass here.
//!
//! The option gives the sum of all members at the node that proposes the aggregate. Not all of them pass here, or have passed
//! yet. So the node counts the rates of the members whose messages it received, and reserves this sum, at most that of the
//! option. Of a member it stores a hash and the rate. Members have no timers: those that sent nothing for a whole holding time
//! are left out of the next count.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};

use signalbox_core::index::KeyedHasher;
use signalbox_core::shares::Shares;
use signalbox_core::slab::Slab;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::wheel::{Link, Timed, Wheel};
use signalbox_core::{Key, Random, Time, invariant};
use signalbox_resources::{
    Admitted, Cause, End, GrantId, GrantRequest, Neighbor, Proof, Requester, Resources,
};

use super::Boomerang;
use super::flow::{FlowKey, IS_INTSERV, demanded_dscp};
use super::interfaces::Iface;
use super::io::Reason;
use super::path::Origin;
use super::reserve::{Effect, FlowRequest, Lookup, Refused, RequestedRate};
use crate::wire::{Aggregation, Message, OF_REPLY, Pass, edit};

/// What distinguishes two aggregates here: the node that proposes it and its number, and the direction and the interface of the
/// members' data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Name {
    address: IpAddr,
    number: u32,
    pass: Pass,
    oif: Iface,
}

/// The proposal of another node, in a message of a flow that is a member.
#[derive(Debug, Clone, Copy)]
pub(super) struct Proposal {
    name: Name,
    packets: Packets,
    sum: u32,
}

/// The packets of an aggregate, and their PHB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Packets {
    key: FlowKey,
    tos: u8,
    /// They must carry the code point.
    marked: bool,
}

/// An aggregate that this node adopted.
#[derive(Debug)]
pub(super) struct Aggregate {
    link: Link,
    name: Name,
    packets: Packets,
    /// Interface that the message came in by that made it.
    iif: Iface,
    grant: GrantId,
    /// What this node reserved, bit/s.
    held: u32,
    /// The sum of the last option, bit/s.
    sum: u32,
    /// Sum of the members that sent in this period, and of those that sent only in the one before.
    counted: [u64; 2],
    /// Longest refresh interval of its members, seconds.
    refresh: u8,
}

impl Timed for Aggregate {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Aggregate {
    fn total(&self) -> u64 {
        self.counted.iter().sum()
    }

    pub(super) const fn pass(&self) -> Pass {
        self.name.pass
    }

    pub(super) const fn oif(&self) -> Iface {
        self.name.oif
    }

    /// Address of the node that proposes it, and its number there.
    pub(super) const fn name(&self) -> (IpAddr, u32) {
        (self.name.address, self.name.number)
    }

    pub(super) const fn held(&self) -> u32 {
        self.held
    }

    pub(super) const fn tos(&self) -> u8 {
        self.packets.tos
    }

    pub(super) const fn refresh(&self) -> u8 {
        self.refresh
    }

    pub(super) const fn grant(&self) -> GrantId {
        self.grant
    }

    pub(super) const fn timer(&self) -> &Link {
        &self.link
    }

    pub(super) fn filter(&self) -> FlowFilter {
        self.packets.key.filter(self.packets.marked.then_some(self.packets.tos >> 2))
    }
}

/// A member of an aggregate, as far as this node stores it.
#[derive(Debug, Clone, Copy)]
struct Member {
    /// What it was granted last, bit/s.
    rate: u32,
    aggregate: Key,
}

/// A flow that becomes or stays a member.
#[derive(Debug, Clone, Copy)]
struct Joining {
    /// The aggregate, if this node adopted it already.
    standing: Option<Key>,
    proposal: Proposal,
    /// What the aggregate holds for it, bit/s.
    in_it: u32,
    /// What it gets, bit/s.
    rate: u32,
    refresh: u8,
    iif: Iface,
}

/// What members need, and at most the sum of the option, bit/s.
fn at_most(counted: u64, sum: u32) -> u32 {
    u32::try_from(counted).unwrap_or(u32::MAX).min(sum)
}

/// The aggregates that this node adopted, and their members.
#[derive(Debug)]
pub(super) struct Aggregates {
    pub(super) table: Slab<Aggregate>,
    by_name: HashMap<Name, Key, KeyedHasher>,
    pub(super) wheel: Wheel,
    by_interface: Shares<Iface>,
    /// Members by the hashes of their flows: those that sent in this period, and those that sent only in the one before.
    members: [HashMap<u64, Member, KeyedHasher>; 2],
    most_members: usize,
    /// The aggregates that were lost with the reason, until their members have expired: each member learns it from its next message.
    lost: BTreeMap<Key, (Reason, Time)>,
    /// When the period began, and the longest refresh interval of a member in it and in the one before, seconds.
    turned: Time,
    longest: [u8; 2],
}

impl Aggregates {
    pub(super) fn new(most: u32, most_members: u32, rng: &mut Random) -> Self {
        Self {
            table: Slab::new(most),
            by_name: HashMap::with_hasher(KeyedHasher::new(rng)),
            wheel: Wheel::default(),
            by_interface: Shares::new(most, KeyedHasher::new(rng)),
            members: [(); 2].map(|()| HashMap::with_hasher(KeyedHasher::new(rng))),
            most_members: usize::try_from(most_members).unwrap_or(usize::MAX),
            lost: BTreeMap::new(),
            turned: Time::ZERO,
            longest: [0; 2],
        }
    }

    /// Keeps at most `most` aggregates with `most_members` members from now on. Those that are there stay.
    pub(super) fn set_limits(&mut self, most: u32, most_members: u32) {
        self.table.set_limit(most);
        self.by_interface.set_limit(most);
        self.most_members = usize::try_from(most_members).unwrap_or(usize::MAX);
    }

    /// Number of members.
    pub(super) fn members(&self) -> usize {
        self.members.iter().map(HashMap::len).sum()
    }

    fn member(&self, hash: u64) -> Option<Member> {
        let found = self.members.iter().find_map(|members| members.get(&hash));
        found.copied().filter(|member| self.table.get(member.aggregate).is_some())
    }

    /// The reason why the aggregate of a member was lost; `None`: it stands, or the flow is no member.
    pub(super) fn loss(&self, hash: u64, now: Time) -> Option<Reason> {
        if self.lost.is_empty() {
            return None;
        }
        let member = self.members.iter().find_map(|members| members.get(&hash))?;
        let (reason, until) = self.lost.get(&member.aggregate)?;
        (*until > now).then_some(*reason)
    }

    /// Takes a member out of the count of its aggregate, which is the result.
    fn remove(&mut self, hash: u64) -> Option<Key> {
        let mut from = None;
        for (members, at) in self.members.iter_mut().zip(0..) {
            let Some(member) = members.remove(&hash) else { continue };
            if let Some(aggregate) = self.table.get_mut(member.aggregate)
                && let Some(counted) = aggregate.counted.get_mut::<usize>(at)
            {
                *counted = counted.saturating_sub(member.rate.into());
                from = Some(member.aggregate);
            }
        }
        from
    }

    /// Counts a member that sent now.
    fn note(&mut self, hash: u64, member: Member, refresh: u8) {
        self.remove(hash);
        let [members, _] = &mut self.members;
        members.insert(hash, member);
        let [longest, _] = &mut self.longest;
        *longest = (*longest).max(refresh);
        if let Some(Aggregate { counted: [counted, _], .. }) = self.table.get_mut(member.aggregate) {
            *counted = counted.saturating_add(member.rate.into());
        }
    }

    /// Begins a period: members that did not send in the last one are no longer counted.
    fn turn(&mut self, now: Time) {
        self.turned = now;
        let [new, old] = &mut self.members;
        core::mem::swap(new, old);
        new.clear();
        let [longest, _] = self.longest;
        self.longest = [0, longest];
        for (_, aggregate) in self.table.iter_mut() {
            let [counted, _] = aggregate.counted;
            aggregate.counted = [0, counted];
        }
    }
}

impl Boomerang {
    /// Whether this node takes part in aggregation.
    pub(super) const fn aggregates_flows(&self) -> bool {
        self.config.aggregates.propose || self.config.aggregates.adopt
    }

    /// The proposal that holds for a flow: the last one of this pass whose aggregate the flow belongs to. It counts if the
    /// message came in by an interface where such options are of nodes of this domain. BOOM-G26-02, BOOM-G28-01, BOOM-G27-01.
    pub(super) fn proposal(
        &self,
        message: &Message<'_>,
        origin: &Origin,
        member: &FlowKey,
        rate: u32,
    ) -> Option<Proposal> {
        let body = message.body.filter(|_| self.config.aggregates.adopt)?;
        if !origin.iif.is_some_and(|iif| self.interfaces.brings_aggregates(iif)) {
            return None;
        }
        let pass = message.pass;
        let fitting = |option: Aggregation| {
            let Aggregation { address, transaction: number, flow, rate: sum } = option;
            let key = FlowKey::of(&flow, pass).ok()?;
            let tos = flow.classifier.tos & 0xfc;
            let fits = key.covers(member)
                && tos == body.flow.classifier.tos & 0xfc
                && sum >= rate
                && !self.interfaces.is_local(address);
            let marked = demanded_dscp(&flow.classifier, &flow.mask).is_some();
            let name = Name { address, number, pass, oif: origin.oif };
            fits.then_some(Proposal { name, packets: Packets { key, tos, marked }, sum })
        };
        let of_this_pass = |flags: u16| (flags & OF_REPLY != 0) == (pass == Pass::Reply);
        body.options
            .aggregations()
            .filter(|(placed, _)| of_this_pass(placed.flags))
            .filter_map(|(_, option)| fitting(option))
            .last()
    }

    /// Takes out the options of this node itself, which come back in the other pass, and those of strangers. Whether there were
    /// any. BOOM-G26-03.
    pub(super) fn take_options_out(
        &mut self,
        octets: &mut Vec<u8>,
        message: &Message<'_>,
        origin: &Origin,
    ) -> bool {
        let (Some(body), Some(iif)) = (message.body, origin.iif) else { return false };
        let known = self.interfaces.brings_aggregates(iif);
        let mut removed = 0;
        for (placed, option) in body.options.aggregations() {
            if !known || self.interfaces.is_local(option.address) {
                edit::remove(octets, placed.offset - removed, placed.length);
                removed += placed.length;
                self.counters.options_removed += 1;
            }
        }
        removed > 0
    }

    /// Reserves for a flow as a member of an aggregate, in place of a reservation of its own. `None`: there can be no such
    /// aggregate, and the flow gets a reservation of its own. BOOM-G27-03, BOOM-G27-02, BOOM-F6.2-04.
    pub(super) fn join(
        &mut self,
        proposal: &Proposal,
        lookup: Lookup,
        request: &FlowRequest<'_>,
        pass: Pass,
        origin: &Origin,
        resources: &mut Resources,
    ) -> Option<Result<(u32, Effect), Refused>> {
        self.turn_when_due(resources);
        let Lookup { hash, found } = lookup;
        let standing = self.aggregates.by_name.get(&proposal.name).copied();
        let before = self.aggregates.member(hash);
        if before.is_none() && self.aggregates.members() >= self.aggregates.most_members {
            self.counters.members_full += 1;
            tracing::debug!(peer = %origin.ends.src, reason = "table of members full", "aggregate not joined");
            return None;
        }
        let flow_rate = found.and_then(|found| self.flows.get(found));
        let flow_rate =
            flow_rate.filter(|flow| flow.oif == origin.oif && !flow.has(IS_INTSERV)).map(|flow| flow.rate);
        let available = self.available(
            origin,
            request.service(),
            flow_rate.or(before.map(|member| member.rate)),
            resources,
        );
        let rate = request.first_that_fits(pass, available);
        if rate == 0 {
            return None;
        }
        // A member of another aggregate counts there until this one holds it.
        let in_it =
            before.filter(|member| Some(member.aggregate) == standing).map_or(0, |member| member.rate);
        let iif = origin.iif.unwrap_or(Iface::LOCAL);
        let joining = Joining { standing, proposal: *proposal, in_it, rate, refresh: request.refresh, iif };
        let mut admitted = self.enlarge(&joining, resources);
        if matches!(admitted, Err(Cause::Bandwidth | Cause::Buffer))
            && let Some(found) = found
        {
            // Its own reservation is folded in.
            resources.because(End::Replaced);
            self.remove(found, Some(resources));
            admitted = self.enlarge(&joining, resources);
            admitted.ok()?;
        }
        let (key, effect) = match (admitted, standing) {
            (Ok(key), _) => (key, if before.is_some() { Effect::Refreshed } else { Effect::Joined }),
            // It is not this flow that asks for more.
            (Err(Cause::Bandwidth | Cause::Buffer), Some(key)) if rate <= in_it => (key, Effect::Refreshed),
            (Err(cause @ (Cause::Bandwidth | Cause::Buffer)), _) => {
                return Some(Err(Refused { reason: Reason::of_cause(cause), available, note: None }));
            }
            (Err(_), _) => return None,
        };
        if let Some(found) = found {
            resources.because(End::Replaced);
            self.remove(found, Some(resources));
        }
        let left = self.aggregates.remove(hash).filter(|left| *left != key);
        self.aggregates.note(hash, Member { rate, aggregate: key }, request.refresh);
        if let Some(left) = left {
            self.fit(left, resources);
        }
        self.hold_aggregate(key, request.refresh);
        Some(Ok((rate, effect)))
    }

    /// Makes an aggregate, or changes it so that a member gets its rate instead of that of before.
    fn enlarge(&mut self, joining: &Joining, resources: &mut Resources) -> Result<Key, Cause> {
        let Joining { standing, proposal: Proposal { name, packets, sum }, in_it, rate, refresh, .. } =
            *joining;
        let Some(key) = standing else { return self.adopt(joining, resources) };
        let Some(aggregate) =
            invariant!(self.aggregates.table.get(key), "the table of names names aggregates that stand")
        else {
            return Err(Cause::NoGrant);
        };
        let counted = aggregate.total().saturating_sub(in_it.into()).saturating_add(rate.into());
        let needed = at_most(counted, sum);
        if needed != aggregate.held || packets != aggregate.packets {
            let longest = aggregate.refresh.max(refresh);
            let grant_request =
                self.aggregate_grant_request(key, (&name, aggregate.iif), &packets, needed, longest);
            resources.modify(self.now, aggregate.grant, &grant_request).map_err(|refusal| refusal.cause())?;
        }
        if let Some(aggregate) = self.aggregates.table.get_mut(key) {
            (aggregate.held, aggregate.sum, aggregate.packets) = (needed, sum, packets);
        }
        Ok(key)
    }

    /// Makes an aggregate with its first member.
    fn adopt(&mut self, joining: &Joining, resources: &mut Resources) -> Result<Key, Cause> {
        let Joining { proposal: Proposal { name, packets, sum }, rate, refresh, iif, .. } = *joining;
        if self.aggregates.by_interface.take(iif).is_err() {
            self.counters.aggregates_full += 1;
            tracing::debug!(
                ?name,
                reason = "share of its interface in the table of aggregates is used up",
                "aggregate not adopted"
            );
            return Err(Cause::Full);
        }
        let new = Aggregate {
            link: Link::default(),
            name,
            packets,
            iif,
            grant: GrantId(0),
            held: rate,
            sum,
            counted: [0; 2],
            refresh,
        };
        let Ok(key) = self.aggregates.table.insert(new) else {
            self.aggregates.by_interface.release(iif);
            self.counters.aggregates_full += 1;
            tracing::debug!(?name, reason = "table of aggregates full", "aggregate not adopted");
            return Err(Cause::Full);
        };
        let grant_request = self.aggregate_grant_request(key, (&name, iif), &packets, rate, refresh);
        match resources.admit(self.now, &grant_request) {
            Ok(Admitted { grant, .. }) => {
                if let Some(aggregate) = self.aggregates.table.get_mut(key) {
                    aggregate.grant = grant;
                }
                self.aggregates.by_name.insert(name, key);
                self.counters.adopted += 1;
                tracing::debug!(?name, grant = grant.0, "aggregate adopted");
                Ok(key)
            }
            Err(refusal) => {
                self.aggregates.table.remove(key);
                self.aggregates.by_interface.release(iif);
                Err(refusal.cause())
            }
        }
    }

    /// The request to admission control for an aggregate. The node that proposes it is the requester: the configuration of the
    /// interface makes it a neighbor. BOOM-F5.1.1-04.
    fn aggregate_grant_request(
        &self,
        key: Key,
        (name, iif): (&Name, Iface),
        packets: &Packets,
        rate: u32,
        refresh: u8,
    ) -> GrantRequest {
        let (ifindex, proof) = (self.interfaces.ifindex(iif), Proof::Link);
        let requester = Requester::neighbor(Neighbor { address: name.address, ifindex, proof });
        let dscp = packets.tos >> 2;
        let filter = packets.key.filter(packets.marked.then_some(dscp));
        let requested = RequestedRate { rate, dscp, filter, oif: name.oif, refresh };
        self.grant_request(key, requester, &requested)
    }

    /// Removes a member, because it gets a reservation of its own or was released. Whether it was a member.
    pub(super) fn leave_aggregate(&mut self, hash: u64, resources: &mut Resources) -> bool {
        let left = self.aggregates.remove(hash);
        if let Some(key) = left {
            self.fit(key, resources);
        }
        left.is_some()
    }

    /// Lowers an aggregate to what its members need.
    fn fit(&mut self, key: Key, resources: &mut Resources) {
        let Some(aggregate) =
            invariant!(self.aggregates.table.get(key), "an aggregate that lost a member stands")
        else {
            return;
        };
        let needed = at_most(aggregate.total(), aggregate.sum);
        if needed == 0 {
            return self.remove_aggregate(key, Some(resources));
        }
        if needed >= aggregate.held {
            return;
        }
        let from = (&aggregate.name, aggregate.iif);
        let grant_request =
            self.aggregate_grant_request(key, from, &aggregate.packets, needed, aggregate.refresh);
        // A request for less is never refused.
        if resources.modify(self.now, aggregate.grant, &grant_request).is_ok()
            && let Some(aggregate) = self.aggregates.table.get_mut(key)
        {
            aggregate.held = needed;
        }
    }

    /// Begins a period when the last one is as long as the longest holding time of a member.
    fn turn_when_due(&mut self, resources: &mut Resources) {
        let [longest, before] = self.aggregates.longest;
        let period = self.holding_time(longest.max(before));
        if self.now < self.aggregates.turned + period.max(Duration::from_secs(1)) {
            return;
        }
        self.aggregates.turn(self.now);
        let all: Vec<Key> = self.aggregates.table.iter().map(|(key, _)| key).collect();
        for key in all {
            self.fit(key, resources);
        }
    }

    /// Restarts the holding time of an aggregate, which is that of the member with the longest one. BOOM-G27-05.
    fn hold_aggregate(&mut self, key: Key, refresh: u8) {
        let due = self.now + self.holding_time(refresh);
        let Aggregates { table, wheel, .. } = &mut self.aggregates;
        let Some(aggregate) = invariant!(table.get_mut(key), "a new member has an aggregate") else { return };
        aggregate.refresh = aggregate.refresh.max(refresh);
        if wheel.due(&aggregate.link).is_none_or(|present| present < due) {
            wheel.arm(table, key.index(), due);
        }
    }

    /// Removes an aggregate, and with `resources` its grant.
    fn remove_aggregate(&mut self, key: Key, resources: Option<&mut Resources>) {
        let Aggregates { table, wheel, by_name, by_interface, members, lost, .. } = &mut self.aggregates;
        if table.get(key).is_none() {
            return;
        }
        wheel.cancel(table, key.index());
        let Some(aggregate) = invariant!(table.remove(key), "an aggregate ends once") else { return };
        by_name.remove(&aggregate.name);
        by_interface.release(aggregate.iif);
        if table.is_empty() && lost.is_empty() {
            members.iter_mut().for_each(HashMap::clear);
        }
        if let Some(resources) = resources {
            resources.release(aggregate.grant);
        }
    }

    /// Aggregates that expired, some of them at a time.
    pub(super) fn run_aggregates(&mut self, most: u32, resources: &mut Resources) {
        for _ in 0..most {
            let Some(index) = self.aggregates.wheel.pop_due(&mut self.aggregates.table, self.now) else {
                return;
            };
            if let Some(key) = invariant!(self.aggregates.table.key_of(index), "a timer has an aggregate") {
                self.counters.aggregates_expired += 1;
                tracing::debug!(name = ?self.aggregates.table.get(key).map(|one| one.name), "aggregate expired");
                resources.because(End::Expired);
                self.remove_aggregate(key, Some(resources));
            }
        }
    }

    /// A grant was lost. Whether it was that of an aggregate.
    pub(super) fn aggregate_is_lost(&mut self, key: Key, grant: GrantId, reason: Reason) -> bool {
        let Some(aggregate) = self.aggregates.table.get(key).filter(|aggregate| aggregate.grant == grant)
        else {
            return false;
        };
        let until = self.now + self.holding_time(aggregate.refresh);
        let most = usize::try_from(self.aggregates.table.limit()).unwrap_or(usize::MAX);
        self.aggregates.lost.retain(|_, (_, until)| *until > self.now);
        if self.aggregates.lost.len() >= most {
            self.aggregates.lost.pop_first();
        }
        self.aggregates.lost.insert(key, (reason, until));
        self.remove_aggregate(key, None);
        true
    }
}
