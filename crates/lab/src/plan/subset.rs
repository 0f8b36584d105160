//! Values of a scenario compared with JSON: a value fits if everything that the scenario names is there.
//!
//! `docs/lab.md` describes the rules.

use serde_json::Value;
use signalbox_units::{BitRate, Span};
use toml::Value as Wanted;

use super::Plan;

/// The words of a table that stands for a condition on one value.
const CONDITIONS: [&str; 7] = ["min", "max", "not", "some", "contains", "present", "one_of"];

/// What the texts of a scenario can name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(crate) plan: &'a Plan,
    /// The ends of a link, in the direction in which it is passed: `{previous}` and `{next}`.
    pub(crate) ends: Option<(usize, usize)>,
}

impl Names<'_> {
    /// Returns what does not fit, with its place; nothing if all fits. `key` is the name of the value.
    pub(crate) fn misfit(self, key: &str, wanted: &Wanted, found: Option<&Value>) -> Option<String> {
        let fits = self.fits(key, wanted, found);
        if fits {
            return None;
        }
        if let (Wanted::Table(table), Some(Value::Object(object))) = (wanted, found)
            && !is_condition(table)
        {
            return table.iter().find_map(|(name, wanted)| {
                let inner = self.misfit(name, wanted, object.get(name))?;
                Some(if key.is_empty() { inner } else { format!("{key}.{inner}") })
            });
        }
        let found = found.map_or_else(|| "absent".to_owned(), |found| self.named(found));
        Some(format!("{key} is {found}"))
    }

    /// Whether a value fits.
    pub(crate) fn fits(self, key: &str, wanted: &Wanted, found: Option<&Value>) -> bool {
        if let Wanted::Table(table) = wanted
            && is_condition(table)
        {
            return table.iter().all(|(word, bound)| self.condition(key, word, bound, found));
        }
        let Some(found) = found.filter(|found| !found.is_null()) else { return false };
        match (wanted, found) {
            (Wanted::Table(table), Value::Object(object)) => {
                table.iter().all(|(name, wanted)| self.fits(name, wanted, object.get(name)))
            }
            (Wanted::Array(wanted), Value::Array(found)) => {
                let pairs = wanted.iter().zip(found);
                wanted.len() == found.len()
                    && pairs.into_iter().all(|(wanted, found)| self.fits(key, wanted, Some(found)))
            }
            (Wanted::String(wanted), Value::String(found)) => self.same_text(wanted, found),
            (Wanted::Boolean(wanted), Value::Bool(found)) => wanted == found,
            (Wanted::String(_) | Wanted::Integer(_) | Wanted::Float(_), Value::Number(_)) => {
                let pair = number(key, wanted).zip(found.as_f64());
                pair.is_some_and(|(wanted, found)| (wanted - found).abs() <= wanted.abs() * 1e-6)
            }
            _ => false,
        }
    }

    fn condition(self, key: &str, word: &str, bound: &Wanted, found: Option<&Value>) -> bool {
        let present = found.is_some_and(|found| !found.is_null());
        let compared = || number(key, bound).zip(found.and_then(Value::as_f64));
        match (word, bound) {
            ("present", Wanted::Boolean(wanted)) => *wanted == present,
            ("min", _) => compared().is_some_and(|(least, found)| found >= least),
            ("max", _) => compared().is_some_and(|(most, found)| found <= most),
            ("not", _) => !self.fits(key, bound, found),
            ("contains", Wanted::String(text)) => {
                found.and_then(Value::as_str).is_some_and(|found| found.contains(text.as_str()))
            }
            ("some", Wanted::Array(wanted)) => {
                let found = found.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                wanted.iter().all(|wanted| found.iter().any(|found| self.fits(key, wanted, Some(found))))
            }
            ("one_of", Wanted::Array(wanted)) => wanted.iter().any(|wanted| self.fits(key, wanted, found)),
            _ => false,
        }
    }

    /// Whether two texts are the same, or the first is `{NODE}` and the second an address of that node.
    fn same_text(self, wanted: &str, found: &str) -> bool {
        if wanted == found {
            return true;
        }
        let Some(name) = wanted.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
            return false;
        };
        let node = match name {
            "previous" => self.ends.map(|(from, _)| from),
            "next" => self.ends.map(|(_, to)| to),
            _ => self.plan.node(name),
        };
        let owner = found.parse().ok().and_then(|address| self.plan.owner(address));
        node.is_some() && node == owner
    }

    /// Formats a value with the names of nodes for their addresses.
    pub(crate) fn named(self, value: &Value) -> String {
        match value {
            Value::String(text) => {
                let owner = text.parse().ok().and_then(|address| self.plan.owner(address));
                owner.map_or_else(
                    || format!("{text:?}"),
                    |node| format!("{text} ({})", self.plan.nodes[node].name),
                )
            }
            Value::Array(all) => {
                let all: Vec<_> = all.iter().take(8).map(|one| self.named(one)).collect();
                format!("[{}]", all.join(", "))
            }
            other => other.to_string(),
        }
    }
}

