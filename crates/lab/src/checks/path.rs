//! The check `path`: the replies to Ping signals, and the nodes that they visited.

use serde::Deserialize;
use toml::Spanned;

use super::select::Span;
use super::{Check, Verdict};
use crate::evidence::Evidence;
use crate::kinds::{Key, key};
use crate::scenario::{Mistake, Scope};
use crate::steps::ping::{PingRun, Reply};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Path {
    path: Option<Vec<Spanned<String>>>,
    ping: Option<Spanned<String>>,
    after: Option<Spanned<String>>,
    before: Option<Spanned<String>>,
    during: Option<Spanned<String>>,
    sessions: Option<usize>,
    replies: Option<usize>,
    min_replies: Option<usize>,
    padding: Option<usize>,
}

impl Check for Path {
    const NAME: &'static str = "path";
    const MEANING: &'static str = "Every reply of the Ping signals visited exactly these nodes in this order, the sender first; so many sessions had a reply.";
    const KEYS: &'static [Key] = &[
        key("path", "list of nodes", "the nodes in their order; any path if it is not given").optional(),
        key("ping", "id", "only replies of this `ping` step").optional(),
        key("after", "id", "only probes sent after the moment of this step").optional(),
        key("before", "id", "only probes sent before this step began").optional(),
        key("during", "id", "only probes sent while this step lasted").optional(),
        key("sessions", "number", "exactly so many sessions had a reply; at least one if it is not given")
            .optional(),
        key("replies", "number", "exactly so many replies came").optional(),
        key(
            "min_replies",
            "number",
            "at least so many replies came: a busy machine loses datagrams of a flood, and others with them",
        )
        .optional(),
        key("padding", "octets", "each reply brought so many octets of padding back unchanged").optional(),
    ];
    const READS_CAPTURES: bool = false;
    const SIMULATED: bool = true;

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        self.ping.iter().try_for_each(|ping| scope.id_of(&["ping"], ping))?;
        scope.ids(self.after.iter().chain(&self.before).chain(&self.during))?;
        scope.nodes(self.path.iter().flatten())
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let wanted: Option<Vec<&str>> =
            self.path.as_ref().map(|hops| hops.iter().map(|hop| hop.as_ref().as_str()).collect());
        let span = Span::of(evidence, [&self.after, &self.before, &self.during])?;
        let of = |run: &&PingRun| self.ping.as_ref().is_none_or(|id| run.id.as_ref() == Some(id.as_ref()));
        let (mut replies, mut sessions) = (0, 0);
        for ping in evidence.all::<PingRun>().filter(of) {
            let before = replies;
            for reply in ping.replies.iter().filter(|reply| span.holds(reply.sent)) {
                replies += 1;
                let visited = visited(evidence, ping, reply);
                if let Some(wanted) = &wanted
                    && visited != *wanted
                {
                    return Err(format!(
                        "a reply went {}, expected {}",
                        visited.join(" - "),
                        wanted.join(" - ")
                    ));
                }
                if let Some(padding) = self.padding.filter(|padding| *padding != reply.padding) {
                    return Err(format!(
                        "a reply had {} octets of padding, expected {padding}",
                        reply.padding
                    ));
                }
            }
            sessions += usize::from(replies > before);
        }
        let by = wanted.map_or_else(String::new, |wanted| format!(", each by {}", wanted.join(" - ")));
        let seen = format!("{replies} replies in {sessions} sessions{by}");
        let wrong = |wanted: Option<usize>, found: usize| wanted.is_some_and(|wanted| wanted != found);
        let few = self.min_replies.is_some_and(|least| replies < least);
        if few || wrong(self.sessions, sessions) || wrong(self.replies, replies) {
            let text =
                |what: Option<usize>| what.map_or_else(|| "any number".to_owned(), |what| what.to_string());
            let least = self.min_replies.map(|least| format!("at least {least}"));
            return Err(format!(
                "{seen}; {} replies in {} sessions were expected",
                least.unwrap_or_else(|| text(self.replies)),
                text(self.sessions)
            ));
        }
        if replies == 0 && self.sessions.is_none() && self.replies.is_none() {
            let mut complaints = evidence.all::<PingRun>().map(|ping| ping.complaint.trim());
            let complaint = complaints.find(|complaint| !complaint.is_empty());
            return Err(format!(
                "no reply; the error output of the command: {}",
                complaint.unwrap_or("nothing")
            ));
        }
        Ok(seen)
    }
}

/// Returns the nodes that a reply visited, the sender first.
pub(crate) fn visited<'e>(evidence: &'e Evidence, ping: &PingRun, reply: &Reply) -> Vec<&'e str> {
    let name = |node: usize| evidence.plan.nodes.get(node).map_or("?", |node| node.name.as_str());
    let mut visited = vec![name(ping.from)];
    for hop in &reply.hops {
        match evidence.plan.owner(hop.address) {
            // The application decides whether the sender counts as a hop.
            Some(node) if node == ping.from && visited.len() == 1 => {}
            Some(node) => visited.push(name(node)),
            None => visited.push("?"),
        }
    }
    visited
}
