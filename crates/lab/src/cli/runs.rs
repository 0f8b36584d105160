//! `signalbox lab run`: scenarios one after the other, each so many times, with the files that are asked for.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;
use signalbox_units::Span;

use super::CHECK_FAILED;
use super::once::{Wish, micros, once, write_file};
use crate::language::Scenario;
use crate::language::steps::Step;
use crate::report::about::LabRun;
use crate::report::{csv, junit, object};
use crate::run::machine::Verdict;
use crate::run::wait;

/// What the command line asks for.
#[derive(Debug)]
pub(super) struct Order {
    /// How often each scenario is run.
    pub(super) repeat: u32,
    pub(super) json: bool,
    /// The lab stays.
    pub(super) keep: bool,
    /// A directory for the packets of each link.
    pub(super) pcap: Option<PathBuf>,
    /// A file for a drawing of the flows.
    pub(super) plot: Option<PathBuf>,
    pub(super) junit: Option<PathBuf>,
    /// A file for the measurements, as a table.
    pub(super) csv: Option<PathBuf>,
}

impl Order {
    /// Fails if a part of the order can never be carried out with these scenarios. Nothing is made before.
    pub(super) fn check(&self, scenarios: &[Scenario]) -> Result<()> {
        if self.keep && self.repeat > 1 {
            bail!("--keep leaves one lab of a name: take --repeat out");
        }
        scenarios.iter().try_for_each(in_time)?;
        if self.plot.is_some() {
            drawable(scenarios)?;
        }
        // What cannot be written at the end would be known after hours.
        [&self.junit, &self.csv].into_iter().flatten().try_for_each(|file| write_file(file, ""))
    }

    /// Writes the files about all runs.
    fn write(&self, runs: &[LabRun]) -> [Result<()>; 2] {
        let junit = self.junit.as_ref().map_or(Ok(()), |file| {
            let timed: Vec<_> =
                runs.iter().map(|run| (run.report.clone(), Duration::from_micros(run.elapsed_us))).collect();
            write_file(file, &junit::xml(&timed))
        });
        [junit, self.csv.as_ref().map_or(Ok(()), |file| write_file(file, &csv::table(runs)))]
    }

    /// Returns the files of a run, of which each has its own: where the packets of the links are, and the drawing.
    fn files(&self, several: bool, scenario: &str, run: u32) -> [Option<PathBuf>; 2] {
        let again = self.repeat > 1;
        let pcap = self.pcap.as_ref().map(|directory| {
            let of = if several { directory.join(scenario) } else { directory.clone() };
            if again { of.join(format!("run-{run}")) } else { of }
        });
        let plot = self.plot.as_ref().map(|file| if again { numbered(file, run) } else { file.clone() });
        [pcap, plot]
    }
}

/// Fails if the waits of a scenario take longer than it may.
pub(super) fn in_time(scenario: &Scenario) -> Result<()> {
    let Some(timeout) = scenario.timeout else { return Ok(()) };
    let mut whole = Duration::ZERO;
    for (place, named) in scenario.workload.iter().enumerate() {
        if let Step::Wait(keys) = &named.step
            && let Some(wait) = keys.wait
        {
            whole = whole.saturating_add(wait.0);
        }
        if whole > timeout.0 {
            bail!(
                "{}: up to `{}` the steps wait {}, which is not within the `timeout` of {timeout}",
                scenario.name,
                named.name(place),
                Span(whole)
            );
        }
    }
    Ok(())
}

/// Fails unless there is one scenario, with flows.
fn drawable(scenarios: &[Scenario]) -> Result<()> {
    if scenarios.len() > 1 {
        bail!("--plot draws one scenario; name one");
    }
    match scenarios.iter().find(|scenario| !has_flow(scenario)) {
        None => Ok(()),
        Some(scenario) => bail!(
            "--plot draws flows, and {} has none: it needs a `traffic` step with a `rate`",
            scenario.name
        ),
    }
}

/// Whether a scenario has a flow that can be drawn.
fn has_flow(scenario: &Scenario) -> bool {
    let is_flow = |step: &Step| matches!(step, Step::Traffic(keys) if keys.rate.is_some());
    scenario.workload.iter().any(|named| is_flow(&named.step))
}

/// Puts a number behind the name of a file: `flows.svg` becomes `flows-2.svg`.
fn numbered(file: &Path, number: u32) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let end = file.extension().map(|end| format!(".{}", end.to_string_lossy())).unwrap_or_default();
    file.with_file_name(format!("{stem}-{number}{end}"))
}

/// Runs scenarios one after the other.
pub(super) fn run_all(scenarios: &[Scenario], order: &Order) -> Result<ExitCode> {
    wait::catch_signals()?;
    let begin = Instant::now();
    let (mut runs, mut broken) = (Vec::new(), None);
    'all: for scenario in scenarios {
        for number in 1..=order.repeat {
            let files = order.files(scenarios.len() > 1, &scenario.name, number);
            match run_one(scenario, number, order, files) {
                Ok(run) => runs.push(run),
                Err(error) => {
                    broken = Some(error);
                    break 'all;
                }
            }
        }
    }
    // What was measured before is kept, in each file that can be written.
    for written in order.write(&runs) {
        broken = broken.or(written.err());
    }
    let failed = runs.iter().filter(|run| !run.report.ok).count();
    if order.json && (scenarios.len() > 1 || order.repeat > 1) {
        let skipped = runs.iter().filter(|run| run.report.skip.is_some()).count();
        let whole = json!({
            "ok": failed == 0 && broken.is_none(), "runs": runs.len(), "failed": failed, "skipped": skipped,
            "elapsed_us": micros(begin.elapsed()),
        });
        writeln!(io::stdout().lock(), "{}", object::line("lab_runs", &whole)?)?;
    }
    match broken {
        Some(error) => Err(error),
        None if failed == 0 => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::from(CHECK_FAILED)),
    }
}

