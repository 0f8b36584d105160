//! The queue of outgoing datagrams: it gathers them, joins runs to one peer, and sends many at a time.

use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use signalbox_core::IfIndex;
use signalbox_core::node::TransmitError;
use signalbox_core::packet::Transmit;

use super::compose;
use super::udp::{Path, Sockets, UdpCounters};
use crate::helper;
use crate::sys::mmsg::{self, BATCH, Outgoing};
use crate::sys::{self, cmsg, sockaddr};

/// Most datagrams in one run: 64 is the limit of the first kernels with UDP_SEGMENT.
const RUN: usize = 64;
/// Most octets in one run, which travels as one packet as far as the device.
const RUN_OCTETS: usize = 65_000;
/// Number of octets from which a queue is sent at once.
const FULL: usize = 512 * 1024;
/// Time for which a full send buffer may delay one flush.
const PATIENCE: Duration = Duration::from_millis(20);
/// Octets of the control message that makes a run.
const SEGMENT: usize = cmsg::space(2);

/// The properties that the datagrams of a run have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Likeness {
    src: SocketAddr,
    dst: SocketAddr,
    ifindex: Option<IfIndex>,
    gateway: Option<IpAddr>,
    ttl: u8,
    tos: u8,
    dont_fragment: bool,
    flow_label: u32,
}

/// One datagram, or a run of them.
struct Entry {
    like: Likeness,
    path: Path,
    name: [u8; sockaddr::MAX],
    name_length: usize,
    /// Range in the queue's control octets, without the space for a run's control message behind it.
    control: Range<usize>,
    payload: Range<usize>,
    /// Octets of each datagram except the last.
    size: usize,
    count: usize,
    /// Whether no datagram may join: the entry has options, a shorter last datagram or another family.
    closed: bool,
}

#[derive(Default)]
pub(super) struct Queue {
    entries: Vec<Entry>,
    payload: Vec<u8>,
    control: Vec<u8>,
    failures: Vec<(IpAddr, TransmitError)>,
    /// Whether to send datagrams singly from now on, because a device refused runs (no checksum offload on an old
    /// kernel).
    no_runs: bool,
    /// Whether whole packets go to the helper, which needs the interface in front of each, and the next hop if one was chosen.
    relayed: bool,
}

impl Queue {
    /// A queue whose whole packets go to the helper.
    pub(super) fn relayed() -> Self {
        Self { relayed: true, ..Self::default() }
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= BATCH || self.payload.len() >= FULL
    }

    pub(super) fn drain_failures(&mut self) -> impl Iterator<Item = (IpAddr, TransmitError)> {
        self.failures.drain(..)
    }

    pub(super) fn fail(&mut self, dst: IpAddr, error: TransmitError) {
        self.failures.push((dst, error));
    }

    /// Copies a datagram into the queue; `port` is the port of the UDP sockets, if there are any.
    pub(super) fn push(&mut self, transmit: &Transmit<'_>, port: Option<u16>) {
        let like = Likeness {
            src: transmit.src,
            dst: transmit.dst,
            ifindex: transmit.ifindex,
            gateway: transmit.gateway,
            ttl: transmit.ttl,
            tos: transmit.tos,
            dont_fragment: transmit.dont_fragment,
            flow_label: transmit.flow_label,
        };
        if transmit.options.is_empty() && !transmit.unproved && self.join(like, transmit.payload) {
            return;
        }
        let (payload, control) = (self.payload.len(), self.control.len());
        let path = path(transmit, port);
        let ours = !path.is_raw();
        let fits = if ours {
            compose::control(transmit, &mut self.control);
            self.payload.extend_from_slice(transmit.payload);
            transmit.src.is_ipv4() == transmit.dst.is_ipv4()
        } else {
            if self.relayed {
                let index = transmit.ifindex.map_or(0, |index| index.0);
                self.payload.extend_from_slice(&index.to_ne_bytes());
                if let Some(gateway) = transmit.gateway {
                    helper::next_hop(gateway, &mut self.payload);
                }
            } else {
                compose::raw_control(transmit, &mut self.control);
            }
            compose::packet(transmit, &mut self.payload)
        };
        if !fits {
            self.payload.truncate(payload);
            self.control.truncate(control);
            return self.fail(transmit.dst.ip(), TransmitError::Other);
        }
        let control = control..self.control.len();
        self.control.resize(control.end + SEGMENT, 0);
        let mut to = transmit.dst;
        if !ours {
            // The packet holds its destination.
            if let Some(gateway) = transmit.gateway {
                to.set_ip(gateway);
            }
            to.set_port(0); // raw IPv6 sockets require port 0
        }
        let (name, name_length) = sockaddr::encode(to);
        self.entries.push(Entry {
            like,
            path,
            name,
            name_length,
            control,
            payload: payload..self.payload.len(),
            size: transmit.payload.len(),
            count: 1,
            closed: !ours || !transmit.options.is_empty() || transmit.payload.is_empty(),
        });
    }

    /// Joins a datagram to the run at the end, if it belongs there.
    fn join(&mut self, like: Likeness, payload: &[u8]) -> bool {
        let Some(last) = self.entries.last_mut() else { return false };
        if self.no_runs
            || last.closed
            || last.like != like
            || last.count == RUN
            || payload.is_empty()
            || payload.len() > last.size
            || last.payload.len() + payload.len() > RUN_OCTETS
        {
            return false;
        }
        if last.count == 1 {
            let Ok(size) = u16::try_from(last.size) else { return false };
            self.control.truncate(last.control.end);
            compose::segment(size, &mut self.control);
            last.control.end = self.control.len();
        }
        self.payload.extend_from_slice(payload);
        last.payload.end = self.payload.len();
        last.closed = payload.len() < last.size;
        last.count += 1;
        true
    }

