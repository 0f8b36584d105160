//! Processes identified by number and start time, so that a reused number is never taken for the old process.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use std::{fs, io};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{SysconfVar, sysconf};

use crate::sys;

/// The identity of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The process number.
    pub pid: u32,
    /// The start time, in clock ticks since boot (field 22 of /proc/PID/stat).
    pub start: u64,
}

impl Identity {
    /// The process that has the number `pid` now.
    ///
    /// # Errors
    /// There is no such process, or it has ended and only waits for its parent.
    pub fn of(pid: u32) -> io::Result<Self> {
        Self::with_parent(pid).map(|(process, _)| process)
    }

    /// The same, with the number of its parent.
    fn with_parent(pid: u32) -> io::Result<(Self, u32)> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The second field is the name in parentheses and may hold any character.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let mut fields = fields.split_whitespace();
        let state = fields.next().unwrap_or("");
        let parent = fields.next().and_then(|parent| parent.parse().ok());
        let start = fields.nth(17).and_then(|start| start.parse().ok());
        match start.zip(parent) {
            Some((start, parent)) if !["Z", "X"].contains(&state) => Ok((Self { pid, start }, parent)),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Whether the process still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).is_ok_and(|now| now == *self)
    }

    /// Requests the process to end (SIGTERM), waits up to `grace`, and ends it (SIGKILL) if it still runs. It is no
    /// error if the process has ended already.
    ///
    /// # Errors
    /// The process belongs to another user.
    pub fn terminate(&self, grace: Duration) -> io::Result<()> {
        let pidfd = match sys::pidfd_open(self.pid) {
            Ok(pidfd) => pidfd,
            // ENOENT and, before Linux 6.9, EINVAL: the number is that of a thread by now, so that the process has ended.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT | libc::EINVAL)) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        // The descriptor refers to one process for ever, so this check holds for what follows.
        if !self.is_alive() {
            return Ok(());
        }
        for (signal, patience) in [(libc::SIGTERM, grace), (libc::SIGKILL, Duration::from_secs(5))] {
            match sys::pidfd_signal(&pidfd, signal) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                other => other?,
            }
            let deadline = Instant::now() + patience;
            loop {
                let mut fds = [sys::poll_fd(pidfd.as_raw_fd(), libc::POLLIN)];
                let left = deadline.saturating_duration_since(Instant::now());
                sys::poll(&mut fds, Some(left))?;
                if fds[0].revents != 0 {
                    return Ok(());
                }
                if left.is_zero() {
                    break;
                }
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// The resources that a process has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in user and kernel mode, in steps of some 10 ms.
    pub cpu: Duration,
    /// Resident memory, in octets.
    pub memory: u64,
}

impl Usage {
    /// The resources that a process has used until now.
    ///
    /// # Errors
    /// The process has ended.
    pub fn of(process: &Identity) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid))?;
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        // Field 3 of proc(5) is the first field here.
        let field = |number: usize| {
            let text = fields.split_whitespace().nth(number - 3);
            text.and_then(|text| text.parse::<u64>().ok()).ok_or(io::ErrorKind::InvalidData)
        };
        let unit = |variable: SysconfVar| {
            let value = sysconf(variable)?.and_then(|value| u64::try_from(value).ok());
            value.filter(|value| *value > 0).ok_or(io::Error::from(io::ErrorKind::Unsupported))
        };
        if field(22)? != process.start {
            return Err(io::ErrorKind::NotFound.into());
        }
        let ticks = field(14)?.saturating_add(field(15)?);
        let cpu = Duration::from_micros(ticks.saturating_mul(1_000_000) / unit(SysconfVar::CLK_TCK)?);
        Ok(Self { cpu, memory: field(24)?.saturating_mul(unit(SysconfVar::PAGE_SIZE)?) })
    }
}

/// How the threads of a process got a processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// The time in which threads could run, and waited for a processor.
    pub waiting: Duration,
    /// How often a thread gave up its processor, because it had to wait for something.
    pub voluntary: u64,
    /// How often a thread had to leave its processor to another one.
    pub involuntary: u64,
}

