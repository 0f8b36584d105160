//! A finished run of a sweep, as the directory of the results has it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::report::numbers::{Number, numbers};

/// Which run of a sweep a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The number of the point, from 1.
    pub(crate) point: usize,
    /// The number of the run among those of the point, from 1.
    pub(crate) repetition: u32,
}

/// What a sweep takes from the object of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Finished {
    pub(crate) place: Place,
    pub(crate) seed: u64,
    pub(crate) started_unix_us: u64,
    pub(crate) elapsed: Duration,
    pub(crate) verdict: String,
    pub(crate) ok: bool,
    /// Checks and steps that failed, with what was observed.
    pub(crate) failures: Vec<(String, String)>,
    pub(crate) numbers: Vec<Number>,
}

impl Finished {
    /// Reads the object of a run (`lab_run`); nothing if it is none of a sweep.
    pub(crate) fn read(run: &Value) -> Option<Self> {
        Some(Self {
            place: Place::deserialize(run.get("sweep")?).ok()?,
            seed: run.get("seed")?.as_u64()?,
            started_unix_us: run.get("started_unix_us")?.as_u64()?,
            elapsed: Duration::from_micros(run.get("elapsed_us")?.as_u64()?),
            verdict: run.get("verdict")?.as_str()?.to_owned(),
            ok: run.get("ok")?.as_bool()?,
            failures: run.get("checks")?.as_array()?.iter().filter_map(failure).collect(),
            numbers: numbers(run.get("measurements")?),
        })
    }

    /// Whether nothing disturbed the measurement.
    pub(crate) fn is_clean(&self) -> bool {
        self.verdict == "clean"
    }
}

/// Returns name and detail of a check, if it failed.
fn failure(check: &Value) -> Option<(String, String)> {
    let text = |key: &str| Some(check.get(key)?.as_str()?.to_owned());
    let failed = !check.get("ok")?.as_bool()?;
    failed.then(|| text("name").zip(text("detail"))).flatten()
}
