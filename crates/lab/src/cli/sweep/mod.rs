//! `signalbox lab sweep`: the runs of a sweep, one after the other, and their result.

mod directory;
mod schedule;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

use self::directory::Directory;
use self::schedule::{left, schedule};
use super::once::{Wish, once};
use super::{checked, runs};
use crate::language::Scenario;
use crate::language::sweep::{Point, Sweep};
use crate::report::about::About;
use crate::report::object;
use crate::report::sweep::{Finished, Place, Swept};
use crate::run::machine::Watch;
use crate::run::{command, daemon, requires, wait};

/// What the command line asks for.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    pub(crate) name: &'a str,
    /// Values of parameters that are not swept.
    pub(crate) set: &'a [(String, String)],
    /// Instead of what the file says.
    pub(crate) repeat: Option<u32>,
    /// Instead of what the file says, if there is one.
    pub(crate) measure: Vec<String>,
    /// Instead of what the file says.
    pub(crate) seed: Option<u64>,
    /// The directory of the results.
    pub(crate) out: &'a Path,
}

/// A sweep in which no mistake can be found without running it.
#[derive(Debug)]
pub(crate) struct Ordered<'a> {
    sweep: Sweep,
    seed: u64,
    points: Vec<Point>,
    /// The scenario at each of the points.
    scenarios: Vec<Scenario>,
    out: &'a Path,
}

impl<'a> Order<'a> {
    /// Reads the scenario at each point. Nothing is made.
    ///
    /// # Errors
    /// Mistakes in the scenario or at a point, or a value for a parameter that varies.
    pub(crate) fn checked(self) -> Result<Ordered<'a>> {
        let scenario = checked(self.name, self.set)?;
        let mut sweep = scenario.sweep.clone().unwrap_or_default();
        if let Some(repeat) = self.repeat {
            sweep.repeat = repeat;
        }
        if !self.measure.is_empty() {
            sweep.measure = self.measure;
        }
        let scenarios = at_points(self.name, self.set, &sweep)?;
        scenarios.iter().try_for_each(runs::in_time)?;
        let points = sweep.points();
        Ok(Ordered { sweep, seed: self.seed.unwrap_or(scenario.seed), points, scenarios, out: self.out })
    }
}

/// Returns the scenario at each point of a sweep.
///
/// # Errors
/// The mistakes at the first point that has one, or a value for a parameter that varies.
pub(super) fn at_points(name: &str, set: &[(String, String)], sweep: &Sweep) -> Result<Vec<Scenario>> {
    if let Some(axis) = sweep.over.iter().find(|axis| set.iter().any(|(name, _)| *name == axis.name)) {
        bail!("`{0}` is swept, so that it takes no value of --set; take one of them out", axis.name);
    }
    let at = |point: Point| {
        let set: Vec<_> = set.iter().cloned().chain(point.set()).collect();
        checked(name, &set).map_err(|mistakes| match point.0.is_empty() {
            true => mistakes,
            false => anyhow!("at {}: {mistakes}", point.text()),
        })
    };
    sweep.points().into_iter().map(at).collect()
}

