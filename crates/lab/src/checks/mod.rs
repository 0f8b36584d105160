//! The checks of a scenario: what has to hold. A check judges packets and kernel state, observed from outside the
//! daemons; some also judge what the commands print.
//!
//! A check is one type in a file of its own that implements [`Check`], and one line in [`CHECKS`].

mod clean;
mod counter;
mod dissected;
mod forwarding;
mod kernel;
mod load;
mod messages;
pub(crate) mod output;
pub(crate) mod path;
pub(crate) mod select;
mod sequence;
mod show;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod traffic;

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::evidence::Evidence;
use crate::expectation::{self, Expectation, Held};
use crate::kinds::{self, Key, Kind};
use crate::observe::capture::Captures;
use crate::plan::Plan;
use crate::report::Section;
use crate::run::Progress;
use crate::scenario::{Element, Mistake, NamedCheck, Scenario, Scope};
use crate::simulation::Simulation;

/// All kinds of checks, in the order in which they are listed.
pub(crate) const CHECKS: &[Kind<dyn AnyCheck>] = &[
    kind::<show::Show>(),
    kind::<messages::Messages>(),
    kind::<sequence::Sequence>(),
    kind::<path::Path>(),
    kind::<output::Output>(),
    kind::<traffic::Traffic>(),
    kind::<kernel::Kernel>(),
    kind::<counter::Counter>(),
    kind::<load::Load>(),
    kind::<forwarding::Forwarding>(),
    kind::<dissected::Dissected>(),
    kind::<clean::Clean>(),
];

/// The observation that holds, or the observation that does not.
pub(crate) type Verdict = Result<String, String>;

/// Something that a check compares, to be read when the step `at` has ended.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    /// What the kernel of a node holds; after `holds` it is read again, and what it holds then counts.
    Kernel { at: String, node: String, holds: Duration },
    /// The counters of a node's daemon, in the same way.
    Counters { at: String, node: String, holds: Duration },
}

impl Wanted {
    /// Returns the `id` of the step, and the node.
    pub(crate) fn place(&self) -> (&str, &str) {
        match self {
            Self::Kernel { at, node, .. } | Self::Counters { at, node, .. } => (at, node),
        }
    }

    /// Returns the time after which it is read again.
    pub(crate) const fn holds(&self) -> Duration {
        match self {
            Self::Kernel { holds, .. } | Self::Counters { holds, .. } => *holds,
        }
    }
}

