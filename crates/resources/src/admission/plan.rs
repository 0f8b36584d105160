//! Deciding on a request without any change: all checks, in the order in which they refuse.

use std::sync::Arc;

use signalbox_core::traffic::{Excess, ServiceClass, Treatment};
use signalbox_core::{Key, Time, invariant};

use super::group::{Grant, Group, Parameters, holder, is_within};
use super::link::{Charge, Entry, Freed, Link};
use super::{Resources, victims};
use crate::config::Queue;
use crate::intserv::{self, MAX_RATE, RSpec, TSpec};
use crate::refusal::{LinkWhy, Refusal, Rule};
use crate::request::{During, GrantRequest, GuaranteedRequest};

/// A plan to grant a request.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) rule: Option<u32>,
    pub(super) guaranteed: Option<(GuaranteedRequest, RSpec)>,
    /// The charge of this grant alone.
    pub(super) charge: Charge,
    /// The reservation that it joins, or of which it is the only grant already.
    pub(super) group: Option<Key>,
    pub(super) treatment: Treatment,
    pub(super) excess: Excess,
    /// The hash of its only flow.
    pub(super) hash: Option<u32>,
    pub(super) victims: Vec<Key>,
    /// The reservation that is reduced instead of preempted, and the rate that it keeps.
    pub(super) reduced: Option<(Key, u64)>,
    /// The time in which the reservation counts, if it finds a place among those.
    pub(super) during: Option<During>,
}

impl Plan {
    pub(super) fn rspec(&self) -> Option<RSpec> {
        self.guaranteed.map(|(_, given)| given)
    }
}

/// The reason of a refusal, before the available rate is computed.
type Planned<T> = Result<T, Rule>;

impl Resources {
    /// The plan to grant `request`, in place of the grant `replaced` if there is one.
    pub(super) fn plan(
        &self,
        now: Time,
        request: &GrantRequest,
        replaced: Option<Key>,
    ) -> Result<Plan, Refusal> {
        self.planned(now, request, replaced).map_err(|rule| {
            let link = self.links.get(&request.ifindex);
            let room = |link: &Link| link.room(request.service, &Freed::default(), now, request.during);
            let available = link.map_or(0, room);
            Refusal { rule, available }
        })
    }

