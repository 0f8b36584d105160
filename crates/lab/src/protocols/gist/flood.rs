//! The check `flood`: the cost of a flood of Queries for the node that received it.

use serde::Deserialize;
use serde_json::{Value, json};
use toml::Spanned;

use super::flood_step::FloodRun;
use super::message::Kind;
use super::seen::Seen;
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{Mistake, Scope};
use crate::units::Span;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flood {
    node: Spanned<String>,
    queries: u64,
    cpu_per_query: Span,
    memory_kib: u64,
}

impl Check for Flood {
    const NAME: &'static str = "flood";
    const MEANING: &'static str = "The flood had at least this number of Queries, and the daemon used no more processor time and memory than this.";
    const KEYS: &'static [Key] = &[
        key("node", "node", "the node that was flooded"),
        key("queries", "number", "the least number of Queries that were sent"),
        key("cpu_per_query", "time", "the most processor time of its daemon for one Query"),
        key("memory_kib", "number", "the most that its daemon's memory may grow, in KiB"),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.daemon(&self.node)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let node = evidence.plan.node(self.node.as_ref());
        let Some(run) = evidence.all::<FloodRun>().find(|run| Some(run.node) == node) else {
            return Err(format!("{} was not flooded", self.node.as_ref()));
        };
        let cost = cost(evidence, run);
        let came = evidence.plan.leg(run.from, run.node).map_or(0, |leg| {
            let link = Seen::at(evidence, leg);
            link.messages.iter().filter(|m| m.kind == Kind::Query && link.along(m.outgoing, leg)).count()
        });
        let seen = format!(
            "{} Queries in {:.1} s, {came} of them captured; the daemon used {:.1} µs of a processor for each ({:.0} % of one), \
             grew by {} KiB and sent {:.2} octets for each that came",
            run.sent,
            run.span.as_secs_f64(),
            cost.cpu_us_per_query,
            cost.cpu_share * 100.0,
            cost.memory_kib,
            cost.amplification,
        );
        let good = run.sent >= self.queries
            && came > 0
            && cost.cpu_us_per_query <= self.cpu_per_query.0.as_secs_f64() * 1e6
            && cost.memory_kib <= self.memory_kib;
        if good { Ok(seen) } else { Err(seen) }
    }
}

/// The cost of a flood.
#[derive(Debug)]
struct Cost {
    cpu_us_per_query: f64,
    /// The share of one processor.
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
        let link = Seen::at(evidence, leg);
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

/// Returns the measurement of a flood.
pub(super) fn measured(evidence: &Evidence, run: &FloodRun) -> Value {
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
}
