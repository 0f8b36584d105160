//! One connection and its state.

use std::io::{self, Read as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Instant;

use signalbox_core::node::{StreamError, StreamKind};

use super::messages::Messages;
use super::outgoing::{Octets, Outgoing};
use super::sctp;
use super::socket::{is_unacknowledged, stream_error};
use crate::sys::receive_record;

/// Most octets that one read of a TCP connection returns.
const SHARE: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Connecting,
    /// This node has closed the connection before it is up. Octets wait for it.
    ConnectingToClose,
    Open,
    /// A write failed. The octets that are left to read come first.
    Broken(StreamError),
    /// This node has closed the connection: once the queue is empty it sends the end to the peer.
    Closing,
    /// The FIN is sent, and the peer's end is waited for.
    Shut,
}

impl Phase {
    /// Whether the connection is not up yet.
    pub(super) const fn is_connecting(self) -> bool {
        matches!(self, Self::Connecting | Self::ConnectingToClose)
    }

    /// Whether this node has closed the connection. It has no events then.
    pub(super) const fn is_closed_here(self) -> bool {
        matches!(self, Self::ConnectingToClose | Self::Closing | Self::Shut)
    }

    /// The error of a failed write.
    const fn failure(self) -> Option<StreamError> {
        match self {
            Self::Broken(error) => Some(error),
            Self::Connecting | Self::ConnectingToClose | Self::Open | Self::Closing | Self::Shut => None,
        }
    }
}

pub(super) struct Connection {
    /// The kernel's stream socket, of TCP or SCTP.
    socket: TcpStream,
    pub(super) phase: Phase,
    pub(super) reading: bool,
    pub(super) out: Outgoing,
    /// Whether the kernel left a rest at the last flush.
    pub(super) held: bool,
    /// Octets passed to the kernel since the last report of how many wait.
    pub(super) passed: usize,
    /// Whether the connection is in the list of those to be flushed.
    pub(super) written: bool,
    /// The readiness that the kernel reports at present.
    interest: i32,
    pub(super) deadline: Option<Instant>,
    /// The beginning of an incomplete SCTP message.
    begun: Vec<u8>,
    /// The peer's address, if the connection was accepted.
    pub(super) source: Option<IpAddr>,
}

/// The result of a read.
pub(super) enum Read {
    Octets(usize),
    Nothing,
    /// The end of the connection; `None`: the peer ended it orderly.
    End(Option<StreamError>),
}

impl Connection {
    pub(super) fn new(socket: TcpStream, kind: StreamKind, source: Option<IpAddr>) -> Self {
        let out = match kind {
            StreamKind::Tcp => Outgoing::Octets(Octets::default()),
            StreamKind::Sctp => Outgoing::Messages(Messages::default()),
        };
        let interest = if source.is_some() { libc::EPOLLIN } else { libc::EPOLLOUT };
        Self {
            socket,
            phase: Phase::Connecting,
            reading: true,
            out,
            held: false,
            passed: 0,
            written: false,
            interest,
            deadline: None,
            begun: Vec::new(),
            source,
        }
    }

    pub(super) const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(super) const fn interest(&self) -> i32 {
        self.interest
    }

    /// The readiness that the kernel must report, if it differs from the present setting.
    pub(super) fn new_interest(&mut self) -> Option<i32> {
        let read = if self.reads() { libc::EPOLLIN } else { 0 };
        let wanted = match self.phase {
            Phase::Connecting | Phase::ConnectingToClose => libc::EPOLLOUT,
            Phase::Broken(_) => read,
            Phase::Open | Phase::Closing | Phase::Shut => read | if self.held { libc::EPOLLOUT } else { 0 },
        };
        (std::mem::replace(&mut self.interest, wanted) != wanted).then_some(wanted)
    }

    const fn is_sctp(&self) -> bool {
        matches!(self.out, Outgoing::Messages(_))
    }

