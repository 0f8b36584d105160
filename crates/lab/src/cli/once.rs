//! One run of a scenario: the network is made, the steps are taken, the checks are judged, and all of it is removed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::show_logs;
use crate::judge;
use crate::language::Scenario;
use crate::plan::Plan;
use crate::report::about::{About, LabRun};
use crate::report::sweep::Place;
use crate::report::{self, Report, plot};
use crate::run::evidence::Evidence;
use crate::run::lab::Lab;
use crate::run::machine::Watch;
use crate::run::{Progress, Run, requires, wait};

/// What is wanted of a run beside its result.
#[derive(Debug, Default)]
pub(super) struct Wish {
    /// The number of the run among those of its scenario, from 1.
    pub(super) number: u32,
    /// Which run of a sweep it is.
    pub(super) sweep: Option<Place>,
    /// The lab stays.
    pub(super) keep: bool,
    /// A directory for the packets of each link.
    pub(super) pcap: Option<PathBuf>,
    /// A file for a drawing of the flows.
    pub(super) plot: Option<PathBuf>,
    /// The logs of the daemons are not shown where a check fails.
    pub(super) silent: bool,
}

/// Runs a scenario once. Returns the result, and its text for people.
pub(super) fn once(scenario: &Scenario, wish: &Wish, progress: &Progress<'_>) -> Result<(LabRun, String)> {
    let about = About::lab(scenario);
    let (watch, begin) = (Watch::start(), Instant::now());
    let (report, text, going_on) = match requires::lacking(scenario)? {
        Some(why) => {
            let text = format!("{}: skipped, {why}\n", scenario.name);
            (Report::skipped(scenario, why), text, Duration::ZERO)
        }
        None => run_scenario(scenario, wish, progress)?,
    };
    let machine = watch.machine_with(going_on);
    let run = LabRun {
        report,
        about,
        seed: scenario.seed,
        run: wish.number,
        sweep: wish.sweep,
        started_unix_us: watch.started_unix_us(),
        elapsed_us: micros(begin.elapsed()),
        verdict: machine.verdict(),
        machine,
    };
    Ok((run, text))
}

/// Returns the result, its text, and the processor time of what goes on after it.
fn run_scenario(
    scenario: &Scenario,
    wish: &Wish,
    progress: &Progress<'_>,
) -> Result<(Report, String, Duration)> {
    wait::limit(scenario.timeout.map(|timeout| timeout.0));
    progress("making the network");
    let mut lab = Lab::make(Plan::new(scenario))?;
    let mut unwritten = Vec::new();
    let evidence = Run::start(scenario, &mut lab, progress).and_then(|mut run| {
        run.work()?;
        let (evidence, captures) = run.finish(wish.keep)?;
        if let Some(directory) = &wish.pcap {
            unwritten.extend(captures.write(&evidence.plan, directory).err());
        }
        Ok(evidence)
    });
    let evidence = match evidence {
        Ok(evidence) => evidence,
        Err(error) => {
            if !wish.silent {
                show_logs(&lab);
            }
            return Err(lab.abandon(error));
        }
    };
    if let Some(file) = &wish.plot {
        unwritten.extend(draw(scenario, &evidence, file).err());
    }
    let mut outcomes = judge::judge_all(scenario, &evidence);
    outcomes.extend(unwritten.iter().map(report::unwritten));
    let report = Report::new(scenario, outcomes, &evidence);
    if !report.ok && !wish.silent {
        show_logs(&lab);
    }
    let going_on = if wish.keep { lab.used() } else { Duration::ZERO };
    if wish.keep { lab.leave() } else { lab.down() }?;
    let text = report.text(scenario, &evidence);
    Ok((report, text, going_on))
}

fn draw(scenario: &Scenario, evidence: &Evidence, file: &Path) -> Result<()> {
    write_file(file, &plot::svg(&scenario.name, evidence)?)
}

pub(super) fn write_file(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
