//! The check of a flood: what it cost the node that it went to.

use serde_json::{Value, json};

use super::Verdict;
use crate::evidence::{Evidence, FloodRun};
use crate::observe::packet::Kind;
use crate::scenario::FloodCheck;

/// What a flood cost.
#[derive(Debug)]
struct Cost {
    cpu_us_per_query: f64,
    /// Of one processor.
    cpu_share: f64,
    memory_kib: u64,
    /// Octets that left for the invented sources, for each octet that came.
    amplification: f64,
}

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 of anything")]
fn cost(evidence: &Evidence, run: &FloodRun) -> Cost {
    let [before, after] = run.memory;
    let mut octets = [0_u64; 2];
    if let Some(leg) = evidence.plan.leg(run.from, run.node) {
        let link = &evidence.trace.links[leg.link];
        for message in &link.messages {
            octets[usize::from(!link.along(message.outgoing, leg))] += message.packet.len() as u64;
        }
    }
    Cost {
        cpu_us_per_query: run.cpu.as_secs_f64() * 1e6 / run.sent.max(1) as f64,
        cpu_share: run.cpu.as_secs_f64() / run.span.as_secs_f64().max(1e-3),
        memory_kib: after.saturating_sub(before) / 1024,
        amplification: octets[1] as f64 / octets[0].max(1) as f64,
    }
}

/// For the report: one object a flood.
pub(crate) fn measured(evidence: &Evidence) -> Vec<Value> {
    let one = |run: &FloodRun| {
        let cost = cost(evidence, run);
        json!({
            "node": evidence.plan.nodes[run.node].name,
            "queries": run.sent,
            "seconds": run.span.as_secs_f64(),
            "cpu_us_per_query": cost.cpu_us_per_query,
            "cpu_share": cost.cpu_share,
            "memory_growth_kib": cost.memory_kib,
            "amplification": cost.amplification,
        })
    };
    evidence.floods.iter().map(one).collect()
}

/// So many Queries came, and neither time nor memory went with them beyond the bounds.
pub(super) fn flooded(evidence: &Evidence, check: &FloodCheck) -> Verdict {
    let node = evidence.plan.node(check.node.as_ref());
    let Some(run) = evidence.floods.iter().find(|run| Some(run.node) == node) else {
        return Err(format!("{} was not flooded", check.node.as_ref()));
    };
    let cost = cost(evidence, run);
    let came = evidence.plan.leg(run.from, run.node).map_or(0, |leg| {
        let link = &evidence.trace.links[leg.link];
        link.messages.iter().filter(|m| m.kind == Kind::Query && link.along(m.outgoing, leg)).count()
    });
    let seen = format!(
        "{} Queries in {:.1} s, {came} of them captured; the daemon took {:.1} µs of a processor for each ({:.0} % of one), \
         grew by {} KiB and sent {:.2} octets for each that came",
        run.sent,
        run.span.as_secs_f64(),
        cost.cpu_us_per_query,
        cost.cpu_share * 100.0,
        cost.memory_kib,
        cost.amplification,
    );
    let good = run.sent >= check.queries
        && came > 0
        && cost.cpu_us_per_query <= check.cpu_per_query.0.as_secs_f64() * 1e6
        && cost.memory_kib <= check.memory_kib;
    if good { Ok(seen) } else { Err(seen) }
}
