//! Packets on their way out through a raw socket to which the kernel adds the IP header.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::Socket;

use crate::sys::mmsg::{self, BATCH, Outgoing};
use crate::sys::{self, sockaddr};

/// A queue with this many octets is sent.
const FULL: usize = 512 * 1024;
/// How long a full send buffer may hold up one flush.
const PATIENCE: Duration = Duration::from_millis(20);

/// Packets with their control messages, in order.
#[derive(Default)]
pub(crate) struct Queue {
    entries: Vec<Entry>,
    octets: Vec<u8>,
}

/// Where a packet goes, and the ends of its control messages and of itself in the octets.
struct Entry {
    name: ([u8; sockaddr::MAX], usize),
    start: usize,
    control_end: usize,
    end: usize,
}

/// What came of the packets of a queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sent {
    pub(crate) sent: u64,
    pub(crate) unsent: u64,
}

impl Queue {
    /// Appends a packet, with the control messages that `control` appends.
    pub(crate) fn push(&mut self, dst: IpAddr, packet: &[u8], control: impl FnOnce(&mut Vec<u8>)) {
        let start = self.octets.len();
        control(&mut self.octets);
        let control_end = self.octets.len();
        self.octets.extend_from_slice(packet);
        let end = self.octets.len();
        // Control messages of the next must lie as the kernel's structures do.
        self.octets.resize(end.next_multiple_of(size_of::<usize>()), 0);
        // Raw sockets want no port.
        let name = sockaddr::encode(SocketAddr::new(dst, 0));
        self.entries.push(Entry { name, start, control_end, end });
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= BATCH || self.octets.len() >= FULL
    }

    /// Sends everything and leaves the queue empty; `what` names the packets in the log.
    pub(crate) fn send(&mut self, socket: Option<&Socket>, what: &'static str) -> Sent {
        let mut done = Sent::default();
        let mut patience = PATIENCE;
        let mut rest = self.entries.as_slice();
        while let Some(socket) = socket
            && !rest.is_empty()
        {
            let octets = &self.octets;
            let outgoing = rest.iter().map(|entry| Outgoing {
                name: entry.name.0.get(..entry.name.1).unwrap_or(&[]),
                control: octets.get(entry.start..entry.control_end).unwrap_or(&[]),
                payload: octets.get(entry.control_end..entry.end).unwrap_or(&[]),
            });
            let gone = match mmsg::send(socket.as_raw_fd(), outgoing) {
                Ok(sent) => {
                    done.sent += sent as u64;
                    sent.max(1)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(error)
                    if sys::is_full(&error) && sys::wait_for_room(socket.as_raw_fd(), &mut patience) =>
                {
                    0
                }
                Err(error) => {
                    // The error is the first packet's alone.
                    tracing::debug!(%error, "{what} packet not sent");
                    done.unsent += 1;
                    1
                }
            };
            rest = rest.get(gone..).unwrap_or(&[]);
        }
        done.unsent += rest.len() as u64;
        self.entries.clear();
        self.octets.clear();
        done
    }
}
