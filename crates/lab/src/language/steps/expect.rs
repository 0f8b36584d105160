//! The step `expect`: a check in the course of the run.

use serde::Deserialize;
use toml::Spanned;

use super::StepKeys;
use crate::language::expectation::Expectation;
use crate::language::kinds::Key;
use crate::language::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Expect(pub(crate) Expectation);

impl StepKeys for Expect {
    const NAME: &'static str = "expect";
    const MEANING: &'static str = "Waits until what daemons show, what queues their kernels have, or which packets pass, is as it should be. It is a check of the report.";
    const KEYS: &'static [Key] = Expectation::KEYS;
    const MOMENT_IS_END: bool = true;

    fn validate(&self, scope: &Scope<'_>, _id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        self.0.validate(scope)
    }

    fn expectation(&self) -> Option<&Expectation> {
        Some(&self.0)
    }
}
