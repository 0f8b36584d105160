//! SCTP sockets of the kernel, one for each association (RFC 6458 §4).

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, Socket, Type};

use super::StreamConfig;
use crate::sys::{get_option_octets, set_option, set_option_octets};

/// Streams in each direction that are asked for and granted.
const STREAMS: u16 = 64;
/// Room for the largest message several times over, each way.
const BUFFER: usize = 1 << 20;
/// Time-outs that end an association, in a row.
const RETRANSMISSIONS: u16 = 5;
/// The least retransmission time-out and the first, in milliseconds (RFC 9260 §16).
const TIMEOUT: u32 = 1000;

/// Octets of `struct sctp_status` up to the number of outgoing streams, its last field that is read here.
const STATUS: usize = 20;

/// Whether the kernel speaks SCTP. To ask it loads its module, if it has one.
#[must_use]
pub fn kernel_speaks_sctp() -> bool {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::SCTP)).is_ok()
}

/// A socket with times and marking set.
pub(super) fn prepared(ipv6: bool, config: &StreamConfig) -> io::Result<Socket> {
    let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::SCTP))?;
    let sctp = libc::IPPROTO_SCTP;
    set_option(&socket, sctp, libc::SCTP_NODELAY, 1)?;
    // struct sctp_initmsg: outgoing streams, incoming streams, attempts, time-out; 0: as the system says
    let [high, low] = STREAMS.to_ne_bytes();
    set_option_octets(&socket, sctp, libc::SCTP_INITMSG, &[high, low, high, low, 0, 0, 0, 0])?;
    // Five time-outs, the last of a quarter of the time: 1 + 2 + 4 s and twice 7.5 s of 30.
    let longest = u32::try_from(config.user_timeout.as_millis() / 4).unwrap_or(u32::MAX).max(TIMEOUT);
    // struct sctp_rtoinfo: association, initial, max, min
    let times = [0, TIMEOUT, longest, TIMEOUT].map(u32::to_ne_bytes);
    set_option_octets(&socket, sctp, libc::SCTP_RTOINFO, times.as_flattened())?;
    // struct sctp_assocparams: association, retransmissions, then what 0 leaves as it is
    let mut limits = [0; 20];
    limits[4..6].copy_from_slice(&RETRANSMISSIONS.to_ne_bytes());
    set_option_octets(&socket, sctp, libc::SCTP_ASSOCINFO, &limits)?;
    socket.set_send_buffer_size(BUFFER)?;
    socket.set_recv_buffer_size(BUFFER)?;
    Ok(socket)
}

/// Streams that an association which is up has in both directions.
pub(super) fn streams(socket: &impl AsRawFd) -> io::Result<u16> {
    let status = status(socket)?;
    let at = |from: usize| status.get(from..from + 2).and_then(|s| s.try_into().ok()).map(u16::from_ne_bytes);
    Ok(at(16).min(at(18)).unwrap_or(0).max(1))
}

/// Whether the peer has not acknowledged all that was sent.
pub(super) fn is_unacknowledged(socket: &impl AsRawFd) -> io::Result<bool> {
    status(socket).map(|status| status[12..14] != [0, 0])
}

/// `struct sctp_status`: association, state, peer's window (4 octets each), unacknowledged chunks, chunks to be read,
/// incoming streams, outgoing streams (2 octets each), and more.
fn status(socket: &impl AsRawFd) -> io::Result<[u8; STATUS]> {
    // The kernel gives as much as there is room for, but wants room for all of it (176 octets today).
    let mut room = [0; 256];
    get_option_octets(socket, libc::IPPROTO_SCTP, libc::SCTP_STATUS, &mut room)?;
    let mut status = [0; STATUS];
    status.copy_from_slice(&room[..STATUS]);
    Ok(status)
}

/// Our address of an association that was accepted: the one that packets to this peer have. The socket has none,
/// because it stands for all addresses of this node.
pub(super) fn local(accepted: &TcpStream, peer: SocketAddr) -> io::Result<SocketAddr> {
    let named = accepted.local_addr()?;
    if !named.ip().is_unspecified() {
        return Ok(named);
    }
    let any: IpAddr = if peer.is_ipv6() { [0_u16; 8].into() } else { [0_u8; 4].into() };
    let probe = UdpSocket::bind((any, 0))?;
    probe.connect(peer)?;
    Ok(SocketAddr::new(probe.local_addr()?.ip(), named.port()))
}
