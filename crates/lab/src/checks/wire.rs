//! Checks of single packets on their way through nodes.

use super::Verdict;
use crate::evidence::Evidence;
use crate::observe::trace::Message;
use crate::plan::Leg;
use crate::scenario::{PassesCheck, PathCheck};

/// Plain datagrams crossed every link of the path, one TTL less behind each router, and arrived.
pub(super) fn forwarding(evidence: &Evidence, check: &PathCheck) -> Verdict {
    let plan = &evidence.plan;
    let ends = plan.node(check.from.as_ref()).zip(plan.node(check.to.as_ref()));
    let Some(run) = evidence.udp.iter().find(|run| Some((run.from, run.to)) == ends) else {
        return Err("no datagrams were sent between these nodes".to_owned());
    };
    let legs = super::signal::legs(evidence, run.from, run.to)?;
    let (src, dst) = (plan.source(run.from, legs.1), legs.1);
    let mut ttls = Vec::new();
    for leg in &legs.0 {
        let link = &evidence.trace.links[leg.link];
        let passed: Vec<_> = link
            .probes
            .iter()
            .filter(|probe| link.along(probe.outgoing, *leg) && Some(probe.src) == src && probe.dst == dst)
            .collect();
        let name = &plan.links[leg.link].name;
        if passed.len() < run.sent as usize {
            return Err(format!("{} of {} datagrams on {name}", passed.len(), run.sent));
        }
        ttls.extend(passed.first().map(|probe| probe.ttl));
    }
    if ttls.windows(2).any(|pair| pair[0] != pair[1] + 1) {
        return Err(format!("TTL on the links: {ttls:?}; every router takes one"));
    }
    if run.arrived < run.sent {
        return Err(format!("{} of {} datagrams arrived", run.arrived, run.sent));
    }
    Ok(format!("{} datagrams arrived, TTL on the links {ttls:?}", run.arrived))
}

/// Queries leave the node as they came, but for TTL, GIST hop count and checksums; it sends nothing of its own.
pub(super) fn passes_query(evidence: &Evidence, check: &PassesCheck) -> Verdict {
    let plan = &evidence.plan;
    let name = check.node.as_ref();
    let node = plan.node(name).unwrap_or(usize::MAX);
    let mut compared = 0_u32;
    let flows: Vec<(usize, usize)> = match &check.ends {
        Some([from, to]) => vec![super::signal::named(evidence, from.as_ref(), to.as_ref())?],
        None => evidence.pings.iter().map(|ping| (ping.from, ping.to)).collect(),
    };
    for (from, to) in flows {
        let (legs, _) = super::signal::legs(evidence, from, to)?;
        let Some(pair) = legs.windows(2).find(|pair| pair[0].to == node) else { continue };
        let (into, out_of) = (pair[0], pair[1]);
        for session in evidence.trace.links[into.link].sessions(into) {
            let queries = |leg: Leg| {
                evidence.trace.links[leg.link]
                    .queries(leg)
                    .filter(|message| message.session == Some(session))
                    .collect::<Vec<_>>()
            };
            // Of Queries that a network loses the sender makes new ones, with another cookie: what left is compared
            // with the last that had come.
            let came = queries(into);
            for after in queries(out_of) {
                let Some(before) = came.iter().rfind(|before| before.at <= after.at) else {
                    return Err(format!("a Query left {name} and had not come to it"));
                };
                unchanged(before, after, check.gist_hops).map_err(|what| format!("{name} changed {what}"))?;
                compared += 1;
            }
        }
    }
    let own = evidence
        .trace
        .links
        .iter()
        .flat_map(|link| &link.messages)
        .find(|message| plan.owner(message.src) == Some(node));
    match (own, compared) {
        (Some(message), _) => Err(format!("{name} sent a {:?} from {}", message.kind, message.src)),
        (None, 0) => Err(format!("no Query passed {name}")),
        (None, _) => Ok(format!(
            "{compared} Queries passed {name} with TTL 1 and GIST hops {} less, else unchanged; it sent no message of its own",
            check.gist_hops
        )),
    }
}

/// The two are the same packet, a router later.
fn unchanged(before: &Message, after: &Message, gist_hops: u8) -> Result<(), String> {
    if after.ttl.checked_add(1) != Some(before.ttl) {
        return Err(format!("the TTL from {} to {}", before.ttl, after.ttl));
    }
    if after.hops.checked_add(gist_hops) != Some(before.hops) {
        return Err(format!("the GIST hop count from {} to {}", before.hops, after.hops));
    }
    let pairs = [
        ("the source address", before.src == after.src),
        ("the destination address", before.dst == after.dst),
        ("the Router Alert", before.router_alert == after.router_alert),
        ("the UDP ports", ports(before) == ports(after)),
        ("the message", body(before) == body(after)),
    ];
    match pairs.iter().find(|(_, same)| !same) {
        Some((what, _)) => Err((*what).to_owned()),
        None => Ok(()),
    }
}

/// Source and destination port.
fn ports(message: &Message) -> Option<&[u8]> {
    message.packet.get(message.payload_at.checked_sub(8)?..message.payload_at.checked_sub(4)?)
}

/// Magic number and version, then everything behind the hop count.
fn body(message: &Message) -> Option<(&[u8], &[u8])> {
    let payload = message.packet.get(message.payload_at..)?;
    Some((payload.get(..5)?, payload.get(6..)?))
}
