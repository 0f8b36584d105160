//! The contents of configuration files: values with the places where they stand.

use std::collections::BTreeMap;
use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use toml::value::Datetime;

/// Where a value stands: the number of its file, and the octet in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Place {
    pub(crate) file: usize,
    pub(crate) at: usize,
}

/// A value and its place.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Text(String),
    Integer(i128),
    Real(f64),
    Flag(bool),
    Date(Datetime),
    List(Vec<Tree>),
    Table(Table),
}

/// A table: each key with its place and its value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table(pub(crate) BTreeMap<String, (Place, Tree)>);

/// As an error shows it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A very long text is cut, because it becomes part of one line.
            Self::Text(text) => write!(f, "{:?}", text.chars().take(80).collect::<String>()),
            Self::Integer(number) => number.fmt(f),
            Self::Real(number) => write!(f, "{number:?}"),
            Self::Flag(flag) => flag.fmt(f),
            Self::Date(date) => date.fmt(f),
            Self::List(_) => f.write_str("a list"),
            Self::Table(_) => f.write_str("a table"),
        }
    }
}

impl Table {
    /// Reads a file; the syntax errors are those of the parser, each with its octet.
    pub(crate) fn parse(file: usize, text: &str) -> (Self, Vec<(Place, String)>) {
        let (table, errors) = DeTable::parse_recoverable(text);
        let place = |error: &toml::de::Error| Place { file, at: error.span().map_or(0, |span| span.start) };
        let errors = errors.iter().map(|error| (place(error), error.message().to_owned())).collect();
        (Self::of(file, table.into_inner()), errors)
    }

    fn of(file: usize, table: DeTable<'_>) -> Self {
        let entry = |(key, value): (Spanned<std::borrow::Cow<'_, str>>, Spanned<DeValue<'_>>)| {
            let place = Place { file, at: key.span().start };
            (key.into_inner().into_owned(), (place, Tree::of(file, value)))
        };
        Self(table.into_iter().map(entry).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Tree> {
        self.0.get(name).map(|(_, tree)| tree)
    }

    /// Merges a table over this one: tables key by key; lists of tables get the further elements; other values are
    /// replaced.
    pub(crate) fn merge(&mut self, over: Self) {
        for (key, (place, tree)) in over.0 {
            match (self.0.get_mut(&key).map(|(_, old)| &mut old.value), tree.value) {
                (Some(Value::Table(old)), Value::Table(new)) => old.merge(new),
                (Some(Value::List(old)), Value::List(new)) if is_tables(old) && is_tables(&new) => {
                    old.extend(new)
                }
                (_, value) => {
                    self.0.insert(key, (place, Tree { place: tree.place, value }));
                }
            }
        }
    }
}

fn is_tables(list: &[Tree]) -> bool {
    list.iter().all(|element| matches!(element.value, Value::Table(_)))
}

impl Tree {
    fn of(file: usize, value: Spanned<DeValue<'_>>) -> Self {
        let place = Place { file, at: value.span().start };
        let value = match value.into_inner() {
            DeValue::String(text) => Value::Text(text.into_owned()),
            // The parser has checked the digits; a number beyond 64 bits is out of every range.
            DeValue::Integer(number) => {
                Value::Integer(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX))
            }
            DeValue::Float(number) => Value::Real(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(flag) => Value::Flag(flag),
            DeValue::Datetime(date) => Value::Date(date),
            DeValue::Array(list) => Value::List(list.into_iter().map(|tree| Self::of(file, tree)).collect()),
            DeValue::Table(table) => Value::Table(Table::of(file, table)),
        };
        Self { place, value }
    }
}
