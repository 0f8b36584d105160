//! The step `routing`: something is done to the routing program of a node.

use serde::Deserialize;
use toml::Spanned;

use super::StepKeys;
use crate::language::kinds::{Key, key};
use crate::language::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Routing {
    pub(crate) routing: Spanned<String>,
    pub(crate) restart: Option<bool>,
    pub(crate) towards: Option<Spanned<String>>,
    pub(crate) cost: Option<u16>,
}

impl StepKeys for Routing {
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
            (Some(towards), Some(_), None) => scope.neighbors(&self.routing, towards),
            (None, None, Some(true)) => Ok(()),
            _ => Err(Mistake::new(
                self.routing.span(),
                "`routing` needs `restart = true`, or `towards` and `cost`, like `towards = \"r2\", cost = 100`",
            )),
        }
    }
}
