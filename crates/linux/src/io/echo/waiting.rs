//! Packets of a queue that wait for what the engine does with them.
//!
//! The engine answers a passing packet by one that it sends with the same addresses and the same type, identifier and sequence
//! number: this is the verdict about the packet that waits. What it does not answer until the driver's next flush is dropped. The
//! kernel makes a copy of a packet to a group for each interface, and the engine does the same: it gets the first copy only, and
//! each copy that it sends is the verdict about the kernel's copy for the same interface.

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use signalbox_core::IfIndex;
use signalbox_core::packet::Transmit;
use socket2::Socket;

use super::queue::{self, Queued, Verdicts};

/// Packets to groups that are remembered, and for how long: the kernel makes all copies of one at once.
const GROUPS: usize = 64;
const REMEMBERED: Duration = Duration::from_secs(1);

/// A packet that waits.
#[derive(Debug)]
struct Waiting {
    id: u32,
    /// Whether it has a verdict, or gets none from the engine.
    done: bool,
    marked: bool,
    ends: [IpAddr; 2],
    oif: IfIndex,
    /// Its IP header, and its ICMP message.
    header: Range<usize>,
    message: Range<usize>,
}

/// A packet to a group of which the engine got the first copy.
#[derive(Debug)]
struct Group {
    ends: [IpAddr; 2],
    message: Vec<u8>,
    /// The interfaces of the copies that came; 0 for the one to this node.
    came: Vec<IfIndex>,
    /// What the engine sends by interfaces whose copies have not come yet.
    sent: Vec<(IfIndex, Vec<u8>)>,
    /// Whether the engine has it in this turn.
    fresh: bool,
    at: Instant,
}

/// The packets of one queue.
#[derive(Debug)]
pub(super) struct Waitings {
    queue: u16,
    /// The number of the last packet.
    last: u32,
    verdicts: Verdicts,
    packets: Vec<Waiting>,
    octets: Vec<u8>,
    /// Where the search for the next packet begins: the engine answers most of them in order.
    next: usize,
    groups: Vec<Group>,
    /// Packets that were released since [`Waitings::take_released`].
    released: u64,
}

impl Waitings {
    pub(super) const fn new(queue: u16, mark: u32) -> Self {
        Self {
            queue,
            last: 0,
            verdicts: Verdicts::new(queue, mark),
            packets: Vec::new(),
            octets: Vec::new(),
            next: 0,
            groups: Vec::new(),
            released: 0,
        }
    }

    /// Takes a packet of the queue. Whether it is for the engine.
    pub(super) fn admit(&mut self, queued: &Queued<'_>) -> bool {
        self.last = queued.id;
        let Some(ends) = queued.ends().filter(|_| !queued.bridged) else {
            self.verdicts.pass(queued.id);
            return false;
        };
        if ends[1].is_multicast() {
            return self.admit_to_group(queued, ends);
        }
        if queued.passing {
            self.wait(queued, ends)
        } else {
            self.verdicts.drop(queued.id)
        }
        true
    }

    fn wait(&mut self, queued: &Queued<'_>, ends: [IpAddr; 2]) {
        let start = self.octets.len();
        self.octets.extend_from_slice(queued.packet);
        let (middle, end) = (start + queued.header, self.octets.len());
        let Queued { id, marked, oif, .. } = *queued;
        let (header, message) = (start..middle, middle..end);
        self.packets.push(Waiting { id, done: false, marked, ends, oif, header, message });
    }