/// Whether a line of a program is like the wanted one: a text is a part of the line, a table a part of the JSON object in it.
pub(crate) fn is_line(plan: &Plan, wanted: &Wanted, line: &str) -> bool {
    match wanted {
        Wanted::String(text) => line.contains(&plan.with_addresses(text)),
        wanted => serde_json::from_str::<Value>(line)
            .is_ok_and(|found| Names { plan, ends: None }.fits("", wanted, Some(&found))),
    }
}

/// Whether a table holds conditions on a value, and not the fields of an object.
fn is_condition(table: &toml::Table) -> bool {
    !table.is_empty() && table.keys().all(|key| CONDITIONS.contains(&key.as_str()))
}

/// Returns a number in the unit of its key: rates and times may be texts with a unit.
fn number(key: &str, wanted: &Wanted) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "numbers of a scenario are far below 2^52")]
    match wanted {
        Wanted::Integer(number) => Some(*number as f64),
        Wanted::Float(number) => Some(*number),
        Wanted::String(text) if key.ends_with("_octets_per_s") => {
            text.parse::<BitRate>().ok().map(|rate| rate.0 as f64 / 8.0)
        }
        Wanted::String(text) if key.ends_with("_us") => {
            text.parse::<Span>().ok().map(|span| span.0.as_secs_f64() * 1e6)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::line;

    #[track_caller]
    fn compare(wanted: &str, found: Value, misfit: Option<&str>) {
        let plan = line();
        let names = Names { plan: &plan, ends: Some((0, 1)) };
        let wanted: toml::Table = wanted.parse().expect("sound");
        let seen = names.misfit("", &Wanted::Table(wanted), Some(&found));
        assert_eq!(seen.as_deref(), misfit);
    }

    #[test]
    fn what_is_not_named_does_not_matter_and_the_first_misfit_is_named() {
        let row =
            || json!({"flow": {"port": 5, "to": "10.0.2.2"}, "rate_octets_per_s": 625_000, "hops": [1, 2]});
        compare("", row(), None);
        compare("flow.port = 5\nrate_octets_per_s = '5mbit'\nflow.to = '{h2}'", row(), None);
        compare("flow.port = 6", row(), Some("flow.port is 5"));
        compare("flow.to = '{next}'", row(), Some("flow.to is 10.0.2.2 (h2)"));
        compare("hops = [1]", row(), Some("hops is [1, 2]"));
        compare("hops.some = [2]", row(), None);
        compare("age.present = false", row(), None);
        compare("age = 1", row(), Some("age is absent"));
    }

    #[test]
    fn conditions_bound_a_value() {
        let row = || json!({"n": 3, "age_us": 2_000_000, "text": "rule share"});
        compare("n = { min = 3, max = 3 }\nage_us = { max = '2s' }\ntext.contains = 'share'", row(), None);
        compare("n.min = 4", row(), Some("n is 3"));
        compare("n.one_of = [1, 3]\ntext = { not = 'x' }", row(), None);
    }
}
