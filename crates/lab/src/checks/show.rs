//! The check `show`: what the daemons show after the last step.

use anyhow::Result;
use serde::Deserialize;

use super::{Check, Verdict};
use crate::evidence::Evidence;
use crate::expectation::Expectation;
use crate::kinds::Key;
use crate::plan::Plan;
use crate::scenario::{Mistake, Scope};
use crate::simulation::Simulation;

#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Show(Expectation);

impl Check for Show {
    const NAME: &'static str = "show";
    const MEANING: &'static str = "What daemons show after the last step is as it should be. `signalbox lab expect` judges these checks on a lab that stands.";
    const KEYS: &'static [Key] = Expectation::KEYS;
    const READS_CAPTURES: bool = false;
    const SIMULATED: bool = true;

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        self.0.validate(scope)
    }

    fn observe(&self, plan: &Plan, running: &[usize]) -> Option<Result<Verdict>> {
        Some(self.0.becomes(plan, running))
    }

    fn expectation(&self) -> Option<&Expectation> {
        Some(&self.0)
    }

    fn simulate(&self, run: &mut Simulation<'_>) -> Option<Verdict> {
        Some(self.0.simulated_verdict(run))
    }

    fn judge(&self, _evidence: &Evidence) -> Verdict {
        Err("the daemons were not asked".to_owned())
    }
}
