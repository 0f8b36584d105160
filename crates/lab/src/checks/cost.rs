//! What a packet costs, compared with what it cost before.

use serde_json::{Value, json};

use super::Verdict;
use crate::evidence::{CostRun, Evidence};
use crate::scenario::CostCheck;

/// With fewer undisturbed runs the best of them means little.
const RUNS_MIN: usize = 50;

/// The best run is at most so many times the best run of the other step.
pub(super) fn cost(evidence: &Evidence, check: &CostCheck) -> Verdict {
    let of = |label: &String| {
        let run = evidence.costs.iter().find(|run| run.label == *label);
        let run = run.ok_or_else(|| format!("nothing was timed at {label:?}"))?;
        match run.least() {
            Some(least) if run.micros.len() >= RUNS_MIN => Ok(least),
            _ => Err(format!(
                "{label:?}: {} runs were undisturbed and {} were not; {RUNS_MIN} are needed",
                run.micros.len(),
                run.disturbed
            )),
        }
    };
    let (label, base) = (check.label.as_ref(), check.base.as_ref());
    let (now, before) = (of(label)?, of(base)?);
    let times = now / before;
    let seen = format!(
        "{label}: {now:.2} µs a packet, {times:.2} times {base} ({before:.2} µs), at most {}",
        check.most
    );
    if times <= check.most { Ok(seen) } else { Err(seen) }
}

/// For the report: an object a step, times in microseconds a packet.
pub(crate) fn measured(evidence: &Evidence) -> Value {
    let one = |run: &CostRun| {
        let value = json!({
            "us_least": run.least(), "us_median": run.micros.get(run.micros.len() / 2),
            "runs": run.micros.len(), "disturbed": run.disturbed,
        });
        (run.label.clone(), value)
    };
    Value::Object(evidence.costs.iter().map(one).collect())
}
