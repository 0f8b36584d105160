//! The check `clean`.

use super::Judge;
use crate::language::checks::clean::Clean;
use crate::run::evidence::{Evidence, Verdict};

impl Judge for Clean {
    fn reads_captures(&self) -> bool {
        false
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
