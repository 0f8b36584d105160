//! The check `sequence`: messages that belong together, in their order, on each link of a path.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::Judge;
use super::select::{self, Span};
use crate::language::checks::sequence::{Item, Sequence};
use crate::plan::Leg;
use crate::run::evidence::{Evidence, Verdict};
use crate::run::observe::passed::Passed;

impl Item {
    fn is(&self, evidence: &Evidence, passed: &Passed<'_>, leg: Leg) -> bool {
        self.along.is_none_or(|along| along == (passed.leg == leg))
            && passed.has(&evidence.plan, &self.fields)
    }
}

impl Judge for Sequence {
    fn simulated(&self) -> bool {
        true
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let found = self.found(evidence)?;
        let complete = found.ends.len();
        let mut seen = format!("{complete} of {} sessions are complete", found.begun);
        if let (Some(after), Some(last)) = (&self.after, found.last()) {
            seen += &format!(
                " after {}: the first message after {:.1} ms, half of them complete after {:.1} ms, the last after {:.1} ms",
                after.as_ref(),
                ms(found.first),
                ms(found.half()),
                ms(last)
            );
        }
        if let Some(reached) = found.reached(self) {
            seen += if reached { "; the goal was reached" } else { "; the goal was not reached" };
        }
        if let Some(published) = self.published {
            seen += &format!("; published is {:.0} ms", ms(published.0));
        }
        let bounded = self.min.is_some() || self.max.is_some();
        let enough = if bounded {
            complete >= self.min.unwrap_or(0) && complete <= self.max.unwrap_or(usize::MAX)
        } else {
            complete > 0 && found.broken.is_none()
        };
        let in_time = self.within.is_none_or(|within| found.last().is_some_and(|last| last <= within.0));
        if enough && in_time {
            return Ok(seen);
        }
        let bound = match (self.min, self.max) {
            (None, None) => "all were expected".to_owned(),
            (min, max) => format!(
                "{} to {} were expected",
                min.unwrap_or(0),
                max.map_or_else(|| "any number".to_owned(), |max| max.to_string())
            ),
        };
        let within = self.within.map_or_else(String::new, |within| format!(" within {within}"));
        let broken = found.broken.map_or_else(String::new, |what| format!("; {what}"));
        Err(format!("{seen}; {bound}{within}{broken}"))
    }

    fn measure(&self, evidence: &Evidence) -> Option<(&'static str, Value)> {
        self.after.as_ref()?;
        let found = self.found(evidence).ok()?;
        let value = json!({
            "sessions": found.ends.len(),
            "first_message_ms": ms(found.first),
            "half_ms": ms(found.half()),
            "last_ms": found.last().map(ms),
            "goal_ms": self.goal.map(|goal| ms(goal.0)),
            "goal_reached": found.reached(self),
            "published_ms": self.published.map(|published| ms(published.0)),
        });
        Some(("repaired", value))
    }
}

/// The sequences that were found; times from the moment on.
#[derive(Debug, Default)]
struct Found {
    /// Sessions with the first message of a sequence on the first link.
    begun: usize,
    first: Duration,
    /// When each session was complete on all links, in order.
    ends: Vec<Duration>,
    /// What the first incomplete session lacks.
    broken: Option<String>,
}

impl Found {
    fn last(&self) -> Option<Duration> {
        self.ends.last().copied()
    }

    fn half(&self) -> Duration {
        self.ends.get(self.ends.len().saturating_sub(1) / 2).copied().unwrap_or_default()
    }

    fn reached(&self, check: &Sequence) -> Option<bool> {
        check.goal.map(|goal| self.last().is_some_and(|last| last <= goal.0))
    }
}

impl Sequence {
    fn found(&self, evidence: &Evidence) -> Result<Found, String> {
        let plan = &evidence.plan;
        let span = Span::of(evidence, [&self.after, &None, &self.during])?;
        // With a moment, what passed before says nothing about the sequence.
        let strict = self.after.is_none() && self.during.is_none();
        let mut found = Found { first: Duration::MAX, ..Found::default() };
        let mut ends: Option<BTreeMap<String, Duration>> = None;
        for leg in select::legs(evidence, self.links.as_ref())? {
            let name = &plan.links[leg.link].name;
            let mut sessions: BTreeMap<String, Vec<Passed<'_>>> = BTreeMap::new();
            for passed in select::on(evidence, self.protocol.as_ref(), leg) {
                if let (true, Some(session)) =
                    (span.holds(passed.message.at()), passed.text(self.per.as_ref()))
                {
                    sessions.entry(session).or_default().push(passed);
                }
            }
            let mut done = BTreeMap::new();
            let mut begun = 0;
            for (session, passed) in sessions {
                let opening = self
                    .sequence
                    .first()
                    .and_then(|item| passed.iter().find(|passed| item.is(evidence, passed, leg)));
                let Some(opening) = opening else { continue };
                begun += 1;
                found.first = found.first.min(opening.message.at());
                match self.complete(evidence, &passed, leg, strict) {
                    Ok(end) => drop(done.insert(session, end)),
                    Err(what) => {
                        let what = format!("{name}, session {session}: {what}");
                        found.broken.get_or_insert(what);
                    }
                }
            }
            if begun == 0 {
                found.broken.get_or_insert(format!("no sequence begins on {name}"));
            }
            ends = Some(match ends {
                None => {
                    found.begun = begun;
                    done
                }
                Some(before) => before
                    .into_iter()
                    .filter_map(|(session, at)| {
                        let end = at.max(*done.get(&session)?);
                        Some((session, end))
                    })
                    .collect(),
            });
        }
        let since =
            |at: Duration| if span.from.is_zero() { Duration::ZERO } else { at.saturating_sub(span.from) };
        found.first = if found.first == Duration::MAX { Duration::ZERO } else { since(found.first) };
        found.ends = ends.unwrap_or_default().into_values().map(since).collect();
        found.ends.sort_unstable();
        Ok(found)
    }

    /// Returns when the sequence is complete, or what it lacks.
    fn complete(
        &self,
        evidence: &Evidence,
        passed: &[Passed<'_>],
        leg: Leg,
        strict: bool,
    ) -> Result<Duration, String> {
        let mut at = Duration::ZERO;
        let mut next = 0;
        for (number, item) in self.sequence.iter().enumerate() {
            let from = if strict { 0 } else { next };
            let found = passed[from..].iter().position(|passed| item.is(evidence, passed, leg));
            let Some(found) = found else {
                return Err(format!("message {} of the sequence is missing", number + 1));
            };
            let index = from + found;
            if passed[index].message.at() < at {
                return Err(format!(
                    "message {} of the sequence is too early: {}",
                    number + 1,
                    passed[index].place(&evidence.plan)
                ));
            }
            at = passed[index].message.at();
            next = index + 1;
        }
        Ok(at)
    }
}

const fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
