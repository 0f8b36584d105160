//! The step `stop`.

use anyhow::Result;
use serde::Deserialize;
use toml::Spanned;

use super::Step;
use crate::kinds::{Key, key};
use crate::run::Run;
use crate::scenario::{Mistake, Scope};
use crate::simulation::Simulation;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stop {
    stop: Vec<Spanned<String>>,
}

impl Step for Stop {
    const NAME: &'static str = "stop";
    const MEANING: &'static str = "Ends what goes on, in this order: `run` and `reserve` as Ctrl-C does, `traffic` at once; `ping` and `flood` have a set number of messages, and are waited for.";
    const KEYS: &'static [Key] =
        &[key("stop", "list of ids", "`run`, `reserve`, `traffic`, `ping` or `flood` steps")];

    fn validate(&self, scope: &Scope<'_>, _id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        self.stop.iter().try_for_each(|id| scope.id_of(&["run", "reserve", "traffic", "ping", "flood"], id))
    }

    fn unsimulated(&self) -> Option<String> {
        None
    }

    fn simulate(&self, run: &mut Simulation<'_>, _id: &str) -> Result<()> {
        self.stop.iter().for_each(|id| run.stop(id.as_ref()));
        Ok(())
    }

    fn run(&self, run: &mut Run<'_>, _id: &str) -> Result<()> {
        self.stop.iter().try_for_each(|id| {
            run.progress(&format!("stopping {}", id.as_ref()));
            run.stop(id.as_ref())
        })
    }
}
