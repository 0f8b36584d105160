//! The step `routing`, which does something to the routing program of a node.

use anyhow::{Context, Result};
use serde::Deserialize;
use toml::Spanned;

use super::Step;
use crate::kinds::{Key, key};
use crate::run::Run;
use crate::scenario::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Routing {
    routing: Spanned<String>,
    restart: Option<bool>,
    towards: Option<Spanned<String>>,
    cost: Option<u16>,
}

impl Step for Routing {
    const NAME: &'static str = "routing";
    const MEANING: &'static str = "Does something to the routing program of a node, as its operator does: restarts it, or changes the cost of the interface to a neighbor.";
    const KEYS: &'static [Key] = &[
        key("routing", "node", "the node, which has a `routing`"),
        key("restart", "boolean", "the program ends and starts again").optional(),
        key("towards", "node", "the neighbor; only with `cost`").optional(),
        key("cost", "number", "the cost of the interface to it from now on; 10 before").optional(),
    ];

    fn validate(&self, scope: &Scope<'_>, _id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        scope.routing(&self.routing)?;
        match (&self.towards, self.cost, self.restart) {
            (Some(towards), Some(_), None) => scope.neighbours(&self.routing, towards),
            (None, None, Some(true)) => Ok(()),
            _ => Err(Mistake::new(
                self.routing.span(),
                "`routing` needs `restart = true`, or `towards` and `cost`, like `towards = \"r2\", cost = 100`",
            )),
        }
    }

    fn run(&self, run: &mut Run<'_>, _id: &str) -> Result<()> {
        let node = run.node(self.routing.as_ref())?;
        run.progress(&format!("changing the routing of {}", self.routing.as_ref()));
        let (Some(towards), Some(cost)) = (&self.towards, self.cost) else {
            return run.lab.restart_routing(node);
        };
        let peer = run.node(towards.as_ref())?;
        let interfaces = &run.lab.plan.nodes[node].interfaces;
        let interface = interfaces.iter().find(|interface| interface.peer.0 == peer);
        let interface = interface.context("no such neighbor")?.name.clone();
        run.lab.set_cost(node, &interface, cost)
    }
}
