//! Datagrams as they come out of the kernel, many at a time.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use signalbox_core::packet::Received;
use signalbox_core::{Entry, IfIndex};

use super::sockets::Sockets;
use crate::sys::cmsg::{Messages, int};
use crate::sys::mmsg::{BATCH, Buffers, Datagram};
use crate::sys::sockaddr;

/// The largest UDP payload fits; and thirteen cache lines more, or the first octets of all datagrams would
/// compete for the same few places of the processor's caches.
const PAYLOAD: usize = (1 << 16) + 13 * 64;
/// All control messages we ask for, and IPv6 hop-by-hop options of some 250 octets.
const CONTROL: usize = 448;
/// Kind of the control message with the original IPv6 destination.
const IPV6_ORIGDSTADDR: i32 = 74;

/// Room for 64 datagrams, made once and used again for each [`super::Io::receive`].
pub struct Batch {
    buffers: Buffers,
    count: usize,
    /// Which family is asked first next time, so that neither starves the other.
    turn: bool,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Batch {
    /// Makes the room: 4 MB of addresses, of which only what datagrams touch becomes memory.
    #[must_use]
    pub fn new() -> Self {
        Self { buffers: Buffers::new(PAYLOAD, CONTROL), count: 0, turn: false }
    }

    /// Datagrams that the last receive gave.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether the last receive gave none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Most datagrams that one receive gives.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        BATCH
    }

    /// The datagrams of the last receive, in order of arrival for each family; those that did not fit are
    /// left out.
    pub fn iter(&self) -> impl Iterator<Item = Received<'_>> {
        (0..self.count).filter_map(|slot| received(&self.buffers.get(slot)?))
    }

    pub(super) fn fill(&mut self, sockets: &Sockets) -> io::Result<usize> {
        self.count = 0;
        self.turn = !self.turn;
        let mut fds = [None, None];
        for (slot, fd) in fds.iter_mut().zip(sockets.fds()) {
            *slot = Some(fd);
        }
        if self.turn {
            fds.swap(0, 1);
        }
        for fd in fds.into_iter().flatten() {
            self.count += self.buffers.receive(&fd, self.count)?;
        }
        Ok(self.count)
    }

    pub(super) fn truncated(&self) -> u64 {
        (0..self.count).filter_map(|slot| self.buffers.get(slot)).filter(Datagram::truncated).count() as u64
    }
}

fn received<'a>(datagram: &Datagram<'a>) -> Option<Received<'a>> {
    if datagram.truncated() {
        return None;
    }
    let src = sockaddr::decode(datagram.name)?;
    let (mut dst, mut ifindex, mut ttl, mut tos): (Option<SocketAddr>, _, _, _) = (None, None, None, 0);
    let mut options: &[u8] = &[];
    for (level, kind, data) in Messages(datagram.control) {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_ORIGDSTADDR) | (libc::IPPROTO_IPV6, IPV6_ORIGDSTADDR) => {
                dst = sockaddr::decode(data);
            }
            // in_pktinfo begins with the interface, in6_pktinfo ends with it.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => ifindex = int(data),
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => ifindex = int(data.get(16..)?),
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => ttl = int(data),
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => tos = int(data)?,
            (libc::IPPROTO_IP, libc::IP_RECVOPTS) | (libc::IPPROTO_IPV6, libc::IPV6_HOPOPTS) => {
                options = data;
            }
            _ => {}
        }
    }
    let dst = dst?;
    Some(Received {
        entry: Entry::Udp(dst.port()),
        src,
        dst,
        ifindex: IfIndex(ifindex?.unsigned_abs()),
        ttl: u8::try_from(ttl?).ok()?,
        tos: (tos & 0xff) as u8,
        options,
        payload: datagram.payload,
    })
}
