//! The machine of the measurement, and its clock.

use std::fs;
use std::hint::black_box;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use serde_json::{Value, json};

use super::rounded;

/// The machine, from the start of a measurement on.
pub(super) struct Watch {
    /// The load average of the last minute before the start.
    load: f64,
    busy: Option<Busy>,
}

/// Processor time since the machine started, in its ticks.
struct Busy {
    all: u64,
    /// Without idle time, and without that of this process and of those that it waited for.
    others: u64,
}

impl Watch {
    pub(super) fn start() -> Self {
        let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = text.split(' ').next().and_then(|load| load.parse().ok());
        Self { load: load.unwrap_or_default(), busy: Busy::now() }
    }

    /// Describes the processor, the number of processors and the kernel, and how busy the machine has been: the load
    /// average before the start, and the share of the processors that other programs have taken since.
    pub(super) fn describe(&self) -> Value {
        json!({
            "processor": processor(),
            "processors": processors(),
            "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
            "load": self.load,
            "others": self.others().map(rounded),
        })
    }

    /// Says the same in a line.
    pub(super) fn line(&self) -> String {
        let others =
            self.others().map_or("an unknown share".to_owned(), |others| format!("{:.0} %", others * 100.0));
        format!(
            "{} processors ({}); load {} at the start, other programs took {others} of the processors meanwhile",
            processors(),
            processor(),
            self.load
        )
    }

    fn others(&self) -> Option<f64> {
        let (before, now) = (self.busy.as_ref()?, Busy::now()?);
        let all = now.all.saturating_sub(before.all);
        Some(now.others.saturating_sub(before.others) as f64 / all.max(1) as f64)
    }
}

impl Busy {
    fn now() -> Option<Self> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // The time of guests is part of the time of user programs.
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).filter_map(|field| field.parse().ok()).collect();
        let [_, _, _, idle, waiting, ..] = ticks.as_slice() else { return None };
        let all: u64 = ticks.iter().sum();
        let ticks_a_second = sysconf(SysconfVar::CLK_TCK).ok()??;
        let own: f64 = [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN]
            .into_iter()
            .filter_map(|who| getrusage(who).ok())
            .flat_map(|usage| [usage.user_time(), usage.system_time()])
            .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6)
            .sum();
        let own = own * ticks_a_second as f64;
        let others = all.saturating_sub(idle + waiting) as f64 - own;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ticks, not negative")]
        let others = others.max(0.0) as u64;
        Some(Self { all, others })
    }
}

fn processor() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .and_then(|rest| rest.split_once(": "));
    model.map_or("unknown", |(_, model)| model.trim()).to_owned()
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

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
