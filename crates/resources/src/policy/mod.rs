//! Policy rules, and the resources of each requester under them.

mod accounts;
mod requester;
mod rule;

use core::net::IpAddr;
use std::sync::Arc;

use signalbox_core::{IfIndex, invariant};

use crate::config::{Action, Config, Zones};
use crate::opening::Crossed;
use crate::passage::{PassageRequest, Permission};
use crate::refusal::{PolicyWhy, Rule, RuleName};
use crate::request::{GrantRequest, Neighbor, Proof, Requester};
use crate::units::{Identity, Net, Trusted};

pub(crate) use accounts::{AccountId, AccountKey, Accounts};
use requester::JudgedRequester;
use rule::Matcher;

/// The rules in the form in which they are applied.
#[derive(Debug)]
pub(crate) struct Policy {
    rules: Vec<Matcher>,
    zones: Zones,
    default: Action,
    trusted: Vec<Trusted>,
    /// The least proof of an address.
    least: Proof,
    /// Whether a rule about passages is for some days or hours only.
    has_times: bool,
}

/// The decision of the rules on a request.
pub(crate) struct Verdict {
    /// The rule that applies, counted from 0.
    pub(crate) rule: Option<u32>,
    /// The refusal, if any. Totals are checked separately: they depend on the reservation that is replaced.
    pub(crate) result: Result<(), Rule>,
}

