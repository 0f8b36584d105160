//! The report: each published figure beside what was measured.

pub(crate) mod csv;
pub(crate) mod html;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use signalbox_lab::machine::{Machine, Watch};
use signalbox_lab::{object, provenance};

use crate::experiment::{Command, Experiment, Mode};
use crate::measure::{Measured, measure};
use crate::papers::{Figure, Paper, Place};
use crate::selection::Selection;
use crate::store::Kept;
use crate::units::{self, Printed};

/// What each command printed, by its words.
pub(crate) type Runs = BTreeMap<Vec<String>, Kept>;

/// Everything that the pages say.
pub(crate) struct Report<'a> {
    pub(crate) selection: &'a Selection,
    pub(crate) rows: Vec<Row<'a>>,
    pub(crate) counts: Counts,
    pub(crate) machine: Machine,
    started_unix_us: u64,
    runs: &'a Runs,
}

/// A published figure, and what was measured.
pub(crate) struct Row<'a> {
    pub(crate) figure: &'a Figure,
    /// In the unit of the figure.
    pub(crate) measured: Option<Measured>,
    /// What was measured, in units of what was published.
    pub(crate) ratio: Option<f64>,
}

/// How many figures have which place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) figures: usize,
    pub(crate) repeated: usize,
    /// Of the repeated ones, those that this run measured.
    pub(crate) measured: usize,
    pub(crate) cannot: usize,
    pub(crate) definition: usize,
    pub(crate) not_yet: usize,
}

impl<'a> Report<'a> {
    /// Puts together what was measured.
    pub(crate) fn new(selection: &'a Selection, runs: &'a Runs, watch: &Watch) -> Self {
        let found: BTreeMap<(&str, &str), BTreeMap<String, Measured>> = selection
            .experiments
            .iter()
            .map(|experiment| {
                ((experiment.paper, experiment.name), of_experiment(experiment, selection.mode, runs))
            })
            .collect();
        let row = |figure: &'a Figure| {
            let Place::Repeated { experiment, measurement } = figure.place else {
                return Row { figure, measured: None, ratio: None };
            };
            let known = selection
                .experiments
                .iter()
                .find(|known| known.paper == figure.paper && known.name == experiment);
            let unit = known.and_then(|known| known.measurement(measurement)).map(|known| &*known.unit);
            let measured = found.get(&(figure.paper, experiment)).and_then(|found| found.get(measurement));
            let measured = measured.zip(unit).and_then(|(found, unit)| {
                units::factor(unit, figure.unit).map(|factor| found.scaled(factor))
            });
            let ratio = measured.as_ref().and_then(|found| Printed::read(figure.value)?.ratio(found.value));
            Row { figure, measured, ratio }
        };
        let rows: Vec<_> = selection.figures.iter().map(row).collect();
        let counts = Counts::of(&rows);
        Self {
            selection,
            rows,
            counts,
            machine: watch.machine(),
            started_unix_us: watch.started_unix_us(),
            runs,
        }
    }

    /// Returns the figures of an experiment.
    pub(crate) fn rows_of(&self, experiment: &Experiment) -> impl Iterator<Item = &Row<'a>> {
        let (paper, name) = (experiment.paper, experiment.name);
        self.rows
            .iter()
            .filter(move |row| row.figure.paper == paper && row.figure.place.experiment() == Some(name))
    }

    /// Returns the commands of an experiment in this mode, each with what it printed if it ran.
    pub(crate) fn runs_of<'b>(
        &'b self,
        experiment: &'b Experiment,
    ) -> impl Iterator<Item = (&'b Command, Option<&'b Kept>)> {
        let commands = experiment.runs.iter().filter_map(|run| run.command(self.selection.mode));
        commands.map(|command| (command, self.runs.get(&command.words)))
    }

    /// Returns the commands that failed, with the reasons.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (String, &str)> {
        self.selection.commands().into_iter().filter_map(|command| {
            let reason = self.runs.get(&command.words)?.reason.as_deref()?;
            Some((command.shown(), reason))
        })
    }

    /// Says in a sentence what the figures at the head of the page mean.
    pub(crate) fn summary(&self) -> String {
        let Counts { figures, repeated, measured, cannot, definition, not_yet } = self.counts;
        format!(
            "{measured} of {figures} published figures were measured in this run. {repeated} have an experiment, {not_yet} could be repeated and \
             have none yet, {cannot} cannot be repeated, {definition} are definitions or no numbers."
        )
    }

    /// Returns the report for people at a terminal.
    pub(crate) fn text(&self) -> String {
        let mut text = self.summary();
        for (command, reason) in self.failures() {
            // Writing to a string does not fail.
            let _ = write!(text, "\nFAILED: {command}\n        {reason}");
        }
        text
    }

    /// Returns the time that the commands took.
    pub(crate) fn took(&self) -> Duration {
        let commands = self.selection.commands();
        Duration::from_millis(
            commands
                .iter()
                .filter_map(|command| self.runs.get(&command.words))
                .map(|kept| kept.elapsed_ms)
                .sum(),
        )
    }

    /// Returns the report for programs.
    pub(crate) fn json(&self) -> Result<String> {
        let Counts { figures, repeated, measured, cannot, definition, not_yet } = self.counts;
        let run = |(command, kept): (&Command, Option<&Kept>)| {
            json!({
                "command": command.shown(),
                "started_unix_us": kept.map(|kept| kept.started_unix_us),
                "elapsed_ms": kept.map(|kept| kept.elapsed_ms),
                "ok": kept.map(|kept| kept.reason.is_none()),
                "reason": kept.and_then(|kept| kept.reason.as_deref()),
                "verdict": kept.and_then(verdict),
            })
        };
        let experiments: Vec<Value> = self
            .selection
            .experiments
            .iter()
            .map(|known| {
                json!({
                    "paper": known.paper, "name": known.name, "title": known.title, "about": known.about,
                    "alone": known.alone(self.selection.mode), "runs": self.runs_of(known).map(run).collect::<Vec<_>>(),
                })
            })
            .collect();
        let whole = json!({
            "mode": self.selection.mode.word(),
            "ok": self.failures().next().is_none(),
            "started_unix_us": self.started_unix_us,
            "program": provenance::own(),
            "machine": self.machine,
            "counts": {
                "figures": figures, "repeated": repeated, "measured": measured, "cannot": cannot, "definition": definition, "not_yet": not_yet,
            },
            "papers": self.selection.papers,
            "experiments": experiments,
            "figures": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
        });
        Ok(object::line("lab_reproduce", &whole)?)
    }

    /// Returns the experiments of a paper.
    pub(crate) fn experiments_of(&self, paper: &Paper) -> impl Iterator<Item = &'a Experiment> {
        let name = paper.name.clone();
        self.selection.experiments.iter().filter(move |experiment| experiment.paper == name)
    }
}

