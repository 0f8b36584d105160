//! The checks `granted` and `not_granted`: what the reserving command printed.

use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;

use super::Qos;
use super::reserve::{RESERVATION, ReserveRun};
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Granted {
    reserve: Spanned<String>,
    hops: Option<Vec<Spanned<String>>>,
    lost_at: Option<Spanned<String>>,
    says: Option<String>,
}

impl Check for Granted {
    const NAME: &'static str = "granted";
    const MEANING: &'static str =
        "The whole path granted the reservation, and it was held to the end, or lost later at a node.";
    const KEYS: &'static [Key] = &[
        key("reserve", "reservation", "the name of the `reserve` step"),
        key("hops", "list of nodes", "exactly these nodes granted, in this order").optional(),
        key("lost_at", "node", "the node at which the reservation was lost later").optional(),
        key("says", "text", "part of the event of the loss").optional(),
    ];
    const READS_CAPTURES: bool = false;

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.defined(RESERVATION, &self.reserve)?;
        let mut hops = self.hops.iter().flatten().chain(&self.lost_at);
        hops.try_for_each(|hop| scope.runs(&Qos, hop))
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let run = find(evidence, self.reserve.as_ref())?;
        let Some((at, event)) = run.granted() else { return Err(format!("not granted; {}", printed(run))) };
        let hops: Vec<String> = event["hops"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|hop| node(evidence, hop, "address"))
            .collect();
        let wanted = self.hops.as_ref().map(|hops| hops.iter().map(|hop| hop.as_ref().clone()).collect());
        if wanted.is_some_and(|wanted: Vec<String>| wanted != hops) {
            return Err(format!("granted by {}; {}", hops.join(", "), printed(run)));
        }
        let after = at.saturating_sub(run.started).as_secs_f64() * 1e3;
        let mut seen = match run.rate() {
            Some((flows, rate)) => format!("{flows} flows granted, {rate:.0} a second"),
            None => format!("granted by {} {after:.0} ms after the command began", hops.join(", ")),
        };
        match (run.event("lost"), &self.lost_at) {
            (None, None) => {}
            (Some((_, lost)), Some(place)) => {
                let words = lost.to_string();
                let meant = self.says.as_ref().is_none_or(|says| words.contains(says));
                if node(evidence, lost, "node") != *place.as_ref() || !meant {
                    return Err(format!("lost otherwise: {words}"));
                }
                seen += &format!(", lost at {} later", place.as_ref());
            }
            _ => return Err(printed(run)),
        }
        if self.lost_at.is_none() && run.status != Some(0) {
            return Err(format!("the command ended with {:?}; {}", run.status, printed(run)));
        }
        Ok(seen)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NotGranted {
    reserve: Spanned<String>,
    by: Spanned<String>,
    rule: String,
}

impl Check for NotGranted {
    const NAME: &'static str = "not_granted";
    const MEANING: &'static str = "A node refused the reservation and named its rule.";
    const KEYS: &'static [Key] = &[
        key("reserve", "reservation", "the name of the `reserve` step"),
        key("by", "node", "the node that refused"),
        key("rule", "text", "part of the rule"),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.defined(RESERVATION, &self.reserve)?;
        scope.runs(&Qos, &self.by)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let run = find(evidence, self.reserve.as_ref())?;
        let Some((_, event)) = run.refused() else { return Err(format!("not refused; {}", printed(run))) };
        let (by, rule) = (node(evidence, event, "node"), event["rule"].as_str().unwrap_or_default());
        if by == *self.by.as_ref() && rule.contains(&self.rule) && run.granted().is_none() {
            return Ok(format!("refused by {by}: {rule}"));
        }
        Err(format!("refused by {by}: {rule:?}; {}", printed(run)))
    }
}

fn find<'e>(evidence: &'e Evidence, name: &str) -> Result<&'e ReserveRun, String> {
    let run = evidence.all::<ReserveRun>().find(|run| run.name == name);
    run.ok_or_else(|| format!("nothing was reserved as {name:?}"))
}

/// Returns all that the command printed, for people who look for the cause.
fn printed(run: &ReserveRun) -> String {
    let events: Vec<_> = run.events.iter().map(|(_, event)| event.to_string()).collect();
    format!("the command printed {}{}", events.join(" "), run.complaint.trim())
}

/// Returns the name of the node whose address a field holds.
fn node(evidence: &Evidence, value: &Value, key: &str) -> String {
    let text = value[key].as_str().unwrap_or_default();
    let owner = text.parse().ok().and_then(|address| evidence.plan.owner(address));
    owner.map_or_else(|| format!("{text:?}"), |node| evidence.plan.nodes[node].name.clone())
}
