//! `signalbox sim`: run, campaign, shrink.

#[cfg(test)]
mod scenarios;
mod shrink;

use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;

use super::help::help;
use super::{Set, checked};
use crate::language::Scenario;
use crate::plan::Plan;
use crate::report::simulated::{Simulated, simulate};
use crate::report::{object, unwritten};
use crate::run::simulation::fault::{self, Fault};
use crate::run::simulation::{LeftOut, Order, step_name, unsupported};

/// Exit status of a run of which a check fails.
const CHECK_FAILED: u8 = 1;
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(2);

/// Arguments of `signalbox sim`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct SimArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SimCommand,
}

/// What the simulator can do.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Run a scenario once.
    #[command(after_help = help!(
        [
            "all checks hold",
            "a check fails",
            "a mistake in a scenario, or a step that the simulator cannot take",
        ],
        "sim run gist-loss --seed 7",
        "sim run quickstart --leave-out --pcap packets",
        "sim run ./mine.toml --fault crash:r1@2s+500ms --json",
    ))]
    Run {
        /// What to run.
        #[command(flatten)]
        what: What,
        /// The seed of all randomness.
        #[arg(long, value_name = "N", default_value_t = 0)]
        seed: u64,
        /// Faults.
        #[command(flatten)]
        faults: Faults,
        /// Take only the first N steps, and judge only their `expect` steps.
        #[arg(long, value_name = "N")]
        steps: Option<usize>,
        /// End with one JSON object on standard output.
        #[arg(long)]
        json: bool,
        /// Write the packets of each link into this directory, as LINK.pcap.
        #[arg(long, value_name = "DIR")]
        pcap: Option<PathBuf>,
    },
    /// Run a scenario with many seeds, until one fails.
    #[command(after_help = help!(
        [
            "all checks hold with every seed",
            "a check fails",
            "a mistake in a scenario, or a step that the simulator cannot take",
        ],
        "sim campaign gist-loss",
        "sim campaign ./mine.toml --seeds 0..1000 --faults 3 --all --json",
    ))]
    Campaign {
        /// What to run.
        #[command(flatten)]
        what: What,
        /// The seeds: the first and the one behind the last, or their number.
        #[arg(long, value_name = "A..B", default_value = "100", value_parser = seeds)]
        seeds: Seeds,
        /// In each run draw so many faults from the seed.
        #[arg(long, value_name = "N", default_value_t = 0)]
        faults: usize,
        /// Go on after a seed that fails.
        #[arg(long)]
        all: bool,
        /// Print one JSON object a line: each seed that fails, then the campaign.
        #[arg(long)]
        json: bool,
    },
    /// Find the fewest faults and steps with which a run fails as before.
    #[command(after_help = help!(
        [
            "a smaller run was found that fails",
            "the run does not fail",
            "a mistake in a scenario, or a step that the simulator cannot take",
        ],
        "sim shrink ./mine.toml --seed 412 --faults 3",
        "sim shrink ./mine.toml --seed 412 --fault cut:a-b@1s+1s --fault crash:r1@2s+500ms",
    ))]
    Shrink {
        /// What to run.
        #[command(flatten)]
        what: What,
        /// The seed of the run that fails.
        #[arg(long, value_name = "N")]
        seed: u64,
        /// Faults.
        #[command(flatten)]
        faults: Faults,
        /// End with one JSON object on standard output.
        #[arg(long)]
        json: bool,
    },
}

/// A scenario, and how much of it.
#[derive(Debug, Args)]
pub struct What {
    /// A scenario's name, or the path of a TOML file.
    name: String,
    /// Leave out the steps that the simulator cannot take, and the checks that need them.
    #[arg(long)]
    leave_out: bool,
    /// Values of parameters.
    #[command(flatten)]
    set: Set,
}

/// What fails in a run.
#[derive(Debug, Args)]
pub struct Faults {
    /// Draw so many faults from the seed: links that are cut or lose everything, and daemons that crash, for up to 3 s each.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "fault")]
    faults: usize,
    /// A fault: cut:LINK@TIME+TIME, lose:LINK@TIME+TIME or crash:NODE@TIME+TIME, with the virtual time of its beginning and
    /// how long it lasts.
    #[arg(long, value_name = "FAULT")]
    fault: Vec<Fault>,
}

/// Seeds of a campaign.
#[derive(Debug, Clone)]
pub struct Seeds(Range<u64>);

/// Reads seeds: `5..20`, or their number.
fn seeds(text: &str) -> Result<Seeds, String> {
    let wrong = || format!("{text:?} are no seeds; write 0..1000 or 1000");
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let (first, end) = match text.split_once("..") {
        Some((first, end)) => (number(first)?, number(end)?),
        None => (0, number(text)?),
    };
    if first < end { Ok(Seeds(first..end)) } else { Err(wrong()) }
}

