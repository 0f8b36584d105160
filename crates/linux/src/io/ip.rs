//! Raw packets of one IP protocol, to this node and intercepted.
//!
//! The kernel's socket option for Router Alerts delivers IPv4 packets that pass by. The kernel honours it for packets
//! that it would forward, multicast included; without a daemon they are forwarded. Rules of nftables lead IPv6 packets
//! to this node (`alert.rs`).
//!
//! A raw socket gets a copy of each packet of its protocol, whether or not the kernel implements the protocol itself.

use std::net::IpAddr;

use signalbox_core::packet::{Received, Transmit};
use signalbox_core::{AlertRule, Count, Entry, EntryRequest, IfIndex};
use socket2::{Domain, Protocol, Socket, Type};

use super::alert::{self, Alert};
use super::entry::{Failure, Port, Read};
use super::families::{DATAGRAMS_FAILED, DATAGRAMS_RECEIVED, DATAGRAMS_SENT};
use super::raw::{Sent, Sockets};
use super::{IoConfig, udp};
use crate::error::OpenError;
use crate::netlink::Routes;
use crate::sys::cmsg::{Messages, int};
use crate::sys::mmsg::Datagram;
use crate::sys::{set_mark, set_option, sockaddr};

signalbox_core::counters! {
    /// The counters of the raw sockets of one IP protocol.
    pub struct IpCounters {
        /// Packets received.
        received: u64 => DATAGRAMS_RECEIVED { transport: "ip" },
        /// Packets received that were dropped because they or their IP options did not fit into the buffer.
        unreadable: u64 => DATAGRAMS_FAILED { transport: "ip", direction: "receive", reason: "too_large" },
        /// Packets passed to the kernel.
        sent: u64 => DATAGRAMS_SENT { transport: "ip" },
        /// Packets that the kernel refused to send; their protocol sends them again.
        unsent: u64 => DATAGRAMS_FAILED { transport: "ip", direction: "send", reason: "refused" },
    }
}

/// The raw sockets of one IP protocol.
pub(super) struct IpPort {
    sockets: Sockets,
    counters: IpCounters,
    /// The interception rules beside the sockets.
    alerts: [Option<Alert>; 2],
}

impl IpPort {
    /// Opens the sockets, and installs the interception if the configuration allows it.
    pub(super) fn open(protocol: u8, request: &EntryRequest, config: &IoConfig) -> Result<Self, OpenError> {
        let value = match request.intercept.first() {
            Some(rule) if config.intercept => match rule.alert {
                AlertRule::Value { ipv4: 0, ipv6 } if rule.matches.is_empty() => Some(ipv6),
                AlertRule::NotRequired | AlertRule::Any | AlertRule::Value { .. } => {
                    return Err(OpenError::new(
                        "interception-unsupported",
                        format!(
                            "packets of IP protocol {protocol} can be intercepted by their Router Alert only"
                        ),
                        "switch interception off in the configuration",
                    ));
                }
            },
            Some(_) | None => None,
        };
        let alert = |wanted: bool, ipv6: bool| match value {
            Some(value) if wanted => lay(ipv6, protocol, value, config),
            Some(_) | None => Ok(None),
        };
        Ok(Self {
            sockets: Sockets::open(config, request, |domain| {
                open(domain, protocol, value.is_some(), config)
            })?
            .with_unproved(config, |domain| open(domain, protocol, false, config))?
            .with_detours(config, protocol)?,
            counters: IpCounters::default(),
            alerts: [alert(config.ipv4, false)?, alert(config.ipv6, true)?],
        })
    }
}

impl Port for IpPort {
    fn sockets(&self) -> &[Option<Socket>] {
        self.sockets.sockets()
    }

    fn read(&self, _: usize) -> Read {
        read
    }

    fn count_received(&mut self, packets: u64, truncated: u64) {
        self.counters.received += packets.saturating_sub(truncated);
        self.counters.unreadable += truncated;
    }

    fn send(&mut self, transmit: &Transmit<'_>, routes: &mut Routes, failures: &mut Vec<Failure>) {
        self.sockets.send(transmit, routes, failures);
    }

    fn flush(&mut self, failures: &mut Vec<Failure>) {
        self.sockets.flush(failures);
    }

    fn needs_route(&self, ipv6: bool) -> bool {
        self.alerts[usize::from(ipv6)].is_some()
    }

