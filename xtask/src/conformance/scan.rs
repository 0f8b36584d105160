//! Finds the ids that code and documents name, in tests and elsewhere.
//!
//! A row counts as tested where test code names it: in a doc comment, a string or a function's name (there with
//! `_` for `-` and `.`). Test code is all of a `tests` directory or a `tests.rs`, and the item under
//! `#[cfg(test)]`. A plain `//` comment does not count.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::table::Table;

/// One id somewhere.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mention {
    /// A test names it.
    Proof { id: String, place: String },
    /// No table has it.
    Unknown { id: String, place: String },
}

/// Every id that matters in the sources and documents below `root`.
pub(crate) fn workspace(root: &Path, tables: &[Table]) -> Result<Vec<Mention>> {
    let known = Known::new(tables);
    let mut files = Vec::new();
    for dir in ["crates", "docs", "scenarios", "fuzz"] {
        collect(&root.join(dir), &mut files)?;
    }
    for file in ["README.md", "ARCHITECTURE.md"] {
        files.extend(Some(root.join(file)).filter(|path| path.exists()));
    }
    files.sort();
    let mut mentions = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(&path);
        file(name, &text, &known, &mut mentions);
    }
    Ok(mentions)
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            if name != "target" && name != "corpus" {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|e| e == "rs" || e == "md" || e == "toml") {
            files.push(path);
        }
    }
    Ok(())
}

/// The ids of all tables, as written and as function names have them.
pub(crate) struct Known {
    prefixes: Vec<String>,
    /// Lower case, `_` for everything else.
    names: BTreeMap<String, String>,
}

impl Known {
    pub(crate) fn new(tables: &[Table]) -> Self {
        let ids = tables.iter().flat_map(|table| &table.rows).map(|row| row.id.clone());
        Self {
            prefixes: tables.iter().map(|table| table.prefix.clone()).collect(),
            names: ids.map(|id| (as_name(&id), id)).collect(),
        }
    }

    fn has(&self, id: &str) -> bool {
        self.names.get(&as_name(id)).is_some_and(|known| known == id)
    }

    /// The ids in `line`: the prefix, a section, two digits. Where a section itself has hyphens, the id that is in a
    /// table counts.
    fn written<'a>(&self, line: &'a str) -> Vec<&'a str> {
        let mut found = Vec::new();
        for prefix in &self.prefixes {
            for (start, _) in line.match_indices(prefix.as_str()) {
                // The prefix of one table may end that of another.
                let before = line.get(..start).and_then(|before| before.chars().next_back());
                if before.is_some_and(|c| c.is_ascii_alphanumeric()) {
                    continue;
                }
                let tail = line.get(start + prefix.len()..).unwrap_or_default();
                let run = tail.find(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-');
                let tail = tail.get(..run.unwrap_or(tail.len())).unwrap_or_default();
                let ends = tail.match_indices('-').filter(|(section, _)| {
                    let number = tail.get(section + 1..section + 3).unwrap_or_default();
                    *section > 0 && number.len() == 2 && number.bytes().all(|b| b.is_ascii_digit())
                });
                let ids: Vec<&str> = ends
                    .filter_map(|(section, _)| line.get(start..start + prefix.len() + section + 3))
                    .collect();
                let known = ids.iter().rev().find(|id| self.has(id));
                found.extend(known.or(ids.first()));
            }
        }
        found
    }

    /// Ids in a function's name: `gist_4_3_1_02_is_rejected`, several in a row too.
    fn named(&self, line: &str) -> Vec<&String> {
        let Some(name) =
            line.trim_start().strip_prefix("fn ").or_else(|| line.trim_start().strip_prefix("async fn "))
        else {
            return Vec::new();
        };
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
        let name = format!("{}_", name.get(..end).unwrap_or_default());
        self.names.iter().filter(|(key, _)| name.contains(&format!("{key}_"))).map(|(_, id)| id).collect()
    }
}

fn as_name(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

fn file(path: &Path, text: &str, known: &Known, mentions: &mut Vec<Mention>) {
    let rust = path.extension().is_some_and(|e| e == "rs");
    let all_test = rust
        && (path.components().any(|part| part.as_os_str() == "tests")
            || path.file_stem().is_some_and(|stem| stem == "tests"));
    let mut region = TestRegion::default();
    for (number, line) in text.lines().enumerate() {
        let place = format!("{}:{}", path.display(), number + 1);
        let in_test = rust && (region.takes(line) || all_test);
        let proves = in_test && !is_plain_comment(line);
        for id in known.written(line) {
            if !known.has(id) {
                mentions.push(Mention::Unknown { id: id.to_owned(), place: place.clone() });
            } else if proves {
                mentions.push(Mention::Proof { id: id.to_owned(), place: place.clone() });
            }
        }
        if proves {
            for id in known.named(line) {
                mentions.push(Mention::Proof { id: id.clone(), place: place.clone() });
            }
        }
    }
}

fn is_plain_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!")
}

