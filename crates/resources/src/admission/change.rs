//! Carrying out a plan. Nothing here refuses a request.

use core::cmp::Reverse;
use std::sync::Arc;

use signalbox_core::traffic::{Reservation, ServiceClass};
use signalbox_core::{IfIndex, Key, Time, invariant};

use super::Resources;
use super::filters::Filters;
use super::group::{Grant, GrantExtra, Group, InKernel, Installed, Parameters, Terms, least_common};
use super::link::Charge;
use super::members::Members;
use super::outputs::id_of;
use super::plan::Plan;
use crate::policy::{AccountId, AccountKey};
use crate::request::{Admitted, GrantId, GrantRequest, LostWhy};

impl Resources {
    /// Books a plan, in place of the grant `replaced` if there is one.
    pub(super) fn carry_out(
        &mut self,
        now: Time,
        request: &GrantRequest,
        plan: Plan,
        replaced: Option<Key>,
    ) -> Admitted {
        self.decisions.now = self.decisions.now.max(now);
        let mut preempted = 0;
        for victim in &plan.victims {
            preempted += match plan.reduced.filter(|(reduced, _)| reduced == victim) {
                Some((_, rate)) => self.reduce(*victim, rate),
                None => self.lose(*victim, LostWhy::Preempted),
            };
        }
        let rspec = plan.rspec();
        if plan.guaranteed.is_some_and(|(asked, given)| given.rate() < asked.rspec.rate()) {
            self.counters.slack_used += 1;
        }
        let old = replaced.and_then(|key| invariant!(self.grants.get(key), "a replaced grant stands"));
        let (since, was_in) = old.map_or((now, None), |old| (old.since, Some(old.group)));
        if let Some(key) = replaced.filter(|_| was_in != plan.group) {
            self.detach(key);
        }
        // A session whose only grant this is has its filters in the reservation.
        let joined = plan.group.filter(|_| request.session.is_some()).filter(|group| {
            let mut members = invariant!(self.groups.get(*group), "a planned reservation stands")
                .into_iter()
                .flat_map(|group| group.members.iter());
            members.any(|member| Some(member) != replaced)
        });
        if let Some(group) = joined {
            self.give_own_filters(group);
        }
        let terms = Terms {
            traffic: request.traffic,
            charge: plan.charge,
            priority: request.priority,
            reducible: request.reducible,
            lifetime: request.lifetime,
            rule: plan.rule,
            policing: request.policing,
            held: request.held,
            during: request.during,
        };
        let grant = Grant {
            owner: request.owner.key,
            group: plan.group.unwrap_or_default(),
            requester: self.shared_requester(&request.requester),
            terms: terms.shared(&mut self.terms),
            extra: GrantExtra::of(plan.guaranteed, joined.map_or_else(Vec::new, |_| request.filters.clone())),
            since,
        };
        let reservation = Reservation {
            ifindex: request.ifindex,
            // A new reservation takes those of the request, one with several grants of a session theirs.
            filters: if joined.is_some() || plan.group.is_none() {
                Vec::new()
            } else {
                request.filters.clone()
            },
            traffic: grant.conforming(),
            served: grant.served(),
            treatment: plan.treatment,
            mark_dscp: request.mark_dscp,
            excess: plan.excess,
        };
        let key = match replaced {
            Some(key) => {
                if let Some(old) = invariant!(self.grants.get_mut(key), "a detached grant stays") {
                    *old = grant;
                }
                key
            }
            // The plan checked that the table has room.
            None => invariant!(self.grants.insert(grant).ok(), "a table with room takes a grant")
                .unwrap_or_default(),
        };
        let group = match plan.group {
            Some(group) => {
                if let Some(record) = invariant!(self.groups.get_mut(group), "a joined reservation stands") {
                    record.members.remove(key);
                    record.members.push(key);
                }
                self.renew(group, Some(request.service), reservation);
                group
            }
            None => self.open(request, key, &plan, &reservation),
        };
        self.changes.note(|| GrantId(key.to_u64()));
        Admitted {
            grant: GrantId(key.to_u64()),
            reservation: id_of(group),
            given: request.traffic,
            rspec,
            rule: plan.rule.and_then(|rule| self.policy.name(rule)),
            preempted,
        }
    }

