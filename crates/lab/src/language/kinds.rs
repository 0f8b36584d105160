//! What the tables of steps and of checks have in common: the kinds, their keys, and how one is read from a file.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::DeValue;

use super::fields::Fields;
use super::{Element, Mistake, rest};

/// A key of a step or check, as `signalbox lab steps` and `signalbox lab checks` show it.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// The type of its value, like "node" or "time".
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) required: bool,
    /// The value where the file gives none, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default: Option<&'static str>,
    pub(crate) meaning: &'static str,
}

/// Describes a key that the file has to give.
pub(crate) const fn key(name: &'static str, kind: &'static str, meaning: &'static str) -> Key {
    Key { name, kind, required: true, default: None, meaning }
}

impl Key {
    /// The same key with a default, written as in a file.
    pub(crate) const fn or(self, default: &'static str) -> Self {
        Self { required: false, default: Some(default), ..self }
    }

    /// The same key, which may be absent.
    pub(crate) const fn optional(self) -> Self {
        Self { required: false, ..self }
    }
}

/// A kind of step or of check: one line of its table. `T` is a step or check of any kind.
#[derive(Debug, Serialize)]
pub(crate) struct Kind<T: 'static> {
    pub(crate) name: &'static str,
    pub(crate) meaning: &'static str,
    pub(crate) keys: &'static [Key],
    #[serde(skip)]
    pub(crate) parse: fn(Element<'_>) -> Result<T, Mistake>,
}

/// Splits an element into what has the keys of its kind, and the fields of messages.
pub(crate) fn split<'i>(mut element: Element<'i>, keys: &[Key]) -> Result<(Element<'i>, Fields), Mistake> {
    let mut fields = Vec::new();
    let (mut known, at) = (toml::de::DeTable::new(), element.span());
    for (key, value) in std::mem::take(element.get_mut()) {
        if keys.iter().any(|known| known.name == key.get_ref()) {
            known.insert(key, value);
            continue;
        }
        let name = Spanned::new(key.span(), key.into_inner().into_owned());
        let value = toml::Value::deserialize(toml::de::ValueDeserializer::from(value))?;
        fields.push((name, value));
    }
    Ok((Spanned::new(at, known), fields))
}

/// Reads the keys of a step or check.
pub(crate) fn parse<S: DeserializeOwned>(element: Element<'_>) -> Result<S, Mistake> {
    rest(element)
}

/// Finds the kind of a step or check by the key that names it, and makes its keys those of the element.
///
/// `ping = { from = "h1", to = "h2" }` is the kind `ping` with the keys `from` and `to`, which can stand beside it as well.
/// A value that is no table is the value of the key with the kind's name, as in `wait = "2s"`.
pub(crate) fn splice<'k>(
    kinds: impl Iterator<Item = (&'k str, &'k [Key])> + Clone,
    element: &mut Element<'_>,
    what: &str,
) -> Result<usize, Vec<Mistake>> {
    let at = element.span();
    let table = element.get_mut();
    let found = kinds.clone().position(|(name, _)| table.contains_key(name));
    let Some((index, (name, keys))) = found.and_then(|index| Some((index, kinds.clone().nth(index)?))) else {
        let known: Vec<_> = kinds.map(|(name, _)| name).collect();
        let given: Vec<_> = table.keys().map(|key| format!("`{}`", key.get_ref())).collect();
        let what = format!(
            "a {what} has one of the keys {}, which says what it is; here are only {}",
            known.join(", "),
            given.join(", ")
        );
        return Err(vec![Mistake::new(at, what)]);
    };
    let mut mistakes = Vec::new();
    if table.get(name).is_some_and(|value| value.get_ref().is_table())
        && let Some(DeValue::Table(inner)) = table.remove(name).map(Spanned::into_inner)
    {
        for (key, value) in inner {
            if table.contains_key(key.get_ref().as_ref()) {
                let what = format!("`{}` stands beside `{name}` and in it; take one out", key.get_ref());
                mistakes.push(Mistake::new(key.span(), what));
            }
            table.insert(key, value);
        }
    }
    // All of them at once; what the keys hold is read afterwards.
    let open = keys.iter().any(|key| key.name == ANY);
    for key in table.keys() {
        if !open && !keys.iter().any(|known| known.name == key.get_ref()) {
            let known: Vec<_> = keys.iter().map(|key| format!("`{}`", key.name)).collect();
            let what = format!("unknown field `{}`, expected one of {}", key.get_ref(), known.join(", "));
            mistakes.push(Mistake::new(key.span(), what));
        }
    }
    for key in keys.iter().filter(|key| key.required && key.name != ANY && !table.contains_key(key.name)) {
        let what = format!("`{name}` lacks the key `{}` ({}): {}", key.name, key.kind, key.meaning);
        mistakes.push(Mistake::new(at.clone(), what));
    }
    if mistakes.is_empty() { Ok(index) } else { Err(mistakes) }
}

