//! Busy polling: for a bounded time after traffic the loop looks for more without giving the processor away.
//!
//! A process that sleeps needs some microseconds to wake up, tens of them on a virtual machine. A handshake consists of
//! messages that follow each other closely, so the next one often comes before the time is over.

use std::io;
use std::time::{Duration, Instant};

use crate::sys;

/// When to look, and when to wait.
#[derive(Debug, Default)]
pub(super) struct Busy {
    /// How long to look after traffic; zero: never.
    span: Duration,
    /// When to begin to wait. It is set after traffic only.
    until: Option<Instant>,
}

impl Busy {
    pub(super) const fn new(span: Duration) -> Self {
        Self { span, until: None }
    }

    /// There was traffic now.
    pub(super) fn traffic(&mut self) {
        if !self.span.is_zero() {
            self.until = Some(Instant::now() + self.span);
        }
    }

    /// Waits as [`sys::poll`] does, but looks first until the time after the last traffic is over.
    pub(super) fn poll(&mut self, fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
        let Some(until) = self.until.filter(|_| timeout.is_none_or(|timeout| !timeout.is_zero())) else {
            return sys::poll(fds, timeout);
        };
        let start = Instant::now();
        let end = timeout.map_or(until, |timeout| until.min(start + timeout));
        loop {
            sys::poll(fds, Some(Duration::ZERO))?;
            if fds.iter().any(|fd| fd.revents != 0) {
                return Ok(());
            }
            let now = Instant::now();
            if now >= end {
                self.until = self.until.filter(|until| *until > now);
                return sys::poll(fds, timeout.map(|timeout| timeout.saturating_sub(now - start)));
            }
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn it_sees_what_becomes_ready_and_ends_at_the_timeout() {
        let event = sys::eventfd().unwrap();
        let mut fds = [sys::poll_fd(event.as_raw_fd(), libc::POLLIN)];
        for span in [Duration::ZERO, Duration::from_millis(2), Duration::from_secs(3600)] {
            let mut busy = Busy::new(span);
            busy.traffic();
            let start = Instant::now();
            busy.poll(&mut fds, Some(Duration::from_millis(5))).unwrap();
            assert_eq!(fds[0].revents, 0);
            assert!(start.elapsed() >= Duration::from_millis(5), "{span:?}");
        }
        let mut busy = Busy::new(Duration::from_secs(3600));
        busy.traffic();
        std::thread::scope(|scope| {
            scope.spawn(|| nix::unistd::write(&event, &1_u64.to_ne_bytes()).unwrap());
            busy.poll(&mut fds, None).unwrap();
        });
        assert_eq!(fds[0].revents, libc::POLLIN);
    }
}
