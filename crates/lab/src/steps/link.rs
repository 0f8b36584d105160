//! The step `link`.

use anyhow::Result;
use serde::Deserialize;
use signalbox_units::{BitRate, Percent, Span};
use toml::Spanned;

use super::Step;
use crate::kinds::{Key, key};
use crate::net;
use crate::run::Run;
use crate::scenario::{Mistake, Scope};
use crate::simulation::Simulation;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Link {
    link: Spanned<String>,
    up: Option<bool>,
    loss: Option<Percent>,
    delay: Option<Span>,
    rate: Option<BitRate>,
}

impl Step for Link {
    const NAME: &'static str = "link";
    const MEANING: &'static str =
        "Changes a link from now on. `up = false` switches its first end off; the routes come back with it.";
    const KEYS: &'static [Key] = &[
        key("link", "link", "the link, like \"h1-r1\""),
        key("up", "boolean", "whether it is switched on").optional(),
        key("loss", "share", "the share of packets that it loses, at random").optional(),
        key("delay", "time", "its delay, one way; needs netem").optional(),
        key("rate", "rate", "its rate, at ends whose nodes do not reserve; the link has a `rate` already")
            .optional(),
    ];

    fn validate(&self, scope: &Scope<'_>, _id: Option<&Spanned<String>>) -> Result<(), Mistake> {
        scope.link(&self.link)?;
        if let Some(rate) = self.rate {
            scope.rate(rate, self.link.span())?;
            scope.shaped(&self.link)?;
        }
        if self.up.is_some() || self.loss.is_some() || self.delay.is_some() || self.rate.is_some() {
            return Ok(());
        }
        Err(Mistake::new(self.link.span(), "`link` needs `up`, `loss`, `delay` or `rate`, like `up = false`"))
    }

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
