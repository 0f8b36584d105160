//! The steps `set_loss`, `link_down` and `link_up`.

use anyhow::Result;
use serde::Deserialize;
use toml::Spanned;

use super::Step;
use crate::kinds::{Key, key};
use crate::net;
use crate::run::Run;
use crate::scenario::{MOMENT, Mistake, Scope};
use crate::units::Percent;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetLoss {
    link: Spanned<String>,
    loss: Percent,
}

impl Step for SetLoss {
    const NAME: &'static str = "set_loss";
    const MEANING: &'static str = "From now on a link loses this share of its packets, at random.";
    const KEYS: &'static [Key] =
        &[key("link", "link", "the link, like \"h1-r1\""), key("loss", "percent", "0 to 100")];

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        scope.link(&self.link)
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        let link = run.link(self.link.as_ref())?;
        net::set_loss(&run.lab.plan, link, self.loss)
    }
}

/// The keys of `link_down` and `link_up`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    link: Spanned<String>,
    label: Option<String>,
}

const KEYS: &[Key] = &[
    key("link", "link", "the link, like \"h1-r1\""),
    key("label", "moment", "remembers the moment just before").optional(),
];

impl Keys {
    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        self.label.iter().for_each(|label| scope.define(MOMENT, label));
        scope.link(&self.link)
    }

    fn set(&self, run: &mut Run<'_>, up: bool) -> Result<()> {
        run.remember(self.label.as_ref(), self.link.as_ref())?;
        net::set_link(&run.lab.plan, run.link(self.link.as_ref())?, up)
    }
}

#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct LinkDown(Keys);

impl Step for LinkDown {
    const NAME: &'static str = "link_down";
    const MEANING: &'static str = "Switches off the first end of a link.";
    const KEYS: &'static [Key] = KEYS;

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        self.0.validate(scope)
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        self.0.set(run, false)
    }
}

#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct LinkUp(Keys);

impl Step for LinkUp {
    const NAME: &'static str = "link_up";
    const MEANING: &'static str = "Switches on the first end of a link; the routes come back with it.";
    const KEYS: &'static [Key] = KEYS;

    fn validate<'s>(&'s self, scope: &mut Scope<'s>) -> Result<(), Mistake> {
        self.0.validate(scope)
    }

    fn run(&self, run: &mut Run<'_>) -> Result<()> {
        self.0.set(run, true)
    }
}
