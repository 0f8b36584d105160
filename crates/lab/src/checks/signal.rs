//! Checks of signaling sessions: their handshakes on the links, their way through the nodes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use super::Verdict;
use crate::evidence::Evidence;
use crate::observe::packet::GIST_PORT;
use crate::observe::trace::{Stage, hex};
use crate::plan::Leg;
use crate::scenario::{HopsCheck, PathCheck, SetUpCheck};

/// The links between two nodes and the address that the far one is reached by.
pub(super) fn legs(evidence: &Evidence, from: usize, to: usize) -> Result<(Vec<Leg>, IpAddr), String> {
    let plan = &evidence.plan;
    let name = |node: usize| plan.nodes.get(node).map_or("?", |node| node.name.as_str());
    let dst = plan.address(to).ok_or_else(|| format!("{} has no address", name(to)))?;
    let legs = plan.path(from, dst);
    if legs.is_empty() { Err(format!("no way from {} to {}", name(from), name(to))) } else { Ok((legs, dst)) }
}

pub(super) fn named(evidence: &Evidence, from: &str, to: &str) -> Result<(usize, usize), String> {
    let pair = evidence.plan.node(from).zip(evidence.plan.node(to));
    pair.ok_or_else(|| format!("{from} or {to} is no node"))
}

/// The distinct sessions in what `show sessions` printed.
pub(crate) fn session_ids(shown: &[Value]) -> BTreeSet<&str> {
    shown
        .iter()
        .filter_map(|state| ["session", "session_id"].iter().find_map(|key| state.get(key)?.as_str()))
        .collect()
}

/// A reply went through exactly these nodes.
pub(super) fn path(evidence: &Evidence, check: &HopsCheck) -> Verdict {
    let wanted: Vec<&str> = check.hops.iter().map(|hop| hop.as_ref().as_str()).collect();
    let mut replies = 0;
    let moment = |label: &Option<toml::Spanned<String>>, default: Duration| match label {
        None => Ok(default),
        Some(label) => {
            let moment = evidence.moments.get(label.as_ref().as_str()).copied();
            moment.ok_or_else(|| format!("nothing happened at {:?}", label.as_ref()))
        }
    };
    let (after, before) = (moment(&check.after, Duration::ZERO)?, moment(&check.before, Duration::MAX)?);
    for ping in &evidence.pings {
        for reply in ping.replies.iter().filter(|reply| (after..before).contains(&reply.sent)) {
            replies += 1;
            let visited = evidence.visited(ping, reply);
            if visited != wanted {
                return Err(format!("a reply went {}, expected {}", visited.join(" - "), wanted.join(" - ")));
            }
        }
    }
    if replies == 0 {
        let said = evidence.pings.iter().map(|ping| ping.complaint.trim()).find(|said| !said.is_empty());
        return Err(format!("no reply; the command said: {}", said.unwrap_or("nothing")));
    }
    Ok(format!("{replies} replies, each by {}", wanted.join(" - ")))
}

/// On each link: Query with Router Alert from the flow's source, Response, Confirm, Data both ways, in this order.
pub(super) fn handshake(evidence: &Evidence, check: &PathCheck) -> Verdict {
    let (from, to) = named(evidence, check.from.as_ref(), check.to.as_ref())?;
    let (legs, dst) = legs(evidence, from, to)?;
    let src = evidence.plan.source(from, dst);
    let mut seen = Vec::new();
    for leg in legs {
        let link = &evidence.trace.links[leg.link];
        let name = &evidence.plan.links[leg.link].name;
        let sessions = link.sessions(leg);
        if sessions.is_empty() {
            return Err(format!("no Query on {name}"));
        }
        for query in link.queries(leg) {
            let wrong = [
                ("has no Router Alert", query.router_alert.is_some()),
                ("does not come from the flow's source", query.s_flag || Some(query.src) == src),
                ("does not go to the flow's destination", query.dst == dst),
                ("does not go to port 270", query.dst_port == GIST_PORT),
                ("lacks the C-flag", query.c_flag),
            ];
            if let Some((what, _)) = wrong.iter().find(|(_, good)| !good) {
                return Err(format!("a Query on {name} {what} ({} to {})", query.src, query.dst));
            }
        }
        for session in sessions {
            in_order(link.firsts(leg, session))
                .map_err(|what| format!("{name}, session {}: {what}", hex(session)))?;
        }
        let messages = link.messages.len();
        seen.push(format!("{name} {messages} messages"));
    }
    Ok(format!(
        "Query (Router Alert, source {}), Response, Confirm, Data there and back: {}",
        src.map_or_else(String::new, |src| src.to_string()),
        seen.join(", ")
    ))
}

fn in_order(firsts: [Option<Duration>; 5]) -> Result<(), String> {
    let names = ["Query", "Response", "Confirm", "Data downstream", "Data upstream"];
    let missing: Vec<_> =
        names.iter().zip(firsts).filter(|(_, at)| at.is_none()).map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        return Err(format!("no {}", missing.join(", no ")));
    }
    let late = (1..firsts.len()).find(|at| firsts[*at] < firsts[at - 1]);
    late.map_or(Ok(()), |at| Err(format!("{} before {}", names[at], names[at - 1])))
}

/// The handshake of every session is complete on every link, and every session has had a reply.
pub(super) fn set_up(evidence: &Evidence, check: &SetUpCheck) -> Verdict {
    let (from, to) = named(evidence, check.from.as_ref(), check.to.as_ref())?;
    let (legs, _) = legs(evidence, from, to)?;
    let mut seen = Vec::new();
    let mut good = true;
    for leg in legs {
        let link = &evidence.trace.links[leg.link];
        let complete =
            link.sessions(leg).into_iter().filter(|session| is_complete(link.firsts(leg, *session)));
        let complete = complete.count();
        good &= complete == check.sessions;
        seen.push(format!("{} {complete}", evidence.plan.links[leg.link].name));
    }
    let answered = evidence
        .pings
        .iter()
        .filter(|ping| (ping.from, ping.to) == (from, to) && !ping.replies.is_empty())
        .count();
    good &= answered == check.sessions;
    let detail = format!("handshakes complete: {}; sessions with a reply: {answered}", seen.join(", "));
    if good { Ok(detail) } else { Err(format!("{detail}; {} were expected", check.sessions)) }
}

/// Query and Response were seen, and what the querying node sends only when it has the Response.
fn is_complete(firsts: [Option<Duration>; 5]) -> bool {
    let seen = |stage: Stage| firsts[stage as usize].is_some();
    seen(Stage::Query) && seen(Stage::Response) && (seen(Stage::Confirm) || seen(Stage::DataDown))
}

/// How long sessions took, in milliseconds, sorted: of each handshake on each link from its first Query to its first
/// Confirm, and from end to end, seen on the first link, from the first Query to the first Data back.
#[derive(Debug, Default)]
pub(crate) struct Times {
    pub(crate) handshakes: Vec<f64>,
    pub(crate) end_to_end: Vec<f64>,
}

/// Measures the sessions of all pings.
pub(crate) fn times(evidence: &Evidence) -> Times {
    let mut times = Times::default();
    let ends: BTreeSet<_> = evidence.pings.iter().map(|ping| (ping.from, ping.to)).collect();
    for (from, to) in ends {
        let Ok((legs, _)) = legs(evidence, from, to) else { continue };
        for (number, leg) in legs.into_iter().enumerate() {
            let link = &evidence.trace.links[leg.link];
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
