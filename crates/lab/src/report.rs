//! What a run says: tables for people, one JSON object for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::{Value, json};

use crate::checks::{Outcome, cost, flood, gap, qos, repair, rsvp_hop, rsvp_wire, signal};
use crate::evidence::{Evidence, PingRun, Reply, Snapshot};
use crate::observe::packet::Kind;
use crate::observe::rsvp::RsvpType;
use crate::scenario::{CheckKind, Scenario};

/// The result of a scenario.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub(crate) scenario: String,
    pub(crate) ok: bool,
    pub(crate) checks: Vec<Outcome>,
    pub(crate) measurements: Value,
}

impl Report {
    /// Puts the outcomes and the measurements of a run together.
    pub(crate) fn new(scenario: &Scenario, checks: Vec<Outcome>, evidence: &Evidence) -> Self {
        let ok = checks.iter().all(|check| check.ok);
        let measurements = measurements(scenario, evidence);
        Self { scenario: scenario.name.clone(), ok, checks, measurements }
    }

    /// For people: the path, the routing state, the numbers, the checks.
    pub(crate) fn text(&self, scenario: &Scenario, evidence: &Evidence) -> String {
        let mut text = String::new();
        let mut section = |title: &str, body: String| {
            if !body.is_empty() {
                // Writing to a string does not fail.
                let _ = write!(text, "{title}\n{body}\n\n");
            }
        };
        section("path of the signal, as the last reply tells it", path(evidence));
        for (label, snapshot) in evidence.snapshots.iter().filter(|_| signals(evidence)) {
            section(&format!("routing state: {label}"), state(evidence, snapshot));
        }
        for run in &evidence.programs {
            let lines: Vec<_> = run.lines.iter().map(|line| format!(" {line}")).collect();
            section(&format!("{}, in {}", run.label, evidence.plan.nodes[run.node].name), lines.join("\n"));
        }
        section("messages on the links", links(evidence));
        section("RSVP messages on the links", rsvp_links(evidence));
        section("RSVP on the links, a second", rsvp_load(scenario, evidence));
        section("what the flows had", flows(evidence));
        let mut times = Vec::new();
        for (key, what) in
            [("handshake_ms", "handshakes on a link"), ("set_up_ms", "sessions, to the first reply")]
        {
            if let Some(found) = self.measurements.get(key) {
                let number = |key: &str| found[key].as_f64().unwrap_or_default();
                times.push(format!(
                    " {} {what}: p50 {:.1} ms, p90 {:.1} ms, longest {:.1} ms",
                    found["count"],
                    number("p50"),
                    number("p90"),
                    number("max")
                ));
            }
        }
        section("set-up", times.join("\n"));
        let lines = self.checks.iter().map(|check| {
            format!(
                " {:6}  {}\n         {}",
                if check.ok { "ok" } else { "FAILED" },
                check.name,
                check.detail
            )
        });
        section("checks", lines.collect::<Vec<_>>().join("\n"));
        let failed = self.checks.iter().filter(|check| !check.ok).count();
        let _ = match failed {
            0 => writeln!(text, "{}: all {} checks hold", self.scenario, self.checks.len()),
            failed => writeln!(text, "{}: {failed} of {} checks FAILED", self.scenario, self.checks.len()),
        };
        text
    }
}

/// What each load check compares.
fn rsvp_loads<'a>(
    scenario: &'a Scenario,
    evidence: &'a Evidence,
) -> impl Iterator<Item = (&'a str, (Vec<[String; 5]>, Value))> {
    scenario.checks.iter().filter_map(|check| {
        let CheckKind::RsvpLoad(kind) = &check.kind else { return None };
        Some((check.name.as_str(), rsvp_hop::compared(evidence, kind)?))
    })
}

fn rsvp_load(scenario: &Scenario, evidence: &Evidence) -> String {
    let mut rows = table(&["link", "while", "packets", "messages", "octets"]);
    let mut all: Vec<_> = rsvp_loads(scenario, evidence).flat_map(|(_, (rows, _))| rows).collect();
    all.dedup();
    if all.is_empty() {
        return String::new();
    }
    rows.add_rows(all);
    rows.to_string()
}

/// A row for each flow and phase.
fn flows(evidence: &Evidence) -> String {
    if evidence.traffic.is_empty() {
        return String::new();
    }
    let ms = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
    let mut rows =
        table(&["flow", "phase", "sent", "lost", "loss %", "delay ms p50", "p99", "goodput kbit/s"]);
    for (run, services) in qos::services(evidence) {
        for (phase, service) in services {
            rows.add_row([
                run.name.clone(),
                phase.to_owned(),
                service.sent.to_string(),
                service.lost.to_string(),
                format!("{:.1}", service.loss()),
                ms(service.delay(50)),
                ms(service.delay(99)),
                format!("{:.0}", service.goodput / 1e3),
            ]);
        }
    }
    rows.to_string()
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}

fn last_reply(evidence: &Evidence) -> Option<(&PingRun, &Reply)> {
    evidence.pings.iter().rev().find_map(|ping| Some((ping, ping.replies.last()?)))
}