/// The name that stands in a table of keys for all fields of a protocol's messages.
pub(crate) const ANY: &str = "FIELD";

/// Formats a table of kinds for people.
pub(crate) fn describe<'k>(kinds: impl Iterator<Item = (&'k str, &'k str, &'k [Key])>) -> String {
    let mut text = String::new();
    for (name, meaning, keys) in kinds {
        text += &format!("{name}\n    {meaning}\n");
        let name_width = keys.iter().map(|key| key.name.len()).max().unwrap_or(0);
        let kind_width = keys.iter().map(|key| key.kind.len()).max().unwrap_or(0);
        for key in keys {
            let presence = match key.default {
                _ if key.required => "required; ".to_owned(),
                Some(default) => format!("default {default}; "),
                None => String::new(),
            };
            text += &format!(
                "    {:name_width$}  {:kind_width$}  {presence}{}\n",
                key.name, key.kind, key.meaning
            );
        }
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::checks::CHECKS;
    use crate::language::steps::STEPS;

    /// The names between backticks.
    fn quoted(text: &str) -> Vec<&str> {
        text.split('`').skip(1).step_by(2).collect()
    }

    fn element(text: &str) -> Element<'_> {
        let table = toml::de::DeTable::parse(text).unwrap();
        Spanned::new(0..text.len(), table.into_inner())
    }

    fn agrees<T>(name: &str, keys: &[Key], parse: fn(Element<'_>) -> Result<T, Mistake>) {
        let mistake = |text| parse(element(text)).err().map(|mistake| mistake.what).unwrap_or_default();
        if keys.iter().any(|key| key.name == ANY) {
            return;
        }
        let unknown = mistake("no_such_key = 1");
        let known: Vec<_> = quoted(&unknown).into_iter().skip(1).collect();
        let described: Vec<_> = keys.iter().map(|key| key.name).collect();
        assert_eq!(known, described, "{name}: {unknown}");
        let missing = mistake("");
        let first = keys.iter().find(|key| key.required).map(|key| key.name);
        assert_eq!(quoted(&missing).first().copied(), first, "{name}: {missing}");
    }

    #[test]
    fn the_described_keys_are_the_keys_that_are_read() {
        for kind in STEPS {
            agrees(kind.name, kind.keys, kind.parse);
        }
        for kind in CHECKS {
            agrees(kind.name, kind.keys, kind.parse);
        }
    }

    /// The part of the documentation about a kind.
    fn page(name: &str, meaning: &str, keys: &[Key]) -> String {
        let mut text =
            format!("#### `{name}`\n\n{meaning}\n\n| key | type | default | meaning |\n|---|---|---|---|\n");
        for key in keys {
            let default = match key.default {
                _ if key.required && key.name != ANY => "required".to_owned(),
                Some(default) => format!("`{default}`"),
                None => "–".to_owned(),
            };
            text += &format!("| `{}` | {} | {default} | {} |\n", key.name, key.kind, key.meaning);
        }
        text
    }

    #[test]
    fn the_documentation_has_type_and_default_of_every_key() {
        let text = include_str!("../../../../docs/lab.md");
        let (steps, checks) = text.split_once("\n## Checks\n").expect("docs/lab.md has the part Checks");
        let missing = |text: &str, name: &str, meaning: &str, keys: &[Key]| {
            let page = page(name, meaning, keys);
            assert!(text.contains(&page), "docs/lab.md lacks this:\n{page}");
        };
        for step in STEPS {
            missing(steps, step.name, step.meaning, step.keys);
        }
        for check in CHECKS {
            missing(checks, check.name, check.meaning, check.keys);
        }
        for protocol in crate::protocols::all() {
            for (name, meaning) in protocol.fields() {
                let row = format!("| `{name}` | {meaning} |\n");
                assert!(checks.contains(&row), "docs/lab.md lacks this:\n{row}");
            }
        }
    }

    #[test]
    fn kinds_are_described_with_their_keys() {
        let keys = [key("from", "node", "sender"), key("count", "number", "how many").or("3")];
        let text = describe([("udp", "sends datagrams", &keys[..])].into_iter());
        assert_eq!(
            text,
            "udp\n    sends datagrams\n    from   node    required; sender\n    count  number  default 3; how many\n"
        );
    }
}