/// A kind of check. The fields of the type are the keys in the file, without `expect`.
pub(crate) trait Check: Debug + DeserializeOwned + 'static {
    /// The key of the file that names the kind.
    const NAME: &'static str;
    /// When the check holds, in a sentence for `signalbox lab checks`.
    const MEANING: &'static str;
    const KEYS: &'static [Key];
    /// The check judges captured packets, so that it cannot hold if a capture ran full.
    const READS_CAPTURES: bool = true;

    /// The simulator has what the check judges.
    const SIMULATED: bool = false;

    /// Reads the keys.
    ///
    /// # Errors
    /// The first mistake.
    fn parse(element: Element<'_>) -> Result<Self, Mistake> {
        kinds::parse(element)
    }

    /// Returns what the check compares, to be read in the course of the run.
    fn needs(&self) -> Vec<Wanted> {
        Vec::new()
    }

    /// Judges what the daemons show now; `None` if the check judges evidence.
    fn observe(&self, _plan: &Plan, _running: &[usize]) -> Option<Result<Verdict>> {
        None
    }

    /// Returns what [`Self::observe`] looks at, which may have to stay so.
    fn expectation(&self) -> Option<&Expectation> {
        None
    }

    /// Returns how long packets are captured after the last step.
    fn listens(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns how long the kernels have to stay as the daemons left them.
    fn rests(&self) -> Duration {
        Duration::ZERO
    }

    /// Judges what the nodes of the simulator show now; `None` if the check judges evidence.
    fn simulate(&self, _run: &mut Simulation<'_>) -> Option<Verdict> {
        None
    }

    /// Checks what the types of the keys cannot: names that exist, numbers in range.
    ///
    /// # Errors
    /// The first mistake.
    fn validate(&self, _scope: &Scope<'_>) -> Result<(), Mistake> {
        Ok(())
    }

    /// Collects evidence of its own when the captures have ended.
    fn collect(&self, _captures: &Captures, _evidence: &mut Evidence, _progress: &Progress<'_>) {}

    /// Judges the evidence.
    ///
    /// # Errors
    /// Why the check does not hold.
    fn judge(&self, evidence: &Evidence) -> Verdict;

    /// Returns what the check measured, with the name of the measurement that lists it by the check's name.
    fn measure(&self, _evidence: &Evidence) -> Option<(&'static str, Value)> {
        None
    }

    /// Returns what the report shows people besides the verdict. Sections with the same title become one.
    fn report(&self, _evidence: &Evidence) -> Option<Section> {
        None
    }
}

/// A check of any kind.
pub(crate) trait AnyCheck: Debug {
    fn reads_captures(&self) -> bool;
    fn simulated(&self) -> bool;
    fn simulate(&self, run: &mut Simulation<'_>) -> Option<Verdict>;
    fn needs(&self) -> Vec<Wanted>;
    fn observe(&self, plan: &Plan, running: &[usize]) -> Option<Result<Verdict>>;
    fn expectation(&self) -> Option<&Expectation>;
    fn listens(&self) -> Duration;
    fn rests(&self) -> Duration;
    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake>;
    fn collect(&self, captures: &Captures, evidence: &mut Evidence, progress: &Progress<'_>);
    fn judge(&self, evidence: &Evidence) -> Verdict;
    fn measure(&self, evidence: &Evidence) -> Option<(&'static str, Value)>;
    fn report(&self, evidence: &Evidence) -> Option<Section>;
}

impl<C: Check> AnyCheck for C {
    fn reads_captures(&self) -> bool {
        C::READS_CAPTURES
    }

    fn simulated(&self) -> bool {
        C::SIMULATED
    }

    fn simulate(&self, run: &mut Simulation<'_>) -> Option<Verdict> {
        Check::simulate(self, run)
    }

    fn needs(&self) -> Vec<Wanted> {
        Check::needs(self)
    }

    fn observe(&self, plan: &Plan, running: &[usize]) -> Option<Result<Verdict>> {
        Check::observe(self, plan, running)
    }

    fn expectation(&self) -> Option<&Expectation> {
        Check::expectation(self)
    }

    fn listens(&self) -> Duration {
        Check::listens(self)
    }

    fn rests(&self) -> Duration {
        Check::rests(self)
    }

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        Check::validate(self, scope)
    }

    fn collect(&self, captures: &Captures, evidence: &mut Evidence, progress: &Progress<'_>) {
        Check::collect(self, captures, evidence, progress);
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        Check::judge(self, evidence)
    }

    fn measure(&self, evidence: &Evidence) -> Option<(&'static str, Value)> {
        Check::measure(self, evidence)
    }

    fn report(&self, evidence: &Evidence) -> Option<Section> {
        Check::report(self, evidence)
    }
}

/// Judges what the daemons show now, and for as long as it has to stay so. Returns the verdicts with the numbers of their
/// checks.
pub(crate) fn observe(
    checks: &[NamedCheck],
    plan: &Plan,
    running: &[usize],
) -> Result<Vec<(usize, Verdict)>> {
    let (mut verdicts, mut held) = (Vec::new(), Vec::new());
    for (number, named) in checks.iter().enumerate() {
        let Some(verdict) = named.check.observe(plan, running).transpose()? else { continue };
        let expectation = named.check.expectation().filter(|expectation| !expectation.holds().is_zero());
        if let Some(expectation) = expectation.filter(|_| verdict.is_ok()) {
            held.push(Held { expectation, since: Instant::now(), place: verdicts.len() });
        }
        verdicts.push((number, verdict));
    }
    for (place, seen) in expectation::keep(held, plan, running)? {
        verdicts[place].1 = Err(seen);
    }
    Ok(verdicts)
}

const fn kind<C: Check>() -> Kind<dyn AnyCheck> {
    Kind {
        name: C::NAME,
        meaning: C::MEANING,
        keys: C::KEYS,
        parse: |element| Ok(Box::new(C::parse(element)?)),
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) ok: bool,
    pub(crate) detail: String,
}

impl Outcome {
    /// Returns the outcome of a verdict.
    pub(crate) fn new(name: &str, verdict: Verdict) -> Self {
        let (ok, detail) = match verdict {
            Ok(detail) => (true, detail),
            Err(detail) => (false, detail),
        };
        Self { name: name.to_owned(), ok, detail }
    }
}

/// Returns the outcomes of a run: of its `expect` steps, then of its checks.
pub(crate) fn judge_all(scenario: &Scenario, evidence: &Evidence) -> Vec<Outcome> {
    let mut outcomes = evidence.outcomes.clone();
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
    let missed: u64 = evidence.trace.links.iter().map(|link| link.missed).sum();
    let verdict = if missed > 0 && check.check.reads_captures() {
        Err(format!("the captures had no room for {missed} frames, so that nothing is certain"))
    } else {
        check.check.judge(evidence)
    };
    Outcome::new(&check.name, verdict)
}