/// Measures an experiment from what its commands printed.
fn of_experiment(experiment: &Experiment, mode: Mode, runs: &Runs) -> BTreeMap<String, Measured> {
    let outputs = experiment.runs.iter().filter_map(|run| {
        let kept = runs.get(&run.command(mode)?.words)?;
        kept.reason.is_none().then_some((&*run.id, &*kept.objects))
    });
    measure(experiment, &outputs.collect())
}

/// Whether other programs disturbed a run, as it says itself.
pub(crate) fn verdict(kept: &Kept) -> Option<&str> {
    kept.objects.iter().find_map(|object| object["verdict"].as_str())
}

impl Row<'_> {
    fn json(&self) -> Value {
        let Self { figure, measured, ratio } = self;
        json!({
            "row": figure.row,
            "paper": figure.paper,
            "item": figure.item,
            "metric": figure.metric,
            "condition": figure.condition,
            "published": figure.value,
            "unit": figure.unit,
            "note": figure.note,
            "place": figure.place.word(),
            "why": figure.place.why(),
            "experiment": figure.place.experiment(),
            "measurement": figure.place.measurement(),
            "contradiction": figure.contradiction,
            "value": measured.as_ref().map(|found| found.value),
            "ratio": ratio,
            "samples": measured.as_ref().and_then(|found| found.samples),
            "least": measured.as_ref().and_then(|found| found.interval).map(|(least, _)| least),
            "most": measured.as_ref().and_then(|found| found.interval).map(|(_, most)| most),
            "baseline": measured.as_ref().and_then(|found| found.baseline.as_ref()).map(|(value, _)| value),
            "baseline_is": measured.as_ref().and_then(|found| found.baseline.as_ref()).map(|(_, is)| is),
        })
    }
}

