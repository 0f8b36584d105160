//! The step `stop`: the end of what goes on.

use serde::Deserialize;
use toml::Spanned;

use super::StepKeys;
use crate::language::kinds::{Key, key};
use crate::language::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stop {
    pub(crate) stop: Vec<Spanned<String>>,
}

impl StepKeys for Stop {
    const NAME: &'static str = "stop";
    const MEANING: &'static str = "Ends what goes on, in this order: `run` and `reserve` as Ctrl-C does, `traffic` at once; `ping` and `flood` have a set number of messages, and are waited for.";
    const KEYS: &'static [Key] =
        &[key("stop", "list of ids", "`run`, `reserve`, `traffic`, `ping` or `flood` steps")];

    fn validate(&self, scope: &Scope<'_>, _id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        self.stop.iter().try_for_each(|id| scope.id_of(&["run", "reserve", "traffic", "ping", "flood"], id))
    }
}
