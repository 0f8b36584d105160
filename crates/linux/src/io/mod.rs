//! The daemon's door to the network: datagrams in and out, routes, interfaces, changes.

mod batch;
mod compose;
mod queue;
mod sockets;
mod wake;

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::time::Duration;

use signalbox_core::Entry;
use signalbox_core::node::{Interface, NoRoute, Route, RouteQuery, TransmitError};
use signalbox_core::packet::{IpTransmit, Transmit};

pub use batch::Batch;
pub(crate) use compose::packet_info;
pub(crate) use sockets::{buffer, transparent};
pub use wake::Waker;

use crate::error::OpenError;
use crate::intercept::{self, Interception};
use crate::netlink::{Change, Events, MulticastRoute, Routes};
use crate::rsvp::{Rsvp, RsvpBatch, RsvpCounters};
use crate::sctp::{Sctp, SctpBatch, SctpCounters};
use crate::stream::{StreamConfig, StreamCounters, Streams, kernel_speaks_sctp};
use crate::sys;
use queue::Queue;
use sockets::Sockets;

/// What [`Io::open`] shall open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoConfig {
    /// UDP port to receive on and send from (270 is GIST's).
    pub port: u16,
    /// Speak IPv4.
    pub ipv4: bool,
    /// Speak IPv6.
    pub ipv6: bool,
    /// Take GIST packets with a Router Alert that pass by; without it only what is addressed to this node.
    pub intercept: bool,
    /// Take Q-mode packets (C-flag set) that pass by even if they carry no Router Alert (RFC 5971 §5.3.2.1
    /// allows it, for networks that strip the option).
    pub intercept_without_alert: bool,
    /// Packet mark that turns intercepted packets to this node. Not 0; nobody else's.
    pub mark: u32,
    /// Packet mark of all that this node sends, by which queues at its links tell it from what passes by. Not 0;
    /// nobody else's.
    pub own_mark: u32,
    /// Routing table that holds the route for packets with `mark`. Nobody else's.
    pub table: u32,
    /// Socket receive buffer in octets, as far as the kernel allows.
    pub receive_buffer: usize,
    /// Socket send buffer in octets, as far as the kernel allows.
    pub send_buffer: usize,
    /// TCP connections; their mark is `own_mark`.
    pub streams: StreamConfig,
    /// Speak SCTP, marked like TCP's: by streams where the kernel does ([`Io::kernel_sctp`]), or else by packets.
    pub sctp: bool,
    /// Receive and send RSVP packets; with `intercept` and `rsvp_alert` also those that pass by with a Router Alert.
    pub rsvp: bool,
    /// Heed the Router Alerts of RSVP; without it the kernel forwards Paths as any packet (RFC 6398).
    pub rsvp_alert: bool,
}

impl Default for IoConfig {
    fn default() -> Self {
        Self {
            port: 270,
            ipv4: true,
            ipv6: true,
            intercept: true,
            intercept_without_alert: false,
            mark: 0x5b00_010e,
            own_mark: 0x5b00_010f,
            table: 270,
            receive_buffer: 8 << 20,
            send_buffer: 4 << 20,
            streams: StreamConfig::default(),
            sctp: false,
            rsvp: false,
            rsvp_alert: true,
        }
    }
}

signalbox_core::counters! {
    /// What went through the sockets.
    pub struct IoCounters {
        /// Datagrams received.
        received: u64,
        /// Receive calls that gave at least one datagram.
        receive_calls: u64,
        /// Datagrams dropped because they or their IP options did not fit.
        receive_truncated: u64,
        /// Datagrams handed to the kernel.
        sent: u64,
        /// Send calls.
        send_calls: u64,
        /// Datagrams that went as part of a run to one peer (UDP_SEGMENT).
        sent_segmented: u64,
        /// Datagrams that the kernel refused.
        send_refused: u64,
        /// Datagrams dropped because the send buffer stayed full.
        send_overflow: u64,
    }
}

/// What [`Io::wait`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready {
    /// [`Io::receive`] has something.
    pub datagrams: bool,
    /// [`Io::streams`] has events.
    pub streams: bool,
    /// [`Io::receive_sctp`] has something.
    pub sctp: bool,
    /// [`Io::receive_rsvp`] has something.
    pub rsvp: bool,
    /// [`Io::changes`] has something.
    pub changes: bool,
    /// A [`Waker`] was used.
    pub woken: bool,
}

/// Sockets, interception and netlink of one node, in the network namespace of the thread that opened it.
///
/// Not `Sync`; one loop owns it. Nothing here waits except [`Io::wait`], and [`Io::flush`] for some
/// milliseconds when the send buffer is full.
pub struct Io {
    port: u16,
    sockets: Sockets,
    queue: Queue,
    routes: Routes,
    events: Events,
    wake: Waker,
    counters: IoCounters,
    streams: Streams,
    sctp: Option<Sctp>,
    rsvp: Option<Rsvp>,
    kernel_sctp: bool,
    /// Dropped with the rest, and then removes what it laid.
    interception: Option<Interception>,
}

