//! The check `program`.

use serde::Deserialize;
use toml::Spanned;

use super::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{LABEL, Mistake, Scope};
use crate::steps::program::ProgramRun;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Program {
    label: Spanned<String>,
    lines: Vec<String>,
}

impl Check for Program {
    const NAME: &'static str = "program";
    const MEANING: &'static str =
        "The program ended by itself with status 0, and its output has these lines in this order.";
    const KEYS: &'static [Key] = &[
        key("label", "label", "the label of the `run` step"),
        key("lines", "list of texts", "parts of lines"),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.defined(LABEL, &self.label)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let label = self.label.as_ref();
        let Some(run) = evidence.all::<ProgramRun>().find(|run| run.label == *label) else {
            return Err(format!("nothing ran as {label:?}"));
        };
        let complaint = run.complaint.trim();
        match &run.status {
            None => return Err(format!("it did not end in time; its output is {:?} {complaint}", run.lines)),
            Some(status) if !run.good => return Err(format!("it ended with {status}: {complaint}")),
            Some(_) => {}
        }
        let mut lines = run.lines.iter();
        for wanted in &self.lines {
            if !lines.any(|line| line.contains(wanted)) {
                return Err(format!("no line with {wanted:?}, in this order, in {:?}", run.lines));
            }
        }
        let last = run.lines.last().map(String::as_str).unwrap_or_default();
        let (count, wanted) = (run.lines.len(), self.lines.len());
        Ok(format!("{count} lines, the wanted {wanted} among them in order, the last {last:?}; status 0"))
    }
}
