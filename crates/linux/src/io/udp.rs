//! Datagrams of one UDP port. For each IP version there are one UDP socket, which receives and sends, one raw socket,
//! which sends datagrams with another source port, and two raw sockets for datagrams that may have no receiver: those to
//! senders that have proved nothing, and those with a Router Alert, which go to the end of a flow. While such datagrams wait
//! for a link-layer address that no node has, they fill the buffer of their socket and no other.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use signalbox_core::node::{RouteQuery, TransmitError};
use signalbox_core::packet::{Received, Transmit};
use signalbox_core::{Count, Entry, EntryRequest, IfIndex, Reach};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use super::IoConfig;
use super::entry::{Failure, Port, Read};
use super::families::{
    DATAGRAMS_FAILED, DATAGRAMS_RECEIVED, DATAGRAMS_SEGMENTED, DATAGRAMS_SENT, SOCKET_CALLS,
};
use super::queue::Queue;
use super::report;
use crate::error::OpenError;
use crate::helper::CHANNELS;
use crate::netlink::Routes;
use crate::sys::cmsg::{Messages, int};
use crate::sys::mmsg::Datagram;
use crate::sys::{self, set_mark, set_option, sockaddr};

// Constants of linux/in6.h; libc lacks some of them.
const IPV6_RECVORIGDSTADDR: i32 = 74;
const IPV6_TRANSPARENT: i32 = 75;
/// The control message with the original IPv6 destination.
const IPV6_ORIGDSTADDR: i32 = 74;
/// The error of a port that is bound already.
const IN_USE: &str = "port-in-use";
/// How often a port is bound that another process keeps from being shared.
const TRIES: u32 = 100;
/// Octets of each send buffer for datagrams that may have no receiver. The kernel counts about 800 for a small
/// datagram, and gives up after three seconds.
pub(super) const DOUBTFUL_BUFFER: usize = 4 << 20;

signalbox_core::counters! {
    /// The counters of one UDP port.
    pub struct UdpCounters {
        /// Datagrams received.
        received: u64 => DATAGRAMS_RECEIVED { transport: "udp" },
        /// Receive calls that returned at least one datagram.
        receive_calls: u64 => SOCKET_CALLS { direction: "receive" },
        /// Datagrams received that were dropped because they or their IP options did not fit into the buffer.
        receive_truncated: u64 => DATAGRAMS_FAILED { transport: "udp", direction: "receive", reason: "too_large" },
        /// Datagrams passed to the kernel.
        sent: u64 => DATAGRAMS_SENT { transport: "udp" },
        /// Send calls.
        send_calls: u64 => SOCKET_CALLS { direction: "send" },
        /// Datagrams sent in one call with others to the same peer (UDP_SEGMENT).
        sent_segmented: u64 => DATAGRAMS_SEGMENTED,
        /// Datagrams that the kernel refused to send.
        send_refused: u64 => DATAGRAMS_FAILED { transport: "udp", direction: "send", reason: "refused" },
        /// Datagrams not sent because the send buffer stayed full.
        send_overflow: u64 => DATAGRAMS_FAILED { transport: "udp", direction: "send", reason: "buffer_full" },
    }
}

/// The sockets of one UDP port, and the datagrams that wait to be sent.
pub(super) struct UdpPort {
    entry: Entry,
    /// The port of the UDP sockets; `None` if this entry only sends, by the raw sockets.
    port: Option<u16>,
    /// Whether reports of ICMP are wanted.
    reports: bool,
    sockets: Sockets,
    queue: Queue,
    counters: UdpCounters,
}

impl UdpPort {
    pub(super) fn open(port: u16, request: &EntryRequest, config: &IoConfig) -> Result<Self, OpenError> {
        let sockets = Sockets::open(port, request, config)?;
        Ok(Self::adopt(port, request, sockets))
    }