    fn planned(&self, now: Time, request: &GrantRequest, replaced: Option<Key>) -> Planned<Plan> {
        let tspec = self.checked(request)?;
        let old = match replaced {
            Some(key) => Some(self.grants.get(key).ok_or(Rule::NoGrant)?),
            None => None,
        };
        let link = self.links.get(&request.ifindex).ok_or(Rule::NoInterface(request.ifindex))?;
        let on_link = |why| Rule::Link { interface: Arc::clone(&link.name), why };
        let target = self.target(request, replaced, old).map_err(|why| match why {
            Ok(why) => on_link(why),
            Err(what) => Rule::Request(what),
        })?;
        let group = target.and_then(|key| invariant!(self.groups.get(key), "a target is a reservation"));
        let during = match group {
            Some(group) => self.during(group, replaced, Some(request.during)),
            None => request.during.filter(|_| link.timed.has_place(&holder(&request.requester))),
        };
        let hash = self.flows_are_free(now, request, target, during).map_err(on_link)?;

        let lessens = old.is_some_and(|old| self.lessens(request, old));
        if !lessens {
            Self::link_takes(link, request).map_err(on_link)?;
        }
        let verdict = self.policy.decide(request, &link.name, self.wall_us(now));
        let rule = match old {
            Some(old) if lessens => old.terms.rule,
            _ => {
                verdict.result?;
                verdict.rule
            }
        };
        if replaced.is_none() && self.grants.len() >= self.grants.limit() {
            let limit = self.config.max_reservations;
            return Err(Rule::TableFull { setting: "max_reservations", limit });
        }

        // The resources of a reservation that changes are free for its new size.
        let mut freed = Freed::default();
        if let Some((key, group)) = target.zip(group) {
            freed.add(key, &group.entry(), request.service);
        }
        let others = group.map_or(Charge::default(), |group| self.charge_without(group, replaced));
        let treatment = Self::treatment(link, request, group, &freed);
        let whole = |charge: Charge| Entry {
            service: request.service,
            protocol: request.owner.protocol,
            charge: others.max(charge),
            own_queue: treatment == Treatment::OwnQueue,
            during,
        };

        // If no slack was used, the granted RSpec is the requested one, with all its slack.
        let used = |(asked, given): &(GuaranteedRequest, RSpec)| lessens && *given != asked.rspec;
        let given = old.and_then(Grant::guaranteed).filter(used).map(|(_, given)| given);
        let asked = Self::guaranteed(request, &tspec, given)?;
        let mut charge = Self::charge(link, request, &tspec, asked);
        let mut guaranteed = asked;
        let (mut victims, mut reduced) = (Vec::new(), None);
        if !lessens || charge.rate > old.map_or(0, |old| old.terms.charge.rate) {
            let config = link.config.as_ref().map(|config| config.service(request.service));
            if let Some(limit) = config.and_then(|config| config.max_each).map(|rate| rate.0)
                && charge.rate > limit
            {
                let why = LinkWhy::Each { service: request.service, asked: charge.rate, limit };
                return Err(on_link(why));
            }
            if let Err(why) = link.check(&whole(charge), &freed, now) {
                let room = link.room(request.service, &freed, now, during);
                let slower = Self::with_slack(link, request, &tspec, guaranteed, room).filter(|slower| {
                    link.check(&whole(Self::charge(link, request, &tspec, Some(*slower))), &freed, now)
                        .is_ok()
                });
                if let Some(slower) = slower {
                    charge = Self::charge(link, request, &tspec, Some(slower));
                    guaranteed = Some(slower);
                } else {
                    let entry = whole(charge);
                    let found = self.victims(link, request, &entry, freed.clone(), target, now);
                    victims = found.ok_or(on_link(why))?;
                    reduced = self.reduced(link, &entry, freed, &victims, now);
                }
            }
        }
        // A reservation that takes the place of a weaker one takes no place of others.
        if group.is_none() && victims.is_empty() {
            link.has_place(&holder(&request.requester)).map_err(on_link)?;
        }
        if !lessens {
            self.account_takes(request, rule, group, whole(charge).charge.rate)?;
        }
        let excess = link.config.as_ref().map(|config| config.service(request.service).excess.into());
        let excess = request.excess.or(excess).unwrap_or(Excess::BestEffort);
        Ok(Plan {
            rule,
            guaranteed,
            charge,
            group: target,
            treatment,
            excess,
            hash,
            victims,
            reduced,
            during,
        })
    }

    /// Checks that depend neither on the link nor on a rule.
    fn checked(&self, request: &GrantRequest) -> Planned<TSpec> {
        let most = usize::try_from(self.config.max_filters).unwrap_or(usize::MAX);
        if request.filters.is_empty() {
            return Err(Rule::Request("no filter that says which packets"));
        }
        if request.filters.len() > most {
            return Err(Rule::TableFull { setting: "max_filters", limit: self.config.max_filters });
        }
        let code = |code: Option<u8>| code.is_none_or(|code| code <= 63);
        for filter in &request.filters {
            if filter.src.addr.is_ipv4() != filter.dst.addr.is_ipv4() {
                return Err(Rule::Request("a filter of two IP versions"));
            }
            if !code(filter.dscp) {
                return Err(Rule::Request("a filter's code point over 63"));
            }
        }
        let service = match request.service {
            ServiceClass::Dscp(code) => Some(code),
            _ => None,
        };
        if !code(service) || !code(request.mark_dscp) {
            return Err(Rule::Request("a code point over 63"));
        }
        if request.priority.setup > request.priority.defending {
            return Err(Rule::Request("the setup priority is over the defending priority"));
        }
        if request.guaranteed.is_some() && request.service != ServiceClass::Guaranteed {
            return Err(Rule::Request("a service rate without guaranteed service"));
        }
        TSpec::from_traffic(&request.traffic).map_err(Rule::Spec)
    }