    /// Gives each grant of a session its own filters, because it is not the only one any more.
    fn give_own_filters(&mut self, group: Key) {
        let Some(group) = invariant!(self.groups.get(group), "a shared reservation stands") else { return };
        for member in group.members.iter() {
            if let Some(grant) = invariant!(self.grants.get_mut(member), "a sharer is a grant")
                .filter(|grant| grant.filters().is_empty())
            {
                let extra = grant.extra.get_or_insert_default();
                extra.filters = group.filters.iter().collect();
            }
        }
    }

    /// Makes a reservation of one grant.
    fn open(&mut self, request: &GrantRequest, grant: Key, plan: &Plan, reservation: &Reservation) -> Key {
        self.made += 1;
        let parameters = Parameters {
            installed: Installed::from(reservation),
            service: request.service,
            charge: plan.charge,
            defending: request.priority.defending,
            during: plan.during,
        };
        let group = Group {
            ifindex: request.ifindex,
            filters: Filters::of(&request.filters),
            parameters: parameters.shared(&mut self.parameters),
            protocol: request.owner.protocol,
            session: request.session,
            members: Members::of(grant),
            age: self.made,
            booked: false,
            account: AccountId::default(),
            opener: self.shared_requester(&request.requester),
            in_kernel: if request.held { InKernel::Held } else { InKernel::ToCome },
            pending: 0,
            queued: None,
        };
        // There are never more reservations than grants.
        let key =
            invariant!(self.groups.insert(group).ok(), "each reservation finds a place").unwrap_or_default();
        if let Some(grant) = invariant!(self.grants.get_mut(grant), "a new reservation has a grant") {
            grant.group = key;
        }
        if let Some(session) = request.session {
            self.sessions.insert(&self.groups, (request.ifindex, request.owner.protocol, session), key);
        }
        let account = self.policy.account(plan.rule, &request.requester, request.ifindex);
        self.book(key, account, Some(plan.hash), !request.held);
        key
    }

    /// Recomputes a reservation from its grants, and queues its installation. `reservation` gives the treatment and,
    /// if it has not several grants of a session, the filters.
    fn renew(&mut self, key: Key, service: Option<ServiceClass>, mut reservation: Reservation) {
        let Some(group) = invariant!(self.groups.get(key), "a renewed reservation stands") else { return };
        let shares = group.session.is_some();
        let service = service.unwrap_or(group.parameters.service);
        let grants = || {
            group
                .members
                .iter()
                .filter_map(|member| invariant!(self.grants.get(member), "a renewed member is a grant"))
        };
        let held = grants().all(|grant| grant.terms.held);
        let (mut charge, mut defending, mut conforming) = (Charge::default(), 0, None);
        let during = self.during(group, None, None);
        for grant in grants() {
            charge = charge.max(grant.terms.charge);
            defending = defending.max(grant.terms.priority.defending);
            // What is only held back is no part of what the kernel gets.
            if grant.terms.held == held {
                let traffic = grant.conforming();
                conforming = Some(conforming.map_or(traffic, |all| least_common(&all, &traffic)));
                reservation.served = reservation.served.max(grant.served());
            }
            if shares {
                let new = grant.filters().iter().filter(|filter| !reservation.filters.contains(filter));
                let new: Vec<_> = new.copied().collect();
                reservation.filters.extend(new);
            }
        }
        reservation.traffic = conforming.unwrap_or(reservation.traffic);
        let account = group.members.newest().and_then(|newest| {
            let grant = invariant!(self.grants.get(newest), "the newest member is a grant")?;
            self.policy.account(grant.terms.rule, &grant.requester, reservation.ifindex)
        });

        let installed = Installed::from(&reservation);
        let parameters = Parameters { installed, service, charge, defending, during };
        let parameters = parameters.shared(&mut self.parameters);
        let flows_change = !group.filters.are(&reservation.filters);
        let same = !flows_change
            && group.ifindex == reservation.ifindex
            && group.parameters.installed == parameters.installed;
        let changed = !group.booked || !same || (group.in_kernel == InKernel::Held) != held;
        self.unbook(key, flows_change);
        let Some(group) = invariant!(self.groups.get_mut(key), "an unbooked reservation stays") else {
            return;
        };
        if changed {
            self.outputs.preserve(key, group);
        }
        match group.in_kernel {
            announced if held => {
                if announced.is_announced() {
                    self.outputs.remove(key);
                }
                group.in_kernel = InKernel::Held;
            }
            InKernel::Held => group.in_kernel = InKernel::ToCome,
            InKernel::ToCome | InKernel::Announced | InKernel::Standing => {}
        }
        group.ifindex = reservation.ifindex;
        group.filters = Filters::of(&reservation.filters);
        group.parameters = parameters;
        self.book(key, account, flows_change.then_some(None), changed && !held);
    }

