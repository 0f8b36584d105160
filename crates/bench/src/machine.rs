//! The clock of a measurement, and what `bench instructions` counts of it.

use std::hint::black_box;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};

/// Returns the processor time that the calling thread has used. Other load on the machine does not count, but it
/// displaces contents of the caches.
pub(super) fn processor_time() -> Result<Duration> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("no clock of processor time")?;
    Ok(Duration::from(time))
}

/// Set in the environment of a benchmark whose instructions are counted: it then prints the name of each part.
pub(super) const PARTS: &str = "SIGNALBOX_BENCH_PARTS";
/// What a line with the name of a part begins with.
pub(super) const PART: &str = "part\t";

/// Processor time that was spent, and on how many messages.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meter {
    pub(super) time: Duration,
    pub(super) messages: u64,
}

impl Meter {
    pub(super) fn ns_each(&self) -> f64 {
        self.time.as_nanos() as f64 / self.messages.max(1) as f64
    }

    pub(super) fn add(&mut self, other: Self) {
        self.time += other.time;
        self.messages += other.messages;
    }
}

/// Measures `work`, which returns the number of messages that it handled. `part` is the name under which
/// `bench instructions` shows what they cost.
pub(super) fn timed(part: &str, work: impl FnOnce() -> Result<u64>) -> Result<Meter> {
    let start = processor_time()?;
    let messages = counted(work)?;
    let time = processor_time()?.saturating_sub(start);
    part_ends(part, messages)?;
    Ok(Meter { time, messages })
}

/// Does `work` where callgrind counts.
pub(super) fn counted<T>(work: impl FnOnce() -> T) -> T {
    bench_counted(work)
}

/// Names what was counted since the part before: so many messages, or sessions.
pub(super) fn part_ends(part: &str, messages: u64) -> Result<()> {
    static NAMED: OnceLock<bool> = OnceLock::new();
    if messages > 0 && *NAMED.get_or_init(|| std::env::var_os(PARTS).is_some()) {
        bench_mark();
        writeln!(io::stderr(), "{PART}{part}\t{messages}")?;
    }
    Ok(())
}

/// Callgrind counts inside this function only.
#[inline(never)]
fn bench_counted<T>(work: impl FnOnce() -> T) -> T {
    // Without this the compiler may put the work into the caller.
    black_box(work())
}

/// Callgrind writes what it counted, and begins again at zero, where this function is called.
#[inline(never)]
fn bench_mark() {
    black_box(());
}
