//! The Ping application, by which the lab signals over GIST.

pub(crate) mod step;

use serde_json::{Value, json};

use super::Protocol;
use crate::checks::path::visited;
use crate::evidence::Evidence;
use crate::report::{Section, quantiles};
use step::{PingRun, Reply};

/// The entry of the table of protocols.
#[derive(Debug)]
pub(crate) struct Ping;

impl Protocol for Ping {
    fn name(&self) -> &'static str {
        "ping"
    }

    fn title(&self) -> &'static str {
        "Ping"
    }

    fn report(&self, evidence: &Evidence) -> Vec<Section> {
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

    fn measure(&self, evidence: &Evidence) -> Vec<(&'static str, Value)> {
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
            ("pings", step::round_trips(evidence)),
        ]
    }
}

fn last_reply(evidence: &Evidence) -> Option<(&PingRun, &Reply)> {
    let with_reply = evidence.all::<PingRun>().filter_map(|ping| Some((ping, ping.replies.last()?)));
    with_reply.last()
}
