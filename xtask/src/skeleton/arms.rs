//! Catch-all arms in matches over events, inputs and outputs. With one, a new variant is ignored without a warning: the
//! replay printed empty lines for all events of a protocol that way.
//!
//! The check reads text in the layout of rustfmt: the arms of a match stand four blanks further in than the match.

use crate::conformance::TestRegion;

/// Ends of the names of enums that are covered.
const ENUMS: &[&str] = &["Input", "Output", "Event", "Upcall", "Indication", "Command"];

struct Match {
    indent: usize,
    /// The arms name variants of a covered enum.
    covered: bool,
    /// Lines of catch-all arms.
    catch_all: Vec<usize>,
}

/// The lines with catch-all arms, outside of tests.
pub(super) fn catch_all(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut open: Vec<Match> = Vec::new();
    let mut tests = TestRegion::default();
    for (number, line) in (1..).zip(text.lines()) {
        if tests.takes(line) || line.trim().is_empty() {
            continue;
        }
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if code.starts_with('}') {
            while open.last().is_some_and(|one| one.indent >= indent) {
                let Some(closed) = open.pop() else { break };
                if closed.covered {
                    found.extend(closed.catch_all);
                }
            }
        }
        if let Some(current) = open.last_mut().filter(|one| one.indent + 4 == indent) {
            // With a guard, even `_` does not catch all.
            let pattern = code.split("=>").next().unwrap_or(code).trim();
            if code.contains("=>") && is_catch_all(pattern) {
                current.catch_all.push(number);
            } else if !code.starts_with("//") {
                current.covered |= names_covered(pattern);
            }
        }
        let opens_match = code.ends_with('{')
            && (code.starts_with("match ") || code.contains(" match ") || code.contains("(match "));
        if opens_match {
            open.push(Match { indent, covered: false, catch_all: Vec::new() });
        }
    }
    found.sort_unstable();
    found
}

/// `_`, or a name that binds any value.
fn is_catch_all(pattern: &str) -> bool {
    pattern == "_" || (!pattern.is_empty() && pattern.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
}

/// The pattern is a variant of a covered enum.
fn names_covered(pattern: &str) -> bool {
    let pattern = pattern
        .trim_start_matches("| ")
        .trim_start_matches('(')
        .trim_start_matches("Some(")
        .trim_start_matches("Ok(");
    let path = pattern
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':')
        .next()
        .unwrap_or_default();
    let mut parts = path.rsplit("::");
    let (variant, of) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    variant.starts_with(|c: char| c.is_ascii_uppercase()) && ENUMS.iter().any(|end| of.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catch_alls_over_events_are_found() {
        let code = "\
fn a() {
    match event {
        Event::A => 1,
        _ => 2,
    }
    let x = match input {
        core::Input::A { .. } | Input::B => {
            match other {
                Kind::A => 1,
                _ => 2,
            }
        }
        other => 3,
    };
    match kind {
        Kind::A => Event::A,
        _ => Event::B,
    }
}
";
        assert_eq!(catch_all(code), [4, 13]);
    }

    #[test]
    fn tests_and_guards_are_left_alone() {
        let code = "\
fn a() {
    match output {
        _ if x => 1,
        Output::A | Output::B => 2,
    }
}
#[cfg(test)]
mod tests {
    fn b() {
        match output {
            Output::A => 1,
            _ => 2,
        }
    }
}
";
        assert_eq!(catch_all(code), [0; 0]);
    }
}
