//! A process beside this one that releases what waits in queues of netfilter for too long.
//!
//! Only another process can do it: a process that is stopped, or whose loop hangs, sends no verdicts, and the kernel has no time
//! limit for them. It shares the sockets of the queues, because the kernel takes verdicts from the socket that opened the queue.
//! It reads no packet, keeps only CAP_NET_ADMIN, and makes four system calls.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, RawFd};

use capctl::{Cap, CapSet, CapState};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

use super::{check, poll_fd};

/// How often it looks.
const TICK_MS: i64 = 240;
/// What was in a queue so many looks ago, and is there still, waits for too long. With the look before which it came in, four
/// times [`TICK_MS`] is less than a second by so much as the looks themselves may take.
const LOOKS: usize = 3;
/// The kernel's list of queues: number, port of the socket, packets that wait, ..., number of the last packet, 1.
const LIST: &str = "/proc/thread-self/net/netfilter/nfnetlink_queue";
const WAITING: usize = 2;
const LAST: usize = 7;
/// Octets that are read of the list: more than a thousand queues.
const LIST_OCTETS: usize = 1 << 16;
/// Most queues.
const MOST: usize = 2;

/// A queue of netfilter: its socket, and its number.
pub(crate) type Queue = (RawFd, u16);

/// What the process works with.
struct Task<'a> {
    queues: &'a [Queue],
    list: File,
    /// It is at its end when the process that began this one has ended.
    life: PipeReader,
    program: BpfProgram,
}

/// Starts the process. It ends when the result is closed, also by the end of this process. `release` composes the message
/// that accepts all packets of a queue up to a number.
pub(crate) fn start(queues: &[Queue], release: fn(u16, u32) -> [u8; 32]) -> io::Result<PipeWriter> {
    let (life, alive) = io::pipe()?;
    let task = Task {
        queues: queues.get(..MOST).unwrap_or(queues),
        list: File::open(LIST)?,
        life,
        program: program().map_err(io::Error::other)?,
    };
    // SAFETY: the child only calls functions that signal-safety(7) allows, and system calls, until it ends.
    match unsafe { fork() }? {
        // The process in between ends at once: nothing has to wait for the end of the other one.
        ForkResult::Parent { child } => waitpid(child, None).map(drop)?,
        ForkResult::Child => {
            // First of all: a socket that another thread closes is open as long as a copy of it is.
            if close_others(&task).is_err() {
                exit(1);
            }
            // SAFETY: as above.
            match unsafe { fork() } {
                Ok(ForkResult::Child) => watch(&task, release),
                Ok(ForkResult::Parent { .. }) => exit(0),
                Err(_) => exit(1),
            }
        }
    }
    Ok(alive)
}

/// The calls that the process makes.
fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let calls = [libc::SYS_ppoll, libc::SYS_pread64, libc::SYS_sendto, libc::SYS_exit_group];
    let rules: BTreeMap<i64, _> = calls.into_iter().map(|call| (call, Vec::new())).collect();
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, architecture)?.try_into()
}

fn exit(status: i32) -> ! {
    // SAFETY: takes no pointer. It runs nothing that the other process has registered for its own end.
    unsafe { libc::_exit(status) }
}

/// The whole life of the process.
fn watch(task: &Task<'_>, release: fn(u16, u32) -> [u8; 32]) -> ! {
    if confine(task).is_ok() {
        look(task, release);
    }
    exit(0)
}

/// Gives up what the other process may do.
fn confine(task: &Task<'_>) -> io::Result<()> {
    // SAFETY: `signals` is a live set, which the first call fills. Signals to the group of processes are for the daemon, whose end
    // ends this process.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        check(libc::sigfillset(&raw mut signals))?;
        check(libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut()))?;
        check(libc::prctl(libc::PR_SET_NAME, c"signalbox-watch".as_ptr()))?;
    }
    let mut admin = CapSet::empty();
    admin.set_state(Cap::NET_ADMIN, true);
    let state = CapState { effective: admin, permitted: admin, inheritable: CapSet::empty() };
    state.set_current()?;
    apply_filter(&task.program).map_err(|_| io::ErrorKind::PermissionDenied.into())
}

/// Closes all descriptors that the task does not need.
fn close_others(task: &Task<'_>) -> io::Result<()> {
    let mut kept = [RawFd::MAX; MOST + 2];
    let descriptors = task.queues.iter().map(|(fd, _)| *fd);
    let descriptors = descriptors.chain([task.list.as_raw_fd(), task.life.as_raw_fd()]);
    kept.iter_mut().zip(descriptors).for_each(|(place, fd)| *place = fd);
    kept.sort_unstable();
    let mut from = 0;
    for fd in kept {
        if fd > from {
            close(from, fd - 1)?;
        }
        if fd == RawFd::MAX {
            break;
        }
        from = fd + 1;
    }
    if kept.contains(&RawFd::MAX) { Ok(()) } else { close(from, RawFd::MAX) }
}

/// Closes the descriptors of a range.
fn close(from: RawFd, to: RawFd) -> io::Result<()> {
    // SAFETY: takes no pointer. Nothing in this process uses the descriptors.
    let result = unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
    check(i32::try_from(result).unwrap_or(-1)).map(drop)
}

