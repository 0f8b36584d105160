//! The step `expect`.

use anyhow::Result;
use serde::Deserialize;
use toml::Spanned;

use super::Step;
use crate::checks::Outcome;
use crate::expectation::Expectation;
use crate::kinds::Key;
use crate::run::Run;
use crate::scenario::{Mistake, Scope};
use crate::simulation::Simulation;

#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Expect(Expectation);

impl Step for Expect {
    const NAME: &'static str = "expect";
    const MEANING: &'static str = "Waits until what daemons show, what queues their kernels have, or which packets pass, is as it should be. It is a check of the report.";
    const KEYS: &'static [Key] = Expectation::KEYS;
    const MOMENT_IS_END: bool = true;

    fn validate(&self, scope: &Scope<'_>, _id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        self.0.validate(scope)
    }

    fn expectation(&self) -> Option<&Expectation> {
        Some(&self.0)
    }

    fn unsimulated(&self) -> Option<String> {
        self.0.unsimulated()
    }

    fn simulate(&self, run: &mut Simulation<'_>, _id: &str) -> Result<()> {
        let verdict = self.0.simulated_verdict(run);
        run.evidence.outcomes.push(Outcome::new(self.0.name(), verdict));
        Ok(())
    }

    fn run(&self, run: &mut Run<'_>, _id: &str) -> Result<()> {
        let name = self.0.name();
        run.progress(&format!("looking whether {name}"));
        let running: Vec<usize> = run.lab.running().collect();
        let verdict = self.0.becomes(&run.lab.plan, &running)?;
        if let Err(seen) = &verdict {
            run.progress(&format!("it is not so: {seen}"));
        }
        run.evidence.outcomes.push(Outcome::new(name, verdict));
        Ok(())
    }
}
