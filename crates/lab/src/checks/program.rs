//! Checks of what programs of the user said.

use super::Verdict;
use crate::evidence::Evidence;
use crate::scenario::ProgramCheck;

/// The program came to its end by itself, in order, and said these things one after the other.
pub(super) fn program(evidence: &Evidence, check: &ProgramCheck) -> Verdict {
    let label = check.label.as_ref();
    let Some(run) = evidence.programs.iter().find(|run| run.label == *label) else {
        return Err(format!("nothing ran as {label:?}"));
    };
    let complaint = run.complaint.trim();
    match &run.status {
        None => return Err(format!("it did not end in time; it said {:?} {complaint}", run.lines)),
        Some(status) if !run.good => return Err(format!("it ended with {status}: {complaint}")),
        Some(_) => {}
    }
    let mut lines = run.lines.iter();
    for wanted in &check.lines {
        if !lines.any(|line| line.contains(wanted)) {
            return Err(format!("no line with {wanted:?}, in this order, in {:?}", run.lines));
        }
    }
    let last = run.lines.last().map(String::as_str).unwrap_or_default();
    let (said, wanted) = (run.lines.len(), check.lines.len());
    Ok(format!("{said} lines, the wanted {wanted} among them in order, the last {last:?}; status 0"))
}
