//! The sockets: one UDP socket for each family that receives and sends, one raw socket that sends what has
//! another source port.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

use socket2::{Domain, Protocol, Socket, Type};

use super::IoConfig;
use crate::error::OpenError;
use crate::sys::{set_mark, set_option};

// linux/in6.h; libc has not got all of them.
const IPV6_RECVORIGDSTADDR: i32 = 74;
const IPV6_TRANSPARENT: i32 = 75;

/// Which socket a datagram takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    Udp4,
    Udp6,
    Raw4,
    Raw6,
}

pub(super) struct Sockets {
    udp: [Option<Socket>; 2],
    raw: [Option<Socket>; 2],
    /// Whether the IPv4 socket sets DF at present.
    dont_fragment: Option<bool>,
}

impl Sockets {
    pub(super) fn open(config: &IoConfig) -> Result<Self, OpenError> {
        let families = [(config.ipv4, Domain::IPV4), (config.ipv6, Domain::IPV6)];
        let mut sockets = Self { udp: [None, None], raw: [None, None], dont_fragment: None };
        for (slot, (wanted, domain)) in families.into_iter().enumerate() {
            if wanted {
                sockets.udp[slot] = Some(open_udp(domain, config)?);
                sockets.raw[slot] = Some(open_raw(domain, config.own_mark)?);
            }
        }
        Ok(sockets)
    }

    /// The sockets that receive.
    pub(super) fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.udp.iter().flatten().map(AsRawFd::as_raw_fd)
    }

    /// The socket for `path`, if that family is open.
    pub(super) fn fd(&self, path: Path) -> Option<RawFd> {
        let socket = match path {
            Path::Udp4 => &self.udp[0],
            Path::Udp6 => &self.udp[1],
            Path::Raw4 => &self.raw[0],
            Path::Raw6 => &self.raw[1],
        };
        socket.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Makes the IPv4 UDP socket set DF or not. There is no control message for it, and a second socket on
    /// the port would take datagrams from the first; setting the option when it changes costs a tenth of a
    /// send.
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

fn open_udp(domain: Domain, config: &IoConfig) -> Result<Socket, OpenError> {
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

    let (level, transparent) = transparent(ipv6);
    set_option(&socket, level, transparent, 1)
        .map_err(|error| OpenError::net_admin("sending from a flow's own address", &error))?;
    let wanted: &[i32] = if ipv6 {
        &[
            libc::IPV6_V6ONLY,
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
        set_option(&socket, level, *option, 1).map_err(system)?;
    }
    set_mark(&socket, config.own_mark).map_err(system)?;
    buffer(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, config.receive_buffer);
    buffer(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, config.send_buffer);

    let address: SocketAddr = if ipv6 {
        (Ipv6Addr::UNSPECIFIED, config.port).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, config.port).into()
    };
    // Without SO_REUSEADDR: a second daemon would silently take the first one's datagrams.
    socket.bind(&address.into()).map_err(|error| match error.raw_os_error() {
        Some(libc::EACCES) => OpenError::bind_service(config.port, &error),
        Some(libc::EADDRINUSE) => OpenError::new(
            "port-in-use",
            format!("UDP port {} is taken ({error})", config.port),
            format!("another daemon runs in this network namespace: `ss -lunp sport = :{}`", config.port),
        ),
        _ => system(error),
    })?;
    Ok(socket)
}

fn open_raw(domain: Domain, mark: u32) -> Result<Socket, OpenError> {
    let protocol = Protocol::from(libc::IPPROTO_RAW); // headers included; receives nothing
    let socket = Socket::new(domain, Type::RAW.nonblocking(), Some(protocol))
        .map_err(|error| OpenError::net_raw("forwarding packets with their own source port", &error))?;
    set_mark(&socket, mark).map_err(|error| OpenError::net_admin("marking what is forwarded", &error))?;
    Ok(socket)
}

/// Level and name of the option that lets a socket send from a foreign address.
pub(crate) const fn transparent(ipv6: bool) -> (i32, i32) {
    if ipv6 { (libc::IPPROTO_IPV6, IPV6_TRANSPARENT) } else { (libc::IPPROTO_IP, libc::IP_TRANSPARENT) }
}

/// As large as allowed: the forced size needs a capability over the initial namespace.
pub(crate) fn buffer(socket: &Socket, forced: i32, asked: i32, octets: usize) {
    let octets = i32::try_from(octets).unwrap_or(i32::MAX);
    if set_option(socket, libc::SOL_SOCKET, forced, octets).is_err() {
        let _ = set_option(socket, libc::SOL_SOCKET, asked, octets);
    }
}
