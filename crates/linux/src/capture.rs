//! Capture of Ethernet frames at an interface by AF_PACKET, for recordings and for tests that examine octets.

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

/// Options of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureConfig {
    /// Whether to capture frames that this end sends, too, and not only those that come in.
    pub outgoing: bool,
    /// Socket receive buffer in octets, as far as the kernel allows.
    pub buffer: usize,
}

impl Default for CaptureConfig {
    fn default() -> Self {
        Self { outgoing: true, buffer: 8 << 20 }
    }
}

/// A captured frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Time at which the kernel saw the frame, since 1970.
    pub timestamp: Duration,
    /// Whether the frame left by the interface; otherwise it came in.
    pub outgoing: bool,
    /// The octets of the frame, from the Ethernet header on.
    pub octets: &'a [u8],
}

/// A reader of the frames of one interface.
pub struct Capture {
    socket: Socket,
    buffers: Buffers,
    config: CaptureConfig,
}

impl Capture {
    /// Starts to capture at `interface` of `namespace`. Frames from this moment on are kept until they are read or the
    /// buffer is full.
    ///
    /// # Errors
    /// CAP_NET_RAW is missing, or there is no such interface.
    pub fn open(namespace: &Namespace, interface: &str, config: CaptureConfig) -> io::Result<Self> {
        namespace.run(|| {
            let index = sys::interface_index(interface)?;
            // Protocol 0: the socket receives nothing before it is bound to the interface.
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

    /// The descriptor to watch for readability.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Waits up to `timeout` for frames, calls `each` with every frame that is there, and returns their number. The
    /// number is 0 while the interface is down or removed.
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
                // The kernel reports this once when the interface goes down. When it is up again, frames arrive again.
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

    /// Sends a frame onto the link.
    ///
    /// # Errors
    /// The link is down or the frame too long for it.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.socket.send(frame).map(drop)
    }
}
