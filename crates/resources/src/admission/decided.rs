//! Records of what became of requests; see [`decision`](crate::decision).

use core::net::IpAddr;
use std::sync::Arc;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::OpenerId;
use signalbox_core::traffic::FlowFilter;
use signalbox_core::{Key, SessionId, Time, invariant};

use super::Resources;
use super::group::{Grant, Group};
use crate::decision::{By, Decision, End, Extent, Outcome, Subject, Why, first_flows};
use crate::refusal::{Refusal, Rule, RuleName};
use crate::request::{Admitted, GrantId, GrantRequest, LostWhy};
use crate::requester::Requester;

impl Resources {
    /// An input begins. What ends because of it ends without a particular reason, until an engine gives one.
    #[inline]
    pub fn begin(&mut self, now: Time) {
        self.decisions.now = now;
        self.decisions.end = End::default();
    }

    /// The reason why reservations and passages end that are given back from now on, until the next input.
    #[inline]
    pub const fn because(&mut self, end: End) {
        self.decisions.end = end;
    }

    /// Starts or ends the record of decisions. Without it a decision costs one comparison.
    pub const fn record_decisions(&mut self, on: bool) {
        self.decisions.switch(on);
    }

    /// Whether decisions are recorded.
    #[inline]
    #[must_use]
    pub const fn records_decisions(&self) -> bool {
        self.decisions.is_on()
    }

    /// The oldest decision that was not taken yet.
    #[inline]
    pub fn next_decision(&mut self) -> Option<Decision> {
        self.decisions.take()
    }

    /// Records what a protocol decided about passages or a session, or what another node decided. A grant of passages that stand
    /// already is recorded only if their packets differ.
    pub fn decide(&mut self, decided: Decided<'_>) {
        if !self.decisions.is_on() {
            return;
        }
        let Decided { outcome, subject, by, session, requester, flows, extent, rule, why } = decided;
        let rule = rule.or_else(|| match &why {
            Why::Refusal(refusal) => rule_of(refusal),
            Why::Allowed | Why::Protocol(_) | Why::Beyond(_) | Why::End(_) | Why::Lost(_) | Why::Reduced => {
                None
            }
        });
        let decision = self.decisions.passage(Decision {
            at: self.decisions.now,
            outcome,
            subject,
            by,
            grant: None,
            session,
            requester: Arc::new(requester.clone()),
            speaks: self.policy.speaks(requester),
            interface: None,
            flows: first_flows(flows.iter().copied()),
            extent,
            rule,
            why,
            lasted: None,
        });
        if let Some(decision) = decision {
            self.note_decision(decision);
        }
    }

    /// A passage of this session stood at the daemon before this one: what is decided about it next is its restoration or its end.
    pub fn passage_stood(&mut self, by: OpenerId, session: SessionId) {
        if self.decisions.is_on() {
            self.decisions.stood(By::Opener(by), session);
        }
    }

    /// What who asked gets of a refusal besides its kind: the rule or the limit, as far as the configuration lets it out.
    #[must_use]
    pub fn told(&self, refusal: &Refusal) -> Option<String> {
        self.config.report_rule.then(|| refusal.to_string())
    }

    /// The reason why what ends now ends.
    #[must_use]
    pub const fn ending(&self) -> End {
        self.decisions.end
    }

    /// Records the refusal of a request that its protocol only tried ([`Resources::dry_run`]).
    pub fn decide_refused(&mut self, request: &GrantRequest, refusal: &Refusal) {
        self.note_refused(request, None, refusal);
    }

    pub(crate) fn note_decision(&mut self, decision: Decision) {
        self.counters.decisions_left_out += u64::from(!self.decisions.push(None, decision));
    }

    /// Whether a grant is what a request asks for, so that the request changes nothing.
    pub(super) fn stands_as(&self, key: Key, request: &GrantRequest, rule: Option<u32>) -> bool {
        let Some(grant) = invariant!(self.grants.get(key), "a modified grant stands") else { return false };
        let Some(group) = invariant!(self.groups.get(grant.group), "a modified grant has a reservation")
        else {
            return false;
        };
        let filters = match grant.filters() {
            [] => group.filters.are(&request.filters),
            own => own == request.filters,
        };
        filters
            && grant.terms.traffic == request.traffic
            && grant.terms.held == request.held
            && grant.terms.rule == rule
            && group.ifindex == request.ifindex
            && group.parameters.service == request.service
            && grant.guaranteed().map(|(asked, _)| asked) == request.guaranteed
            && *grant.requester == request.requester
    }

