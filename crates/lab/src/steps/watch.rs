//! The step `watch`.

use anyhow::Result;
use serde::Deserialize;

use super::Step;
use crate::kinds::{Key, key};
use crate::run::{Run, now};
use crate::scenario::{LABEL, MOMENT, Mistake, Scope};
use crate::units::Span;
use crate::wait;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Watch {
    label: String,
    #[serde(rename = "for")]
    span: Span,
}

impl Step for Watch {
    const NAME: &'static str = "watch";
    const MEANING: &'static str =
        "Does nothing for a time and remembers when. As a moment the label is the end of that time.";
    const KEYS: &'static [Key] = &[
        key("label", "label", "the label under which checks find this time"),
        key("for", "time", "how long"),
    ];

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        scope.define(LABEL, &self.label);
        scope.define(MOMENT, &self.label);
        Ok(())
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        run.progress(&format!("watching the links for {} ({})", self.span, self.label));
        let from = now()?;
        wait::pass(self.span.0)?;
        let to = now()?;
        run.evidence.windows.insert(self.label.clone(), (from, to));
        run.evidence.moments.insert(self.label.clone(), to);
        Ok(())
    }
}
