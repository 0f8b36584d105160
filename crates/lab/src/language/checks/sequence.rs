//! The check `sequence`: messages that belong together, in their order, on each link of a path.

use serde::Deserialize;
use toml::Spanned;

use super::CheckKeys;
use crate::language::fields::Fields;
use crate::language::kinds::{Key, key};
use crate::language::together::in_order;
use crate::language::{Mistake, Scope, fields};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sequence {
    pub(crate) sequence: Vec<Item>,
    #[serde(default = "gist")]
    pub(crate) protocol: Spanned<String>,
    pub(crate) links: Spanned<toml::Value>,
    pub(crate) per: Spanned<String>,
    pub(crate) after: Option<Spanned<String>>,
    pub(crate) during: Option<Spanned<String>>,
    pub(crate) min: Option<usize>,
    pub(crate) max: Option<usize>,
    pub(crate) within: Option<signalbox_units::Span>,
    pub(crate) goal: Option<signalbox_units::Span>,
    pub(crate) published: Option<signalbox_units::Span>,
}

fn gist() -> Spanned<String> {
    Spanned::new(0..0, "gist".to_owned())
}

/// A message of the sequence.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "toml::Value")]
pub(crate) struct Item {
    /// Along the path, or against it; either where it is not said.
    pub(crate) along: Option<bool>,
    pub(crate) fields: Fields,
}

impl TryFrom<toml::Value> for Item {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let mut table = match value {
            toml::Value::String(text) => {
                [("type".to_owned(), toml::Value::String(text))].into_iter().collect()
            }
            toml::Value::Table(table) => table,
            _ => toml::Table::new(),
        };
        let wrong = "a message of a sequence is a text like \"> query\" or \"< data|confirm\" (`>` along the path, `<` against it), \
                     or a table of fields with such a `type`";
        let Some(toml::Value::String(kind)) = table.remove("type") else { return Err(wrong.to_owned()) };
        let (along, kind) = match (kind.strip_prefix('>'), kind.strip_prefix('<')) {
            (Some(kind), _) => (Some(true), kind.trim()),
            (_, Some(kind)) => (Some(false), kind.trim()),
            _ => (None, kind.trim()),
        };
        let kinds: Vec<toml::Value> = kind.split('|').map(toml::Value::from).collect();
        let kinds = toml::Table::from_iter([("one_of".to_owned(), toml::Value::Array(kinds))]);
        table.insert("type".to_owned(), kinds.into());
        let place = |name: String| Spanned::new(0..0, name);
        Ok(Self { along, fields: table.into_iter().map(|(name, value)| (place(name), value)).collect() })
    }
}

impl CheckKeys for Sequence {
    const NAME: &'static str = "sequence";
    const MEANING: &'static str = "On each of the links the messages of each session pass in this order. Without `after`, the first message of each kind counts, so that none comes too early.";
    const KEYS: &'static [Key] = &[
        key("sequence", "list of messages", "texts like \"> query\" (`>` along the path, `<` against it, `|` between types that will do), or tables of fields with such a `type`"),
        key("protocol", "protocol", "the protocol of the messages").or("\"gist\""),
        key("links", "links", "as in `messages`, with the direction of `>`"),
        key("per", "field", "what the messages of a session have in common, like \"session_id\""),
        key("after", "id", "only messages after the moment of this step").optional(),
        key("during", "id", "only messages while this step lasts").optional(),
        key("min", "number", "the least number of sessions whose sequence is complete on all links; without `min` and `max` all sessions have to be complete").optional(),
        key("max", "number", "the greatest number of such sessions").optional(),
        key("within", "time", "the last sequence is complete so long after the moment of `after`").optional(),
        key("goal", "time", "only reported: the time that was wished for").optional(),
        key("published", "time", "only reported: a published time for such a case").optional(),
    ];

    fn validate(&self, scope: &Scope<'_>) -> Result<(), Mistake> {
        let per = vec![(self.per.clone(), toml::Value::Boolean(true))];
        let at = |mistake: Mistake| Mistake { at: self.per.span(), ..mistake };
        for fields in self.sequence.iter().map(|item| &item.fields).chain([&per]) {
            fields::validate_fields(&self.protocol, fields).map_err(at)?;
        }
        scope.ids(self.after.iter().chain(&self.during))?;
        in_order(self.per.span(), [("min", self.min), ("max", self.max)])?;
        if self.within.is_some() && self.after.is_none() {
            return Err(Mistake::new(
                self.per.span(),
                "`within` needs `after`, the step from which the time counts",
            ));
        }
        fields::validate_links(scope, &self.links)
    }
}