    /// Books a reservation on its link and an account. With `flows` it enters its flows, with the hash of an only one
    /// if that is known. With `install` it queues the installation.
    pub(super) fn book(
        &mut self,
        key: Key,
        account: Option<AccountKey>,
        flows: Option<Option<u32>>,
        install: bool,
    ) {
        let Some(group) = invariant!(self.groups.get_mut(key), "a booked reservation stands") else { return };
        group.booked = true;
        let rate = group.parameters.charge.rate;
        group.account = account.and_then(|account| self.accounts.open(account, rate)).unwrap_or_default();
        let rank = self.config.preemption.then(|| group.rank(key));
        if let Some(link) = invariant!(self.links.get_mut(&group.ifindex), "a booked reservation has a link")
        {
            link.book(key, &group.entry(), rank, group.holder());
        }
        if let Some(only) = flows {
            self.flows.insert(key, group, only);
        }
        if install {
            self.outputs.install(key, group);
        }
    }

    /// Removes a reservation from its link and its account and, with `flows`, its flows.
    pub(super) fn unbook(&mut self, key: Key, flows: bool) {
        let Some(group) = invariant!(self.groups.get_mut(key), "a reservation to unbook stands")
            .filter(|group| group.booked)
        else {
            return;
        };
        group.booked = false;
        let rank = self.config.preemption.then(|| group.rank(key));
        if let Some(link) =
            invariant!(self.links.get_mut(&group.ifindex), "a reservation to unbook has a link")
        {
            link.unbook(key, &group.entry(), rank, group.holder());
        }
        self.accounts.close(core::mem::take(&mut group.account), group.parameters.charge.rate);
        if flows {
            self.flows.remove(key, group);
        }
    }

    /// Removes a grant from its reservation, which ends with its last grant. The record of the grant stays.
    pub(super) fn detach(&mut self, key: Key) -> bool {
        // It may be lost already.
        let Some(in_group) = self.grants.get(key).map(|grant| grant.group) else { return false };
        let Some(group) = invariant!(self.groups.get_mut(in_group), "a grant has a reservation") else {
            return false;
        };
        group.members.remove(key);
        if group.members.is_empty() {
            drop(self.close(in_group));
        } else {
            // Without a session all grants have the same filters, which the reservation keeps.
            let shares = group.session.is_some();
            let mut reservation = Reservation { served: None, ..group.reservation(Vec::new()) };
            if shares {
                reservation.filters.clear();
            }
            self.renew(in_group, None, reservation);
        }
        true
    }

    /// Ends a reservation. Returns its record.
    fn close(&mut self, key: Key) -> Option<Group> {
        self.unbook(key, true);
        self.outputs.preserve(key, invariant!(self.groups.get_mut(key), "a reservation to close stands")?);
        let group = invariant!(self.groups.remove(key), "a reservation closes once")?;
        if let Some(session) = group.session {
            self.sessions.remove((group.ifindex, group.protocol, session), key);
        }
        if group.in_kernel.is_announced() {
            self.outputs.remove(key);
        }
        Some(group)
    }

