//! The check `rsvp_repaired`: sessions that are reserved along another route after something was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use toml::Spanned;

use super::message::{RsvpSession, RsvpType};
use super::{Seen, leg};
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{MOMENT, Mistake, Scope};
use crate::units::Span;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Repaired {
    label: Spanned<String>,
    hops: Vec<Spanned<String>>,
    sessions: usize,
    within: Span,
    goal: Option<Span>,
    published: Option<Span>,
}

impl Check for Repaired {
    const NAME: &'static str = "rsvp_repaired";
    const MEANING: &'static str = "After the moment this number of RSVP sessions shows a Path and then a Resv between each two of the hops.";
    const KEYS: &'static [Key] = &[
        key("label", "moment", "what happened"),
        key("hops", "list of nodes", "the nodes of the route, in their order"),
        key("sessions", "number", "the number of sessions"),
        key("within", "time", "the last session is reserved by then"),
        key("goal", "time", "reported, not judged: the time that was wished for").optional(),
        key("published", "time", "reported, not judged: a published time for such a case").optional(),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.defined(MOMENT, &self.label)?;
        scope.chain(&self.hops)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let repair = repair(evidence, self)?;
        let mut seen = format!(
            "{} sessions: the first Path after {:.1} ms, half of the reservations after {:.1} ms, the last after {:.1} ms",
            repair.sessions,
            ms(repair.first_path),
            ms(repair.half),
            ms(repair.last),
        );
        if let Some(goal) = self.goal {
            let reached = if repair.reached(self) == Some(true) { "reached" } else { "not reached" };
            seen += &format!("; the goal of {:.0} ms was {reached}", ms(goal.0));
        }
        if let Some(published) = self.published {
            seen += &format!("; published is {:.0} ms", ms(published.0));
        }
        if repair.sessions == self.sessions && repair.last <= self.within.0 {
            Ok(seen)
        } else {
            Err(format!("{seen}; {} within {} were expected", self.sessions, self.within))
        }
    }

    fn measure(&self, evidence: &Evidence) -> Option<(&'static str, Value)> {
        let repair = repair(evidence, self).ok()?;
        let value = json!({
            "sessions": repair.sessions,
            "first_path_ms": ms(repair.first_path),
            "half_ms": ms(repair.half),
            "last_ms": ms(repair.last),
            "goal_ms": self.goal.map(|goal| ms(goal.0)),
            "goal_reached": repair.reached(self),
            "published_ms": self.published.map(|published| ms(published.0)),
        });
        Some(("repaired", value))
    }
}

/// What was observed after the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Repair {
    /// Sessions with Path and Resv on every link of the new route.
    sessions: usize,
    /// From the moment to the first Path on the new route.
    first_path: Duration,
    /// To the last Resv that half of the sessions waited for.
    half: Duration,
    /// To the last one of all.
    last: Duration,
}

/// Looks for each session's Path and Resv on the links between the nodes after the moment.
fn repair(evidence: &Evidence, check: &Repaired) -> Result<Repair, String> {
    let moment = evidence.moment(check.label.as_ref())?;
    let mut first_path = Duration::MAX;
    let mut ends: Option<BTreeMap<RsvpSession, Duration>> = None;
    for pair in check.hops.windows(2) {
        let leg = leg(evidence, pair[0].as_ref(), pair[1].as_ref())?;
        let link = Seen::on(&evidence.trace.links[leg.link]);
        let mut announced: BTreeSet<RsvpSession> = BTreeSet::new();
        let mut done: BTreeMap<RsvpSession, Duration> = BTreeMap::new();
        for one in link.messages.iter().filter(|one| one.at >= moment) {
            let Some(session) = one.session else { continue };
            match (one.kind, link.along(one, leg)) {
                (RsvpType::Path, true) => {
                    first_path = first_path.min(one.at);
                    announced.insert(session);
                }
                // The answer to the Path, not what came before it.
                (RsvpType::Resv, false) if announced.contains(&session) => {
                    done.entry(session).or_insert(one.at);
                }
                _ => {}
            }
        }
        ends = Some(match ends {
            None => done,
            Some(before) => before
                .into_iter()
                .filter_map(|(session, at)| Some((session, at.max(*done.get(&session)?))))
                .collect(),
        });
    }
    let mut ends: Vec<Duration> = ends.unwrap_or_default().into_values().collect();
    ends.sort_unstable();
    let since = |at: Option<&Duration>| at.copied().unwrap_or(moment).saturating_sub(moment);
    Ok(Repair {
        sessions: ends.len(),
        first_path: if first_path == Duration::MAX {
            Duration::ZERO
        } else {
            first_path.saturating_sub(moment)
        },
        half: since(ends.get(ends.len().saturating_sub(1) / 2)),
        last: since(ends.last()),
    })
}

const fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Repair {
    fn reached(self, check: &Repaired) -> Option<bool> {
        check.goal.map(|goal| self.last <= goal.0)
    }
}
