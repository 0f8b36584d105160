//! Bare forwarders, which receive 64 datagrams and send them on. They show what a node costs in addition.

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::sockopt::RcvBufForce;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg, setsockopt};
use signalbox_core::packet::Transmit;
use signalbox_linux::{Batch, Io};

use super::super::arrivals;

/// Datagrams per system call.
const BATCH: usize = 64;
/// Octets of a buffer, more than any message here has.
const OCTETS: usize = 2048;
/// Octets of the socket buffer, as many as the daemon has.
const RECEIVE_BUFFER: usize = 8 << 20;
/// How long to wait for a datagram before looking whether to stop.
const PATIENCE: Duration = Duration::from_millis(20);

/// Sends all that arrives at `socket` on to `to`, by recvmmsg and sendmmsg, until `stop` is set.
pub(super) fn forward(socket: &UdpSocket, to: SocketAddrV4, stop: &AtomicBool) -> Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    setsockopt(socket, RcvBufForce, &RECEIVE_BUFFER).context("cannot enlarge the receive buffer")?;
    let mut octets = vec![0; BATCH * OCTETS];
    let mut receiving = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    let mut sending = MultiHeaders::<SockaddrIn>::preallocate(BATCH, None);
    let destinations = [Some(SockaddrIn::from(to)); BATCH];
    let mut lengths = [0; BATCH];
    while !stop.load(Ordering::Relaxed) {
        let count = receive(socket, &mut receiving, &mut octets, &mut lengths)?;
        let mut rest: Vec<[IoSlice<'_>; 1]> = octets
            .chunks_exact(OCTETS)
            .zip(&lengths)
            .take(count)
            .map(|(room, length)| [IoSlice::new(room.get(..*length).unwrap_or_default())])
            .collect();
        while !rest.is_empty() {
            match sendmmsg(socket.as_raw_fd(), &mut sending, &rest, destinations, [], MsgFlags::empty()) {
                Ok(sent) => drop(rest.drain(..sent.count().max(1))),
                // No buffer: the datagram is lost, as in a router.
                Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ECONNREFUSED) => drop(rest.remove(0)),
                Err(error) => return Err(error).context("the bare forwarder cannot send"),
            }
        }
    }
    Ok(())
}

/// Waits for the first datagram only; the rest of the batch is taken from the queue.
fn receive(
    socket: &UdpSocket,
    headers: &mut MultiHeaders<SockaddrIn>,
    octets: &mut [u8],
    lengths: &mut [usize; BATCH],
) -> Result<usize> {
    let mut room: Vec<[IoSliceMut<'_>; 1]> =
        octets.chunks_exact_mut(OCTETS).map(|room| [IoSliceMut::new(room)]).collect();
    match recvmmsg(socket.as_raw_fd(), headers, &mut room, MsgFlags::MSG_WAITFORONE, None) {
        Ok(messages) => {
            let mut count = 0;
            for (length, message) in lengths.iter_mut().zip(messages) {
                *length = message.bytes;
                count += 1;
            }
            Ok(count)
        }
        Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNREFUSED) => Ok(0),
        Err(error) => Err(error).context("the bare forwarder cannot receive"),
    }
}

/// Does the same by the daemon's own driver, which sends several datagrams to one peer as segments of one.
pub(super) fn forward_segmented(mut io: Io, to: SocketAddrV4, stop: &AtomicBool) -> Result<()> {
    let mut batch = Batch::new();
    while !stop.load(Ordering::Relaxed) {
        arrivals(&mut io, &mut batch, PATIENCE)?;
        for received in batch.iter() {
            io.send(&Transmit {
                entry: signalbox_core::Entry::Udp(270),
                src: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), received.dst.port()),
                dst: to.into(),
                ifindex: None,
                gateway: None,
                ttl: 64,
                tos: 0,
                dont_fragment: false,
                flow_label: 0,
                unproved: false,
                options: &[],
                payload: received.payload,
            });
        }
        io.flush();
    }
    Ok(())
}
