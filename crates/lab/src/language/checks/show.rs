//! The check `show`: what the daemons show after the last step.

use serde::Deserialize;

use super::CheckKeys;
use crate::language::expectation::Expectation;
use crate::language::kinds::Key;
use crate::language::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Show(pub(crate) Expectation);

impl CheckKeys for Show {
    const NAME: &'static str = "show";
    const MEANING: &'static str = "What daemons show after the last step is as it should be. `signalbox lab expect` judges these checks on a lab that stands.";
    const KEYS: &'static [Key] = Expectation::KEYS;

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        self.0.validate(scope)
    }

    fn expectation(&self) -> Option<&Expectation> {
        Some(&self.0)
    }
}
