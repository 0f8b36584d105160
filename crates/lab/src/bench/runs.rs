//! The common part of benchmarks of an engine in memory: runs with several numbers of sessions, the table or JSON of
//! the figures, and the goals.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Map, Value, json};

use super::{Goal, machine, median, print, rounded};

/// Options of every benchmark of an engine.
#[derive(Debug, Clone, Args)]
pub struct Repeats {
    /// How often to repeat with each number of sessions; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// A figure of each run.
pub(super) struct Column {
    /// Its name in JSON.
    pub(super) key: &'static str,
    /// Its head in the table; empty: it is not there.
    pub(super) head: &'static str,
    /// Digits after the point in the table.
    pub(super) digits: usize,
}

/// A limit of a figure, with the most sessions.
pub(super) struct Limit {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    /// In words, with its unit.
    pub(super) wanted: &'static str,
    pub(super) limit: f64,
    /// It is about the quotient of the figures with the most sessions and with the fewest.
    pub(super) growth: bool,
}

impl Column {
    /// Returns a column of nanoseconds.
    pub(super) const fn ns(key: &'static str, head: &'static str) -> Self {
        Self { key, head, digits: 0 }
    }

    /// Returns a column of octets.
    pub(super) const fn octets(key: &'static str, head: &'static str) -> Self {
        Self { key, head, digits: 1 }
    }
}

impl Limit {
    /// Limits the octets of a session.
    pub(super) const fn size(name: &'static str, key: &'static str) -> Self {
        Self { name, key, wanted: "at most 300", limit: 300.0, growth: false }
    }

    /// Limits the growth from the fewest sessions to the most.
    pub(super) const fn flat(name: &'static str, key: &'static str) -> Self {
        Self { name, key, wanted: "at most 2.5 times", limit: 2.5, growth: true }
    }
}

/// A benchmark.
pub(super) struct Bench<'a> {
    /// Its name in JSON.
    pub(super) name: &'static str,
    /// The words behind `signalbox bench`.
    pub(super) command: [&'static str; 2],
    pub(super) columns: &'static [Column],
    pub(super) limits: &'static [Limit],
    /// Further options, which runs in other processes get as well.
    pub(super) options: &'a [(&'static str, u32)],
    pub(super) repeats: &'a Repeats,
}

/// One number of sessions.
struct Run {
    sessions: u32,
    /// The figures in the order of the columns, those of all repetitions, the least first.
    figures: Vec<Vec<f64>>,
}

impl Run {
    fn medians(&self) -> Vec<f64> {
        self.figures.iter().map(|all| median(all.iter().copied())).collect()
    }

    /// Returns the least and the largest value of each figure.
    fn spread(&self) -> impl Iterator<Item = (f64, f64)> {
        self.figures
            .iter()
            .map(|all| (all.first().copied().unwrap_or_default(), all.last().copied().unwrap_or_default()))
    }
}

