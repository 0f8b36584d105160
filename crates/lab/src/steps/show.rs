//! The step `show`.

use anyhow::Result;
use serde::Deserialize;

use super::Step;
use crate::kinds::{Key, key};
use crate::run::Run;
use crate::scenario::{LABEL, Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Show {
    label: String,
}

impl Step for Show {
    const NAME: &'static str = "show";
    const MEANING: &'static str = "Asks all daemons for what `signalbox show` prints.";
    const KEYS: &'static [Key] = &[key("label", "label", "the label under which checks find it")];

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        scope.define(LABEL, &self.label);
        Ok(())
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        run.show(&self.label)
    }
}