    /// The reservation that the grant has or joins. The error concerns the link or, inside, the request.
    fn target(
        &self,
        request: &GrantRequest,
        replaced: Option<Key>,
        old: Option<&Grant>,
    ) -> Result<Option<Key>, Result<LinkWhy, &'static str>> {
        let mine = old.and_then(|old| {
            invariant!(self.groups.get(old.group), "an old grant has a reservation")
                .map(|group| (old.group, group))
        });
        if let Some((key, group)) = mine {
            // Both have the protocol of their owner.
            if group.session != request.session {
                return Err(Err("a change that is of another session"));
            }
            if group.ifindex == request.ifindex {
                let alone = group.members.len() == 1;
                // Grants that share a reservation without a session are for the same packets.
                let other = request.filters.iter().find(|filter| !group.filters.contains(filter));
                if let Some(other) = other.filter(|_| !alone && request.session.is_none()) {
                    return Err(Ok(LinkWhy::FlowTaken(*other)));
                }
                if group.parameters.service != request.service && !alone {
                    return Err(Ok(LinkWhy::OtherService(group.parameters.service)));
                }
                return Ok(Some(key));
            }
        }
        let found = match request.session {
            Some(session) => {
                self.sessions.find(&self.groups, (request.ifindex, request.owner.protocol, session))
            }
            None => self.shared_reservation(request),
        };
        let Some(key) = found else { return Ok(None) };
        let Some(group) = invariant!(self.groups.get(key), "a found reservation stands") else {
            return Ok(None);
        };
        if group.parameters.service != request.service {
            return Err(Ok(LinkWhy::OtherService(group.parameters.service)));
        }
        let limit = self.config.max_sharers;
        let sharers = group.members.iter().filter(|member| Some(*member) != replaced).count();
        if u32::try_from(sharers).map_or(true, |sharers| sharers >= limit) {
            return Err(Ok(LinkWhy::Sharers { limit }));
        }
        Ok(Some(key))
    }

    /// The reservation of the grant that a request without a session wants to share, if it is for the same packets.
    fn shared_reservation(&self, request: &GrantRequest) -> Option<Key> {
        let key = self.grants.get(Key::from_u64(request.shared_with?.0))?.group;
        let group = invariant!(self.groups.get(key), "a shared grant has a reservation")?;
        let shared = group.session.is_none()
            && group.protocol == request.owner.protocol
            && group.ifindex == request.ifindex
            && group.filters.are(&request.filters);
        shared.then_some(key)
    }

    /// Checks that no packet belongs to two reservations at one moment. `during` is the time in which the request counts. Returns
    /// the hash of the flow, if it is one.
    fn flows_are_free(
        &self,
        now: Time,
        request: &GrantRequest,
        target: Option<Key>,
        during: Option<During>,
    ) -> Result<Option<u32>, LinkWhy> {
        // One whose end is past stands until it is released.
        let meet = |(asked, other): (During, During)| asked.meets(&other) || other.until <= now;
        let meets = |key: Key, group: &Group| {
            Some(key) != target && during.zip(group.parameters.during).is_none_or(meet)
        };
        let mut last = None;
        for filter in &request.filters {
            let hash = self.flows.hash(request.ifindex, filter);
            if self.flows.has(&self.groups, (request.ifindex, filter), hash, meets) {
                return Err(LinkWhy::FlowTaken(*filter));
            }
            last = Some(hash);
        }
        Ok(last.filter(|_| request.filters.len() == 1))
    }

    /// Whether a change requests no more in any respect, from the same requester and for the same packets.
    fn lessens(&self, request: &GrantRequest, old: &Grant) -> bool {
        let Some(group) = invariant!(self.groups.get(old.group), "a lessened grant has a reservation") else {
            return false;
        };
        let same_filters = match old.filters() {
            [] => group.filters.are(&request.filters),
            own => *own == *request.filters,
        };
        let rspec = match (request.guaranteed, old.guaranteed()) {
            (None, None) => true,
            (Some(new), Some((asked, _))) => new.rspec <= asked.rspec && new.terms == asked.terms,
            // Without an RSpec the rate is r of `traffic`.
            (None, Some((asked, _))) => asked.rspec.slack() == 0 && asked.terms == Default::default(),
            (Some(_), None) => false,
        };
        rspec
            && group.ifindex == request.ifindex
            && group.parameters.service == request.service
            && is_within(&request.traffic, &old.terms.traffic)
            && request.policing == old.terms.policing
            && request.requester == *old.requester
            && request.priority.defending <= old.terms.priority.defending
            && old.terms.during.is_none_or(|old| request.during.is_some_and(|new| new.is_within(&old)))
            && old.terms.lifetime.is_none_or(|old| request.lifetime.is_some_and(|new| new <= old))
            && same_filters
    }

    fn link_takes(link: &Link, request: &GrantRequest) -> Result<(), LinkWhy> {
        if !link.up {
            return Err(LinkWhy::Down);
        }
        let config = link.config.as_ref().filter(|_| link.capacity() > 0).ok_or(LinkWhy::NoCapacity)?;
        if !config.service(request.service).offered {
            return Err(LinkWhy::NotOffered(request.service));
        }
        let mtu = link.service_mtu(request.service);
        if request.traffic.max_packet > mtu {
            return Err(LinkWhy::Mtu { asked: request.traffic.max_packet, mtu });
        }
        Ok(())
    }

    /// The time in which a reservation counts: that of all its grants, without `replaced` and with one that has the time `asked`.
    pub(super) fn during(
        &self,
        group: &Group,
        replaced: Option<Key>,
        asked: Option<Option<During>>,
    ) -> Option<During> {
        let others = group.members.iter().filter(|member| Some(*member) != replaced);
        let times = others.filter_map(|member| {
            Some(invariant!(self.grants.get(member), "a member with a time is a grant")?.terms.during)
        });
        let whole = times.chain(asked).reduce(|a, b| Some(a?.with(&b?))).flatten()?;
        let has_place = group.parameters.during.is_some()
            || self.links.get(&group.ifindex).is_some_and(|link| link.timed.has_place(&group.holder()));
        has_place.then_some(whole)
    }

    /// The charge of the other grants of a reservation.
    fn charge_without(&self, group: &Group, replaced: Option<Key>) -> Charge {
        let others = group.members.iter().filter(|member| Some(*member) != replaced);
        let charges = others.filter_map(|member| {
            Some(invariant!(self.grants.get(member), "a charged member is a grant")?.terms.charge)
        });
        charges.fold(Charge::default(), Charge::max)
    }

    /// The queue: the present one, else the requested one, else the configured one.
    fn treatment(link: &Link, request: &GrantRequest, group: Option<&Group>, freed: &Freed) -> Treatment {
        let present = group.map(|group| &group.parameters).filter(|_| request.treatment.is_none());
        if let Some(present) = present.filter(|present| present.service == request.service) {
            return present.installed.treatment;
        }
        let shared = Treatment::Aggregate(request.service);
        let Some(config) = &link.config else { return shared };
        let left = link.own_queues.saturating_sub(freed.own_queues) < config.own_queues;
        match (request.treatment, config.service(request.service).queue) {
            (Some(treatment), _) => treatment,
            (None, Queue::Own) => Treatment::OwnQueue,
            (None, Queue::Auto) if left => Treatment::OwnQueue,
            (None, Queue::Auto | Queue::Shared) => shared,
        }
    }

    /// The request of guaranteed service, and the RSpec to begin with: the same, or the one that was granted before.
    fn guaranteed(
        request: &GrantRequest,
        tspec: &TSpec,
        given: Option<RSpec>,
    ) -> Planned<Option<(GuaranteedRequest, RSpec)>> {
        if request.service != ServiceClass::Guaranteed {
            return Ok(None);
        }
        let asked = request
            .guaranteed
            .unwrap_or_else(|| GuaranteedRequest { rspec: RSpec::of_rate(tspec), terms: Default::default() });
        asked.rspec.checked(tspec).map_err(Rule::Spec)?;
        // Slack that was used once stays used (RFC 2212 "Guidelines for Implementors").
        let given = given.filter(|given| given.rate() <= asked.rspec.rate() && given.checked(tspec).is_ok());
        Ok(Some((asked, given.unwrap_or(asked.rspec))))
    }

    /// The charge of one grant on the link.
    fn charge(
        link: &Link,
        request: &GrantRequest,
        tspec: &TSpec,
        guaranteed: Option<(GuaranteedRequest, RSpec)>,
    ) -> Charge {
        let charge = match guaranteed {
            Some((asked, given)) => Charge {
                rate: link
                    .with_headers(intserv::whole(given.rate()).max(request.traffic.rate), &request.traffic),
                buffer: intserv::buffer(tspec, given, &asked.terms.plus(link.terms())),
            },
            None => Charge {
                rate: link.with_headers(request.traffic.rate, &request.traffic),
                buffer: u64::from(request.traffic.burst),
            },
        };
        let least = link.config.as_ref().map_or(0, |config| config.min_rate.0);
        Charge { rate: charge.rate.max(least), ..charge }
    }

    /// A lower rate that fits and that the slack allows (RFC 2212).
    fn with_slack(
        link: &Link,
        request: &GrantRequest,
        tspec: &TSpec,
        guaranteed: Option<(GuaranteedRequest, RSpec)>,
        room: u64,
    ) -> Option<(GuaranteedRequest, RSpec)> {
        let (asked, _) = guaranteed?;
        let room = link.without_headers(room, &request.traffic);
        #[expect(clippy::cast_precision_loss, reason = "rounded down below")]
        let mut rate = (room as f32).min(asked.rspec.rate());
        while intserv::whole(rate.clamp(1.0, MAX_RATE)) > room && rate > 1.0 {
            rate = rate.next_down();
        }
        let c_tot = asked.terms.plus(link.terms()).c_tot;
        Some((asked, asked.rspec.lowered_to(rate, tspec, c_tot)?))
    }

    fn victims(
        &self,
        link: &Link,
        request: &GrantRequest,
        entry: &Entry,
        freed: Freed,
        spare: Option<Key>,
        now: Time,
    ) -> Option<Vec<Key>> {
        if !self.config.preemption || request.priority.setup == 0 {
            return None;
        }
        let most = usize::try_from(self.config.max_victims).unwrap_or(usize::MAX);
        let bounds = victims::Bounds { setup: request.priority.setup, spare, most };
        victims::choose(link, &self.groups, entry, freed, bounds, now)
    }

    /// The strongest victim that may keep a part of its rate, and that rate. At most one, because this node cannot
    /// decide how a reduction affects several flows (RFC 4495 §5.6).
    fn reduced(
        &self,
        link: &Link,
        entry: &Entry,
        freed: Freed,
        victims: &[Key],
        now: Time,
    ) -> Option<(Key, u64)> {
        let (key, group, grant) = victims.iter().rev().find_map(|key| {
            let group = invariant!(self.groups.get(*key), "a victim is a reservation")?;
            let alone = group.members.newest().filter(|_| group.members.len() == 1)?;
            let grant = invariant!(self.grants.get(alone), "a victim's member is a grant")
                .filter(|grant| grant.terms.reducible)?;
            (group.session.is_none() && group.parameters.during.is_none()).then_some((*key, group, grant))
        })?;
        let mut all = freed;
        for (key, victim) in victims
            .iter()
            .filter_map(|key| Some((key, invariant!(self.groups.get(*key), "each victim is a reservation")?)))
        {
            all.add(*key, &victim.entry(), entry.service);
        }
        // The computation adds the remaining part to the request.
        let timed = link.timed.peak(now, entry.during, entry.service, &all.timed).charge.rate;
        let used = link.used.rate.saturating_sub(all.charge.rate).saturating_add(timed);
        let mut without = link.share().saturating_sub(used);
        let Parameters { service, charge, .. } = *group.parameters;
        if service == entry.service {
            without = without.min(link.room(entry.service, &all, now, entry.during));
        }
        let kept = without.saturating_sub(entry.charge.rate).min(charge.rate);
        let float = intserv::float_down(link.without_headers(kept, &grant.terms.traffic));
        let rate = intserv::whole(float.max(0.0));
        let kept = link.with_headers(rate, &grant.terms.traffic);
        if rate == 0 || rate >= grant.terms.traffic.rate.max(grant.served().unwrap_or(0)) {
            return None;
        }
        let part = Entry { charge: Charge { rate: kept, ..charge }, ..group.entry() };
        all.subtract(key, &part, entry.service);
        link.check(entry, &all, now).is_ok().then_some((key, rate))
    }

    /// Whether the account of the reservation may grow so far.
    fn account_takes(
        &self,
        request: &GrantRequest,
        rule: Option<u32>,
        group: Option<&Group>,
        rate: u64,
    ) -> Planned<()> {
        let Some(key) = self.policy.account(rule, &request.requester, request.ifindex) else { return Ok(()) };
        let account = self.accounts.find(&key);
        let (held, reservations) = self.accounts.held(account);
        let mine = group.filter(|group| account == Some(group.account));
        let used = held.saturating_sub(mine.map_or(0, |group| group.parameters.charge.rate));
        let reservations = reservations.saturating_sub(u32::from(mine.is_some())).saturating_add(1);
        self.policy.totals(key.rule, used, rate, reservations)
    }
}
