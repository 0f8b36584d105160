//! The check `messages`: messages of a protocol on the links, by their fields.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::select::{self, Fields, Passed, Span};
use super::{Check, Verdict};
use crate::evidence::Evidence;
use crate::expectation::ABSENT;
use crate::kinds::{self, ANY, Key, key};
use crate::plan::Leg;
use crate::scenario::{Element, Mistake, Scope};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Messages {
    protocol: Spanned<String>,
    from: Option<Spanned<String>>,
    to: Option<Spanned<String>>,
    links: Option<Spanned<toml::Value>>,
    after: Option<Spanned<String>>,
    before: Option<Spanned<String>>,
    during: Option<Spanned<String>>,
    have: Option<Spanned<toml::Table>>,
    #[serde(default)]
    per: Per,
    distinct: Option<Spanned<String>>,
    #[serde(default)]
    same: bool,
    min: Option<usize>,
    max: Option<usize>,
    holds: Option<signalbox_units::Span>,
    #[serde(skip)]
    fields: Fields,
}

/// What `min` and `max` count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Per {
    #[default]
    All,
    Link,
    Direction,
}

impl Check for Messages {
    const NAME: &'static str = "messages";
    const MEANING: &'static str = "Messages of a protocol with these values passed the links, at least `min` and at most `max`; with `have`, all of them have these values.";
    const KEYS: &'static [Key] = &[
        key("protocol", "protocol", "the protocol of the messages: gist, rsvp, boomerang, casp"),
        key("from", "node", "only messages from this node to its neighbor `to`").optional(),
        key("to", "node", "the neighbor").optional(),
        key("links", "links", "\"all\", \"path h1 h2\", a link, a list of links, or a list of nodes that follow each other; messages of both directions").optional(),
        key("after", "id", "only after the moment of this step").optional(),
        key("before", "id", "only before this step begins").optional(),
        key("during", "id", "only while this step lasts").optional(),
        key("have", "fields", "values that every one of these messages has").optional(),
        key("per", "word", "what `min` and `max` count: \"all\" messages, those of each \"link\", or of each \"direction\" of each link").or("\"all\""),
        key("distinct", "field", "count different values of this field instead of messages").optional(),
        key("same", "boolean", "the values of `distinct` are the same ones for each link or direction").or("false"),
        key("min", "number", "the least number; 0 if only `max` is given").or("1"),
        key("max", "number", "the greatest number").optional(),
        key("holds", "time", "how long packets are captured after the last step; \"2s\" where `max` is 0 and there is neither `before` nor `during`").or("\"0s\""),
        key(ANY, "value", "any field of the protocol's messages: only messages with this value"),
    ];
    const SIMULATED: bool = true;

    fn parse(element: Element<'_>) -> Result<Self, Mistake> {
        let (element, fields) = kinds::split(element, Self::KEYS)?;
        Ok(Self { fields, ..kinds::parse(element)? })
    }

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        select::validate_fields(&self.protocol, &self.fields)?;
        if let Some(have) = &self.have {
            select::validate_fields(&self.protocol, &select::fields(have))?;
        }
        if let Some(distinct) = &self.distinct {
            let fields = vec![(distinct.clone(), toml::Value::Boolean(true))];
            select::validate_fields(&self.protocol, &fields)?;
        }
        scope.ids(self.after.iter().chain(&self.before).chain(&self.during))?;
        match (&self.from, &self.to, &self.links) {
            (Some(from), Some(to), None) => scope.neighbours(from, to),
            (None, None, Some(links)) => select::validate_links(scope, links),
            _ => Err(Mistake::new(self.protocol.span(), "`messages` needs `from` and `to`, or `links`")),
        }
    }

    fn listens(&self) -> Duration {
        let open = self.before.is_none() && self.during.is_none();
        let absence = (self.max == Some(0) && open).then_some(ABSENT);
        self.holds.or(absence).map_or(Duration::ZERO, |span| span.0)
    }

    fn judge(&self, evidence: &Evidence) -> Verdict {
        let plan = &evidence.plan;
        let span = Span::of(evidence, [&self.after, &self.before, &self.during])?;
        let (legs, one_way) = self.legs(evidence)?;
        let min = self.min.unwrap_or(usize::from(self.max.is_none()));
        let max = self.max.unwrap_or(usize::MAX);
        let have = self.have.as_ref().map(select::fields).unwrap_or_default();
        let mut groups: Vec<(String, Vec<Passed<'_>>)> = Vec::new();
        let mut of_type = 0;
        for leg in legs {
            let mut passed = select::on(evidence, self.protocol.as_ref(), leg);
            passed.retain(|passed| (!one_way || passed.leg == leg) && span.holds(passed.message.at()));
            of_type += passed.len();
            passed.retain(|passed| passed.has(plan, &self.fields));
            let name = &plan.links[leg.link].name;
            match self.per {
                Per::All if groups.is_empty() => groups.push((String::new(), passed)),
                Per::All => groups[0].1.extend(passed),
                Per::Link => groups.push((format!(" on {name}"), passed)),
                Per::Direction => {
                    let (forth, back) = passed.into_iter().partition(|passed| passed.leg == leg);
                    groups.push((format!(" along {name}"), forth));
                    groups.push((format!(" against {name}"), back));
                }
            }
        }
        let (mut good, mut seen) = (!groups.is_empty(), Vec::new());
        let mut first: Option<BTreeSet<Option<String>>> = None;
        for (name, passed) in &groups {
            let values = |field: &Spanned<String>| -> BTreeSet<Option<String>> {
                passed.iter().map(|passed| passed.text(field.as_ref())).collect()
            };
            let distinct = self.distinct.as_ref().map(values);
            let count = distinct.as_ref().map_or(passed.len(), BTreeSet::len);
            good &= (min..=max).contains(&count);
            seen.push(format!("{count}{name}"));
            if let (true, Some(distinct)) = (self.same, distinct)
                && *first.get_or_insert_with(|| distinct.clone()) != distinct
            {
                return Err(format!("the values{name} differ from those of the first link"));
            }
            let other = passed.iter().find_map(|one| Some((one, one.misfit(plan, &have)?)));
            if let Some((other, what)) = other {
                return Err(format!("{}: {what}", other.place(plan)));
            }
        }
        let all = groups.iter().flat_map(|(_, passed)| passed);
        let example = all.min_by_key(|passed| passed.message.at());
        let example =
            example.map_or_else(String::new, |passed| format!("; the first is {}", passed.place(plan)));
        let bound = match max {
            usize::MAX => format!("at least {min}"),
            max if max == min => format!("exactly {max}"),
            max => format!("{min} to {max}"),
        };
        let seen = format!(
            "{} of {of_type} messages of {} ({bound} expected{}){example}",
            seen.join(", "),
            self.protocol.as_ref(),
            match self.per {
                Per::All => "",
                Per::Link => " on each link",
                Per::Direction => " in each direction",
            }
        );
        if good { Ok(seen) } else { Err(seen) }
    }
}

impl Messages {
    /// Returns the links, and whether only messages along their legs count.
    fn legs(&self, evidence: &Evidence) -> Result<(Vec<Leg>, bool), String> {
        if let Some(links) = &self.links {
            return Ok((select::legs(evidence, links.as_ref())?, false));
        }
        let name = |node: &Option<Spanned<String>>| {
            node.as_ref().map_or("", |node| node.as_ref().as_str()).to_owned()
        };
        let (from, to) = evidence.nodes(&name(&self.from), &name(&self.to))?;
        let leg = evidence.plan.leg(from, to).ok_or("the two are no neighbors")?;
        Ok((vec![leg], true))
    }
}
