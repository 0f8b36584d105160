//! The check `clean`.

use std::time::Duration;

use serde::Deserialize;
use signalbox_units::Span;
use toml::Spanned;

use super::{Check, Verdict};
use crate::evidence::Evidence;
use crate::expectation::ABSENT;
use crate::kinds::{Key, key};
use crate::scenario::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Clean {
    clean: Spanned<bool>,
    #[serde(default = "absent")]
    holds: Span,
}

const fn absent() -> Span {
    ABSENT
}

impl Check for Clean {
    const NAME: &'static str = "clean";
    const MEANING: &'static str = "Every daemon that was asked to end did so with status 0 and left queues, nftables rules, IP rules and routes as it found them. After the last daemon they stay so.";
    const KEYS: &'static [Key] = &[
        key("clean", "boolean", "`true`"),
        key("holds", "time", "how long they have to stay so after the last daemon has ended").or("\"2s\""),
    ];
    const READS_CAPTURES: bool = false;

    fn validate(&self, _scope: &Scope<'_>) -> Result<(), Mistake> {
        if *self.clean.as_ref() {
            return Ok(());
        }
        Err(Mistake::new(self.clean.span(), "`clean` is `true`; without the check nothing is compared"))
    }

    fn rests(&self) -> Duration {
        self.holds.0
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let name = |node: usize| &evidence.plan.nodes[node].name;
        let mut wrong = Vec::new();
        for stop in &evidence.stops {
            wrong.extend(stop.fault.iter().map(|fault| format!("{}: {fault}", name(stop.node))));
            wrong.extend(stop.changed.iter().map(|line| format!("{}: {line}", name(stop.node))));
        }
        if evidence.stops.is_empty() {
            return Err("no daemon was stopped".to_owned());
        }
        if !wrong.is_empty() {
            return Err(wrong.join("; "));
        }
        let names: Vec<_> = evidence.stops.iter().map(|stop| name(stop.node).as_str()).collect();
        Ok(format!("{} ended with status 0, queues, nftables and IP rules as before", names.join(", ")))
    }
}
