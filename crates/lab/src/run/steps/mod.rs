//! What the steps of a workload do, one after the other.
//!
//! A step is done in a file of its own that implements [`Act`] for its keys, and in one line of [`act_of`].

pub(crate) mod cost;
mod daemon;
mod expect;
mod flood;
mod inject;
mod link;
pub(crate) mod ping;
pub(crate) mod program;
pub(crate) mod queries;
pub(crate) mod reserve;
mod routing;
mod stop;
pub(crate) mod traffic;
pub(crate) mod wait;

use anyhow::{Result, bail};

use crate::language::steps::Step;
use crate::run::Run;
use crate::run::simulation::Simulation;

/// What does the steps of a kind.
pub(crate) trait Act {
    /// Does the step. What is observed goes into the run's evidence, by the `id` of the step.
    ///
    /// # Errors
    /// What keeps the run from going on. What a check can judge is no error.
    fn run(&self, run: &mut Run<'_>, id: &str) -> Result<()>;

    /// Returns why the simulator cannot take the step; `None` if it can.
    fn unsimulated(&self) -> Option<String> {
        Some("it needs a kernel or real programs".to_owned())
    }

    /// Does the step in the simulator, if it can be done there.
    ///
    /// # Errors
    /// What keeps the run from going on.
    fn simulate(&self, _run: &mut Simulation<'_>, _id: &str) -> Result<()> {
        bail!("{}", self.unsimulated().unwrap_or_default())
    }
}

/// Returns what does a step.
pub(crate) fn act_of(step: &Step) -> &dyn Act {
    match step {
        Step::RunProgram(keys) => &**keys,
        Step::Reserve(keys) => &**keys,
        Step::Ping(keys) => &**keys,
        Step::Traffic(keys) => &**keys,
        Step::Flood(keys) => &**keys,
        Step::Inject(keys) => &**keys,
        Step::Link(keys) => &**keys,
        Step::Daemon(keys) => &**keys,
        Step::Routing(keys) => &**keys,
        Step::Wait(keys) => &**keys,
        Step::Expect(keys) => &**keys,
        Step::Stop(keys) => &**keys,
    }
}