const HELP: &str = concat!(
    help!(
        [
            "all checks hold; shrink: a smaller run was found that fails",
            "a check fails; shrink: the run does not fail",
            "a mistake in a scenario, or a step that the simulator cannot take",
        ],
        "sim run gist-loss --seed 7",
        "sim run quickstart --leave-out --pcap packets",
        "sim campaign ./mine.toml --seeds 0..1000 --faults 3",
        "sim shrink ./mine.toml --seed 412 --faults 3"
    ),
    "\n\nA scenario is that of `signalbox lab`: docs/lab.md. Nodes run the real engines, links and kernels are simulated, and time is\n",
    "virtual. The same scenario, seed and faults give the same run. No right is needed.",
);

impl What {
    /// Reads the scenario. All of it can be simulated, or may be left out.
    fn scenario(&self) -> Result<Scenario> {
        let scenario = checked(&self.name, self.set.values())?;
        let missing = unsupported(&scenario);
        if !missing.is_empty() && !self.leave_out {
            let lines: Vec<_> = missing.iter().map(|one| format!("{}: {}", one.name, one.why)).collect();
            bail!(
                "{} cannot be simulated; --leave-out leaves these steps out:\n{}",
                scenario.name,
                lines.join("\n")
            );
        }
        Ok(scenario)
    }

    /// Returns the arguments that stand for it in a command line.
    fn words(&self) -> String {
        let set: String =
            self.set.values().iter().map(|(key, value)| format!(" --set {key}={value}")).collect();
        format!("{}{}{set}", self.name, if self.leave_out { " --leave-out" } else { "" })
    }
}

/// Returns the faults of a run. They are drawn within the time that the scenario takes without faults.
fn drawn(scenario: &Scenario, seed: u64, count: usize) -> Result<Vec<Fault>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let whole = simulate(scenario, &Order { seed, ..Order::default() })?;
    let within = Duration::from_micros(whole.virtual_us);
    Ok(fault::draw(&Plan::new(scenario), seed, count, within))
}

impl Faults {
    fn of(&self, scenario: &Scenario, seed: u64) -> Result<Vec<Fault>> {
        if self.fault.is_empty() { drawn(scenario, seed, self.faults) } else { Ok(self.fault.clone()) }
    }
}

/// Does what the arguments say; the status is 0 if all is well and 1 if a check fails.
///
/// # Errors
/// A mistake in a scenario file, or a step that the simulator cannot take.
pub fn run(arguments: SimArgs) -> Result<ExitCode> {
    match arguments.command {
        SimCommand::Run { what, seed, faults, steps, json, pcap } => {
            let scenario = what.scenario()?;
            let order = Order { seed, faults: faults.of(&scenario, seed)?, steps };
            let mut simulated = simulate(&scenario, &order)?;
            if let Some(Err(error)) = pcap.map(|directory| simulated.write(&directory)) {
                simulated.report.checks.push(unwritten(&error));
                simulated.report.ok = false;
            }
            let mut out = io::stdout().lock();
            if json {
                writeln!(out, "{}", object::line("sim_run", &simulated)?)?;
            } else {
                write!(out, "{}", text(&scenario, &simulated))?;
            }
            Ok(status(simulated.report.ok))
        }
        SimCommand::Campaign { what, seeds, faults, all, json } => {
            campaign(&what, &what.scenario()?, seeds.0, faults, all, json)
        }
        SimCommand::Shrink { what, seed, faults, json } => {
            let scenario = what.scenario()?;
            let order = Order { seed, faults: faults.of(&scenario, seed)?, steps: None };
            smallest(&what, &scenario, order, json)
        }
    }
}

fn status(ok: bool) -> ExitCode {
    if ok { ExitCode::SUCCESS } else { ExitCode::from(CHECK_FAILED) }
}

/// Returns the report for people.
fn text(scenario: &Scenario, simulated: &Simulated) -> String {
    let mut text = simulated.report.text(scenario, &simulated.evidence);
    for LeftOut { name, why } in &simulated.left_out {
        text += &format!("left out: {name}: {why}\n");
    }
    for fault in &simulated.faults {
        text += &format!("fault: {fault}\n");
    }
    let seconds = Duration::from_micros(simulated.virtual_us).as_secs_f64();
    text + &format!("seed {}, {seconds:.3} s of virtual time\n", simulated.seed)
}

