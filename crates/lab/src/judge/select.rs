//! Which messages a check judges: on which links, in which direction, and when.

use std::time::Duration;

use toml::Spanned;

use crate::plan::Leg;
use crate::protocols::fields::Message;
use crate::run::evidence::Evidence;
use crate::run::observe::passed::Passed;

/// The time that a check judges.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

impl Span {
    /// Reads `after`, `before` and `during`, which limit the time together.
    pub(crate) fn of(
        evidence: &Evidence,
        [after, before, during]: [&Option<Spanned<String>>; 3],
    ) -> Result<Self, String> {
        let mut span = Self { from: Duration::ZERO, to: Duration::MAX };
        if let Some(during) = during {
            (span.from, span.to) = evidence.window(during.as_ref())?;
        }
        if let Some(after) = after {
            span.from = span.from.max(evidence.moment(after.as_ref())?);
        }
        if let Some(before) = before {
            span.to = span.to.min(evidence.window(before.as_ref())?.0);
        }
        Ok(span)
    }

    pub(crate) fn holds(self, at: Duration) -> bool {
        (self.from..=self.to).contains(&at)
    }
}

/// Returns the messages of a protocol on the link of a leg, with their directions.
pub(crate) fn on<'e>(evidence: &'e Evidence, protocol: &str, leg: Leg) -> Vec<Passed<'e>> {
    let Some(link) = evidence.trace.links.get(leg.link) else { return Vec::new() };
    let back = Leg { link: leg.link, from: leg.to, to: leg.from };
    let passed = |message: &'e dyn Message| {
        let along = link.along(message.outgoing(), leg);
        Passed { message, leg: if along { leg } else { back } }
    };
    link.messages(protocol).into_iter().map(passed).collect()
}

/// Returns the legs that `links` names: `all`, `path A B`, a link, a list of links, or a list of nodes.
pub(crate) fn legs(evidence: &Evidence, links: &toml::Value) -> Result<Vec<Leg>, String> {
    let plan = &evidence.plan;
    let of_link = |index: usize| {
        let ends = &plan.links[index].ends;
        Leg { link: index, from: ends[0].0, to: ends[1].0 }
    };
    let named = |name: &str| plan.link(name).map(of_link).ok_or_else(|| format!("no link {name}"));
    match links {
        toml::Value::String(text) if text == "all" => Ok((0..plan.links.len()).map(of_link).collect()),
        toml::Value::String(text) => match text.split(' ').collect::<Vec<_>>()[..] {
            ["path", from, to] => {
                let (from, to) = evidence.nodes(from, to)?;
                Ok(evidence.legs(from, to)?.0)
            }
            _ => Ok(vec![named(text)?]),
        },
        toml::Value::Array(all) => {
            let all: Vec<&str> = all.iter().filter_map(toml::Value::as_str).collect();
            if all.iter().any(|name| name.contains('-')) {
                return all.into_iter().map(named).collect();
            }
            let pairs = all.windows(2);
            pairs
                .map(|pair| {
                    let (from, to) = evidence.nodes(pair[0], pair[1])?;
                    plan.leg(from, to).ok_or_else(|| format!("no link from {} to {}", pair[0], pair[1]))
                })
                .collect()
        }
        other => Err(format!("{other} names no links")),
    }
}
