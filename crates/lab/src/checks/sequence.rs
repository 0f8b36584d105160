//! The check `sequence`: messages that belong together, in their order, on each link of a path.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use toml::Spanned;

use super::select::{self, Fields, Passed, Span};
use super::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::plan::Leg;
use crate::scenario::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sequence {
    sequence: Vec<Item>,
    #[serde(default = "gist")]
    protocol: Spanned<String>,
    links: Spanned<toml::Value>,
    per: Spanned<String>,
    after: Option<Spanned<String>>,
    during: Option<Spanned<String>>,
    min: Option<usize>,
    max: Option<usize>,
    within: Option<signalbox_units::Span>,
    goal: Option<signalbox_units::Span>,
    published: Option<signalbox_units::Span>,
}

fn gist() -> Spanned<String> {
    Spanned::new(0..0, "gist".to_owned())
}

/// A message of the sequence.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "toml::Value")]
struct Item {
    /// Along the path, or against it; either where it is not said.
    along: Option<bool>,
    fields: Fields,
}

impl TryFrom<toml::Value> for Item {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let mut table = match value {
            toml::Value::String(text) => {
                [("type".to_owned(), toml::Value::String(text))].into_iter().collect()
            }
            toml::Value::Table(table) => table,
            _ => toml::Table::new(),
        };
        let wrong = "a message of a sequence is a text like \"> query\" or \"< data|confirm\" (`>` along the path, `<` against it), \
                     or a table of fields with such a `type`";
        let Some(toml::Value::String(kind)) = table.remove("type") else { return Err(wrong.to_owned()) };
        let (along, kind) = match (kind.strip_prefix('>'), kind.strip_prefix('<')) {
            (Some(kind), _) => (Some(true), kind.trim()),
            (_, Some(kind)) => (Some(false), kind.trim()),
            _ => (None, kind.trim()),
        };
        let kinds: Vec<toml::Value> = kind.split('|').map(toml::Value::from).collect();
        let kinds = toml::Table::from_iter([("one_of".to_owned(), toml::Value::Array(kinds))]);
        table.insert("type".to_owned(), kinds.into());
        let place = |name: String| Spanned::new(0..0, name);
        Ok(Self { along, fields: table.into_iter().map(|(name, value)| (place(name), value)).collect() })
    }
}

impl Item {
    fn is(&self, evidence: &Evidence, passed: &Passed<'_>, leg: Leg) -> bool {
        self.along.is_none_or(|along| along == (passed.leg == leg))
            && passed.has(&evidence.plan, &self.fields)
    }
}

impl Check for Sequence {
    const NAME: &'static str = "sequence";
    const MEANING: &'static str = "On each of the links the messages of each session pass in this order. Without `after`, the first message of each kind counts, so that none comes too early.";
    const KEYS: &'static [Key] = &[
        key("sequence", "list of messages", "texts like \"> query\" (`>` along the path, `<` against it, `|` between types that will do), or tables of fields with such a `type`"),
        key("protocol", "protocol", "the protocol of the messages").or("\"gist\""),
        key("links", "links", "as in `messages`, with the direction of `>`"),
        key("per", "field", "what the messages of a session have in common, like \"session_id\""),
        key("after", "id", "only messages after the moment of this step").optional(),
        key("during", "id", "only messages while this step lasts").optional(),
        key("min", "number", "the least number of sessions whose sequence is complete on all links; without `min` and `max` all sessions have to be complete").optional(),
        key("max", "number", "the greatest number of such sessions").optional(),
        key("within", "time", "the last sequence is complete so long after the moment of `after`").optional(),
        key("goal", "time", "only reported: the time that was wished for").optional(),
        key("published", "time", "only reported: a published time for such a case").optional(),
    ];
    const SIMULATED: bool = true;

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        let per = vec![(self.per.clone(), toml::Value::Boolean(true))];
        let at = |mistake: Mistake| Mistake { at: self.per.span(), ..mistake };
        for fields in self.sequence.iter().map(|item| &item.fields).chain([&per]) {
            select::validate_fields(&self.protocol, fields).map_err(at)?;
        }
        scope.ids(self.after.iter().chain(&self.during))?;
        if self.within.is_some() && self.after.is_none() {
            return Err(Mistake::new(
                self.per.span(),
                "`within` needs `after`, the step from which the time counts",
            ));
        }
        select::validate_links(scope, &self.links)
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
