//! The result of a sweep: each number of the runs at each point, with its averages and their intervals.

mod finished;
mod plot;
mod table;

use std::collections::BTreeMap;

use serde::Serialize;

use super::about::About;
use super::interval::{Bootstrap, CONFIDENCE, Estimate, LEAST, RESAMPLES};
use super::numbers::Name;
use crate::language::Scenario;
use crate::language::sweep::{Average, Point, Sweep};
use crate::run::machine::Machine;
pub(crate) use finished::{Finished, Place};

/// What is shown of a sweep that names no measurement: numbers whose names end so, in this order.
const SHOWN: [&str; 8] = [
    "answer_ms",
    "rtt_ms/p50",
    "/mean",
    "loss_percent",
    "goodput_kbit",
    "per_second",
    "cpu_us_per_query",
    "us_least",
];
/// More series than a reader takes in at once. Who names measurements has all that they name.
const SHOWN_MAX: usize = 6;

/// A sweep and its results.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Swept {
    pub(crate) scenario: String,
    pub(crate) description: String,
    #[serde(flatten)]
    about: About,
    pub(crate) sweep: Sweep,
    pub(crate) seed: u64,
    /// Whether all runs are there.
    pub(crate) complete: bool,
    /// The number of runs.
    pub(crate) runs: usize,
    /// Runs of which a check or a step failed. Their numbers count.
    pub(crate) failed: usize,
    /// What failed in them.
    pub(crate) failures: Vec<Failure>,
    /// Runs that other programs disturbed. Their numbers count.
    pub(crate) disturbed: usize,
    pub(crate) started_unix_us: Option<u64>,
    /// The time of all runs.
    pub(crate) elapsed_us: u64,
    pub(crate) machine: Machine,
    interval: Method,
    pub(crate) points: Vec<At>,
    pub(crate) series: Vec<Series>,
}

/// A check or a step that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    pub(crate) check: String,
    /// The number of runs in which it failed.
    pub(crate) runs: usize,
    /// The number of the point of the first of them.
    pub(crate) point: usize,
    /// What was observed there.
    pub(crate) detail: String,
}

/// How intervals are found.
#[derive(Debug, Clone, Serialize)]
struct Method {
    confidence: f64,
    resamples: usize,
    seed: u64,
    least_runs: usize,
}

/// A point and its runs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct At {
    /// Its number, from 1.
    pub(crate) point: usize,
    pub(crate) parameters: toml::Table,
    pub(crate) runs: usize,
    pub(crate) failed: usize,
    pub(crate) disturbed: usize,
    #[serde(skip)]
    pub(crate) values: Point,
}

/// A number over the points.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Series {
    #[serde(flatten)]
    pub(crate) name: Name,
    pub(crate) unit: &'static str,
    pub(crate) points: Vec<Summary>,
}

/// What the runs at a point measured of one number.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Summary {
    /// The number of the point, from 1.
    pub(crate) point: usize,
    /// The runs that measured it.
    pub(crate) count: usize,
    pub(crate) median: Estimate,
    pub(crate) mean: Estimate,
    /// Of the sample; nothing of one run.
    pub(crate) deviation: Option<f64>,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// What each run measured, in the order of the repetitions.
    pub(crate) values: Vec<f64>,
}

impl Summary {
    /// Returns the average that the sweep shows.
    pub(crate) const fn average(&self, which: Average) -> Estimate {
        match which {
            Average::Median => self.median,
            Average::Mean => self.mean,
        }
    }
}

impl Swept {
    /// Puts the runs of a sweep together. `scenario` is at the first of its points.
    pub(crate) fn new(
        scenario: &Scenario,
        sweep: &Sweep,
        seed: u64,
        mut runs: Vec<Finished>,
        machine: Machine,
    ) -> Self {
        runs.sort_by_key(|run| run.place);
        let points = sweep.points();
        let wanted = points.len() * usize::try_from(sweep.repeat).unwrap_or(usize::MAX);
        let swept: Vec<_> = sweep.over.iter().map(|axis| axis.name.as_str()).collect();
        let number = |test: fn(&Finished) -> bool| runs.iter().filter(|run| test(run)).count();
        let at = |(place, point): (usize, &Point)| {
            let of = |test: fn(&Finished) -> bool| {
                runs.iter().filter(|run| run.place.point == place + 1 && test(run)).count()
            };
            At {
                point: place + 1,
                parameters: point.0.iter().cloned().collect(),
                runs: of(|_| true),
                failed: of(|run| !run.ok),
                disturbed: of(|run| !run.is_clean()),
                values: point.clone(),
            }
        };
        Self {
            scenario: scenario.name.clone(),
            description: scenario.description.clone(),
            about: About::lab(scenario).without(&swept),
            sweep: sweep.clone(),
            seed,
            complete: runs.len() >= wanted,
            runs: runs.len(),
            failed: number(|run| !run.ok),
            failures: failures(&runs),
            disturbed: number(|run| !run.is_clean()),
            started_unix_us: runs.iter().map(|run| run.started_unix_us).min(),
            elapsed_us: runs
                .iter()
                .map(|run| u64::try_from(run.elapsed.as_micros()).unwrap_or(u64::MAX))
                .sum(),
            machine,
            interval: Method { confidence: CONFIDENCE, resamples: RESAMPLES, seed, least_runs: LEAST },
            points: points.iter().enumerate().map(at).collect(),
            series: series(&runs, seed),
        }
    }

