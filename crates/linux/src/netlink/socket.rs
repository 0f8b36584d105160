//! The socket of a batch or of a connection.

use std::io;

use crate::sys;

const SOL_NETLINK: i32 = 270;
/// Socket option: answers to refused requests do not repeat the request.
const NETLINK_CAP_ACK: i32 = 10;

/// A netlink socket that is connected to the kernel, in this thread's network namespace. Tests can set another kernel in its
/// place (`simulated`).
pub(crate) struct Socket {
    end: End,
}

enum End {
    Kernel(netlink_sys::Socket),
    #[cfg(any(test, feature = "simulated-kernel"))]
    Simulated(crate::simulated::Socket),
}

impl Socket {
    /// Opens a socket for the kernel's `protocol`.
    pub(crate) fn open(protocol: isize) -> io::Result<Self> {
        #[cfg(any(test, feature = "simulated-kernel"))]
        if let Some(socket) = crate::simulated::Socket::open(protocol) {
            return Ok(Self { end: End::Simulated(socket) });
        }
        let mut socket = netlink_sys::Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&netlink_sys::SocketAddr::new(0, 0))?;
        Ok(Self { end: End::Kernel(socket) })
    }

    /// Answers to refused requests are short from now on.
    pub(crate) fn shorten_refusals(&self) -> io::Result<()> {
        match &self.end {
            End::Kernel(socket) => sys::set_option(socket, SOL_NETLINK, NETLINK_CAP_ACK, 1),
            #[cfg(any(test, feature = "simulated-kernel"))]
            End::Simulated(_) => Ok(()),
        }
    }

    /// Sends a datagram of requests.
    pub(crate) fn send(&self, requests: &[u8]) -> io::Result<()> {
        match &self.end {
            End::Kernel(socket) => socket.send(requests, 0).map(drop),
            #[cfg(any(test, feature = "simulated-kernel"))]
            End::Simulated(socket) => socket.send(requests),
        }
    }

    /// Receives a datagram of answers, and returns its length.
    pub(crate) fn receive(&self, answers: &mut [u8]) -> io::Result<usize> {
        match &self.end {
            End::Kernel(socket) => socket.recv(&mut &mut answers[..], 0),
            #[cfg(any(test, feature = "simulated-kernel"))]
            End::Simulated(socket) => socket.receive(answers),
        }
    }
}
