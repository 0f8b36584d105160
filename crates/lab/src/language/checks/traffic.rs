//! The check `traffic`: the service that flows received, and what lossy links discarded.

use serde::Deserialize;
use signalbox_units::{BitRate, Percent};
use toml::Spanned;

use super::CheckKeys;
use crate::language::kinds::{Key, key};
use crate::language::steps::Step;
use crate::language::together::{alone, in_order};
use crate::language::{Mistake, Scope, fields};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Traffic {
    pub(crate) flow: Option<Spanned<String>>,
    pub(crate) links: Option<Spanned<toml::Value>>,
    pub(crate) during: Option<Spanned<String>>,
    pub(crate) after: Option<Spanned<String>>,
    pub(crate) min_loss: Option<Percent>,
    pub(crate) max_loss: Option<Percent>,
    pub(crate) min_goodput: Option<BitRate>,
    pub(crate) max_goodput: Option<BitRate>,
    pub(crate) max_delay: Option<signalbox_units::Span>,
    pub(crate) max_gap: Option<signalbox_units::Span>,
}

impl CheckKeys for Traffic {
    const NAME: &'static str = "traffic";
    const MEANING: &'static str = "Of the packets of a flow that were sent in this time, at least 100, such a share was lost, and the others had such a delay; such a rate arrived in this time; or the flow was interrupted no longer than this, and at least 100 packets followed without loss; or each end of each of the lossy links discarded such a share of at least 100 packets.";
    const KEYS: &'static [Key] = &[
        key("flow", "id", "a `traffic` step").optional(),
        key("links", "links", "instead of `flow`: links with a `loss`, or \"all\" of them").optional(),
        key("during", "id", "packets sent while this step lasted").optional(),
        key("after", "id", "packets sent after the moment of this step, to the end of `during`").optional(),
        key("min_loss", "share", "the least loss").optional(),
        key("max_loss", "share", "the greatest loss").optional(),
        key("min_goodput", "rate", "the least rate that arrives in this time, IP headers included")
            .optional(),
        key("max_goodput", "rate", "the greatest rate that arrives in this time").optional(),
        key("max_delay", "time", "the greatest one-way delay of 99 % of the packets that arrive").optional(),
        key("max_gap", "time", "from the moment `after` to the first packet behind which no packet is lost")
            .optional(),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        match (&self.flow, &self.links, &self.during) {
            (Some(flow), None, Some(during)) => {
                scope.id_of(&["traffic"], flow)?;
                if !scope.is_step(flow, |step| matches!(step, Step::Traffic(keys) if keys.rate.is_some())) {
                    let what = format!("`{}` has no `rate`, so that it is no flow", flow.as_ref());
                    return Err(Mistake::new(flow.span(), what));
                }
                scope.ids([during].into_iter().chain(&self.after))
            }
            (None, Some(links), None) => {
                alone(links.span(), "links", &[("after", self.after.is_some())])?;
                alone(links.span(), "links", &self.of_flows())?;
                fields::validate_links(scope, links)
            }
            _ => Err(Mistake::new(0..0, "`traffic` needs `flow` and `during`, or `links`")),
        }?;
        match (&self.max_gap, &self.after) {
            (Some(_), None) => {
                Err(Mistake::new(0..0, "`max_gap` needs `after`, the step that interrupts the flow"))
            }
            (Some(_), Some(after)) => {
                let [_, others @ ..] = self.of_flows();
                alone(after.span(), "max_gap", &others)?;
                let loss = [("min_loss", self.min_loss.is_some()), ("max_loss", self.max_loss.is_some())];
                alone(after.span(), "max_gap", &loss)
            }
            (None, _) => {
                in_order(0..0, [("min_loss", self.min_loss), ("max_loss", self.max_loss)])?;
                in_order(0..0, [("min_goodput", self.min_goodput), ("max_goodput", self.max_goodput)])
            }
        }
    }
}

impl Traffic {
    /// The bounds that are about flows only, with whether they are given.
    const fn of_flows(&self) -> [(&'static str, bool); 4] {
        [
            ("max_gap", self.max_gap.is_some()),
            ("min_goodput", self.min_goodput.is_some()),
            ("max_goodput", self.max_goodput.is_some()),
            ("max_delay", self.max_delay.is_some()),
        ]
    }
}
