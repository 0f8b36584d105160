//! The raw sockets of one IP protocol, one for each IP version, and what they send; the kernel adds the IP header.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use signalbox_core::node::TransmitError;
use signalbox_core::packet::Transmit;
use signalbox_core::{Entry, EntryRequest};
use socket2::{Domain, SockFilter, Socket};

use super::entry::Failure;
use super::fragment::Identifications;
use super::queue::transmit_error;
use super::{IoConfig, compose, fragment, udp};
use crate::error::OpenError;
use crate::netlink::Routes;
use crate::sys::mmsg::{self, BATCH, Outgoing};
use crate::sys::{self, sockaddr};

/// Number of octets from which a queue is sent at once.
const FULL: usize = 512 * 1024;
/// Time for which a full send buffer may delay one flush.
const PATIENCE: Duration = Duration::from_millis(20);

/// The operation of a socket filter that returns the number of octets to deliver.
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// The raw sockets of the configured families, and the packets that wait to be sent.
pub(super) struct Sockets {
    entry: Entry,
    sockets: [Option<Socket>; 2],
    /// Sockets for packets to nodes that have proved nothing, if they have their own. No node may have the address of such
    /// a packet; it then waits for a link-layer address in the send buffer of its socket.
    unproved: [Option<Socket>; 2],
    /// Sockets for whole packets to another next hop than the kernel would choose, if there are any, and the IP protocol of
    /// these packets.
    detours: [Option<Socket>; 2],
    protocol: u8,
    identifications: Identifications,
    queues: [Queue; 2],
    unproved_queues: [Queue; 2],
    detour_queues: [Queue; 2],
    /// The name of the packets in the log.
    what: &'static str,
    done: Sent,
}

/// The numbers of sent and unsent packets.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sent {
    pub(super) sent: u64,
    pub(super) unsent: u64,
}

impl Sockets {
    pub(super) fn open(
        config: &IoConfig,
        request: &EntryRequest,
        open: impl Fn(Domain) -> Result<Socket, OpenError>,
    ) -> Result<Self, OpenError> {
        let open = |wanted: bool, domain| wanted.then(|| open(domain)).transpose();
        let sockets = [open(config.ipv4, Domain::IPV4)?, open(config.ipv6, Domain::IPV6)?];
        Ok(Self {
            entry: request.entry,
            sockets,
            unproved: [None, None],
            detours: [None, None],
            protocol: 0,
            identifications: Identifications::new(),
            queues: Default::default(),
            unproved_queues: Default::default(),
            detour_queues: Default::default(),
            what: request.subsystem.name,
            done: Sent::default(),
        })
    }

    /// The same with further sockets for packets to nodes that have proved nothing. They receive nothing.
    pub(super) fn with_unproved(
        mut self,
        config: &IoConfig,
        open: impl Fn(Domain) -> Result<Socket, OpenError>,
    ) -> Result<Self, OpenError> {
        let wanted = [(config.ipv4, Domain::IPV4), (config.ipv6, Domain::IPV6)];
        for (place, (wanted, domain)) in self.unproved.iter_mut().zip(wanted) {
            if wanted {
                let socket = place.insert(open(domain)?);
                let nothing = SockFilter::new(RETURN, 0, 0, 0);
                socket
                    .attach_filter(&[nothing])
                    .map_err(|error| OpenError::system("raw socket that only sends", &error))?;
                udp::buffer(socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, udp::DOUBTFUL_BUFFER);
            }
        }
        Ok(self)
    }

    /// The same with further sockets for packets of IP `protocol` to another next hop than the kernel would choose. Such a next
    /// hop may have no link-layer address, too.
    pub(super) fn with_detours(mut self, config: &IoConfig, protocol: u8) -> Result<Self, OpenError> {
        self.protocol = protocol;
        let wanted = [(config.ipv4, Domain::IPV4), (config.ipv6, Domain::IPV6)];
        for (place, (wanted, domain)) in self.detours.iter_mut().zip(wanted) {
            if wanted {
                *place = Some(udp::open_doubtful(domain, config)?);
            }
        }
        Ok(self)
    }

    /// The sockets that receive, IPv4's first.
    pub(super) const fn sockets(&self) -> &[Option<Socket>; 2] {
        &self.sockets
    }

    /// The numbers of sent and unsent packets since the sockets were opened.
    pub(super) const fn done(&self) -> Sent {
        self.done
    }

