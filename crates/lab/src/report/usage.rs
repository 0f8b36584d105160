//! What a run costs: processor time and memory of daemons, packets and octets of protocols on links.

use serde_json::{Map, Value, json};

use super::numbers::ALL;
use crate::protocols;
use crate::run::evidence::Evidence;
use crate::run::observe::trace::LinkTrace;
use crate::run::usage::{UsageRun, Used};

/// Returns the measurements with their names.
pub(super) fn measure(evidence: &Evidence) -> Vec<(&'static str, Value)> {
    let all = [("daemons", daemons(evidence)), ("links", links(evidence))];
    all.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| (name, value.into())).collect()
}

/// What each daemon used, over the whole run and in each `wait` step with a name.
fn daemons(evidence: &Evidence) -> Map<String, Value> {
    let mut all = Map::new();
    for run in evidence.all::<UsageRun>() {
        for used in &run.daemons {
            let node = &evidence.plan.nodes[used.node].name;
            let of = run.of.as_deref().unwrap_or(ALL);
            all.entry(node.as_str()).or_insert_with(|| Map::new().into())[of] = daemon(run, used);
        }
    }
    all
}

#[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 octets")]
fn daemon(run: &UsageRun, used: &Used) -> Value {
    let kib = used.memory.map(|octets| octets as f64 / 1024.0);
    let (cpu, span) = (used.cpu.as_secs_f64(), run.span.as_secs_f64().max(1e-3));
    json!({
        "cpu_ms": cpu * 1e3, "cpu_percent": 100.0 * cpu / span, "memory_kib": kib[1], "memory_growth_kib": kib[1] - kib[0],
    })
}

/// What each protocol sent on each link.
fn links(evidence: &Evidence) -> Map<String, Value> {
    let mut all = Map::new();
    for (link, trace) in evidence.plan.links.iter().zip(&evidence.trace.links) {
        let of = |name: &'static str| Some((name.to_owned(), passed(trace, name)?));
        let passed: Map<_, _> = protocols::all().filter_map(|protocol| of(protocol.name())).collect();
        if !passed.is_empty() {
            all.insert(link.name.clone(), passed.into());
        }
    }
    all
}

/// Counts the messages of a protocol, and the packets in which they are or end; nothing if there are none.
fn passed(trace: &LinkTrace, protocol: &str) -> Option<Value> {
    let mut frames: Vec<_> = trace.messages(protocol).iter().map(|message| message.frame()).collect();
    let messages = frames.len();
    frames.sort_unstable();
    frames.dedup();
    let octets: u64 = frames.iter().map(|frame| u64::from(trace.octets(*frame))).sum();
    (messages > 0).then(|| json!({"messages": messages, "packets": frames.len(), "octets": octets}))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::judge::tests::evidence;

    #[test]
    fn daemons_have_their_cost_by_span() {
        let (_, mut evidence) = evidence("clean = true");
        let used = |node, ms| Used { node, cpu: Duration::from_millis(ms), memory: [1 << 20, 3 << 20] };
        let second = Duration::from_secs(1);
        evidence.record(UsageRun { of: Some("now".into()), span: second, daemons: vec![used(1, 20)] });
        evidence.record(UsageRun { of: None, span: 2 * second, daemons: vec![used(0, 10), used(1, 50)] });
        let measured = Value::from(daemons(&evidence));
        assert_eq!(
            measured["r1"]["now"],
            json!({"cpu_ms": 20.0, "cpu_percent": 2.0, "memory_kib": 3072.0, "memory_growth_kib": 2048.0})
        );
        assert_eq!(
            (&measured["r1"][ALL]["cpu_ms"], &measured["h1"][ALL]["cpu_percent"]),
            (&json!(50.0), &json!(0.5))
        );
    }
}
