//! Constant functions. The compiler may evaluate them, and a switch cannot be read then: in the copy, those with a switch
//! and those that call them are ordinary functions.

use std::collections::{BTreeMap, BTreeSet};

const MARK: &str = "const fn ";

/// A constant function in a file.
struct Function {
    name: String,
    /// The line of its signature, and its last line.
    lines: (usize, usize),
}

/// Removes `const` in the files of one crate where it stands before a function that contains `switch`, or that calls such
/// a function.
pub(super) fn remove(files: &mut BTreeMap<String, String>, switch: &str) {
    let types: BTreeSet<String> = files.values().flat_map(|text| types(text)).map(str::to_owned).collect();
    let mut names = BTreeSet::from([switch.to_owned()]);
    let mut fresh = names.clone();
    while !fresh.is_empty() {
        let mut found = BTreeSet::new();
        for text in files.values_mut().filter(|text| text.contains(MARK)) {
            let lines: Vec<&str> = text.lines().collect();
            let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            for Function { name, lines: (first, last) } in functions(&lines) {
                let body = lines.get(first + usize::from(first != last)..=last).unwrap_or_default();
                let body = body.iter().map(|line| line.split_once(MARK).map_or(*line, |(_, rest)| rest));
                if body.flat_map(|line| calls(line, &types)).any(|called| fresh.contains(called)) {
                    if let Some(line) = changed.get_mut(first) {
                        *line = line.replacen(MARK, "fn ", 1);
                    }
                    found.insert(name);
                }
            }
            *text = changed.join("\n") + "\n";
        }
        fresh = found.difference(&names).cloned().collect();
        names.extend(found);
    }
}

fn functions(lines: &[&str]) -> Vec<Function> {
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let Some((_, rest)) = code.split_once(MARK).filter(|_| !code.starts_with("//")) else { continue };
        let name = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let closing = format!("{}}}", " ".repeat(line.len() - code.len()));
        let end = lines.iter().enumerate().skip(first).find(|(_, line)| **line == closing);
        let last = if code.ends_with('}') { first } else { end.map_or(first, |(last, _)| last) };
        found.push(Function { name, lines: (first, last) });
    }
    found
}

/// The names before opening brackets, except for functions of types that are not among `types`.
fn calls<'a>(line: &'a str, types: &BTreeSet<String>) -> impl Iterator<Item = &'a str> {
    line.match_indices('(').filter_map(|(at, _)| {
        let (before, name) = last_name(line.get(..at)?);
        let (_, of) = last_name(before.strip_suffix("::").unwrap_or_default());
        let foreign = of != "Self" && of.starts_with(char::is_uppercase) && !types.contains(of);
        Some(name).filter(|name| !name.is_empty() && !foreign)
    })
}

/// A text without the name at its end, and this name.
fn last_name(text: &str) -> (&str, &str) {
    let rest = text.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_');
    text.split_at(rest.len())
}

/// The types that a file defines.
fn types(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    let pairs = words.clone().zip(words.skip(1));
    pairs.filter(|(word, _)| ["struct", "enum", "trait", "type"].contains(word)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_with_a_switch_and_their_callers_are_not_constant() {
        let text = "\
pub const fn first(x: u8) -> u8 {
    if crate::mutant(7) { 1 } else { x }
}
const fn second(x: u8) -> u8 { first(x) }
    const fn third(x: u8) -> u8 {
        second(x) + 1
    }
const fn fourth(x: u8) -> u8 {
    Foreign::first(x)
}
";
        let mut files = BTreeMap::from([("a.rs".to_owned(), text.to_owned())]);
        remove(&mut files, "mutant");
        let changed = &files["a.rs"];
        assert!(changed.contains("pub fn first("));
        assert!(changed.contains("\nfn second("));
        assert!(changed.contains("    fn third("));
        assert!(changed.contains("const fn fourth("));
    }
}
