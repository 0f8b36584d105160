//! The check `repaired`: sessions that find another route, or the old one again, after something was lost.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use toml::Spanned;

use super::message::Kind;
use super::seen::{Seen, Session};
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::plan::Leg;
use crate::protocols::ping::step::PingRun;
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
}

impl Check for Repaired {
    const NAME: &'static str = "repaired";
    const MEANING: &'static str = "After the moment this number of sessions has a new handshake between each two of the hops, and as many had a reply since.";
    const KEYS: &'static [Key] = &[
        key("label", "moment", "what happened"),
        key("hops", "list of nodes", "the nodes of the route, in their order"),
        key("sessions", "number", "the number of sessions"),
        key("within", "time", "the last session has its handshake by then"),
        key("goal", "time", "reported, not judged: the time that was wished for, a Query's round trip added")
            .optional(),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.defined(MOMENT, &self.label)?;
        scope.chain(&self.hops)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let repair = repair(evidence, self)?;
        let moment = evidence.moment(self.label.as_ref())?;
        let answered = evidence
            .all::<PingRun>()
            .filter(|ping| ping.replies.iter().any(|reply| reply.sent > moment))
            .count();
        let mut seen = format!(
            "{} sessions, half of them after {:.1} ms, the last after {:.1} ms; a Query's round trip took {:.1} ms; {answered} had \
             a reply to a probe sent since",
            repair.sessions,
            repair.half.as_secs_f64() * 1e3,
            repair.last.as_secs_f64() * 1e3,
            repair.round_trip.as_secs_f64() * 1e3,
        );
        if let Some(reached) = repair.reached(self) {
            seen.push_str(if reached { "; the goal was reached" } else { "; the goal was not reached" });
        }
        let good =
            repair.sessions == self.sessions && answered >= self.sessions && repair.last <= self.within.0;
        if good {
            Ok(seen)
        } else {
            Err(format!("{seen}; {} within {} were expected", self.sessions, self.within))
        }
    }

    fn measure(&self, evidence: &Evidence) -> Option<(&'static str, Value)> {
        let repair = repair(evidence, self).ok()?;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let value = json!({
            "sessions": repair.sessions,
            "last_ms": ms(repair.last),
            "half_ms": ms(repair.half),
            "query_round_trip_ms": ms(repair.round_trip),
            "goal_ms": self.goal.map(|goal| ms(goal.0)),
            "goal_reached": repair.reached(self),
        });
        Some(("repaired", value))
    }
}

/// What was observed after the moment.
#[derive(Debug)]
struct Repair {
    /// Sessions whose handshake is complete on every link.
    sessions: usize,
    /// From the moment to the last of their handshakes.
    last: Duration,
    /// The same for the first half of them.
    half: Duration,
    /// The typical time from a Query to its Response.
    round_trip: Duration,
}

/// A handshake after the moment.
#[derive(Debug, Clone, Copy)]
struct Handshake {
    confirmed: Duration,
    round_trip: Duration,
}

/// Looks for handshakes after the moment on the links between the nodes.
fn repair(evidence: &Evidence, check: &Repaired) -> Result<Repair, String> {
    let moment = evidence.moment(check.label.as_ref())?;
    let mut legs = Vec::new();
    for pair in check.hops.windows(2) {
        let [from, to] = [&pair[0], &pair[1]].map(|hop| evidence.plan.node(hop.as_ref()));
        let leg = from.zip(to).and_then(|(from, to)| evidence.plan.leg(from, to));
        legs.push(leg.ok_or_else(|| format!("no link from {} to {}", pair[0].as_ref(), pair[1].as_ref()))?);
    }
    let Some((first, others)) = legs.split_first() else { return Err("fewer than two nodes".to_owned()) };
    let mut ends = Vec::new();
    let mut round_trips = Vec::new();
    for session in Seen::at(evidence, *first).sessions(*first) {
        let all: Option<Vec<_>> =
            [first].into_iter().chain(others).map(|leg| handshake(evidence, *leg, session, moment)).collect();
        let Some(all) = all else { continue };
        ends.extend(all.iter().map(|handshake| handshake.confirmed).max());
        round_trips.extend(all.iter().map(|handshake| handshake.round_trip));
    }
    ends.sort();
    round_trips.sort();
    let middle =
        |times: &[Duration]| times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or_default();
    let last = ends.last().copied().unwrap_or(moment);
    Ok(Repair {
        sessions: ends.len(),
        last: last.saturating_sub(moment),
        half: middle(&ends).saturating_sub(moment),
        round_trip: middle(&round_trips),
    })
}

/// Looks for the first Query, Response of the far node itself (not of one behind it) and Confirm after the moment.
fn handshake(evidence: &Evidence, leg: Leg, session: Session, moment: Duration) -> Option<Handshake> {
    let link = Seen::at(evidence, leg);
    let mut query = None;
    let mut response = None;
    for message in link.messages.iter().filter(|m| m.session == Some(session) && m.at >= moment) {
        let along = link.along(message.outgoing, leg);
        match message.kind {
            Kind::Query if along && response.is_none() => query = Some(message.at),
            Kind::Response if !along && evidence.plan.owner(message.src) == Some(leg.to) => {
                response = response.or(query.map(|query| message.at.saturating_sub(query)));
            }
            Kind::Confirm if along && evidence.plan.owner(message.dst) == Some(leg.to) => {
                if let Some(round_trip) = response {
                    return Some(Handshake { confirmed: message.at, round_trip });
                }
            }
            Kind::Query
            | Kind::Response
            | Kind::Confirm
            | Kind::Data
            | Kind::Error
            | Kind::MaHello
            | Kind::Unknown => {}
        }
    }
    None
}

impl Repair {
    /// Whether the goal was reached, if there is one.
    fn reached(&self, check: &Repaired) -> Option<bool> {
        check.goal.map(|goal| self.last <= goal.0 + self.round_trip)
    }
}
