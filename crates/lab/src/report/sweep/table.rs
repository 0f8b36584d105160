//! A sweep as tables: for people, and with one row for each average or each number (CSV).

use std::fmt::Write as _;

use super::{Failure, Finished, Series, Swept};
use crate::language::sweep::{Average, Axis, Point, plain};
use crate::report::Section;
use crate::report::csv::cell;
use crate::report::interval::Estimate;

impl Swept {
    /// Returns the report for people: what was run, and a table for each series that is shown.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for series in self.shown() {
            let section = self.section(series);
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}\n{}\n", section.title, section.text());
        }
        for name in self.unmeasured() {
            let _ = writeln!(
                text,
                "no run has measured {name}: `sweep.csv` has the names of all that was measured"
            );
        }
        for Failure { check, runs, point, detail } in &self.failures {
            let at = self.point(*point).map_or_else(String::new, |at| at.values.text());
            let at = if at.is_empty() { at } else { format!(" at {at}") };
            let _ = writeln!(
                text,
                "FAILED  {check}: in {runs} of {} runs, first{at}\n        {detail}",
                self.runs
            );
        }
        let points = self.points.len();
        let _ = write!(text, "{}: {} runs at {points} points", self.scenario, self.runs);
        for (number, what) in
            [(self.failed, "with a failed check"), (self.disturbed, "disturbed by other programs")]
        {
            if number > 0 {
                let _ = write!(text, ", {number} {what}");
            }
        }
        text + if self.complete { "\n" } else { "; the others are not done yet\n" }
    }

    fn section(&self, series: &Series) -> Section {
        let average = match self.sweep.average {
            Average::Median => "median",
            Average::Mean => "mean",
        };
        let names = self.sweep.over.iter().map(|axis| axis.name.as_str());
        let header: Vec<_> = names.chain([average, "95 % interval", "min", "max", "runs"]).collect();
        let rows = series.points.iter().map(|summary| {
            let Estimate { value, low, high } = summary.average(self.sweep.average);
            let interval = low
                .zip(high)
                .map_or_else(|| "-".to_owned(), |(low, high)| format!("{} to {}", short(low), short(high)));
            let values = self.point(summary.point).into_iter().flat_map(|at| &at.values.0);
            let values = values.map(|(_, value)| plain(value).into_owned());
            values
                .chain([
                    short(value),
                    interval,
                    short(summary.min),
                    short(summary.max),
                    summary.count.to_string(),
                ])
                .collect()
        });
        let unit = if series.unit == "1" { String::new() } else { format!(", {}", series.unit) };
        Section::table(format!("{}{unit}", series.name), &header, rows.collect())
    }

    /// Returns the averages of all series as a table with one row for each series and point.
    pub(crate) fn averages(&self) -> String {
        let mut text = format!(
            "scenario,point,{}measurement,of,statistic,unit,count,median,median_low,median_high,mean,mean_low,mean_high,\
             deviation,min,max\n",
            columns(&self.sweep.over)
        );
        // An empty cell is a missing value.
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let estimate =
            |Estimate { value, low, high }: Estimate| format!("{value},{},{}", number(low), number(high));
        for series in &self.series {
            let name = &series.name;
            let name = [&name.measurement, &name.of, &name.statistic].map(|text| cell(text)).join(",");
            for summary in &series.points {
                let Some(at) = self.point(summary.point) else { continue };
                // Writing to a string does not fail.
                let _ = writeln!(
                    text,
                    "{},{},{}{name},{},{},{},{},{},{},{}",
                    cell(&self.scenario),
                    summary.point,
                    values(&at.values),
                    series.unit,
                    summary.count,
                    estimate(summary.median),
                    estimate(summary.mean),
                    number(summary.deviation),
                    summary.min,
                    summary.max,
                );
            }
        }
        text
    }

    /// Returns the numbers of all runs as a table with one row for each number.
    pub(crate) fn rows(&self, runs: &[Finished]) -> String {
        let mut text = format!(
            "scenario,point,{}repetition,seed,started_unix_us,verdict,ok,measurement,of,statistic,unit,value\n",
            columns(&self.sweep.over)
        );
        for run in runs {
            let Some(at) = self.point(run.place.point) else { continue };
            let (place, values) = (run.place, values(&at.values));
            let first = format!(
                "{},{},{values}{},{},{},{},{}",
                cell(&self.scenario),
                place.point,
                place.repetition,
                run.seed,
                run.started_unix_us,
                run.verdict,
                run.ok
            );
            for number in &run.numbers {
                let name = &number.name;
                let name = [&name.measurement, &name.of, &name.statistic].map(|text| cell(text)).join(",");
                let _ = writeln!(text, "{first},{name},{},{}", number.unit, number.value);
            }
        }
        text
    }
}

/// Returns the columns of the parameters. Their names cannot be those of other columns.
fn columns(over: &[Axis]) -> String {
    over.iter().map(|axis| format!("param_{},", axis.name)).collect()
}

fn values(point: &Point) -> String {
    point.0.iter().map(|(_, value)| cell(&plain(value)) + ",").collect()
}

/// Returns a number with four digits, or all in front of the point.
pub(super) fn short(value: f64) -> String {
    let places = match value.abs() {
        0.0 => 0,
        1000.0.. => 0,
        100.0.. => 1,
        10.0.. => 2,
        1.0.. => 3,
        0.1.. => 4,
        0.01.. => 5,
        _ => return format!("{value:.2e}"),
    };
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sweep::tests::{run, swept};

    #[test]
    fn a_table_has_a_row_for_each_point_with_its_interval() {
        let text = swept().text();
        let lines: Vec<_> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines[0], "rtt_ms/p50, ms");
        assert_eq!(lines[1], "sessions mode median 95 % interval min max runs");
        assert!(lines[2].starts_with("1 a 13.5 11") && lines[2].ends_with(" 11 16 6"), "{text}");
        assert!(
            lines.contains(&"FAILED it: in 6 of 36 runs, first at sessions=10, mode=a".to_owned()),
            "{text}"
        );
        assert_eq!(
            lines.last().map(String::as_str),
            Some("x: 36 runs at 6 points, 6 with a failed check, 6 disturbed by other programs")
        );
    }

    #[test]
    fn csv_has_the_parameters_in_columns_of_their_own() {
        let swept = swept();
        let text = swept.averages();
        assert!(text.starts_with("scenario,point,param_sessions,param_mode,measurement,"), "{text}");
        assert!(text.lines().any(|line| line.starts_with("x,4,10,b,rtt_ms,all,p50,ms,6,43.5,")), "{text}");
        let columns = |line: &str| line.split(',').count();
        let mut lines = text.lines().map(columns);
        let head = lines.next();
        assert!(lines.all(|number| Some(number) == head), "{text}");
        let rows = swept.rows(&[run(2, 5, serde_json::json!({"rtt_ms": {"p50": 1.5}}))]);
        assert_eq!(rows.lines().nth(1), Some("x,2,1,b,5,7,5,disturbed,true,rtt_ms,all,p50,ms,1.5"));
    }

    #[test]
    fn numbers_are_short() {
        for (value, expected) in [
            (0.0, "0"),
            (12_345.6, "12346"),
            (123.46, "123.5"),
            (1.5, "1.5"),
            (0.012_34, "0.01234"),
            (0.000_1, "1.00e-4"),
        ] {
            assert_eq!(short(value), expected);
        }
    }
}
