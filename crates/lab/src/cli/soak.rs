//! The soak: the workload of a scenario again and again on one network, while memory and descriptors of the daemons are
//! read. They must not grow.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::run::Run;
use crate::run::evidence::Evidence;
use crate::run::lab::Lab;

/// Growth that does not count, in KiB: pages that the allocator keeps, and one more portion of a table.
const MEMORY_KIB: u64 = 2048;
/// Descriptors that do not count: connections that close just now.
const DESCRIPTORS: usize = 2;

/// What a daemon holds at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Sample {
    /// Resident memory.
    pub(crate) memory_kib: u64,
    /// Open file descriptors.
    pub(crate) descriptors: usize,
}

impl Sample {
    fn of(pid: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let memory_kib = line.trim().trim_end_matches("kB").trim().parse().context("VmRSS is a number")?;
        Ok(Self { memory_kib, descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count() })
    }
}

/// The samples of the daemons after each round, by the names of their nodes.
#[derive(Debug, Default)]
pub(crate) struct Samples(BTreeMap<String, Vec<Sample>>);

/// A daemon during the soak.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Course {
    node: String,
    rounds: usize,
    /// The largest values of the second quarter of the rounds. In the first one, tables grow to their size.
    early: Sample,
    /// The largest values of the last quarter.
    late: Sample,
    pub(crate) flat: bool,
}

impl Samples {
    fn read(&mut self, lab: &Lab) -> Result<()> {
        for node in lab.running() {
            let name = lab.plan.nodes[node].name.clone();
            self.0.entry(name).or_default().push(Sample::of(lab.process(node)?.pid)?);
        }
        Ok(())
    }

    /// How each daemon fared.
    pub(crate) fn courses(&self) -> Vec<Course> {
        let course = |(node, samples): (&String, &Vec<Sample>)| {
            let quarter = samples.len().div_ceil(4);
            let early = largest(samples.iter().skip(quarter).take(quarter).chain(samples.first()))?;
            let late = largest(samples.iter().rev().take(quarter))?;
            let flat = late.memory_kib <= early.memory_kib + MEMORY_KIB
                && late.descriptors <= early.descriptors + DESCRIPTORS;
            Some(Course { node: node.clone(), rounds: samples.len(), early, late, flat })
        };
        self.0.iter().filter_map(course).collect()
    }
}

fn largest<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Sample> {
    samples.copied().reduce(|a, b| Sample {
        memory_kib: a.memory_kib.max(b.memory_kib),
        descriptors: a.descriptors.max(b.descriptors),
    })
}

/// A table of the courses.
pub(crate) fn text(courses: &[Course]) -> String {
    let mut text = String::from("node        rounds   resident KiB early, late   descriptors early, late\n");
    for Course { node, rounds, early, late, flat } in courses {
        let mark = if *flat { "" } else { "   GROWS" };
        // Writing into a string does not fail.
        let _ = writeln!(
            text,
            "{node:<10} {rounds:>7} {:>14} {:>11} {:>17} {:>7}{mark}",
            early.memory_kib, late.memory_kib, early.descriptors, late.descriptors
        );
    }
    text
}

/// Repeats the workload for this time, at least twice.
pub(crate) fn soak(run: &mut Run<'_>, time: Duration) -> Result<Samples> {
    let begin = Instant::now();
    let mut samples = Samples::default();
    let mut round = 0;
    while round < 2 || begin.elapsed() < time {
        round += 1;
        run.progress(&format!("round {round}, after {} s", begin.elapsed().as_secs()));
        run.work()?;
        // Nothing of a round is judged, and the lab itself must not grow.
        run.evidence = Evidence::new(run.lab.plan.clone());
        samples.read(run.lab)?;
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: impl Iterator<Item = (u64, usize)>) -> Samples {
        let all = values.map(|(memory_kib, descriptors)| Sample { memory_kib, descriptors });
        Samples(BTreeMap::from([("r1".to_owned(), all.collect())]))
    }

    #[test]
    fn growth_after_the_first_rounds_is_not_flat() {
        let flat = |samples: &Samples| samples.courses().iter().all(|course| course.flat);
        assert!(flat(&samples((0..40).map(|_| (20_000, 12)))));
        assert!(
            flat(&samples((0..40u64).map(|n| (20_000 + n.min(8) * 1000, 12)))),
            "tables grow to their size"
        );
        assert!(!flat(&samples((0..40u64).map(|n| (20_000 + n * 200, 12)))), "a leak of memory");
        let leak = samples((0..40usize).map(|n| (20_000, 12 + n / 4)));
        assert!(!flat(&leak), "a leak of descriptors");
        assert!(text(&leak.courses()).contains("GROWS"));
    }
}
