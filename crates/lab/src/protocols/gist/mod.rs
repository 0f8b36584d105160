//! GIST (RFC 5971). A daemon runs it unless its configuration turns it off.

pub(crate) mod associations;
pub(crate) mod flood;
pub(crate) mod flood_step;
pub(crate) mod handshake;
pub(crate) mod message;
pub(crate) mod no_errors;
pub(crate) mod no_routing_state;
pub(crate) mod passes_query;
pub(crate) mod probe_expired;
pub(crate) mod refused;
pub(crate) mod repaired;
mod sctp;
pub(crate) mod seen;
pub(crate) mod set_up;
pub(crate) mod silent;
pub(crate) mod state;
mod stream;
pub(crate) mod whole;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::ping::step::PingRun;
use super::{Condition, Observer, Protocol};
use crate::evidence::{Evidence, Shown, Snapshot};
use crate::report::{Section, quantiles};
use message::Kind;
use seen::{Seen, Stage};

/// The command that shows the routing state of a node.
const SESSIONS: &str = "show gist sessions";
/// The command that shows the messaging associations of a node.
const ASSOCIATIONS: &str = "show gist associations";

const KINDS: [(Kind, &str); 5] = [
    (Kind::Query, "Query"),
    (Kind::Response, "Response"),
    (Kind::Confirm, "Confirm"),
    (Kind::Data, "Data"),
    (Kind::Error, "Error"),
];

/// The entry of the table of protocols.
#[derive(Debug)]
pub(crate) struct Gist;

impl Protocol for Gist {
    fn name(&self) -> &'static str {
        "gist"
    }

    fn title(&self) -> &'static str {
        "GIST"
    }

    fn tables(&self) -> &'static [&'static str] {
        &[SESSIONS, ASSOCIATIONS]
    }

    fn conditions(&self) -> &'static [Condition] {
        const SOME: Condition = Condition {
            name: "sessions",
            meaning: "every daemon with Ping holds routing state",
            protocol: &super::ping::Ping,
            table: SESSIONS,
            holds: |rows| !session_ids(rows).is_empty(),
        };
        const NONE: Condition = Condition {
            name: "no_sessions",
            meaning: "no daemon with Ping holds routing state",
            holds: |rows| session_ids(rows).is_empty(),
            ..SOME
        };
        &[SOME, NONE]
    }

    fn observer(&self, first: usize) -> Option<Box<dyn Observer>> {
        Some(Box::new(Seen::new(first)))
    }

    fn report(&self, evidence: &Evidence) -> Vec<Section> {
        if Seen::all(evidence).all(|(link, _)| link.messages.is_empty()) {
            return Vec::new();
        }
        let mut sections: Vec<Section> = evidence
            .snapshots
            .iter()
            .map(|(label, snapshot)| {
                let header = ["node", "session", "upstream", "downstream"];
                Section::table(format!("routing state: {label}"), &header, routing_state(evidence, snapshot))
            })
            .collect();
        let names = KINDS.map(|(_, name)| name);
        let header: Vec<_> = ["link"].into_iter().chain(names).chain(["Queries again"]).collect();
        let rows = Seen::all(evidence).map(|(link, planned)| {
            let mut row = vec![planned.name.clone()];
            row.extend(KINDS.map(|(kind, _)| count(link, kind).to_string()));
            row.push(retransmissions(link).to_string());
            row
        });
        sections.push(Section::table("GIST messages on the links", &header, rows.collect()));
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

    fn measure(&self, evidence: &Evidence) -> Vec<(&'static str, Value)> {
        let links = Seen::all(evidence).map(|(link, planned)| {
            let mut counts: Map<_, _> =
                KINDS.iter().map(|(kind, name)| (name.to_lowercase(), count(link, *kind).into())).collect();
            counts.insert("query_retransmissions".into(), retransmissions(link).into());
            (planned.name.clone(), Value::Object(counts))
        });
        let sessions = evidence.snapshots.iter().map(|(label, snapshot)| {
            let of = |(node, shown): (&usize, &Shown)| {
                let count = session_ids(shown.table(SESSIONS)).len();
                (evidence.plan.nodes[*node].name.clone(), Value::from(count))
            };
            (label.clone(), Value::Object(snapshot.iter().map(of).collect()))
        });
        let mut all = vec![
            ("messages", Value::Object(links.collect())),
            ("sessions", Value::Object(sessions.collect())),
        ];
        let Times { handshakes, end_to_end } = times(evidence);
        for (name, times) in [("handshake_ms", handshakes), ("set_up_ms", end_to_end)] {
            if !times.is_empty() {
                all.push((name, quantiles(&times)));
            }
        }
        all
    }
}

/// Returns the distinct sessions in what `show gist sessions` printed.
pub(crate) fn session_ids(shown: &[Value]) -> BTreeSet<&str> {
    shown.iter().filter_map(|session| session["session_id"].as_str()).collect()
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

/// A row for each session of each node.
fn routing_state(evidence: &Evidence, snapshot: &Snapshot) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (node, shown) in snapshot {
        let name = &evidence.plan.nodes[*node].name;
        let sessions = shown.table(SESSIONS);
        if sessions.is_empty() {
            rows.push(vec![name.clone(), "none".to_owned(), String::new(), String::new()]);
        }
        rows.extend(sessions.iter().map(|session| {
            let id: String = session["session_id"].as_str().unwrap_or("?").chars().take(8).collect();
            let [upstream, downstream] =
                ["upstream", "downstream"].map(|direction| side(evidence, session, direction));
            vec![name.clone(), id, upstream, downstream]
        }));
    }
    rows
}

/// The state in one direction: the state machine's state, and the peer's name.
fn side(evidence: &Evidence, session: &Value, direction: &str) -> String {
    let side = &session[direction];
    if side.is_null() {
        return "-".to_owned();
    }
    let text = |key: &str| side[key].as_str().unwrap_or("?").to_owned();
    let peer = side["peer"]["address"].as_str().unwrap_or("?").to_owned();
    let owner = peer.parse().ok().and_then(|address| evidence.plan.owner(address));
    let peer = owner.map_or(peer, |node| evidence.plan.nodes[node].name.clone());
    let expires = side["expires_in_us"]
        .as_u64()
        .map_or_else(String::new, |us| format!(", expires in {} ms", us / 1000));
    format!("{} {} {peer}{expires}", text("role"), text("state"))
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
            let link = Seen::at(evidence, leg);
            for session in link.sessions(leg) {
                let firsts = link.firsts(leg, session);
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
