//! The step `wait`.

use serde::Deserialize;
use signalbox_units::Span;
use toml::Spanned;

use super::StepKeys;
use crate::language::kinds::{Key, key};
use crate::language::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wait {
    pub(crate) wait: Option<Span>,
    #[serde(rename = "for")]
    pub(crate) id: Option<Spanned<String>>,
    pub(crate) prints: Option<Spanned<toml::Value>>,
    #[serde(default = "budget")]
    pub(crate) within: Span,
}

const fn budget() -> Span {
    Span::millis(15_000)
}

impl StepKeys for Wait {
    const NAME: &'static str = "wait";
    const MEANING: &'static str = "Waits for a time, as in `wait = \"2s\"`; or for the end of a step that goes on; or until its program prints another line like this. Checks judge what passes `during` it.";
    const KEYS: &'static [Key] = &[
        key("wait", "time", "how long").optional(),
        key("for", "id", "a `run`, `reserve`, `ping` or `flood` step").optional(),
        key("prints", "line", "of a `run` or `reserve` step: a text is a part of the line, a table is a part of the JSON object in the line").optional(),
        key("within", "time", "the longest time for `prints`; the run fails if no such line came").or("\"15s\""),
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
}
