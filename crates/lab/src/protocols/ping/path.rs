//! The check `path`.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::step::{PingRun, Reply};
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{MOMENT, Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Path {
    hops: Vec<Spanned<String>>,
    after: Option<Spanned<String>>,
    before: Option<Spanned<String>>,
}

impl Check for Path {
    const NAME: &'static str = "path";
    const MEANING: &'static str =
        "Every reply of every ping visited exactly these nodes in this order, the sender first.";
    const KEYS: &'static [Key] = &[
        key("hops", "list of nodes", "the nodes in their order"),
        key("after", "moment", "judge only probes that were sent after this moment").optional(),
        key("before", "moment", "judge only probes that were sent before this moment").optional(),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        self.after.iter().chain(&self.before).try_for_each(|label| scope.defined(MOMENT, label))?;
        scope.nodes(&self.hops)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let wanted: Vec<&str> = self.hops.iter().map(|hop| hop.as_ref().as_str()).collect();
        let mut replies = 0;
        let moment = |label: &Option<Spanned<String>>, default: Duration| {
            label.as_ref().map_or(Ok(default), |label| evidence.moment(label.as_ref()))
        };
        let (after, before) = (moment(&self.after, Duration::ZERO)?, moment(&self.before, Duration::MAX)?);
        for ping in evidence.all::<PingRun>() {
            for reply in ping.replies.iter().filter(|reply| (after..before).contains(&reply.sent)) {
                replies += 1;
                let visited = visited(evidence, ping, reply);
                if visited != wanted {
                    return Err(format!(
                        "a reply went {}, expected {}",
                        visited.join(" - "),
                        wanted.join(" - ")
                    ));
                }
            }
        }
        if replies == 0 {
            let mut complaints = evidence.all::<PingRun>().map(|ping| ping.complaint.trim());
            let complaint = complaints.find(|complaint| !complaint.is_empty());
            return Err(format!(
                "no reply; the error output of the command: {}",
                complaint.unwrap_or("nothing")
            ));
        }
        Ok(format!("{replies} replies, each by {}", wanted.join(" - ")))
    }
}

/// Returns the nodes that a reply visited, the sender first.
pub(super) fn visited<'e>(evidence: &'e Evidence, ping: &PingRun, reply: &Reply) -> Vec<&'e str> {
    let name = |node: usize| evidence.plan.nodes.get(node).map_or("?", |node| node.name.as_str());
    let mut visited = vec![name(ping.from)];
    for hop in &reply.hops {
        match evidence.plan.owner(hop.address) {
            // The application decides whether the sender counts as a hop.
            Some(node) if node == ping.from && visited.len() == 1 => {}
            Some(node) => visited.push(name(node)),
            None => visited.push("?"),
        }
    }
    visited
}
