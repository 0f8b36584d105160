//! The daemon's driver of the network: packets in and out, routes, interfaces, and changes.

mod alert;
mod batch;
mod busy;
pub(crate) mod compose;
mod config;
mod echo;
mod entry;
mod families;
mod fragment;
mod helped;
mod ip;
mod queue;
mod raw;
mod report;
pub(crate) mod selftest;
pub(crate) mod udp;
mod wake;

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use signalbox_core::node::{Interface, NoRoute, Route, RouteQuery, TransmitError};
use signalbox_core::packet::Transmit;
use signalbox_core::{Counter, Entry, IfIndex};

pub use batch::Batch;
pub use config::IoConfig;
pub use entry::{Failure, Undeliverable};
pub use ip::IpCounters;
pub use udp::UdpCounters;
pub use wake::Waker;

use crate::error::OpenError;
use crate::intercept::{self, Interception, Sources};
use crate::netlink::{Change, Events, MulticastRoute, Neighbors, Removals, Routes};
use crate::stream::{StreamConfig, StreamCounters, Streams};
use crate::sys;
use busy::Busy;
use entry::Opened;
use helped::Helped;
use selftest::SelfTest;

/// The result of [`Io::wait`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready {
    /// Whether [`Io::receive`] has packets.
    pub packets: bool,
    /// Whether [`Io::streams`] has events.
    pub streams: bool,
    /// Whether [`Io::changes`] has changes.
    pub changes: bool,
    /// Whether a [`Waker`] was used.
    pub woken: bool,
}

/// What [`Io::judge_interception`] has found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Judged {
    /// The families whose policy rule was put above others, with its new preference.
    pub raised: Vec<(&'static str, u32)>,
    /// What is in the way of intercepted packets, with the rule where it is known; empty: the interception works.
    pub faults: Vec<String>,
}

/// Sockets, interception and netlink of one node, in the network namespace of the thread that opened it.
///
/// It is not `Sync`; one loop owns it. Only [`Io::wait`] waits, and [`Io::flush`] for some milliseconds when the send
/// buffer is full.
pub struct Io {
    /// The open entries, those of UDP first.
    entries: Vec<Opened>,
    /// The descriptors for `ppoll` in [`Io::wait`]: changes, two for removals, the helper, neighbors, the waker, streams; then the
    /// sockets of each of `entries`.
    polled: Vec<libc::pollfd>,
    /// The sockets that are read, each with its place among those of its entry.
    places: Vec<(usize, usize)>,
    busy: Busy,
    failures: Vec<Failure>,
    undeliverable: Vec<Undeliverable>,
    routes: Routes,
    events: Events,
    neighbors: Neighbors,
    removals: Removals,
    wake: Waker,
    streams: Streams,
    /// The interception rules, which are removed when this value is dropped.
    interception: Option<Interception>,
    /// The process that opened the entries and intercepts for this one.
    helped: Option<Helped>,
    tests: SelfTest,
    sources: Sources,
    /// Whether marked packets of IPv4 and of IPv6 are led to this node, by the last lookup.
    led: [bool; 2],
    config: IoConfig,
}

/// The place of the helper in [`Io::polled`].
const HELPER: usize = 3;

