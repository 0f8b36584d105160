//! The step `flood`: more messages or packets than a node likes.

use anyhow::Result;

use super::{Act, cost, queries};
use crate::language::steps::flood::Flood;
use crate::run::Run;

impl Act for Flood {
    fn run(&self, run: &mut Run<'_>, id: &str) -> Result<()> {
        let (from, to, destination) = run.ends(self.from.as_ref(), self.to.as_ref())?;
        let rate = *self.rate.as_ref();
        let queries = self.via.as_ref().zip(self.sources.as_ref()).zip(self.span);
        if let Some(((via, sources), span)) = queries {
            run.progress(&format!(
                "{rate} Queries a second with invented sources to {} for {span}",
                via.as_ref()
            ));
            let via = run.node(via.as_ref())?;
            let order = queries::Order {
                from,
                via,
                to: destination,
                sources: *sources.as_ref(),
                rate,
                span: span.0,
                seed: run.seed,
                daemon: run.lab.process(via)?,
            };
            let flood = queries::Flood::start(&run.lab.plan, order, id)?;
            if self.background {
                run.in_background(id, flood);
            } else {
                run.evidence.record(flood.finish()?);
            }
            return Ok(());
        }
        run.progress(&format!("what a packet costs: {id}"));
        let port = self.port.unwrap_or(9);
        let order = cost::Order { from, to, destination, port, flows: *self.flows.as_ref(), rate };
        let plan = &run.lab.plan;
        let cost = run.captures.resting(plan, || cost::measure(plan, order, id))?;
        run.evidence.record(cost);
        Ok(())
    }
}
