//! The step `link`.

use anyhow::Result;

use super::Act;
use crate::language::steps::link::Link;
use crate::run::simulation::Simulation;
use crate::run::{Run, net};

impl Act for Link {
    fn unsimulated(&self) -> Option<String> {
        self.rate.map(|_| "links of the simulator have no `rate`".to_owned())
    }

    fn simulate(&self, run: &mut Simulation<'_>, _id: &str) -> Result<()> {
        let link = run.link(self.link.as_ref())?;
        if let Some(loss) = self.loss {
            run.network.set_loss(link, loss);
        }
        if let Some(delay) = self.delay {
            run.network.set_delay(link, delay.0);
        }
        if let Some(up) = self.up {
            run.network.set_link(link, up);
        }
        Ok(())
    }

    fn run(&self, run: &mut Run<'_>, _id: &str) -> Result<()> {
        let link = run.link(self.link.as_ref())?;
        run.progress(&format!("changing the link {}", self.link.as_ref()));
        let plan = &run.lab.plan;
        if let Some(loss) = self.loss {
            net::set_loss(plan, link, loss)?;
        }
        if let Some(delay) = self.delay {
            net::set_delay(plan, link, delay)?;
        }
        if let Some(rate) = self.rate {
            net::set_rate(plan, link, rate)?;
        }
        self.up.map_or(Ok(()), |up| net::set_link(plan, link, up))
    }
}
