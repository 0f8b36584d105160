//! Lines of the log about dropped messages: where an engine counts a message that it drops, refuses or cannot send, it says so at
//! `debug`. Otherwise the counter grows, and nobody finds out whose messages they are.
//!
//! The check reads text: the line that counts has a macro of the log close by. Only engines are covered that log where they count;
//! the others log many of these messages where the reason of all arrives.

use std::collections::BTreeMap;

/// The crates that are covered.
pub(super) const CRATES: &[&str] = &["boomerang", "casp"];

/// The families whose counters are covered.
const FAMILIES: &[&str] = &["MESSAGES_DROPPED", "MESSAGES_UNSENT", "RATE_LIMITED", "TABLE_FULL", "PASSED"];

/// Counters of other families that count such messages too.
const ALSO: &[&str] = &[
    "framing",
    "incomplete",
    "refused_peers",
    "stale",
    "unauthenticated",
    "unproved",
    "unreachable",
    "wrong_proofs",
];

/// Macros of the log.
const MACROS: &[&str] = &["tracing::", "dropped!(", "lost!(", "unsent!("];

/// How far away the macro may be, lines.
const NEAR: usize = 4;

/// The faults of the sources of one crate, which are pairs of a file's name and its text.
pub(super) fn faults(sources: &[(String, String)]) -> Vec<String> {
    // Whether a line counts it.
    let mut counters = BTreeMap::new();
    for (_, text) in sources {
        counters.extend(text.lines().filter_map(declared).map(|counter| (counter, false)));
    }
    let mut faults = Vec::new();
    for (file, text) in sources {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(counter) = counted(line).and_then(|name| counters.get_mut(name)) else { continue };
            *counter = true;
            let near = lines.get(at.saturating_sub(NEAR)..lines.len().min(at + NEAR + 1)).unwrap_or_default();
            if !near.iter().any(|line| MACROS.iter().any(|one| line.contains(one))) {
                faults.push(format!("{file}:{}: a message is counted that the log does not show", at + 1));
            }
        }
    }
    let unseen = counters.iter().filter(|(_, seen)| !**seen);
    faults.extend(unseen.map(|(name, _)| format!("no line `counters.{name} += …` is found")));
    faults
}

/// The counter of a line of `counters!`, if it is covered.
fn declared(line: &str) -> Option<&str> {
    let (name, family) = line.trim().split_once(": u64 => ")?;
    let family = family.split([' ', ',']).next().unwrap_or(family);
    (FAMILIES.contains(&family) || ALSO.contains(&name)).then_some(name)
}

/// The counter to which a line adds.
fn counted(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("counters.")?;
    let (name, _) = rest.split_once(" += ")?;
    name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &str = "\
    malformed: u64 => MESSAGES_DROPPED { reason: \"malformed\" },
    received: u64 => MESSAGES_RECEIVED,
    framing: u64 => ASSOCIATION_EVENTS { event: \"bad_framing\" },
";

    fn faults_of(code: &str) -> Vec<String> {
        faults(&[("a.rs".to_owned(), DECLARED.to_owned()), ("b.rs".to_owned(), code.to_owned())])
    }

    #[test]
    fn a_counted_message_needs_a_line_of_the_log_close_by() {
        let framing =
            "        self.counters.framing += 1;\n        tracing::debug!(reason, \"connection closed\");\n";
        let silent = format!(
            "{framing}\n\n\n\n        self.counters.received += 1;\n        self.counters.malformed += 1;\n        return;\n"
        );
        assert_eq!(faults_of(&silent), ["b.rs:8: a message is counted that the log does not show"]);
        let logged = format!("{silent}        dropped!(message, from, \"malformed\");\n");
        assert_eq!(faults_of(&logged), [""; 0]);
    }

    #[test]
    fn a_counter_that_is_counted_in_another_form_is_named() {
        let code = "self.counters.malformed += 1; tracing::debug!(\"\");\nself.add(|all| &mut all.framing);";
        assert_eq!(faults_of(code), ["no line `counters.framing += …` is found"]);
    }
}
