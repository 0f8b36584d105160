//! What the tables of steps and of checks have in common: the kinds, their keys, and how one is read from a file.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::scenario::{Element, Mistake, rest};

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

/// A kind of step or of check: one line of its table. `T` is what the steps or checks of all kinds have in common.
#[derive(Debug, Serialize)]
pub(crate) struct Kind<T: ?Sized + 'static> {
    pub(crate) name: &'static str,
    pub(crate) meaning: &'static str,
    pub(crate) keys: &'static [Key],
    #[serde(skip)]
    pub(crate) parse: fn(Element<'_>) -> Result<Box<T>, Mistake>,
}

/// Reads the keys of a step or check.
pub(crate) fn parse<S: DeserializeOwned>(element: Element<'_>) -> Result<S, Mistake> {
    rest(element)
}

/// Finds a kind by its name; the mistake lists the names of the table.
pub(crate) fn find<'k, K>(
    table: &'k [K],
    name: &toml::Spanned<String>,
    what: &str,
    name_of: impl Fn(&K) -> &'static str,
) -> Result<&'k K, Mistake> {
    table.iter().find(|kind| name_of(kind) == name.as_ref()).ok_or_else(|| {
        let known: Vec<_> = table.iter().map(name_of).collect();
        let what = format!("unknown {what} `{}`, expected one of {}", name.as_ref(), known.join(", "));
        Mistake::new(name.span(), what)
    })
}

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
    use crate::checks::CHECKS;
    use crate::steps::STEPS;

    /// The names between backticks.
    fn quoted(text: &str) -> Vec<&str> {
        text.split('`').skip(1).step_by(2).collect()
    }

    fn element(text: &str) -> Element<'_> {
        let table = toml::de::DeTable::parse(text).unwrap();
        toml::Spanned::new(0..text.len(), table.into_inner())
    }

    fn agrees<T: ?Sized>(name: &str, keys: &[Key], parse: fn(Element<'_>) -> Result<Box<T>, Mistake>) {
        let mistake = |text| parse(element(text)).err().map(|mistake| mistake.what).unwrap_or_default();
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
            agrees(kind.kind.name, kind.kind.keys, kind.kind.parse);
        }
        for kind in CHECKS {
            agrees(kind.name, kind.keys, kind.parse);
        }
    }

    #[test]
    fn the_documentation_lists_every_kind_with_all_its_keys() {
        let page = include_str!("../../../docs/lab.md");
        let kinds = STEPS.iter().map(|step| (step.kind.name, step.kind.keys));
        for (name, keys) in kinds.chain(CHECKS.iter().map(|check| (check.name, check.keys))) {
            let rows: Vec<_> = page
                .lines()
                .filter(|line| line.split('|').nth(1).is_some_and(|cell| quoted(cell).contains(&name)))
                .collect();
            let complete = |row: &&&str| keys.iter().all(|key| row.contains(&format!("`{}`", key.name)));
            assert!(
                rows.iter().any(|row| complete(&row)),
                "docs/lab.md has no row for {name} with all its keys"
            );
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
