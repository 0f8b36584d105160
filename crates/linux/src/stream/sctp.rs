//! SCTP sockets of the kernel, one for each association (RFC 6458 §4).

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, Socket, Type};

use super::StreamConfig;
use crate::scope::Scope;
use crate::sys::{get_option_octets, set_option, set_option_octets};

/// Number of streams in each direction that an association requests and accepts.
const STREAMS: u16 = 64;
/// Buffer for several of the largest messages, in each direction.
const BUFFER: usize = 1 << 20;
/// Number of successive timeouts that ends an association.
const RETRANSMISSIONS: u16 = 5;
/// The least and the first retransmission timeout, in milliseconds (RFC 9260 §16).
const TIMEOUT: u32 = 1000;

/// Octets of `struct sctp_status` up to the number of outgoing streams, the last field that is read here.
const STATUS: usize = 20;

/// Whether the kernel supports SCTP. The test loads the kernel's module, if there is one.
#[must_use]
pub fn kernel_speaks_sctp() -> bool {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::SCTP)).is_ok()
}

/// Makes a socket with timeouts and marking set.
pub(super) fn prepared(ipv6: bool, config: &StreamConfig) -> io::Result<Socket> {
    let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::SCTP))?;
    let sctp = libc::IPPROTO_SCTP;
    set_option(&socket, sctp, libc::SCTP_NODELAY, 1)?;
    // struct sctp_initmsg: outgoing streams, incoming streams, attempts, timeout; 0: the system's default
    let [high, low] = STREAMS.to_ne_bytes();
    set_option_octets(&socket, sctp, libc::SCTP_INITMSG, &[high, low, high, low, 0, 0, 0, 0])?;
    // Five timeouts, the last of a quarter of the time: 1 + 2 + 4 s and twice 7.5 s of 30.
    let longest = u32::try_from(config.user_timeout.as_millis() / 4).unwrap_or(u32::MAX).max(TIMEOUT);
    // struct sctp_rtoinfo: association, initial, max, min
    let times = [0, TIMEOUT, longest, TIMEOUT].map(u32::to_ne_bytes);
    set_option_octets(&socket, sctp, libc::SCTP_RTOINFO, times.as_flattened())?;
    // struct sctp_assocparams: association, retransmissions, then fields that 0 leaves unchanged
    let mut limits = [0; 20];
    limits[4..6].copy_from_slice(&RETRANSMISSIONS.to_ne_bytes());
    set_option_octets(&socket, sctp, libc::SCTP_ASSOCINFO, &limits)?;
    socket.set_send_buffer_size(BUFFER)?;
    socket.set_recv_buffer_size(BUFFER)?;
    Ok(socket)
}

/// The number of streams that an established association has in both directions.
pub(super) fn streams(socket: &impl AsRawFd) -> io::Result<u16> {
    let status = status(socket)?;
    let at = |from: usize| status.get(from..from + 2).and_then(|s| s.try_into().ok()).map(u16::from_ne_bytes);
    Ok(at(16).min(at(18)).unwrap_or(0).max(1))
}

/// Whether the peer has not acknowledged all octets that were sent.
pub(super) fn is_unacknowledged(socket: &impl AsRawFd) -> io::Result<bool> {
    status(socket).map(|status| status[12..14] != [0, 0])
}

/// `struct sctp_status`: association, state, peer's window (4 octets each), unacknowledged chunks, chunks to be read,
/// incoming streams, outgoing streams (2 octets each), and more.
fn status(socket: &impl AsRawFd) -> io::Result<[u8; STATUS]> {
    // The kernel fills as much as the buffer holds, but requires space for the whole structure (176 octets today).
    let mut room = [0; 256];
    get_option_octets(socket, libc::IPPROTO_SCTP, libc::SCTP_STATUS, &mut room)?;
    let mut status = [0; STATUS];
    status.copy_from_slice(&room[..STATUS]);
    Ok(status)
}

/// Our address of an accepted association: the source address of packets to this peer. The socket has none, because it
/// is bound to all addresses of this node.
pub(super) fn local(accepted: &TcpStream, peer: SocketAddr, scope: &Scope) -> io::Result<SocketAddr> {
    let named = accepted.local_addr()?;
    if !named.ip().is_unspecified() {
        return Ok(named);
    }
    let domain = if peer.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 };
    let probe = Socket::new(domain, Type::DGRAM, None)?;
    scope.bind(&probe)?;
    probe.connect(&peer.into())?;
    let own = probe.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok(SocketAddr::new(own.ip(), named.port()))
}