    /// Uses sockets that are open.
    pub(super) fn adopt(port: u16, request: &EntryRequest, sockets: Sockets) -> Self {
        let port = request.receive.then_some(port);
        Self {
            entry: request.entry,
            port,
            reports: request.reports,
            queue: if sockets.relayed { Queue::relayed() } else { Queue::default() },
            sockets,
            counters: UdpCounters::default(),
        }
    }
}

impl Port for UdpPort {
    fn sockets(&self) -> &[Option<Socket>] {
        &self.sockets.udp
    }

    fn read(&self, _: usize) -> Read {
        read
    }

    fn count_received(&mut self, packets: u64, truncated: u64) {
        self.counters.receive_calls += 1;
        self.counters.received += packets;
        self.counters.receive_truncated += truncated;
    }

    fn has_reports(&self) -> bool {
        self.reports
    }

    fn send(&mut self, transmit: &Transmit<'_>, routes: &mut Routes, failures: &mut Vec<Failure>) {
        let mut transmit = *transmit;
        if Some(transmit.src.port()) != self.port && transmit.src.ip().is_unspecified() {
            // Only the UDP socket can leave the choice of an address to the kernel.
            match routes.lookup(&RouteQuery::to(transmit.dst.ip())) {
                Ok(route) => transmit.src.set_ip(route.src),
                Err(_) => {
                    self.counters.send_refused += 1;
                    return self.queue.fail(transmit.dst.ip(), TransmitError::Unreachable);
                }
            }
        }
        transmit.gateway = detour(&transmit, routes);
        self.queue.push(&transmit, self.port);
        if self.queue.is_full() {
            self.flush(failures);
        }
    }

    fn flush(&mut self, failures: &mut Vec<Failure>) {
        self.queue.send(&mut self.sockets, &mut self.counters);
        let entry = self.entry;
        failures.extend(self.queue.drain_failures().map(|(dst, error)| Failure { entry, dst, error }));
    }

    fn counters(&self) -> Vec<Count> {
        self.counters.iter().collect()
    }

    /// Does nothing: the rules of all UDP ports are installed and removed together (`crate::intercept`).
    fn close(self: Box<Self>) -> Result<(), OpenError> {
        Ok(())
    }
}

/// The next hop of a packet, if the kernel would choose another one. The raw sockets send the packet there: with the header
/// included, the address to which a packet is sent is its next hop and not its destination.
pub(super) fn detour(transmit: &Transmit<'_>, routes: &mut Routes) -> Option<IpAddr> {
    let (dst, oif, gateway) = (transmit.dst.ip(), transmit.ifindex?, transmit.gateway?);
    let chosen = !transmit.src.ip().is_unspecified() && gateway.is_ipv4() == dst.is_ipv4();
    (chosen && !dst.is_multicast() && !routes.leads_by(dst, oif, gateway)).then_some(gateway)
}

fn read<'a>(entry: Entry, datagram: &Datagram<'a>) -> Option<Received<'a>> {
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
            // The interface is the first field of in_pktinfo and the last field of in6_pktinfo.
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
    Some(Received {
        entry,
        src,
        dst: dst?,
        ifindex: IfIndex(ifindex?.unsigned_abs()),
        ttl: u8::try_from(ttl?).ok()?,
        tos: (tos & 0xff) as u8,
        options,
        payload: datagram.payload,
    })
}

/// The socket by which a datagram leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    Udp4,
    Udp6,
    Raw4,
    Raw6,
    Unproved4,
    Unproved6,
    Alerted4,
    Alerted6,
}

impl Path {
    /// Whether a full send buffer may delay this and the following datagrams.
    pub(super) const fn may_wait(self) -> bool {
        matches!(self, Self::Udp4 | Self::Udp6 | Self::Raw4 | Self::Raw6)
    }

    /// Whether the whole IP packet is composed here.
    pub(super) const fn is_raw(self) -> bool {
        !matches!(self, Self::Udp4 | Self::Udp6)
    }
}

/// The sockets of one port.
pub(crate) struct Sockets {
    udp: [Option<Socket>; 2],
    raw: [Option<Socket>; 2],
    unproved: [Option<Socket>; 2],
    alerted: [Option<Socket>; 2],
    /// Whether whole packets go through channels to the helper, and by no raw socket.
    relayed: bool,
    /// Whether the IPv4 socket sets DF at present; `None` if that is not known.
    dont_fragment: Option<bool>,
}

