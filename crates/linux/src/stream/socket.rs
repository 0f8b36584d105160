//! Sockets of streams and listeners.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use signalbox_core::node::{StreamError, StreamKind};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::{StreamConfig, sctp};
use crate::sys::{epoll, set_mark, set_option};

/// Unsent octets that the kernel may hold of one stream: enough to fill a fast link between two turns of the loop.
/// Further octets stay in the queue of the stream, where they count towards its limit.
const KERNEL_UNSENT: i32 = 256 * 1024;
/// Most connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Makes a socket that waits for connections. The kernel passes the options set here on to them.
pub(super) fn listen(kind: StreamKind, port: u16, ipv6: bool, config: &StreamConfig) -> io::Result<Socket> {
    let any: IpAddr = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = prepared(kind, ipv6, config)?;
    if ipv6 {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::from((any, port)).into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Starts a connection from `local` (routing chooses one if it is unspecified) to `peer`.
pub(super) fn connect(
    kind: StreamKind,
    local: IpAddr,
    peer: SocketAddr,
    config: &StreamConfig,
) -> io::Result<TcpStream> {
    let socket = prepared(kind, peer.is_ipv6(), config)?;
    if !local.is_unspecified() {
        if kind == StreamKind::Tcp {
            // The kernel chooses the port when the peer is known, so that connections to different peers may share one.
            set_option(&socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
        }
        let mut local = SocketAddr::from((local, 0));
        if let (SocketAddr::V6(local), SocketAddr::V6(peer)) = (&mut local, peer)
            && local.ip().is_unicast_link_local()
        {
            local.set_scope_id(peer.scope_id());
        }
        socket.bind(&local.into())?;
    }
    match socket.connect(&peer.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}

fn prepared(kind: StreamKind, ipv6: bool, config: &StreamConfig) -> io::Result<Socket> {
    let socket = match kind {
        StreamKind::Tcp => prepared_tcp(ipv6, config)?,
        StreamKind::Sctp => sctp::prepared(ipv6, config)?,
    };
    let (level, name) =
        if ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) };
    set_option(&socket, level, name, config.tos.into())?;
    config.scope.bind(&socket)?;
    // Without a mark no privilege is needed.
    if config.mark != 0 {
        set_mark(&socket, config.mark)?;
    }
    Ok(socket)
}

fn prepared_tcp(ipv6: bool, config: &StreamConfig) -> io::Result<Socket> {
    let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    // The stream's queue gathers writes already.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(config.user_timeout))?;
    set_option(&socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, KERNEL_UNSENT)?;
    Ok(socket)
}

/// Makes closing the socket reset the connection.
pub(super) fn reset_on_close(socket: &TcpStream) {
    // The call cannot fail on a socket; and if it did, the connection would end orderly instead.
    let _ = SockRef::from(socket).set_linger(Some(std::time::Duration::ZERO));
}

/// Whether the peer of a TCP connection has not acknowledged all octets; a FIN of ours does not count.
pub(super) fn is_unacknowledged(socket: &TcpStream, fin_sent: bool) -> bool {
    epoll::unacknowledged(socket).is_ok_and(|octets| octets > usize::from(fin_sent))
}

/// The node's form of an error.
pub(super) fn stream_error(error: &io::Error) -> StreamError {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => StreamError::Refused,
        Some(libc::ECONNRESET | libc::ECONNABORTED | libc::EPIPE) => StreamError::Reset,
        Some(libc::ETIMEDOUT) => StreamError::TimedOut,
        Some(
            libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::EHOSTDOWN
            | libc::EADDRNOTAVAIL
            | libc::ENODEV,
        ) => StreamError::Unreachable,
        Some(libc::EADDRINUSE) => StreamError::AddressInUse,
        _ => StreamError::Other,
    }
}
