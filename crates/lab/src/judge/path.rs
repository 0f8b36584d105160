//! The check `path`: the replies to Ping signals, and the nodes that they visited.

use super::Judge;
use super::select::Span;
use crate::language::checks::path::Path;
use crate::run::evidence::{Evidence, Verdict};
use crate::run::steps::ping::{PingRun, Reply};

impl Judge for Path {
    fn reads_captures(&self) -> bool {
        false
    }

    fn simulated(&self) -> bool {
        true
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