    fn admit_to_group(&mut self, queued: &Queued<'_>, ends: [IpAddr; 2]) -> bool {
        let now = Instant::now();
        self.groups.retain(|group| group.at + REMEMBERED > now);
        let oif = if queued.passing { queued.oif } else { IfIndex::NONE };
        let known = self.groups.iter().position(|g| g.ends == ends && g.message == queued.message());
        if let Some(at) = known {
            let Some(group) = self.groups.get_mut(at) else { return false };
            if !group.came.contains(&oif) {
                group.came.push(oif);
                let sent = group.sent.iter().position(|(by, _)| *by == oif);
                let sent = sent.map(|sent| group.sent.swap_remove(sent).1);
                let header = queued.packet.get(..queued.header).unwrap_or(&[]);
                match sent {
                    Some(sent) => {
                        self.released += 1;
                        self.verdicts.release(queued.id, queued.marked, header, Some(&sent));
                    }
                    None if queued.passing && group.fresh => self.wait(queued, ends),
                    None => self.verdicts.drop(queued.id),
                }
                return false;
            }
            // The sender has sent it once more.
            self.groups.remove(at);
        }
        if self.groups.len() == GROUPS {
            self.groups.remove(0);
        }
        let message = queued.message().to_vec();
        self.groups.push(Group { ends, message, came: vec![oif], sent: Vec::new(), fresh: true, at: now });
        if queued.passing {
            self.wait(queued, ends)
        } else {
            self.verdicts.drop(queued.id)
        }
        true
    }

    /// Releases the packet that the engine sends on. False: none waits, and the packet is of this node.
    pub(super) fn release(&mut self, transmit: &Transmit<'_>) -> bool {
        let count = self.packets.len();
        let ends = [transmit.src.ip(), transmit.dst.ip()];
        for step in 0..count {
            let at = (self.next + step) % count;
            let Some(packet) = self.packets.get_mut(at).filter(|packet| !packet.done) else { continue };
            let message = self.octets.get(packet.message.clone()).unwrap_or(&[]);
            let way = transmit.ifindex.is_none_or(|by| by == packet.oif);
            if packet.ends != ends || !way || !is_of(message, transmit.payload) {
                continue;
            }
            packet.done = true;
            let header = self.octets.get(packet.header.clone()).unwrap_or(&[]);
            let changed = (message != transmit.payload).then_some(transmit.payload);
            self.verdicts.release(packet.id, packet.marked, header, changed);
            self.released += 1;
            self.next = at + 1;
            return true;
        }
        let group = self
            .groups
            .iter_mut()
            .find(|group| group.fresh && group.ends == ends && is_of(&group.message, transmit.payload));
        if let (Some(group), Some(by)) = (group, transmit.ifindex) {
            group.sent.push((by, transmit.payload.to_vec()));
            return true;
        }
        false
    }

    /// Whether verdicts should be sent before more are made.
    pub(super) const fn is_full(&self) -> bool {
        self.verdicts.is_full()
    }

    /// Sends the verdicts that were made.
    pub(super) fn send(&mut self, socket: &Socket) {
        if let Err(error) = self.verdicts.send(socket) {
            tracing::debug!(%error, "verdicts of the queue not sent");
        }
    }

    /// Drops what the engine has not answered, and sends all verdicts.
    pub(super) fn flush(&mut self, socket: &Socket) {
        for packet in self.packets.drain(..).filter(|packet| !packet.done) {
            self.verdicts.drop(packet.id);
        }
        self.octets.clear();
        self.next = 0;
        self.groups.iter_mut().for_each(|group| group.fresh = false);
        self.send(socket);
    }

    /// Releases all that is in the queue as it is: no program handles it any more.
    pub(super) fn end(&self, socket: &Socket) -> io::Result<()> {
        // The kernel compares numbers as those that come before or after each other: all that it has given out come before.
        socket.send(&queue::release(self.queue, self.last.wrapping_add(1 << 30))).map(drop)
    }

    /// The packets that were released since the last call.
    pub(super) const fn take_released(&mut self) -> u64 {
        std::mem::replace(&mut self.released, 0)
    }
}

/// Whether a message is the other one, as a node on the path may have changed it: type, code, identifier and sequence number
/// stay.
fn is_of(message: &[u8], sent: &[u8]) -> bool {
    message.get(..2) == sent.get(..2) && message.get(4..8) == sent.get(4..8)
}