    /// A request was granted: a new one, or one that changed something. A further grant of a reservation that stands is a change, or
    /// nothing if it is for the same amount.
    pub(super) fn note_granted(&mut self, request: &GrantRequest, admitted: &Admitted, changed: bool) {
        if !self.decisions.is_on() {
            return;
        }
        let grant = admitted.grant;
        if let Some(session) = request.session_id {
            self.decisions.name(grant, session);
        }
        let key = Key::from_u64(grant.0);
        let since = self.stands_since(key);
        if let (Some(since), Some(held)) =
            (since, invariant!(self.grants.get_mut(key), "a granted grant stands"))
        {
            held.since = since;
        }
        if self.has_equal_part(key) {
            return;
        }
        let changed = changed || since.is_some();
        let outcome = if changed {
            Outcome::Changed
        } else if self.decisions.restores(request.owner.protocol, request.filters.first()) {
            Outcome::Restored
        } else {
            Outcome::Granted
        };
        let decision = invariant!(self.grants.get(key), "a noted grant stands").and_then(|held| {
            let group = invariant!(self.groups.get(held.group), "a noted grant has a reservation")?;
            Some(self.about(key, held, group, outcome, Why::Allowed))
        });
        if let Some(decision) = decision {
            let lasted = decision.lasted.filter(|_| changed);
            self.push(request, Decision { lasted, ..decision });
        }
    }

    /// A request was refused. What stood before, if anything, stands.
    pub(super) fn note_refused(
        &mut self,
        request: &GrantRequest,
        stands: Option<GrantId>,
        refusal: &Refusal,
    ) {
        if !self.decisions.is_on() {
            return;
        }
        let rule = rule_of(refusal);
        let decision = Decision {
            at: self.decisions.now,
            outcome: Outcome::Refused,
            subject: subject(&request.filters),
            by: By::Reserver(request.owner.protocol),
            grant: stands,
            session: request.session_id.or_else(|| self.decisions.session(stands?)),
            requester: Arc::new(request.requester.clone()),
            speaks: self.policy.speaks(&request.requester),
            interface: self.links.get(&request.ifindex).map(|link| Arc::clone(&link.name)),
            flows: first_flows(request.filters.iter().copied()),
            extent: Extent {
                rate: Some(request.rate()),
                service: Some(request.service),
                opening: None,
                lifetime: request.lifetime,
            },
            rule,
            why: Why::Refusal(refusal.clone()),
            lasted: None,
        };
        self.push(request, decision);
    }

    /// Another node refused a request of which this node has granted its part. That part stands.
    pub fn note_refused_beyond(&mut self, grant: GrantId, node: IpAddr) {
        if !self.decisions.is_on() {
            return;
        }
        let key = Key::from_u64(grant.0);
        let decision = self.grants.get(key).and_then(|held| {
            let group = invariant!(self.groups.get(held.group), "a refused grant has a reservation")?;
            Some(self.about(key, held, group, Outcome::Refused, Why::Beyond(Some(node))))
        });
        if let Some(decision) = decision {
            self.note_decision(decision);
        }
    }

    fn push(&mut self, request: &GrantRequest, decision: Decision) {
        self.counters.decisions_left_out += u64::from(!self.decisions.push(Some(request.owner), decision));
    }

    /// A grant ends because its owner gives it back. That is the end of its reservation if it is the only grant of it. A change that
    /// another node refused ends, and what stood before stands.
    pub(super) fn note_released(&mut self, key: Key) {
        if !self.decisions.is_on() {
            return;
        }
        let (outcome, why) = match self.decisions.end {
            end if !self.has_other_parts(key) => (Outcome::Ended, Some(Why::End(end))),
            End::RefusedBeyond(node) if !self.has_equal_part(key) => {
                (Outcome::Refused, Some(Why::Beyond(node)))
            }
            _ => (Outcome::Ended, None),
        };
        let decision = self.grants.get(key).zip(why).and_then(|(grant, why)| {
            let group = invariant!(self.groups.get(grant.group), "a released grant has a reservation")?;
            Some(self.about(key, grant, group, outcome, why))
        });
        self.decisions.unname(GrantId(key.to_u64()));
        if let Some(decision) = decision {
            self.note_decision(decision);
        }
    }

    /// The node stops: the reservations from a place in the table on end. Their grants stay, because nothing else does. The result is the
    /// place that follows; see [`Slab::walk`](signalbox_core::Slab::walk).
    pub fn record_stop(&mut self, from: u32) -> Option<u32> {
        let mut keys = Vec::new();
        let next = self.grants.walk(from, |key, _| {
            keys.push(key);
            true
        });
        let ends = keys.into_iter().filter(|key| self.has_row(GrantId(key.to_u64()))).filter_map(|key| {
            let grant = invariant!(self.grants.get(key), "a walk finds grants")?;
            let group = invariant!(self.groups.get(grant.group), "a grant that stops has a reservation")?;
            Some(self.about(key, grant, group, Outcome::Ended, Why::End(End::Stopped)))
        });
        let ends: Vec<Decision> = ends.collect();
        ends.into_iter().for_each(|decision| self.note_decision(decision));
        next
    }

