//! The daemon's end of the connection with its helper ([`crate::helper`]).

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use signalbox_core::{Entry, EntryRequest};
use socket2::{Domain, SockAddr, Socket, Type};

use super::entry::{self, Opened};
use super::udp;
use crate::error::OpenError;
use crate::helper::{OPEN, READY, REFUSED, RESUME, SOCKETS};
use crate::sys;

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
}

impl Helped {
    /// Gets the sockets of all entries, and the interception.
    pub(super) fn open(path: &Path, entries: &[EntryRequest]) -> Result<(Self, Vec<Opened>), OpenError> {
        let socket = connect(path, PATIENCE).map_err(|error| gone(path, &error))?;
        let mut opened = Vec::new();
        ask(path, &socket, OPEN, |port, sockets| {
            let request = entries.iter().find(|request| request.entry == Entry::Udp(port));
            opened.extend(request.map(|request| entry::adopt(request, port, sockets)));
        })?;
        if opened.len() != entries.len() {
            return Err(OpenError::new(
                "helper-differs",
                format!("the helper opened {} of {} ports", opened.len(), entries.len()),
                "start the helper with the daemon's configuration file",
            ));
        }
        Ok((Self { path: path.to_owned(), socket: Some(socket) }, opened))
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
        ask(path, &socket, RESUME, |_, _| ())?;
        tracing::info!(helper = %path.display(), "the helper is back");
        self.socket = Some(socket);
        Ok(())
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
    mut each: impl FnMut(u16, udp::Sockets),
) -> Result<(), OpenError> {
    sys::send_rights(socket, &[request], &[]).map_err(|error| gone(path, &error))?;
    let mut message = [0; MESSAGE];
    loop {
        let (length, descriptors) =
            sys::receive_rights(socket, &mut message).map_err(|error| gone(path, &error))?;
        match message.get(..length) {
            Some([SOCKETS, high, low, mask]) => {
                each(u16::from_be_bytes([*high, *low]), udp::Sockets::adopt(*mask, descriptors));
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
