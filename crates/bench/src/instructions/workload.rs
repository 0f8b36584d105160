//! The workloads, each with fixed numbers, so that the same program takes the same instructions.

use anyhow::Result;

use super::callgrind::{self, Counted};
use super::daemon;

/// What is counted together.
pub(super) struct Workload {
    /// Its name in the record.
    pub(super) name: &'static str,
    of: Of,
    pub(super) needs_root: bool,
    /// The percentage by which a part that is new on record may cost more later. Another processor has other routines
    /// for copying, and threads change the count from run to run. No part depends on when packets arrive.
    pub(super) tolerance: u32,
}

enum Of {
    /// A benchmark of an engine: the words behind `bench engine`.
    Engine(&'static [&'static str]),
    /// `signalboxd --check` of a file with many rules.
    Check,
    /// The start of a daemon.
    Start,
}

/// All workloads, in the order of the table.
pub(super) const WORKLOADS: &[Workload] = &[
    engine("gist", &["gist", "--sessions", "1024", "--messages", "4096"]),
    engine("rsvp", &["rsvp", "--sessions", "2048"]),
    engine("natfw", &["natfw", "--sessions", "2048"]),
    engine("gateway", &["gateway", "--sessions", "2048"]),
    engine("boomerang", &["boomerang", "--sessions", "2048"]),
    engine("qos", &["qos", "--sessions", "2048"]),
    engine("casp", &["casp", "--sessions", "2048"]),
    Workload { name: "rules", of: Of::Check, needs_root: false, tolerance: 5 },
    Workload { name: "daemon", of: Of::Start, needs_root: true, tolerance: 25 },
];

const fn engine(name: &'static str, words: &'static [&'static str]) -> Workload {
    Workload { name, of: Of::Engine(words), needs_root: false, tolerance: 5 }
}

impl Workload {
    /// Runs it under callgrind.
    pub(super) fn count(&self) -> Result<Vec<Counted>> {
        match self.of {
            Of::Engine(words) => callgrind::engine(words),
            Of::Check => daemon::check(),
            Of::Start => daemon::start(),
        }
    }
}