impl Bench<'_> {
    /// Measures with each number of sessions and prints the result.
    pub(super) fn run(&self, sessions: &[u32], measure: impl Fn(u32) -> Result<Vec<f64>>) -> Result<()> {
        let watch = machine::Watch::start();
        let runs = match sessions {
            [sessions] if self.repeats.runs == 1 => {
                let figures = measure(*sessions)?.into_iter().map(|figure| vec![figure]).collect();
                vec![Run { sessions: *sessions, figures }]
            }
            // A process of its own for each number: memory given back by one run would hide what the next takes.
            many => many.iter().map(|sessions| self.repeated(*sessions)).collect::<Result<_>>()?,
        };
        let goals = self.goals(&runs);
        if self.repeats.json {
            let mut report = json!({
                "bench": self.name,
                "machine": watch.describe(),
                "repeated": self.repeats.runs,
                "runs": runs.iter().map(|run| self.to_json(run)).collect::<Vec<_>>(),
                "goals": goals.iter().map(Goal::json).collect::<Vec<_>>(),
            });
            for (name, value) in self.options {
                report[*name] = json!(value);
            }
            print(&report.to_string());
        } else {
            print(&self.table(&watch, &runs, &goals)?);
        }
        Ok(())
    }

    fn repeated(&self, sessions: u32) -> Result<Run> {
        let mut figures = vec![Vec::new(); self.columns.len()];
        for _ in 0..self.repeats.runs {
            for (all, figure) in figures.iter_mut().zip(self.in_child(sessions)?) {
                all.push(figure);
            }
        }
        for all in &mut figures {
            all.sort_by(f64::total_cmp);
        }
        Ok(Run { sessions, figures })
    }

    fn in_child(&self, sessions: u32) -> Result<Vec<f64>> {
        let program = std::env::current_exe().context("cannot find the own program")?;
        let mut command = Command::new(program);
        command.arg("bench").args(self.command).args([
            "--json",
            "--runs=1",
            "--sessions",
            &sessions.to_string(),
        ]);
        for (name, value) in self.options {
            command.args([format!("--{name}"), value.to_string()]);
        }
        let output = command.output().context("cannot start the own program again")?;
        ensure!(
            output.status.success(),
            "{sessions} sessions: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let report: Value = serde_json::from_slice(&output.stdout).context("the run printed no JSON")?;
        let run = &report["runs"][0];
        let figures = self.columns.iter().map(|column| run[column.key].as_f64());
        figures.collect::<Option<_>>().context("the run printed no result")
    }

    fn to_json(&self, run: &Run) -> Value {
        let keys = || self.columns.iter().map(|column| column.key.to_owned());
        let medians = run.medians().into_iter().map(|figure| json!(rounded(figure)));
        let spread = run.spread().map(|(least, most)| json!([rounded(least), rounded(most)]));
        let mut object: Map<String, Value> = keys().zip(medians).collect();
        object.insert("sessions".to_owned(), json!(run.sessions));
        object.insert("spread".to_owned(), Value::Object(keys().zip(spread).collect()));
        Value::Object(object)
    }

    fn goals(&self, runs: &[Run]) -> Vec<Goal> {
        let most = runs.iter().max_by_key(|run| run.sessions);
        let least = runs.iter().min_by_key(|run| run.sessions);
        let (Some(most), Some(least)) = (most, least) else { return Vec::new() };
        let limits = self.limits.iter().filter(|limit| !limit.growth || least.sessions < most.sessions);
        limits
            .filter_map(|limit| {
                let at = self.columns.iter().position(|column| column.key == limit.key)?;
                let (most, least) = (*most.medians().get(at)?, *least.medians().get(at)?);
                let measured = if limit.growth { most / least } else { most };
                Some(Goal::at_most(limit.name, limit.wanted, limit.limit, measured))
            })
            .collect()
    }

    fn table(&self, watch: &machine::Watch, runs: &[Run], goals: &[Goal]) -> Result<String> {
        let shown: Vec<_> = self.columns.iter().map(|column| !column.head.is_empty()).collect();
        let width = |column: &Column| column.head.len().max(8);
        let line = |text: &mut String, figures: &[f64]| -> Result<()> {
            let columns = self.columns.iter().zip(figures).zip(&shown);
            for ((column, figure), _) in columns.filter(|(_, shown)| **shown) {
                write!(text, "  {figure:>width$.digits$}", width = width(column), digits = column.digits)?;
            }
            Ok(())
        };
        let mut text =
            format!("{}\nmedians of {} runs, least and most below\n", watch.line(), self.repeats.runs);
        write!(text, "\n{:>9}", "sessions")?;
        for column in self.columns.iter().filter(|column| !column.head.is_empty()) {
            write!(text, "  {:>width$}", column.head, width = width(column))?;
        }
        for run in runs {
            write!(text, "\n{:>9}", run.sessions)?;
            line(&mut text, &run.medians())?;
            if self.repeats.runs > 1 {
                let (least, most): (Vec<_>, Vec<_>) = run.spread().unzip();
                for (name, figures) in [("least", least), ("most", most)] {
                    write!(text, "\n{name:>9}")?;
                    line(&mut text, &figures)?;
                }
            }
        }
        text.push('\n');
        for goal in goals {
            write!(text, "\n{goal}")?;
        }
        Ok(text)
    }
}
