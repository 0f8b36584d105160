//! The check `counter`: a counter of the daemons.

use std::time::Duration;

use serde::Deserialize;
use signalbox_units::Span;
use toml::Spanned;

use super::{Check, Verdict, Wanted};
use crate::evidence::Evidence;
use crate::expectation::ABSENT;
use crate::kinds::{Key, key};
use crate::scenario::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counter {
    counter: Spanned<String>,
    #[serde(default)]
    labels: toml::Table,
    nodes: Vec<Spanned<String>>,
    at: Spanned<String>,
    since: Option<Spanned<String>>,
    min: Option<f64>,
    max: Option<f64>,
    holds: Option<Span>,
}

impl Check for Counter {
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
    const READS_CAPTURES: bool = false;

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        self.nodes.iter().try_for_each(|node| scope.daemon(node))?;
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

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let min = self.min.unwrap_or(if self.max.is_some() { 0.0 } else { 1.0 });
        let max = self.max.unwrap_or(f64::INFINITY);
        let (mut good, mut seen) = (!self.nodes.is_empty(), Vec::new());
        for node in &self.nodes {
            let name = node.as_ref();
            let at = |id: &Spanned<String>| -> Result<Vec<f64>, String> {
                let index = evidence.plan.node(name).unwrap_or(usize::MAX);
                let texts = evidence.counters.get(&(id.as_ref().clone(), index));
                let texts = texts.ok_or_else(|| format!("{name} was not asked at {:?}", id.as_ref()))?;
                Ok(texts.iter().map(|text| value(text, self.counter.as_ref(), &self.labels)).collect())
            };
            let before = self.since.as_ref().map(at).transpose()?;
            let before = before.and_then(|before| before.first().copied()).unwrap_or(0.0);
            for count in at(&self.at)?.into_iter().map(|count| count - before) {
                good &= (min..=max).contains(&count);
                seen.push(format!("{name} {count}"));
            }
        }
        let seen = format!("{}: {}; {min} to {max} was expected", self.counter.as_ref(), seen.join(", "));
        if good { Ok(seen) } else { Err(seen) }
    }
}

/// Adds the values of a metric with these labels in a text of OpenMetrics.
fn value(text: &str, name: &str, labels: &toml::Table) -> f64 {
    let of_line = |line: &str| -> Option<f64> {
        let rest = line.strip_prefix(name)?;
        let (given, number) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        let has = |(key, value): (&String, &toml::Value)| {
            let label = format!("{key}=\"{}\"", value.as_str().unwrap_or_default());
            given.split(',').any(|given| given == label)
        };
        labels.iter().all(has).then(|| number.split(' ').next()?.parse().ok()).flatten()
    };
    text.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_the_labels_are_added() {
        let text = "# TYPE a_total counter\na_total{k=\"x\",m=\"1\"} 2\na_total{k=\"x\",m=\"2\"} 3\na_total{k=\"y\"} 5\nab_total 7\nb_total 4\n";
        let labels = |text: &str| text.parse::<toml::Table>().expect("sound");
        let of = |name: &str, given: &str| value(text, name, &labels(given));
        assert_eq!([of("a_total", "k = 'x'"), of("a_total", ""), of("a_total", "k = 'z'")], [5.0, 10.0, 0.0]);
        assert_eq!([of("b_total", ""), of("c_total", "")], [4.0, 0.0]);
    }
}
