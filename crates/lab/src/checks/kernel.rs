//! The check `kernel`: what the kernel of a node held at two moments.

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
pub(super) struct Kernel {
    node: Spanned<String>,
    at: Spanned<String>,
    same_as: Option<Spanned<String>>,
    differs_from: Option<Spanned<String>>,
    holds: Option<Span>,
}

impl Check for Kernel {
    const NAME: &'static str = "kernel";
    const MEANING: &'static str = "The kernel of the node held the same queues, classes, filters and nftables rules at the ends of two steps.";
    const KEYS: &'static [Key] = &[
        key("node", "node", "a node that reserves"),
        key(
            "at",
            "id",
            "the step at whose end the kernel is read; \"start\" is the time before the first step",
        ),
        key("same_as", "id", "the step at whose end the kernel held the same").optional(),
        key("differs_from", "id", "the step at whose end the kernel held something else").optional(),
        key("holds", "time", "how long it has to stay so after the step `at`; \"2s\" with `same_as`")
            .or("\"0s\""),
    ];
    const READS_CAPTURES: bool = false;

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.reserves(&self.node)?;
        scope.ids([&self.at].into_iter().chain(&self.same_as).chain(&self.differs_from))?;
        if self.same_as.is_some() == self.differs_from.is_some() {
            return Err(Mistake::new(self.at.span(), "`kernel` needs `same_as` or `differs_from`, not both"));
        }
        Ok(())
    }

    fn needs(&self) -> Vec<Wanted> {
        let at = [&self.at].into_iter().chain(&self.same_as).chain(&self.differs_from);
        let holds = |at: &Spanned<String>| if at == &self.at { self.holds() } else { Duration::ZERO };
        let of = |at: &Spanned<String>| {
            let (node, holds) = (self.node.as_ref().clone(), holds(at));
            Wanted::Kernel { at: at.as_ref().clone(), node, holds }
        };
        at.map(of).collect()
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let node = self.node.as_ref();
        let at = |id: &str| -> Result<Vec<Vec<String>>, String> {
            let index = evidence.plan.node(node);
            let readings = index.and_then(|node| evidence.kernels.get(&(id.to_owned(), node)));
            // Routes change with links.
            let queues = |lines: &Vec<String>| -> Vec<String> {
                lines.iter().filter(|line| !line.starts_with("ip: ")).cloned().collect()
            };
            let readings: Vec<_> = readings.into_iter().flatten().map(queues).collect();
            if readings.iter().all(Vec::is_empty) {
                return Err(format!("the kernel of {node} was not read at {id:?}"));
            }
            Ok(readings)
        };
        let like = self.same_as.as_ref().or(self.differs_from.as_ref()).map_or("", |like| like.as_ref());
        let (readings, then) = (at(self.at.as_ref())?, at(like)?.swap_remove(0));
        let missing = |from: &[String], lines: &[String], sign: &str| -> Vec<String> {
            from.iter().filter(|line| !lines.contains(line)).map(|line| format!("{sign} {line}")).collect()
        };
        let mut seen = String::new();
        for (number, now) in readings.iter().enumerate() {
            let later = if number == 0 { "" } else { "it was so, and no longer at the end of `holds`: " };
            let changed = [missing(&then, now, "-"), missing(now, &then, "+")].concat();
            seen = match (changed.is_empty(), self.differs_from.is_some()) {
                (true, false) => format!("{} lines of {node}, all as at {like:?}", now.len()),
                (false, true) => changed.join("; "),
                (true, true) => {
                    return Err(format!("{later}nothing in the kernel of {node} differs from {like:?}"));
                }
                (false, false) => return Err(format!("{later}{}", changed.join("; "))),
            };
        }
        Ok(seen)
    }
}

impl Kernel {
    /// Returns how long the kernel has to stay as it is at the step `at`.
    fn holds(&self) -> Duration {
        let absent = self.same_as.as_ref().map(|_| ABSENT);
        self.holds.or(absent).map_or(Duration::ZERO, |span| span.0)
    }
}
