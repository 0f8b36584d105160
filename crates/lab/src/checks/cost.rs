//! The check `cost`.

use serde::Deserialize;
use toml::Spanned;

use super::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{Mistake, Scope};
use crate::steps::{COST, CostRun};

/// The best of fewer undisturbed runs means little.
const RUNS_MIN: usize = 50;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cost {
    label: Spanned<String>,
    base: Spanned<String>,
    most: f64,
}

impl Check for Cost {
    const NAME: &'static str = "cost";
    const MEANING: &'static str =
        "The best run of one `cost` step took at most this many times as long as the best run of another.";
    const KEYS: &'static [Key] = &[
        key("label", "cost", "the label of a `cost` step"),
        key("base", "cost", "the label of the step that it is compared with"),
        key("most", "number", "the greatest quotient"),
    ];
    const READS_CAPTURES: bool = false;

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.defined(COST, &self.label)?;
        scope.defined(COST, &self.base)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let of = |label: &String| {
            let run = evidence.all::<CostRun>().find(|run| run.label == *label);
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
        let (label, base) = (self.label.as_ref(), self.base.as_ref());
        let (now, before) = (of(label)?, of(base)?);
        let times = now / before;
        let seen = format!(
            "{label}: {now:.2} µs a packet, {times:.2} times {base} ({before:.2} µs), at most {}",
            self.most
        );
        if times <= self.most { Ok(seen) } else { Err(seen) }
    }
}