impl Ordered<'_> {
    /// Runs what is not done yet, and returns the result of all runs. What is finished is in the directory at any time.
    ///
    /// # Errors
    /// What keeps a run from being made, an interruption, a directory that cannot be written or belongs to something else.
    pub(crate) fn run(mut self) -> Result<Swept> {
        wait::catch_signals()?;
        let watch = Watch::start();
        let first = self.scenarios.first().context("a sweep has a point")?;
        if let Some(why) = requires::lacking(first)? {
            bail!("{}: {why}", first.name);
        }
        if first.nodes.iter().any(|node| node.daemon) {
            daemon::place()?;
            command::place()?;
        }
        let (mut directory, mut finished) = Directory::open(self.out, &self.plan(first, &watch)?)?;
        let ended = self.work(&mut directory, &mut finished);
        let first = self.scenarios.first().context("a sweep has a point")?;
        let swept = Swept::new(first, &self.sweep, self.seed, finished.clone(), watch.machine());
        let written = write(&directory, &swept, &finished);
        match ended.and(written) {
            Ok(()) => Ok(swept),
            Err(error) => Err(anyhow!(
                "{error:#}; {} of {} runs are kept in {}, and the same command goes on with the others",
                swept.runs,
                self.number(),
                self.out.display()
            )),
        }
    }

    /// Returns the number of all counted runs.
    fn number(&self) -> usize {
        self.points.len().saturating_mul(usize::try_from(self.sweep.repeat).unwrap_or(usize::MAX))
    }

    /// Describes what the results in a directory have in common. Other runs can be added as long as it stays the same.
    fn plan(&self, first: &Scenario, watch: &Watch) -> Result<Value> {
        let swept: Vec<_> = self.sweep.over.iter().map(|axis| axis.name.as_str()).collect();
        let machine = watch.machine();
        let about = serde_json::to_value(About::lab(first).without(&swept))?;
        Ok(json!({
            "scenario": first.name,
            "digest": about["digest"],
            "parameters": about["parameters"],
            "over": self.sweep.over,
            "order": self.sweep.order,
            "seed": self.seed,
            "programs": about["programs"],
            "machine": {"processor": machine.processor, "processors": machine.processors, "kernel": machine.kernel},
        }))
    }

    fn work(&mut self, directory: &mut Directory, finished: &mut Vec<Finished>) -> Result<()> {
        let mut pending = schedule(&self.sweep, self.points.len(), self.seed);
        // More repetitions than are asked for now are kept, too.
        pending.retain(|place| finished.iter().all(|run| run.place != *place));
        if let Some(place) = pending.first().copied() {
            for number in 1..=self.sweep.warm_up {
                let what = format!("warm-up {number} of {}, not counted", self.sweep.warm_up);
                self.one(place, &what)?;
            }
        }
        let all = finished.len() + pending.len();
        for (done, place) in pending.iter().enumerate() {
            let mut what = format!("run {} of {all}", finished.len() + 1);
            if let Some(time) = left(finished, pending.get(done..).unwrap_or_default()) {
                // Writing to a string does not fail.
                let _ = write!(what, ", {time} left");
            }
            let line = self.one(*place, &what)?;
            directory.keep(&line)?;
            finished.extend(Finished::read(&serde_json::from_str(&line)?));
        }
        Ok(())
    }

    /// Makes one run, and returns its object.
    fn one(&mut self, place: Place, what: &str) -> Result<String> {
        let at = place.point.saturating_sub(1);
        let (Some(scenario), Some(point)) = (self.scenarios.get_mut(at), self.points.get(at)) else {
            bail!("no point {}", place.point);
        };
        // Between the runs the time of none is running.
        wait::limit(None);
        wait::check()?;
        let point = if point.0.is_empty() { String::new() } else { format!(", {}", point.text()) };
        // Progress that cannot be printed is no reason to fail.
        let _ = writeln!(io::stderr(), "{}: {what}{point}", scenario.name);
        // Runs with the same number draw the same at all points.
        scenario.seed = self.seed.wrapping_add(u64::from(place.repetition) - 1);
        let wish = Wish { number: place.repetition, sweep: Some(place), silent: true, ..Wish::default() };
        let (run, _) = once(scenario, &wish, &|_| ()).map_err(|error| anyhow!("{what}{point}: {error:#}"))?;
        Ok(object::line("lab_run", &run)?)
    }
}

/// Writes the files that are made from all runs.
fn write(directory: &Directory, swept: &Swept, finished: &[Finished]) -> Result<()> {
    directory.write("sweep.json", &(object::line("lab_sweep", swept)? + "\n"))?;
    directory.write("sweep.csv", &swept.averages())?;
    directory.write("runs.csv", &swept.rows(finished))?;
    match swept.plot()? {
        Some(svg) => directory.write("sweep.svg", &svg),
        None => directory.remove("sweep.svg"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::scratch::Scratch;

    const FILE: &str = r#"version = 2
name = "x"
description = ""
[params]
sessions = 3
[topology]
chain = ["a", "b"]
[[steps]]
ping = { from = "a", to = "b", sessions = "${sessions}" }
[sweep]
repeat = 2
[sweep.over]
sessions = [1, 10]
"#;

    fn ordered(text: &str, set: &[(&str, &str)], repeat: Option<u32>) -> Result<(Sweep, u64, usize), String> {
        let scratch = Scratch::new("sweep").expect("a directory");
        let file = scratch.join("x.toml");
        std::fs::write(&file, text).expect("it is writable");
        let set: Vec<_> = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let name = file.display().to_string();
        let order = Order {
            name: &name,
            set: &set,
            repeat,
            measure: Vec::new(),
            seed: Some(9),
            out: Path::new("out"),
        };
        let ordered = order.checked().map_err(|error| error.to_string())?;
        Ok((ordered.sweep, ordered.seed, ordered.scenarios.len()))
    }

    #[test]
    fn the_command_line_goes_over_the_file() {
        let (sweep, seed, points) = ordered(FILE, &[], Some(7)).expect("sound");
        assert_eq!((sweep.repeat, seed, points), (7, 9, 2));
        let without = FILE.split("[sweep]").next().expect("a first part");
        let (sweep, _, points) = ordered(without, &[("sessions", "4")], Some(3)).expect("sound");
        assert_eq!((sweep.repeat, points), (3, 1), "a scenario without a sweep is repeated");
    }

    #[test]
    fn a_mistake_at_a_point_names_the_point_before_anything_is_made() {
        let said = ordered(&FILE.replace("[1, 10]", "[1, 5000]"), &[], None).expect_err("too many sessions");
        assert!(said.starts_with("at sessions=5000: ") && said.contains("between 1 and 1000"), "{said}");
        let said = ordered(FILE, &[("sessions", "4")], None).expect_err("swept and set");
        assert_eq!(said, "`sessions` is swept, so that it takes no value of --set; take one of them out");
    }
}