impl Counts {
    fn of(rows: &[Row<'_>]) -> Self {
        let count = |is: fn(&Place) -> bool| rows.iter().filter(|row| is(&row.figure.place)).count();
        Self {
            figures: rows.len(),
            repeated: count(|place| matches!(place, Place::Repeated { .. })),
            measured: rows.iter().filter(|row| row.measured.is_some()).count(),
            cannot: count(|place| matches!(place, Place::Cannot(_))),
            definition: count(|place| matches!(place, Place::Definition(_))),
            not_yet: count(|place| matches!(place, Place::NotYet(_))),
        }
    }
}

/// Writes a number with four digits that count.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e7).contains(&size) {
        return format!("{value:.2e}");
    }
    let digits = [1000.0, 100.0, 10.0, 1.0, 0.1, 0.01].iter().position(|least| size >= *least).unwrap_or(6);
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A report in which one command of each of two experiments ran, and one of them failed.
    pub(crate) fn with<T>(use_it: impl FnOnce(&Report<'_>) -> T) -> T {
        let selection = Selection::new(Some("boomerang-2001"), Mode::Full).expect("it is there");
        let lines: Vec<_> = [0, 20_000, 40_000, 60_000]
            .iter()
            .flat_map(|kept| {
                ["reservation", "tear", "ping"].map(|message| {
                    json!({"reservations": kept, "message": message, "count": 30, "median_us": 106.0, "scv": 0.25, "least_us": 90.0, "most_us": 200.0})
                })
            })
            .collect();
        let good = json!({"type": "lab_run", "ok": true, "verdict": "disturbed", "measurements": {"programs": {"observer": {"lines": lines}}}});
        let mut runs = Runs::new();
        for command in selection.commands() {
            let is_good = command.words.contains(&"boomerang-60k".to_owned());
            let reason = (!is_good).then(|| "no <right>".to_owned());
            let objects = if is_good { vec![good.clone()] } else { Vec::new() };
            let kept = Kept {
                command: command.words.clone(),
                made_by: Value::Null,
                started_unix_us: 1,
                elapsed_ms: 1000,
                objects,
                reason,
            };
            runs.insert(command.words.clone(), kept);
        }
        use_it(&Report::new(&selection, &runs, &Watch::start()))
    }

    #[test]
    fn a_figure_stands_beside_the_published_one_in_its_unit() {
        with(|report| {
            let row = &report.rows[7];
            assert_eq!((row.figure.value, row.figure.condition), ("0.053", "0 sessions"));
            let measured = row.measured.as_ref().expect("measured");
            assert_eq!(
                (number(measured.value), row.ratio.map(number)),
                ("0.106".to_owned(), Some("2".to_owned()))
            );
            assert_eq!(
                (measured.samples, measured.interval.map(|(least, _)| number(least))),
                (Some(30.0), Some("0.09".to_owned()))
            );
        });
    }

    #[test]
    fn a_failure_is_told_and_the_other_figures_are_there() {
        with(|report| {
            let Counts { figures, repeated, measured, cannot, definition, not_yet } = report.counts;
            assert_eq!(figures, repeated + cannot + definition + not_yet);
            assert!(measured >= 16 && measured < repeated, "{:?}", report.counts);
            assert!(
                report
                    .failures()
                    .all(|(command, reason)| command.starts_with("signalbox ") && reason == "no <right>")
            );
            assert!(report.text().contains("FAILED: signalbox "));
            let object: Value = serde_json::from_str(&report.json().expect("an object")).expect("JSON");
            assert_eq!((&object["type"], &object["ok"]), (&json!("lab_reproduce"), &json!(false)));
            assert_eq!(object["figures"][7]["ratio"], json!(2.0));
        });
    }

    #[test]
    fn numbers_have_four_digits_that_count() {
        let all = [0.0, 0.0531, 1.23456, 45.0, 123.456, 12345.6, 0.000_012_3, 2.0];
        assert_eq!(all.map(number), ["0", "0.0531", "1.235", "45", "123.5", "12346", "1.23e-5", "2"]);
    }
}
