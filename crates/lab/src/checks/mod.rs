//! The checks of a scenario. Each looks at packets and kernel state from outside; `path`, `state` and parts of
//! others show what the commands said.

mod association;
mod content;
pub(crate) mod cost;
pub(crate) mod flood;
pub(crate) mod gap;
mod program;
pub(crate) mod qos;
pub(crate) mod repair;
mod rsvp;
pub(crate) mod rsvp_hop;
pub(crate) mod rsvp_wire;
pub(crate) mod signal;
#[cfg(test)]
mod tests;
mod wire;

use serde::Serialize;

use crate::evidence::Evidence;
use crate::observe::packet::{Kind, NO_ROUTING_STATE};
use crate::scenario::{Check, CheckKind, LossCheck, NodeCheck, SilentCheck, StateCheck};

/// With fewer packets a share means little.
const LOSS_PACKETS_MIN: u64 = 100;

/// What came of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) ok: bool,
    pub(crate) detail: String,
}

/// What was seen that holds, or what was seen that does not.
type Verdict = Result<String, String>;

/// Judges the evidence.
pub(crate) fn run(check: &Check, evidence: &Evidence) -> Outcome {
    let missed: u64 = evidence.trace.links.iter().map(|link| link.missed).sum();
    let verdict = if missed > 0 && looks_at_packets(&check.kind) {
        Err(format!("the captures had no room for {missed} frames, so that nothing is certain"))
    } else {
        judge(&check.kind, evidence)
    };
    let (ok, detail) = match verdict {
        Ok(detail) => (true, detail),
        Err(detail) => (false, detail),
    };
    Outcome { name: check.name.clone(), ok, detail }
}

/// Whether a check judges captured packets; the others stand whatever the captures missed.
const fn looks_at_packets(kind: &CheckKind) -> bool {
    !matches!(
        kind,
        CheckKind::Granted(_)
            | CheckKind::Queues(_)
            | CheckKind::Cost(_)
            | CheckKind::Kernel(_)
            | CheckKind::RsvpNeighbour(_)
            | CheckKind::CleanStop(_)
    )
}

fn judge(kind: &CheckKind, evidence: &Evidence) -> Verdict {
    match kind {
        CheckKind::Forwarding(check) => wire::forwarding(evidence, check),
        CheckKind::Path(check) => signal::path(evidence, check),
        CheckKind::Handshake(check) => signal::handshake(evidence, check),
        CheckKind::PassesQuery(check) => wire::passes_query(evidence, check),
        CheckKind::SetUp(check) => signal::set_up(evidence, check),
        CheckKind::Program(check) => program::program(evidence, check),
        CheckKind::Associations(check) => association::associations(evidence, check),
        CheckKind::Refused(check) => content::refused(evidence, check),
        CheckKind::Whole(check) => content::whole(evidence, check),
        CheckKind::Repaired(check) => repair::repaired(evidence, check),
        CheckKind::Flood(check) => flood::flooded(evidence, check),
        CheckKind::Traffic(check) => qos::traffic(evidence, check),
        CheckKind::Granted(check) => qos::granted(evidence, check),
        CheckKind::NotGranted(check) => qos::not_granted(evidence, check),
        CheckKind::Reservations(check) => qos::reservations(evidence, check),
        CheckKind::Queues(check) => qos::queues(evidence, check),
        CheckKind::Cost(check) => cost::cost(evidence, check),
        CheckKind::Kernel(check) => qos::kernel(evidence, check),
        CheckKind::Gap(check) => gap::gap(evidence, check),
        CheckKind::Rsvp(check) => rsvp::held(evidence, check),
        CheckKind::RsvpMessages(check) => rsvp_wire::messages(evidence, check),
        CheckKind::RsvpNeighbour(check) => rsvp_hop::neighbour(evidence, check),
        CheckKind::RsvpLoad(check) => rsvp_hop::lighter(evidence, check),
        CheckKind::RsvpRepaired(check) => rsvp_wire::repaired(evidence, check),
        CheckKind::Dissected(_) => rsvp::dissected(evidence),
        CheckKind::Loss(check) => loss(evidence, check),
        CheckKind::State(check) => state(evidence, check),
        CheckKind::Silent(check) => silent(evidence, check),
        CheckKind::NoRoutingState(check) => no_routing_state(evidence, check),
        CheckKind::NoErrors(_) => no_errors(evidence),
        CheckKind::CleanStop(_) => clean_stop(evidence),
    }
}

