//! GIST messages on the links, and how long handshakes and sessions took.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::plan::{Leg, PlannedLink};
use crate::protocols::gist::message::Kind;
use crate::protocols::gist::seen::{Message, Seen, Session};
use crate::report::{Section, quantiles};
use crate::run::evidence::Evidence;
use crate::run::observe::trace::LinkTrace;
use crate::run::steps::ping::PingRun;

const KINDS: [(Kind, &str); 5] = [
    (Kind::Query, "Query"),
    (Kind::Response, "Response"),
    (Kind::Confirm, "Confirm"),
    (Kind::Data, "Data"),
    (Kind::Error, "Error"),
];

/// The place of a message in the order that a handshake has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Query,
    Response,
    Confirm,
    /// Data in the direction of the Query.
    DataDown,
    /// Data in the opposite direction.
    DataUp,
}

/// The sections of the report.
pub(super) fn sections(evidence: &Evidence) -> Vec<Section> {
    if all(evidence).all(|(link, _)| link.messages.is_empty()) {
        return Vec::new();
    }
    let names = KINDS.map(|(_, name)| name);
    let header: Vec<_> = ["link"].into_iter().chain(names).chain(["Queries again"]).collect();
    let rows = all(evidence).map(|(link, planned)| {
        let mut row = vec![planned.name.clone()];
        row.extend(KINDS.map(|(kind, _)| count(link, kind).to_string()));
        row.push(retransmissions(link).to_string());
        row
    });
    let mut sections = vec![Section::table("GIST messages on the links", &header, rows.collect())];
    let Times { handshakes, end_to_end } = times(evidence);
    let times =
        [(handshakes, "handshakes on a link"), (end_to_end, "sessions, to the first reply")].into_iter();
    let lines = times.filter(|(times, _)| !times.is_empty()).map(|(times, what)| {
        let found = quantiles(&times);
        let ms = |key: &str| found[key].as_f64().unwrap_or_default();
        let (p50, p90, longest) = (ms("p50"), ms("p90"), ms("max"));
        format!("{} {what}: p50 {p50:.1} ms, p90 {p90:.1} ms, longest {longest:.1} ms", times.len())
    });
    sections.push(Section::lines("set-up", lines));
    sections
}

/// The same for programs.
pub(super) fn measure(evidence: &Evidence) -> Vec<(&'static str, Value)> {
    if all(evidence).all(|(link, _)| link.messages.is_empty()) {
        return Vec::new();
    }
    let links = all(evidence).map(|(link, planned)| {
        let mut counts: Map<_, _> =
            KINDS.iter().map(|(kind, name)| (name.to_lowercase(), count(link, *kind).into())).collect();
        counts.insert("query_retransmissions".into(), retransmissions(link).into());
        (planned.name.clone(), Value::Object(counts))
    });
    let mut all = vec![("messages", Value::Object(links.collect()))];
    let Times { handshakes, end_to_end } = times(evidence);
    for (name, times) in [("handshake_ms", handshakes), ("set_up_ms", end_to_end)] {
        if !times.is_empty() {
            all.push((name, quantiles(&times)));
        }
    }
    all
}

/// Returns what passed each link.
pub(super) fn all(evidence: &Evidence) -> impl Iterator<Item = (&Seen, &PlannedLink)> + Clone {
    evidence.trace.links.iter().map(LinkTrace::seen::<Seen>).zip(&evidence.plan.links)
}

fn count(link: &Seen, kind: Kind) -> usize {
    link.messages.iter().filter(|message| message.kind == kind).count()
}

/// Counts the Queries beyond the first of their session before its first Response.
fn retransmissions(link: &Seen) -> usize {
    let mut waiting = BTreeMap::new();
    let mut again = 0;
    for message in &link.messages {
        let Some(session) = message.session else { continue };
        match message.kind {
            Kind::Query => {
                let queries = waiting.entry(session).or_insert(0_usize);
                *queries += 1;
                again += usize::from(*queries > 1);
            }
            Kind::Response => {
                waiting.remove(&session);
            }
            Kind::Confirm | Kind::Data | Kind::Error | Kind::MaHello | Kind::Unknown => {}
        }
    }
    again
}

/// How long sessions took, in milliseconds, sorted: of each handshake on each link from its first Query to its first
/// Confirm, and from end to end, observed on the first link, from the first Query to the first Data back.
#[derive(Debug, Default)]
struct Times {
    handshakes: Vec<f64>,
    end_to_end: Vec<f64>,
}

/// Measures the sessions of all pings.
fn times(evidence: &Evidence) -> Times {
    let mut times = Times::default();
    let ends: BTreeSet<_> = evidence.all::<PingRun>().map(|ping| (ping.from, ping.to)).collect();
    for (from, to) in ends {
        let Ok((legs, _)) = evidence.legs(from, to) else { continue };
        for (number, leg) in legs.into_iter().enumerate() {
            let trace = &evidence.trace.links[leg.link];
            for session in sessions(trace, leg) {
                let firsts = firsts(trace, leg, session);
                let since_query = |stage: Stage| {
                    let span = firsts[stage as usize]?.checked_sub(firsts[Stage::Query as usize]?)?;
                    Some(span.as_secs_f64() * 1e3)
                };
                times.handshakes.extend(since_query(Stage::Confirm));
                if number == 0 {
                    times.end_to_end.extend(since_query(Stage::DataUp));
                }
            }
        }
    }
    times.handshakes.sort_by(f64::total_cmp);
    times.end_to_end.sort_by(f64::total_cmp);
    times
}

/// Returns the sessions of the Queries that went along `leg`, which is on this link.
fn sessions(link: &LinkTrace, leg: Leg) -> BTreeSet<Session> {
    let messages = link.seen::<Seen>().messages.iter();
    let queries = messages.filter(|one| one.kind == Kind::Query && link.along(one.outgoing, leg));
    queries.filter_map(|message| message.session).collect()
}

/// Returns when each stage of a session's signaling along `leg` was first seen.
fn firsts(link: &LinkTrace, leg: Leg, session: Session) -> [Option<Duration>; 5] {
    let mut firsts = [None; 5];
    let messages = link.seen::<Seen>().messages.iter().filter(|message| message.session == Some(session));
    for message in messages {
        if let Some(stage) = stage(link, leg, message) {
            firsts[stage as usize].get_or_insert(message.at);
        }
    }
    firsts
}

/// Returns the place of a message in a handshake along `leg`.
fn stage(link: &LinkTrace, leg: Leg, message: &Message) -> Option<Stage> {
    match (message.kind, link.along(message.outgoing, leg)) {
        (Kind::Query, true) => Some(Stage::Query),
        (Kind::Response, false) => Some(Stage::Response),
        (Kind::Confirm, true) => Some(Stage::Confirm),
        (Kind::Data, true) => Some(Stage::DataDown),
        (Kind::Data, false) => Some(Stage::DataUp),
        _ => None,
    }
}
