//! ICMP and ICMPv6 Echo messages that begin with a magic number, to this node and passing by.
//!
//! Packet sockets receive them, with a filter in the kernel, so that other pings never reach this process. A rule of
//! nftables drops the same packets after the sockets got their copies: the kernel neither answers nor forwards them. The
//! table belongs to a netlink socket of this process. When the daemon ends, the kernel removes it, and forwards and answers
//! these messages as any others.
//!
//! Destination Unreachables about such requests are received as well, and the kernel handles them as always.
//!
//! Without interception, a raw socket receives the replies to this node and these errors. The kernel answers requests.

mod filter;

use std::os::fd::AsRawFd;

use signalbox_core::packet::{Received, Transmit};
use signalbox_core::{Count, Entry, EntryRequest, IfIndex};
use socket2::{Domain, Protocol, Socket, Type};

use super::IoConfig;
use super::entry::{Failure, Port, Read};
use super::families::{DATAGRAMS_FAILED, DATAGRAMS_RECEIVED, DATAGRAMS_SENT};
use super::raw::{Sent, Sockets};
use super::{ip, udp};
use crate::error::OpenError;
use crate::netlink::Routes;
use crate::sys::mmsg::Datagram;
use crate::sys::{packet, sockaddr};
use filter::{Rule, Veto};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const IPV6_HEADER: usize = 40;

signalbox_core::counters! {
    /// The counters of the sockets of Echo messages with one magic number.
    pub struct EchoCounters {
        /// Packets received.
        received: u64 => DATAGRAMS_RECEIVED { transport: "icmp" },
        /// Packets received that were dropped because they did not fit into the buffer.
        unreadable: u64 => DATAGRAMS_FAILED { transport: "icmp", direction: "receive", reason: "too_large" },
        /// Packets passed to the kernel.
        sent: u64 => DATAGRAMS_SENT { transport: "icmp" },
        /// Packets that the kernel refused to send.
        unsent: u64 => DATAGRAMS_FAILED { transport: "icmp", direction: "send", reason: "refused" },
    }
}

/// The sockets of Echo messages with one magic number.
pub(super) struct EchoPort {
    /// The raw sockets that send. Without interception they receive, too.
    raw: Sockets,
    /// The packet sockets that receive.
    packets: Option<[Option<Socket>; 2]>,
    counters: EchoCounters,
    /// The rules against answers and forwarding by the kernel.
    vetoes: Vec<Veto>,
}

impl EchoPort {
    /// Opens the sockets, and installs the interception if the configuration allows it.
    pub(super) fn open(magic: u32, request: &EntryRequest, config: &IoConfig) -> Result<Self, OpenError> {
        let intercept = request.intercept.first().filter(|_| config.intercept);
        let system = |error| OpenError::system("socket for ICMP Echo", &error);
        let raw = Sockets::open(config, request, |domain| {
            let ipv6 = domain == Domain::IPV6;
            let socket = ip::open(domain, if ipv6 { ICMPV6 } else { ICMP }, false, config)?;
            let mut rules = Vec::new();
            if intercept.is_none() {
                rules.extend(Rule::replies(ipv6, magic));
                rules.extend(Rule::unreachables(ipv6, magic, ipv6));
            }
            socket.attach_filter(&filter::program(&rules, None)).map_err(system)?;
            Ok(socket)
        })?;
        let Some(intercept) = intercept else {
            let counters = EchoCounters::default();
            return Ok(Self { raw, packets: None, counters, vetoes: Vec::new() });
        };
        let mut sockets = [None, None];
        let mut vetoes = Vec::new();
        for (place, (wanted, ipv6)) in sockets.iter_mut().zip([(config.ipv4, false), (config.ipv6, true)]) {
            if !wanted {
                continue;
            }
            let rules = Rule::of(ipv6, magic, &intercept.matches);
            let errors = Rule::unreachables(ipv6, magic, false);
            *place = Some(listen(ipv6, &[rules.as_slice(), &errors].concat(), config)?);
            // From here on the messages are in the socket, so the kernel need not handle them. Errors stay the kernel's, too.
            vetoes.push(Veto::lay(ipv6, magic, &rules)?);
        }
        let (packets, counters) = (Some(sockets), EchoCounters::default());
        Ok(Self { raw, packets, counters, vetoes })
    }
}