impl Io {
    /// Opens the sockets and installs the interception.
    ///
    /// # Errors
    /// The first refusal of the kernel, with the action that helps. Everything made before is removed then.
    pub fn open(config: &IoConfig) -> Result<Self, OpenError> {
        let netlink = |error| OpenError::system("route netlink", &error);
        let (config, vrf) = config.for_this_machine()?;
        let config = &config;
        // Sockets of UDP come first: a rule without its socket lets packets pass.
        let (udp, others): (Vec<_>, Vec<_>) =
            config.entries.iter().partition(|request| matches!(request.entry, Entry::Udp(_)));
        let (helped, mut entries) = match &config.helper {
            Some(path) => {
                let (helped, entries) = Helped::open(path, config)?;
                (Some(helped), entries)
            }
            None => {
                let opened = udp.iter().map(|request| entry::open(request, config));
                (None, opened.collect::<Result<Vec<_>, _>>()?)
            }
        };
        let mut routes = Routes::open(vrf).map_err(netlink)?;
        let events = Events::open(config.table).map_err(netlink)?;
        let neighbors = Neighbors::open(&mut routes).map_err(netlink)?;
        let removals = Removals::open().map_err(netlink)?;
        let sources = Sources::open().map_err(netlink)?;
        let wake = Waker::new().map_err(|error| OpenError::system("eventfd", &error))?;
        let mark = if helped.is_some() { 0 } else { config.own_mark };
        let streams = StreamConfig { mark, ..config.streams.clone() };
        let streams = Streams::new(streams, config.ipv4, config.ipv6)
            .map_err(|error| OpenError::system("epoll", &error))?;
        let interception = if helped.is_some() {
            None
        } else if intercept::is_wanted(config) {
            Some(intercept::lay(config)?)
        } else {
            intercept::clear(config)?;
            None
        };
        // They come after the rules of UDP, which replace a predecessor's: these reuse the route of marked packets.
        for request in others.into_iter().filter(|_| helped.is_none()) {
            entries.push(entry::open(request, config)?);
        }
        let [queues, tables] = removals.fds();
        let helper = helped.as_ref().map_or(-1, Helped::fd);
        let changes = [events.fd(), queues, tables, helper, neighbors.fd()];
        let fixed = changes.into_iter().chain([wake.fd(), streams.fd()]);
        let sockets = entries.iter().flat_map(|opened| opened.port.sockets());
        let sockets = sockets.map(|socket| socket.as_ref().map_or(-1, AsRawFd::as_raw_fd));
        let polled = fixed.chain(sockets).map(|fd| sys::poll_fd(fd, libc::POLLIN)).collect();
        let places = entries.iter().enumerate();
        let places = places.flat_map(|(at, opened)| (0..opened.ready.len()).map(move |socket| (at, socket)));
        let places = places.collect();
        let tests = SelfTest::open(&config.entries, |request, ipv6| match request.entry {
            Entry::Udp(_) => interception.is_some() && if ipv6 { config.ipv6 } else { config.ipv4 },
            entry => entries.iter().any(|opened| opened.entry == entry && opened.port.needs_route(ipv6)),
        });
        let (failures, busy, config) = (Vec::new(), Busy::new(config.busy_poll), config.clone());
        Ok(Self {
            entries,
            polled,
            places,
            busy,
            failures,
            undeliverable: Vec::new(),
            routes,
            events,
            neighbors,
            removals,
            wake,
            streams,
            interception,
            helped,
            tests,
            sources,
            led: [true; 2],
            config,
        })
    }

