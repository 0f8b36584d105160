//! The step `wait`.

use anyhow::Result;

use super::Act;
use crate::language::steps::wait::Wait;
use crate::run::simulation::Simulation;
use crate::run::{Run, wait};

/// A line that a step waited for and that did not come.
#[derive(Debug)]
pub(crate) struct Missed {
    /// The `id` of the step that waited.
    pub(crate) id: String,
    pub(crate) why: String,
}

impl Act for Wait {
    fn unsimulated(&self) -> Option<String> {
        None
    }

    fn simulate(&self, run: &mut Simulation<'_>, name: &str) -> Result<()> {
        match (self.wait, &self.id, &self.prints) {
            (Some(span), _, _) => run.advance(span.0),
            (None, Some(id), Some(prints)) => {
                // A step that was left out prints nothing.
                let taken = run.evidence.spans.contains_key(id.as_ref());
                let came = run.wait_line(id.as_ref(), prints.as_ref(), self.within.0);
                if let Some(missed) = self.missed(name, came || !taken) {
                    run.evidence.record(missed);
                }
            }
            (None, Some(id), None) => run.wait_end(id.as_ref()),
            (None, None, _) => {}
        }
        Ok(())
    }

    fn run(&self, run: &mut Run<'_>, name: &str) -> Result<()> {
        if let Some(span) = self.wait {
            run.progress(&format!("waiting for {span} ({name})"));
            return wait::pass(span.0);
        }
        let Some(id) = &self.id else { return Ok(()) };
        match &self.prints {
            Some(prints) => {
                run.progress(&format!("waiting until {} prints {}", id.as_ref(), prints.as_ref()));
                let came = run.wait_line(id.as_ref(), prints.as_ref(), self.within.0)?;
                if let Some(missed) = self.missed(name, came) {
                    run.evidence.record(missed);
                }
                Ok(())
            }
            None => {
                run.progress(&format!("waiting for {}", id.as_ref()));
                run.wait_end(id.as_ref())
            }
        }
    }
}

impl Wait {
    /// Returns the line that did not come.
    fn missed(&self, name: &str, came: bool) -> Option<Missed> {
        let (id, prints) = (self.id.as_ref()?.as_ref(), self.prints.as_ref().filter(|_| !came)?.as_ref());
        let why = format!("{id} printed no line with {prints} within {} or before its end", self.within);
        Some(Missed { id: name.to_owned(), why })
    }
}
