//! The tests that name conformance ids, and how to run each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path};

use anyhow::{Context, Result};

/// A test function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Test {
    /// The directory of its crate below `crates/`.
    pub(super) krate: String,
    /// The test program in `tests/`; `None` for the unit tests of the crate.
    pub(super) program: Option<String>,
    /// The path that the test program prints: modules and function.
    pub(super) path: String,
}

impl Test {
    /// Crate, program and path, as reports show them.
    pub(super) fn shown(&self) -> String {
        format!("{}/{} {}", self.krate, self.program.as_deref().unwrap_or("src"), self.path)
    }
}

/// A test function in the text of a file.
#[derive(Debug, PartialEq, Eq)]
struct Span {
    /// Inline modules and the function, joined by `::`.
    name: String,
    /// First line of its documentation, and its last line.
    lines: (usize, usize),
}

/// The ids that each test names, from the places (`file:line`) where ids stand.
pub(super) fn by_test(root: &Path, places: &[(String, String)]) -> Result<BTreeMap<Test, BTreeSet<String>>> {
    let mut by_file: BTreeMap<&str, Vec<(usize, &str)>> = BTreeMap::new();
    for (id, place) in places {
        let (file, line) = place.rsplit_once(':').context("a place without a line")?;
        by_file.entry(file).or_default().push((line.parse()?, id));
    }
    let mut found: BTreeMap<Test, BTreeSet<String>> = BTreeMap::new();
    for (file, mentions) in by_file {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))?;
        let Some((krate, program, modules)) = module(Path::new(file)) else { continue };
        let spans = spans(&text);
        for (line, id) in mentions {
            let inside: Vec<&Span> =
                spans.iter().filter(|span| span.lines.0 <= line && line <= span.lines.1).collect();
            // An id in the module's documentation or in a table of cases counts for all tests of the file.
            let named = if inside.is_empty() { spans.iter().collect() } else { inside };
            for span in named {
                let path = modules
                    .iter()
                    .map(String::as_str)
                    .chain([span.name.as_str()])
                    .collect::<Vec<_>>()
                    .join("::");
                let test = Test { krate: krate.clone(), program: program.clone(), path };
                found.entry(test).or_default().insert(id.to_owned());
            }
        }
    }
    Ok(found)
}

/// Crate, test program and module of a file.
fn module(file: &Path) -> Option<(String, Option<String>, Vec<String>)> {
    let parts: Vec<&str> = file
        .components()
        .filter_map(|part| if let Component::Normal(part) = part { part.to_str() } else { None })
        .collect();
    let ["crates", krate, kind, rest @ ..] = parts.as_slice() else { return None };
    let (program, rest) = match (*kind, rest) {
        ("src", rest) => (None, rest),
        ("tests", [program, rest @ ..]) => (Some(program.trim_end_matches(".rs").to_owned()), rest),
        _ => return None,
    };
    let mut modules: Vec<String> = rest.iter().map(|part| part.trim_end_matches(".rs").to_owned()).collect();
    if modules.last().is_some_and(|last| ["main", "lib", "mod"].contains(&last.as_str())) {
        modules.pop();
    }
    Some(((*krate).to_owned(), program, modules))
}

/// The test functions of a file in the layout of rustfmt.
fn spans(text: &str) -> Vec<Span> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut modules: Vec<(usize, &str)> = Vec::new();
    let mut found = Vec::new();
    let mut is_test = false;
    let mut start = None;
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        if code.starts_with("///") || code.starts_with("#[") {
            start.get_or_insert(at);
            is_test |= code.starts_with("#[test]");
            continue;
        }
        if code.starts_with('}') {
            modules.retain(|(depth, _)| *depth < indent(line));
        }
        if let Some(name) = code.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(" {")) {
            modules.push((indent(line), name));
        }
        if is_test && let Some(name) = code.strip_prefix("fn ") {
            let name = name.split('(').next().unwrap_or_default();
            let one_line = line.trim_end().ends_with('}');
            let closing = format!("{}}}", " ".repeat(indent(line)));
            let rest = lines.iter().enumerate().skip(at).find(|(_, line)| **line == closing);
            let end = if one_line { at } else { rest.map_or(at, |(end, _)| end) };
            let name = modules.iter().map(|(_, name)| *name).chain([name]).collect::<Vec<_>>().join("::");
            found.push(Span { name, lines: (start.unwrap_or(at) + 1, end + 1) });
        }
        if !is_part_of_attribute(code) {
            (is_test, start) = (false, None);
        }
    }
    found
}

/// A line between attributes and the function: the rest of an attribute of several lines, or a comment.
fn is_part_of_attribute(code: &str) -> bool {
    code.starts_with(")]") || code.starts_with("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_belongs_to_the_test_around_it() {
        let text = "\
//! X-1-01
use x;

/// X-1-02
#[test]
fn first() {
    let a = 1;
}

#[cfg(test)]
mod tests {
    /// Two lines,
    /// X-1-03
    #[test]
    #[should_panic]
    fn second() {
        case(\"X-1-04\");
    }

    fn helper() {
    }
}
";
        let found = spans(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], Span { name: "first".into(), lines: (4, 8) });
        assert_eq!(found[1], Span { name: "tests::second".into(), lines: (12, 18) });
    }

    #[test]
    fn files_have_crates_programs_and_modules() {
        let of = |file| module(Path::new(file));
        assert_eq!(
            of("crates/rsvp/tests/script/main.rs"),
            Some(("rsvp".into(), Some("script".into()), vec![]))
        );
        assert_eq!(
            of("crates/rsvp/tests/script/path/route.rs"),
            Some(("rsvp".into(), Some("script".into()), vec!["path".into(), "route".into()]))
        );
        assert_eq!(of("crates/gist/src/engine/mod.rs"), Some(("gist".into(), None, vec!["engine".into()])));
        assert_eq!(of("docs/qos.md"), None);
    }
}