impl Sockets {
    pub(crate) fn open(port: u16, request: &EntryRequest, config: &IoConfig) -> Result<Self, OpenError> {
        let mut sockets = Self::open_bound(port, request, config)?;
        for (slot, (wanted, domain)) in families(config).into_iter().enumerate() {
            if wanted {
                sockets.raw[slot] = Some(open_raw(domain, config)?);
                for place in [&mut sockets.unproved[slot], &mut sockets.alerted[slot]] {
                    *place = Some(open_doubtful(domain, config)?);
                }
            }
        }
        Ok(sockets)
    }

    /// Opens the sockets that are bound to the port, and none that sends whole packets.
    pub(crate) fn open_bound(
        port: u16,
        request: &EntryRequest,
        config: &IoConfig,
    ) -> Result<Self, OpenError> {
        Self::open_sharing(port, request, config, false)
    }

    fn open_sharing(
        port: u16,
        request: &EntryRequest,
        config: &IoConfig,
        shares: bool,
    ) -> Result<Self, OpenError> {
        let port = request.receive.then_some(port);
        let mut udp = [None, None];
        for (slot, (wanted, domain)) in families(config).into_iter().enumerate() {
            if wanted {
                udp[slot] = port.map(|port| open_udp(domain, port, config, shares)).transpose()?;
                if let Some(socket) = udp[slot].as_ref().filter(|_| request.reports) {
                    report::switch_on(socket, domain == Domain::IPV6)
                        .map_err(|error| OpenError::system("reports of ICMP", &error))?;
                }
            }
        }
        Ok(Self::of_bound(udp))
    }

    fn of_bound(udp: [Option<Socket>; 2]) -> Self {
        let [raw, unproved, alerted] = [const { [None, None] }; 3];
        Self { udp, raw, unproved, alerted, relayed: false, dont_fragment: None }
    }

    /// Makes each bound socket receive datagrams to its port only, in every process: the filter is locked.
    pub(crate) fn lock(&self, port: u16, request: &EntryRequest) -> io::Result<()> {
        // Some rules pass datagrams to other ports.
        let any = request.intercept.iter().any(|rule| rule.reach == Reach::TranslatedAnyPort);
        for socket in self.udp.iter().flatten() {
            socket.attach_filter(&port_filter((!any).then_some(port)))?;
            set_option(socket, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1)?;
        }
        Ok(())
    }

    /// New sockets of the same port. Another process that had these may have spoiled them for good: one that was shut down sends nothing
    /// any more. It may also keep them, so the port is shared while the new ones are bound. The kernel gives datagrams to the socket
    /// that was bound last.
    pub(crate) fn anew(
        &self,
        port: u16,
        request: &EntryRequest,
        config: &IoConfig,
    ) -> Result<Self, OpenError> {
        let system = |error| OpenError::system("sharing the port", &error);
        let mut tries = 0;
        let new = loop {
            share(&self.udp, true).map_err(system)?;
            // The other process may undo that before the port is bound.
            match Self::open_sharing(port, request, config, true) {
                Err(error) if error.id == IN_USE && tries < TRIES => tries += 1,
                opened => break opened?,
            }
        };
        for sockets in [&self.udp, &new.udp] {
            share(sockets, false).map_err(system)?;
        }
        // A socket that is connected, or of one interface, would go before.
        for former in self.udp.iter().flatten() {
            sys::disconnect(former).and_then(|()| former.bind_device(None)).map_err(system)?;
        }
        Ok(new)
    }

    /// The descriptors of the bound sockets, and a mask of their places.
    pub(crate) fn descriptors(&self) -> (u8, Vec<RawFd>) {
        self.udp.iter().enumerate().fold((0, Vec::new()), |(mask, mut all), (at, socket)| {
            all.extend(socket.as_ref().map(AsRawFd::as_raw_fd));
            (mask | u8::from(socket.is_some()) << at, all)
        })
    }

