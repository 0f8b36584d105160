//! Policy for passages through a firewall or NAT: who may open what, and how much.
//!
//! The rules are those of [`config`](crate::config). A rule that has `opens` decides about passages only, a rule without
//! it about reservations only. So no rule that was written for reservations opens a firewall.
//!
//! What is judged is the pinhole that the kernel would get ([`Pinhole::flows`]): a rule that allows has to cover all flows of it,
//! a rule that denies has to touch one. A flow that is translated has two forms. A rule may name its destination, with the port,
//! before or after the translation, and a rule that denies also its source.
//!
//! A rule may name zones of interfaces. A rule that allows needs an interface that is known; a rule that denies is also for packets
//! whose interface is not known.

use core::time::Duration;
use std::sync::Arc;

use signalbox_core::node::Prefix;
use signalbox_core::pinhole::Pinhole;
use signalbox_core::shares::source;
use signalbox_core::{IfIndex, Time};

use crate::admission::Resources;
use crate::opening::{Crossed, Crossing, Opening, Party};
use crate::policy::{AccountId, AccountKey};
use crate::refusal::{Refusal, Rule, RuleName};
use crate::request::Requester;

/// A request for the passage of a flow.
#[derive(Debug)]
pub struct PassageRequest<'a> {
    /// The requester.
    pub requester: &'a Requester,
    /// What is opened, and towards which side.
    pub opening: Opening,
    /// The interfaces between which it is opened.
    pub crossing: Crossing,
    /// What the kernel is to let pass, or to block.
    pub pinhole: &'a Pinhole,
    /// Lifetime without a refresh.
    pub lifetime: Duration,
    /// A host inside has reserved this passage before ([`Opening::Reserve`]).
    pub invited: bool,
}

/// A rule that allows passages. It is stored once and shared by them, and stays with them when the rules change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Permission {
    pub(crate) rule: RuleName,
    pub(crate) max_lifetime: Option<Duration>,
}

/// A passage that was allowed, 32 octets. It is given back to [`Resources::close_passage`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a passage counts until it is closed"]
pub struct Passage {
    /// The rule that allowed it; `None`: the default.
    permission: Option<Arc<Permission>>,
    /// The default value stands for no account.
    account: AccountId,
    /// Who asked, to be judged by other rules; equal ones are stored once.
    party: Arc<Party>,
    opening: Opening,
    invited: bool,
    /// The number of changes of the rules before.
    reloads: u32,
}

impl Passage {
    /// The rule that allowed it; `None`: the default.
    #[must_use]
    pub fn rule(&self) -> Option<&RuleName> {
        self.permission.as_ref().map(|permission| &permission.rule)
    }

    /// What it opens, and towards which side.
    #[must_use]
    pub const fn opening(&self) -> Opening {
        self.opening
    }

    /// Who asked for it.
    #[must_use]
    pub fn requester(&self) -> &Requester {
        &self.party.requester
    }

    /// The names of the interfaces where its packets come in and leave; `None`: not known, or any.
    #[must_use]
    pub fn interfaces(&self) -> [Option<&str>; 2] {
        let Crossed { from, to } = &self.party.crossed;
        [from.as_deref(), to.as_deref()]
    }

    /// When its token ends, in microseconds since 1970.
    fn token_end_us(&self) -> Option<u64> {
        self.requester().token.as_ref()?.end_us
    }

    /// The longest lifetime that the rule allows; `None`: any.
    #[must_use]
    pub fn max_lifetime(&self) -> Option<Duration> {
        self.permission.as_ref().and_then(|permission| permission.max_lifetime)
    }
}

/// The answer that a request for a passage would have.
#[derive(Debug, Clone, PartialEq)]
pub struct DryPassage {
    /// The policy rule that applies; `None`: the default.
    pub rule: Option<RuleName>,
    /// Whether it is allowed, or why not.
    pub result: Result<(), Refusal>,
}

