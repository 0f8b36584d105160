//! Readiness of many descriptors, a timer as one of them, and the unacknowledged octets of a TCP socket.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::check;

/// A set of watched descriptors, itself a descriptor that is readable while one of them is ready.
pub(crate) struct Epoll(OwnedFd);

/// A readiness event, which [`Epoll::wait`] fills.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Event(libc::epoll_event);

impl Event {
    pub(crate) const EMPTY: Self = Self(libc::epoll_event { events: 0, u64: 0 });

    /// The token with which the descriptor was added, and its readiness flags.
    pub(crate) fn get(&self) -> (u64, u32) {
        (self.0.u64, self.0.events)
    }
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes no pointer; on success the descriptor is new and ours alone.
        unsafe {
            let fd = check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?;
            Ok(Self(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Watches `fd` for `interest`. Closing the descriptor ends the watch.
    pub(crate) fn add(&self, fd: &impl AsRawFd, token: u64, interest: i32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), token, interest)
    }

    /// Changes the interest in `fd`.
    pub(crate) fn modify(&self, fd: &impl AsRawFd, token: u64, interest: i32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd.as_raw_fd(), token, interest)
    }

    fn control(&self, operation: i32, fd: RawFd, token: u64, interest: i32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest.cast_unsigned(), u64: token };
        // SAFETY: `event` is live for the call; the kernel checks the descriptors.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd, &raw mut event) }).map(drop)
    }

    /// The events that are ready now, without waiting.
    pub(crate) fn wait<'a>(&self, events: &'a mut [Event]) -> io::Result<&'a [Event]> {
        let room = i32::try_from(events.len()).unwrap_or(i32::MAX);
        // SAFETY: Event is epoll_event in memory (transparent), and `room` of them are live.
        let result = unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr().cast::<libc::epoll_event>(), room, 0)
        };
        match check(result) {
            Ok(count) => Ok(events.get(..count.unsigned_abs() as usize).unwrap_or(&[])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(&[]),
            Err(error) => Err(error),
        }
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A timer descriptor, which becomes readable after a delay.
pub(crate) struct TimerFd(OwnedFd);

impl TimerFd {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes no pointer; on success the descriptor is new and ours alone.
        unsafe {
            let fd =
                check(libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC))?;
            Ok(Self(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Makes the timer readable after `delay` and not before, whatever its previous setting; `None`: never.
    pub(crate) fn set(&self, delay: Option<Duration>) -> io::Result<()> {
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = delay.map_or(never, |delay| libc::timespec {
            tv_sec: delay.as_secs().min(1 << 31) as libc::time_t,
            // A delay of zero would mean never.
            tv_nsec: delay.subsec_nanos().max(1) as libc::c_long,
        });
        let setting = libc::itimerspec { it_interval: never, it_value: value };
        // SAFETY: `setting` is live for the call; the old setting is not asked for.
        let result =
            unsafe { libc::timerfd_settime(self.0.as_raw_fd(), 0, &raw const setting, std::ptr::null_mut()) };
        check(result).map(drop)
    }
}

impl AsRawFd for TimerFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Octets of a TCP socket that the peer has not acknowledged (SIOCOUTQ). A sent FIN counts as one.
pub(crate) fn unacknowledged(socket: &impl AsRawFd) -> io::Result<usize> {
    let mut octets: libc::c_int = 0;
    // SAFETY: this request writes one int, to `octets`, which is live.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut octets) })?;
    Ok(usize::try_from(octets).unwrap_or(0))
}
