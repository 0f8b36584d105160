//! Single system calls.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

/// Turns `-1` into the thread's `errno`.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The time of a clock.
pub(crate) fn time_of(clock: libc::clockid_t) -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live structure, which the kernel fills.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Ok(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0)))
}

/// Sets a socket option whose value is one `int`.
pub(crate) fn set_option(fd: &impl AsRawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` is a live int and `length` is its size.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), length) };
    check(result).map(drop)
}

/// Sets the mark of everything that a socket sends. TCP passes the mark on to accepted connections.
pub(crate) fn set_mark(fd: &impl AsRawFd, mark: u32) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_MARK, mark.cast_signed())
}

/// Ends the association of a datagram socket with one peer and one interface.
pub(crate) fn disconnect(fd: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: a plain C structure, for which all-zero is a valid value.
    let mut none: libc::sockaddr = unsafe { std::mem::zeroed() };
    none.sa_family = libc::AF_UNSPEC as libc::sa_family_t;
    let length = size_of::<libc::sockaddr>() as libc::socklen_t;
    // SAFETY: `none` is a live address of `length` octets, which the kernel only reads.
    check(unsafe { libc::connect(fd.as_raw_fd(), &raw const none, length) }).map(drop)
}

/// Sets a socket option whose value is a structure in `value`.
pub(crate) fn set_option_octets(fd: &impl AsRawFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: `value` is a live slice of `length` octets, which the kernel only reads.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), length) };
    check(result).map(drop)
}

/// Reads a socket option whose value is a structure into the start of `value`.
pub(crate) fn get_option_octets(
    fd: &impl AsRawFd,
    level: i32,
    name: i32,
    value: &mut [u8],
) -> io::Result<()> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: `value` is a live slice and `length` is its length, beyond which nothing is written.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut length) };
    check(result).map(drop)
}

/// Reads the waiting octets of one message into `buffer`. The result includes whether the message ends there.
pub(crate) fn receive_record(fd: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<(usize, bool)> {
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: a plain C structure, for which all-zero is a valid value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    // SAFETY: `header` names one live vector, of a live slice with its length; no name, no control buffer.
    let count = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    Ok((count, header.msg_flags & libc::MSG_EOR != 0))
}

/// An error that the kernel keeps for a socket.
pub(crate) struct SocketError {
    /// The control messages that describe it.
    pub(crate) control: Vec<u8>,
    /// The destination of the packet that caused it, as the kernel lays it out in memory.
    pub(crate) name: Vec<u8>,
    /// The octets of that packet's payload that were read.
    pub(crate) length: usize,
}

/// Reads the next error reported for a socket, and of the payload of the packet that caused it what fits into `payload`;
/// `None` if there is no error.
pub(crate) fn receive_error(fd: &impl AsRawFd, payload: &mut [u8]) -> io::Result<Option<SocketError>> {
    let (mut control, mut name) = ([0_usize; 64], [0_u8; super::sockaddr::MAX]);
    let mut vector = libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() };
    // SAFETY: a plain C structure, for which all-zero is a valid value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = name.len() as libc::socklen_t;
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: `header` names live buffers with their lengths; that of the control messages is aligned.
    let result =
        unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
    let Ok(count) = usize::try_from(result) else {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
    };
    #[allow(clippy::unnecessary_cast)] // a different type with musl
    let length = header.msg_controllen as usize;
    let octets = control.iter().flat_map(|word| word.to_ne_bytes()).take(length);
    let name = name.get(..header.msg_namelen as usize).unwrap_or_default().to_vec();
    Ok(Some(SocketError { control: octets.collect(), name, length: count.min(payload.len()) }))
}

/// Waits until one of `fds` can be read (or is ready for its `events`) or the timeout is over, and sets `revents` of
/// each. `None` waits for ever. A signal ends the wait with no descriptor ready.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().min(1 << 31) as libc::time_t,
        tv_nsec: t.subsec_nanos() as libc::c_long,
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), |t| &raw const *t);
    // SAFETY: `fds` is a live slice of the length given; `timeout` is null or points to a live timespec; no
    // signal mask is given.
    let result =
        unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout, std::ptr::null()) };
    match check(result) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            fds.iter_mut().for_each(|fd| fd.revents = 0);
            Ok(())
        }
        other => other.map(drop),
    }
}

/// A `pollfd` that waits for `events` on `fd`.
pub(crate) fn poll_fd(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

/// Whether a send failed because the buffer was full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Waits for space in the send buffer and subtracts the time from `patience`; false once `patience` is used up.
pub(crate) fn wait_for_room(fd: RawFd, patience: &mut Duration) -> bool {
    const STEP: Duration = Duration::from_millis(1);
    let Some(left) = patience.checked_sub(STEP) else { return false };
    *patience = left;
    // An error of poll itself only shortens the wait.
    let _ = poll(&mut [poll_fd(fd, libc::POLLOUT)], Some(STEP));
    true
}

/// A new non-blocking eventfd.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer; on success the descriptor is new and ours alone.
    unsafe {
        let fd = check(libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// A descriptor that refers to the process `pid` and becomes readable when the process ends.
pub(crate) fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer; on success the descriptor is new and ours alone.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0);
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        Ok(OwnedFd::from_raw_fd(check(fd)?))
    }
}

/// Gives the calling thread the lowest real-time priority (SCHED_RR); its children have an ordinary one.
pub(crate) fn schedule_first() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads one sched_param; thread 0 is the calling one.
    let result = unsafe {
        libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const parameters)
    };
    check(result).map(drop)
}

/// Sends `signal` to the process behind `pidfd`.
pub(crate) fn pidfd_signal(pidfd: &OwnedFd, signal: i32) -> io::Result<()> {
    // SAFETY: the siginfo pointer may be null, then the kernel fills it in.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    check(i32::try_from(result).unwrap_or(-1)).map(drop)
}

/// Lets the process that `command` starts write `0` into a file before it becomes the program. It starts also if it cannot.
pub(crate) fn write_before_start(command: &mut Command, file: File) {
    let write = move || {
        let _ = (&file).write_all(b"0");
        Ok(())
    };
    // SAFETY: between fork and exec the closure calls write(2) only, which is safe there, and takes no memory.
    unsafe { command.pre_exec(write) };
}

/// Fills `octets` with the kernel's randomness.
pub(crate) fn getrandom(octets: &mut [u8]) -> io::Result<()> {
    let mut rest = octets;
    while !rest.is_empty() {
        // SAFETY: `rest` is a live slice of the length given.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => rest = rest.split_at_mut_checked(got).map_or(&mut [], |(_, rest)| rest),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// The version of the running kernel, by its first two numbers, such as 6.12. No file is read for it.
#[must_use]
pub fn kernel_version() -> Option<(u32, u32)> {
    // SAFETY: a plain C structure, for which all-zero is a valid value.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `names` is a live structure, which the kernel fills.
    check(unsafe { libc::uname(&raw mut names) }).ok()?;
    let release: Vec<u8> =
        names.release.iter().map(|letter| *letter as u8).take_while(|octet| *octet != 0).collect();
    version_of(std::str::from_utf8(&release).ok()?)
}

fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers =
        release.split(|letter: char| !letter.is_ascii_digit()).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Octets in a page of memory.
pub(crate) fn page_size() -> u64 {
    // SAFETY: takes no pointer.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// The number of the interface `name` in this thread's network namespace.
pub(crate) fn interface_index(name: &str) -> io::Result<u32> {
    let name = std::ffi::CString::new(name).map_err(io::Error::other)?;
    // SAFETY: `name` is a NUL-terminated string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_two_numbers() {
        for (release, version) in [
            ("6.18.44-fc-v657", Some((6, 18))),
            ("5.10.0-26-amd64", Some((5, 10))),
            ("5.4", Some((5, 4))),
            ("6", None),
            ("six.one", None),
            ("", None),
        ] {
            assert_eq!(version_of(release), version, "{release}");
        }
        assert!(kernel_version().is_some_and(|version| version >= (4, 0)));
    }
}
