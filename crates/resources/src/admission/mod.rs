//! Admission control per outgoing interface.

mod change;
mod decided;
mod filters;
mod flow;
pub(crate) mod group;
mod link;
mod members;
mod outputs;
mod parts;
mod plan;
mod reload;
mod sessions;
mod show;
mod timed;
mod victims;

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use signalbox_core::node::Interface;
use signalbox_core::shares::Shares;
use signalbox_core::traffic::{ReservationId, ReserveError, ServiceClass};
use signalbox_core::{
    Changes, IfIndex, Key, KeyedHasher, Random, Recent, SessionId, Slab, Time, invariant, recent,
};

use crate::config::{Config, ConfigError};
use crate::counters::Counters;
use crate::decision::Decisions;
use crate::opening::{Crossed, Party};
use crate::policy::{Accounts, Policy};
use crate::refusal::{Cause, PolicyWhy, Refusal, Rule};
use crate::request::{
    Admitted, Available, DryRun, GrantId, GrantRequest, LostWhy, Policing, Requester, ResourceOutput,
    WouldAdmit,
};
use crate::token::{Keys, Mac, Token, TokenError, UsedTokens, wall_seconds};
pub use decided::Decided;
use flow::Flows;
use group::{Grant, Group, InKernel, Parameters, Terms, number_of};
use link::{Freed, Link};
use outputs::Outputs;
use sessions::Sessions;

/// The resources of the links of a node, and the grants on them. See the [crate].
///
/// Calls are synchronous: a grant of [`admit`](Self::admit) is booked when the call returns. Actions for the kernel
/// and reports of losses are polled afterwards. The sum of reservations at a link never exceeds its share, not even
/// between two outputs.
#[derive(Debug)]
pub struct Resources {
    config: Config,
    wall_clock_us: u64,
    policy: Policy,
    /// Changes of the rules since the start.
    reloads: u32,
    keys: Keys,
    used_tokens: UsedTokens,
    links: BTreeMap<IfIndex, Link>,
    grants: Slab<Grant>,
    groups: Slab<Group>,
    /// Those of the last grants.
    requesters: Recent<Requester>,
    /// Those of the last passages.
    parties: Recent<Party>,
    /// Those of the last grants.
    terms: Recent<Terms>,
    /// Those of the last reservations.
    parameters: Recent<Parameters>,
    accounts: Accounts,
    /// Those of passages through a firewall or NAT, and what each source holds of them.
    passages: (Accounts, Shares<IpAddr>),
    flows: Flows,
    sessions: Sessions,
    /// The hasher of the tables of each link.
    hasher: KeyedHasher,
    outputs: Outputs,
    /// Number of reservations made so far; it gives their age.
    made: u64,
    counters: Counters,
    /// Grants that were made, changed or ended, while somebody watches.
    changes: Changes<GrantId>,
    decisions: Decisions,
}

