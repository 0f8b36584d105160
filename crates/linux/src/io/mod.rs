//! The daemon's driver of the network: packets in and out, routes, interfaces, changes.

mod alert;
mod batch;
mod compose;
mod config;
mod entry;
mod ip;
mod queue;
mod raw;
pub(crate) mod udp;
mod wake;

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use signalbox_core::Entry;
use signalbox_core::node::{Interface, NoRoute, Route, RouteQuery, TransmitError};
use signalbox_core::packet::Transmit;

pub use batch::Batch;
pub use config::IoConfig;
pub use entry::{CounterValue, Failure};
pub use ip::IpCounters;
pub use udp::UdpCounters;
pub use wake::Waker;

use crate::error::OpenError;
use crate::intercept::{self, Interception};
use crate::netlink::{Change, Events, MulticastRoute, Routes};
use crate::stream::{StreamConfig, StreamCounters, Streams};
use crate::sys;
use entry::Opened;

/// What [`Io::wait`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready {
    /// [`Io::receive`] has something.
    pub packets: bool,
    /// [`Io::streams`] has events.
    pub streams: bool,
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
    /// Those of UDP first.
    entries: Vec<Opened>,
    /// What [`Io::wait`] gives to `ppoll`: changes, the waker, streams; then the two sockets of each of `entries`.
    polled: Vec<libc::pollfd>,
    failures: Vec<Failure>,
    routes: Routes,
    events: Events,
    wake: Waker,
    streams: Streams,
    /// Dropped with the rest, and then removes what it laid.
    interception: Option<Interception>,
}

impl Io {
    /// Opens the sockets and lays the interception.
    ///
    /// # Errors
    /// The first thing that the kernel refuses, with what to do about it. Nothing stays behind then.
    pub fn open(config: &IoConfig) -> Result<Self, OpenError> {
        let netlink = |error| OpenError::system("route netlink", &error);
        // Sockets of UDP first: a rule without its socket lets packets pass.
        let (udp, others): (Vec<_>, Vec<_>) =
            config.entries.iter().partition(|request| matches!(request.entry, Entry::Udp(_)));
        let mut entries =
            udp.iter().map(|request| entry::open(request, config)).collect::<Result<Vec<_>, _>>()?;
        let routes = Routes::open().map_err(netlink)?;
        let events = Events::open(config.table).map_err(netlink)?;
        let wake = Waker::new().map_err(|error| OpenError::system("eventfd", &error))?;
        let streams = StreamConfig { mark: config.own_mark, ..config.streams.clone() };
        let streams = Streams::new(streams, config.ipv4, config.ipv6)
            .map_err(|error| OpenError::system("epoll", &error))?;
        let interception = if intercept::is_wanted(config) {
            Some(intercept::lay(config)?)
        } else {
            intercept::clear(config)?;
            None
        };
        // After the rules of UDP, which replace what a predecessor left: these take over the route of marked packets.
        for request in others {
            entries.push(entry::open(request, config)?);
        }
        let fixed = [events.fd(), wake.fd(), streams.fd()].into_iter();
        let sockets = entries.iter().flat_map(|opened| opened.port.sockets());
        let sockets = sockets.map(|socket| socket.as_ref().map_or(-1, AsRawFd::as_raw_fd));
        let polled = fixed.chain(sockets).map(|fd| sys::poll_fd(fd, libc::POLLIN)).collect();
        Ok(Self { entries, polled, failures: Vec::new(), routes, events, wake, streams, interception })
    }

