//! The check `output`: what a program printed, and how it ended.

use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::{Check, Verdict};
use crate::evidence::{Evidence, NOT_TAKEN};
use crate::kinds::{Key, key};
use crate::scenario::{Mistake, Scope};
use crate::steps::program::ProgramRun;
use crate::subset::Names;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Output {
    output: Spanned<String>,
    #[serde(default)]
    lines: Vec<toml::Value>,
    #[serde(default)]
    never: Vec<toml::Value>,
    #[serde(default)]
    status: i32,
}

impl Check for Output {
    const NAME: &'static str = "output";
    const MEANING: &'static str = "The program ended by itself or when it was asked to, with this status, and its output has these lines in this order.";
    const KEYS: &'static [Key] = &[
        key("output", "id", "a `run` or `reserve` step"),
        key("lines", "list of lines", "a text is a part of a line; a table is a part of the JSON object in a line. {NODE} in a text is the address of a node").or("[]"),
        key("never", "list of lines", "no line is like one of these").or("[]"),
        key("status", "number", "exit status of the program").or("0"),
    ];
    const READS_CAPTURES: bool = false;
    const SIMULATED: bool = true;

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.id_of(&["run", "reserve"], &self.output)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let id = self.output.as_ref();
        let Some(run) = evidence.all::<ProgramRun>().find(|run| run.id.as_ref() == Some(id)) else {
            return Err(format!("the step {id:?} {NOT_TAKEN}"));
        };
        let complaint = run.complaint.trim();
        let Some(status) = &run.status else {
            return Err(format!("it did not end in time; its output is {:?} {complaint}", run.lines));
        };
        if run.code != Some(self.status) {
            return Err(format!(
                "it ended with {status}, {} was expected; its output is {:?} {complaint}",
                self.status, run.lines
            ));
        }
        let is = |wanted: &toml::Value, line: &String| is(evidence, wanted, line);
        if let Some(line) = run.lines.iter().find(|line| self.never.iter().any(|never| is(never, line))) {
            return Err(format!("it printed {line:?}"));
        }
        let mut lines = run.lines.iter();
        for wanted in &self.lines {
            if !lines.any(|line| is(wanted, line)) {
                return Err(format!("no line with {wanted}, in this order, in {:?}", run.lines));
            }
        }
        let last = run.lines.last().map(String::as_str).unwrap_or_default();
        let (count, wanted) = (run.lines.len(), self.lines.len());
        Ok(format!(
            "{count} lines, the {wanted} wanted ones among them in order, the last {last:?}; {status}"
        ))
    }
}

/// Whether a line is like the wanted one.
pub(crate) fn is(evidence: &Evidence, wanted: &toml::Value, line: &str) -> bool {
    let plan = &evidence.plan;
    match wanted {
        toml::Value::String(text) => line.contains(&plan.with_addresses(text)),
        wanted => serde_json::from_str::<Value>(line)
            .is_ok_and(|found| Names { plan, ends: None }.fits("", wanted, Some(&found))),
    }
}
