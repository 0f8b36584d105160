//! Sockets that wait for connections, and the limits on accepted ones.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};

use signalbox_core::node::StreamKind;
use signalbox_core::shares::source;
use socket2::Socket;

use super::sctp;
use super::socket::{self, reset_on_close};
use super::{StreamConfig, StreamCounters};
use crate::sys::epoll::Epoll;

/// The first token of listeners, far beyond the id of any stream.
pub(super) const FIRST_TOKEN: u64 = 1 << 63;

#[derive(Default)]
pub(super) struct Listeners {
    sockets: Vec<(StreamKind, Socket)>,
    ports: Vec<(StreamKind, u16)>,
    /// Number of open accepted connections.
    open: u32,
    /// The same for each address, without entries of 0.
    open_from: HashMap<IpAddr, u32>,
}

/// The result of accepting.
pub(super) enum Accepted {
    /// A connection, with our and the peer's address.
    Stream(TcpStream, StreamKind, SocketAddr, SocketAddr),
    /// A refused connection, or one that is gone already; there may be more.
    Refused,
    /// No connection waits.
    NoMore,
    /// The kernel cannot accept at present.
    Failed(io::Error),
}

impl Listeners {
    /// Listens at `port` in the given families. A port that is open already stays open.
    pub(super) fn add(
        &mut self,
        (kind, port): (StreamKind, u16),
        families: &[bool],
        config: &StreamConfig,
        epoll: &Epoll,
    ) -> io::Result<()> {
        if self.ports.contains(&(kind, port)) {
            return Ok(());
        }
        let sockets: io::Result<Vec<_>> =
            families.iter().map(|ipv6| socket::listen(kind, port, *ipv6, config)).collect();
        let sockets = sockets?;
        for (token, socket) in (self.token_after()..).zip(&sockets) {
            epoll.add(socket, token, libc::EPOLLIN)?;
        }
        self.sockets.extend(sockets.into_iter().map(|socket| (kind, socket)));
        self.ports.push((kind, port));
        Ok(())
    }

    fn token_after(&self) -> u64 {
        FIRST_TOKEN + self.sockets.len() as u64
    }

    /// The socket behind a token.
    pub(super) fn get(&self, token: u64) -> Option<&(StreamKind, Socket)> {
        self.sockets.get(usize::try_from(token.checked_sub(FIRST_TOKEN)?).ok()?)
    }

    /// Accepts one connection of the listener behind `token`.
    pub(super) fn accept(
        &mut self,
        token: u64,
        config: &StreamConfig,
        counters: &mut StreamCounters,
    ) -> Accepted {
        let Some((kind, listener)) = self.get(token) else { return Accepted::NoMore };
        let kind = *kind;
        let (stream, peer) = match listener.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
            Ok((socket, peer)) => (TcpStream::from(socket), peer.as_socket()),
            Err(error) => {
                return match error.raw_os_error() {
                    Some(libc::EAGAIN) => Accepted::NoMore,
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        Accepted::Failed(error)
                    }
                    // An error of the connection while it waited (accept(2)).
                    _ => Accepted::Refused,
                };
            }
        };
        let Some(peer) = peer else { return Accepted::Refused };
        let local = match kind {
            StreamKind::Tcp => stream.local_addr(),
            StreamKind::Sctp => sctp::local(&stream, peer, &config.scope),
        };
        let Ok(local) = local else { return Accepted::Refused };
        let of = source(peer.ip());
        let from = self.open_from.get(&of).copied().unwrap_or(0);
        if self.open >= config.accept_limit || from >= config.accept_limit_per_source {
            counters.accept_limited += 1;
            reset_on_close(&stream);
            return Accepted::Refused;
        }
        self.open += 1;
        self.open_from.insert(of, from + 1);
        counters.accepted += 1;
        Accepted::Stream(stream, kind, local, peer)
    }

    /// Counts the end of an accepted connection from `peer`.
    pub(super) fn closed(&mut self, peer: IpAddr) {
        self.open = self.open.saturating_sub(1);
        let source = source(peer);
        if let Some(count) = self.open_from.get_mut(&source) {
            *count -= 1; // no entry is 0
            if *count == 0 {
                self.open_from.remove(&source);
            }
        }
    }
}