impl Resources {
    /// Asks for a passage.
    ///
    /// Without a rule that applies, a request is allowed in three cases: the requester is trusted by `trusted`; it is the
    /// node itself, or a neighbor with a proof, and asks for its own address and no other (outward the source, otherwise the
    /// destination of the packets, behind the translation); or it asks for what a host inside has reserved. A publication needs a rule.
    ///
    /// # Errors
    /// The refusal, which names the rule; nothing has changed.
    pub fn open_passage(&mut self, now: Time, request: &PassageRequest<'_>) -> Result<Passage, Refusal> {
        let Crossing { from, to } = request.crossing;
        let crossed = Crossed { from: self.interface_name(from), to: self.interface_name(to) };
        self.open_between(now, request, crossed)
    }

    fn open_between(
        &mut self,
        now: Time,
        request: &PassageRequest<'_>,
        crossed: Crossed,
    ) -> Result<Passage, Refusal> {
        let log = crossed.clone();
        let (from, to) = (log.from.as_deref(), log.to.as_deref());
        let result = self.decide_passage(now, request, crossed);
        let requester = request.requester;
        match &result {
            Ok(_) => {
                tracing::debug!(%requester, opening = %request.opening, from, to, pinhole = %request.pinhole, "passage allowed")
            }
            Err(refusal) => {
                let counters = self.counters_mut();
                counters.refused_policy += 1;
                tracing::debug!(
                    %requester,
                    opening = %request.opening,
                    from,
                    to,
                    pinhole = %request.pinhole,
                    reason = %refusal,
                    "passage refused"
                );
            }
        }
        result
    }

    fn decide_passage(
        &mut self,
        now: Time,
        request: &PassageRequest<'_>,
        crossed: Crossed,
    ) -> Result<Passage, Refusal> {
        let (found, key) = self.allowed_by(now, request, &crossed)?;
        let reloads = self.reloads();
        let (accounts, policy, shares) = self.passages();
        shares.take(source(request.requester.holder())).map_err(|_| full(shares.limit()))?;
        let account = key.and_then(|key: AccountKey| accounts.open(key, 0)).unwrap_or_default();
        Ok(Passage {
            permission: found.and_then(|rule| policy.permission(rule)),
            account,
            party: self.shared_party(request.requester, crossed),
            opening: request.opening,
            invited: request.invited,
            reloads,
        })
    }

    /// The rule that allows a request, and the account that it counts in.
    fn allowed_by(
        &self,
        now: Time,
        request: &PassageRequest<'_>,
        crossed: &Crossed,
    ) -> Result<(Option<u32>, Option<AccountKey>), Refusal> {
        let refused = |rule| Refusal { rule, available: 0 };
        let policy = self.policy();
        let found = policy.passage(request, crossed, self.wall_us(now)).map_err(refused)?;
        let by_default = request.opening != Opening::Publish
            && (self.is_own(request) || request.invited || policy.trusts(request.requester));
        if found.is_none() && !by_default {
            return Err(refused(Rule::Default));
        }
        let key = found.and_then(|rule| policy.account(Some(rule), request.requester, IfIndex::NONE));
        if let (Some(rule), Some(key)) = (found, &key) {
            let (accounts, _) = self.passages_of_now();
            let (_, held) = accounts.held(accounts.find(key));
            policy.totals(rule, 0, 0, held.saturating_add(1)).map_err(refused)?;
        }
        Ok((found, key))
    }

    /// The answer that a request would have; nothing changes, and nothing is counted.
    #[must_use]
    pub fn dry_passage(&self, now: Time, request: &PassageRequest<'_>) -> DryPassage {
        let [from, to] =
            [request.crossing.from, request.crossing.to].map(|ifindex| self.interface_name(ifindex));
        let judged = self.allowed_by(now, request, &Crossed { from, to });
        let rule = match &judged {
            Ok((found, _)) => found.and_then(|rule| self.policy().name(rule)),
            Err(Refusal { rule: Rule::Policy { rule, .. }, .. }) => Some(rule.clone()),
            Err(_) => None,
        };
        let (_, shares) = self.passages_of_now();
        let room = shares.check(&source(request.requester.holder()), 1).map_err(|_| full(shares.limit()));
        DryPassage { rule, result: judged.and(room) }
    }

