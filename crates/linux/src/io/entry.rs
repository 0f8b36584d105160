//! The open ports of entry.
//!
//! Each kind of [`Entry`] has a file with a type that implements [`Port`]; [`open`] is the only place that lists the
//! kinds.

use std::net::IpAddr;

use signalbox_core::metrics::Subsystem;
use signalbox_core::node::TransmitError;
use signalbox_core::packet::{Received, Transmit};
use signalbox_core::{Count, Entry, EntryRequest};
use socket2::Socket;

use super::IoConfig;
use super::echo::EchoPort;
use super::ip::IpPort;
use super::udp::{self, UdpPort};
use crate::error::OpenError;
use crate::netlink::Routes;
use crate::sys::mmsg::Datagram;

/// A function that reads the kernel's data of a packet; `None` if the packet cannot be read.
pub(super) type Read = for<'a> fn(Entry, &Datagram<'a>) -> Option<Received<'a>>;

/// A packet that was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The entry by which it was to leave.
    pub entry: Entry,
    /// The destination of the packet.
    pub dst: IpAddr,
    /// Why it was not sent.
    pub error: TransmitError,
}

/// A packet that a router or host could not deliver, as it reported by ICMP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undeliverable {
    /// The entry by which the packet was sent.
    pub entry: Entry,
    /// The destination of the packet.
    pub dst: IpAddr,
    /// The beginning of its payload, as far as the report quotes it: at most 256 octets.
    pub quoted: Vec<u8>,
}

/// The sockets of one kind of entry.
pub(super) trait Port: Send {
    /// The sockets that receive, IPv4's first.
    fn sockets(&self) -> &[Option<Socket>];

    /// The function that reads the packets of a socket.
    fn read(&self, socket: usize) -> Read;

    /// Takes a packet that a socket received. False: it is not for the node.
    fn admit(&mut self, _socket: usize, _datagram: &Datagram<'_>) -> bool {
        true
    }

    /// Counts a receive call that returned `packets` packets, of which `truncated` did not fit.
    fn count_received(&mut self, packets: u64, truncated: u64);

    /// Whether reports of ICMP about what it sent are wanted.
    fn has_reports(&self) -> bool {
        false
    }

    /// Appends a packet to the send queue; a full queue is sent at once.
    fn send(&mut self, transmit: &Transmit<'_>, routes: &mut Routes, failures: &mut Vec<Failure>);

    /// Sends the queued packets.
    fn flush(&mut self, failures: &mut Vec<Failure>);

    /// Whether the interception of the port leads packets of a family to this node by the route for marked packets.
    fn needs_route(&self, _ipv6: bool) -> bool {
        false
    }

    /// The counters of the port.
    fn counters(&self) -> Vec<Count>;

    /// Removes the interception rule of the port, if it has one of its own.
    fn close(self: Box<Self>) -> Result<(), OpenError>;
}

/// An entry that is open.
pub(super) struct Opened {
    pub(super) entry: Entry,
    pub(super) subsystem: Subsystem,
    pub(super) port: Box<dyn Port>,
    /// Whether each of the sockets may have packets.
    pub(super) ready: Vec<bool>,
}

impl Opened {
    fn new(request: &EntryRequest, port: Box<dyn Port>) -> Self {
        let ready = vec![true; port.sockets().len()];
        Self { entry: request.entry, subsystem: request.subsystem, port, ready }
    }
}

/// An entry whose sockets another process has opened.
pub(super) fn adopt(request: &EntryRequest, port: u16, sockets: udp::Sockets) -> Opened {
    let port: Box<dyn Port> = Box::new(UdpPort::adopt(port, request, sockets));
    Opened::new(request, port)
}

/// Opens an entry.
pub(super) fn open(request: &EntryRequest, config: &IoConfig) -> Result<Opened, OpenError> {
    let port: Box<dyn Port> = match request.entry {
        Entry::Udp(port) => Box::new(UdpPort::open(port, request, config)?),
        Entry::Ip(protocol) => Box::new(IpPort::open(protocol, request, config)?),
        Entry::IcmpEcho(magic) => Box::new(EchoPort::open(magic, request, config)?),
    };
    Ok(Opened::new(request, port))
}
