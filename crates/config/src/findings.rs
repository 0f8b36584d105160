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

/// Findings of one level that are listed; further ones are counted.
const LISTED: usize = 100;

/// Findings while files are read.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Files and their texts.
    sources: Vec<(PathBuf, String)>,
    errors: Listed,
    warnings: Listed,
    /// Keys with a mistake.
    bad: BTreeSet<String>,
}

/// The findings of one level.
#[derive(Debug, Default)]
struct Listed {
    list: Vec<(Place, Finding)>,
    /// The place of the first one that is not listed, and the number of those.
    more: Option<(Place, usize)>,
}

impl Listed {
    fn is_full(&self) -> bool {
        self.list.len() >= LISTED
    }

    fn count(&mut self, place: Place) {
        self.more.get_or_insert((place, 0)).1 += 1;
    }
}

impl Findings {
    /// Adds a file; gives its number.
    pub(crate) fn source(&mut self, path: PathBuf, text: String) -> usize {
        self.sources.push((path, text));
        self.sources.len() - 1
    }

    pub(crate) fn error(&mut self, place: Place, key: &str, message: impl Into<String>) {
        self.error_of(place, key, || message.into());
    }

    /// The same; `message` is made only if the error is listed.
    pub(crate) fn error_of(&mut self, place: Place, key: &str, message: impl FnOnce() -> String) {
        self.bad.insert(key.to_owned());
        self.add(Level::Error, place, key, message);
    }

    pub(crate) fn warning(&mut self, place: Place, key: &str, message: impl Into<String>) {
        self.add(Level::Warning, place, key, || message.into());
    }

    fn add(&mut self, level: Level, place: Place, key: &str, message: impl FnOnce() -> String) {
        let listed = match level {
            Level::Error => &mut self.errors,
            Level::Warning => &mut self.warnings,
        };
        if listed.is_full() {
            return listed.count(place);
        }
        let finding = finding(&self.sources, level, place, key, message());
        listed.list.push((place, finding));
    }

    /// Whether further errors are only counted.
    pub(crate) fn is_full(&self) -> bool {
        self.errors.is_full()
    }

    /// Counts an error that is not listed, without the work of composing it.
    pub(crate) fn count(&mut self, place: Place) {
        self.errors.count(place);
    }

    /// Whether a key has a mistake of its own.
    pub(crate) fn is_bad(&self, key: &str) -> bool {
        self.bad.contains(key)
    }

    /// Whether there is an error.
    pub(crate) fn any(&self) -> bool {
        !self.bad.is_empty()
    }

    /// The findings in the order of their places, and behind them, for each level, the number of those that are not listed.
    pub(crate) fn sorted(self) -> Vec<Finding> {
        let Self { sources, errors, warnings, .. } = self;
        let rest = [(Level::Error, "mistakes", errors.more), (Level::Warning, "warnings", warnings.more)];
        let mut list = errors.list;
        list.extend(warnings.list);
        list.sort_by_key(|(place, _)| *place);
        let listed = list.into_iter().map(|(_, finding)| finding);
        let rest = rest.into_iter().filter_map(|(level, what, more)| {
            let (place, number) = more?;
            let message =
                format!("{number} more {what} are not listed: correct the first {LISTED}, then check again");
            Some(finding(&sources, level, place, "", message))
        });
        listed.chain(rest).collect()
    }
}

fn finding(sources: &[(PathBuf, String)], level: Level, place: Place, key: &str, message: String) -> Finding {
    let (file, text) =
        sources.get(place.file).map_or_else(Default::default, |(file, text)| (file.clone(), text.as_str()));
    let before = text.get(..place.at.min(text.len())).unwrap_or("");
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    Finding { level, file, line, column, key: key.to_owned(), message }
}
