//! The machine of a measurement: what it is, and how busy other programs have kept it meanwhile.

use std::fmt;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::{SysconfVar, sysconf};
use serde::Serialize;

/// Other programs that take more than this share of the processors disturb a measurement. On a quiet machine they take 0 to 4 %.
const DISTURBS: f64 = 0.05;

/// What a measurement is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing speaks against it.
    Clean,
    /// Other programs took much of the processors, or it is not known what they took.
    Disturbed,
    /// A figure is impossible.
    Invalid,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clean => "clean",
            Self::Disturbed => "disturbed",
            Self::Invalid => "invalid",
        })
    }
}

/// The machine, and how busy it has been.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// The name of the processor.
    pub processor: String,
    /// The number of processors.
    pub processors: usize,
    /// Memory in KiB.
    pub memory_kib: Option<u64>,
    /// The release of the kernel.
    pub kernel: String,
    /// The load average of the last minute before the start.
    pub load: f64,
    /// The share of the processors that other programs have taken since.
    pub others: Option<f64>,
}

impl Machine {
    /// Whether other programs disturbed what was measured.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.others.is_some_and(|others| others <= DISTURBS) { Verdict::Clean } else { Verdict::Disturbed }
    }

    /// Says how much of the processors other programs took.
    #[must_use]
    pub fn others(&self) -> String {
        let share =
            self.others.map_or("an unknown share".to_owned(), |others| format!("{:.0} %", others * 100.0));
        format!("other programs took {share} of the processors meanwhile")
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processor, processors, load, .. } = self;
        write!(f, "{processors} processors ({processor}); load {load} at the start, {}", self.others())
    }
}

/// The machine, from the start of a measurement on.
#[derive(Debug)]
pub struct Watch {
    started: Duration,
    load: f64,
    busy: Option<Busy>,
}

/// Processor time since the machine started, in its ticks.
#[derive(Debug)]
struct Busy {
    all: u64,
    /// Without idle time, and without that of this process and of those that it waited for.
    others: u64,
}

impl Watch {
    /// Begins to watch.
    #[must_use]
    pub fn start() -> Self {
        let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = text.split(' ').next().and_then(|load| load.parse().ok());
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started, load: load.unwrap_or_default(), busy: Busy::now() }
    }

    /// Returns when it began, in microseconds since 1970.
    #[must_use]
    pub fn started_unix_us(&self) -> u64 {
        u64::try_from(self.started.as_micros()).unwrap_or(u64::MAX)
    }

    /// Describes the machine from the start until now.
    #[must_use]
    pub fn machine(&self) -> Machine {
        self.machine_with(Duration::ZERO)
    }

    /// The same, where processes of the measurement go on, which have taken this processor time since its start.
    pub(crate) fn machine_with(&self, going_on: Duration) -> Machine {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            processor: processor(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_kib: memory_kib(),
            kernel: kernel.trim().to_owned(),
            load: self.load,
            // No share here is more exact.
            others: self.others(going_on).map(|others| (others * 1000.0).round() / 1000.0),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "ticks are far below 2^52")]
    fn others(&self, going_on: Duration) -> Option<f64> {
        let (before, now) = (self.busy.as_ref()?, Busy::now()?);
        let all = now.all.saturating_sub(before.all);
        let ticks = sysconf(SysconfVar::CLK_TCK).ok()??;
        let others = now.others.saturating_sub(before.others) as f64 - going_on.as_secs_f64() * ticks as f64;
        Some(others.max(0.0) / all.max(1) as f64)
    }
}

impl Busy {
    #[expect(clippy::cast_precision_loss, reason = "ticks and seconds are far below 2^52")]
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

fn memory_kib() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of a child counts as that of another program until it is waited for.
    #[test]
    fn a_process_of_the_measurement_that_goes_on_is_no_other_program() {
        let watch = Watch { started: Duration::ZERO, load: 0.0, busy: Some(Busy { all: 0, others: 0 }) };
        let all = watch.machine_with(Duration::ZERO).others.expect("a share");
        let busy = Busy::now().expect("it can be read");
        let half = Duration::from_secs(busy.others / 2 / 100);
        let rest = watch.machine_with(half).others.expect("a share");
        assert!((0.4..0.6).contains(&(rest / all)), "{rest} of {all}");
        assert_eq!(watch.machine_with(Duration::MAX).others, Some(0.0));
    }

    #[test]
    fn the_share_of_other_programs_decides_whether_a_measurement_is_clean() {
        let machine = Watch::start().machine();
        assert!(machine.processors > 0 && !machine.kernel.is_empty() && machine.memory_kib > Some(0));
        let with = |others| Machine { others, ..machine.clone() };
        assert_eq!(with(Some(0.05)).verdict(), Verdict::Clean);
        assert_eq!(with(Some(0.06)).verdict(), Verdict::Disturbed);
        assert_eq!(with(None).verdict(), Verdict::Disturbed);
        assert!(
            with(Some(0.23)).to_string().ends_with("other programs took 23 % of the processors meanwhile")
        );
    }
}