impl Io {
    /// Opens the sockets and lays the interception.
    ///
    /// # Errors
    /// The first thing that the kernel refuses, with what to do about it. Nothing stays behind then.
    pub fn open(config: &IoConfig) -> Result<Self, OpenError> {
        let sockets = Sockets::open(config)?;
        let netlink = |error| OpenError::system("route netlink", &error);
        let routes = Routes::open().map_err(netlink)?;
        let events = Events::open(config.table).map_err(netlink)?;
        let wake = Waker::new().map_err(|error| OpenError::system("eventfd", &error))?;
        let streams = StreamConfig { mark: config.own_mark, ..config.streams.clone() };
        let streams = Streams::new(streams, config.ipv4, config.ipv6)
            .map_err(|error| OpenError::system("epoll", &error))?;
        let kernel_sctp = config.sctp && kernel_speaks_sctp();
        let raw = config.sctp && !kernel_sctp;
        let sctp = raw.then(|| Sctp::open(config)).transpose()?;
        let interception = if config.intercept {
            Some(intercept::lay(config)?)
        } else {
            intercept::clear(config)?;
            None
        };
        let rsvp = config.rsvp.then(|| Rsvp::open(config)).transpose()?;
        Ok(Self {
            port: config.port,
            sockets,
            queue: Queue::default(),
            routes,
            events,
            wake,
            counters: IoCounters::default(),
            streams,
            sctp,
            rsvp,
            kernel_sctp,
            interception,
        })
    }

    /// The descriptors whose readability means work: the datagram sockets, then netlink events, the waker,
    /// streams (which may have work besides: [`Streams::has_pending`]), SCTP and RSVP. For loops of other make than
    /// [`Io::wait`]; they live as long as this value.
    #[must_use]
    pub fn fds(&self) -> Vec<RawFd> {
        let others = [self.events.fd(), self.wake.fd(), self.streams.fd()];
        let raw = self.sctp.iter().flat_map(Sctp::fds).chain(self.rsvp.iter().flat_map(Rsvp::fds));
        self.sockets.fds().chain(others).chain(raw).collect()
    }