    /// Returns the series that people are shown: those that the sweep names, or those that a reader looks for first.
    pub(crate) fn shown(&self) -> Vec<&Series> {
        if !self.sweep.measure.is_empty() {
            return self.named(&self.sweep.measure);
        }
        let mut found = self.named(&SHOWN.map(|end| format!("*{end}")));
        found.truncate(SHOWN_MAX);
        found
    }

    /// Returns the series whose names are like one of the patterns, in the order of the patterns.
    fn named(&self, patterns: &[String]) -> Vec<&Series> {
        let mut found: Vec<&Series> = Vec::new();
        for pattern in patterns {
            for series in self.series.iter().filter(|series| matches(pattern, &series.name.to_string())) {
                if !found.iter().any(|known| known.name == series.name) {
                    found.push(series);
                }
            }
        }
        found
    }

    /// Returns the names in `measure` that no run has measured.
    pub(crate) fn unmeasured(&self) -> Vec<&str> {
        let measured =
            |pattern: &str| self.series.iter().any(|series| matches(pattern, &series.name.to_string()));
        self.sweep.measure.iter().map(String::as_str).filter(|pattern| !measured(pattern)).collect()
    }

    /// Returns the point with this number.
    pub(crate) fn point(&self, number: usize) -> Option<&At> {
        self.points.get(number.checked_sub(1)?)
    }
}

/// Counts in how many runs each check failed.
fn failures(runs: &[Finished]) -> Vec<Failure> {
    let mut all: Vec<Failure> = Vec::new();
    for run in runs {
        for (check, detail) in &run.failures {
            match all.iter_mut().find(|failure| failure.check == *check) {
                Some(failure) => failure.runs += 1,
                None => all.push(Failure {
                    check: check.clone(),
                    runs: 1,
                    point: run.place.point,
                    detail: detail.clone(),
                }),
            }
        }
    }
    all
}

