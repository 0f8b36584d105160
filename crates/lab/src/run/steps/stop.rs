//! The step `stop`.

use anyhow::Result;

use super::Act;
use crate::language::steps::stop::Stop;
use crate::run::Run;
use crate::run::simulation::Simulation;

impl Act for Stop {
    fn unsimulated(&self) -> Option<String> {
        None
    }

    fn simulate(&self, run: &mut Simulation<'_>, _id: &str) -> Result<()> {
        self.stop.iter().for_each(|id| run.stop(id.as_ref()));
        Ok(())
    }

    fn run(&self, run: &mut Run<'_>, _id: &str) -> Result<()> {
        self.stop.iter().try_for_each(|id| {
            run.progress(&format!("stopping {}", id.as_ref()));
            run.stop(id.as_ref())
        })
    }
}
