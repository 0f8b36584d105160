//! The replies to Ping signals: their path and their round trips.

use serde_json::{Value, json};

use crate::judge::path::visited;
use crate::report::{Section, quantiles};
use crate::run::evidence::Evidence;
use crate::run::steps::ping::{PingRun, Reply};

/// The path of the last reply.
pub(super) fn sections(evidence: &Evidence) -> Vec<Section> {
    let Some((ping, reply)) = last_reply(evidence) else { return Vec::new() };
    let ms = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.3}"));
    let from = &evidence.plan.nodes[ping.from];
    let source = from.interfaces.first().map_or_else(String::new, |i| i.address.address.to_string());
    let mut rows = vec![vec![from.name.clone(), source, String::new(), String::new()]];
    rows.extend(reply.hops.iter().map(|hop| {
        let node = evidence.plan.owner(hop.address);
        let name = node.map_or("?", |node| evidence.plan.nodes[node].name.as_str());
        vec![name.to_owned(), hop.address.to_string(), ms(hop.link_ms), ms(hop.node_ms)]
    }));
    let title = format!("path of the signal, from the last reply (round trip {:.3} ms)", reply.rtt_ms);
    vec![Section::table(title, &["node", "address", "link ms", "in the node ms"], rows)]
}

/// The same for programs, and the round trips.
pub(super) fn measure(evidence: &Evidence) -> Vec<(&'static str, Value)> {
    let Some((ping, reply)) = last_reply(evidence) else { return Vec::new() };
    let hops: Vec<Value> = reply
        .hops
        .iter()
        .map(|hop| json!({"address": hop.address, "link_ms": hop.link_ms, "node_ms": hop.node_ms}))
        .collect();
    let replies = evidence.all::<PingRun>().flat_map(|ping| &ping.replies);
    let mut times: Vec<f64> = replies.map(|reply| reply.rtt_ms).collect();
    times.sort_by(f64::total_cmp);
    vec![
        ("path", visited(evidence, ping, reply).into()),
        ("hops", hops.into()),
        ("last_link_ms", reply.last_link_ms.into()),
        ("rtt_ms", quantiles(&times)),
        ("pings", round_trips(evidence)),
    ]
}

fn last_reply(evidence: &Evidence) -> Option<(&PingRun, &Reply)> {
    let with_reply = evidence.all::<PingRun>().filter_map(|ping| Some((ping, ping.replies.last()?)));
    with_reply.last()
}

/// The round trips of each step, for the report in JSON.
fn round_trips(evidence: &Evidence) -> Value {
    let mut steps: Vec<(&str, usize, Vec<f64>)> = Vec::new();
    for run in evidence.all::<PingRun>() {
        let id = run.id.as_deref().unwrap_or_default();
        let at = steps.iter().position(|(step, ..)| *step == id).unwrap_or(steps.len());
        if at == steps.len() {
            steps.push((id, 0, Vec::new()));
        }
        steps[at].1 += 1;
        steps[at].2.extend(run.replies.iter().map(|reply| reply.rtt_ms));
    }
    let of = |(id, sessions, mut times): (&str, usize, Vec<f64>)| {
        times.sort_by(f64::total_cmp);
        let mut value = quantiles(&times);
        let (mean, variance) = mean_and_variance(&times);
        value["sessions"] = sessions.into();
        value["mean"] = mean.into();
        value["variance"] = variance.into();
        (id.to_owned(), value)
    };
    Value::Object(steps.into_iter().map(of).collect())
}

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 replies")]
fn mean_and_variance(values: &[f64]) -> (f64, f64) {
    let number = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / number;
    (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_have_mean_and_variance() {
        assert_eq!(mean_and_variance(&[1.0, 2.0, 3.0, 6.0]), (3.0, 3.5));
        assert_eq!(mean_and_variance(&[]), (0.0, 0.0));
    }
}
