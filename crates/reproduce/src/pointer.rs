//! Places in the JSON that a command prints, as the files of experiments name them.
//!
//! Names of keys stand one after the other, with a point between. Behind a name, `[2]` is an element of a list by its number from 0,
//! and `[key=value,key=value]` is the first element of a list that has these values: `measurements.programs.observer.lines[reservations=0].median_us`.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pointer(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Key(String),
    Number(usize),
    With(Vec<(String, String)>),
}

impl Pointer {
    /// Reads a place.
    pub(crate) fn read(text: &str) -> Result<Self> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (key, behind) = rest.split_at(end);
            if !key.is_empty() {
                parts.push(Part::Key(key.to_owned()));
            }
            rest = match behind.strip_prefix('[') {
                None => behind.strip_prefix('.').unwrap_or(behind),
                Some(open) => {
                    let (inside, behind) =
                        open.split_once(']').with_context(|| format!("{text}: a `[` without `]`"))?;
                    parts.push(element(inside).with_context(|| format!("{text}: [{inside}]"))?);
                    behind
                }
            };
        }
        if parts.is_empty() {
            bail!("a place without a name");
        }
        Ok(Self(parts))
    }

    /// Finds the value at this place.
    pub(crate) fn find<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(root, |value, part| match part {
            Part::Key(key) => value.get(key),
            Part::Number(number) => value.get(*number),
            Part::With(wanted) => {
                let has = |element: &&Value| {
                    wanted.iter().all(|(key, text)| element.get(key).is_some_and(|value| is(value, text)))
                };
                value.as_array()?.iter().find(has)
            }
        })
    }

    /// Returns the number at this place, or the numbers of the list there.
    pub(crate) fn numbers(&self, root: &Value) -> Vec<f64> {
        match self.find(root) {
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_f64).collect(),
            value => value.and_then(Value::as_f64).into_iter().collect(),
        }
    }
}

fn element(text: &str) -> Result<Part> {
    if let Ok(number) = text.parse() {
        return Ok(Part::Number(number));
    }
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').context("expected a number, or key=value")?;
        Ok((key.to_owned(), value.to_owned()))
    };
    text.split(',').map(pair).collect::<Result<_>>().map(Part::With)
}

/// Whether a value is written so.
fn is(value: &Value, text: &str) -> bool {
    let written = value.to_string();
    value.as_str().unwrap_or(&written) == text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_are_keys_numbers_and_elements_with_values() {
        let root = json!({"a": {"b c": [{"n": 0, "k": "x", "v": 1.5}, {"n": 20, "k": "x", "v": 2}], "all": [3, null, 4]}});
        let find = |text: &str| Pointer::read(text).expect(text).numbers(&root);
        assert_eq!(find("a.b c[n=20,k=x].v"), [2.0]);
        assert_eq!(find("a.b c[0].v"), [1.5]);
        assert_eq!(find("a.all"), [3.0, 4.0]);
        assert_eq!(find("a.b c[n=21].v"), [0.0; 0]);
        assert_eq!(find("a.b c[n=20].k"), [0.0; 0], "no number");
        for text in ["", "a[n", "a[x]"] {
            assert!(Pointer::read(text).is_err(), "{text}");
        }
    }
}
