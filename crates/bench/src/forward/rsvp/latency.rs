//! How long Paths and Resvs take through the router: one set-up at a time, and set-ups at fixed moments.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::super::super::{median, rounded};
use super::ends::Ends;
use super::{Run, micros};

/// How set-ups follow each other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// In JSON.
    pub(super) key: &'static str,
    /// In a goal.
    pub(super) name: &'static str,
    /// In the table.
    pub(super) head: &'static str,
    /// The time from one to the next; `None`: each follows the answer of the one before.
    gap: Option<Duration>,
}

pub(super) const PACES: [Pace; 2] = [
    Pace { key: "back_to_back", name: "latency of Path, back to back", head: "", gap: None },
    Pace {
        key: "gaps_of_1_ms",
        name: "latency of Path, one each ms",
        head: ", 1 ms",
        gap: Some(Duration::from_millis(1)),
    },
];
/// The percentiles that are printed.
pub(super) const PERCENTILES: [usize; 3] = [50, 90, 99];

/// The microseconds of Paths and of Resvs, sorted.
pub(super) type Times = [Vec<f64>; 2];

/// Times `count` new sessions from `next` on with each pace.
pub(super) fn measure(ends: &mut Ends, mut next: u32, count: u32) -> Result<Vec<Times>> {
    let mut all = Vec::new();
    for pace in PACES {
        let end = next + count;
        let times = match pace.gap {
            Some(gap) => ends.time_at_gaps(next, end, gap)?,
            None => {
                let mut times = [Vec::new(), Vec::new()];
                for number in next..end {
                    let (path, resv) = ends.time(number)?;
                    times[0].push(path);
                    times[1].push(resv);
                }
                times
            }
        };
        all.push(times.map(|times| {
            let mut times: Vec<f64> = times.into_iter().map(micros).collect();
            times.sort_by(f64::total_cmp);
            times
        }));
        next = end;
    }
    Ok(all)
}

/// The median of the runs of a percentile of Paths (0) or Resvs (1).
pub(super) fn percentile(runs: &[Run], pace: usize, of: usize, percent: usize) -> f64 {
    let times = runs.iter().filter_map(|run| run.latencies.get(pace)?.get(of));
    median(times.filter_map(|times| times.get(times.len().saturating_sub(1) * percent / 100).copied()))
}

/// The percentiles of each pace, as JSON.
pub(super) fn json(runs: &[Run]) -> impl Iterator<Item = (&'static str, Value)> {
    PACES.into_iter().enumerate().map(|(at, pace)| {
        let quantiles = |of| {
            let [p50, p90, p99] = PERCENTILES.map(|percent| rounded(percentile(runs, at, of, percent)));
            json!({"p50": p50, "p90": p90, "p99": p99})
        };
        (pace.key, json!({"path_us": quantiles(0), "resv_us": quantiles(1)}))
    })
}