    /// A grant is about to be lost.
    pub(super) fn note_lost(&mut self, key: Key, why: LostWhy) {
        if !self.decisions.is_on() {
            return;
        }
        let outcome = match why {
            LostWhy::Preempted => Outcome::Preempted,
            LostWhy::Deleted => Outcome::Ended,
            LostWhy::KernelRefused(_)
            | LostWhy::InterfaceGone
            | LostWhy::CapacityReduced
            | LostWhy::Rules => Outcome::Lost,
        };
        let decision = invariant!(self.grants.get(key), "a lost grant stood").and_then(|grant| {
            let group = invariant!(self.groups.get(grant.group), "a lost grant has a reservation")?;
            Some((group.protocol, self.about(key, grant, group, outcome, Why::Lost(why))))
        });
        self.decisions.unname(GrantId(key.to_u64()));
        let Some((protocol, decision)) = decision else { return };
        if outcome != Outcome::Ended {
            self.decisions.note_lost(protocol, decision.flows.first());
        }
        self.note_decision(decision);
    }

    /// A stronger request took a part of a grant.
    pub(super) fn note_reduced(&mut self, key: Key) {
        if !self.decisions.is_on() || !self.has_row(GrantId(key.to_u64())) {
            return;
        }
        let decision = invariant!(self.grants.get(key), "a reduced grant stands").and_then(|grant| {
            let group = invariant!(self.groups.get(grant.group), "a reduced grant has a reservation")?;
            Some(self.about(key, grant, group, Outcome::Changed, Why::Reduced))
        });
        if let Some(decision) = decision {
            self.note_decision(decision);
        }
    }

    fn about(&self, key: Key, grant: &Grant, group: &Group, outcome: Outcome, why: Why) -> Decision {
        let filters = match grant.filters() {
            [] => first_flows(group.filters.iter()),
            own => first_flows(own.iter().copied()),
        };
        let id = GrantId(key.to_u64());
        let now = self.decisions.now;
        Decision {
            at: now,
            outcome,
            subject: subject(&filters),
            by: By::Reserver(group.protocol),
            grant: Some(id),
            session: self.decisions.session(id),
            requester: Arc::clone(&grant.requester),
            speaks: self.policy.speaks(&grant.requester),
            interface: self.links.get(&group.ifindex).map(|link| Arc::clone(&link.name)),
            flows: filters,
            extent: Extent {
                rate: Some(grant.served().unwrap_or(grant.terms.traffic.rate)),
                service: Some(group.parameters.service),
                opening: None,
                lifetime: grant.terms.lifetime,
            },
            rule: grant.terms.rule.and_then(|rule| self.policy.name(rule)),
            why,
            lasted: Some(now.since(grant.since)),
        }
    }
}

/// What a protocol decided, or another node did.
#[derive(Debug, Clone)]
pub struct Decided<'a> {
    /// What happened.
    pub outcome: Outcome,
    /// What it is about.
    pub subject: Subject,
    /// The protocol.
    pub by: By,
    /// The session, of a protocol whose sessions have identifiers.
    pub session: Option<SessionId>,
    /// Who asked.
    pub requester: &'a Requester,
    /// The packets.
    pub flows: &'a [FlowFilter],
    /// How much.
    pub extent: Extent,
    /// The rule that allowed it.
    pub rule: Option<RuleName>,
    /// The reason.
    pub why: Why,
}

/// The policy rule that refused.
fn rule_of(refusal: &Refusal) -> Option<RuleName> {
    match &refusal.rule {
        Rule::Policy { rule, .. } => Some(rule.clone()),
        Rule::Default
        | Rule::Token(_)
        | Rule::NoInterface(_)
        | Rule::Link { .. }
        | Rule::Spec(_)
        | Rule::Request(_)
        | Rule::TableFull { .. }
        | Rule::NoGrant => None,
    }
}

/// A reservation that is for no single host at either end is one for many flows.
fn subject(filters: &[FlowFilter]) -> Subject {
    let host = |prefix: Prefix| prefix == Prefix::host(prefix.addr);
    let many = |filter: &FlowFilter| !host(filter.src) && !host(filter.dst);
    if filters.iter().any(many) { Subject::Aggregate } else { Subject::Reservation }
}
