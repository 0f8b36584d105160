//! The judge: whether what has to hold holds. A check judges packets and kernel state, observed from outside the daemons;
//! some also judge what the commands print.
//!
//! A check is judged in a file of its own that implements [`Judge`] for its keys, and in one line of [`judge_of`].

mod clean;
mod counter;
mod dissected;
mod forwarding;
mod kernel;
pub(crate) mod load;
mod messages;
mod output;
pub(crate) mod path;
mod select;
mod sequence;
mod show;
mod steps;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod traffic;

use serde_json::Value;

use crate::language::checks::Check;
use crate::language::{NamedCheck, Scenario};
use crate::run::evidence::{Evidence, Outcome, Verdict};
pub(crate) use steps::judge_steps;

/// What judges the checks of a kind.
pub(crate) trait Judge {
    /// Whether the check judges captured packets, so that it cannot hold if a capture ran full.
    fn reads_captures(&self) -> bool {
        true
    }

    /// Whether the simulator has what the check judges.
    fn simulated(&self) -> bool {
        false
    }

    /// Judges the evidence.
    ///
    /// # Errors
    /// Why the check does not hold.
    fn judge(&self, evidence: &Evidence) -> Verdict;

    /// Returns what the check measured, with the name of the measurement that lists it by the check's name.
    fn measure(&self, _evidence: &Evidence) -> Option<(&'static str, Value)> {
        None
    }
}

/// Returns what judges a check.
pub(crate) fn judge_of(check: &Check) -> &dyn Judge {
    match check {
        Check::Show(keys) => &**keys,
        Check::Messages(keys) => &**keys,
        Check::Sequence(keys) => &**keys,
        Check::Path(keys) => &**keys,
        Check::Output(keys) => &**keys,
        Check::Traffic(keys) => &**keys,
        Check::Kernel(keys) => &**keys,
        Check::Counter(keys) => &**keys,
        Check::Load(keys) => &**keys,
        Check::Forwarding(keys) => &**keys,
        Check::Dissected(keys) => &**keys,
        Check::Clean(keys) => &**keys,
    }
}

/// Returns the outcomes of a run: of its `expect` steps, of steps that failed or were to fail, then of its checks.
pub(crate) fn judge_all(scenario: &Scenario, evidence: &Evidence) -> Vec<Outcome> {
    let mut outcomes = evidence.outcomes.clone();
    outcomes.extend(judge_steps(scenario, evidence));
    for (number, check) in scenario.checks.iter().enumerate() {
        outcomes.push(match evidence.verdicts.get(&number) {
            Some(verdict) => Outcome::new(&check.name, verdict.clone()),
            None => judge(check, evidence),
        });
    }
    outcomes
}

/// Judges the evidence by a check.
pub(crate) fn judge(check: &NamedCheck, evidence: &Evidence) -> Outcome {
    let judge = judge_of(&check.check);
    let missed: u64 = evidence.trace.links.iter().map(|link| link.missed).sum();
    let verdict = if missed > 0 && judge.reads_captures() {
        Err(format!("the captures had no room for {missed} frames, so that nothing is certain"))
    } else {
        judge.judge(evidence)
    };
    Outcome::new(&check.name, verdict)
}
