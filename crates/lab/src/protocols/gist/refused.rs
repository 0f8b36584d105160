//! The check `refused`.

use std::collections::BTreeSet;

use serde::Deserialize;
use toml::Spanned;

use super::ASSOCIATIONS;
use super::message::Kind;
use super::seen::{Carrier, Content, Seen};
use crate::checks::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::protocols::ping::step::PingRun;
use crate::scenario::{LABEL, Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refused {
    from: Spanned<String>,
    to: Spanned<String>,
    by: Spanned<String>,
    label: Spanned<String>,
    counter: Spanned<String>,
    #[serde(default = "any_number")]
    most: usize,
}

impl Check for Refused {
    const NAME: &'static str = "refused";
    const MEANING: &'static str = "A node tried to signal and its neighbour refused the association: no message could be read, no other link saw the session, and the neighbour counts the refusal.";
    const KEYS: &'static [Key] = &[
        key("from", "node", "the node that is refused"),
        key("to", "node", "the end of the path that it signaled to"),
        key("by", "node", "the neighbour that refuses"),
        key("label", "label", "when the neighbour was asked"),
        key(
            "counter",
            "counter",
            "a counter of the neighbour that is over 0, like \"signalbox_channels_handshakes_failed_total\"",
        ),
        key("most", "number", "the most connections that the node may try; any number if it is not given")
            .optional(),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        scope.node(&self.to)?;
        scope.neighbours(&self.from, &self.by)?;
        scope.defined(LABEL, &self.label)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let (from, to) = evidence.nodes(self.from.as_ref(), self.to.as_ref())?;
        let by = evidence.plan.node(self.by.as_ref()).unwrap_or(usize::MAX);
        let pings: Vec<_> =
            evidence.all::<PingRun>().filter(|ping| (ping.from, ping.to) == (from, to)).collect();
        let replies: usize = pings.iter().map(|ping| ping.replies.len()).sum();
        if pings.is_empty() || replies > 0 {
            return Err(format!("{} pings with {replies} replies", pings.len()));
        }
        let leg = evidence.plan.leg(from, by).ok_or("the two are no neighbours")?;
        let link = Seen::at(evidence, leg);
        let sessions = link.sessions(leg);
        let tried = link.connections.iter().filter(|connection| connection.accepted).count();
        if sessions.is_empty() || tried == 0 {
            return Err(format!(
                "Queries of {} sessions and {tried} connections: the node did not try",
                sessions.len()
            ));
        }
        if tried > self.most {
            return Err(format!("{tried} connections, at most {} were expected", self.most));
        }
        let leaked = link.messages.iter().find(|message| {
            matches!(message.kind, Kind::Confirm | Kind::Data)
                && (message.carrier == Carrier::Stream || link.along(message.outgoing, leg))
        });
        if let Some(message) = leaked {
            return Err(format!("{:?} from {} can be read", message.kind, message.src));
        }
        if link
            .connections
            .iter()
            .flat_map(|connection| &connection.flows)
            .any(|flow| flow.content == Content::Gist)
        {
            return Err("a connection carries GIST messages in clear".to_owned());
        }
        for (other, planned) in Seen::all(evidence).filter(|(other, _)| !std::ptr::eq(*other, link)) {
            if other
                .messages
                .iter()
                .any(|message| message.session.is_some_and(|session| sessions.contains(&session)))
            {
                return Err(format!("its session went on to {}", planned.name));
            }
        }
        let shown = evidence.snapshot(self.label.as_ref())?.get(&by);
        let shown = shown.ok_or_else(|| format!("{} was not asked", self.by.as_ref()))?;
        let with = |association: &&serde_json::Value| {
            let peer = association["peer"]["address"].as_str().and_then(|peer| peer.parse().ok());
            peer.and_then(|peer| evidence.plan.owner(peer)) == Some(from)
        };
        if let Some(association) = shown.table(ASSOCIATIONS).iter().find(with) {
            return Err(format!("{} has an association with it: {association}", self.by.as_ref()));
        }
        let counter = self.counter.as_ref();
        let count = shown.counter(counter);
        if count == 0 {
            return Err(format!("{} counts no {counter}", self.by.as_ref()));
        }
        let reasons: BTreeSet<&str> = pings.iter().flat_map(|ping| &ping.lost).map(String::as_str).collect();
        let reasons: Vec<&str> = reasons.into_iter().collect();
        Ok(format!(
            "{tried} connections, none became an association; {} counts {counter} {count}; the command reports: {}",
            self.by.as_ref(),
            reasons.join(", ")
        ))
    }
}

const fn any_number() -> usize {
    usize::MAX
}
