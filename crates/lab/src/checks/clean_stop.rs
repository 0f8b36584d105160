//! The check `clean_stop`.

use serde::Deserialize;

use super::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::Key;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CleanStop {}

impl Check for CleanStop {
    const NAME: &'static str = "clean_stop";
    const MEANING: &'static str = "Every daemon that was asked to end did so with status 0 and left queues, nftables rules, IP rules and routes as it found them.";
    const KEYS: &'static [Key] = &[];
    const READS_CAPTURES: bool = false;

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
