//! The check `kernel`: what the kernel of a node held at two moments.

use std::time::Duration;

use serde::Deserialize;
use signalbox_units::Span;
use toml::Spanned;

use super::{CheckKeys, Wanted};
use crate::language::expectation::ABSENT;
use crate::language::kinds::{Key, key};
use crate::language::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kernel {
    pub(crate) node: Spanned<String>,
    pub(crate) at: Spanned<String>,
    pub(crate) same_as: Option<Spanned<String>>,
    pub(crate) differs_from: Option<Spanned<String>>,
    pub(crate) holds: Option<Span>,
}

impl CheckKeys for Kernel {
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
}

impl Kernel {
    /// Returns how long the kernel has to stay as it is at the step `at`.
    fn holds(&self) -> Duration {
        let absent = self.same_as.as_ref().map(|_| ABSENT);
        self.holds.or(absent).map_or(Duration::ZERO, |span| span.0)
    }
}