    /// Waits until there is something to do, a [`Waker`] is used, or the timeout is over (`None`: no end).
    ///
    /// # Errors
    /// What `ppoll` reports.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Ready> {
        let pending = self.streams.has_pending();
        sys::poll(&mut self.polled, if pending { Some(Duration::ZERO) } else { timeout })?;
        let mut found = self.polled.iter().map(|fd| fd.revents != 0);
        let mut next = || found.next().unwrap_or(false);
        let (changes, woken, streams) = (next(), next(), next());
        let mut packets = false;
        for ready in self.entries.iter_mut().flat_map(|opened| &mut opened.ready) {
            *ready = next();
            packets |= *ready;
        }
        if woken {
            self.wake.clear();
        }
        Ok(Ready { packets, streams: streams || pending, changes, woken })
    }

    /// A handle by which another thread ends [`Io::wait`].
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.wake.clone()
    }

    /// Fills `batch` with what waits, without waiting for more; gives the number of packets. Only sockets that the last
    /// [`Io::wait`] found ready are asked, or all if none was.
    ///
    /// # Errors
    /// A broken socket. Errors that the network reports about earlier packets are not among them.
    pub fn receive(&mut self, batch: &mut Batch) -> io::Result<usize> {
        batch.clear();
        let all = !self.entries.iter().any(|opened| opened.ready.contains(&true));
        let sockets = self.entries.len() * 2;
        batch.turn = batch.turn.wrapping_add(1);
        for step in 0..sockets {
            let at = batch.turn.wrapping_add(step) % sockets;
            let (family, Some(opened)) = (at % 2, self.entries.get_mut(at / 2)) else { continue };
            let read = opened.port.read();
            let (Some(Some(socket)), Some(ready)) =
                (opened.port.sockets().get(family), opened.ready.get_mut(family))
            else {
                continue;
            };
            if !*ready && !all {
                continue;
            }
            let (count, truncated) = batch.fill(opened.entry, read, socket)?;
            // A socket that did not fill the room is empty.
            *ready = batch.len() == batch.capacity();
            if count > 0 {
                opened.port.count_received(count as u64, truncated as u64);
            }
        }
        Ok(batch.len())
    }

    /// Takes a packet into the send queue of its entry; a full queue is sent at once. A packet of an entry that is not
    /// open is not sent, which [`Io::flush`] reports.
    pub fn send(&mut self, transmit: &Transmit<'_>) {
        let Self { entries, routes, failures, .. } = self;
        match entries.iter_mut().find(|opened| opened.entry == transmit.entry) {
            Some(opened) => opened.port.send(transmit, routes, failures),
            None => {
                let (entry, dst) = (transmit.entry, transmit.dst.ip());
                failures.push(Failure { entry, dst, error: TransmitError::Other });
            }
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

    /// Where the kernel sends what comes from `source` to `group`. From now on [`Io::changes`] reports changes of it.
    /// IPv6 needs Linux 6.0; with an older kernel no route is found.
    pub fn multicast_route(&mut self, group: IpAddr, source: IpAddr) -> MulticastRoute {
        self.events.watch(group, source);
        self.routes.multicast(group, source)
    }

    /// Sends what is queued, in streams too; gives the packets that could not be sent since the last flush.
    pub fn flush(&mut self) -> Vec<Failure> {
        self.streams.flush();
        for opened in &mut self.entries {
            opened.port.flush(&mut self.failures);
        }
        let mut failures = std::mem::take(&mut self.failures);
        for Failure { dst, error, .. } in &mut failures {
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

    /// The counters of each entry, under the name that its request gave it.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, CounterValue)> {
        let of = |opened: &Opened| {
            let name = opened.name;
            opened.port.counters().into_iter().map(move |counter| (name, counter))
        };
        self.entries.iter().flat_map(of)
    }

    /// A counter of an entry; `None` if there is no entry with this name, or no counter.
    #[must_use]
    pub fn counter(&self, entry: &str, counter: &str) -> Option<u64> {
        let mut all = self.counters();
        all.find(|(name, (of, ..))| (*name, *of) == (entry, counter)).map(|(_, (.., value))| value)
    }

    /// Removes everything that was laid. Dropping does the same and only logs what fails.
    ///
    /// # Errors
    /// What could not be removed, and why.
    pub fn close(mut self) -> Result<(), OpenError> {
        self.flush();
        // Before the routes that marked packets take.
        let own = self.entries.drain(..).map(|opened| opened.port.close()).fold(Ok(()), Result::and);
        self.interception.take().map_or(Ok(()), Interception::remove).and(own)
    }
}
