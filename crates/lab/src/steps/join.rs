//! The step `join`.

use anyhow::Result;
use serde::Deserialize;
use toml::Spanned;

use super::Step;
use crate::kinds::{Key, key};
use crate::run::Run;
use crate::scenario::{BACKGROUND, Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Join {
    name: Spanned<String>,
}

impl Step for Join {
    const NAME: &'static str = "join";
    const MEANING: &'static str =
        "Waits for the end of what runs in the background; ends it if it is `traffic` or `reserve`.";
    const KEYS: &'static [Key] =
        &[key("name", "background", "`background` of an earlier step, or the name of a flow or reservation")];

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        scope.defined(BACKGROUND, &self.name)
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        run.join(self.name.as_ref())
    }
}
