//! The step `wait`.

use anyhow::Result;

use super::Act;
use crate::language::steps::wait::Wait;
use crate::run::simulation::Simulation;
use crate::run::{Run, wait};

impl Act for Wait {
    fn unsimulated(&self) -> Option<String> {
        None
    }

    fn simulate(&self, run: &mut Simulation<'_>, _id: &str) -> Result<()> {
        match (self.wait, &self.id, &self.prints) {
            (Some(span), _, _) => run.advance(span.0),
            (None, Some(id), Some(prints)) => run.wait_line(id.as_ref(), prints.as_ref(), self.within.0),
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
                run.wait_line(id.as_ref(), prints.as_ref(), self.within.0)
            }
            None => {
                run.progress(&format!("waiting for {}", id.as_ref()));
                run.wait_end(id.as_ref())
            }
        }
    }
}
