//! The check `rsvp_neighbour`.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::{NEIGHBOURS, Rsvp};
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{LABEL, Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Neighbour {
    label: Spanned<String>,
    node: Spanned<String>,
    neighbour: Spanned<String>,
    heard: Option<bool>,
    refresh_reduction: Option<String>,
    #[serde(default)]
    refused: BTreeMap<String, u64>,
}

impl Check for Neighbour {
    const NAME: &'static str = "rsvp_neighbour";
    const MEANING: &'static str = "The node showed its RSVP neighbour with these values.";
    const KEYS: &'static [Key] = &[
        key("label", "label", "when the node was asked"),
        key("node", "node", "the node"),
        key("neighbour", "node", "its neighbour"),
        key("heard", "boolean", "a message of the neighbour was accepted").optional(),
        key("refresh_reduction", "text", "the refresh reduction in use, as the command names it").optional(),
        key("refused", "table of numbers", "for each reason, the least number of messages refused for it")
            .or("{}"),
    ];
    const READS_CAPTURES: bool = false;

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.runs(&Rsvp, &self.node)?;
        scope.neighbours(&self.node, &self.neighbour)?;
        scope.defined(LABEL, &self.label)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let (node, other) = (self.node.as_ref(), self.neighbour.as_ref());
        let label = self.label.as_ref();
        let planned = evidence.plan.node(node).zip(evidence.plan.node(other));
        let shown = planned.and_then(|(node, _)| evidence.snapshot(label).ok()?.get(&node));
        let (Some((at, other_at)), Some(shown)) = (planned, shown) else {
            return Err(format!("{node} was not asked at {label:?}"));
        };
        let interface =
            evidence.plan.nodes[at].interfaces.iter().find(|interface| interface.peer.0 == other_at);
        let address = interface.map(|interface| interface.peer.1.to_string()).unwrap_or_default();
        let Some(row) = shown.table(NEIGHBOURS).iter().find(|row| row["address"] == address.as_str()) else {
            return Err(format!("{node} shows no neighbour {address} at {label:?}"));
        };
        let (mut good, mut seen) = (true, Vec::new());
        let heard = row["last_message_age_us"].is_u64();
        good &= self.heard.is_none_or(|wanted| wanted == heard);
        seen.push(if heard { "heard" } else { "not heard" }.to_owned());
        let reduction = row["refresh_reduction"].as_str().unwrap_or("?");
        if let Some(wanted) = &self.refresh_reduction {
            good &= reduction == wanted;
            seen.push(format!("refresh reduction {reduction}"));
        }
        for (reason, least) in &self.refused {
            let failures = row["authentication_failures"].as_array().into_iter().flatten();
            let of = failures.filter(|one| one["reason"] == reason.as_str());
            let count: u64 = of.filter_map(|one| one["messages"].as_u64()).sum();
            good &= count >= *least;
            seen.push(format!("{count} refused as {reason}"));
        }
        let seen = format!("{node} shows {other} at {label:?}: {}", seen.join(", "));
        if good { Ok(seen) } else { Err(format!("{seen}; it shows {row}")) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::checks::tests::evidence;
    use crate::evidence::Shown;

    fn neighbour_check(more: &str, shown: Vec<Value>) -> Verdict {
        let text = format!("label = \"now\"\nnode = \"r1\"\nneighbour = \"h1\"\n{more}");
        let check: Neighbour = toml::from_str(&text).unwrap();
        let (_, mut evidence) = evidence("kind = \"no_errors\"");
        let shown = Shown { tables: [(NEIGHBOURS, shown)].into(), ..Shown::default() };
        evidence.snapshots.push(("now".to_owned(), [(1, shown)].into()));
        check.judge(&evidence)
    }

    #[test]
    fn a_neighbour_is_seen_as_its_node_shows_it() {
        let row = || {
            json!({
                "address": "10.0.1.1",
                "last_message_age_us": 5,
                "refresh_reduction": "complete",
                "authentication_failures": [
                    { "reason": "replayed", "messages": 3 },
                    { "reason": "wrong_digest", "messages": 1 },
                ],
            })
        };
        let good =
            "heard = true\nrefresh_reduction = \"complete\"\nrefused = { replayed = 3, wrong_digest = 1 }";
        assert!(neighbour_check(good, vec![row()]).is_ok());
        for wrong in [
            "heard = false",
            "refresh_reduction = \"off\"",
            "refused = { replayed = 4 }",
            "refused = { unsigned = 1 }",
        ] {
            assert!(neighbour_check(wrong, vec![row()]).is_err(), "{wrong}");
        }
        assert!(neighbour_check("", Vec::new()).unwrap_err().contains("shows no neighbour 10.0.1.1"));
    }
}