impl Scheduling {
    /// What all threads that a process has now have seen since they were started. The time of waiting is zero where the kernel counts
    /// none (`CONFIG_SCHED_INFO`).
    ///
    /// # Errors
    /// The process has ended.
    pub fn of(process: &Identity) -> io::Result<Self> {
        let mut all = Self::default();
        for thread in fs::read_dir(format!("/proc/{}/task", process.pid))? {
            let place = thread?.path();
            // A thread may end meanwhile.
            let Ok(status) = fs::read_to_string(place.join("status")) else { continue };
            let switches = |name: &str| {
                let value = status.lines().find_map(|line| line.strip_prefix(name));
                value.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
            };
            all.voluntary += switches("voluntary_ctxt_switches:");
            all.involuntary += switches("nonvoluntary_ctxt_switches:");
            let counted = fs::read_to_string(place.join("schedstat")).unwrap_or_default();
            let waiting = counted.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
            all.waiting += Duration::from_nanos(waiting);
        }
        if process.is_alive() { Ok(all) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

/// Raises the limit of open files of this process to what the system allows it. Returns the limit that is in force.
///
/// # Errors
/// The system refuses the call.
pub fn raise_file_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

/// Raises the limit of locked memory of this process to so many octets, as far as the system allows it: a privileged process raises what it
/// may have at most, too. A higher limit stays. Returns the limit that is in force.
///
/// # Errors
/// The system refuses the call.
pub fn raise_locked_memory(octets: u64) -> io::Result<u64> {
    const KIND: Resource = Resource::RLIMIT_MEMLOCK;
    let (soft, hard) = getrlimit(KIND)?;
    if soft >= octets {
        return Ok(soft);
    }
    if setrlimit(KIND, octets, hard.max(octets)).is_ok() {
        return Ok(octets);
    }
    if soft < hard {
        setrlimit(KIND, hard, hard)?;
    }
    Ok(hard)
}

/// Lets the calling thread run before those of ordinary programs, for the rest of its life. It is for threads that send by a clock or
/// note when something arrives, and need little of a processor.
///
/// # Errors
/// This process may not do so.
pub fn run_first() -> io::Result<()> {
    sys::schedule_first()
}

/// All processes, in the order of their numbers.
///
/// # Errors
/// /proc is not mounted.
pub fn all() -> io::Result<Vec<Identity>> {
    let mut processes: Vec<_> = with_parents()?.into_iter().map(|(process, _)| process).collect();
    processes.sort_by_key(|process| process.pid);
    Ok(processes)
}

/// All processes, each with the number of its parent.
pub(crate) fn with_parents() -> io::Result<Vec<(Identity, u32)>> {
    let numbers = fs::read_dir("/proc")?.flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.filter_map(|pid| Identity::with_parent(pid).ok()).collect())
}

/// Whether this process ignores a signal, as what `nohup` starts ignores SIGHUP.
///
/// # Errors
/// /proc is not mounted.
pub fn ignores(signal: i32) -> io::Result<bool> {
    let status = fs::read_to_string("/proc/self/status")?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let bit = u32::try_from(signal - 1).ok().and_then(|bit| 1_u64.checked_shl(bit)).unwrap_or(0);
    Ok(mask & bit != 0)
}

/// Whether the group of this process has the terminal, which then sends its signals (Ctrl-C) to each process of the group.
///
/// # Errors
/// /proc is not mounted.
pub fn has_terminal() -> io::Result<bool> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    // Fields 5 and 8 of proc(5): its group, and that of the terminal; -1 without one. Field 3 is the first here.
    let mut fields = fields.split_whitespace().skip(2);
    Ok(fields.next().is_some_and(|own| fields.nth(2) == Some(own)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn work_shows_in_what_a_process_has_taken() {
        let own = Identity::of(std::process::id()).unwrap();
        let before = Usage::of(&own).unwrap();
        let mut number = 1_u64;
        while Usage::of(&own).unwrap().cpu <= before.cpu {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
        assert!(before.memory > 100_000);
        assert!(Usage::of(&Identity { start: own.start + 1, ..own }).is_err());
    }

    /// A limit that is too low is raised, and one that is high enough stays.
    #[test]
    fn the_limit_of_locked_memory_is_raised_as_far_as_the_system_allows() {
        let (former, hard) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap();
        let low = hard.min(4096);
        setrlimit(Resource::RLIMIT_MEMLOCK, low, hard).unwrap();
        let limits = || getrlimit(Resource::RLIMIT_MEMLOCK).unwrap();
        let middle = hard.min(8192);
        assert_eq!((raise_locked_memory(middle).unwrap(), limits()), (middle, (middle, hard)));
        assert_eq!((raise_locked_memory(low).unwrap(), limits()), (middle, (middle, hard)));
        // Only a privileged process gets more than it may have at most.
        let most = hard.saturating_add(4096);
        let raised = raise_locked_memory(most).unwrap();
        assert!([hard, most].contains(&raised) && limits() == (raised, raised), "{raised} {:?}", limits());
        setrlimit(Resource::RLIMIT_MEMLOCK, former, hard).unwrap();
    }

    #[test]
    fn a_process_is_ended_and_another_start_is_not_it() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap();
        assert!(identity.is_alive());
        let other = Identity { start: identity.start + 1, ..identity };
        other.terminate(Duration::ZERO).unwrap();
        assert!(identity.is_alive());
        identity.terminate(Duration::from_secs(5)).unwrap();
        assert!(!child.wait().unwrap().success());
        identity.terminate(Duration::ZERO).unwrap();
    }
}
