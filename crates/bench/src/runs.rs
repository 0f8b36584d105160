//! The common part of benchmarks of an engine in memory: runs with several numbers of sessions, the table or JSON of
//! the figures, and the goals.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};
use signalbox_core::SessionId;
use signalbox_core::rng::Random;
use signalbox_lab::machine::Watch;

use super::Goal;
use super::figures::{Column, Row, table};
use super::judged::Judged;

/// The most virtual time in which all sessions get one message each. It is below every time after which a protocol
/// refreshes or removes state, however many sessions there are.
const ONE_MESSAGE_EACH: Duration = Duration::from_secs(10);

/// With fewer sessions, memory that the allocator had left counts for more than theirs.
pub(super) const MEASURABLE: u32 = 10_000;

/// Returns the virtual time between two batches of `batch` messages with `sessions` sessions: at most `most`.
pub(super) fn batch_time(sessions: u32, batch: u32, most: Duration) -> Duration {
    most.min(ONE_MESSAGE_EACH / sessions.div_ceil(batch.max(1)).max(1))
}

/// Returns the id of the session with a number.
pub(super) fn session(number: u32) -> SessionId {
    let mut id = [7; 16];
    for (to, from) in id.iter_mut().zip(number.to_be_bytes()) {
        *to = from;
    }
    SessionId(id)
}

/// Returns the numbers below `count` in an order that no cache can predict, the same each time.
pub(super) fn shuffled(count: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut random = Random::from_number(1);
    for last in (1..order.len()).rev() {
        let other = random.range(0..u64::try_from(last + 1).unwrap_or(1));
        order.swap(last, usize::try_from(other).unwrap_or(last));
    }
    order
}

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

/// One number of sessions, and its figures.
struct Run {
    sessions: u32,
    row: Row,
}

impl Bench<'_> {
    /// Measures with each number of sessions and prints the result.
    pub(super) fn run(&self, sessions: &[u32], measure: impl Fn(u32) -> Result<Vec<f64>>) -> Result<()> {
        let watch = Watch::start();
        let runs = match sessions {
            [sessions] if self.repeats.runs == 1 => {
                let mut row = Row::new(sessions.to_string());
                row.add(&measure(*sessions)?);
                vec![Run { sessions: *sessions, row }]
            }
            // A process of its own for each number: memory given back by one run would hide what the next takes.
            many => many.iter().map(|sessions| self.repeated(*sessions)).collect::<Result<_>>()?,
        };
        let mut figures = json!({
            "repeated": self.repeats.runs,
            "runs": runs.iter().map(|run| self.to_json(run)).collect::<Vec<_>>(),
        });
        for (name, value) in self.options {
            figures[*name] = json!(value);
        }
        let judged = Judged::new(self.name, &watch, self.goals(&runs), self.faults(&runs));
        judged.print(self.repeats.json, &figures, &self.text(&runs)?)
    }

    /// Figures that cannot be: a message without time, or a session without memory.
    fn faults(&self, runs: &[Run]) -> Vec<String> {
        let mut faults = Vec::new();
        for run in runs.iter().filter(|run| run.sessions >= MEASURABLE) {
            for limit in self.limits.iter().filter(|limit| !limit.growth) {
                let figure = run.row.median(self.columns, limit.key);
                if figure <= 0.0 {
                    faults.push(format!("{}: {figure:.1} with {} sessions", limit.name, run.sessions));
                }
            }
        }
        faults
    }

    fn repeated(&self, sessions: u32) -> Result<Run> {
        let mut row = Row::new(sessions.to_string());
        for _ in 0..self.repeats.runs {
            row.add(&self.in_child(sessions)?);
        }
        Ok(Run { sessions, row })
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
        // What one run measured is judged with that of the others, even if it cannot be.
        let report: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        let said = || format!("{sessions} sessions: {}", String::from_utf8_lossy(&output.stderr).trim());
        let report = report.with_context(said)?;
        let run = &report["runs"][0];
        let figures = self.columns.iter().map(|column| run[column.key].as_f64());
        figures.collect::<Option<_>>().context("the run printed no result")
    }

    fn to_json(&self, run: &Run) -> Value {
        let mut object = run.row.json(self.columns);
        object.insert("sessions".to_owned(), json!(run.sessions));
        Value::Object(object)
    }

    fn goals(&self, runs: &[Run]) -> Vec<Goal> {
        let most = runs.iter().max_by_key(|run| run.sessions);
        let least = runs.iter().min_by_key(|run| run.sessions);
        let (Some(most), Some(least)) = (most, least) else { return Vec::new() };
        let limits = self.limits.iter().filter(|limit| !limit.growth || least.sessions < most.sessions);
        limits
            .map(|limit| {
                let of = |run: &Run| run.row.median(self.columns, limit.key);
                let measured = if limit.growth { of(most) / of(least) } else { of(most) };
                Goal::at_most(limit.name, limit.wanted, limit.limit, measured)
            })
            .collect()
    }

    fn text(&self, runs: &[Run]) -> Result<String> {
        let rows: Vec<_> = runs.iter().map(|run| run.row.clone()).collect();
        let table = table("sessions", self.columns, &rows)?;
        Ok(format!("medians of {} runs, least and most below\n\n{table}", self.repeats.runs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_sessions_take_no_more_virtual_time_than_some() {
        let most = Duration::from_millis(5);
        assert_eq!(batch_time(1_000_000, 512, most), most);
        let batches = 10_000_000_u32.div_ceil(512);
        assert!(batches * batch_time(10_000_000, 512, most) <= ONE_MESSAGE_EACH);
        assert_eq!(batch_time(1, 512, most), most);
    }
}
