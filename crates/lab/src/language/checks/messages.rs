//! The check `messages`: messages of a protocol on the links, by their fields.

use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::CheckKeys;
use crate::language::expectation::ABSENT;
use crate::language::fields::Fields;
use crate::language::kinds::{ANY, Key, key};
use crate::language::together::in_order;
use crate::language::{Element, Mistake, Scope, fields, kinds};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Messages {
    pub(crate) protocol: Spanned<String>,
    pub(crate) from: Option<Spanned<String>>,
    pub(crate) to: Option<Spanned<String>>,
    pub(crate) links: Option<Spanned<toml::Value>>,
    pub(crate) after: Option<Spanned<String>>,
    pub(crate) before: Option<Spanned<String>>,
    pub(crate) during: Option<Spanned<String>>,
    pub(crate) have: Option<Spanned<toml::Table>>,
    #[serde(default)]
    pub(crate) per: Per,
    pub(crate) distinct: Option<Spanned<String>>,
    #[serde(default)]
    pub(crate) same: bool,
    pub(crate) min: Option<usize>,
    pub(crate) max: Option<usize>,
    pub(crate) holds: Option<signalbox_units::Span>,
    #[serde(skip)]
    pub(crate) fields: Fields,
}

/// What `min` and `max` count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Per {
    #[default]
    All,
    Link,
    Direction,
}

impl CheckKeys for Messages {
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

    fn parse(element: Element<'_>) -> Result<Self, Mistake> {
        let (element, fields) = kinds::split(element, Self::KEYS)?;
        Ok(Self { fields, ..kinds::parse(element)? })
    }

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        fields::validate_fields(&self.protocol, &self.fields)?;
        if let Some(have) = &self.have {
            fields::validate_fields(&self.protocol, &fields::fields(have))?;
        }
        if let Some(distinct) = &self.distinct {
            let fields = vec![(distinct.clone(), toml::Value::Boolean(true))];
            fields::validate_fields(&self.protocol, &fields)?;
        }
        in_order(self.protocol.span(), [("min", self.min), ("max", self.max)])?;
        if self.same && self.distinct.is_none() {
            return Err(Mistake::new(
                self.protocol.span(),
                "`same` compares the values of `distinct`: name its field",
            ));
        }
        scope.ids(self.after.iter().chain(&self.before).chain(&self.during))?;
        match (&self.from, &self.to, &self.links) {
            (Some(from), Some(to), None) => scope.neighbors(from, to),
            (None, None, Some(links)) => fields::validate_links(scope, links),
            _ => Err(Mistake::new(self.protocol.span(), "`messages` needs `from` and `to`, or `links`")),
        }
    }

    fn listens(&self) -> Duration {
        let open = self.before.is_none() && self.during.is_none();
        let absence = (self.max == Some(0) && open).then_some(ABSENT);
        self.holds.or(absence).map_or(Duration::ZERO, |span| span.0)
    }
}
