//! Sockets of a program that requests a diagnosis from RSVP nodes (RFC 2745 §6). Requests leave as raw IP of protocol
//! 46, replies arrive by UDP, and a traceroute finds the nodes that routing would use. No daemon is needed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use signalbox_core::packet::{ROUTER_ALERT_RSVP_V6, router_alert_v6};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::OpenError;
use crate::sys::cmsg::Messages;
use crate::sys::{self, get_option_octets, set_option, set_option_octets, sockaddr};

const RSVP: i32 = 46;
/// The destination port of a traceroute's probes, at which no process is expected to listen.
const PROBE_PORT: u16 = 33434;
/// Origins of errors in the kernel's error queue: ICMP and ICMPv6.
const ICMP: [u8; 2] = [2, 3];
/// Number of successive nodes without an answer after which a traceroute gives up.
const MOST_UNANSWERED: u8 = 4;
/// Octets of an error report (`sock_extended_err`), which the address of the reporting node follows.
const ERROR: usize = 16;

/// The sockets of a diagnosis towards one node.
#[derive(Debug)]
pub struct Requester {
    raw: Socket,
    replies: UdpSocket,
    address: SocketAddr,
    mtu: u32,
}

impl Requester {
    /// Opens the sockets. Requests carry `ttl` as their TTL.
    ///
    /// # Errors
    /// There is no route to `towards`, or the process may not open raw sockets.
    pub fn open(towards: IpAddr, ttl: u8) -> Result<Self, OpenError> {
        let system = |error: io::Error| OpenError::system("socket for a diagnosis", &error);
        let ipv6 = towards.is_ipv6();
        let any: IpAddr = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        // A connected socket gives the source address and the MTU of the route.
        let probe = UdpSocket::bind((any, 0)).map_err(system)?;
        probe.connect((towards, PROBE_PORT)).map_err(|error| {
            OpenError::new(
                "no-route",
                format!("there is no route to {towards} ({error})"),
                "ask for a node that this one can reach",
            )
        })?;
        let own = probe.local_addr().map_err(system)?.ip();
        let (level, option) =
            if ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_MTU) } else { (libc::IPPROTO_IP, libc::IP_MTU) };
        let mut mtu = [0; 4];
        get_option_octets(&probe, level, option, &mut mtu).map_err(system)?;
        let replies = UdpSocket::bind((own, 0)).map_err(system)?;
        let address = replies.local_addr().map_err(system)?;

        let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
        let raw = Socket::new(domain, Type::RAW, Some(Protocol::from(RSVP)))
            .map_err(|error| OpenError::net_raw("asking RSVP nodes", &error))?;
        let hops = i32::from(ttl);
        if ipv6 {
            set_option(&raw, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, hops).map_err(system)?;
            // All RSVP packets carry this Router Alert (RFC 2711 §2.1).
            let alert = router_alert_v6(ROUTER_ALERT_RSVP_V6);
            set_option_octets(&raw, libc::IPPROTO_IPV6, libc::IPV6_HOPOPTS, &alert).map_err(system)?;
        } else {
            set_option(&raw, libc::IPPROTO_IP, libc::IP_TTL, hops).map_err(system)?;
        }
        raw.bind(&SocketAddr::new(own, 0).into()).map_err(system)?;
        // The kernel would copy all RSVP packets for this host to this socket, from which this program does not read.
        raw.set_recv_buffer_size(0).map_err(system)?;
        Ok(Self { raw, replies, address, mtu: u32::from_ne_bytes(mtu) })
    }

    /// This host's address towards the node, and the UDP port at which replies arrive.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The MTU of the route towards the node, in octets.
    #[must_use]
    pub const fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn send(&self, to: IpAddr, octets: &[u8]) -> io::Result<()> {
        self.raw.send_to(octets, &SocketAddr::new(to, 0).into()).map(drop)
    }

    /// Waits for a reply for at most `patience` and returns its octets, or `None` if no reply came.
    ///
    /// # Errors
    /// The kernel's error, except errors that ICMP messages of other nodes caused.
    pub fn receive<'b>(&self, buffer: &'b mut [u8], patience: Duration) -> io::Result<Option<&'b [u8]>> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.replies.set_read_timeout(Some(left))?;
            match self.replies.recv(buffer) {
                Ok(length) => return Ok(buffer.get(..length)),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::Interrupted
                    | io::ErrorKind::ConnectionRefused => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// The nodes on the path to `to`, the nearest first: the nodes that report an expired TTL of 1, 2 and so on within
    /// `patience` each, at most `most` of them.
    ///
    /// # Errors
    /// The kernel's error at one of the sockets.
    pub fn trace(&self, to: IpAddr, most: u8, patience: Duration) -> io::Result<Vec<IpAddr>> {
        let socket = UdpSocket::bind((self.address.ip(), 0))?;
        let ipv6 = to.is_ipv6();
        let (level, errors, hops) = if ipv6 {
            (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, libc::IPV6_UNICAST_HOPS)
        } else {
            (libc::IPPROTO_IP, libc::IP_RECVERR, libc::IP_TTL)
        };
        set_option(&socket, level, errors, 1)?;
        let (mut nodes, mut unanswered) = (Vec::new(), 0);
        for ttl in 1..=most {
            set_option(&socket, level, hops, i32::from(ttl))?;
            // The kernel may report an error of an earlier probe here.
            let port = PROBE_PORT + u16::from(ttl);
            if socket.send_to(&[ttl], (to, port)).is_err() {
                socket.send_to(&[ttl], (to, port))?;
            }
            match reporting_node(&socket, patience)? {
                Some(node) => {
                    unanswered = 0;
                    if !nodes.contains(&node) {
                        nodes.push(node);
                    }
                    if node == to {
                        break;
                    }
                }
                None => unanswered += 1,
            }
            if unanswered >= MOST_UNANSWERED {
                break;
            }
        }
        Ok(nodes)
    }
}

/// The node that first reports an error about a packet of this socket, if one does in time.
fn reporting_node(socket: &UdpSocket, patience: Duration) -> io::Result<Option<IpAddr>> {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        // poll(2) always reports errors.
        let mut fds = [sys::poll_fd(socket.as_raw_fd(), 0)];
        sys::poll(&mut fds, Some(left))?;
        let Some(error) = sys::receive_error(socket, &mut [])? else {
            // An error without a report keeps the socket ready until the error is read.
            socket.take_error()?;
            continue;
        };
        for (_, kind, data) in Messages(&error.control) {
            let reports = kind == libc::IP_RECVERR || kind == libc::IPV6_RECVERR;
            let icmp = data.get(4).is_some_and(|origin| ICMP.contains(origin));
            if let Some(node) = data.get(ERROR..).filter(|_| reports && icmp).and_then(sockaddr::decode) {
                return Ok(Some(node.ip()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::cmsg;

    #[test]
    fn the_node_that_reports_an_error_is_read() {
        let mut error = [0; ERROR + 16];
        error[4] = 2;
        let (name, length) = sockaddr::encode("10.0.0.7:0".parse().unwrap());
        error[ERROR..].copy_from_slice(&name[..length]);
        let mut control = Vec::new();
        cmsg::push(&mut control, libc::IPPROTO_IP, libc::IP_RECVERR, &error);
        let (_, _, data) = Messages(&control).next().unwrap();
        assert_eq!(sockaddr::decode(&data[ERROR..]).unwrap().ip(), "10.0.0.7".parse::<IpAddr>().unwrap());
    }
}
