//! Experiments, as their files say them: which commands run, and which of their measurements is which figure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Deserialize;
use signalbox_units::Span;

use crate::pointer::Pointer;
use crate::units;

const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/experiments.rs"));

/// The name by which people call the program, in commands that are shown.
pub(crate) const PROGRAM: &str = "signalbox";

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All papers within ten minutes.
    Quick,
    /// As much as the papers.
    Full,
}

impl Mode {
    /// The option that asks for it, without hyphens.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

/// An experiment of a paper.
#[derive(Debug)]
pub(crate) struct Experiment {
    pub(crate) paper: &'static str,
    pub(crate) name: &'static str,
    pub(crate) title: String,
    /// What is done, and what differs from the paper.
    pub(crate) about: String,
    /// Its file.
    pub(crate) text: &'static str,
    pub(crate) runs: Vec<Run>,
    pub(crate) measurements: Vec<Measurement>,
}

/// A command that an experiment runs.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) id: String,
    /// `None`: not in this mode.
    quick: Option<Command>,
    full: Command,
}

/// The words behind the name of the program, and how long it takes.
#[derive(Debug, Clone)]
pub(crate) struct Command {
    pub(crate) words: Vec<String>,
    pub(crate) takes: Duration,
}

/// A number that an experiment measures.
#[derive(Debug)]
pub(crate) struct Measurement {
    pub(crate) name: String,
    pub(crate) unit: String,
    /// It is so many times what the source has.
    pub(crate) times: f64,
    pub(crate) source: Source,
}

/// Where a number comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The output of a run.
    Read { run: String, places: Places },
    /// Measurements above it in the file.
    Computed { of: Of, parts: Vec<String> },
}

/// Places in the output of a run.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) value: Pointer,
    pub(crate) samples: Option<Pointer>,
    pub(crate) least: Option<Pointer>,
    pub(crate) most: Option<Pointer>,
    /// What the same run measured without the protocol, and what that is.
    pub(crate) baseline: Option<(Pointer, String)>,
}

/// How a number follows from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Of {
    /// All of them together.
    Sum,
    /// The first without the others.
    Difference,
    /// The first in units of the second.
    Quotient,
    /// All of them, from the least to the greatest.
    Range,
}

impl Run {
    /// Returns its command in a mode, if it has one.
    pub(crate) fn command(&self, mode: Mode) -> Option<&Command> {
        match mode {
            Mode::Quick => self.quick.as_ref(),
            Mode::Full => Some(&self.full),
        }
    }
}

impl Command {
    /// Returns it as people write it.
    pub(crate) fn shown(&self) -> String {
        format!("{PROGRAM} {}", self.words.join(" "))
    }
}

impl Experiment {
    /// Returns the command that repeats it alone.
    pub(crate) fn alone(&self, mode: Mode) -> String {
        format!("{PROGRAM} lab reproduce {}/{} --{}", self.paper, self.name, mode.word())
    }

    /// Returns the measurement of this name.
    pub(crate) fn measurement(&self, name: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|measurement| measurement.name == name)
    }
}