    /// Appends a packet to the send queue; a full queue is sent at once.
    pub(super) fn send(&mut self, transmit: &Transmit<'_>, routes: &mut Routes, failures: &mut Vec<Failure>) {
        let Transmit { src, dst, payload, .. } = *transmit;
        if src.is_ipv4() != dst.is_ipv4() {
            self.done.unsent += 1;
            return;
        }
        if self.detours.iter().any(Option::is_some)
            && let Some(gateway) = udp::detour(transmit, routes)
            && self.send_by(gateway, transmit.ifindex.and_then(|ifindex| routes.mtu(ifindex)), transmit)
        {
            if self.detour_queues.iter().any(Queue::is_full) {
                self.flush(failures);
            }
            return;
        }
        let own = self.unproved.iter().any(Option::is_some);
        let [v4, v6] = if transmit.unproved && own { &mut self.unproved_queues } else { &mut self.queues };
        let queue = if dst.is_ipv4() { v4 } else { v6 };
        queue.push(dst.ip(), payload, |octets| compose::control(transmit, octets));
        if queue.is_full() {
            self.flush(failures);
        }
    }

    /// Appends a whole packet, or its fragments, to the queue of packets to a next hop; false if no packet can hold it.
    fn send_by(&mut self, gateway: IpAddr, mtu: Option<u32>, transmit: &Transmit<'_>) -> bool {
        let mut packet = Vec::new();
        if !compose::packet_of(self.protocol, transmit, &mut packet) {
            return false;
        }
        let [v4, v6] = &mut self.detour_queues;
        let queue = if gateway.is_ipv4() { v4 } else { v6 };
        let mtu = mtu.and_then(|mtu| usize::try_from(mtu).ok()).unwrap_or(usize::MAX);
        fragment::cut(&packet, mtu, &mut self.identifications, |part| {
            queue.push(gateway, part, |octets| compose::raw_control(transmit, octets));
        });
        true
    }

    /// Sends the queued packets.
    pub(super) fn flush(&mut self, failures: &mut Vec<Failure>) {
        let entry = self.entry;
        let mut failed = |dst, error| failures.push(Failure { entry, dst, error });
        let proved = self.sockets.iter().zip(&mut self.queues).map(|pair| (pair, PATIENCE));
        let unproved = self.unproved.iter().zip(&mut self.unproved_queues).map(|pair| (pair, Duration::ZERO));
        let detours = self.detours.iter().zip(&mut self.detour_queues).map(|pair| (pair, Duration::ZERO));
        for ((socket, queue), patience) in proved.chain(unproved).chain(detours) {
            if queue.entries.is_empty() {
                continue;
            }
            let done = queue.send(socket.as_ref(), patience, self.what, &mut failed);
            self.done.sent += done.sent;
            self.done.unsent += done.unsent;
        }
    }
}

/// A queue of packets with their control messages.
#[derive(Default)]
struct Queue {
    entries: Vec<Packet>,
    octets: Vec<u8>,
}

/// The destination of a packet, and the ends of its control messages and of the packet in the octets.
struct Packet {
    dst: IpAddr,
    name: ([u8; sockaddr::MAX], usize),
    start: usize,
    control_end: usize,
    end: usize,
}

impl Queue {
    /// Appends a packet, with the control messages that `control` appends.
    fn push(&mut self, dst: IpAddr, packet: &[u8], control: impl FnOnce(&mut Vec<u8>)) {
        let start = self.octets.len();
        control(&mut self.octets);
        let control_end = self.octets.len();
        self.octets.extend_from_slice(packet);
        let end = self.octets.len();
        // The control messages of the next packet must be aligned as the kernel's structures are.
        self.octets.resize(end.next_multiple_of(size_of::<usize>()), 0);
        // Raw sockets require port 0.
        let name = sockaddr::encode(SocketAddr::new(dst, 0));
        self.entries.push(Packet { dst, name, start, control_end, end });
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= BATCH || self.octets.len() >= FULL
    }

    /// Sends all packets and empties the queue. A full send buffer delays it by `patience` at most; `what` names the
    /// packets in the log.
    fn send(
        &mut self,
        socket: Option<&Socket>,
        mut patience: Duration,
        what: &'static str,
        failed: &mut impl FnMut(IpAddr, TransmitError),
    ) -> Sent {
        let mut done = Sent::default();
        let waits = !patience.is_zero();
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
                Err(error) if sys::is_full(&error) && !waits => {
                    tracing::debug!(packets = rest.len(), "{what} packets not sent: the send buffer is full");
                    break;
                }
                Err(error) => {
                    // The error concerns the first packet alone.
                    tracing::debug!(%error, "{what} packet not sent");
                    done.unsent += 1;
                    if let Some(first) = rest.first() {
                        failed(first.dst, transmit_error(&error));
                    }
                    1
                }
            };
            rest = rest.get(gone..).unwrap_or(&[]);
        }
        done.unsent += rest.len() as u64;
        let error = if socket.is_some() { TransmitError::Other } else { TransmitError::Unreachable };
        rest.iter().for_each(|entry| failed(entry.dst, error));
        self.entries.clear();
        self.octets.clear();
        done
    }
}
