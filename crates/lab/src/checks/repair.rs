//! Checks of what happens after something was lost: sessions that find another way, or the old one again.

use std::time::Duration;

use serde_json::{Value, json};

use super::Verdict;
use crate::evidence::Evidence;
use crate::observe::packet::Kind;
use crate::observe::trace::{LinkTrace, Session};
use crate::plan::Leg;
use crate::scenario::RepairedCheck;

/// What was seen after the moment.
#[derive(Debug)]
pub(crate) struct Repair {
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
pub(crate) fn repair(evidence: &Evidence, check: &RepairedCheck) -> Result<Repair, String> {
    let label = check.label.as_ref();
    let moment = *evidence.moments.get(label).ok_or_else(|| format!("nothing happened at {label:?}"))?;
    let mut legs = Vec::new();
    for pair in check.hops.windows(2) {
        let [from, to] = [&pair[0], &pair[1]].map(|hop| evidence.plan.node(hop.as_ref()));
        let leg = from.zip(to).and_then(|(from, to)| evidence.plan.leg(from, to));
        legs.push(leg.ok_or_else(|| format!("no link from {} to {}", pair[0].as_ref(), pair[1].as_ref()))?);
    }
    let Some((first, others)) = legs.split_first() else { return Err("fewer than two nodes".to_owned()) };
    let mut ends = Vec::new();
    let mut round_trips = Vec::new();
    for session in evidence.trace.links[first.link].sessions(*first) {
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

/// The first Query, Response of the far node itself (not of one behind it) and Confirm after the moment.
fn handshake(evidence: &Evidence, leg: Leg, session: Session, moment: Duration) -> Option<Handshake> {
    let link: &LinkTrace = &evidence.trace.links[leg.link];
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
            _ => {}
        }
    }
    None
}

impl Repair {
    /// Whether the goal was reached, if there is one.
    fn reached(&self, check: &RepairedCheck) -> Option<bool> {
        check.goal.map(|goal| self.last <= goal.0 + self.round_trip)
    }

    /// For the report.
    pub(crate) fn measured(&self, check: &RepairedCheck) -> Value {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        json!({
            "sessions": self.sessions,
            "last_ms": ms(self.last),
            "half_ms": ms(self.half),
            "query_round_trip_ms": ms(self.round_trip),
            "goal_ms": check.goal.map(|goal| ms(goal.0)),
            "goal_reached": self.reached(check),
        })
    }
}

/// Every session is there again in time, and has had a reply since.
pub(super) fn repaired(evidence: &Evidence, check: &RepairedCheck) -> Verdict {
    let repair = repair(evidence, check)?;
    let moment = evidence.moments.get(check.label.as_ref()).copied().unwrap_or_default();
    let answered =
        evidence.pings.iter().filter(|ping| ping.replies.iter().any(|reply| reply.sent > moment)).count();
    let mut seen = format!(
        "{} sessions, half of them after {:.1} ms, the last after {:.1} ms; a Query's round trip took {:.1} ms; {answered} had \
         a reply to a probe sent since",
        repair.sessions,
        repair.half.as_secs_f64() * 1e3,
        repair.last.as_secs_f64() * 1e3,
        repair.round_trip.as_secs_f64() * 1e3,
    );
    if let Some(reached) = repair.reached(check) {
        seen.push_str(if reached { "; the goal was reached" } else { "; the goal was not reached" });
    }
    let good =
        repair.sessions == check.sessions && answered >= check.sessions && repair.last <= check.within.0;
    if good {
        Ok(seen)
    } else {
        Err(format!("{seen}; {} within {} were expected", check.sessions, check.within))
    }
}
