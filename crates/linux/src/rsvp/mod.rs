//! RSVP packets: raw IP of protocol 46, for this node and passing by with a Router Alert.
//!
//! IPv4's passing packets come through the socket option for Router Alerts, which the kernel honours for packets that it
//! would forward, multicast included; without a daemon they are forwarded. IPv6's are turned to this node by rules of
//! nftables (`alert.rs`).

mod alert;

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

use signalbox_core::IfIndex;
use signalbox_core::packet::{
    IpReceived, IpTransmit, ROUTER_ALERT_RSVP_V6, router_alert, router_alert_v4, router_alert_v6,
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::OpenError;
use crate::io::{self as door, IoConfig};
use crate::raw::{Batch, Sockets};
use crate::sys::cmsg::{self, Messages, int};
use crate::sys::mmsg::Datagram;
use crate::sys::{set_mark, set_option, sockaddr};
use alert::Alert;

const RSVP: i32 = 46;
/// Packet information, hop limit, traffic class and hop-by-hop options of some 250 octets.
const CONTROL: usize = 448;

signalbox_core::counters! {
    /// What went through the RSVP sockets.
    pub struct RsvpCounters {
        /// RSVP packets received.
        received: u64,
        /// RSVP packets dropped because they or their IP options did not fit, or had no sound header.
        unreadable: u64,
        /// RSVP packets handed to the kernel.
        sent: u64,
        /// RSVP packets that the kernel did not take; the next refresh repeats them.
        unsent: u64,
    }
}

/// Room for 64 packets, made once and used again for each [`crate::Io::receive_rsvp`].
#[derive(Debug)]
pub struct RsvpBatch(Batch);

impl Default for RsvpBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl RsvpBatch {
    /// Makes the room: 4 MB of addresses, of which only what packets touch becomes memory.
    #[must_use]
    pub fn new() -> Self {
        Self(Batch::new(CONTROL))
    }

    /// The packets of the last receive, in order of arrival for each family; what could not be read is left out.
    pub fn iter(&self) -> impl Iterator<Item = IpReceived<'_>> {
        self.0.datagrams().filter_map(|datagram| received(&datagram))
    }
}

fn received<'a>(datagram: &Datagram<'a>) -> Option<IpReceived<'a>> {
    if datagram.truncated() {
        return None;
    }
    let src = sockaddr::decode(datagram.name)?.ip();
    if src.is_ipv4() { received_v4(datagram, src) } else { received_v6(datagram, src) }
}

/// IPv4 packets come with their header.
fn received_v4<'a>(datagram: &Datagram<'a>, src: IpAddr) -> Option<IpReceived<'a>> {
    let packet = datagram.payload;
    let header = usize::from(packet.first()? & 0x0f) * 4;
    // In in_pktinfo the interface comes first.
    let ifindex = Messages(datagram.control).find_map(|(level, kind, data)| {
        ((level, kind) == (libc::IPPROTO_IP, libc::IP_PKTINFO)).then(|| int(data)).flatten()
    })?;
    Some(IpReceived {
        src,
        dst: sockaddr::ip(packet.get(16..20)?)?,
        ifindex: IfIndex(ifindex.unsigned_abs()),
        ttl: *packet.get(8)?,
        tos: *packet.get(1)?,
        router_alert: router_alert(packet.get(20..header)?, false).is_some(),
        payload: packet.get(header..)?,
    })
}

/// IPv6 packets come without their header: control messages say what it said.
fn received_v6<'a>(datagram: &Datagram<'a>, src: IpAddr) -> Option<IpReceived<'a>> {
    let (mut dst, mut ifindex, mut ttl, mut tos) = (None, None, None, 0);
    let mut options: &[u8] = &[];
    for (level, kind, data) in Messages(datagram.control) {
        match (level, kind) {
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                dst = sockaddr::ip(data.get(..16)?);
                ifindex = int(data.get(16..)?);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => ttl = int(data),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => tos = int(data)?,
            (libc::IPPROTO_IPV6, libc::IPV6_HOPOPTS) => options = data,
            _ => {}
        }
    }
    Some(IpReceived {
        src,
        dst: alert::group(dst?),
        ifindex: IfIndex(ifindex?.unsigned_abs()),
        ttl: u8::try_from(ttl?).ok()?,
        tos: (tos & 0xff) as u8,
        router_alert: router_alert(options, true).is_some(),
        payload: datagram.payload,
    })
}

/// The raw sockets of the families that are spoken.
pub(crate) struct Rsvp {
    sockets: Sockets,
    counters: RsvpCounters,
    /// What turns passing packets to this node and nowhere else.
    alerts: [Option<Alert>; 2],
}

impl Rsvp {
    /// Opens the sockets, and takes passing packets if the configuration says so.
    pub(crate) fn open(config: &IoConfig) -> Result<Self, OpenError> {
        Ok(Self {
            sockets: Sockets::open(config, "RSVP", |domain| open(domain, config))?,
            counters: RsvpCounters::default(),
            alerts: [alert(config.ipv4, false, config)?, alert(config.ipv6, true, config)?],
        })
    }

