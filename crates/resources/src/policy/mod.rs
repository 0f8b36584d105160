//! Policy rules, and the resources of each requester under them.

mod accounts;
mod rule;

use std::sync::Arc;

use signalbox_core::IfIndex;

use crate::config::{Action, Config};
use crate::refusal::{PolicyWhy, Rule, RuleName};
use crate::request::{GrantRequest, Requester};

pub(crate) use accounts::{AccountId, AccountKey, Accounts};
use rule::Matcher;

/// The rules in the form in which they are applied.
#[derive(Debug)]
pub(crate) struct Policy {
    rules: Vec<Matcher>,
    default: Action,
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
        Self { rules: config.rules.iter().map(Matcher::new).collect(), default: config.default }
    }

    /// Applies the first rule that matches, `wall_us` microseconds after 1970.
    pub(crate) fn decide(&self, ask: &GrantRequest, interface: &str, wall_us: u64) -> Verdict {
        let uncovered = ask.requester.token.as_ref().and_then(|token| token.uncovered(ask, wall_us));
        if let Some(what) = uncovered {
            return Verdict { rule: None, result: Err(Rule::Token(what)) };
        }
        for (number, rule) in (0..).zip(&self.rules) {
            if rule.applies(ask, interface, wall_us) {
                let result = rule.permits(ask).map_err(|why| self.refusal(number, why));
                return Verdict { rule: Some(number), result };
            }
        }
        let result = if self.default == Action::Allow { Ok(()) } else { Err(Rule::Default) };
        Verdict { rule: None, result }
    }

    /// The account of a request, if its rule limits the totals of a requester.
    pub(crate) fn account(
        &self,
        rule: Option<u32>,
        requester: &Requester,
        ifindex: IfIndex,
    ) -> Option<AccountKey> {
        let rule = rule?;
        let matcher = self.matcher(rule)?;
        matcher.limits_totals().then(|| AccountKey::new(rule, ifindex, requester))
    }

    /// Whether an account may grow by a request; `used` is its total without the request.
    pub(crate) fn totals(&self, rule: u32, used: u64, asked: u64, reservations: u32) -> Result<(), Rule> {
        let Some(matcher) = self.matcher(rule) else { return Ok(()) };
        let refuse = |why| Err(self.refusal(rule, why));
        match (matcher.max_total(), matcher.max_reservations()) {
            (Some(limit), _) if used.saturating_add(asked) > limit => {
                refuse(PolicyWhy::Total { used, asked, limit })
            }
            (_, Some(limit)) if reservations > limit => refuse(PolicyWhy::Count { limit }),
            _ => Ok(()),
        }
    }

    pub(crate) fn name(&self, rule: u32) -> Option<RuleName> {
        let name = Arc::clone(self.matcher(rule)?.name());
        Some(RuleName { number: rule.saturating_add(1), name })
    }

    fn matcher(&self, rule: u32) -> Option<&Matcher> {
        self.rules.get(usize::try_from(rule).ok()?)
    }

    fn refusal(&self, rule: u32, why: PolicyWhy) -> Rule {
        let name = self.matcher(rule).map_or_else(|| Arc::from(""), |matcher| Arc::clone(matcher.name()));
        Rule::Policy { rule: RuleName { number: rule.saturating_add(1), name }, why }
    }
}
