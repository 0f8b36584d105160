//! The machine of the measurement, and its clock.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// Describes the processor, the number of processors and the kernel.
pub(super) fn describe() -> Value {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .and_then(|rest| rest.split_once(": "))
        .map_or("unknown", |(_, model)| model.trim());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({"processor": model, "processors": processors, "kernel": kernel.trim()})
}

/// Returns the processor time that the calling thread has used. Other load on the machine does not count, but it
/// displaces contents of the caches.
pub(super) fn processor_time() -> Result<Duration> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("no clock of processor time")?;
    Ok(Duration::from(time))
}
