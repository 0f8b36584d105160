//! The check `passes_query`.

use serde::Deserialize;
use toml::Spanned;

use super::seen::{Message, Seen};
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::plan::Leg;
use crate::protocols::ping::step::PingRun;
use crate::scenario::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PassesQuery {
    node: Spanned<String>,
    gist_hops: u8,
    ends: Option<[Spanned<String>; 2]>,
}

impl Check for PassesQuery {
    const NAME: &'static str = "passes_query";
    const MEANING: &'static str = "Queries leave the node as they came, but for TTL (one less), GIST hop count and checksums; the node sends no message of its own.";
    const KEYS: &'static [Key] = &[
        key("node", "node", "the node that Queries pass"),
        key(
            "gist_hops",
            "number",
            "what the GIST hop count loses: 1 at a node with GIST, 0 at a plain router",
        ),
        key("ends", "two nodes", "the ends of the flow; those of each ping if they are not given").optional(),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.nodes(self.ends.iter().flatten().chain([&self.node]))
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let plan = &evidence.plan;
        let name = self.node.as_ref();
        let node = plan.node(name).unwrap_or(usize::MAX);
        let mut compared = 0_u32;
        let flows: Vec<(usize, usize)> = match &self.ends {
            Some([from, to]) => vec![evidence.nodes(from.as_ref(), to.as_ref())?],
            None => evidence.all::<PingRun>().map(|ping| (ping.from, ping.to)).collect(),
        };
        for (from, to) in flows {
            let (legs, _) = evidence.legs(from, to)?;
            let Some(pair) = legs.windows(2).find(|pair| pair[0].to == node) else { continue };
            let (into, out_of) = (pair[0], pair[1]);
            for session in Seen::at(evidence, into).sessions(into) {
                let queries = |leg: Leg| {
                    Seen::at(evidence, leg)
                        .queries(leg)
                        .filter(|message| message.session == Some(session))
                        .collect::<Vec<_>>()
                };
                // A sender repeats a lost Query with another cookie: a Query that left is compared with the last one
                // that had come.
                let came = queries(into);
                for after in queries(out_of) {
                    let Some(before) = came.iter().rfind(|before| before.at <= after.at) else {
                        return Err(format!("a Query left {name} and had not come to it"));
                    };
                    unchanged(before, after, self.gist_hops)
                        .map_err(|what| format!("{name} changed {what}"))?;
                    compared += 1;
                }
            }
        }
        let own = Seen::all(evidence)
            .flat_map(|(link, _)| &link.messages)
            .find(|message| plan.owner(message.src) == Some(node));
        match (own, compared) {
            (Some(message), _) => Err(format!("{name} sent a {:?} from {}", message.kind, message.src)),
            (None, 0) => Err(format!("no Query passed {name}")),
            (None, _) => Ok(format!(
                "{compared} Queries passed {name} with TTL 1 and GIST hops {} less, else unchanged; it sent no message of its own",
                self.gist_hops
            )),
        }
    }
}

/// Fails unless the two are the same packet, before and behind a router.
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

/// Returns source and destination port.
fn ports(message: &Message) -> Option<&[u8]> {
    message.packet.get(message.payload_at.checked_sub(8)?..message.payload_at.checked_sub(4)?)
}

/// Returns magic number and version, then everything behind the hop count.
fn body(message: &Message) -> Option<(&[u8], &[u8])> {
    let payload = message.packet.get(message.payload_at..)?;
    Some((payload.get(..5)?, payload.get(6..)?))
}
