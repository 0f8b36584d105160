//! The step `run`: a program of the user inside a node.

use serde::Deserialize;
use signalbox_units::Span;
use toml::Spanned;

use super::StepKeys;
use crate::language::kinds::{Key, key};
use crate::language::{Mistake, Scope, missing_program, programs};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunProgram {
    pub(crate) node: Spanned<String>,
    pub(crate) command: Spanned<Vec<String>>,
    pub(crate) until: Option<toml::Value>,
    #[serde(default = "budget")]
    pub(crate) within: Span,
    #[serde(default)]
    pub(crate) fails: bool,
    captures: Option<Spanned<bool>>,
}

impl RunProgram {
    /// Whether captures stand still until it has ended.
    pub(crate) fn rests(&self) -> bool {
        self.captures.as_ref().is_some_and(|captures| !captures.as_ref())
    }
}

const fn budget() -> Span {
    Span::millis(30_000)
}

impl StepKeys for RunProgram {
    const NAME: &'static str = "run";
    const MEANING: &'static str =
        "Runs a program inside a node; all programs are waited for after the last step.";
    const KEYS: &'static [Key] = &[
        key("node", "node", "where it runs"),
        key(
            "command",
            "list of texts",
            "the program and its arguments; {NODE} is replaced by that node's address, {signalbox} by the path of the \
             command, {lab_programs} by the directory of the programs that come with the lab; $SIGNALBOX_SOCKET is the socket of the node's daemon",
        ),
        key("until", "line", "the next step begins when it prints a line like this (as in `wait`); without `until`, when it has ended")
            .optional(),
        key("within", "time", "it has to print that line, and to end, within this time").or("\"30s\""),
        key("fails", "boolean", "it is to miss that line or its time, or to end by itself with another status than 0").or("false"),
        key("captures", "boolean", "whether packets are captured while it runs; only without `until`. A million of them is more than a run keeps")
            .or("true"),
    ];

    fn validate(&self, scope: &Scope<'_>, _id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        scope.node(&self.node)?;
        if self.command.as_ref().is_empty() {
            return Err(Mistake::new(self.command.span(), "`command` names a program and its arguments"));
        }
        if let Some(path) = self.command.as_ref().iter().find_map(|word| missing_program(word)) {
            let known: Vec<_> =
                programs().map(|(known, _)| known).filter(|known| known.matches('/').count() < 2).collect();
            let what =
                format!("no program `{path}` comes with the lab, expected one of {}", known.join(", "));
            return Err(Mistake::new(self.command.span(), what));
        }
        if let Some(captures) = self.captures.as_ref().filter(|_| self.rests() && self.until.is_some()) {
            let what = "captures rest until a program has ended, so that its step has no `until`";
            return Err(Mistake::new(captures.span(), what));
        }
        Ok(())
    }
}