/// Runs a scenario once, and prints the result.
fn run_one(
    scenario: &Scenario,
    number: u32,
    order: &Order,
    [pcap, plot]: [Option<PathBuf>; 2],
) -> Result<LabRun> {
    let progress = |what: &str| {
        // Progress that cannot be printed is no reason to fail.
        let _ = writeln!(io::stderr(), "{}: {what}", scenario.name);
    };
    let wish = Wish { number, keep: order.keep, pcap, plot, ..Wish::default() };
    let (run, text) = once(scenario, &wish, &progress)?;
    let mut out = io::stdout().lock();
    if order.json {
        writeln!(out, "{}", object::line("lab_run", &run)?)?;
    } else {
        write!(out, "{text}")?;
        if run.verdict != Verdict::Clean && run.report.skip.is_none() {
            writeln!(out, "measurement: {}, {}", run.verdict, run.machine.others())?;
        }
    }
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::{find, read};

    fn order(repeat: u32) -> Order {
        let (pcap, plot) = (Some("captures".into()), Some("out/flows.svg".into()));
        Order { repeat, json: false, keep: false, pcap, plot, junit: None, csv: None }
    }

    fn files(order: &Order, several: bool, run: u32) -> [String; 2] {
        order.files(several, "first", run).map(|file| file.expect("asked for").display().to_string())
    }

    #[test]
    fn each_run_has_files_of_its_own() {
        assert_eq!(files(&order(1), false, 1), ["captures", "out/flows.svg"]);
        assert_eq!(files(&order(3), false, 2), ["captures/run-2", "out/flows-2.svg"]);
        assert_eq!(files(&order(3), true, 2)[0], "captures/first/run-2");
        assert_eq!(files(&order(1), true, 1)[0], "captures/first");
    }

    #[test]
    fn what_can_never_be_drawn_or_kept_is_refused_before_the_run() {
        let scenario = |name: &str| find(name, &[]).expect("built in");
        let said = |order: &Order, names: &[&str]| {
            let scenarios: Vec<_> = names.iter().map(|name| scenario(name)).collect();
            order.check(&scenarios).map_err(|error| error.to_string())
        };
        assert_eq!(said(&order(1), &["quickstart"]), Ok(()));
        let none = said(&order(1), &["gist-bypass"]).expect_err("no flow");
        assert!(none.contains("gist-bypass has none"), "{none}");
        let two = said(&order(1), &["quickstart", "qos-police"]).expect_err("two");
        assert!(two.contains("draws one scenario"), "{two}");
        let kept = said(&Order { keep: true, ..order(2) }, &["quickstart"]).expect_err("two labs");
        assert!(kept.contains("take --repeat out"), "{kept}");
    }

    #[test]
    fn files_that_cannot_be_written_are_named_before_the_run() {
        let scenarios = [find("quickstart", &[]).expect("built in")];
        let nowhere = || Some("/nowhere/results".into());
        for order in [Order { junit: nowhere(), ..order(1) }, Order { csv: nowhere(), ..order(1) }] {
            let said = order.check(&scenarios).expect_err("no such directory").to_string();
            assert_eq!(said, "cannot write /nowhere/results");
        }
    }

    #[test]
    fn each_file_is_written_also_if_the_other_one_cannot_be() {
        let directory = std::env::temp_dir().join(format!("signalbox-{}-files", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the directory is writable");
        let csv = directory.join("table.csv");
        let order = Order { junit: Some("/nowhere/x.xml".into()), csv: Some(csv.clone()), ..order(1) };
        let [junit, table] = order.write(&[]);
        assert!(junit.is_err() && table.is_ok(), "{junit:?} {table:?}");
        assert!(std::fs::read_to_string(&csv).expect("written").starts_with("scenario,"));
        std::fs::remove_dir_all(directory).expect("ours");
    }

    /// `timeout` is real time, which a simulation of the same file does not take.
    #[test]
    fn waits_that_are_longer_than_the_timeout_are_refused_before_the_run() {
        let scenario = |timeout: &str| {
            let text = format!(
                "version = 2\nname = \"x\"\ndescription = \"\"\ntimeout = \"{timeout}\"\n[nodes.a]\nprotocols = [\"gist\"]\n\
                 [[steps]]\nwait = \"30s\"\n[[steps]]\nid = \"later\"\nwait = \"2s\"\n"
            );
            read("x.toml", &text).unwrap_or_else(|error| panic!("{error}"))
        };
        let order = Order { plot: None, ..order(1) };
        assert!(order.check(&[scenario("32s")]).is_ok());
        let said = order.check(&[scenario("31s")]).expect_err("too long").to_string();
        assert_eq!(said, "x: up to `later` the steps wait 32s, which is not within the `timeout` of 31s");
    }
}