    /// Waits until an event is ready, a [`Waker`] is used, or the timeout is over (`None`: no timeout).
    ///
    /// # Errors
    /// The error of `ppoll`.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Ready> {
        let pending = self.streams.has_pending();
        self.busy.poll(&mut self.polled, if pending { Some(Duration::ZERO) } else { timeout })?;
        let mut found = self.polled.iter().map(|fd| fd.revents != 0);
        let mut next = || found.next().unwrap_or(false);
        let changes = [next(), next(), next(), next(), next()].contains(&true);
        let (woken, streams) = (next(), next());
        let mut packets = false;
        for ready in self.entries.iter_mut().flat_map(|opened| &mut opened.ready) {
            *ready = next();
            packets |= *ready;
        }
        if woken {
            self.wake.clear();
        }
        if packets || streams {
            self.busy.traffic();
        }
        Ok(Ready { packets, streams: streams || pending, changes, woken })
    }

    /// A handle by which another thread ends [`Io::wait`].
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.wake.clone()
    }

    /// Fills `batch` with the waiting packets, without waiting for more, and returns their number. It reads only the
    /// sockets that the last [`Io::wait`] found ready, or all if none was ready.
    ///
    /// # Errors
    /// A broken socket. Errors that the network reports about earlier packets are not returned.
    pub fn receive(&mut self, batch: &mut Batch) -> io::Result<usize> {
        batch.clear();
        let all = !self.entries.iter().any(|opened| opened.ready.contains(&true));
        let sockets = self.places.len();
        batch.turn = batch.turn.wrapping_add(1);
        for step in 0..sockets {
            let at = batch.turn.wrapping_add(step) % sockets;
            let Some((entry, place)) = self.places.get(at).copied() else { continue };
            let Some(opened) = self.entries.get_mut(entry) else { continue };
            let read = opened.port.read(place);
            let (Some(Some(socket)), Some(ready)) =
                (opened.port.sockets().get(place), opened.ready.get_mut(place))
            else {
                continue;
            };
            if !*ready && !all {
                continue;
            }
            let reports = opened.port.has_reports();
            if reports {
                report::read(opened.entry, socket, &mut self.undeliverable);
            }
            let (count, truncated) = match batch.fill(opened.entry, read, socket) {
                // A report that has come in the meantime: the next turn reads it.
                Err(_) if reports => (0, 0),
                filled => filled?,
            };
            // A socket that left free slots is empty.
            *ready = batch.len() == batch.capacity();
            if count > 0 {
                let (tests, entry) = (&mut self.tests, opened.entry);
                batch.admit(count, |datagram| {
                    !tests.takes(entry, datagram) && opened.port.admit(place, datagram)
                });
                let received = (count as u64).saturating_sub(tests.take_arrived());
                opened.port.count_received(received, truncated as u64);
            }
        }
        Ok(batch.len())
    }

    /// The packets of which [`Io::receive`] has read since the last call that they could not be delivered.
    pub fn take_undeliverable(&mut self) -> Vec<Undeliverable> {
        std::mem::take(&mut self.undeliverable)
    }

    /// Appends a packet to the send queue of its entry; a full queue is sent at once. A packet of an entry that is not
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

    /// The byte streams: TCP connections and SCTP associations.
    pub const fn streams(&mut self) -> &mut Streams {
        &mut self.streams
    }

    /// The counters of the streams.
    #[must_use]
    pub const fn stream_counters(&self) -> &StreamCounters {
        self.streams.counters()
    }

    /// The kernel's route of packets from `source` to `group`. From now on [`Io::changes`] reports changes of it. IPv6
    /// needs Linux 6.0; with an older kernel no route is found.
    pub fn multicast_route(&mut self, group: IpAddr, source: IpAddr) -> MulticastRoute {
        self.events.watch(group, source);
        self.routes.multicast(group, source)
    }

    /// Ends the reports of changes of a route that [`Io::multicast_route`] began.
    pub fn release_multicast_route(&mut self, group: IpAddr, source: IpAddr) {
        self.events.remove(group, source);
    }

    /// Sends the queued packets and the written octets of streams. Returns the packets that could not be sent since the
    /// last flush.
    pub fn flush(&mut self) -> Vec<Failure> {
        self.streams.flush();
        for opened in &mut self.entries {
            opened.port.flush(&mut self.failures);
        }
        let mut failures = std::mem::take(&mut self.failures);
        if failures.iter().any(|failure| failure.error == TransmitError::TooBig(None)) {
            // The kernel has just learned the MTU of a path, which it does not report.
            self.routes.clear();
        }
        for Failure { dst, error, .. } in &mut failures {
            if *error == TransmitError::TooBig(None) {
                let mtu = self.routes.lookup(&RouteQuery::to(*dst)).ok().map(|route| route.mtu);
                *error = TransmitError::TooBig(mtu);
            }
        }
        failures
    }

    /// The route that a packet would take from here, as far as the reports that [`Io::changes`] has taken show it. What the
    /// kernel does not report is a second old at most.
    ///
    /// # Errors
    /// The reason why there is no route.
    pub fn route(&mut self, query: &RouteQuery) -> Result<Route, NoRoute> {
        self.routes.lookup(query)
    }

    /// Asks the kernel again about every route, because its answers changed without a report.
    pub const fn forget_routes(&mut self) {
        self.routes.clear();
    }

    /// All interfaces with their addresses, as of the last [`Change::Interfaces`] or the start.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        self.routes.interfaces()
    }

    /// The name of the VRF, if its device is gone. The sockets are part of it and work no more.
    #[must_use]
    pub fn lost_vrf(&self) -> Option<&str> {
        self.config.scope.vrf().filter(|_| self.routes.has_lost_vrf())
    }

    /// The speeds of the interfaces that are up, as far as the kernel knows them, in octets a second.
    #[must_use]
    pub fn link_speeds(&self) -> Vec<(IfIndex, u64)> {
        let up = self.interfaces().iter().filter(|interface| interface.up);
        up.filter_map(|interface| {
            // Links without a speed refuse the request.
            let speed = sys::ethtool::speed(&interface.name).ok().flatten()?;
            Some((interface.ifindex, speed))
        })
        .collect()
    }

    /// Whether interfaces changed and could not be read, so that [`Self::changes`] has to be called again although the kernel reports
    /// nothing more.
    #[must_use]
    pub const fn has_unread(&self) -> bool {
        self.events.is_unread()
    }

    /// The changes of interfaces, routes and neighbors since the last call.
    pub fn changes(&mut self) -> Vec<Change> {
        let mut changes = self.events.drain(&mut self.routes);
        if changes.contains(&Change::Interfaces) {
            self.neighbors.keep(self.routes.interfaces());
        }
        let moved = self.neighbors.drain(&mut self.routes).into_iter();
        changes.extend(moved.map(|(ifindex, address)| Change::Neighbor { ifindex, address }));
        let ended = self.helped.as_mut().is_some_and(Helped::has_ended);
        self.poll_helper();
        let reported = self.removals.drain();
        if (reported.removed || ended) && !changes.contains(&Change::Removed) {
            changes.push(Change::Removed);
        }
        if reported.rules {
            changes.push(Change::Rules);
        }
        changes
    }

    /// Installs the parts of the interception again that another program removed, and returns whether there were any.
    ///
    /// # Errors
    /// A part that the kernel refuses.
    pub fn restore(&mut self) -> Result<bool, OpenError> {
        if let Some(helped) = &mut self.helped {
            let result = helped.restore();
            self.poll_helper();
            return result.map(|()| false);
        }
        let mut missing = false;
        for ipv6 in [false, true] {
            if self.entries.iter().any(|opened| opened.port.needs_route(ipv6)) {
                missing |= intercept::restore_route(ipv6, &self.config)?;
            }
        }
        match &mut self.interception {
            Some(interception) => Ok(interception.restore()? || missing),
            None => Ok(missing),
        }
    }

    /// Compares the policy rule of the interception with those of other programs, puts it first where the configuration allows
    /// that, adds those that `src_valid_mark` demands, and asks the kernel whether marked packets are led to this node. Where a helper
    /// intercepts, it does the first two. `None`: no packets are intercepted.
    ///
    /// # Errors
    /// A request that the kernel refuses.
    pub fn judge_interception(&mut self) -> Result<Option<Judged>, OpenError> {
        if self.helped.is_some() {
            return self.judge_helped();
        }
        let mut judged = None;
        for (ipv6, on) in [(false, self.config.ipv4), (true, self.config.ipv6)] {
            if !on || !self.intercepts(ipv6) {
                continue;
            }
            let judged = judged.get_or_insert_with(Judged::default);
            let family = if ipv6 { "IPv6" } else { "IPv4" };
            let rank = intercept::rank(ipv6, &self.config)?;
            judged.raised.extend(rank.raised.map(|preference| (family, preference)));
            for rule in rank.above {
                judged
                    .faults
                    .push(format!("{family}: another rule stands before that of the interception: {rule}"));
            }
            if !ipv6 {
                self.sources.keep(&self.config)?;
                judged.faults.extend(self.sources_in_the_way());
            }
            let outside = self.sources.passed_over().is_some();
            judged.faults.extend(self.leads_elsewhere(ipv6, outside)?);
        }
        Ok(judged)
    }

    /// What the kernel drops in a VRF because of its lookups of sources, which no self-test shows there.
    fn sources_in_the_way(&self) -> Option<String> {
        let setting = self.sources.obstacle().filter(|_| self.config.scope.vrf().is_some())?;
        let remedy = self.sources.remedy();
        Some(format!("IPv4: the kernel drops intercepted packets, because {setting} is 1: {remedy}"))
    }

    /// Asks the kernel whether marked packets of a family are led to this node, and returns the text for people if they are not.
    /// `outside`: with IPv4, for packets that come in by an interface.
    fn leads_elsewhere(&mut self, ipv6: bool, outside: bool) -> Result<Option<String>, OpenError> {
        let (mark, family) = (self.config.mark, if ipv6 { "IPv6" } else { "IPv4" });
        let here = if outside && !ipv6 {
            self.routes.leads_here_from_outside(mark)
        } else {
            self.routes.leads_here(ipv6, mark)
        };
        let here =
            here.map_err(|error| OpenError::system("asking for the route of intercepted packets", &error))?;
        self.led[usize::from(ipv6)] = here;
        Ok((!here).then(|| {
            format!(
                "{family}: intercepted packets are not led to this node: another rule or mark is in the way"
            )
        }))
    }

    /// Looks again at the settings of the kernel, of which it reports no change, and
    /// sends packets that take the way of intercepted ones, one of each kind. [`Io::receive`] takes those that arrive, and gives none of
    /// them to the node. Returns the families of which no packet could be sent, with the reason. A family whose marked packets are not
    /// led to this node, as [`Io::judge_interception`] found last, is left out.
    pub fn begin_self_test(&mut self) -> Vec<String> {
        if self.helped.is_some() {
            return vec!["the helper intercepts, and tries none".to_owned()];
        }
        if self.config.ipv4
            && self.intercepts(false)
            && let Err(error) = self.sources.keep(&self.config)
        {
            // The packets show whether that is in the way.
            tracing::debug!(%error, "the setting of the kernel for sources");
        }
        if let Some(vrf) = self.config.scope.vrf() {
            return vec![format!(
                "no interface of the VRF {vrf} takes packets in that this node sends by it"
            )];
        }
        self.tests.begin(self.led, self.sources.passed_over(), &mut self.routes)
    }

    /// Whether all packets of the last self-test have arrived.
    #[must_use]
    pub fn is_self_test_complete(&self) -> bool {
        self.tests.is_complete()
    }

    /// What did not arrive of the packets of the last self-test, with what is in the way as far as the kernel shows it.
    #[must_use]
    pub fn self_test_faults(&self) -> Vec<String> {
        self.tests.lost(self.sources.obstacle()).iter().map(selftest::Lost::explain).collect()
    }

    /// Whether this process has put a policy rule of a family into the kernel.
    fn intercepts(&self, ipv6: bool) -> bool {
        self.interception.is_some() || self.entries.iter().any(|opened| opened.port.needs_route(ipv6))
    }

    /// Waits for the helper if there is one.
    fn poll_helper(&mut self) {
        if let Some(fd) = self.polled.get_mut(HELPER) {
            *fd = sys::poll_fd(self.helped.as_ref().map_or(-1, Helped::fd), libc::POLLIN);
        }
    }

    /// The counters of each entry, with the subsystem in the entry's request.
    pub fn counters(&self) -> impl Iterator<Item = Counter> {
        let of = |opened: &Opened| opened.port.counters().into_iter().map(Counter::of(opened.subsystem));
        self.entries.iter().flat_map(of)
    }

    /// A counter of an entry; `None` if there is no entry or no counter of this name.
    #[must_use]
    pub fn counter(&self, entry: &str, counter: &str) -> Option<u64> {
        let mut all = self.counters();
        let found = all.find(|one| (one.subsystem.name, one.count.name) == (entry, counter));
        found.map(|one| one.count.value)
    }

    /// Removes everything that was installed. Dropping the value does the same and only logs failures.
    ///
    /// # Errors
    /// The parts that could not be removed, and the reason.
    pub fn close(mut self) -> Result<(), OpenError> {
        self.flush();
        // The entries' own rules go before the routes of marked packets.
        let own = self.entries.drain(..).map(|opened| opened.port.close()).fold(Ok(()), Result::and);
        self.interception.take().map_or(Ok(()), Interception::remove).and(own)
    }
}