/// Follows the item below `#[cfg(test)]` in the layout of rustfmt: it ends at the closing brace with the indentation of
/// the attribute.
#[derive(Default)]
pub(crate) struct TestRegion {
    indent: Option<usize>,
    opened: bool,
}

impl TestRegion {
    /// Whether `line` belongs to test code.
    pub(crate) fn takes(&mut self, line: &str) -> bool {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        let Some(start) = self.indent else {
            if trimmed.starts_with("#[cfg(test)]") || trimmed.starts_with("#[cfg(all(test") {
                *self = Self { indent: Some(indent), opened: false };
                return true;
            }
            return false;
        };
        let ends = if self.opened {
            indent == start && trimmed.starts_with('}')
        } else {
            self.opened = trimmed.ends_with('{');
            trimmed.ends_with(';') || trimmed.ends_with('}')
        };
        if ends {
            self.indent = None;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Row;
    use super::*;

    fn known() -> Known {
        let rows = ["GIST-4.3.1-02", "GIST-A.3.1.1-10", "GIST-D-01", "GIST-2212-A-to-B-01"].map(|id| Row {
            id: id.into(),
            level: "MUST".into(),
            requirement: String::new(),
        });
        let (name, prefix) = ("gist".to_owned(), "GIST-".to_owned());
        Known::new(&[Table { name, prefix, rows: rows.into() }])
    }

    fn found(path: &str, text: &str) -> Vec<String> {
        let mut mentions = Vec::new();
        file(Path::new(path), text, &known(), &mut mentions);
        let show = |mention: &Mention| match mention {
            Mention::Proof { id, place } => {
                format!("proof {id} {}", place.rsplit(':').next().unwrap_or_default())
            }
            Mention::Unknown { id, place } => {
                format!("unknown {id} {}", place.rsplit(':').next().unwrap_or_default())
            }
        };
        mentions.iter().map(show).collect()
    }

    #[test]
    fn only_test_code_proves() {
        let code = "/// GIST-4.3.1-02\nfn a() {}\n#[cfg(test)]\nmod tests {\n    /// GIST-D-01\n    fn b() {\n    }\n}\n/// GIST-D-01\n";
        assert_eq!(found("crates/x/src/a.rs", code), ["proof GIST-D-01 5"]);
        assert_eq!(
            found("crates/x/tests/script/a.rs", "//! GIST-4.3.1-02, GIST-D-01."),
            ["proof GIST-4.3.1-02 1", "proof GIST-D-01 1"]
        );
        assert_eq!(found("crates/x/tests/a.rs", "// GIST-4.3.1-02"), [""; 0]);
        assert_eq!(found("docs/a.md", "GIST-4.3.1-02"), [""; 0]);
    }

    #[test]
    fn a_longer_prefix_is_another_one() {
        assert_eq!(found("crates/x/tests/a.rs", "/// MYGIST-4.3.1-02, MYGIST-9-99"), [""; 0]);
    }

    #[test]
    fn sections_may_have_hyphens() {
        let found = |line| found("crates/x/tests/a.rs", line);
        assert_eq!(found("/// GIST-2212-A-to-B-01: so."), ["proof GIST-2212-A-to-B-01 1"]);
        assert_eq!(found("/// GIST-D-01-like"), ["proof GIST-D-01 1"]);
        assert_eq!(found("/// GIST-2212-A-to-B-02"), ["unknown GIST-2212-A-to-B-02 1"]);
    }

    #[test]
    fn names_prove_too() {
        assert_eq!(
            found("crates/x/tests/a.rs", "fn gist_4_3_1_02_and_gist_a_3_1_1_10_hold() {"),
            ["proof GIST-4.3.1-02 1", "proof GIST-A.3.1.1-10 1"]
        );
        assert_eq!(found("crates/x/tests/a.rs", "fn gist_4_3_1_023() {"), [""; 0]);
    }

    #[test]
    fn unknown_ids_are_found_anywhere() {
        assert_eq!(found("docs/a.md", "see GIST-4.3.1-99 and GIST-4.3.1"), ["unknown GIST-4.3.1-99 1"]);
        assert_eq!(found("crates/x/src/a.rs", "// GIST-Z-01"), ["unknown GIST-Z-01 1"]);
    }

    #[test]
    fn a_test_module_in_its_own_file_does_not_swallow_what_follows() {
        let code = "#[cfg(test)]\nmod tests;\n/// GIST-D-01\nfn a() {}\n";
        assert_eq!(found("crates/x/src/a.rs", code), [""; 0]);
        assert_eq!(found("crates/x/src/tests.rs", "/// GIST-D-01"), ["proof GIST-D-01 1"]);
    }
}