    fn counters(&self) -> Vec<Count> {
        let Sent { sent, unsent } = self.sockets.done();
        IpCounters { sent, unsent, ..self.counters }.iter().collect()
    }

    fn close(self: Box<Self>) -> Result<(), OpenError> {
        self.alerts.into_iter().flatten().map(Alert::remove).fold(Ok(()), Result::and)
    }
}

pub(super) fn read<'a>(entry: Entry, datagram: &Datagram<'a>) -> Option<Received<'a>> {
    if datagram.truncated() {
        return None;
    }
    let src = sockaddr::decode(datagram.name)?.ip();
    if src.is_ipv4() { read_v4(entry, datagram, src) } else { read_v6(entry, datagram, src) }
}

/// Reads an IPv4 packet, which has its header.
fn read_v4<'a>(entry: Entry, datagram: &Datagram<'a>, src: IpAddr) -> Option<Received<'a>> {
    let packet = datagram.payload;
    let header = usize::from(packet.first()? & 0x0f) * 4;
    // The interface is the first field of in_pktinfo.
    let ifindex = Messages(datagram.control).find_map(|(level, kind, data)| {
        ((level, kind) == (libc::IPPROTO_IP, libc::IP_PKTINFO)).then(|| int(data)).flatten()
    })?;
    Some(Received {
        entry,
        src: (src, 0).into(),
        dst: (alert::group(sockaddr::ip(packet.get(16..20)?)?), 0).into(),
        ifindex: IfIndex(ifindex.unsigned_abs()),
        ttl: *packet.get(8)?,
        tos: *packet.get(1)?,
        options: packet.get(20..header)?,
        payload: packet.get(header..)?,
    })
}

/// Reads an IPv6 packet, which has no header; control messages hold the header's fields.
fn read_v6<'a>(entry: Entry, datagram: &Datagram<'a>, src: IpAddr) -> Option<Received<'a>> {
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
    Some(Received {
        entry,
        src: (src, 0).into(),
        dst: (alert::group(dst?), 0).into(),
        ifindex: IfIndex(ifindex?.unsigned_abs()),
        ttl: u8::try_from(ttl?).ok()?,
        tos: (tos & 0xff) as u8,
        options,
        payload: datagram.payload,
    })
}

fn lay(ipv6: bool, protocol: u8, value: u16, config: &IoConfig) -> Result<Option<Alert>, OpenError> {
    match Alert::lay(ipv6, protocol, value, config) {
        // The kernel intercepts without it, too.
        Err(error) if !ipv6 && error.id == alert::UNSUPPORTED => {
            tracing::warn!(
                protocol, %error,
                "packets that this node takes out of forwarding are not judged by the hook input, and those to groups that this node is a member of are forwarded, too"
            );
            Ok(None)
        }
        result => result.map(Some),
    }
}

pub(super) fn open(
    domain: Domain,
    protocol: u8,
    intercept: bool,
    config: &IoConfig,
) -> Result<Socket, OpenError> {
    let socket = Socket::new(domain, Type::RAW.nonblocking(), Some(Protocol::from(i32::from(protocol))))
        .map_err(|error| OpenError::net_raw(&format!("IP protocol {protocol}"), &error))?;
    let ipv6 = domain == Domain::IPV6;
    let (level, transparent) = udp::transparent(ipv6);
    set_option(&socket, level, transparent, 1)
        .map_err(|error| OpenError::net_admin("sending from a flow's own address", &error))?;
    // Without this option a group that a local process has joined returns the node's own packets to it.
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
    let system = |error| OpenError::system("raw socket", &error);
    set_mark(&socket, config.own_mark).map_err(system)?;
    config.scope.bind(&socket).map_err(system)?;
    for (name, value) in options {
        set_option(&socket, level, *name, *value).map_err(system)?;
    }
    if intercept && !ipv6 {
        set_option(&socket, level, libc::IP_ROUTER_ALERT, 1).map_err(|error| match error.raw_os_error() {
            Some(libc::EADDRINUSE) => OpenError::new(
                "alerts-in-use",
                format!("another process takes the Router Alerts of IP protocol {protocol} here ({error})"),
                "stop the other daemon in this network namespace",
            ),
            _ => system(error),
        })?;
    }
    udp::buffer(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, config.receive_buffer);
    udp::buffer(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, config.send_buffer);
    Ok(socket)
}