fn loss(evidence: &Evidence, check: &LossCheck) -> Verdict {
    let mut seen = Vec::new();
    let mut good = !evidence.losses.is_empty();
    for count in &evidence.losses {
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 packets")]
        let share = 100.0 * count.dropped as f64 / count.seen.max(1) as f64;
        good &= count.seen >= LOSS_PACKETS_MIN;
        good &= (check.min.percent()..=check.max.percent()).contains(&share);
        let (link, node) = (&evidence.plan.links[count.link].name, &evidence.plan.nodes[count.node].name);
        seen.push(format!("{link} to {node} {share:.1} % of {}", count.seen));
    }
    if seen.is_empty() {
        return Err("no link has a loss".to_owned());
    }
    if good { Ok(seen.join(", ")) } else { Err(seen.join(", ")) }
}

fn state(evidence: &Evidence, check: &StateCheck) -> Verdict {
    let label = check.label.as_ref();
    let Some(snapshot) = evidence.snapshot(label) else {
        return Err(format!("nobody was asked at {label:?}"));
    };
    let (mut good, mut seen) = (true, Vec::new());
    for (node, planned) in evidence.plan.nodes.iter().enumerate().filter(|(_, node)| node.ping) {
        let sessions =
            signal::session_ids(snapshot.get(&node).map_or(&[], |shown| shown.sessions.as_slice()));
        let spared = check.except.iter().any(|except| *except.as_ref() == planned.name);
        let wanted = if spared { 0 } else { check.sessions };
        good &= snapshot.contains_key(&node) && sessions.len() == wanted;
        seen.push(format!("{} {}", planned.name, sessions.len()));
    }
    let detail = format!("sessions at {label:?}: {}", seen.join(", "));
    if good { Ok(detail) } else { Err(format!("{detail}; {} each were expected", check.sessions)) }
}

fn silent(evidence: &Evidence, check: &SilentCheck) -> Verdict {
    let Some((from, to)) = evidence.windows.get(check.label.as_ref()) else {
        return Err(format!("nobody watched at {:?}", check.label.as_ref()));
    };
    for (link, planned) in evidence.trace.links.iter().zip(&evidence.plan.links) {
        let inside = link.messages.iter().find(|message| (from..=to).contains(&&message.at));
        if let Some(message) = inside {
            return Err(format!(
                "{:?} from {} on {} after {} ms",
                message.kind,
                message.src,
                planned.name,
                (message.at.saturating_sub(*from)).as_millis()
            ));
        }
    }
    Ok(format!("no GIST message on any link for {} ms", to.saturating_sub(*from).as_millis()))
}

fn no_routing_state(evidence: &Evidence, check: &NodeCheck) -> Verdict {
    let node = evidence.plan.node(check.node.as_ref());
    let Some(probe) = evidence.probes.iter().find(|probe| Some(probe.to) == node) else {
        return Err(format!("nothing was sent to {} for an expired session", check.node.as_ref()));
    };
    let errors: Vec<_> = evidence
        .trace
        .links
        .iter()
        .flat_map(|link| &link.messages)
        .filter(|m| m.kind == Kind::Error && m.at >= probe.at && evidence.plan.owner(m.src) == node)
        .collect();
    let answer = errors.iter().find(|message| {
        message.error == Some(NO_ROUTING_STATE) && message.session.is_none_or(|s| s == probe.session)
    });
    match (answer, errors.first()) {
        (Some(answer), _) => Ok(format!(
            "{} answers Data for the expired session with Error 5, No Routing State, after {:.1} ms",
            check.node.as_ref(),
            answer.at.saturating_sub(probe.at).as_secs_f64() * 1e3
        )),
        (None, Some(other)) => Err(format!("{} answers with Error {:?}", check.node.as_ref(), other.error)),
        (None, None) => Err(format!("{} does not answer", check.node.as_ref())),
    }
}

fn no_errors(evidence: &Evidence) -> Verdict {
    let before = evidence.probes.iter().map(|probe| probe.at).min();
    for (link, planned) in evidence.trace.links.iter().zip(&evidence.plan.links) {
        let error = link
            .messages
            .iter()
            .find(|message| message.kind == Kind::Error && before.is_none_or(|before| message.at < before));
        if let Some(error) = error {
            return Err(format!("Error {:?} from {} on {}", error.error, error.src, planned.name));
        }
    }
    Ok("no Error message on any link".to_owned())
}

fn clean_stop(evidence: &Evidence) -> Verdict {
    let name = |node: usize| &evidence.plan.nodes[node].name;
    let mut wrong = Vec::new();
    for stop in &evidence.stops {
        wrong.extend(stop.fault.iter().map(|fault| format!("{}: {fault}", name(stop.node))));
        wrong.extend(stop.changed.iter().map(|line| format!("{}: {line}", name(stop.node))));
    }
    if evidence.stops.is_empty() {
        return Err("no daemon was stopped".to_owned());
    }
    if !wrong.is_empty() {
        return Err(wrong.join("; "));
    }
    let names: Vec<_> = evidence.stops.iter().map(|stop| name(stop.node).as_str()).collect();
    Ok(format!("{} ended with status 0, queues, nftables and IP rules as before", names.join(", ")))
}
