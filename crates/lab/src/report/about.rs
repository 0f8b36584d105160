//! What a result says about itself: what was run, by which programs, when and where.

use serde::Serialize;

use super::Report;
use super::sweep::Place;
use crate::language::Scenario;
use crate::run::machine::{Machine, Verdict};
use crate::run::provenance::{self, Program};

/// The experiment and the programs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct About {
    digest: String,
    parameters: toml::Table,
    programs: &'static [Program],
}

impl About {
    /// Returns the digest of the scenario.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// Describes a scenario and the programs that run it in the lab.
    pub(crate) fn lab(scenario: &Scenario) -> Self {
        Self::of(scenario, provenance::all())
    }

    /// Describes a scenario and the program that simulates it.
    pub(crate) fn simulated(scenario: &Scenario) -> Self {
        Self::of(scenario, provenance::this())
    }

    /// Leaves parameters out, which are said elsewhere.
    pub(crate) fn without(mut self, parameters: &[&str]) -> Self {
        self.parameters.retain(|name, _| !parameters.contains(&name));
        self
    }

    fn of(scenario: &Scenario, programs: &'static [Program]) -> Self {
        Self { digest: scenario.digest.clone(), parameters: scenario.parameters.clone(), programs }
    }
}

/// One run of a scenario in the lab.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LabRun {
    #[serde(flatten)]
    pub(crate) report: Report,
    #[serde(flatten)]
    pub(crate) about: About,
    pub(crate) seed: u64,
    /// Its number among the runs of its scenario, from 1.
    pub(crate) run: u32,
    /// Which run of a sweep it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sweep: Option<Place>,
    pub(crate) started_unix_us: u64,
    pub(crate) elapsed_us: u64,
    /// Whether other programs disturbed what was measured. Checks do not depend on it.
    pub(crate) verdict: Verdict,
    pub(crate) machine: Machine,
}