/// Gathers each number of all runs, and its averages at each point.
fn series(runs: &[Finished], seed: u64) -> Vec<Series> {
    let mut all: BTreeMap<&Name, (&'static str, BTreeMap<usize, Vec<f64>>)> = BTreeMap::new();
    for run in runs {
        for number in &run.numbers {
            let Some(value) = number.value.as_f64() else { continue };
            let (_, points) = all.entry(&number.name).or_insert_with(|| (number.unit, BTreeMap::new()));
            points.entry(run.place.point).or_default().push(value);
        }
    }
    let mut bootstrap = Bootstrap::new(seed);
    let of = |(name, (unit, points)): (&Name, (&'static str, BTreeMap<usize, Vec<f64>>))| {
        let points = points.into_iter().filter_map(|(point, values)| summary(&mut bootstrap, point, values));
        Series { name: name.clone(), unit, points: points.collect() }
    };
    all.into_iter().map(of).collect()
}

fn summary(bootstrap: &mut Bootstrap, point: usize, values: Vec<f64>) -> Option<Summary> {
    let mut sorted = values.clone();
    sorted.sort_by(f64::total_cmp);
    let [median, mean] = bootstrap.averages(&sorted)?;
    Some(Summary {
        point,
        count: sorted.len(),
        median,
        mean,
        deviation: deviation(&sorted, mean.value),
        min: *sorted.first()?,
        max: *sorted.last()?,
        values,
    })
}

/// Returns the standard deviation of a sample.
#[expect(clippy::cast_precision_loss, reason = "at most a thousand runs")]
fn deviation(values: &[f64], mean: f64) -> Option<f64> {
    let free = values.len().checked_sub(1).filter(|free| *free > 0)? as f64;
    Some((values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / free).sqrt())
}

/// Whether a name is like a pattern, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::language::read;
    use crate::run::machine::Watch;

    const FILE: &str = r#"version = 2
name = "x"
description = "two hosts"
[params]
sessions = 3
mode = "a"
[topology]
chain = ["a", "b"]
[[steps]]
ping = { from = "a", to = "b", sessions = "${sessions}" }
[[steps]]
run = { node = "a", command = ["true", "${mode}"] }
[sweep]
repeat = 6
[sweep.over]
sessions = { from = 1, to = 100, points = 3, scale = "log" }
mode = ["a", "b"]
"#;

    /// What a run says.
    pub(in crate::report) fn run(point: usize, repetition: u32, measurements: Value) -> Finished {
        let object = json!({
            "type": "lab_run", "sweep": {"point": point, "repetition": repetition}, "seed": 7, "started_unix_us": 5,
            "elapsed_us": 1000, "verdict": if point == 2 { "disturbed" } else { "clean" }, "ok": point != 3,
            "checks": [{"name": "it", "ok": point != 3, "detail": "seen"}, {"name": "other", "ok": true, "detail": ""}],
            "measurements": measurements,
        });
        Finished::read(&object).expect("a run of a sweep")
    }

    /// Six points with six runs each; the last has no round trip.
    pub(in crate::report) fn swept() -> Swept {
        let scenario = read("x.toml", FILE).unwrap_or_else(|error| panic!("{error}"));
        let mut runs = Vec::new();
        for point in 1..=6 {
            for repetition in 1..=6 {
                let rtt = f64::from(repetition) + 10.0 * f64::from(u8::try_from(point).expect("small"));
                let measured =
                    if point == 6 { json!({}) } else { json!({"rtt_ms": {"p50": rtt, "count": 3}}) };
                runs.push(run(point, repetition, measured));
            }
        }
        // They come in any order.
        runs.reverse();
        let sweep = scenario.sweep.clone().expect("there is one");
        Swept::new(&scenario, &sweep, 1, runs, Watch::start().machine())
    }

    #[test]
    fn each_number_has_its_averages_at_each_point() {
        let swept = swept();
        assert_eq!((swept.runs, swept.failed, swept.disturbed, swept.complete), (36, 6, 6, true));
        let failure = Failure { check: "it".into(), runs: 6, point: 3, detail: "seen".into() };
        assert_eq!(swept.failures, [failure]);
        assert_eq!((swept.points.len(), swept.points[1].disturbed, swept.points[2].failed), (6, 6, 6));
        let [series] = &swept.shown()[..] else { panic!("one series is shown") };
        assert_eq!(
            (series.name.to_string().as_str(), series.unit, series.points.len()),
            ("rtt_ms/p50", "ms", 5)
        );
        let first = &series.points[0];
        assert_eq!((first.point, first.count, first.min, first.max), (1, 6, 11.0, 16.0));
        assert_eq!((first.median.value, first.mean.value), (13.5, 13.5));
        assert_eq!(first.values, [11.0, 12.0, 13.0, 14.0, 15.0, 16.0]);
        assert!(first.deviation.is_some_and(|deviation| (deviation - 3.5_f64.sqrt()).abs() < 1e-9));
        let inside = |estimate: Estimate| estimate.low < Some(13.5) && Some(13.5) < estimate.high;
        assert!(inside(first.median) && inside(first.mean), "{first:?}");
    }

    #[test]
    fn the_object_says_what_was_swept() {
        let object = serde_json::to_value(swept()).expect("an object");
        assert_eq!(
            object["sweep"]["over"][0],
            json!({"name": "sessions", "values": [1, 10, 100], "logarithmic": true})
        );
        assert_eq!(object["points"][3]["parameters"], json!({"sessions": 10, "mode": "b"}));
        assert_eq!(object["parameters"], json!({}), "those that vary are at the points");
        assert_eq!(object["series"][1]["statistic"], "p50");
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, like) in [
            ("rtt_ms/p50", "rtt_ms/p50", true),
            ("rtt_ms/p50", "rtt_ms/p501", false),
            ("traffic/*/loss_percent", "traffic/flow/before/loss_percent", true),
            ("traffic/*/loss_percent", "traffic/flow/before/sent", false),
            ("*ms*", "rtt_ms/p50", true),
            ("*", "x", true),
            ("a*a", "a", false),
            ("a*b*c", "axbxc", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), like, "{pattern} {name}");
        }
    }

    #[test]
    fn a_name_that_nothing_has_is_told() {
        let mut swept = swept();
        swept.sweep.measure = vec!["rtt_ms/*".into(), "rtt/p50".into()];
        assert_eq!((swept.shown().len(), swept.unmeasured()), (2, vec!["rtt/p50"]));
    }
}
