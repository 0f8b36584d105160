//! Reports as a JUnit file, which CI systems show.

use std::fmt::Write as _;
use std::time::Duration;

use super::Report;

/// Formats the reports of runs, each with the time that it took.
pub(crate) fn xml(runs: &[(Report, Duration)]) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    // Writing to a string does not fail.
    for (report, took) in runs {
        let (name, seconds) = (escaped(&report.scenario), took.as_secs_f64());
        let failed = report.checks.iter().filter(|check| !check.ok).count();
        let (tests, skipped) = (report.checks.len().max(1), usize::from(report.skip.is_some()));
        let _ = writeln!(
            text,
            " <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failed}\" skipped=\"{skipped}\" time=\"{seconds:.3}\">"
        );
        if let Some(why) = &report.skip {
            let why = escaped(why);
            let _ = writeln!(
                text,
                "  <testcase classname=\"{name}\" name=\"{name}\"><skipped message=\"{why}\"/></testcase>"
            );
        }
        for check in &report.checks {
            let (case, detail) = (escaped(&check.name), escaped(&check.detail));
            let _ = match check.ok {
                true => writeln!(
                    text,
                    "  <testcase classname=\"{name}\" name=\"{case}\"><system-out>{detail}</system-out></testcase>"
                ),
                false => writeln!(
                    text,
                    "  <testcase classname=\"{name}\" name=\"{case}\"><failure message=\"{detail}\"/></testcase>"
                ),
            };
        }
        text += " </testsuite>\n";
    }
    text + "</testsuites>\n"
}

/// Escapes a text for an attribute or an element; control characters have no place in XML.
fn escaped(text: &str) -> String {
    let mut new = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => new += "&amp;",
            '<' => new += "&lt;",
            '>' => new += "&gt;",
            '"' => new += "&quot;",
            c if c.is_control() => new.push(' '),
            c => new.push(c),
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::evidence::Outcome;

    #[test]
    fn a_check_is_a_test_case_and_a_scenario_that_was_not_run_is_skipped() {
        let outcome = |ok| Outcome { name: "a < b".into(), ok, detail: "\"1\"\n".into() };
        let report = |skip: Option<&str>, checks| Report {
            scenario: "x".into(),
            ok: true,
            skip: skip.map(Into::into),
            checks,
            measurements: serde_json::Value::Null,
        };
        let runs = [
            (report(None, vec![outcome(true), outcome(false)]), Duration::from_millis(1500)),
            (report(Some("no tshark"), Vec::new()), Duration::ZERO),
        ];
        let text = xml(&runs);
        assert!(
            text.contains("<testsuite name=\"x\" tests=\"2\" failures=\"1\" skipped=\"0\" time=\"1.500\">"),
            "{text}"
        );
        assert!(text.contains("name=\"a &lt; b\"><failure message=\"&quot;1&quot; \"/>"), "{text}");
        assert!(text.contains("<skipped message=\"no tshark\"/>"), "{text}");
    }
}
