//! The check `queues`.

use serde::Deserialize;
use toml::Spanned;

use super::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{Mistake, Scope};
use crate::steps::{QUEUES, QueuesRun};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Queues {
    label: Spanned<String>,
}

impl Check for Queues {
    const NAME: &'static str = "queues";
    const MEANING: &'static str = "The queues became as the `queues` step describes them.";
    const KEYS: &'static [Key] = &[key("label", "queues", "the label of the `queues` step")];
    const READS_CAPTURES: bool = false;

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.defined(QUEUES, &self.label)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let label = self.label.as_ref();
        let Some(run) = evidence.all::<QueuesRun>().find(|run| run.label == *label) else {
            return Err(format!("the lab did not look at the queues at {label:?}"));
        };
        let seen = format!("after {} ms: {}", run.took.as_millis(), run.seen.join("; "));
        if run.good { Ok(seen) } else { Err(seen) }
    }
}
