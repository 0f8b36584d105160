//! The check `handshake`.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::message::GIST_PORT;
use super::seen::{Seen, hex};
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Handshake {
    from: Spanned<String>,
    to: Spanned<String>,
}

impl Check for Handshake {
    const NAME: &'static str = "handshake";
    const MEANING: &'static str = "On each link of the path each session shows Query (with Router Alert, from the flow's source), Response, Confirm and Data both ways, in this order.";
    const KEYS: &'static [Key] =
        &[key("from", "node", "one end of the path"), key("to", "node", "its other end")];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.nodes([&self.from, &self.to])
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let (from, to) = evidence.nodes(self.from.as_ref(), self.to.as_ref())?;
        let (legs, dst) = evidence.legs(from, to)?;
        let src = evidence.plan.source(from, dst);
        let mut seen = Vec::new();
        for leg in legs {
            let link = Seen::at(evidence, leg);
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