    /// Sends all datagrams and empties the queue.
    pub(super) fn send(&mut self, sockets: &mut Sockets, counters: &mut UdpCounters) {
        let mut patience = PATIENCE;
        let entries = mem::take(&mut self.entries);
        let mut rest = &entries[..];
        while let Some(first) = rest.first() {
            // One call sends all that go by the same socket with the same DF bit.
            let same = |e: &&Entry| e.path == first.path && e.like.dont_fragment == first.like.dont_fragment;
            let length = rest.iter().take_while(same).count();
            let (group, others) = rest.split_at(length);
            self.send_group(group, sockets, counters, &mut patience);
            rest = others;
        }
        self.entries = entries;
        self.entries.clear();
        self.payload.clear();
        self.control.clear();
    }

    fn send_group(
        &mut self,
        group: &[Entry],
        sockets: &mut Sockets,
        counters: &mut UdpCounters,
        patience: &mut Duration,
    ) {
        let Some(first) = group.first() else { return };
        let Some(fd) = sockets.fd(first.path) else {
            for entry in group {
                counters.send_refused += entry.count as u64;
                self.fail(entry.like.dst.ip(), TransmitError::Unreachable);
            }
            return;
        };
        if first.path == Path::Udp4 {
            sockets.set_dont_fragment(first.like.dont_fragment);
        }
        let mut rest = group;
        while let Some(first) = rest.first() {
            counters.send_calls += 1;
            match mmsg::send(fd, rest.iter().map(|entry| self.outgoing(entry))) {
                Ok(sent) => {
                    for entry in rest.iter().take(sent) {
                        counters.sent += entry.count as u64;
                        counters.sent_segmented += if entry.count > 1 { entry.count as u64 } else { 0 };
                    }
                    rest = rest.get(sent.max(1)..).unwrap_or(&[]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if sys::is_full(&error) => {
                    // The helper may be gone.
                    let may_wait = first.path.may_wait() && !(self.relayed && first.path.is_raw());
                    if !may_wait || !sys::wait_for_room(fd, patience) {
                        for entry in rest {
                            counters.send_overflow += entry.count as u64;
                            self.fail(entry.like.dst.ip(), TransmitError::Other);
                        }
                        return;
                    }
                }
                Err(error) => {
                    // The error concerns the first entry alone.
                    if first.count > 1 && refuses_run(&error) {
                        self.no_runs |= error.raw_os_error() == Some(libc::EIO);
                        self.send_singly(first, fd, counters, patience);
                    } else {
                        counters.send_refused += first.count as u64;
                        self.fail(first.like.dst.ip(), transmit_error(&error));
                    }
                    rest = rest.get(1..).unwrap_or(&[]);
                }
            }
        }
    }

    fn outgoing<'a>(&'a self, entry: &'a Entry) -> Outgoing<'a> {
        Outgoing {
            name: entry.name.get(..entry.name_length).unwrap_or(&[]),
            payload: self.payload.get(entry.payload.clone()).unwrap_or(&[]),
            control: self.control.get(entry.control.clone()).unwrap_or(&[]),
        }
    }

    /// Sends the datagrams of a run singly, after the kernel refused the run.
    fn send_singly(&mut self, run: &Entry, fd: i32, counters: &mut UdpCounters, patience: &mut Duration) {
        let mut start = run.payload.start;
        while start < run.payload.end {
            let end = (start + run.size).min(run.payload.end);
            let whole = self.outgoing(run);
            let control = whole.control.get(..whole.control.len().saturating_sub(SEGMENT)).unwrap_or(&[]);
            let single = Outgoing { payload: self.payload.get(start..end).unwrap_or(&[]), control, ..whole };
            counters.send_calls += 1;
            match mmsg::send(fd, std::iter::once(single)) {
                Ok(_) => counters.sent += 1,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if sys::is_full(&error) && sys::wait_for_room(fd, patience) => continue,
                Err(error) => {
                    counters.send_refused += 1;
                    self.fail(run.like.dst.ip(), transmit_error(&error));
                }
            }
            start = end;
        }
    }
}

/// The socket for a datagram. Only the UDP socket can leave the choice of a source address to the kernel.
fn path(transmit: &Transmit<'_>, port: Option<u16>) -> Path {
    let v4 = transmit.dst.is_ipv4();
    let chosen = !transmit.src.ip().is_unspecified();
    if chosen && transmit.unproved {
        return if v4 { Path::Unproved4 } else { Path::Unproved6 };
    }
    if chosen && (!transmit.options.is_empty() || transmit.gateway.is_some()) {
        return if v4 { Path::Alerted4 } else { Path::Alerted6 };
    }
    match (v4, Some(transmit.src.port()) == port) {
        (true, true) => Path::Udp4,
        (false, true) => Path::Udp6,
        (true, false) => Path::Raw4,
        (false, false) => Path::Raw6,
    }
}

/// Whether the kernel may have refused a run because it is a run: each segment must fit the device's MTU, and old
/// kernels require checksum offload.
fn refuses_run(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EMSGSIZE | libc::EIO))
}

pub(super) fn transmit_error(error: &io::Error) -> TransmitError {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE) => TransmitError::TooBig(None),
        Some(
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::ENODEV | libc::EADDRNOTAVAIL,
        ) => TransmitError::Unreachable,
        _ => TransmitError::Other,
    }
}
