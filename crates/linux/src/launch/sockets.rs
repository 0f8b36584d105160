//! The sockets of this network namespace, by the kernel's socket diagnostics (sock_diag(7)).

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use crate::netlink::codec::{Connection, Message, find};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Octets of `struct inet_diag_req_v2` and of `struct inet_diag_msg`.
const REQUEST: usize = 56;
const ANSWER: usize = 72;
/// Whether a socket of IPv6 takes no packets of IPv4. The kernel says so of sockets without a peer.
const INET_DIAG_SKV6ONLY: u16 = 11;

// States of sockets (linux/tcp_states.h). A socket of UDP with a peer is ESTABLISHED, one without CLOSE.
const ESTABLISHED: u8 = 1;
const FIN_WAIT1: u8 = 4;
const CLOSE: u8 = 7;
const CLOSE_WAIT: u8 = 8;
const LISTEN: u8 = 10;

/// The transport protocol of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// The IP protocol number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => libc::IPPROTO_TCP as u8,
            Self::Udp => libc::IPPROTO_UDP as u8,
        }
    }

    /// The states of sockets that can send, and of those that take connections.
    const fn states(self) -> u32 {
        match self {
            Self::Tcp => 1 << ESTABLISHED | 1 << FIN_WAIT1 | 1 << CLOSE_WAIT | 1 << LISTEN,
            Self::Udp => 1 << ESTABLISHED | 1 << CLOSE,
        }
    }
}

/// A socket. An IPv4 address in the form of IPv6 is one of IPv4 here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// Its protocol.
    pub transport: Transport,
    /// Its own address and port; the address can be unspecified.
    pub local: SocketAddr,
    /// The address and port that it sends to; `None`: each packet has its own, or it takes connections.
    pub remote: Option<SocketAddr>,
    /// It takes connections.
    pub listens: bool,
    /// It is one of IPv6 that has no peer, and sends no packets of IPv4.
    pub only_ipv6: bool,
}

/// A connection to the kernel's socket diagnostics.
pub(super) struct Diagnostics(Connection);

impl Diagnostics {
    /// Opens it for this thread's network namespace.
    pub(super) fn open() -> io::Result<Self> {
        Connection::open_for(NETLINK_SOCK_DIAG).map(Self)
    }

    /// The sockets with these inodes.
    pub(super) fn sockets(&mut self, inodes: &HashSet<u32>) -> io::Result<Vec<Socket>> {
        let mut sockets = Vec::new();
        if inodes.is_empty() {
            return Ok(sockets);
        }
        for transport in [Transport::Tcp, Transport::Udp] {
            for family in [libc::AF_INET, libc::AF_INET6] {
                let mut request = [0; REQUEST];
                request[..2].copy_from_slice(&[family as u8, transport.number()]);
                request[4..8].copy_from_slice(&transport.states().to_ne_bytes());
                let found = self.0.begin(SOCK_DIAG_BY_FAMILY, libc::NLM_F_DUMP, &request).list(|message| {
                    let (inode, socket) = read(transport, message)?;
                    inodes.contains(&inode).then_some(socket)
                });
                match found {
                    Ok(found) => sockets.extend(found),
                    // This kernel has no IPv6.
                    Err(error) if family == libc::AF_INET6 && is_missing(&error) => {}
                    Err(error) if is_missing(&error) => {
                        let modules =
                            "the kernel has no socket diagnostics: load the modules tcp_diag and udp_diag";
                        return Err(io::Error::new(io::ErrorKind::Unsupported, modules));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(sockets)
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL))
}

/// The inode and the socket of an answer.
fn read(transport: Transport, message: &Message<'_>) -> Option<(u32, Socket)> {
    let (fixed, attributes) = message.split::<ANSWER>()?;
    let [family, state, ..] = *fixed;
    let end = |port: usize, address: usize| {
        let port = u16::from_be_bytes(*fixed.get(port..)?.first_chunk()?);
        let octets = fixed.get(address..)?.first_chunk::<16>()?;
        let address = match i32::from(family) {
            libc::AF_INET => IpAddr::V4(Ipv4Addr::from(*octets.first_chunk::<4>()?)),
            libc::AF_INET6 => Ipv6Addr::from(*octets).to_canonical(),
            _ => return None,
        };
        Some(SocketAddr::new(address, port))
    };
    let (local, remote) = (end(4, 8)?, end(6, 24)?);
    let inode = u32::from_ne_bytes(*fixed.get(68..)?.first_chunk()?);
    let listens = transport == Transport::Tcp && state == LISTEN;
    let has_peer = remote.port() != 0 && !remote.ip().is_unspecified();
    let only_ipv6 = find(attributes, INET_DIAG_SKV6ONLY).and_then(<[u8]>::first) == Some(&1);
    Some((inode, Socket { transport, local, remote: has_peer.then_some(remote), listens, only_ipv6 }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::codec::attribute;

    /// The answer about a socket with these ends, and with what its state and attributes say.
    fn answer(family: i32, state: u8, ends: [(u16, &[u8]); 2], attributes: &[u8]) -> Option<(u32, Socket)> {
        let mut body = [0; ANSWER];
        body[..2].copy_from_slice(&[family as u8, state]);
        for (at, (port, address)) in [(4, 8), (6, 24)].into_iter().zip(ends) {
            body[at.0..at.0 + 2].copy_from_slice(&port.to_be_bytes());
            body[at.1..at.1 + address.len()].copy_from_slice(address);
        }
        body[68..].copy_from_slice(&77_u32.to_ne_bytes());
        let body = [&body[..], attributes].concat();
        let message = Message { kind: SOCK_DIAG_BY_FAMILY, flags: 0, sequence: 0, body: &body };
        read(Transport::Tcp, &message)
    }

    #[test]
    fn an_address_of_ipv4_is_one_in_each_form() {
        let mapped = |last| [&[0; 10][..], &[255, 255, 10, 0, 0, last]].concat();
        let (ours, theirs) = (mapped(1), mapped(9));
        let as_ipv6 = answer(libc::AF_INET6, ESTABLISHED, [(40_000, &ours), (5201, &theirs)], &[]);
        let as_ipv4 =
            answer(libc::AF_INET, ESTABLISHED, [(40_000, &[10, 0, 0, 1]), (5201, &[10, 0, 0, 9])], &[]);
        let (inode, socket) = as_ipv4.unwrap();
        assert_eq!(as_ipv6, as_ipv4);
        assert_eq!((inode, socket.remote), (77, Some("10.0.0.9:5201".parse().unwrap())));
        assert!(!socket.listens && !socket.only_ipv6);
    }

    #[test]
    fn a_socket_without_a_peer_says_whether_it_is_of_ipv6_only() {
        let only = attribute(INET_DIAG_SKV6ONLY, &[1]);
        let (_, socket) = answer(libc::AF_INET6, LISTEN, [(80, &[0; 16]), (0, &[0; 16])], &only).unwrap();
        assert_eq!((socket.remote, socket.listens, socket.only_ipv6), (None, true, true));
        assert!(answer(libc::AF_UNIX, LISTEN, [(0, &[]), (0, &[])], &[]).is_none());
    }
}