impl Port for EchoPort {
    fn sockets(&self) -> &[Option<Socket>; 2] {
        self.packets.as_ref().unwrap_or_else(|| self.raw.sockets())
    }

    fn read(&self) -> Read {
        if self.packets.is_some() { read } else { ip::read }
    }

    fn count_received(&mut self, packets: u64, truncated: u64) {
        self.counters.received += packets.saturating_sub(truncated);
        self.counters.unreadable += truncated;
    }

    fn send(&mut self, transmit: &Transmit<'_>, _: &mut Routes, failures: &mut Vec<Failure>) {
        self.raw.send(transmit, failures);
    }

    fn flush(&mut self, failures: &mut Vec<Failure>) {
        self.raw.flush(failures);
    }

    fn counters(&self) -> Vec<Count> {
        let Sent { sent, unsent } = self.raw.done();
        EchoCounters { sent, unsent, ..self.counters }.iter().collect()
    }

    fn close(self: Box<Self>) -> Result<(), OpenError> {
        self.vetoes.into_iter().map(Veto::remove).fold(Ok(()), Result::and)
    }
}

/// A packet socket that receives what the rules describe, from the IP header on, at all interfaces.
fn listen(ipv6: bool, rules: &[Rule], config: &IoConfig) -> Result<Socket, OpenError> {
    let system = |error| OpenError::system("packet socket", &error);
    // Protocol 0: the socket receives nothing before its filter is attached.
    let socket = Socket::new(Domain::PACKET, Type::DGRAM.nonblocking(), Some(Protocol::from(0)))
        .map_err(|error| OpenError::net_raw("ICMP Echo", &error))?;
    socket.attach_filter(&filter::program(rules, Some(filter::group_word(ipv6)))).map_err(system)?;
    udp::buffer(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, config.receive_buffer);
    let protocol = if ipv6 { libc::ETH_P_IPV6 } else { libc::ETH_P_IP };
    packet::bind_all(&socket.as_raw_fd(), protocol as u16).map_err(system)?;
    Ok(socket)
}

/// Reads a packet from its IP header on. The filter let through only headers of the lengths that are read here.
fn read<'a>(entry: Entry, datagram: &Datagram<'a>) -> Option<Received<'a>> {
    if datagram.truncated() {
        return None;
    }
    let ifindex = IfIndex(packet::interface(datagram.name)?);
    let packet = datagram.payload;
    match packet.first()? >> 4 {
        4 => {
            // A frame may be longer than its packet.
            let total = u16::from_be_bytes(*packet.get(2..)?.first_chunk()?);
            let packet = packet.get(..usize::from(total))?;
            let header = usize::from(packet.first()? & 0x0f) * 4;
            Some(Received {
                entry,
                src: (sockaddr::ip(packet.get(12..16)?)?, 0).into(),
                dst: (sockaddr::ip(packet.get(16..20)?)?, 0).into(),
                ifindex,
                ttl: *packet.get(8)?,
                tos: *packet.get(1)?,
                options: packet.get(20..header)?,
                payload: packet.get(header..)?,
            })
        }
        _ => {
            let length = u16::from_be_bytes(*packet.get(4..)?.first_chunk()?);
            let [first, second, ..] = *packet else { return None };
            let rest = packet.get(IPV6_HEADER..IPV6_HEADER + usize::from(length))?;
            let options = if *packet.get(6)? == ICMPV6 { 0 } else { filter::HOP_BY_HOP };
            let (options, payload) = rest.split_at_checked(options)?;
            Some(Received {
                entry,
                src: (sockaddr::ip(packet.get(8..24)?)?, 0).into(),
                dst: (sockaddr::ip(packet.get(24..40)?)?, 0).into(),
                ifindex,
                ttl: *packet.get(7)?,
                tos: first << 4 | second >> 4,
                options,
                payload,
            })
        }
    }
}