    /// Waits until there is something to do, a [`Waker`] is used, or the timeout is over (`None`: no end).
    ///
    /// # Errors
    /// What `ppoll` says.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Ready> {
        let mut fds = [sys::poll_fd(-1, libc::POLLIN); 9];
        fds[0].fd = self.events.fd();
        fds[1].fd = self.wake.fd();
        fds[2].fd = self.streams.fd();
        for (slot, fd) in fds[3..5].iter_mut().zip(self.sockets.fds()) {
            slot.fd = fd;
        }
        for (slot, fd) in fds[5..7].iter_mut().zip(self.sctp.iter().flat_map(Sctp::fds)) {
            slot.fd = fd;
        }
        for (slot, fd) in fds[7..].iter_mut().zip(self.rsvp.iter().flat_map(Rsvp::fds)) {
            slot.fd = fd;
        }
        let streams = self.streams.has_pending();
        sys::poll(&mut fds, if streams { Some(Duration::ZERO) } else { timeout })?;
        let ready = |fd: &libc::pollfd| fd.revents != 0;
        let woken = ready(&fds[1]);
        if woken {
            self.wake.clear();
        }
        Ok(Ready {
            datagrams: fds[3..5].iter().any(ready),
            streams: streams || ready(&fds[2]),
            sctp: fds[5..7].iter().any(ready),
            rsvp: fds[7..].iter().any(ready),
            changes: ready(&fds[0]),
            woken,
        })
    }

    /// A handle by which another thread ends [`Io::wait`].
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.wake.clone()
    }

    /// Fills `batch` with what waits, without waiting for more; gives the number of datagrams.
    ///
    /// # Errors
    /// A broken socket. Errors that the network reports about earlier packets are not among them.
    pub fn receive(&mut self, batch: &mut Batch) -> io::Result<usize> {
        let count = batch.fill(&self.sockets)?;
        if count > 0 {
            self.counters.receive_calls += 1;
            self.counters.received += count as u64;
            self.counters.receive_truncated += batch.truncated();
        }
        Ok(count)
    }

    /// Takes a datagram into the send queue; a full queue is sent at once.
    pub fn send(&mut self, transmit: &Transmit<'_>) {
        match transmit.entry {
            Entry::Udp(_) => {}
            Entry::Ip(132) => return self.send_sctp(transmit.src.ip(), transmit.dst.ip(), transmit.payload),
            Entry::Ip(_) | Entry::IcmpEcho(_) => return self.send_rsvp(&(*transmit).into()),
        }
        let mut transmit = *transmit;
        if transmit.src.port() != self.port && transmit.src.ip().is_unspecified() {
            // Only the UDP socket can leave the choice of an address to the kernel.
            match self.routes.lookup(&RouteQuery::to(transmit.dst.ip())) {
                Ok(route) => transmit.src.set_ip(route.src),
                Err(_) => {
                    self.counters.send_refused += 1;
                    return self.queue.fail(transmit.dst.ip(), TransmitError::Unreachable);
                }
            }
        }
        self.queue.push(&transmit, self.port);
        if self.queue.is_full() {
            self.queue.send(&mut self.sockets, &mut self.counters);
        }
    }

    /// The TCP connections.
    pub const fn streams(&mut self) -> &mut Streams {
        &mut self.streams
    }

    /// What happened to the TCP connections so far.
    #[must_use]
    pub const fn stream_counters(&self) -> &StreamCounters {
        self.streams.counters()
    }

    /// Fills `batch` with the SCTP packets that wait, without waiting for more; gives their number.
    ///
    /// # Errors
    /// A broken socket.
    pub fn receive_sctp(&mut self, batch: &mut SctpBatch) -> io::Result<usize> {
        self.sctp.as_mut().map_or(Ok(0), |sctp| sctp.receive(batch))
    }

    /// Takes an SCTP packet (checksum in place) from `src`, an address of this node or unspecified, into the
    /// send queue. What cannot be sent is counted; the transport will send it again.
    pub fn send_sctp(&mut self, src: IpAddr, dst: IpAddr, packet: &[u8]) {
        if let Some(sctp) = &mut self.sctp {
            sctp.send(src, dst, packet);
        }
    }

    /// Whether SCTP was asked for and the kernel speaks it: its associations are streams.
    #[must_use]
    pub const fn kernel_sctp(&self) -> bool {
        self.kernel_sctp
    }

    /// What went through the raw SCTP sockets so far, if they are open.
    #[must_use]
    pub fn sctp_counters(&self) -> Option<&SctpCounters> {
        self.sctp.as_ref().map(Sctp::counters)
    }

    /// Fills `batch` with the RSVP packets that wait, without waiting for more; gives their number.
    ///
    /// # Errors
    /// A broken socket.
    pub fn receive_rsvp(&mut self, batch: &mut RsvpBatch) -> io::Result<usize> {
        self.rsvp.as_mut().map_or(Ok(0), |rsvp| rsvp.receive(batch))
    }

    /// Takes an RSVP packet into the send queue. What cannot be sent is counted; the next refresh repeats it.
    pub fn send_rsvp(&mut self, transmit: &IpTransmit<'_>) {
        if let Some(rsvp) = &mut self.rsvp {
            rsvp.send(transmit);
        }
    }

    /// What went through the RSVP sockets so far, if they are open.
    #[must_use]
    pub fn rsvp_counters(&self) -> Option<&RsvpCounters> {
        self.rsvp.as_ref().map(Rsvp::counters)
    }

    /// Where the kernel sends what comes from `source` to `group`. From now on [`Io::changes`] tells when that changes.
    /// IPv6 wants Linux 6.0; before it no route is found.
    pub fn multicast_route(&mut self, group: IpAddr, source: IpAddr) -> MulticastRoute {
        self.events.watch(group, source);
        self.routes.multicast(group, source)
    }

    /// Sends what is queued, in streams too; gives the destinations that datagrams could not be sent to since
    /// the last flush.
    pub fn flush(&mut self) -> Vec<(IpAddr, TransmitError)> {
        self.streams.flush();
        if let Some(sctp) = &mut self.sctp {
            sctp.flush();
        }
        if let Some(rsvp) = &mut self.rsvp {
            rsvp.flush();
        }
        self.queue.send(&mut self.sockets, &mut self.counters);
        let mut failures = self.queue.take_failures();
        for (dst, error) in &mut failures {
            if *error == TransmitError::TooBig(None) {
                let mtu = self.routes.lookup(&RouteQuery::to(*dst)).ok().map(|route| route.mtu);
                *error = TransmitError::TooBig(mtu);
            }
        }
        failures
    }

    /// The route that a packet would take from here.
    ///
    /// # Errors
    /// Why there is none.
    pub fn route(&mut self, query: &RouteQuery) -> Result<Route, NoRoute> {
        self.routes.lookup(query)
    }

    /// All interfaces with their addresses, as of the last [`Change::Interfaces`] (or the start).
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        self.routes.interfaces()
    }

    /// What changed in interfaces and routes since the last call.
    pub fn changes(&mut self) -> Vec<Change> {
        self.events.drain(&mut self.routes)
    }

    /// What went through the sockets so far.
    #[must_use]
    pub const fn counters(&self) -> &IoCounters {
        &self.counters
    }

    /// Removes everything that was laid, and says so if that fails; dropping does the same in silence.
    ///
    /// # Errors
    /// What could not be removed, and why.
    pub fn close(mut self) -> Result<(), OpenError> {
        self.flush();
        // Before the routes that marked packets take.
        let rsvp = self.rsvp.take().map_or(Ok(()), Rsvp::close);
        self.interception.take().map_or(Ok(()), Interception::remove).and(rsvp)
    }
}
