//! The daemon's end of the connection with its helper ([`crate::helper`]).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use signalbox_core::Entry;
use socket2::{Domain, SockAddr, Socket, Type};

use super::entry::{self, Opened};
use super::{Io, IoConfig, Judged, udp};
use crate::error::OpenError;
use crate::helper::{CHANNELS, OPEN, READY, REFUSED, RESUME, SOCKETS};
use crate::{intercept, sys};

/// How long the helper may take at the start, and when the daemon runs.
const PATIENCE: Duration = Duration::from_secs(5);
const SHORT_PATIENCE: Duration = Duration::from_millis(200);
/// Longest message of the helper.
const MESSAGE: usize = 2048;

/// The connection.
pub(super) struct Helped {
    path: PathBuf,
    /// `None`: the helper is gone.
    socket: Option<Socket>,
    /// The ends of the channels at which the helper receives packets to send. The next helper gets the same ones.
    far: [Socket; CHANNELS],
}

impl Helped {
    /// Gets the sockets of all entries, and the interception.
    pub(super) fn open(path: &Path, config: &IoConfig) -> Result<(Self, Vec<Opened>), OpenError> {
        let entries = &config.entries;
        let socket = connect(path, PATIENCE).map_err(|error| gone(path, &error))?;
        let system = |error| OpenError::system("the channels to the helper", &error);
        let [a, b, c] = [channel(config), channel(config), channel(config)];
        let ((near_a, a), (near_b, b), (near_c, c)) =
            (a.map_err(system)?, b.map_err(system)?, c.map_err(system)?);
        let (near, far) = ([near_a, near_b, near_c], [a, b, c]);
        let mut opened = Vec::new();
        ask(path, &socket, OPEN, &far, |port, mask, descriptors| {
            let Some(request) = entries.iter().find(|request| request.entry == Entry::Udp(port)) else {
                return Ok(());
            };
            let sockets = udp::Sockets::adopt(mask, descriptors, &near, config).map_err(system)?;
            opened.push(entry::adopt(request, port, sockets));
            Ok(())
        })?;
        if opened.len() != entries.len() {
            return Err(OpenError::new(
                "helper-differs",
                format!("the helper opened {} of {} ports", opened.len(), entries.len()),
                "start the helper with the daemon's configuration file",
            ));
        }
        Ok((Self { path: path.to_owned(), socket: Some(socket), far }, opened))
    }

    /// The descriptor to wait for; -1 for none.
    pub(super) fn fd(&self) -> RawFd {
        self.socket.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Whether the helper has ended since the last call.
    pub(super) fn has_ended(&mut self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let mut fds = [sys::poll_fd(socket.as_raw_fd(), libc::POLLIN)];
        // It sends nothing unasked.
        let ended = sys::poll(&mut fds, Some(Duration::ZERO)).is_ok() && fds[0].revents != 0;
        if ended {
            self.socket = None;
            tracing::warn!(
                helper = %self.path.display(),
                "the helper has ended: passing packets are forwarded, not intercepted, until it runs again"
            );
        }
        ended
    }

    /// Connects again, if the helper was gone.
    pub(super) fn restore(&mut self) -> Result<(), OpenError> {
        if self.socket.is_some() {
            return Ok(());
        }
        let path = &self.path;
        let socket = connect(path, SHORT_PATIENCE).map_err(|error| gone(path, &error))?;
        // What waits there since the last helper ended is too old to be sent.
        for far in &self.far {
            while sys::receive_record(far, &mut [0; 1]).is_ok() {}
        }
        ask(path, &socket, RESUME, &self.far, |_, _, _| Ok(()))?;
        tracing::info!(helper = %path.display(), "the helper is back");
        self.socket = Some(socket);
        Ok(())
    }
}

impl Io {
    /// What the kernel shows of the helper's interception: whether marked packets are led to this node. The helper puts its rules
    /// where they belong, also those that `src_valid_mark` demands, past which packets of an interface alone are led here.
    pub(super) fn judge_helped(&mut self) -> Result<Option<Judged>, OpenError> {
        if !intercept::is_wanted(&self.config) {
            return Ok(None);
        }
        let mut judged = Judged::default();
        if self.helped.as_ref().is_some_and(|helped| helped.socket.is_none()) {
            judged.faults.push("the helper has ended: passing packets are not intercepted".to_owned());
            return Ok(Some(judged));
        }
        for (ipv6, on) in [(false, self.config.ipv4), (true, self.config.ipv6)] {
            if on {
                judged.faults.extend(self.leads_elsewhere(ipv6, true)?);
            }
        }
        Ok(Some(judged))
    }
}

fn connect(path: &Path, patience: Duration) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None)?;
    socket.set_read_timeout(Some(patience))?;
    // A helper that does not accept has a queue that may be full: then this waits to connect.
    socket.set_write_timeout(Some(patience))?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket)
}

/// Both ends of a channel for packets.
fn channel(config: &IoConfig) -> io::Result<(Socket, Socket)> {
    let (near, far) = Socket::pair(Domain::UNIX, Type::SEQPACKET.nonblocking(), None)?;
    udp::buffer(&near, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, config.send_buffer);
    Ok((near, far))
}

fn gone(path: &Path, error: &io::Error) -> OpenError {
    OpenError::new(
        "no-helper",
        format!("no helper answers at {} ({error})", path.display()),
        "start it as root: signalboxd --helper --config FILE",
    )
}

/// Sends a request and takes the answers until the last one.
fn ask(
    path: &Path,
    socket: &Socket,
    request: u8,
    channels: &[Socket; CHANNELS],
    mut each: impl FnMut(u16, u8, Vec<OwnedFd>) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    let channels = channels.each_ref().map(AsRawFd::as_raw_fd);
    sys::send_rights(socket, &[request], &channels).map_err(|error| gone(path, &error))?;
    let mut message = [0; MESSAGE];
    loop {
        let (length, descriptors) =
            sys::receive_rights(socket, &mut message).map_err(|error| gone(path, &error))?;
        match message.get(..length) {
            Some([SOCKETS, high, low, mask]) => {
                each(u16::from_be_bytes([*high, *low]), *mask, descriptors)?;
            }
            Some([READY]) => return Ok(()),
            Some([REFUSED, reason @ ..]) => {
                let reason = String::from_utf8_lossy(reason).into_owned();
                return Err(OpenError::new("helper-refused", reason, "see the log of the helper"));
            }
            _ => return Err(gone(path, &io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// The wait for a helper that does not answer ends after the time limit.
    #[test]
    fn a_helper_that_does_not_accept_is_given_up() {
        let path = std::env::temp_dir().join(format!("sbxt-helped-{}", std::process::id()));
        let listener = Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        listener.listen(0).unwrap();
        let begin = Instant::now();
        let waiting: Vec<_> = (0..4).map(|_| connect(&path, Duration::from_millis(20))).collect();
        assert!(waiting.iter().any(Result::is_err) && begin.elapsed() < Duration::from_secs(20));
        std::fs::remove_file(&path).unwrap();
    }
}
