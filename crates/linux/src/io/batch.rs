//! Packets received from the kernel, many at a time.

use std::fmt;
use std::io;

use signalbox_core::Entry;
use signalbox_core::packet::Received;
use socket2::Socket;

use super::entry::Read;
use crate::sys::mmsg::{BATCH, Buffers, Datagram};

/// Octets for one packet: the largest IP packet, and thirteen cache lines more. Without these, the first octets of all
/// packets would compete for the same few sets of the processor's caches.
const PAYLOAD: usize = (1 << 16) + 13 * 64;
/// Octets for all requested control messages, and IPv6 hop-by-hop options of some 250 octets.
const CONTROL: usize = 448;

/// Buffers for 64 packets of any entry, allocated once and reused for each [`super::Io::receive`].
pub struct Batch {
    buffers: Buffers,
    count: usize,
    /// The runs of packets by entry, in order.
    runs: Vec<Run>,
    /// The slots whose packets are not for the node, a bit for each.
    hidden: u64,
    /// The socket that is read first next time, so that none starves another.
    pub(super) turn: usize,
}

/// Packets of one entry.
struct Run {
    entry: Entry,
    read: Read,
    /// The slot after the last.
    end: usize,
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
    /// Allocates the buffers: 4 MB of addresses, of which only the pages that packets touch use memory.
    #[must_use]
    pub fn new() -> Self {
        Self { buffers: Buffers::new(PAYLOAD, CONTROL), count: 0, runs: Vec::new(), hidden: 0, turn: 0 }
    }

    /// The number of packets from the last receive.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether the last receive returned no packet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The most packets from one receive.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        BATCH
    }

    /// The packets of the last receive, in order of arrival for each socket; those that did not fit are left out.
    pub fn iter(&self) -> impl Iterator<Item = Received<'_>> {
        let mut start = 0;
        self.runs.iter().flat_map(move |run| {
            let slots = start..run.end;
            start = run.end;
            let shown = slots.filter(|slot| self.hidden >> slot & 1 == 0);
            shown.filter_map(|slot| (run.read)(run.entry, &self.buffers.get(slot)?))
        })
    }

    /// The octets of the same packets as the kernel gave them, each with its entry: the payload of UDP, or a packet of IP with
    /// the header that its socket shows. Those that did not fit are among them.
    pub fn octets(&self) -> impl Iterator<Item = (Entry, &[u8])> {
        let mut start = 0;
        self.runs.iter().flat_map(move |run| {
            let slots = start..run.end;
            start = run.end;
            let shown = slots.filter(|slot| self.hidden >> slot & 1 == 0);
            shown.filter_map(|slot| Some((run.entry, self.buffers.get(slot)?.payload)))
        })
    }

    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.runs.clear();
        self.hidden = 0;
    }

    /// Hides those of the last `count` packets that `admit` does not take.
    pub(super) fn admit(&mut self, count: usize, mut admit: impl FnMut(&Datagram<'_>) -> bool) {
        for slot in self.count.saturating_sub(count)..self.count {
            if let Some(datagram) = self.buffers.get(slot)
                && !admit(&datagram)
            {
                self.hidden |= 1 << slot;
            }
        }
    }

    /// Appends the packets that wait at a socket. Returns their number, and how many of them did not fit.
    pub(super) fn fill(&mut self, entry: Entry, read: Read, socket: &Socket) -> io::Result<(usize, usize)> {
        let start = self.count;
        let count = self.buffers.receive(socket, start)?;
        if count == 0 {
            return Ok((0, 0));
        }
        self.count += count;
        self.runs.push(Run { entry, read, end: self.count });
        let slots = (start..self.count).filter_map(|slot| self.buffers.get(slot));
        Ok((count, slots.filter(Datagram::truncated).count()))
    }
}