impl Policy {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            rules: (1..)
                .zip(&config.rules)
                .map(|(number, rule)| Matcher::new(number, rule, config.proof))
                .collect(),
            zones: config.zones.clone(),
            default: config.default,
            trusted: config.trusted.clone(),
            least: config.proof,
            has_times: config
                .rules
                .iter()
                .any(|rule| !rule.opens.is_empty() && (!rule.days.is_empty() || rule.hours.is_some())),
        }
    }

    /// Whether a rule about passages is for some days or hours only, so that its answer changes with time.
    pub(crate) const fn has_times(&self) -> bool {
        self.has_times
    }

    /// Applies the first rule that matches, `wall_us` microseconds after 1970.
    pub(crate) fn decide(&self, request: &GrantRequest, interface: &str, wall_us: u64) -> Verdict {
        let uncovered = request
            .requester
            .token
            .as_ref()
            .and_then(|token| token.uncovered(request.filters.iter().copied(), wall_us));
        if let Some(what) = uncovered {
            return Verdict { rule: None, result: Err(Rule::Token(what)) };
        }
        let judged = self.judged(&request.requester);
        for (number, rule) in (0..).zip(&self.rules) {
            if rule.applies(request, &judged, interface, wall_us) {
                let result = rule.permits(request).map_err(|why| self.refusal(number, why));
                return Verdict { rule: Some(number), result };
            }
        }
        let allowed = self.default == Action::Allow || self.trusts(&request.requester);
        let result = if allowed { Ok(()) } else { Err(Rule::Default) };
        Verdict { rule: None, result }
    }

    /// The rule that allows a passage; `None`: no rule applies.
    pub(crate) fn passage(
        &self,
        request: &PassageRequest<'_>,
        crossed: &Crossed,
        wall_us: u64,
    ) -> Result<Option<u32>, Rule> {
        let packets = request.pinhole.flows().map(|flow| flow.packets);
        let token = request.requester.token.as_ref();
        if let Some(what) = token.and_then(|token| token.uncovered(packets, wall_us)) {
            return Err(Rule::Token(what));
        }
        let judged = self.judged(request.requester);
        let zones = [&crossed.from, &crossed.to].map(|interface| self.zone(interface.as_deref()));
        let mut numbered = (0..).zip(&self.rules);
        match numbered.find(|(_, rule)| rule.applies_to_passage(request, &judged, zones, wall_us)) {
            Some((number, rule)) if rule.denies() => Err(self.refusal(number, PolicyWhy::Denied)),
            found => Ok(found.map(|(number, _)| number)),
        }
    }

    /// The zone of an interface, if that is known.
    pub(crate) fn zone(&self, interface: Option<&str>) -> Option<&str> {
        interface.map(|name| self.zones.of(name))
    }

    /// What a rule allows to a passage.
    pub(crate) fn permission(&self, rule: u32) -> Option<Arc<Permission>> {
        Some(Arc::clone(self.matcher(rule)?.permission()))
    }

    /// The requester, as rules see it. A user of this host needs no neighbor that speaks for it.
    fn judged<'a>(&self, requester: &'a Requester) -> JudgedRequester<'a> {
        JudgedRequester { requester, speaks: self.speaks(requester) }
    }

    /// Whether the claim of a requester counts.
    pub(crate) fn speaks(&self, requester: &Requester) -> bool {
        requester.requested_by.is_local() || self.trusts(requester)
    }

    /// The address that a requester has itself, as far as it is proved.
    pub(crate) fn own_address(&self, requester: &Requester) -> Option<IpAddr> {
        self.judged(requester).own_address(self.least)
    }

    /// Whether the requester needs no rule, and a neighbor speaks for the address that it claims. Of a merged request, all
    /// neighbors do.
    pub(crate) fn trusts(&self, requester: &Requester) -> bool {
        let proved = requester.peer.as_ref();
        if self.trusted.iter().any(|one| match one {
            Trusted::Local => requester.requested_by.is_local(),
            Trusted::Peer(wanted) => proved.is_some_and(|peer| rule::proved(wanted, peer)),
            Trusted::Neighbors(_) => false,
        }) {
            return true;
        }
        let neighbors = requester.requested_by.neighbors();
        !neighbors.is_empty()
            && neighbors.iter().all(|neighbor| {
                self.trusted.iter().any(|one| match one {
                    Trusted::Neighbors(net) => self.is_at(neighbor, requester, net),
                    Trusted::Peer(Identity::Authenticated) => neighbor.proof == Proof::Identity,
                    Trusted::Local | Trusted::Peer(_) => false,
                })
            })
    }

    fn is_at(&self, neighbor: &Neighbor, requester: &Requester, net: &Net) -> bool {
        let proof = if requester.peer.is_some() { Proof::Identity } else { neighbor.proof };
        net.0.contains(neighbor.address) && proof >= self.least
    }

    /// The account of a request, if its rule limits the totals of a requester.
    pub(crate) fn account(
        &self,
        rule: Option<u32>,
        requester: &Requester,
        ifindex: IfIndex,
    ) -> Option<AccountKey> {
        let rule = rule?;
        let matcher = invariant!(self.matcher(rule), "a decided rule exists")?;
        matcher.limits_totals().then(|| AccountKey::new(rule, ifindex, &self.judged(requester)))
    }

    /// Whether an account may grow by a request; `used` is its total without the request.
    pub(crate) fn totals(&self, rule: u32, used: u64, asked: u64, reservations: u32) -> Result<(), Rule> {
        let Some(matcher) = invariant!(self.matcher(rule), "a counted rule exists") else { return Ok(()) };
        let refuse = |why| Err(self.refusal(rule, why));
        match (matcher.max_total(), matcher.max_reservations()) {
            (Some(limit), _) if used.saturating_add(asked) > limit => {
                refuse(PolicyWhy::Total { used, asked, limit })
            }
            (_, Some(limit)) if reservations > limit => refuse(PolicyWhy::Count { limit }),
            _ => Ok(()),
        }
    }

    /// The rate that is left of the total of an account; without a limit there is always some.
    pub(crate) fn total_left(&self, rule: u32, used: u64) -> u64 {
        let limit = self.matcher(rule).and_then(Matcher::max_total);
        limit.map_or(u64::MAX, |limit| limit.saturating_sub(used))
    }

    pub(crate) fn name(&self, rule: u32) -> Option<RuleName> {
        Some(self.matcher(rule)?.name().clone())
    }

    fn matcher(&self, rule: u32) -> Option<&Matcher> {
        self.rules.get(usize::try_from(rule).ok()?)
    }

    fn refusal(&self, rule: u32, why: PolicyWhy) -> Rule {
        let unnamed = || RuleName { number: rule.saturating_add(1), name: Arc::from("") };
        Rule::Policy { rule: self.name(rule).unwrap_or_else(unnamed), why }
    }
}
