//! The check `whole`.

use std::collections::BTreeSet;

use serde::Deserialize;
use toml::Spanned;

use super::message::Kind;
use super::seen::Seen;
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::protocols::ping::step::PingRun;
use crate::scenario::{Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Whole {
    from: Spanned<String>,
    to: Spanned<String>,
    messages: usize,
    octets: usize,
}

impl Check for Whole {
    const NAME: &'static str = "whole";
    const MEANING: &'static str = "On each link and in both directions the same Data messages passed, octet for octet, and the command had all of it back unchanged.";
    const KEYS: &'static [Key] = &[
        key("from", "node", "one end of the path"),
        key("to", "node", "its other end"),
        key("messages", "number", "different messages in each direction"),
        key("octets", "octets", "the padding of each message"),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.nodes([&self.from, &self.to])
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let (from, to) = evidence.nodes(self.from.as_ref(), self.to.as_ref())?;
        let mut first: Option<BTreeSet<&[u8]>> = None;
        for leg in evidence.legs(from, to)?.0 {
            let link = Seen::at(evidence, leg);
            let name = &evidence.plan.links[leg.link].name;
            for along in [true, false] {
                let direction = if along { "downstream" } else { "upstream" };
                let data = link
                    .messages
                    .iter()
                    .filter(|m| m.kind == Kind::Data && link.along(m.outgoing, leg) == along);
                // The padding is the last of a message.
                let padding: BTreeSet<&[u8]> = data
                    .filter_map(|message| {
                        message.octets.get(message.octets.len().checked_sub(self.octets)?..)
                    })
                    .collect();
                if padding.len() != self.messages {
                    return Err(format!("{} different messages {direction} on {name}", padding.len()));
                }
                if *first.get_or_insert_with(|| padding.clone()) != padding {
                    return Err(format!("{name} carried other octets {direction} than the first link"));
                }
            }
        }
        let back = evidence.all::<PingRun>().filter(|ping| (ping.from, ping.to) == (from, to));
        let back: usize = back.flat_map(|ping| &ping.replies).map(|reply| reply.padding).sum();
        let wanted = self.messages * self.octets;
        let seen = format!(
            "{} messages with {} octets each way, the same on every link; {back} octets came back unchanged",
            self.messages, self.octets
        );
        if back == wanted { Ok(seen) } else { Err(format!("{seen}; {wanted} were expected")) }
    }
}
