//! The check `set_up`.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::seen::{Seen, Stage};
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::protocols::ping::step::PingRun;
use crate::scenario::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetUp {
    from: Spanned<String>,
    to: Spanned<String>,
    sessions: usize,
}

impl Check for SetUp {
    const NAME: &'static str = "set_up";
    const MEANING: &'static str =
        "This number of sessions has a complete handshake on each link of the path, and as many had a reply.";
    const KEYS: &'static [Key] = &[
        key("from", "node", "one end of the path"),
        key("to", "node", "its other end"),
        key("sessions", "number", "the number of sessions"),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.nodes([&self.from, &self.to])
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let (from, to) = evidence.nodes(self.from.as_ref(), self.to.as_ref())?;
        let (legs, _) = evidence.legs(from, to)?;
        let mut seen = Vec::new();
        let mut good = true;
        for leg in legs {
            let link = Seen::at(evidence, leg);
            let complete =
                link.sessions(leg).into_iter().filter(|session| is_complete(link.firsts(leg, *session)));
            let complete = complete.count();
            good &= complete == self.sessions;
            seen.push(format!("{} {complete}", evidence.plan.links[leg.link].name));
        }
        let answered = evidence
            .all::<PingRun>()
            .filter(|ping| (ping.from, ping.to) == (from, to) && !ping.replies.is_empty())
            .count();
        good &= answered == self.sessions;
        let detail = format!("handshakes complete: {}; sessions with a reply: {answered}", seen.join(", "));
        if good { Ok(detail) } else { Err(format!("{detail}; {} were expected", self.sessions)) }
    }
}

/// Whether Query and Response passed, and what the querying node sends only when it has the Response.
fn is_complete(firsts: [Option<Duration>; 5]) -> bool {
    let seen = |stage: Stage| firsts[stage as usize].is_some();
    seen(Stage::Query) && seen(Stage::Response) && (seen(Stage::Confirm) || seen(Stage::DataDown))
}
