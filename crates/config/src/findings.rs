//! Mistakes and warnings: file, line, column, key, what is wrong, what would be right.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use crate::tree::Place;

/// Whether a configuration can be used in spite of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It cannot be used.
    Error,
    /// It can be used, but has a part without effect, or opens something to strangers.
    Warning,
}

/// A mistake or a warning.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// Its level.
    pub level: Level,
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The key with its tables, joined by dots; empty for errors of syntax.
    pub key: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, file, line, column, key, message } = self;
        write!(f, "{}:{line}:{column}: ", file.display())?;
        if *level == Level::Warning {
            f.write_str("warning: ")?;
        }
        if !key.is_empty() {
            write!(f, "{key}: ")?;
        }
        f.write_str(message)
    }
}

/// Findings while files are read.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Files and their texts.
    sources: Vec<(PathBuf, String)>,
    list: Vec<(Place, Finding)>,
    /// Keys with a mistake.
    bad: BTreeSet<String>,
}

impl Findings {
    /// Adds a file; gives its number.
    pub(crate) fn source(&mut self, path: PathBuf, text: String) -> usize {
        self.sources.push((path, text));
        self.sources.len() - 1
    }

    pub(crate) fn error(&mut self, place: Place, key: &str, message: impl Into<String>) {
        self.bad.insert(key.to_owned());
        self.add(Level::Error, place, key, message.into());
    }

    pub(crate) fn warning(&mut self, place: Place, key: &str, message: impl Into<String>) {
        self.add(Level::Warning, place, key, message.into());
    }

    fn add(&mut self, level: Level, place: Place, key: &str, message: String) {
        let (file, text) = self.sources.get(place.file).cloned().unwrap_or_default();
        let before = text.get(..place.at.min(text.len())).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        self.list.push((place, Finding { level, file, line, column, key: key.to_owned(), message }));
    }

    /// Whether a key has a mistake of its own.
    pub(crate) fn is_bad(&self, key: &str) -> bool {
        self.bad.contains(key)
    }

    /// Whether there is an error.
    pub(crate) fn any(&self) -> bool {
        !self.bad.is_empty()
    }

    /// All findings in the order of their places.
    pub(crate) fn sorted(mut self) -> Vec<Finding> {
        self.list.sort_by_key(|(place, _)| *place);
        self.list.into_iter().map(|(_, finding)| finding).collect()
    }
}