    /// Ends a reservation that its owners did not release, and reports the loss to them. Returns the number of grants.
    pub(super) fn lose(&mut self, key: Key, why: LostWhy) -> u32 {
        if self.decisions.is_on() {
            let members: Vec<Key> = invariant!(self.groups.get(key), "a lost reservation stands")
                .into_iter()
                .flat_map(|group| group.members.iter())
                .collect();
            let last = self.last_parts(&members);
            last.into_iter().for_each(|member| self.note_lost(member, why));
            members.into_iter().for_each(|member| self.decisions.unname(GrantId(member.to_u64())));
        }
        let Some(group) = invariant!(self.close(key), "a lost reservation closes") else { return 0 };
        let mut lost = 0;
        for member in group.members.iter() {
            if let Some(grant) = invariant!(self.grants.remove(member), "a lost member is a grant") {
                lost += 1;
                let owner = grant.owner(group.protocol);
                tracing::debug!(
                    protocol = %owner.protocol,
                    owner = owner.key,
                    grant = member.to_u64(),
                    reason = %why,
                    "reservation lost"
                );
                self.changes.note(|| GrantId(member.to_u64()));
                self.outputs.lost(owner, GrantId(member.to_u64()), why);
            }
        }
        self.count_lost(why, lost);
        lost
    }

    pub(super) fn count_lost(&mut self, why: LostWhy, lost: u32) {
        let counter = match why {
            LostWhy::Preempted => &mut self.counters.preempted,
            LostWhy::KernelRefused(_) => &mut self.counters.kernel_refused,
            LostWhy::InterfaceGone | LostWhy::CapacityReduced => &mut self.counters.interface_lost,
            LostWhy::Deleted => &mut self.counters.deleted,
            LostWhy::Rules => &mut self.counters.rules_lost,
        };
        *counter += u64::from(lost);
    }

    /// Reduces the reservation of one grant to `rate`, and reports it to the owner (RFC 4495).
    fn reduce(&mut self, key: Key, rate: u64) -> u32 {
        let Some(group) = invariant!(self.groups.get(key), "a reduced reservation stands") else { return 0 };
        let Some(member) = invariant!(group.members.iter().next(), "a reduced reservation has a member")
        else {
            return 0;
        };
        let (ifindex, protocol, reservation) = (group.ifindex, group.protocol, group.reservation(Vec::new()));
        let Some(grant) = invariant!(self.grants.get_mut(member), "a reduced member is a grant") else {
            return 0;
        };
        let terms = Arc::make_mut(&mut grant.terms);
        terms.traffic.rate = terms.traffic.rate.min(rate);
        if let Some((asked, given)) = grant.extra.as_mut().and_then(|extra| extra.guaranteed.as_mut()) {
            asked.rspec = asked.rspec.limited(rate);
            *given = given.limited(rate);
        }
        if let Some(link) = invariant!(self.links.get(&ifindex), "a reduced reservation has a link") {
            terms.charge.rate = link.with_headers(rate, &terms.traffic).min(terms.charge.rate);
        }
        let reservation = Reservation { traffic: grant.conforming(), served: grant.served(), ..reservation };
        let owner = grant.owner(protocol);
        self.renew(key, None, reservation);
        self.changes.note(|| GrantId(member.to_u64()));
        self.outputs.reduced(owner, GrantId(member.to_u64()), rate);
        self.note_reduced(member);
        self.counters.reduced += 1;
        tracing::debug!(
            protocol = %owner.protocol,
            owner = owner.key,
            grant = member.to_u64(),
            rate,
            "reservation reduced"
        );
        1
    }

    /// Ends reservations until a link with less capacity has room for the others. The weakest ends first. It runs only
    /// when an interface changes.
    pub(super) fn refit(&mut self, ifindex: IfIndex) {
        let mut all = self.groups_at(ifindex);
        all.sort_by_cached_key(|key| {
            let Some(group) = invariant!(self.groups.get(*key), "a sorted reservation stands") else {
                return (0, Reverse((0, 0)));
            };
            let members = group
                .members
                .iter()
                .filter_map(|member| invariant!(self.grants.get(member), "a sorted member is a grant"));
            let defending = members.map(|grant| grant.terms.priority.defending).max().unwrap_or(0);
            (defending, Reverse((group.parameters.charge.rate, group.age)))
        });
        for key in all {
            let Some(link) = invariant!(self.links.get(&ifindex), "a link stays while it is refitted") else {
                return;
            };
            let Some(group) = invariant!(self.groups.get(key), "each reservation is judged once") else {
                continue;
            };
            let service = group.parameters.service;
            let over_share = link.reserved() > link.share();
            if over_share || link.reserved_for(service) > link.service_share(service) {
                self.lose(key, LostWhy::CapacityReduced);
            }
        }
    }
}
