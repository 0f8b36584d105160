//! The step `link`: a change of a link.

use serde::Deserialize;
use signalbox_units::{BitRate, Percent, Span};
use toml::Spanned;

use super::StepKeys;
use crate::language::kinds::{Key, key};
use crate::language::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Link {
    pub(crate) link: Spanned<String>,
    pub(crate) up: Option<bool>,
    pub(crate) loss: Option<Percent>,
    pub(crate) delay: Option<Span>,
    pub(crate) rate: Option<BitRate>,
}

impl StepKeys for Link {
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
}
