//! A table that fills: what a set-up costs with so many sessions there already.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use signalbox_linux::process::{Scheduling, Usage};

use super::super::super::{median, rounded};
use super::ends::Ends;
use super::{Run, micros};

/// The figures of the set-ups from the number of sessions of the step before to that of this one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Step {
    /// The sessions at its end.
    pub(super) sessions: u32,
    /// Set-ups per second.
    pub(super) rate: f64,
    /// Microseconds of processor time for each set-up.
    pub(super) processor: f64,
    /// Resident octets for each session; of the daemon only, as what follows.
    pub(super) octets: f64,
    /// Microseconds for each set-up in which a thread could run, and waited for a processor.
    pub(super) waiting: f64,
    /// How often a thread gave up its processor, for each set-up.
    pub(super) switches: f64,
}

/// What was used until a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    pub(super) cpu: Duration,
    pub(super) memory: u64,
    pub(super) scheduling: Scheduling,
}

impl From<(Usage, Scheduling)> for Used {
    fn from((Usage { cpu, memory }, scheduling): (Usage, Scheduling)) -> Self {
        Self { cpu, memory, scheduling }
    }
}

/// Fills the table up to each number of sessions, and measures each step. `used` is what the router has used until now.
pub(super) fn fill(
    ends: &mut Ends,
    steps: &[u32],
    window: u32,
    used: impl Fn() -> Result<Used>,
) -> Result<Vec<Step>> {
    let (mut from, mut figures) = (0, Vec::new());
    for sessions in steps.iter().copied() {
        let (before, start) = (used()?, Instant::now());
        ends.set_up(from, sessions, window)?;
        let (time, after) = (start.elapsed(), used()?);
        let count = f64::from(sessions - from);
        let switches = |used: &Used| used.scheduling.voluntary + used.scheduling.involuntary;
        figures.push(Step {
            sessions,
            rate: count / time.as_secs_f64(),
            processor: micros(after.cpu - before.cpu) / count,
            octets: after.memory.saturating_sub(before.memory) as f64 / count,
            waiting: micros(after.scheduling.waiting.saturating_sub(before.scheduling.waiting)) / count,
            switches: switches(&after).saturating_sub(switches(&before)) as f64 / count,
        });
        from = sessions;
    }
    Ok(figures)
}

/// The median of the runs of a figure of a step.
pub(super) fn figure(runs: &[Run], at: usize, of: fn(&Step) -> f64) -> f64 {
    median(runs.iter().filter_map(|run| run.steps.get(at)).map(of))
}

/// All steps, as JSON. `process`: what ran was a process of its own, with figures that only such a one has.
pub(super) fn json(runs: &[Run], process: bool) -> Value {
    let steps = runs.first().map_or(&[][..], |run| &run.steps);
    let all = steps.iter().enumerate().map(|(at, step)| {
        let of = |figure_of: fn(&Step) -> f64| rounded(figure(runs, at, figure_of));
        let mut row = json!({
            "sessions": step.sessions,
            "set_ups_per_second": of(|step| step.rate),
            "processor_us_per_set_up": of(|step| step.processor),
        });
        if process {
            row["octets_per_session"] = of(|step| step.octets).into();
            row["waiting_us_per_set_up"] = of(|step| step.waiting).into();
            row["switches_per_set_up"] = of(|step| step.switches).into();
        }
        row
    });
    all.collect()
}