    /// Judges a passage again, by the rules of now: its pinhole, and its lifetime without a refresh. The same requester asks for
    /// the same as before. What is refused is given back.
    ///
    /// # Errors
    /// The refusal, which names the rule. The passage must be closed then.
    pub fn judge_passage(
        &mut self,
        now: Time,
        passage: Passage,
        pinhole: &Pinhole,
        lifetime: Duration,
    ) -> Result<Passage, Refusal> {
        let (party, opening, invited) = (Arc::clone(&passage.party), passage.opening, passage.invited);
        // It gives up its places first, so that it does not count twice.
        self.close_passage(passage);
        let Party { requester, crossed } = &*party;
        let crossing = Crossing::default();
        let request = PassageRequest { requester, opening, crossing, pinhole, lifetime, invited };
        self.open_between(now, &request, crossed.clone())
    }

    /// Whether two interfaces are in one zone.
    #[must_use]
    pub fn same_zone(&self, one: IfIndex, other: IfIndex) -> bool {
        let names = [one, other].map(|ifindex| self.interface_name(ifindex));
        let [zone, zone_of_other] = names.each_ref().map(|name| self.policy().zone(name.as_deref()));
        one == other || zone.is_some() && zone == zone_of_other
    }

    /// Whether the rules have changed since the passage was allowed. Who holds it judges it again.
    #[must_use]
    pub const fn is_outdated(&self, passage: &Passage) -> bool {
        passage.reloads != self.reloads()
    }

    /// Whether the same request could have another answer now: the rules have changed, or they or its token have times. Who holds
    /// the passage judges it again before it prolongs it.
    #[must_use]
    pub fn may_differ(&self, passage: &Passage) -> bool {
        self.is_outdated(passage) || self.policy().has_times() || passage.token_end_us().is_some()
    }

    /// The longest lifetime of a passage without a refresh: that of its rule, and what is left of its token. `None`: any.
    #[must_use]
    pub fn longest_lifetime(&self, now: Time, passage: &Passage) -> Option<Duration> {
        let left = |end_us: u64| Duration::from_micros(end_us.saturating_sub(self.wall_us(now)));
        [passage.max_lifetime(), passage.token_end_us().map(left)].into_iter().flatten().min()
    }

    /// Ends a passage.
    pub fn close_passage(&mut self, passage: Passage) {
        let (accounts, _, shares) = self.passages();
        // Nothing happens without an account.
        accounts.close(passage.account, 0);
        shares.release(source(passage.requester().holder()));
    }

    /// The number of passages.
    #[must_use]
    pub fn passage_count(&self) -> u32 {
        self.passages_held()
    }

    /// Whether the requester asks for packets of its own address, and of no other.
    fn is_own(&self, request: &PassageRequest<'_>) -> bool {
        let Some(own) = self.policy().own_address(request.requester).map(Prefix::host) else { return false };
        match request.opening {
            Opening::Outward => request.pinhole.flows().all(|flow| flow.packets.src == own),
            Opening::Reserve | Opening::Block => {
                request.pinhole.flows().all(|flow| flow.translated().dst == own)
            }
            Opening::Inward | Opening::Between | Opening::Publish => false,
        }
    }
}

fn full(limit: u32) -> Refusal {
    Refusal { rule: Rule::TableFull { setting: "max_pinholes", limit }, available: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An application that holds a passage for each session counts on it.
    #[test]
    fn a_passage_takes_32_octets() {
        assert_eq!(size_of::<Option<Passage>>(), 32);
    }
}
