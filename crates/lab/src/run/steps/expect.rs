//! The step `expect`.

use anyhow::Result;

use super::Act;
use crate::language::steps::expect::Expect;
use crate::run::Run;
use crate::run::evidence::Outcome;
use crate::run::simulation::Simulation;

impl Act for Expect {
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