    /// Whether octets are read: those that come after this node has closed the connection are dropped.
    const fn reads(&self) -> bool {
        self.reading || self.phase.is_closed_here()
    }

    /// Whether a write can succeed.
    pub(super) const fn is_writable(&self) -> bool {
        matches!(self.phase, Phase::Connecting | Phase::Open)
    }

    pub(super) const fn is_broken(&self) -> bool {
        matches!(self.phase, Phase::Broken(_))
    }

    /// Whether written octets may not have reached the peer.
    pub(super) fn is_unacknowledged(&self) -> bool {
        let shut = self.phase == Phase::Shut;
        let sent = match &self.out {
            Outgoing::Octets(_) => is_unacknowledged(&self.socket, shut),
            // The kernel has no state of an association that is gone.
            Outgoing::Messages(messages) => {
                sctp::is_unacknowledged(&self.socket).unwrap_or(messages.began && !shut)
            }
        };
        (sent && !self.phase.is_connecting()) || !self.out.is_empty()
    }

    /// The result of connecting: our address once the connection is up, `None` while it is under way.
    pub(super) fn outcome(&self) -> io::Result<Option<SocketAddr>> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        match self.socket.peer_addr() {
            Ok(_) => self.socket.local_addr().map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Marks the connection as up.
    pub(super) fn opened(&mut self) -> io::Result<()> {
        self.phase = if self.phase.is_closed_here() { Phase::Closing } else { Phase::Open };
        if let Outgoing::Messages(messages) = &mut self.out {
            messages.set_streams(sctp::streams(&self.socket)?);
        }
        Ok(())
    }

    /// Passes octets to the kernel until it accepts no more, and sends the end once all octets are gone.
    pub(super) fn hand_on(&mut self) -> io::Result<()> {
        self.out.write_to(&mut self.socket)?;
        if self.phase == Phase::Closing && self.out.is_empty() {
            self.socket.shutdown(Shutdown::Write)?;
            self.phase = Phase::Shut;
        }
        Ok(())
    }

    /// Reads once, if the connection is ready for it and reading is on.
    pub(super) fn read(&mut self, flags: i32, buffer: &mut [u8]) -> Read {
        let failure = self.phase.failure();
        if !self.reads() {
            if flags & (libc::EPOLLERR | libc::EPOLLHUP) == 0 {
                return Read::Nothing;
            }
            let error = self.socket.take_error().ok().flatten();
            let error = error.map_or(StreamError::Reset, |error| stream_error(&error));
            return Read::End(Some(failure.unwrap_or(error)));
        }
        if flags & (libc::EPOLLIN | libc::EPOLLERR | libc::EPOLLHUP) == 0 {
            return Read::Nothing;
        }
        match self.read_socket(buffer) {
            Ok(0) => Read::End(failure),
            Ok(count) => Read::Octets(count),
            Err(error) => match error.kind() {
                // A TCP connection reports its end itself.
                io::ErrorKind::WouldBlock if failure.is_some() && self.is_sctp() => Read::End(failure),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Read::Nothing,
                _ => Read::End(Some(failure.unwrap_or(stream_error(&error)))),
            },
        }
    }

    fn read_socket(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Outgoing::Octets(_) = self.out {
            let share = buffer.len().min(SHARE);
            return self.socket.read(&mut buffer[..share]);
        }
        let (count, whole) = receive_record(&self.socket, buffer)?;
        let piece = buffer.get(..count).unwrap_or_default();
        if whole && self.begun.is_empty() || count == 0 {
            return Ok(count);
        }
        if self.begun.len() + count > buffer.len() {
            return Err(io::ErrorKind::ConnectionReset.into()); // no message of ours is that long
        }
        self.begun.extend_from_slice(piece);
        if !whole {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let message = std::mem::take(&mut self.begun);
        buffer.get_mut(..message.len()).unwrap_or_default().copy_from_slice(&message);
        Ok(message.len())
    }
}
