//! The result of a run in virtual time.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::Report;
use super::about::About;
use crate::judge::{judge, judge_of, judge_steps};
use crate::language::Scenario;
use crate::protocols::frame::Frame;
use crate::run::evidence::{Evidence, NOT_TAKEN, Outcome};
use crate::run::observe::capture;
use crate::run::simulation::{self, LeftOut, Order, Ran};

/// The result of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Simulated {
    #[serde(flatten)]
    pub(crate) report: Report,
    #[serde(flatten)]
    pub(crate) about: About,
    pub(crate) seed: u64,
    pub(crate) faults: Vec<String>,
    /// The steps that were taken.
    pub(crate) steps: usize,
    /// The virtual time at the end.
    pub(crate) virtual_us: u64,
    pub(crate) left_out: Vec<LeftOut>,
    #[serde(skip)]
    pub(crate) evidence: Evidence,
    /// The frames of each link.
    #[serde(skip)]
    pub(crate) traffic: Vec<Vec<Frame>>,
}

impl Simulated {
    /// Returns the names of the checks that do not hold.
    pub(crate) fn failed(&self) -> impl Iterator<Item = &str> {
        self.report.checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str())
    }

    /// Writes the packets of each link into a directory, as `LINK.pcap`.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        for (link, frames) in self.evidence.plan.links.iter().zip(&self.traffic) {
            let path = directory.join(format!("{}.pcap", link.name));
            capture::write(&path, frames).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// Runs a scenario and judges it. Steps that the simulator cannot take are left out, and so are checks of what it does not have.
///
/// # Errors
/// The network cannot be made. Whatever goes wrong later is an outcome.
pub(crate) fn simulate(scenario: &Scenario, order: &Order) -> Result<Simulated> {
    let mut ran = simulation::run(scenario, order)?;
    let mut outcomes = ran.evidence.outcomes.clone();
    // Faults may cost any step its effect; the checks say what has to hold with them.
    if order.faults.is_empty() {
        outcomes.extend(judge_steps(scenario, &ran.evidence));
    }
    if ran.whole {
        outcomes.extend(judged(scenario, &mut ran));
    }
    let report = Report::new(scenario, outcomes, &ran.evidence);
    let Ran { evidence, left_out, steps, virtual_us, traffic, .. } = ran;
    let faults = order.faults.iter().map(ToString::to_string).collect();
    let (about, seed) = (About::simulated(scenario), order.seed);
    Ok(Simulated { report, about, seed, faults, steps, virtual_us, left_out, evidence, traffic })
}

/// Judges the checks that the simulator has evidence for; adds the others to what was left out.
fn judged(scenario: &Scenario, ran: &mut Ran) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for (number, check) in scenario.checks.iter().enumerate() {
        let judges = judge_of(&check.check);
        let why = if !judges.simulated() {
            Some("only a kernel or a real program can show it".to_owned())
        } else if ran.streams && judges.reads_captures() {
            Some("the octets of TCP connections are not captured".to_owned())
        } else {
            None
        };
        let outcome = match (why, ran.evidence.verdicts.get(&number)) {
            (Some(why), _) => {
                ran.left_out.push(LeftOut { name: check.name.clone(), why });
                continue;
            }
            (None, Some(verdict)) => Outcome::new(&check.name, verdict.clone()),
            (None, None) => judge(check, &ran.evidence),
        };
        // A check of a step that was left out can judge nothing.
        if !outcome.ok && !ran.left_out.is_empty() && outcome.detail.ends_with(NOT_TAKEN) {
            ran.left_out.push(LeftOut { name: outcome.name, why: outcome.detail });
            continue;
        }
        outcomes.push(outcome);
    }
    outcomes
}