impl Resources {
    /// Resources without reservations and interfaces. `wall_clock_us` are the microseconds since 1970 at
    /// [`Time::ZERO`]: rules and tokens have days and hours. The seed keys the hash tables.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn new(config: Config, wall_clock_us: u64, seed: [u8; 32]) -> Result<Self, ConfigError> {
        config.validated()?;
        let mut rng = Random::new(seed);
        let most = config.max_reservations;
        let mut hasher = || KeyedHasher::new(&mut rng);
        Ok(Self {
            policy: Policy::new(&config),
            reloads: 0,
            keys: Keys::new(&config.keys)?,
            links: BTreeMap::new(),
            grants: Slab::new(most),
            // There are never more reservations than grants, also above a lower limit of those.
            groups: Slab::new(u32::MAX),
            requesters: Recent::default(),
            parties: Recent::default(),
            terms: Recent::default(),
            parameters: Recent::default(),
            accounts: Accounts::new(hasher()),
            passages: (Accounts::new(hasher()), Shares::new(config.max_pinholes, hasher())),
            flows: Flows::new(hasher()),
            sessions: Sessions::new(hasher()),
            hasher: hasher(),
            outputs: Outputs::default(),
            made: 0,
            counters: Counters::default(),
            changes: Changes::default(),
            decisions: Decisions::new(&mut hasher),
            used_tokens: UsedTokens::new(hasher()),
            wall_clock_us,
            config,
        })
    }

    /// Takes all interfaces of the node, at the start and after each change. Reservations at an interface that is gone
    /// or has another name now are lost. Those at an interface that is down stay; new ones are refused until it is up.
    pub fn interfaces(&mut self, interfaces: &[Interface]) {
        let gone: Vec<IfIndex> = self
            .links
            .iter()
            .filter(|(ifindex, link)| {
                !interfaces.iter().any(|one| one.ifindex == **ifindex && *one.name == *link.name)
            })
            .map(|(ifindex, _)| *ifindex)
            .collect();
        for ifindex in gone {
            for group in self.groups_at(ifindex) {
                self.lose(group, LostWhy::InterfaceGone);
            }
            self.links.remove(&ifindex);
        }
        for interface in interfaces {
            let link = self.links.entry(interface.ifindex).or_insert_with(|| {
                let mut link = Link {
                    name: Arc::from(interface.name.as_str()),
                    up: interface.up,
                    mtu: interface.mtu,
                    tunnel: interface.tunnel,
                    config: None,
                    measured: None,
                    used: Default::default(),
                    timed: Default::default(),
                    peak: 0,
                    reservations: 0,
                    places: Shares::new(0, self.hasher),
                    own_queues: 0,
                    services: BTreeMap::new(),
                    protocols: BTreeMap::new(),
                };
                link.configure(self.config.of_interface(&interface.name, interface.tunnel).cloned());
                link
            });
            link.up = interface.up;
            link.mtu = interface.mtu;
        }
    }

    /// Takes the measured capacity of an interface, octets a second. It counts if no capacity is declared.
    /// Reservations that no longer fit are lost, the weakest first.
    pub fn measured(&mut self, ifindex: IfIndex, capacity: Option<u64>) {
        let Some(link) = self.links.get_mut(&ifindex) else { return }; // the interface may be gone
        if link.measured == capacity {
            return;
        }
        link.measured = capacity;
        self.refit(ifindex);
    }

    /// Requests a reservation.
    ///
    /// # Errors
    /// The refusal; no state has changed.
    pub fn admit(&mut self, now: Time, request: &GrantRequest) -> Result<Admitted, Refusal> {
        match self.plan(now, request, None) {
            Ok(plan) => {
                self.counters.admitted += 1;
                let admitted = self.carry_out(now, request, plan, None);
                granted(request, &admitted);
                self.note_granted(request, &admitted, false);
                Ok(admitted)
            }
            Err(refusal) => Err(self.refused(now, request, None, refusal)),
        }
    }

    /// Requests a reservation in the place of an existing one, also if only the requester or the lifetime changes. The
    /// interface may change, the session may not. A request for no more than before, in any respect, is never refused
    /// (RFC 2211 §5, RFC 2212 "Invocation").
    ///
    /// # Errors
    /// The refusal; the existing reservation stays.
    pub fn modify(&mut self, now: Time, grant: GrantId, request: &GrantRequest) -> Result<Admitted, Refusal> {
        let key = Key::from_u64(grant.0);
        match self.plan(now, request, Some(key)) {
            Ok(plan) => {
                self.counters.modified += 1;
                let same = self.decisions.is_on() && self.stands_as(key, request, plan.rule);
                let admitted = self.carry_out(now, request, plan, Some(key));
                granted(request, &admitted);
                if !same {
                    self.note_granted(request, &admitted, true);
                }
                Ok(admitted)
            }
            Err(refusal) => Err(self.refused(now, request, Some(grant), refusal)),
        }
    }

    /// Sets the conditions under which traffic may exceed a grant, after another reservation changed them. It takes no
    /// more resources.
    pub fn police(&mut self, grant: GrantId, policing: Policing) {
        // It may be lost already.
        if let Some(grant) = self.grants.get_mut(Key::from_u64(grant.0)) {
            grant.terms = Terms { policing, ..(*grant.terms).clone() }.shared(&mut self.terms);
        }
    }

    /// Releases a grant. A grant that is lost already is ignored.
    pub fn release(&mut self, grant: GrantId) {
        let key = Key::from_u64(grant.0);
        self.note_released(key);
        if self.detach(key) {
            self.grants.remove(key);
            self.changes.note(|| grant);
            self.counters.released += 1;
            tracing::debug!(grant = grant.0, "reservation released");
        }
    }

    /// Ends a grant for an administrator, and reports the loss to its owner. Other grants of its reservation stay. A grant
    /// that is lost already is ignored.
    pub fn delete(&mut self, grant: GrantId) {
        self.lose_grant(Key::from_u64(grant.0), LostWhy::Deleted);
    }

    /// The result that a request would have; nothing changes.
    #[must_use]
    pub fn dry_run(&self, now: Time, request: &GrantRequest) -> DryRun {
        self.would(now, request, None)
    }

    /// The result that a change would have; nothing changes.
    #[must_use]
    pub fn dry_modify(&self, now: Time, grant: GrantId, request: &GrantRequest) -> DryRun {
        self.would(now, request, Some(Key::from_u64(grant.0)))
    }

    fn would(&self, now: Time, request: &GrantRequest, replaced: Option<Key>) -> DryRun {
        let name = self.links.get(&request.ifindex).map_or("", |link| &link.name);
        let verdict = self.policy.decide(request, name, self.wall_us(now));
        let result = self.plan(now, request, replaced).map(|plan| {
            let groups = plan
                .victims
                .iter()
                .filter_map(|victim| invariant!(self.groups.get(*victim), "a victim is a reservation"));
            let members = groups.flat_map(|group| group.members.iter().map(move |member| (group, member)));
            let victims = members
                .filter_map(|(group, member)| {
                    Some(
                        invariant!(self.grants.get(member), "a victim's member is a grant")?
                            .owner(group.protocol),
                    )
                })
                .collect();
            WouldAdmit { rspec: plan.rspec(), victims }
        });
        DryRun { rule: verdict.rule.and_then(|rule| self.policy.name(rule)), result }
    }

    /// The highest rate that the policy permits for a request, whatever rate it has; octets a second. The rules see
    /// everything else in it.
    ///
    /// # Errors
    /// The policy refuses the request at any rate.
    pub fn permitted(&self, now: Time, request: &GrantRequest) -> Result<u64, Refusal> {
        let name = self.links.get(&request.ifindex).map_or("", |link| &link.name);
        let verdict = self.policy.decide(request, name, self.wall_us(now));
        let of_one = match verdict.result {
            Ok(()) => u64::MAX,
            Err(Rule::Policy { why: PolicyWhy::Rate { limit, .. }, .. }) => limit,
            Err(rule) => return Err(Refusal { rule, available: 0 }),
        };
        let Some(key) = self.policy.account(verdict.rule, &request.requester, request.ifindex) else {
            return Ok(of_one);
        };
        let (used, reservations) = self.accounts.held(self.accounts.find(&key));
        match self.policy.totals(key.rule, used, 0, reservations.saturating_add(1)) {
            Ok(()) => Ok(of_one.min(self.policy.total_left(key.rule, used))),
            Err(rule) => Err(Refusal { rule, available: 0 }),
        }
    }

    /// The resources that an interface can still give to a service without preemption. `None`: the interface is
    /// unknown or down, or has no capacity or no such service.
    #[must_use]
    pub fn available(&self, ifindex: IfIndex, service: ServiceClass) -> Option<Available> {
        let link = self.links.get(&ifindex)?;
        let config = link.config.as_ref()?;
        let capacity = link.capacity();
        if !link.up || capacity == 0 || !config.service(service).offered {
            return None;
        }
        let each = config.service(service).max_each.map_or(u64::MAX, |rate| rate.0);
        Some(Available {
            // At the start of time nothing is past: the least that there is at any moment.
            rate: link.room(service, &Freed::default(), Time::ZERO, None).min(each),
            buffer: config.buffer.map(|limit| limit.saturating_sub(link.buffered())),
            mtu: link.service_mtu(service),
            link_mtu: link.mtu,
            capacity,
            latency: link.latency(),
            terms: link.terms(),
        })
    }

    /// The next action or report; poll until `None`.
    #[inline]
    pub fn poll(&mut self) -> Option<ResourceOutput<'_>> {
        // A node asks before each output of its protocols, and there is rarely one.
        if self.outputs.is_empty() { None } else { self.outputs.poll(&mut self.groups) }
    }

    /// Takes the kernel's answer to a [`ResourceOutput::Install`]. There is one for each, in order. A reservation that
    /// the kernel refused is lost.
    pub fn installed(&mut self, id: ReservationId, result: Result<(), ReserveError>) {
        let key = Key::from_u64(id.0);
        let Some(group) = self.groups.get_mut(key).filter(|group| group.pending > 0) else {
            self.counters.answers_ignored += 1;
            tracing::debug!(
                reservation = id.0,
                reason = "reservation is not known",
                "answer of the kernel ignored"
            );
            return;
        };
        group.pending -= 1;
        if group.in_kernel.answered(result.is_ok()) {
            for member in group.members.iter() {
                self.changes.note(|| GrantId(member.to_u64()));
            }
        }
        // A later installation has its own answer.
        if let Err(error) = result
            && group.pending == 0
            && group.queued.is_none()
            && group.in_kernel != InKernel::Held
        {
            self.lose(key, LostWhy::KernelRefused(error));
        }
    }

    /// The wall clock was corrected: microseconds since 1970 at [`Time::ZERO`]. Rules and tokens are judged by it.
    pub const fn set_wall_clock(&mut self, wall_clock_us: u64) {
        self.wall_clock_us = wall_clock_us;
    }

    /// Verifies the authentication data of a token now; see [`Keys::verify`].
    ///
    /// # Errors
    /// The reason of the authentication failure.
    pub fn verify_token(
        &self,
        now: Time,
        entity: &str,
        key_id: u32,
        signed: &[u8],
        tag: &[u8],
    ) -> Result<(), TokenError> {
        self.keys.verify(entity, key_id, signed, tag, wall_seconds(self.wall_clock_us, now))
    }

    /// Verifies the HMAC of a token without a Key-ID now; see [`Keys::verify_mac`].
    ///
    /// # Errors
    /// The reason of the authentication failure.
    pub fn verify_mac(
        &self,
        now: Time,
        entity: &str,
        mac: Mac,
        signed: &[u8],
        tag: &[u8],
    ) -> Result<(), TokenError> {
        self.keys.verify_mac(entity, mac, signed, tag, wall_seconds(self.wall_clock_us, now))
    }

    /// The verified token among the values of the SESSION_AUTH objects of a message, if any (RFC 5981 §4.1: shared symmetric
    /// keys). An object that is not signed with a key of this node has no effect here (§3.1).
    ///
    /// # Errors
    /// The reason of the authentication failure.
    pub fn token<'a>(
        &self,
        now: Time,
        objects: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Option<Arc<Token>>, TokenError> {
        self.keys.token(objects, wall_seconds(self.wall_clock_us, now))
    }

    /// Whether a session of signaling may use a verified token for a flow with these ends. One that names its session is good for the
    /// first session that got something for it, and for the opposite direction of its flow (RFC 5981 §3.2.2, §7).
    ///
    /// # Errors
    /// [`TokenError::Used`] or [`TokenError::Full`].
    pub fn check_token(
        &self,
        now: Time,
        token: &Token,
        session: SessionId,
        ends: (IpAddr, IpAddr),
    ) -> Result<(), TokenError> {
        self.used_tokens.check(now, token, session, ends)
    }

    /// A session of signaling got something for a verified token.
    pub fn use_token(&mut self, now: Time, token: &Token, session: SessionId, ends: (IpAddr, IpAddr)) {
        let left = |end: u64| end.saturating_sub(self.wall_clock_us.saturating_add(now.as_micros()));
        let until = token.end_us.map(|end| now + Duration::from_micros(left(end)));
        self.used_tokens.bind(now, token, until, session, ends);
    }

    /// The list of grants that are made, changed and ended, to watch and to take from.
    pub const fn changes(&mut self) -> &mut Changes<GrantId> {
        &mut self.changes
    }

    /// Counts since the start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) const fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(crate) const fn reloads(&self) -> u32 {
        self.reloads
    }

    /// The accounts of passages, the rules, and what each source holds.
    pub(crate) const fn passages(&mut self) -> (&mut Accounts, &Policy, &mut Shares<IpAddr>) {
        (&mut self.passages.0, &self.policy, &mut self.passages.1)
    }

    /// The accounts of passages, and whose share each takes.
    pub(crate) const fn passages_of_now(&self) -> (&Accounts, &Shares<IpAddr>) {
        (&self.passages.0, &self.passages.1)
    }

    pub(crate) fn shared_requester(&mut self, requester: &Requester) -> Arc<Requester> {
        self.requesters.shared(number_of(requester), requester)
    }

    /// The record of who asked, in the storage of an equal one.
    pub(crate) fn shared_party(&mut self, requester: &Requester, crossed: Crossed) -> Arc<Party> {
        let names = [&crossed.from, &crossed.to].into_iter().flatten();
        let number = names.fold(number_of(requester), |number, name| {
            number.wrapping_mul(31).wrapping_add(recent::sum(name.as_bytes()))
        });
        self.parties.shared(number, &Party { requester: requester.clone(), crossed })
    }

    /// The name of an interface of the node.
    #[must_use]
    pub fn interface_name(&self, ifindex: IfIndex) -> Option<Arc<str>> {
        self.links.get(&ifindex).map(|link| Arc::clone(&link.name))
    }

    pub(crate) const fn passages_held(&self) -> u32 {
        self.passages.1.total()
    }

    pub(crate) const fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    pub(crate) const fn wall_us(&self, now: Time) -> u64 {
        self.wall_clock_us.saturating_add(now.as_micros())
    }

    fn refused(
        &mut self,
        now: Time,
        request: &GrantRequest,
        stands: Option<GrantId>,
        refusal: Refusal,
    ) -> Refusal {
        self.decisions.now = self.decisions.now.max(now);
        self.note_refused(request, stands, &refusal);
        tracing::debug!(
            protocol = %request.owner.protocol,
            owner = request.owner.key,
            requester = %request.requester,
            ifindex = request.ifindex.0,
            rate = request.rate(),
            reason = %refusal,
            "request refused"
        );
        let counters = &mut self.counters;
        let counter = match refusal.cause() {
            Cause::Policy | Cause::Token => &mut counters.refused_policy,
            Cause::Bandwidth | Cause::Buffer => &mut counters.refused_resources,
            Cause::Full => &mut counters.refused_full,
            _ => &mut counters.refused_other,
        };
        *counter += 1;
        refusal
    }

    /// It runs only when an interface changes, never for a request.
    fn groups_at(&self, ifindex: IfIndex) -> Vec<Key> {
        let here = self.groups.iter().filter(|(_, group)| group.ifindex == ifindex);
        here.map(|(key, _)| key).collect()
    }
}

fn granted(request: &GrantRequest, admitted: &Admitted) {
    tracing::debug!(
        protocol = %request.owner.protocol,
        owner = request.owner.key,
        requester = %request.requester,
        ifindex = request.ifindex.0,
        rate = request.rate(),
        grant = admitted.grant.0,
        preempted = admitted.preempted,
        "request granted"
    );
}
