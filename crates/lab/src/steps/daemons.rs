//! The steps `stop`, `kill` and `start`, which do something to the daemon of a node.

use anyhow::Result;
use serde::Deserialize;
use toml::Spanned;

use super::Step;
use crate::kinds::{Key, key};
use crate::run::Run;
use crate::scenario::{MOMENT, Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    node: Spanned<String>,
    label: Option<String>,
}

const KEYS: &[Key] = &[
    key("node", "node", "the node of the daemon"),
    key("label", "moment", "remembers the moment just before; with `start`, when the daemon is ready")
        .optional(),
];

impl Keys {
    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        self.label.iter().for_each(|label| scope.define(MOMENT, label));
        scope.daemon(&self.node)
    }

    /// Remembers the moment and returns the node.
    fn moment(&self, run: &mut Run<'_>) -> Result<usize> {
        run.remember(self.label.as_ref(), self.node.as_ref())?;
        run.node(self.node.as_ref())
    }
}

#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Stop(Keys);

impl Step for Stop {
    const NAME: &'static str = "stop";
    const MEANING: &'static str = "Asks the daemon of a node to end (SIGTERM) and waits for its end.";
    const KEYS: &'static [Key] = KEYS;

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        self.0.validate(scope)
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        let node = self.0.moment(run)?;
        let stop = run.lab.stop(node)?;
        run.evidence.stops.push(stop);
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Kill(Keys);

impl Step for Kill {
    const NAME: &'static str = "kill";
    const MEANING: &'static str = "Ends the daemon of a node as a crash does (SIGKILL).";
    const KEYS: &'static [Key] = KEYS;

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        self.0.validate(scope)
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        let node = self.0.moment(run)?;
        run.lab.kill(node)
    }
}

#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Start(Keys);

impl Step for Start {
    const NAME: &'static str = "start";
    const MEANING: &'static str = "Starts the daemon of a node and waits until it is ready.";
    const KEYS: &'static [Key] = KEYS;

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        self.0.validate(scope)
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        let node = run.node(self.0.node.as_ref())?;
        run.lab.start(node)?;
        self.0.moment(run).map(drop)
    }
}
