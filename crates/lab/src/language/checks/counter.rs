//! The check `counter`: a counter of the daemons.

use std::time::Duration;

use serde::Deserialize;
use signalbox_units::Span;
use toml::Spanned;

use super::{CheckKeys, Wanted};
use crate::language::expectation::ABSENT;
use crate::language::kinds::{Key, key};
use crate::language::together::in_order;
use crate::language::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Counter {
    pub(crate) counter: Spanned<String>,
    #[serde(default)]
    pub(crate) labels: toml::Table,
    pub(crate) nodes: Vec<Spanned<String>>,
    pub(crate) at: Spanned<String>,
    pub(crate) since: Option<Spanned<String>>,
    pub(crate) min: Option<f64>,
    pub(crate) max: Option<f64>,
    pub(crate) holds: Option<Span>,
}

impl CheckKeys for Counter {
    const NAME: &'static str = "counter";
    const MEANING: &'static str = "A counter of each of these daemons, as `signalbox show counters` prints it, had a value within these bounds at the end of a step.";
    const KEYS: &'static [Key] = &[
        key(
            "counter",
            "metric",
            "name of the metric, like \"signalbox_messages_dropped_total\" (docs/metrics.md)",
        ),
        key("labels", "table of texts", "labels of the metric; values of several sets of labels are added")
            .or("{}"),
        key("nodes", "list of nodes", "the daemons"),
        key("at", "id", "the step at whose end the counter is read"),
        key("since", "id", "only what was counted since the end of this step").optional(),
        key("min", "number", "the least value; 0 if only `max` is given").or("1"),
        key("max", "number", "the greatest value").optional(),
        key("holds", "time", "the counter is read once more so long after the step; \"2s\" where `max` is 0")
            .or("\"0s\""),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        self.nodes.iter().try_for_each(|node| scope.daemon(node))?;
        in_order(self.counter.span(), [("min", self.min), ("max", self.max)])?;
        scope.ids([&self.at].into_iter().chain(&self.since))
    }

    fn needs(&self) -> Vec<Wanted> {
        let at = || [&self.at].into_iter().chain(&self.since);
        let absent = (self.max == Some(0.0)).then_some(ABSENT);
        let last = self.holds.or(absent).map_or(Duration::ZERO, |span| span.0);
        let of = |node: &Spanned<String>| {
            let node = node.as_ref().clone();
            let wanted = move |at: &Spanned<String>| {
                let holds = if at == &self.at { last } else { Duration::ZERO };
                Wanted::Counters { at: at.as_ref().clone(), node: node.clone(), holds }
            };
            at().map(wanted).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of).collect()
    }
}