    /// Sockets that another process has opened, as [`Sockets::descriptors`] describes them, and channels to that process for
    /// whole packets.
    pub(crate) fn adopt(
        mask: u8,
        descriptors: Vec<OwnedFd>,
        channels: &[Socket; CHANNELS],
        config: &IoConfig,
    ) -> io::Result<Self> {
        let mut rest = descriptors.into_iter().map(Socket::from);
        let mut place = |at: u8| if mask >> at & 1 == 1 { rest.next() } else { None };
        let mut sockets = Self { relayed: true, ..Self::of_bound([place(0), place(1)]) };
        let [raw, unproved, alerted] = channels;
        for (slot, (wanted, _)) in families(config).into_iter().enumerate() {
            if wanted {
                sockets.raw[slot] = Some(raw.try_clone()?);
                sockets.unproved[slot] = Some(unproved.try_clone()?);
                sockets.alerted[slot] = Some(alerted.try_clone()?);
            }
        }
        Ok(sockets)
    }

    /// The socket for `path`, if its family is open.
    pub(super) fn fd(&self, path: Path) -> Option<RawFd> {
        let socket = match path {
            Path::Udp4 => &self.udp[0],
            Path::Udp6 => &self.udp[1],
            Path::Raw4 => &self.raw[0],
            Path::Raw6 => &self.raw[1],
            Path::Unproved4 => &self.unproved[0],
            Path::Unproved6 => &self.unproved[1],
            Path::Alerted4 => &self.alerted[0],
            Path::Alerted6 => &self.alerted[1],
        };
        socket.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Makes the IPv4 UDP socket set DF or not. There is no control message for it, and a second socket on the port
    /// would receive datagrams of the first. Setting the option at each change costs a tenth of a send.
    pub(super) fn set_dont_fragment(&mut self, on: bool) {
        let Some(socket) = &self.udp[0] else { return };
        if self.dont_fragment != Some(on) {
            let value = if on { libc::IP_PMTUDISC_DO } else { libc::IP_PMTUDISC_DONT };
            if set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value).is_ok() {
                self.dont_fragment = Some(on);
            }
        }
    }
}

/// Whether others can be bound to the port of these sockets.
fn share(sockets: &[Option<Socket>], on: bool) -> io::Result<()> {
    sockets.iter().flatten().try_for_each(|socket| socket.set_reuse_address(on))
}

/// `shares`: others may be bound to the port.
fn open_udp(domain: Domain, port: u16, config: &IoConfig, shares: bool) -> Result<Socket, OpenError> {
    let ipv6 = domain == Domain::IPV6;
    let name = if ipv6 { "UDP socket for IPv6" } else { "UDP socket for IPv4" };
    let system = |error: io::Error| OpenError::system(name, &error);
    let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP)).map_err(|error| {
        if ipv6 && error.raw_os_error() == Some(libc::EAFNOSUPPORT) {
            let remedy = "switch IPv6 off in the configuration";
            return OpenError::new("no-ipv6", "this kernel has no IPv6", remedy);
        }
        system(error)
    })?;

    if ipv6 {
        // It cannot be set any more when the socket is bound.
        set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1).map_err(system)?;
    }
    configure(&socket, ipv6, config).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => OpenError::net_admin("sending from a flow's own address", &error),
        _ => system(error),
    })?;
    let address: SocketAddr =
        if ipv6 { (Ipv6Addr::UNSPECIFIED, port).into() } else { (Ipv4Addr::UNSPECIFIED, port).into() };
    // SO_REUSEADDR is not set for a daemon: a second one would receive the first one's datagrams without an error.
    socket.set_reuse_address(shares).map_err(system)?;
    config.scope.bind_port(&socket, address).map_err(|error| match error.raw_os_error() {
        Some(libc::EACCES) => OpenError::bind_service(port, &error),
        Some(libc::EADDRINUSE) => OpenError::new(
            IN_USE,
            format!("UDP port {} is taken ({error})", port),
            format!("another daemon runs in this network namespace: `ss -lunp sport = :{}`", port),
        ),
        _ => system(error),
    })?;
    Ok(socket)
}

