//! ICMP and ICMPv6 Echo messages that begin with a magic number, to this node and passing by.
//!
//! Rules of nftables pass those that other nodes send through this one, and requests to this node, to a queue of netfilter,
//! behind all rules of the administrator at the same hooks (`filter.rs`, `queue.rs`). What the engine sends on is the verdict about
//! the packet that waits (`waiting.rs`): the kernel routes, filters and fragments it as any other packet. The sockets that
//! send cannot send from the address of another node.
//!
//! Of a packet of a VRF the queue names the device of the VRF, and not the interface. The rule in front of the queue therefore gives the
//! packet the number of the interface as mark, for as long as it waits. A packet with a mark of other programs is left to the kernel:
//! it would lose it.
//!
//! The table belongs to a netlink socket of this process, and the queue to another. When the daemon ends, the kernel removes
//! both, and forwards and answers these messages as any others. When it hangs, another process releases what waits
//! (`sys/watch.rs`).
//!
//! Raw sockets receive replies to this node, and Destination Unreachables about its requests. The kernel handles these as always,
//! and without interception it answers requests.

mod filter;
mod queue;
mod waiting;

use std::io::PipeWriter;
use std::os::fd::AsRawFd;

use signalbox_core::packet::Transmit;
use signalbox_core::{Count, EntryRequest, Intercept};
use socket2::{Domain, Socket};

use super::IoConfig;
use super::entry::{Failure, Port, Read};
use super::families::{DATAGRAMS_FAILED, DATAGRAMS_RECEIVED, DATAGRAMS_SENT};
use super::raw::{Sent, Sockets};
use super::{ip, udp};
use crate::error::OpenError;
use crate::netlink::Routes;
use crate::sys::mmsg::Datagram;
use crate::sys::{set_option, watch};
use filter::{Divert, Diverted, Rule};
use queue::Queued;
use waiting::Waitings;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const IPV6_HEADER: usize = 40;
/// The places of the queues among the sockets that receive, those of the raw sockets follow.
const QUEUES: usize = 2;

signalbox_core::counters! {
    /// The counters of the sockets of Echo messages with one magic number.
    pub struct EchoCounters {
        /// Packets received.
        received: u64 => DATAGRAMS_RECEIVED { transport: "icmp" },
        /// Packets received that were dropped because they did not fit into the buffer.
        unreadable: u64 => DATAGRAMS_FAILED { transport: "icmp", direction: "receive", reason: "too_large" },
        /// Packets passed to the kernel.
        sent: u64 => DATAGRAMS_SENT { transport: "icmp" },
        /// Packets that the kernel refused to send.
        unsent: u64 => DATAGRAMS_FAILED { transport: "icmp", direction: "send", reason: "refused" },
    }
}

/// The sockets of Echo messages with one magic number.
pub(super) struct EchoPort {
    /// The raw sockets that send.
    raw: Sockets,
    /// The sockets that receive: the queues of IPv4 and IPv6, and the raw sockets.
    sockets: [Option<Socket>; 4],
    /// The packets of the queues.
    waiting: [Option<Waitings>; QUEUES],
    /// Whether the packets of the queues are those of a VRF.
    vrf: bool,
    counters: EchoCounters,
    /// The rules that lead to the queues.
    diverts: Vec<Divert>,
    /// The process that releases what waits for too long; it ends with this value.
    _watch: Option<PipeWriter>,
}

impl EchoPort {
    /// Opens the sockets, and installs the interception if the configuration allows it.
    pub(super) fn open(magic: u32, request: &EntryRequest, config: &IoConfig) -> Result<Self, OpenError> {
        let raw = Sockets::open(config, request, |domain| send_only(domain, config))?;
        let wanted = [(config.ipv4, false), (config.ipv6, true)];
        let listen = |(wanted, ipv6): (bool, bool)| wanted.then(|| listen(ipv6, magic, config)).transpose();
        let mut port = Self {
            raw,
            sockets: [None, None, listen(wanted[0])?, listen(wanted[1])?],
            waiting: [None, None],
            vrf: !config.scope.is_all(),
            counters: EchoCounters::default(),
            diverts: Vec::new(),
            _watch: None,
        };
        if let Some(intercept) = request.intercept.first().filter(|_| config.intercept) {
            port.intercept(magic, request, intercept, config)?;
        }
        Ok(port)
    }