fn path(evidence: &Evidence) -> String {
    let Some((ping, reply)) = last_reply(evidence) else { return String::new() };
    let ms = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.3}"));
    let mut hops = table(&["node", "address", "link ms", "in the node ms"]);
    let from = &evidence.plan.nodes[ping.from];
    let source = from.interfaces.first().map_or_else(String::new, |i| i.address.address.to_string());
    hops.add_row([from.name.clone(), source, String::new(), String::new()]);
    for hop in &reply.hops {
        let name =
            evidence.plan.owner(hop.address).map_or("?", |node| evidence.plan.nodes[node].name.as_str());
        hops.add_row([name.to_owned(), hop.address.to_string(), ms(hop.link_ms), ms(hop.node_ms)]);
    }
    format!("{hops}\nround trip {:.3} ms", reply.rtt_ms)
}

fn state(evidence: &Evidence, snapshot: &Snapshot) -> String {
    let mut rows = table(&["node", "session", "upstream", "downstream"]);
    for (node, shown) in snapshot {
        let sessions = &shown.sessions;
        let name = &evidence.plan.nodes[*node].name;
        if sessions.is_empty() {
            rows.add_row([name, "none", "", ""]);
        }
        for session in sessions {
            let id: String = session["session"].as_str().unwrap_or("?").chars().take(8).collect();
            rows.add_row([
                name.clone(),
                id,
                side(evidence, session, "upstream"),
                side(evidence, session, "downstream"),
            ]);
        }
    }
    rows.to_string()
}

/// The state in one direction: the state machine's state, and the peer's name.
fn side(evidence: &Evidence, session: &Value, direction: &str) -> String {
    let side = &session[direction];
    if side.is_null() {
        return "-".to_owned();
    }
    let text = |key: &str| side[key].as_str().unwrap_or("?").to_owned();
    let peer = text("peer");
    let address = peer.parse().ok().or_else(|| peer.parse().ok().map(|peer: SocketAddr| peer.ip()));
    let owner = address.and_then(|address| evidence.plan.owner(address));
    let peer = owner.map_or(peer, |node| evidence.plan.nodes[node].name.clone());
    let expires =
        side["expires_in_ms"].as_u64().map_or_else(String::new, |ms| format!(", expires in {ms} ms"));
    format!("{} {} {peer}{expires}", text("role"), text("state"))
}

const KINDS: [(Kind, &str); 5] = [
    (Kind::Query, "Query"),
    (Kind::Response, "Response"),
    (Kind::Confirm, "Confirm"),
    (Kind::Data, "Data"),
    (Kind::Error, "Error"),
];

/// Whether GIST was signaled with; in scenarios of RSVP it is not.
fn signals(evidence: &Evidence) -> bool {
    let mut links = evidence.trace.links.iter();
    links.clone().all(|link| link.rsvp.is_empty()) || links.any(|link| !link.messages.is_empty())
}

const RSVP_TYPES: [(RsvpType, &str); 10] = [
    (RsvpType::Path, "Path"),
    (RsvpType::Resv, "Resv"),
    (RsvpType::ResvConf, "ResvConf"),
    (RsvpType::PathErr, "PathErr"),
    (RsvpType::ResvErr, "ResvErr"),
    (RsvpType::PathTear, "PathTear"),
    (RsvpType::ResvTear, "ResvTear"),
    (RsvpType::Dreq, "DREQ"),
    (RsvpType::Drep, "DREP"),
    (RsvpType::Other, "others"),
];

fn rsvp_links(evidence: &Evidence) -> String {
    if evidence.trace.links.iter().all(|link| link.rsvp.is_empty()) {
        return String::new();
    }
    let header: Vec<_> = ["link"].into_iter().chain(RSVP_TYPES.map(|(_, name)| name)).collect();
    let mut rows = table(&header);
    for (link, planned) in evidence.trace.links.iter().zip(&evidence.plan.links) {
        let count = |kind: RsvpType| link.rsvp.iter().filter(|message| message.kind == kind).count();
        let mut row = vec![planned.name.clone()];
        row.extend(RSVP_TYPES.map(|(kind, _)| count(kind).to_string()));
        rows.add_row(row);
    }
    rows.to_string()
}

fn links(evidence: &Evidence) -> String {
    if !signals(evidence) {
        return String::new();
    }
    let header: Vec<_> =
        ["link"].into_iter().chain(KINDS.map(|(_, name)| name)).chain(["Queries again"]).collect();
    let mut rows = table(&header);
    for (link, planned) in evidence.trace.links.iter().zip(&evidence.plan.links) {
        let count = |kind: Kind| link.messages.iter().filter(|message| message.kind == kind).count();
        let mut row = vec![planned.name.clone()];
        row.extend(KINDS.map(|(kind, _)| count(kind).to_string()));
        row.push(retransmissions(link).to_string());
        rows.add_row(row);
    }
    rows.to_string()
}

