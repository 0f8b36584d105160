//! The measurements of runs as a table with one row for each number, which programs for statistics read.

use std::fmt::Write as _;

use super::about::LabRun;
use super::numbers::{Number, numbers};

/// The head of the table.
const HEAD: &str =
    "scenario,digest,run,seed,started_unix_us,verdict,ok,measurement,of,statistic,unit,value\n";

/// Formats the measurements of all runs.
pub(crate) fn table(runs: &[LabRun]) -> String {
    let mut text = HEAD.to_owned();
    for run in runs {
        let LabRun { report, about, seed, run, started_unix_us, verdict, .. } = run;
        let digest = about.digest();
        let name = cell(&report.scenario);
        let first = format!("{name},{digest},{run},{seed},{started_unix_us},{verdict},{}", report.ok);
        for Number { name, unit, value } in numbers(&report.measurements) {
            let cells = [&name.measurement, &name.of, &name.statistic].map(|text| cell(text));
            // Writing to a string does not fail.
            let _ = writeln!(text, "{first},{},{unit},{value}", cells.join(","));
        }
    }
    text
}

/// Returns a text as a cell.
pub(super) fn cell(text: &str) -> String {
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
            sweep: None,
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
                "programs,observer/lines/message=ping,median_us,us,9.5",
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