    pub(crate) fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.sockets.fds()
    }

    pub(crate) const fn counters(&self) -> &RsvpCounters {
        &self.counters
    }

    pub(crate) fn receive(&mut self, batch: &mut RsvpBatch) -> io::Result<usize> {
        let count = self.sockets.receive(&mut batch.0)?;
        if count > 0 {
            let readable = batch.iter().count();
            self.counters.received += readable as u64;
            self.counters.unreadable += (count - readable) as u64;
        }
        Ok(count)
    }

    /// Takes a packet into the queue; a full queue is sent at once.
    pub(crate) fn send(&mut self, transmit: &IpTransmit<'_>) {
        let IpTransmit { src, dst, payload, .. } = *transmit;
        if src.is_ipv4() != dst.is_ipv4() {
            self.counters.unsent += 1;
            return;
        }
        if self.sockets.push(dst, payload, |octets| control(transmit, octets)) {
            self.flush();
        }
    }

    pub(crate) fn flush(&mut self) {
        let done = self.sockets.flush();
        self.counters.sent += done.sent;
        self.counters.unsent += done.unsent;
    }

    /// Takes back what was laid.
    pub(crate) fn close(self) -> Result<(), OpenError> {
        self.alerts.into_iter().flatten().map(Alert::remove).fold(Ok(()), Result::and)
    }
}

const fn heeds_alerts(config: &IoConfig) -> bool {
    config.intercept && config.rsvp_alert
}

fn alert(wanted: bool, ipv6: bool, config: &IoConfig) -> Result<Option<Alert>, OpenError> {
    if !wanted || !heeds_alerts(config) {
        return Ok(None);
    }
    match Alert::lay(ipv6, config.mark, config.table) {
        // Only a router where somebody is a member of a group needs it.
        Err(error) if !ipv6 && error.id == alert::UNSUPPORTED => {
            tracing::warn!(%error, "RSVP packets to groups that this node is a member of are forwarded, too");
            Ok(None)
        }
        result => result.map(Some),
    }
}

/// Appends the control messages that make the kernel send `transmit` as asked.
fn control(transmit: &IpTransmit<'_>, octets: &mut Vec<u8>) {
    let ttl = i32::from(transmit.ttl).to_ne_bytes();
    let tos = i32::from(transmit.tos).to_ne_bytes();
    door::packet_info(transmit.src, transmit.ifindex, octets);
    if transmit.dst.is_ipv4() {
        cmsg::push(octets, libc::IPPROTO_IP, libc::IP_TTL, &ttl);
        cmsg::push(octets, libc::IPPROTO_IP, libc::IP_TOS, &tos);
        if transmit.router_alert {
            cmsg::push(octets, libc::IPPROTO_IP, libc::IP_RETOPTS, &router_alert_v4(0));
        }
    } else {
        cmsg::push(octets, libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &ttl);
        cmsg::push(octets, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &tos);
        if transmit.router_alert {
            // The kernel writes the next header of its own.
            cmsg::push(
                octets,
                libc::IPPROTO_IPV6,
                libc::IPV6_HOPOPTS,
                &router_alert_v6(ROUTER_ALERT_RSVP_V6),
            );
        }
    }
}

fn open(domain: Domain, config: &IoConfig) -> Result<Socket, OpenError> {
    let socket = Socket::new(domain, Type::RAW.nonblocking(), Some(Protocol::from(RSVP)))
        .map_err(|error| OpenError::net_raw("RSVP", &error))?;
    let ipv6 = domain == Domain::IPV6;
    let (level, transparent) = door::transparent(ipv6);
    set_option(&socket, level, transparent, 1)
        .map_err(|error| OpenError::net_admin("sending a Path from its flow's own address", &error))?;
    // A group that a local process has joined gives the node its own packets otherwise.
    let options: &[(i32, i32)] = if ipv6 {
        &[
            (libc::IPV6_RECVPKTINFO, 1),
            (libc::IPV6_RECVHOPLIMIT, 1),
            (libc::IPV6_RECVTCLASS, 1),
            (libc::IPV6_RECVHOPOPTS, 1),
            (libc::IPV6_MULTICAST_LOOP, 0),
        ]
    } else {
        &[
            (libc::IP_PKTINFO, 1),
            (libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
            (libc::IP_MULTICAST_LOOP, 0),
        ]
    };
    let system = |error| OpenError::system("raw socket for RSVP", &error);
    set_mark(&socket, config.own_mark).map_err(system)?;
    for (name, value) in options {
        set_option(&socket, level, *name, *value).map_err(system)?;
    }
    if heeds_alerts(config) && !ipv6 {
        set_option(&socket, level, libc::IP_ROUTER_ALERT, 1).map_err(|error| match error.raw_os_error() {
            Some(libc::EADDRINUSE) => OpenError::new(
                "rsvp-in-use",
                format!("somebody else takes RSVP's Router Alerts here ({error})"),
                "stop the other RSVP daemon in this network namespace",
            ),
            _ => system(error),
        })?;
    }
    door::buffer(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, config.receive_buffer);
    door::buffer(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, config.send_buffer);
    Ok(socket)
}
