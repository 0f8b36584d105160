//! Sockets that wait for connections, and how many of those there may be.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};

use signalbox_core::node::StreamKind;
use socket2::Socket;

use super::sctp;
use super::socket::{self, reset_on_close};
use super::{StreamConfig, StreamCounters};
use crate::sys::epoll::Epoll;

/// Listeners' tokens count up from here, far beyond any stream's name.
pub(super) const FIRST_TOKEN: u64 = 1 << 63;

#[derive(Default)]
pub(super) struct Listeners {
    sockets: Vec<(StreamKind, Socket)>,
    ports: Vec<(StreamKind, u16)>,
    /// Accepted connections that are open.
    open: u32,
    /// The same for each address, none with 0.
    open_from: HashMap<IpAddr, u32>,
}

/// What accepting gave.
pub(super) enum Accepted {
    /// A connection, with our and the peer's address.
    Stream(TcpStream, StreamKind, SocketAddr, SocketAddr),
    /// One that was not wanted or gone again; there may be more.
    Refused,
    /// Nobody waits.
    Nobody,
    /// The kernel cannot at present.
    Failed(io::Error),
}

impl Listeners {
    /// Listens at `port` in the families given; a port that is listened at already stays so.
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

    /// Takes one connection from the listener behind `token`.
    pub(super) fn accept(
        &mut self,
        token: u64,
        config: &StreamConfig,
        counters: &mut StreamCounters,
    ) -> Accepted {
        let Some((kind, listener)) = self.get(token) else { return Accepted::Nobody };
        let kind = *kind;
        let (stream, peer) = match listener.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) {
            Ok((socket, peer)) => (TcpStream::from(socket), peer.as_socket()),
            Err(error) => {
                return match error.raw_os_error() {
                    Some(libc::EAGAIN) => Accepted::Nobody,
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        Accepted::Failed(error)
                    }
                    // What befell the connection while it waited (accept(2)).
                    _ => Accepted::Refused,
                };
            }
        };
        let Some(peer) = peer else { return Accepted::Refused };
        let local = match kind {
            StreamKind::Tcp => stream.local_addr(),
            StreamKind::Sctp => sctp::local(&stream, peer),
        };
        let Ok(local) = local else { return Accepted::Refused };
        let from = self.open_from.get(&peer.ip()).copied().unwrap_or(0);
        if self.open >= config.accept_limit || from >= config.accept_limit_per_source {
            counters.accept_limited += 1;
            reset_on_close(&stream);
            return Accepted::Refused;
        }
        self.open += 1;
        self.open_from.insert(peer.ip(), from + 1);
        counters.accepted += 1;
        Accepted::Stream(stream, kind, local, peer)
    }

    /// An accepted connection from `source` is closed.
    pub(super) fn closed(&mut self, source: IpAddr) {
        self.open = self.open.saturating_sub(1);
        if let Some(count) = self.open_from.get_mut(&source) {
            *count -= 1; // no entry holds 0
            if *count == 0 {
                self.open_from.remove(&source);
            }
        }
    }
}