    fn intercept(
        &mut self,
        magic: u32,
        request: &EntryRequest,
        intercept: &Intercept,
        config: &IoConfig,
    ) -> Result<(), OpenError> {
        let mut queues = Vec::new();
        let places = self.sockets.iter_mut().zip(&mut self.waiting);
        for ((socket, waiting), (wanted, ipv6)) in places.zip([(config.ipv4, false), (config.ipv6, true)]) {
            if !wanted {
                continue;
            }
            let (opened, number) = queue::open(config)?;
            queues.push((opened.as_raw_fd(), number));
            *socket = Some(opened);
            *waiting = Some(Waitings::new(number, config.own_mark));
            let diverted = Diverted {
                ipv6,
                magic,
                matches: &intercept.matches,
                interfaces: &request.interfaces,
                queue: number,
                unproved: request.unproved.as_ref(),
                scope: &config.scope,
            };
            self.diverts.push(Divert::lay(&diverted)?);
        }
        match watch::start(&queues, queue::release) {
            Ok(alive) => self._watch = Some(alive),
            Err(error) => tracing::warn!(
                %error,
                "no process watches the queue: should this one hang, passing messages wait for it"
            ),
        }
        Ok(())
    }
}

impl Port for EchoPort {
    fn sockets(&self) -> &[Option<Socket>] {
        &self.sockets
    }

    fn read(&self, socket: usize) -> Read {
        match (socket < QUEUES, self.vrf) {
            (true, false) => queue::read,
            (true, true) => queue::read_of_vrf,
            (false, _) => ip::read,
        }
    }

    fn admit(&mut self, socket: usize, datagram: &Datagram<'_>) -> bool {
        let Some(Some(waiting)) = self.waiting.get_mut(socket) else { return true };
        // What is no packet is the kernel's answer about a verdict: the packet was released meanwhile.
        Queued::read(datagram, self.vrf).is_some_and(|queued| waiting.admit(&queued))
    }

    fn count_received(&mut self, packets: u64, truncated: u64) {
        self.counters.received += packets.saturating_sub(truncated);
        self.counters.unreadable += truncated;
    }

    fn send(&mut self, transmit: &Transmit<'_>, routes: &mut Routes, failures: &mut Vec<Failure>) {
        let place = usize::from(transmit.dst.is_ipv6());
        if let (Some(Some(waiting)), Some(Some(socket))) =
            (self.waiting.get_mut(place), self.sockets.get(place))
            && waiting.release(transmit)
        {
            if waiting.is_full() {
                waiting.send(socket);
            }
            return;
        }
        self.raw.send(transmit, routes, failures);
    }

    fn flush(&mut self, failures: &mut Vec<Failure>) {
        for (waiting, socket) in self.waiting.iter_mut().zip(&self.sockets) {
            if let (Some(waiting), Some(socket)) = (waiting, socket) {
                waiting.flush(socket);
                self.counters.sent += waiting.take_released();
            }
        }
        self.raw.flush(failures);
    }

    fn counters(&self) -> Vec<Count> {
        let Sent { sent, unsent } = self.raw.done();
        EchoCounters { sent: self.counters.sent + sent, unsent, ..self.counters }.iter().collect()
    }

    fn close(self: Box<Self>) -> Result<(), OpenError> {
        // From here on the kernel forwards and answers these messages.
        let removed = self.diverts.into_iter().map(Divert::remove).fold(Ok(()), Result::and);
        for (waiting, socket) in self.waiting.iter().zip(&self.sockets) {
            if let (Some(waiting), Some(socket)) = (waiting, socket)
                && let Err(error) = waiting.end(socket)
            {
                tracing::debug!(%error, "messages in the queue are lost");
            }
        }
        removed
    }
}

/// A raw socket that sends, from addresses of this node alone.
fn send_only(domain: Domain, config: &IoConfig) -> Result<Socket, OpenError> {
    let ipv6 = domain == Domain::IPV6;
    let socket = ip::open(domain, if ipv6 { ICMPV6 } else { ICMP }, false, config)?;
    let (level, transparent) = udp::transparent(ipv6);
    let system = |error| OpenError::system("socket for ICMP Echo", &error);
    set_option(&socket, level, transparent, 0).map_err(system)?;
    socket.attach_filter(&filter::program(&[])).map_err(system)?;
    Ok(socket)
}

/// A raw socket that receives what is for this node.
fn listen(ipv6: bool, magic: u32, config: &IoConfig) -> Result<Socket, OpenError> {
    let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = ip::open(domain, if ipv6 { ICMPV6 } else { ICMP }, false, config)?;
    let rules = [Rule::replies(ipv6, magic), Rule::unreachables(ipv6, magic)].concat();
    let system = |error| OpenError::system("socket for ICMP Echo", &error);
    socket.attach_filter(&filter::program(&rules)).map_err(system)?;
    Ok(socket)
}
