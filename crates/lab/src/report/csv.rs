//! The measurements of runs as a table with one row for each number, which programs for statistics read.

use std::fmt::Write as _;

use serde_json::Value;

use super::about::LabRun;

/// The head of the table.
const HEAD: &str =
    "scenario,digest,run,seed,started_unix_us,verdict,ok,measurement,of,statistic,unit,value\n";

/// What a number is of that is about the whole run.
const ALL: &str = "all";

/// The unit of a number of things.
const ONE: &str = "1";

/// How the name of a measurement ends, and its unit.
const UNITS: [(&str, &str); 14] = [
    ("_ms", "ms"),
    ("_us", "us"),
    ("_ns", "ns"),
    ("_kbit", "kbit/s"),
    ("_percent", "%"),
    ("_per_second", "1/s"),
    ("per_second", "1/s"),
    ("_per_s", "1/s"),
    ("_kib", "KiB"),
    ("_octets", "octet"),
    ("seconds", "s"),
    ("us_least", "us"),
    ("us_median", "us"),
    ("cpu_us_per_query", "us"),
];

/// Numbers of things, also inside of a measurement with a unit.
const COUNTS: [&str; 6] = ["count", "sessions", "sent", "lost", "packets", "runs"];

/// Formats the measurements of all runs.
pub(crate) fn table(runs: &[LabRun]) -> String {
    let mut text = HEAD.to_owned();
    for run in runs {
        let LabRun { report, about, seed, run, started_unix_us, verdict, .. } = run;
        let digest = about.digest();
        let name = cell(&report.scenario);
        let first = format!("{name},{digest},{run},{seed},{started_unix_us},{verdict},{}", report.ok);
        let mut path = Vec::new();
        walk(&report.measurements, &mut path, &mut |path, value| {
            let ([measurement, rest @ ..], Some(statistic)) = (path, path.last()) else { return };
            let of = rest.split_last().map_or_else(String::new, |(_, of)| of.join("/"));
            // An empty cell would be a missing value for the programs that read the table.
            let of = if of.is_empty() { ALL.to_owned() } else { of };
            let unit = unit(path);
            let cells = [measurement, &of, statistic].map(|text| cell(text));
            // Writing to a string does not fail.
            let _ = writeln!(text, "{first},{},{unit},{value}", cells.join(","));
        });
    }
    text
}

/// Visits each number, with the names that lead to it.
fn walk(value: &Value, path: &mut Vec<String>, visit: &mut impl FnMut(&[String], &str)) {
    match value {
        Value::Number(number) => visit(path, &number.to_string()),
        Value::Object(object) => {
            for (name, value) in object {
                path.push(name.clone());
                walk(value, path, visit);
                path.pop();
            }
        }
        Value::Array(array) => {
            for (place, value) in array.iter().enumerate() {
                path.push(named(place, value));
                walk(value, path, visit);
                path.pop();
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Names an element of a list: by its place, and by the texts in it.
fn named(place: usize, value: &Value) -> String {
    let texts = value.as_object().into_iter().flatten();
    let texts: Vec<_> = texts.filter_map(|(name, text)| Some(format!("{name}={}", text.as_str()?))).collect();
    if texts.is_empty() { place.to_string() } else { format!("{place} {}", texts.join(" ")) }
}

/// Returns the unit that the names of a number say.
fn unit(path: &[String]) -> &'static str {
    let Some((leaf, _)) = path.split_last() else { return ONE };
    if COUNTS.contains(&leaf.as_str()) {
        return ONE;
    }
    // The round trips of each step are in milliseconds.
    if path.first().is_some_and(|first| first == "pings") {
        return if leaf == "variance" { "ms2" } else { "ms" };
    }
    let mut names = path.iter().rev();
    names.find_map(|name| UNITS.iter().find(|(end, _)| name.ends_with(end))).map_or(ONE, |(_, unit)| *unit)
}

/// Returns a text as a cell.
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::language::find;
    use crate::report::Report;
    use crate::report::about::About;
    use crate::run::machine::Watch;

    #[test]
    fn each_number_is_a_row_with_its_unit() {
        let scenario = find("quickstart", &[]).expect("built in");
        let measurements = json!({
            "floods": {
                "a\rb": {"us_least": 2.0, "us_median": 3.0},
                "queries": {"cpu_us_per_query": 4.5, "cpu_share": 0.5},
            },
            "rtt_ms": {"count": 3, "p50": 1.5, "p99": null},
            "traffic": {"flow, first": {"before": {"sent": 9, "goodput_kbit": 700.0}}},
            "programs": {"observer": {"node": "r1", "lines": ["x", {"message": "ping", "median_us": 9.5}]}},
        });
        let report = Report { measurements, ..Report::skipped(&scenario, String::new()) };
        let watch = Watch::start();
        let run = LabRun {
            report,
            about: About::simulated(&scenario),
            seed: 7,
            run: 2,
            started_unix_us: 5,
            elapsed_us: 1,
            verdict: watch.machine().verdict(),
            machine: watch.machine(),
        };
        let text = table(&[run]);
        let rows: Vec<_> =
            text.lines().map(|line| line.split_once(",true,").map_or(line, |(_, row)| row)).collect();
        assert_eq!(rows[0], HEAD.trim_end());
        assert_eq!(
            rows[1..],
            [
                "floods,\"a\rb\",us_least,us,2.0",
                "floods,\"a\rb\",us_median,us,3.0",
                "floods,queries,cpu_share,1,0.5",
                "floods,queries,cpu_us_per_query,us,4.5",
                "programs,observer/lines/1 message=ping,median_us,us,9.5",
                "rtt_ms,all,count,1,3",
                "rtt_ms,all,p50,ms,1.5",
                "traffic,\"flow, first/before\",goodput_kbit,kbit/s,700.0",
                "traffic,\"flow, first/before\",sent,1,9",
            ]
        );
        assert!(
            text.lines().nth(1).is_some_and(|row| row.starts_with("quickstart,") && row.contains(",2,7,5,"))
        );
    }
}
