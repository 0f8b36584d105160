//! Ethernet frames as they pass an interface, by AF_PACKET: for captures, and for tests that look at octets.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::netns::Namespace;
use crate::sys::cmsg::Messages;
use crate::sys::mmsg::{BATCH, Buffers};
use crate::sys::{self, packet};

/// The largest frame with segmentation offload, rounded up.
const FRAME: usize = 1 << 16;
const CONTROL: usize = 64;

/// How to capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureConfig {
    /// Also the frames that this end sends, not only those that come in.
    pub outgoing: bool,
    /// Socket receive buffer in octets, as far as the kernel allows.
    pub buffer: usize,
}

impl Default for CaptureConfig {
    fn default() -> Self {
        Self { outgoing: true, buffer: 8 << 20 }
    }
}

/// A frame as captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// When the kernel saw it, since 1970.
    pub timestamp: Duration,
    /// It left by the interface; otherwise it came in.
    pub outgoing: bool,
    /// From the Ethernet header on.
    pub octets: &'a [u8],
}

/// Reads the frames of one interface.
pub struct Capture {
    socket: Socket,
    buffers: Buffers,
    config: CaptureConfig,
}

impl Capture {
    /// Starts to capture at `interface` of `namespace`; frames from this moment on are kept until they are read
    /// or the buffer is full.
    ///
    /// # Errors
    /// CAP_NET_RAW is missing, or there is no such interface.
    pub fn open(namespace: &Namespace, interface: &str, config: CaptureConfig) -> io::Result<Self> {
        namespace.run(|| {
            let index = sys::interface_index(interface)?;
            // Protocol 0: nothing is taken in before the socket is bound to the interface.
            let kind = Type::RAW.nonblocking();
            let socket = Socket::new(Domain::PACKET, kind, Some(Protocol::from(0)))?;
            let octets = i32::try_from(config.buffer).unwrap_or(i32::MAX);
            if sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, octets).is_err() {
                sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, octets)?;
            }
            sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
            packet::promiscuous(&socket, index)?;
            packet::bind(&socket, index)?;
            Ok(Self { socket, buffers: Buffers::new(FRAME, CONTROL), config })
        })?
    }

    /// The descriptor, to watch for readability.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Waits up to `timeout` for frames and hands those that are there to `each`; gives their number. While
    /// the interface is down, or gone, there are none.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn read(&mut self, timeout: Duration, mut each: impl FnMut(Frame<'_>)) -> io::Result<usize> {
        if !timeout.is_zero() {
            sys::poll(&mut [sys::poll_fd(self.fd(), libc::POLLIN)], Some(timeout))?;
        }
        let mut seen = 0;
        loop {
            let count = match self.buffers.receive(&self.socket, 0) {
                // Said once when the interface goes down; when it is up again, frames come again.
                Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => return Ok(seen),
                count => count?,
            };
            for slot in 0..count {
                let Some(datagram) = self.buffers.get(slot) else { continue };
                let outgoing = packet::is_outgoing(datagram.name);
                if outgoing && !self.config.outgoing {
                    continue;
                }
                let timestamp = Messages(datagram.control)
                    .find(|(level, kind, _)| (*level, *kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS))
                    .and_then(|(_, _, data)| packet::timespec(data))
                    .unwrap_or_default();
                each(Frame { timestamp, outgoing, octets: datagram.payload });
                seen += 1;
            }
            if count < BATCH {
                return Ok(seen);
            }
        }
    }

    /// Puts a frame onto the link.
    ///
    /// # Errors
    /// The link is down or the frame too long for it.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.socket.send(frame).map(drop)
    }
}
