//! The step `wait_for`. The conditions come from the protocols.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Deserialize;
use toml::Spanned;

use super::Step;
use crate::command;
use crate::kinds::{Key, key};
use crate::protocols::{self, Condition};
use crate::run::Run;
use crate::scenario::{Mistake, Scope};
use crate::units::Span;
use crate::wait;

/// The time between two questions to the daemons.
const ASK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitFor {
    condition: Condition,
    #[serde(default)]
    nodes: Vec<Spanned<String>>,
    #[serde(default = "budget")]
    within: Span,
}

const fn budget() -> Span {
    Span::millis(15_000)
}

impl Step for WaitFor {
    const NAME: &'static str = "wait_for";
    const MEANING: &'static str =
        "Waits until a condition holds, or the time is over: checks judge what that means.";
    const KEYS: &'static [Key] = &[
        key("condition", "condition", protocols::CONDITIONS),
        key(
            "nodes",
            "list of nodes",
            "the nodes that are asked; all that run the protocol if the list is empty",
        )
        .or("[]"),
        key("within", "time", "the longest time").or("\"15s\""),
    ];

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        self.nodes.iter().try_for_each(|node| scope.runs(self.condition.protocol, node))
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        let Condition { meaning, protocol, table, holds, .. } = self.condition;
        run.progress(&format!("waiting until {meaning}"));
        let given = self.nodes.iter().map(|node| run.node(node.as_ref())).collect::<Result<Vec<_>>>()?;
        let plan = &run.lab.plan;
        let asked = |node: &usize| {
            if given.is_empty() { plan.nodes[*node].runs(protocol) } else { given.contains(node) }
        };
        let deadline = Instant::now() + self.within.0;
        loop {
            let mut all = true;
            for node in run.lab.running().filter(asked) {
                all &= holds(&command::table(&plan.name, &plan.nodes[node], table)?);
            }
            if all {
                return Ok(());
            }
            if Instant::now() > deadline {
                // Not an error of the run: the checks judge what it means.
                run.progress(&format!("after {} it is still not so that {meaning}", self.within));
                return Ok(());
            }
            wait::pass(ASK_AGAIN)?;
        }
    }
}
