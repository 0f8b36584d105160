//! What the figures were measured on, and how much memory this process holds.

use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Processor, number of them, kernel.
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

/// Octets of memory that this process holds now. Read from `smaps_rollup`, which is exact; `statm` lags by
/// what each processor has not yet added up.
pub(super) fn resident_octets() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").context("cannot read /proc/self/smaps_rollup")?;
    let kilo: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("Rss:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse().ok())
        .context("no Rss in /proc/self/smaps_rollup")?;
    Ok(kilo * 1024)
}
