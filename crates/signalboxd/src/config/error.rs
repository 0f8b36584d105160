//! Configuration errors: file, line, column, what is wrong, what would be right.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot read the configuration: {source}; give an existing file with --config", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A value in the file is wrong.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong and what would be right.
        message: String,
    },
}

impl ConfigError {
    /// A wrong value at `span`, in octets of `text`.
    pub(crate) fn at(path: &Path, text: &str, span: Option<Range<usize>>, message: String) -> Self {
        let start = span.map_or(0, |s| s.start).min(text.len());
        let before = text.get(..start).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        Self::Wrong { path: path.to_owned(), line, column, message }
    }

    /// A wrong value in `text`, at the place of its key.
    pub(crate) fn value(path: &Path, text: &str, Problem { key, message }: &Problem) -> Self {
        Self::at(path, text, position(text, key), format!("{key}: {message}"))
    }
}

/// A value that is out of its range, by the path of its key (`gist.t1`).
#[derive(Debug)]
pub(crate) struct Problem {
    /// The key, with its tables, joined by dots.
    pub(crate) key: String,
    /// What is wrong and what would be right.
    pub(crate) message: String,
}

/// Where the value of `key` stands in `text`; if the key is absent (its default is at odds with another
/// value), where its table does. `[2]` after a name is the second of an array; what follows it up to the next
/// `.` is ignored here, and shown to users only.
fn position(text: &str, key: &str) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    let mut table: &DeTable<'_> = root.get_ref();
    let mut found = None;
    for name in key.split('.') {
        let (name, number) = match name.split_once('[') {
            Some((name, rest)) => (name, rest.split_once(']').and_then(|(number, _)| number.parse().ok())),
            None => (name, None::<usize>),
        };
        let Some(value) = table.get(name) else { break };
        let value = match (value.get_ref(), number.and_then(|number| number.checked_sub(1))) {
            (DeValue::Array(elements), Some(at)) => elements.get(at).unwrap_or(value),
            _ => value,
        };
        found = Some(value.span());
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    found
}
