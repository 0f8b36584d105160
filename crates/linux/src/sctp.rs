//! SCTP packets as such (IP protocol 132), for a transport that runs in this process.
//!
//! A raw socket gets a copy of each SCTP packet for this node whether or not the kernel speaks SCTP. But a kernel
//! that does answers every packet of an association that it does not know with an ABORT (RFC 9260 §8.4), and so
//! ends ours. With such a kernel these sockets are not opened: its own associations are [`crate::stream`]'s.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;

use socket2::{Domain, Protocol, Socket, Type};

use crate::error::OpenError;
use crate::io::IoConfig;
use crate::raw::{Batch, Sockets};
use crate::sys::cmsg::{self, Messages};
use crate::sys::mmsg::Datagram;
use crate::sys::{set_mark, set_option, sockaddr};

const SCTP: i32 = 132;
/// One packet information.
const CONTROL: usize = 64;

signalbox_core::counters! {
    /// What went through the raw SCTP sockets.
    pub struct SctpCounters {
        /// SCTP packets received.
        received: u64,
        /// SCTP packets handed to the kernel.
        sent: u64,
        /// SCTP packets that the kernel did not take; their transport sends again.
        unsent: u64,
    }
}

/// An SCTP packet that arrived for this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SctpPacket<'a> {
    /// Who sent it.
    pub src: IpAddr,
    /// To which address; never a multicast or broadcast one.
    pub dst: IpAddr,
    /// From the SCTP common header on; the checksum is not checked.
    pub packet: &'a [u8],
}

/// Room for 64 packets, made once and used again for each [`crate::Io::receive_sctp`].
#[derive(Debug)]
pub struct SctpBatch(Batch);

impl Default for SctpBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl SctpBatch {
    /// Makes the room: 4 MB of addresses, of which only what packets touch becomes memory.
    #[must_use]
    pub fn new() -> Self {
        Self(Batch::new(CONTROL))
    }

    /// The packets of the last receive, in order of arrival for each family.
    pub fn iter(&self) -> impl Iterator<Item = SctpPacket<'_>> {
        self.0.datagrams().filter_map(|datagram| received(&datagram))
    }
}

/// Takes the IPv4 header off; IPv6 packets come without theirs.
fn received<'a>(datagram: &Datagram<'a>) -> Option<SctpPacket<'a>> {
    if datagram.truncated() {
        return None;
    }
    let src = sockaddr::decode(datagram.name)?.ip();
    let (dst, packet): (IpAddr, _) = if src.is_ipv4() {
        let words = usize::from(datagram.payload.first()? & 0x0f);
        (sockaddr::ip(datagram.payload.get(16..20)?)?, datagram.payload.get(words * 4..)?)
    } else {
        let info = Messages(datagram.control).find_map(|(level, kind, data)| {
            ((level, kind) == (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO)).then_some(data)
        })?;
        (sockaddr::ip(info.get(..16)?)?, datagram.payload)
    };
    let to_many = dst.is_multicast() || dst == Ipv4Addr::BROADCAST;
    (!to_many).then_some(SctpPacket { src, dst, packet })
}

/// The raw sockets of the families that are spoken.
pub(crate) struct Sctp {
    sockets: Sockets,
    counters: SctpCounters,
}

impl Sctp {
    pub(crate) fn open(config: &IoConfig) -> Result<Self, OpenError> {
        let (tos, mark) = (config.streams.tos, config.own_mark);
        let sockets = Sockets::open(config, "SCTP", |domain| open(domain, tos, mark))?;
        Ok(Self { sockets, counters: SctpCounters::default() })
    }

    pub(crate) fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.sockets.fds()
    }

    pub(crate) const fn counters(&self) -> &SctpCounters {
        &self.counters
    }

    pub(crate) fn receive(&mut self, batch: &mut SctpBatch) -> io::Result<usize> {
        let count = self.sockets.receive(&mut batch.0)?;
        self.counters.received += count as u64;
        Ok(count)
    }

    /// Takes a packet into the queue; a full queue is sent at once.
    pub(crate) fn send(&mut self, src: IpAddr, dst: IpAddr, packet: &[u8]) {
        let full = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(_)) => self.sockets.push(dst, packet, |control| {
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&src.octets());
                cmsg::push(control, libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }),
            (IpAddr::V6(src), IpAddr::V6(_)) => self.sockets.push(dst, packet, |control| {
                let mut info = [0; 20];
                info[..16].copy_from_slice(&src.octets());
                cmsg::push(control, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }),
            _ => {
                self.counters.unsent += 1;
                return;
            }
        };
        if full {
            self.flush();
        }
    }

    pub(crate) fn flush(&mut self) {
        let done = self.sockets.flush();
        self.counters.sent += done.sent;
        self.counters.unsent += done.unsent;
    }
}

fn open(domain: Domain, tos: u8, mark: u32) -> Result<Socket, OpenError> {
    let socket = Socket::new(domain, Type::RAW.nonblocking(), Some(Protocol::from(SCTP)))
        .map_err(|error| OpenError::net_raw("SCTP without kernel support", &error))?;
    let system = |error| OpenError::system("raw socket for SCTP", &error);
    if domain == Domain::IPV6 {
        set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1).map_err(system)?;
        set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, tos.into()).map_err(system)?;
    } else {
        set_option(&socket, libc::IPPROTO_IP, libc::IP_TOS, tos.into()).map_err(system)?;
    }
    set_mark(&socket, mark).map_err(system)?;
    Ok(socket)
}
