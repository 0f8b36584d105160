//! Which messages a check judges: on which links, in which direction, and when.

use std::time::Duration;

use serde_json::Value;
use toml::Spanned;

use crate::evidence::Evidence;
use crate::plan::{Leg, Plan};
use crate::protocols;
use crate::protocols::fields::Message;
use crate::scenario::{Mistake, Scope};
use crate::subset::Names;

/// Fields of messages with the values that they have to have.
pub(crate) type Fields = Vec<(Spanned<String>, toml::Value)>;

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

/// A message with the leg along which it went.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Passed<'e> {
    pub(crate) message: &'e dyn Message,
    pub(crate) leg: Leg,
}

impl Passed<'_> {
    /// Whether the message has these values.
    pub(crate) fn has(&self, plan: &Plan, fields: &Fields) -> bool {
        self.misfit(plan, fields).is_none()
    }

    /// Returns the first field with another value.
    pub(crate) fn misfit(&self, plan: &Plan, fields: &Fields) -> Option<String> {
        let names = Names { plan, ends: Some((self.leg.from, self.leg.to)) };
        fields.iter().find_map(|(name, wanted)| {
            let found = self.message.field(name.as_ref());
            names.misfit(name.as_ref(), wanted, found.as_ref())
        })
    }

    /// Says where the message is, for people.
    pub(crate) fn place(&self, plan: &Plan) -> String {
        format!("frame {} on {}", self.message.frame(), plan.links[self.leg.link].name)
    }

    /// Returns a field as text, to compare it with that of other messages.
    pub(crate) fn text(&self, field: &str) -> Option<String> {
        match self.message.field(field)? {
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        }
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

/// Fails unless `links` names links of the scenario.
pub(crate) fn validate_links(scope: &Scope<'_>, links: &Spanned<toml::Value>) -> Result<(), Mistake> {
    let name = |text: &str| Spanned::new(links.span(), text.to_owned());
    match links.as_ref() {
        toml::Value::String(text) if text == "all" => Ok(()),
        toml::Value::String(text) => match text.split(' ').collect::<Vec<_>>()[..] {
            ["path", from, to] => scope.nodes([&name(from), &name(to)]),
            _ => scope.link(&name(text)),
        },
        toml::Value::Array(all) if all.iter().all(toml::Value::is_str) => {
            let all: Vec<_> = all.iter().filter_map(toml::Value::as_str).map(name).collect();
            if all.iter().any(|name| name.as_ref().contains('-')) {
                return all.iter().try_for_each(|name| scope.link(name));
            }
            scope.chain(&all)
        }
        _ => Err(Mistake::new(
            links.span(),
            "`links` is \"all\", \"path h1 h2\", a link like \"h1-r1\", a list of links, or a list of nodes",
        )),
    }
}

/// Fails unless the lab reads messages of the protocol, and these have the fields.
pub(crate) fn validate_fields(protocol: &Spanned<String>, fields: &Fields) -> Result<(), Mistake> {
    let readers = || protocols::all().filter(|protocol| !protocol.fields().is_empty());
    let Some(reader) = readers().find(|known| known.name() == protocol.as_ref()) else {
        let known: Vec<_> = readers().map(|protocol| protocol.name()).collect();
        let what = format!(
            "the lab reads no messages of `{}`, expected one of {}",
            protocol.as_ref(),
            known.join(", ")
        );
        return Err(Mistake::new(protocol.span(), what));
    };
    let known: Vec<_> = reader.fields().into_iter().map(|(name, _)| name).collect();
    match fields.iter().find(|(name, _)| !known.contains(&name.as_ref().as_str())) {
        None => Ok(()),
        Some((name, _)) => {
            let what = format!(
                "messages of {} have no field `{}`, expected one of {}",
                protocol.as_ref(),
                name.as_ref(),
                known.join(", ")
            );
            Err(Mistake::new(name.span(), what))
        }
    }
}

/// Turns a table into fields; it has one place for all of them.
pub(crate) fn fields(table: &Spanned<toml::Table>) -> Fields {
    let field =
        |(name, value): (&String, &toml::Value)| (Spanned::new(table.span(), name.clone()), value.clone());
    table.as_ref().iter().map(field).collect()
}
