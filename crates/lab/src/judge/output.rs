//! The check `output`: what a program printed, and how it ended.

use super::Judge;
use crate::language::checks::output::Output;
use crate::plan::subset::is_line;
use crate::run::evidence::Verdict;
use crate::run::evidence::{Evidence, NOT_TAKEN};
use crate::run::steps::program::ProgramRun;

impl Judge for Output {
    fn reads_captures(&self) -> bool {
        false
    }

    fn simulated(&self) -> bool {
        true
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
        let is = |wanted: &toml::Value, line: &String| is_line(&evidence.plan, wanted, line);
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