/// What one queue had at the last looks: the number of the last packet that had come in, the oldest look first.
#[derive(Debug, Clone, Copy, Default)]
struct Looks([Option<u32>; LOOKS]);

impl Looks {
    /// One more look, at which so many packets wait and the last one has this number. Gives the number up to which packets wait
    /// for too long.
    fn look(&mut self, waiting: u32, last: u32) -> Option<u32> {
        let old = self.0[0].filter(|old| waiting > last.wrapping_sub(*old));
        self.0.rotate_left(1);
        self.0[LOOKS - 1] = Some(last);
        old
    }
}

/// Looks at the queues until the other process has ended.
fn look(task: &Task<'_>, release: fn(u16, u32) -> [u8; 32]) {
    let mut text = [0; LIST_OCTETS];
    let mut looks = [Looks::default(); MOST];
    let tick = libc::timespec { tv_sec: 0, tv_nsec: TICK_MS as libc::c_long * 1_000_000 };
    loop {
        let mut life = [poll_fd(task.life.as_raw_fd(), libc::POLLIN)];
        // SAFETY: one live descriptor, a live time, and no mask.
        let ended = unsafe { libc::ppoll(life.as_mut_ptr(), 1, &raw const tick, std::ptr::null()) };
        if ended > 0 || ended < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
        let text = read(&task.list, &mut text);
        for ((fd, number), looks) in task.queues.iter().zip(&mut looks) {
            let Some((waiting, last)) = find(text, *number) else { continue };
            if let Some(old) = looks.look(waiting, last) {
                let message = release(*number, old);
                // SAFETY: `message` is a live slice of the length given. An error shows that nothing waits any more.
                unsafe { libc::send(*fd, message.as_ptr().cast(), message.len(), libc::MSG_DONTWAIT) };
            }
        }
    }
}

/// Reads the list from its beginning.
fn read<'a>(list: &File, text: &'a mut [u8]) -> &'a [u8] {
    let mut length = 0;
    while let Some(rest) = text.get_mut(length..).filter(|rest| !rest.is_empty()) {
        let offset = libc::off_t::try_from(length).unwrap_or(0);
        // SAFETY: `rest` is a live slice of the length given.
        let got = unsafe { libc::pread(list.as_raw_fd(), rest.as_mut_ptr().cast(), rest.len(), offset) };
        match usize::try_from(got) {
            Ok(got) if got > 0 => length += got,
            _ => break,
        }
    }
    text.get(..length).unwrap_or(&[])
}

/// The packets that wait in a queue, and the number of the last one that came into it.
fn find(list: &[u8], number: u16) -> Option<(u32, u32)> {
    list.split(|octet| *octet == b'\n').find_map(|line| {
        let mut fields = line.split(|octet| *octet == b' ').filter(|field| !field.is_empty()).map(decimal);
        let found = fields.next()?? == u32::from(number);
        let waiting = fields.nth(WAITING - 1)??;
        let last = fields.nth(LAST - WAITING - 1)??;
        found.then_some((waiting, last))
    })
}

fn decimal(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0_u32, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A daemon that hangs: whenever a packet comes in, also among others and where the numbers begin again, it is released within a
    /// second, and not before it has waited for half a second.
    #[test]
    fn what_waits_is_released_within_a_second() {
        /// Milliseconds that one look takes at most, beside the wait for it.
        const LOOK_MS: i64 = 9;
        let tick = TICK_MS + LOOK_MS;
        for (before, first) in [(0, 1), (3, 4711), (40, u32::MAX - 5)] {
            // The packet comes in at each moment between two looks, some looks after the start.
            for came in (0..6 * tick).step_by(7) {
                let number = u32::wrapping_add(first, before);
                // Of the packets before it none waits; others come in behind it, one with each look.
                let state = |now: i64| {
                    let behind = u32::try_from((now - came).max(0) / tick).unwrap();
                    if now < came {
                        (0, number.wrapping_sub(1))
                    } else {
                        (1 + behind, number.wrapping_add(behind))
                    }
                };
                let mut looks = Looks::default();
                let released = (1..).map(|look| look * tick).find_map(|now| {
                    let (waiting, last) = state(now);
                    let up_to = looks.look(waiting, last)?;
                    // A number from the packet's on, or from half of all behind it.
                    (up_to.wrapping_sub(number) < u32::MAX / 2).then_some(now)
                });
                let waited = released.unwrap() - came;
                assert!((500..=1000).contains(&waited), "came at {came}, waited for {waited} ms");
            }
        }
    }

    /// A daemon that works leaves nothing in the queue from one look to the next but one, and nothing is released in its place.
    #[test]
    fn what_a_working_daemon_has_is_left_to_it() {
        let mut looks = Looks::default();
        for turn in 0..100_u32 {
            // A hundred packets came since the last look, of which the last thirty wait.
            assert_eq!(looks.look(30, turn * 100), None);
        }
    }

    #[test]
    fn a_line_of_the_list_has_what_waits_and_the_last_number() {
        let list = b"18193   4242     3 2 65535     0     0     4711  1\n    7 -4242     0 2 65535     0     0        0  1\n";
        assert_eq!(find(list, 18_193), Some((3, 4711)));
        assert_eq!(find(list, 8193), None);
        assert_eq!(find(b"18193 1 2", 18_193), None);
        assert_eq!(find(b"", 1), None);
    }
}