fn campaign(
    what: &What,
    scenario: &Scenario,
    seeds: Range<u64>,
    faults: usize,
    all: bool,
    json: bool,
) -> Result<ExitCode> {
    let mut out = io::stdout().lock();
    let (begin, mut shown) = (Instant::now(), Instant::now());
    let (mut runs, mut failed) = (0_u64, Vec::new());
    for seed in seeds.clone() {
        if shown.elapsed() >= PROGRESS {
            shown = Instant::now();
            // Progress that cannot be printed is no reason to fail.
            let _ =
                writeln!(io::stderr(), "{}: seed {seed} of {}..{}", scenario.name, seeds.start, seeds.end);
        }
        let order = Order { seed, faults: drawn(scenario, seed, faults)?, steps: None };
        let simulated = simulate(scenario, &order)?;
        runs += 1;
        if simulated.report.ok {
            continue;
        }
        failed.push(seed);
        if json {
            let checks: Vec<_> = simulated.report.checks.iter().filter(|check| !check.ok).collect();
            let seed = json!({"seed": seed, "ok": false, "checks": checks, "faults": simulated.faults});
            writeln!(out, "{}", object::line("seed", &seed)?)?;
        } else {
            for check in simulated.report.checks.iter().filter(|check| !check.ok) {
                writeln!(out, "seed {seed}: FAILED {}\n    {}", check.name, check.detail)?;
            }
        }
        if !all {
            break;
        }
    }
    let first = failed.first().copied();
    let drawn = if faults > 0 { format!(" --faults {faults}") } else { String::new() };
    let command =
        |verb: &str| Some(format!("signalbox sim {verb} {} --seed {}{drawn}", what.words(), first?));
    let (again, shrink) = (command("run"), command("shrink"));
    if json {
        let campaign = json!({
            "scenario": scenario.name, "ok": failed.is_empty(), "runs": runs, "seeds": [seeds.start, seeds.end],
            "failed": failed.len(), "first_failed_seed": first, "faults": faults, "again": again, "shrink": shrink,
            "elapsed_us": u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX),
        });
        writeln!(out, "{}", object::line("campaign", &campaign)?)?;
    } else {
        let seconds = begin.elapsed().as_secs_f64();
        writeln!(out, "{}: {runs} runs in {seconds:.1} s, {} failed", scenario.name, failed.len())?;
        for (what, command) in [("again", again), ("shrink", shrink)] {
            if let Some(command) = command {
                writeln!(out, "{what}: {command}")?;
            }
        }
    }
    Ok(status(failed.is_empty()))
}

fn smallest(what: &What, scenario: &Scenario, order: Order, json: bool) -> Result<ExitCode> {
    let progress = |order: &Order| {
        let steps = order.steps.unwrap_or(scenario.workload.len());
        // Progress that cannot be printed is no reason to fail.
        let _ = writeln!(io::stderr(), "fails with {} faults and {steps} steps", order.faults.len());
    };
    let seed = order.seed;
    let found = shrink::shrink(scenario, order, &progress)?;
    let mut out = io::stdout().lock();
    let Some(found) = found else {
        if json {
            let none = json!({"scenario": scenario.name, "seed": seed, "ok": true});
            writeln!(out, "{}", object::line("shrunk", &none)?)?;
        } else {
            writeln!(out, "{}: all checks hold with seed {seed}; there is nothing to shrink", scenario.name)?;
        }
        return Ok(status(false));
    };
    let taken = found.order.steps.unwrap_or(scenario.workload.len());
    let faults: String = found.order.faults.iter().map(|fault| format!(" --fault {fault}")).collect();
    let steps = found.order.steps.map(|steps| format!(" --steps {steps}")).unwrap_or_default();
    let command = format!("signalbox sim run {} --seed {seed}{faults}{steps}", what.words());
    let checks = found.simulated.report.checks.iter();
    let details: Vec<_> =
        checks.filter(|check| check.name == found.failure).map(|check| check.detail.as_str()).collect();
    let names: Vec<_> = (0..taken).map(|number| step_name(scenario, number)).collect();
    if json {
        let shrunk = json!({
            "scenario": scenario.name, "seed": seed, "ok": false, "check": found.failure, "detail": details.join("; "),
            "faults": found.simulated.faults, "steps": taken, "step_names": names, "runs": found.runs,
            "command": command,
        });
        writeln!(out, "{}", object::line("shrunk", &shrunk)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{}: FAILED {}", scenario.name, found.failure)?;
    for detail in details {
        writeln!(out, "    {detail}")?;
    }
    for name in names {
        writeln!(out, "{name}")?;
    }
    for fault in &found.order.faults {
        writeln!(out, "fault: {fault}")?;
    }
    writeln!(out, "{} runs; again: {command}", found.runs)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        sim: SimArgs,
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        for line in ["sim run x --faults 2", "sim run x --fault cut:a-b@1s+1s", "sim campaign x --seeds 5..9"]
        {
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        for line in
            ["sim shrink x", "sim campaign x --seeds 9..5", "sim run x --faults 1 --fault cut:a-b@1s+1s"]
        {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }

    #[test]
    fn a_step_that_cannot_be_simulated_is_named() {
        let what = |leave_out| What { name: "quickstart".to_owned(), leave_out, set: Set::default() };
        let said = what(false).scenario().expect_err("it sends traffic").to_string();
        assert!(said.contains("(`traffic` \"flow\"): it needs a kernel"), "{said}");
        assert!(what(true).scenario().is_ok());
    }
}