/// Sets the options of a UDP socket.
fn configure(socket: &Socket, ipv6: bool, config: &IoConfig) -> io::Result<()> {
    let (level, transparent) = transparent(ipv6);
    set_option(socket, level, transparent, 1)?;
    let wanted: &[i32] = if ipv6 {
        &[
            libc::IPV6_RECVPKTINFO,
            libc::IPV6_RECVHOPLIMIT,
            libc::IPV6_RECVTCLASS,
            libc::IPV6_RECVHOPOPTS,
            IPV6_RECVORIGDSTADDR,
        ]
    } else {
        &[libc::IP_PKTINFO, libc::IP_RECVTTL, libc::IP_RECVTOS, libc::IP_RECVOPTS, libc::IP_RECVORIGDSTADDR]
    };
    for option in wanted {
        set_option(socket, level, *option, 1)?;
    }
    set_mark(socket, config.own_mark)?;
    buffer(socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, config.receive_buffer);
    buffer(socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, config.send_buffer);
    Ok(())
}

/// The configured families.
const fn families(config: &IoConfig) -> [(bool, Domain); 2] {
    [(config.ipv4, Domain::IPV4), (config.ipv6, Domain::IPV6)]
}

/// A filter that takes datagrams to `port`; `None`: to each port.
fn port_filter(port: Option<u16>) -> Vec<SockFilter> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let take = SockFilter::new(RETURN, 0, 0, u32::MAX);
    match port {
        // The filter of a UDP socket sees the UDP header first.
        Some(port) => vec![
            SockFilter::new(LOAD, 0, 0, 2),
            SockFilter::new(EQUAL, 0, 1, port.into()),
            take,
            SockFilter::new(RETURN, 0, 0, 0),
        ],
        None => vec![take],
    }
}

/// A raw socket of the helper for a kind of packets; `doubtful`: these may have no receiver.
pub(crate) fn open_relayed(domain: Domain, config: &IoConfig, doubtful: bool) -> Result<Socket, OpenError> {
    if doubtful { open_doubtful(domain, config) } else { open_raw(domain, config) }
}

/// A raw socket for packets that may have no receiver.
pub(super) fn open_doubtful(domain: Domain, config: &IoConfig) -> Result<Socket, OpenError> {
    let socket = open_raw(domain, config)?;
    buffer(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, DOUBTFUL_BUFFER);
    Ok(socket)
}

fn open_raw(domain: Domain, config: &IoConfig) -> Result<Socket, OpenError> {
    let protocol = Protocol::from(libc::IPPROTO_RAW); // headers included; receives nothing
    let socket = Socket::new(domain, Type::RAW.nonblocking(), Some(protocol))
        .map_err(|error| OpenError::net_raw("forwarding packets with their own source port", &error))?;
    set_mark(&socket, config.own_mark)
        .map_err(|error| OpenError::net_admin("marking what is forwarded", &error))?;
    config.scope.bind(&socket).map_err(|error| OpenError::system("a socket of the VRF", &error))?;
    Ok(socket)
}

/// The level and name of the option that lets a socket send from a foreign address.
pub(super) const fn transparent(ipv6: bool) -> (i32, i32) {
    if ipv6 { (libc::IPPROTO_IPV6, IPV6_TRANSPARENT) } else { (libc::IPPROTO_IP, libc::IP_TRANSPARENT) }
}

/// Sets a buffer as large as allowed: the forced size needs a capability in the initial namespace.
pub(super) fn buffer(socket: &Socket, forced: i32, asked: i32, octets: usize) {
    let octets = i32::try_from(octets).unwrap_or(i32::MAX);
    if set_option(socket, libc::SOL_SOCKET, forced, octets).is_err() {
        let _ = set_option(socket, libc::SOL_SOCKET, asked, octets);
    }
}
