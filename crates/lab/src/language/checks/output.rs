//! The check `output`: what a program printed, and how it ended.

use serde::Deserialize;
use toml::Spanned;

use super::CheckKeys;
use crate::language::kinds::{Key, key};
use crate::language::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Output {
    pub(crate) output: Spanned<String>,
    #[serde(default)]
    pub(crate) lines: Vec<toml::Value>,
    #[serde(default)]
    pub(crate) never: Vec<toml::Value>,
    #[serde(default)]
    pub(crate) status: i32,
}

impl CheckKeys for Output {
    const NAME: &'static str = "output";
    const MEANING: &'static str = "The program ended by itself or when it was asked to, with this status, and its output has these lines in this order.";
    const KEYS: &'static [Key] = &[
        key("output", "id", "a `run` or `reserve` step"),
        key("lines", "list of lines", "a text is a part of a line; a table is a part of the JSON object in a line. {NODE} in a text is the address of a node").or("[]"),
        key("never", "list of lines", "no line is like one of these").or("[]"),
        key("status", "number", "exit status of the program").or("0"),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.id_of(&["run", "reserve"], &self.output)
    }
}