fn measurements(scenario: &Scenario, evidence: &Evidence) -> Value {
    let mut all = serde_json::Map::new();
    let mut links = serde_json::Map::new();
    for (link, planned) in evidence.trace.links.iter().zip(&evidence.plan.links) {
        let mut counts = serde_json::Map::new();
        for (kind, name) in KINDS {
            let count = link.messages.iter().filter(|message| message.kind == kind).count();
            counts.insert(name.to_lowercase(), count.into());
        }
        counts.insert("query_retransmissions".into(), retransmissions(link).into());
        links.insert(planned.name.clone(), counts.into());
    }
    all.insert("messages".into(), links.into());
    if let Some((ping, reply)) = last_reply(evidence) {
        let hops: Vec<Value> = reply
            .hops
            .iter()
            .map(|hop| json!({"address": hop.address, "link_ms": hop.link_ms, "node_ms": hop.node_ms}))
            .collect();
        all.insert("path".into(), evidence.visited(ping, reply).into());
        all.insert("hops".into(), hops.into());
        all.insert("last_link_ms".into(), reply.last_link_ms.into());
        let mut times: Vec<f64> =
            evidence.pings.iter().flat_map(|ping| &ping.replies).map(|reply| reply.rtt_ms).collect();
        times.sort_by(f64::total_cmp);
        all.insert("rtt_ms".into(), quantiles(&times));
    }
    let signal::Times { handshakes, end_to_end } = signal::times(evidence);
    for (key, times) in [("handshake_ms", handshakes), ("set_up_ms", end_to_end)] {
        if !times.is_empty() {
            all.insert(key.into(), quantiles(&times));
        }
    }
    let repaired: serde_json::Map<_, _> = scenario
        .checks
        .iter()
        .filter_map(|check| {
            let measured = match &check.kind {
                CheckKind::Repaired(kind) => repair::repair(evidence, kind).ok()?.measured(kind),
                CheckKind::RsvpRepaired(kind) => rsvp_wire::repair(evidence, kind).ok()?.measured(kind),
                _ => return None,
            };
            Some((check.name.clone(), measured))
        })
        .collect();
    let gaps: serde_json::Map<_, _> = scenario
        .checks
        .iter()
        .filter_map(|check| {
            let CheckKind::Gap(kind) = &check.kind else { return None };
            Some((check.name.clone(), gap::found(evidence, kind).ok()?.measured()))
        })
        .collect();
    let loads: serde_json::Map<_, _> =
        rsvp_loads(scenario, evidence).map(|(name, (_, value))| (name.to_owned(), value)).collect();
    if !loads.is_empty() {
        all.insert("rsvp_load".into(), loads.into());
    }
    if !gaps.is_empty() {
        all.insert("gaps".into(), gaps.into());
    }
    if !repaired.is_empty() {
        all.insert("repaired".into(), repaired.into());
    }
    if !evidence.floods.is_empty() {
        all.insert("floods".into(), flood::measured(evidence).into());
    }
    if !evidence.traffic.is_empty() {
        all.insert("traffic".into(), qos::measured(evidence));
    }
    if !evidence.reserves.is_empty() {
        all.insert("reservations".into(), qos::measured_reserves(evidence));
    }
    if !evidence.costs.is_empty() {
        all.insert("cost".into(), cost::measured(evidence));
    }
    if !evidence.losses.is_empty() {
        let loss = |count: &crate::evidence::LossCount| {
            json!({
                "link": evidence.plan.links[count.link].name,
                "to": evidence.plan.nodes[count.node].name,
                "packets": count.seen,
                "lost": count.dropped,
            })
        };
        all.insert("loss".into(), evidence.losses.iter().map(loss).collect());
    }
    let sessions = |(label, snapshot): &(String, Snapshot)| {
        let counts: serde_json::Map<_, _> = snapshot
            .iter()
            .map(|(node, shown)| {
                (evidence.plan.nodes[*node].name.clone(), signal::session_ids(&shown.sessions).len().into())
            })
            .collect();
        (label.clone(), Value::from(counts))
    };
    all.insert(
        "sessions".into(),
        evidence.snapshots.iter().map(sessions).collect::<serde_json::Map<_, _>>().into(),
    );
    all.into()
}

/// Queries beyond the first of their session before its first Response.
fn retransmissions(link: &crate::observe::trace::LinkTrace) -> usize {
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
            _ => {}
        }
    }
    again
}

/// Of sorted times.
fn quantiles(times: &[f64]) -> Value {
    let at = |percent: usize| times.get(((times.len() * percent).div_ceil(100)).saturating_sub(1)).copied();
    json!({
        "count": times.len(), "min": times.first(), "p50": at(50), "p90": at(90), "p99": at(99), "max": times.last(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_sorted_times() {
        let times: Vec<f64> = (1..=10).map(f64::from).collect();
        let value = quantiles(&times);
        assert_eq!((&value["count"], &value["p50"], &value["p90"]), (&json!(10), &json!(5.0), &json!(9.0)));
        assert_eq!((&value["p99"], &value["max"]), (&json!(10.0), &json!(10.0)));
        assert_eq!(quantiles(&[])["p50"], Value::Null);
    }
}
