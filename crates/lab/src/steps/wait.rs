//! The step `wait`.

use anyhow::Result;
use serde::Deserialize;
use signalbox_units::Span;
use toml::Spanned;

use super::Step;
use crate::kinds::{Key, key};
use crate::run::Run;
use crate::scenario::{Mistake, Scope};
use crate::simulation::Simulation;
use crate::wait;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wait {
    wait: Option<Span>,
    #[serde(rename = "for")]
    id: Option<Spanned<String>>,
    prints: Option<Spanned<toml::Value>>,
    #[serde(default = "budget")]
    within: Span,
}

const fn budget() -> Span {
    Span::millis(15_000)
}

impl Step for Wait {
    const NAME: &'static str = "wait";
    const MEANING: &'static str = "Waits for a time, as in `wait = \"2s\"`; or for the end of a step that goes on; or until its program prints another line like this. Checks judge what passes `during` it.";
    const KEYS: &'static [Key] = &[
        key("wait", "time", "how long").optional(),
        key("for", "id", "a `run`, `reserve`, `ping` or `flood` step").optional(),
        key("prints", "line", "of a `run` or `reserve` step: a text is a part of the line, a table is a part of the JSON object in the line").optional(),
        key("within", "time", "the longest time for `prints`; checks decide what it means if no such line came").or("\"15s\""),
    ];
    const MOMENT_IS_END: bool = true;

    fn validate(&self, scope: &Scope<'_>, _id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        match (&self.wait, &self.id, &self.prints) {
            (Some(_), None, None) => Ok(()),
            (None, Some(id), None) => scope.id_of(&["run", "reserve", "ping", "flood"], id),
            (None, Some(id), Some(_)) => scope.id_of(&["run", "reserve"], id),
            _ => Err(Mistake::new(
                0..0,
                "`wait` is a time, like `wait = \"2s\"`, or has `for`, like `wait = { for = \"sender\", prints = \"reserved\" }`",
            )),
        }
    }

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
