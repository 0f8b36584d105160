//! A message that passed a link, compared with what a scenario says of it.

use serde_json::Value;

use crate::language::fields::Fields;
use crate::plan::subset::Names;
use crate::plan::{Leg, Plan};
use crate::protocols::fields::Message;

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