/// Returns all experiments.
pub(crate) fn all() -> Result<Vec<Experiment>> {
    BUILT_IN.iter().map(|(place, text)| read(place, text).with_context(|| format!("{place}.toml"))).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    about: String,
    runs: Vec<RunText>,
    measurements: Vec<MeasurementText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunText {
    id: String,
    #[serde(default)]
    each: toml::Table,
    command: String,
    /// More words in a mode.
    #[serde(default)]
    quick: String,
    #[serde(default)]
    full: String,
    takes: Takes,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Takes {
    quick: Option<Span>,
    full: Span,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasurementText {
    name: String,
    #[serde(default)]
    each: toml::Table,
    unit: String,
    #[serde(default = "once")]
    times: f64,
    run: Option<String>,
    value: Option<String>,
    samples: Option<String>,
    least: Option<String>,
    most: Option<String>,
    baseline: Option<String>,
    baseline_is: Option<String>,
    of: Option<Of>,
    #[serde(default)]
    parts: Vec<String>,
}

const fn once() -> f64 {
    1.0
}

/// Reads the file of an experiment; `place` is the paper and the name.
fn read(place: &'static str, text: &'static str) -> Result<Experiment> {
    let (paper, name) = place.split_once('/').context("a file lies in the directory of its paper")?;
    let file: File = toml::from_str(text)?;
    let mut runs: Vec<Run> = Vec::new();
    for run in &file.runs {
        for values in combinations(&run.each)? {
            let fill = |text: &str| filled(text, &values);
            let command = |more: &str, takes: Span| {
                let words = fill(&format!("{} {more}", run.command));
                Command { words: words.split_whitespace().map(str::to_owned).collect(), takes: takes.0 }
            };
            let id = fill(&run.id);
            ensure!(runs.iter().all(|run| run.id != id), "the run {id} stands there twice");
            let quick = run.takes.quick.map(|takes| command(&run.quick, takes));
            runs.push(Run { id, quick, full: command(&run.full, run.takes.full) });
        }
    }
    let mut measurements: Vec<Measurement> = Vec::new();
    let mut names = BTreeSet::new();
    for text in &file.measurements {
        for values in combinations(&text.each)? {
            let measurement = text.filled(&values)?;
            let name = &measurement.name;
            let known = match &measurement.source {
                Source::Read { run, .. } => runs.iter().any(|known| known.id == *run),
                Source::Computed { parts, .. } => {
                    !parts.is_empty() && parts.iter().all(|part| names.contains(part))
                }
            };
            ensure!(known, "{name}: it names a run, or measurements above it, that are not there");
            ensure!(
                units::factor(&measurement.unit, &measurement.unit).is_some(),
                "{name}: the unit {} is unknown",
                measurement.unit
            );
            ensure!(names.insert(name.clone()), "the measurement {name} stands there twice");
            measurements.push(measurement);
        }
    }
    let File { title, about, .. } = file;
    Ok(Experiment { paper, name, title, about, text, runs, measurements })
}

impl MeasurementText {
    fn filled(&self, values: &BTreeMap<String, String>) -> Result<Measurement> {
        let name = filled(&self.name, values);
        let pointer = |text: &Option<String>| {
            text.as_ref().map(|text| Pointer::read(&filled(text, values))).transpose()
        };
        let source = match (&self.run, &self.value, self.of) {
            (Some(run), Some(value), None) if self.parts.is_empty() => {
                let is = self.baseline_is.as_ref().map(|is| filled(is, values)).unwrap_or_default();
                let places = Places {
                    value: Pointer::read(&filled(value, values))?,
                    samples: pointer(&self.samples)?,
                    least: pointer(&self.least)?,
                    most: pointer(&self.most)?,
                    baseline: pointer(&self.baseline)?.map(|place| (place, is)),
                };
                Source::Read { run: filled(run, values), places }
            }
            (None, None, Some(of)) => {
                Source::Computed { of, parts: self.parts.iter().map(|part| filled(part, values)).collect() }
            }
            _ => bail!("{name}: a measurement has `run` and `value`, or `of` and `parts`"),
        };
        Ok(Measurement { name, unit: self.unit.clone(), times: self.times, source })
    }
}

/// Returns all combinations of the values in a table of lists.
fn combinations(each: &toml::Table) -> Result<Vec<BTreeMap<String, String>>> {
    let mut all = vec![BTreeMap::new()];
    for (name, values) in each {
        let values = values.as_array().ok_or_else(|| anyhow!("`each` has a list for {name}"))?;
        let text = |value: &toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        all = all
            .iter()
            .flat_map(|known: &BTreeMap<String, String>| {
                values.iter().map(move |value| {
                    let mut more = known.clone();
                    more.insert(name.clone(), text(value));
                    more
                })
            })
            .collect();
    }
    Ok(all)
}

/// Puts values in the places of `{name}`.
fn filled(text: &str, values: &BTreeMap<String, String>) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
title = "two"
about = "nothing differs"
[[runs]]
id = "n{n}"
each = { n = [0, 9] }
command = "lab run two --set n={n} --json"
quick = "--set rounds=3"
takes = { quick = "5s", full = "1m" }
[[measurements]]
name = "{kind}-{n}"
each = { kind = ["path", "resv"], n = [0, 9] }
run = "n{n}"
unit = "ms"
value = "times.{kind}.median"
[[measurements]]
name = "growth"
of = "quotient"
parts = ["path-9", "path-0"]
unit = "factor"
"#;

    fn text(text: String) -> Result<Experiment> {
        read("a-2000/two", text.leak())
    }

    #[test]
    fn a_file_stands_for_each_combination_of_its_values() {
        let experiment = text(TEXT.to_owned()).expect("sound");
        let quick: Vec<_> = experiment.runs.iter().filter_map(|run| run.command(Mode::Quick)).collect();
        assert_eq!(quick[1].shown(), "signalbox lab run two --set n=9 --json --set rounds=3");
        assert_eq!(
            experiment.runs[1].command(Mode::Full).map(|command| command.takes),
            Some(Duration::from_secs(60))
        );
        let names: Vec<_> = experiment.measurements.iter().map(|measurement| &*measurement.name).collect();
        assert_eq!(names, ["path-0", "path-9", "resv-0", "resv-9", "growth"]);
        assert_eq!(experiment.alone(Mode::Quick), "signalbox lab reproduce a-2000/two --quick");
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, said) in [
            ("run = \"n{n}\"", "run = \"m{n}\"", "path-0: it names a run"),
            ("\"path-9\", ", "\"path-8\", ", "growth: it names"),
            ("unit = \"ms\"", "unit = \"furlong\"", "the unit furlong is unknown"),
            ("of = \"quotient\"", "", "growth: a measurement has"),
            ("id = \"n{n}\"", "id = \"n\"", "the run n stands there twice"),
            ("title", "titel", "unknown field"),
        ] {
            let error = text(TEXT.replace(from, to)).expect_err(said).to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
