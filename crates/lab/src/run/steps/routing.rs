//! The step `routing`, which does something to the routing program of a node.

use anyhow::{Context, Result};

use super::Act;
use crate::language::steps::routing::Routing;
use crate::run::Run;

impl Act for Routing {
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
