//! A queue of netfilter: its socket, the packets that come out of it, and the verdicts.

use std::io;
use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_NETFILTER;
use signalbox_core::packet::Received;
use signalbox_core::{Entry, IfIndex};
use socket2::{Domain, Protocol, Socket, Type};

use super::filter::HOP_BY_HOP;
use super::{ICMPV6, IPV6_HEADER};
use crate::error::OpenError;
use crate::io::{IoConfig, udp};
use crate::netlink::codec::{self, Attributes, Message, Messages};
use crate::netlink::nftables::Hook;
use crate::sys::mmsg::Datagram;
use crate::sys::{self, set_option, sockaddr};

const SUBSYSTEM: u16 = 3; // NFNL_SUBSYS_QUEUE
const NFQNL_MSG_PACKET: u16 = message(0);
const NFQNL_MSG_VERDICT: u16 = message(1);
const NFQNL_MSG_CONFIG: u16 = message(2);
const NFQNL_MSG_VERDICT_BATCH: u16 = message(3);
const NFQA_CFG_CMD: u16 = 1;
const NFQA_CFG_PARAMS: u16 = 2;
const NFQA_CFG_QUEUE_MAXLEN: u16 = 3;
const NFQA_CFG_MASK: u16 = 4;
const NFQA_CFG_FLAGS: u16 = 5;
const NFQNL_CFG_CMD_BIND: u8 = 1;
const NFQNL_COPY_PACKET: u8 = 2;
/// What finds no room in the queue goes on at once.
const NFQA_CFG_F_FAIL_OPEN: u32 = 1;
const NFQA_PACKET_HDR: u16 = 1;
const NFQA_VERDICT_HDR: u16 = 2;
const NFQA_MARK: u16 = 3;
const NFQA_IFINDEX_INDEV: u16 = 5;
const NFQA_IFINDEX_OUTDEV: u16 = 6;
const NFQA_IFINDEX_PHYSOUTDEV: u16 = 8;
const NFQA_PAYLOAD: u16 = 10;
const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;
const SOL_NETLINK: i32 = 270;
const NETLINK_CAP_ACK: i32 = 10;
const NETLINK_NO_ENOBUFS: i32 = 5;
/// The numbers of queues that are tried. Other programs begin with 0.
const NUMBERS: std::ops::Range<u16> = 0x4711..0x4731;
/// Most packets that wait in the queue.
const MOST: u32 = 8192;
/// Octets of verdicts from which on they are sent, and of the buffer for them.
const FULL: usize = 64 * 1024;
const SEND_BUFFER: usize = 1 << 20;
/// The port of the kernel in a `sockaddr_nl`.
const PORT: std::ops::Range<usize> = 4..8;

const fn message(kind: u16) -> u16 {
    SUBSYSTEM << 8 | kind
}

/// Opens a socket and a queue for it that no other process has. The number is that of the queue.
pub(super) fn open(config: &IoConfig) -> Result<(Socket, u16), OpenError> {
    let explain = |error: &io::Error| match error.raw_os_error() {
        Some(libc::EPERM) => OpenError::net_admin("queueing ICMP Echo", error),
        _ => OpenError::new(
            "queue-unsupported",
            format!("the kernel has no queues of netfilter ({error})"),
            "interception of ICMP Echo needs nfnetlink_queue; or switch interception off in the configuration",
        ),
    };
    let family = Domain::from(libc::AF_NETLINK);
    let protocol = Protocol::from(i32::try_from(NETLINK_NETFILTER).unwrap_or_default());
    let socket =
        Socket::new(family, Type::RAW.nonblocking(), Some(protocol)).map_err(|error| explain(&error))?;
    for option in [NETLINK_CAP_ACK, NETLINK_NO_ENOBUFS] {
        set_option(&socket, SOL_NETLINK, option, 1).map_err(|error| explain(&error))?;
    }
    udp::buffer(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, config.receive_buffer);
    udp::buffer(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BUFFER);
    let mut refused = io::Error::from_raw_os_error(libc::EPERM);
    for number in NUMBERS {
        match bind(&socket, number) {
            Ok(()) => return Ok((socket, number)),
            // Another process has it, or this one may not have any.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => refused = error,
            Err(error) => return Err(explain(&error)),
        }
    }
    Err(explain(&refused))
}

fn bind(socket: &Socket, number: u16) -> io::Result<()> {
    let command = [NFQNL_CFG_CMD_BIND, 0, 0, 0];
    configure(socket, number, &[(NFQA_CFG_CMD, &command)])?;
    // Whole packets; the kernel copies no more than they have.
    let parameters = [0, 0, 0xff, 0xff, NFQNL_COPY_PACKET];
    let flags = NFQA_CFG_F_FAIL_OPEN.to_be_bytes();
    let rest: [(u16, &[u8]); 4] = [
        (NFQA_CFG_PARAMS, &parameters),
        (NFQA_CFG_QUEUE_MAXLEN, &MOST.to_be_bytes()),
        (NFQA_CFG_MASK, &flags),
        (NFQA_CFG_FLAGS, &flags),
    ];
    configure(socket, number, &rest)
}

/// Sends a request about a queue, and waits for its result, which the kernel gives at once.
fn configure(socket: &Socket, number: u16, attributes: &[(u16, &[u8])]) -> io::Result<()> {
    let mut octets = Vec::new();
    begin(&mut octets, NFQNL_MSG_CONFIG, libc::NLM_F_ACK, number);
    attributes.iter().for_each(|(kind, data)| codec::put(&mut octets, *kind, data));
    end(&mut octets, 0);
    socket.send(&octets)?;
    let mut reply = [0; 512];
    loop {
        let (length, _) = sys::receive_record(socket, &mut reply)?;
        let messages = Messages(reply.get(..length).unwrap_or(&[]));
        for message in messages {
            if i32::from(message.kind) == libc::NLMSG_ERROR {
                return message.error();
            }
        }
    }
}

/// Begins a message about a queue.
fn begin(octets: &mut Vec<u8>, kind: u16, flags: i32, number: u16) {
    let flags = (flags | libc::NLM_F_REQUEST) as u16;
    octets.extend_from_slice(&[0; 4]); // length, written when the message ends
    octets.extend_from_slice(&kind.to_ne_bytes());
    octets.extend_from_slice(&flags.to_ne_bytes());
    octets.extend_from_slice(&[0; 8]); // sequence; port: the kernel's
    octets.extend_from_slice(&[libc::AF_UNSPEC as u8, 0]);
    octets.extend_from_slice(&number.to_be_bytes());
}

/// Writes the length of the message that begins at `start`.
fn end(octets: &mut [u8], start: usize) {
    let length = u32::try_from(octets.len() - start).unwrap_or(u32::MAX);
    if let Some(place) = octets.get_mut(start..start + 4) {
        place.copy_from_slice(&length.to_ne_bytes());
    }
}

/// The message that accepts all packets of a queue up to the one with this number, as they are.
pub(super) fn release(queue: u16, last: u32) -> [u8; 32] {
    let mut octets = [0; 32];
    let [q0, q1] = queue.to_be_bytes();
    let parts: [&[u8]; 7] = [
        &32_u32.to_ne_bytes(),
        &NFQNL_MSG_VERDICT_BATCH.to_ne_bytes(),
        &(libc::NLM_F_REQUEST as u16).to_ne_bytes(),
        &[0, 0, 0, 0, 0, 0, 0, 0, libc::AF_UNSPEC as u8, 0, q0, q1, 12, 0],
        &NFQA_VERDICT_HDR.to_ne_bytes(),
        &NF_ACCEPT.to_be_bytes(),
        &last.to_be_bytes(),
    ];
    octets.iter_mut().zip(parts.into_iter().flatten()).for_each(|(place, octet)| *place = *octet);
    let [l0, l1] = 12_u16.to_ne_bytes();
    octets[20] = l0;
    octets[21] = l1;
    octets
}

/// A packet that came out of the queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queued<'a> {
    /// Its number in the queue.
    pub(super) id: u32,
    /// Whether it is for another node. The kernel has lowered its TTL already.
    pub(super) passing: bool,
    /// Whether it goes from port to port of a bridge.
    pub(super) bridged: bool,
    /// Whether it has a mark that other programs gave it.
    pub(super) marked: bool,
    pub(super) iif: IfIndex,
    /// The interface that it leaves by; 0: none.
    pub(super) oif: IfIndex,
    /// The packet from its IP header on.
    pub(super) packet: &'a [u8],
    /// Octets of its IP header with its options.
    pub(super) header: usize,
}

impl<'a> Queued<'a> {
    /// Reads a message of the kernel; `None`: it has no packet, or another process sent it. The mark of a packet of a VRF is the number
    /// of the interface by which it came in.
    pub(super) fn read(datagram: &Datagram<'a>, vrf: bool) -> Option<Self> {
        if datagram.truncated() || datagram.name.get(PORT)? != [0; 4] {
            return None;
        }
        Messages(datagram.payload).next().and_then(|message| Self::of(&message, vrf))
    }

    fn of(message: &Message<'a>, vrf: bool) -> Option<Self> {
        if message.kind != NFQNL_MSG_PACKET {
            return None;
        }
        let (_, attributes): (&[u8; 4], Attributes<'a>) = message.split()?;
        let (mut head, mut packet) = (None, None);
        let (mut iif, mut oif, mut mark, mut bridged) = (IfIndex::NONE, IfIndex::NONE, IfIndex::NONE, false);
        let index =
            |data: &[u8]| data.first_chunk().map_or(IfIndex::NONE, |v| IfIndex(u32::from_be_bytes(*v)));
        for (kind, data) in attributes {
            match kind {
                NFQA_PACKET_HDR => head = data.first_chunk::<7>(),
                NFQA_MARK => mark = index(data),
                NFQA_IFINDEX_INDEV => iif = index(data),
                NFQA_IFINDEX_OUTDEV => oif = index(data),
                NFQA_IFINDEX_PHYSOUTDEV => bridged = true,
                NFQA_PAYLOAD => packet = Some(data),
                _ => {}
            }
        }
        let [i0, i1, i2, i3, _, _, hook] = *head?;
        let (packet, header) = whole(packet?)?;
        Some(Self {
            id: u32::from_be_bytes([i0, i1, i2, i3]),
            passing: u32::from(hook) == Hook::Forward as u32,
            bridged,
            marked: !vrf && mark != IfIndex::NONE,
            iif: if vrf { mark } else { iif },
            oif,
            packet,
            header,
        })
    }

    /// The addresses of the packet.
    pub(super) fn ends(&self) -> Option<[IpAddr; 2]> {
        let (src, dst) = if self.is_ipv6() { (8..24, 24..40) } else { (12..16, 16..20) };
        Some([sockaddr::ip(self.packet.get(src)?)?, sockaddr::ip(self.packet.get(dst)?)?])
    }

    /// The ICMP message.
    pub(super) fn message(&self) -> &'a [u8] {
        self.packet.get(self.header..).unwrap_or(&[])
    }

    fn is_ipv6(&self) -> bool {
        self.packet.first().is_some_and(|first| first >> 4 == 6)
    }

    /// The packet as engines take it: with the TTL that it came with.
    fn received(&self, entry: Entry) -> Option<Received<'a>> {
        let [src, dst] = self.ends()?;
        let lowered = u8::from(self.passing);
        let (fixed, ttl, tos) = if self.is_ipv6() {
            let [first, second, ..] = *self.packet else { return None };
            (IPV6_HEADER, *self.packet.get(7)?, first << 4 | second >> 4)
        } else {
            (20, *self.packet.get(8)?, *self.packet.get(1)?)
        };
        Some(Received {
            entry,
            src: (src, 0).into(),
            dst: (dst, 0).into(),
            ifindex: self.iif,
            ttl: ttl.saturating_add(lowered),
            tos,
            options: self.packet.get(fixed..self.header)?,
            payload: self.message(),
        })
    }
}

/// An IP packet without what may follow it, and the octets of its header. The rules let through only headers of the lengths
/// that are read here.
fn whole(packet: &[u8]) -> Option<(&[u8], usize)> {
    if packet.first()? >> 4 == 4 {
        let total = u16::from_be_bytes(*packet.get(2..)?.first_chunk()?);
        let header = usize::from(packet.first()? & 0x0f) * 4;
        let packet = packet.get(..usize::from(total))?;
        return (20..=packet.len()).contains(&header).then_some((packet, header));
    }
    let length = u16::from_be_bytes(*packet.get(4..)?.first_chunk()?);
    let packet = packet.get(..IPV6_HEADER + usize::from(length))?;
    let header = IPV6_HEADER + if *packet.get(6)? == ICMPV6 { 0 } else { HOP_BY_HOP };
    (header <= packet.len()).then_some((packet, header))
}

/// Reads a packet for an engine.
pub(super) fn read<'a>(entry: Entry, datagram: &Datagram<'a>) -> Option<Received<'a>> {
    Queued::read(datagram, false)?.received(entry)
}

/// Reads a packet of a VRF.
pub(super) fn read_of_vrf<'a>(entry: Entry, datagram: &Datagram<'a>) -> Option<Received<'a>> {
    Queued::read(datagram, true)?.received(entry)
}

/// Verdicts that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    octets: Vec<u8>,
    queue: u16,
    /// The mark of packets that have none when they are released.
    mark: u32,
}

impl Verdicts {
    pub(super) const fn new(queue: u16, mark: u32) -> Self {
        Self { octets: Vec::new(), queue, mark }
    }

    pub(super) const fn is_full(&self) -> bool {
        self.octets.len() >= FULL
    }

    /// Releases a packet as it came in.
    pub(super) fn pass(&mut self, id: u32) {
        self.one(id, NF_ACCEPT, |_| ());
    }

    /// Drops a packet.
    pub(super) fn drop(&mut self, id: u32) {
        self.one(id, NF_DROP, |_| ());
    }

    /// Releases a packet with another ICMP message behind its IP header, `header`; `None`: with that which it came with.
    pub(super) fn release(&mut self, id: u32, marked: bool, header: &[u8], changed: Option<&[u8]>) {
        let mark = self.mark;
        self.one(id, NF_ACCEPT, |octets| {
            if !marked {
                codec::put(octets, NFQA_MARK, &mark.to_be_bytes());
            }
            if let Some(message) = changed {
                let start = octets.len();
                codec::put(octets, NFQA_PAYLOAD, header);
                octets.extend_from_slice(message);
                let length = u16::try_from(octets.len() - start).unwrap_or(u16::MAX);
                if let Some([l0, l1, _, _, packet @ ..]) = octets.get_mut(start..) {
                    [*l0, *l1] = length.to_ne_bytes();
                    set_length(packet, header.len());
                }
                octets.resize(octets.len().next_multiple_of(4), 0);
            }
        });
    }

    fn one(&mut self, id: u32, verdict: u32, more: impl FnOnce(&mut Vec<u8>)) {
        let octets = &mut self.octets;
        let start = octets.len();
        begin(octets, NFQNL_MSG_VERDICT, 0, self.queue);
        let [v0, v1, v2, v3] = verdict.to_be_bytes();
        let [i0, i1, i2, i3] = id.to_be_bytes();
        codec::put(octets, NFQA_VERDICT_HDR, &[v0, v1, v2, v3, i0, i1, i2, i3]);
        more(octets);
        end(octets, start);
    }

    /// Sends all. The kernel carries them out within the call.
    pub(super) fn send(&mut self, socket: &Socket) -> io::Result<()> {
        if self.octets.is_empty() {
            return Ok(());
        }
        let sent = loop {
            match socket.send(&self.octets) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        self.octets.clear();
        sent.map(drop)
    }
}

/// Writes the length of a packet into its IP header, and with IPv4 the checksum of the header.
fn set_length(packet: &mut [u8], header: usize) {
    let total = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    if packet.first().is_some_and(|first| first >> 4 == 6) {
        let fixed = IPV6_HEADER as u16;
        if let Some(place) = packet.get_mut(4..6) {
            place.copy_from_slice(&total.saturating_sub(fixed).to_be_bytes());
        }
        return;
    }
    let Some(header) = packet.get_mut(..header) else { return };
    if let Some(place) = header.get_mut(2..4) {
        place.copy_from_slice(&total.to_be_bytes());
    }
    if let Some(place) = header.get_mut(10..12) {
        place.copy_from_slice(&[0; 2]);
    }
    let (words, _) = header.as_chunks::<2>();
    let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    if let Some(place) = header.get_mut(10..12) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of the kernel with a packet.
    fn queued(hook: u8, packet: &[u8]) -> Vec<u8> {
        let mut octets = Vec::new();
        begin(&mut octets, NFQNL_MSG_PACKET, 0, 7);
        codec::put(&mut octets, NFQA_PACKET_HDR, &[0, 0, 0, 9, 8, 0, hook]);
        codec::put(&mut octets, NFQA_IFINDEX_INDEV, &3_u32.to_be_bytes());
        codec::put(&mut octets, NFQA_IFINDEX_OUTDEV, &4_u32.to_be_bytes());
        codec::put(&mut octets, NFQA_PAYLOAD, packet);
        end(&mut octets, 0);
        octets
    }

    fn echo() -> Vec<u8> {
        let mut packet = vec![0x45, 0x20, 0, 28, 0, 0, 0, 0, 61, 1, 0, 0, 10, 0, 0, 1, 10, 0, 1, 1];
        packet.extend_from_slice(&[8, 0, 0, 0, 0, 1, 0, 2]);
        set_length(&mut packet, 20);
        packet
    }

    fn datagram<'a>(name: &'a [u8], payload: &'a [u8]) -> Datagram<'a> {
        Datagram { name, payload, control: &[], flags: 0 }
    }

    #[test]
    fn a_packet_is_read_with_the_ttl_that_it_came_with() {
        let (kernel, packet) = ([16, 0, 0, 0, 0, 0, 0, 0], echo());
        for (hook, ttl) in [(Hook::Forward, 62), (Hook::Input, 61)] {
            let mut octets = queued(hook as u8, &packet);
            // What follows the packet in its frame is not part of it.
            octets.extend_from_slice(&[0; 6]);
            let datagram = datagram(&kernel, &octets);
            let one = Queued::read(&datagram, false).unwrap();
            assert_eq!((one.id, one.iif, one.oif, one.header), (9, IfIndex(3), IfIndex(4), 20));
            let received = read(Entry::IcmpEcho(1), &datagram).unwrap();
            assert_eq!((received.ttl, received.tos, received.payload), (ttl, 0x20, &packet[20..]));
        }
        let octets = queued(2, &packet);
        let other = [16, 0, 0, 0, 1, 0, 0, 0];
        assert!(Queued::read(&datagram(&other, &octets), false).is_none(), "of another process");
        for end in 0..octets.len() {
            assert!(Queued::read(&datagram(&kernel, &octets[..end]), false).is_none());
        }
    }

    #[test]
    fn the_mark_of_a_packet_of_a_vrf_is_its_interface() {
        let mut octets = queued(Hook::Forward as u8, &echo());
        codec::put(&mut octets, NFQA_MARK, &7_u32.to_be_bytes());
        end(&mut octets, 0);
        let kernel = [16, 0, 0, 0, 0, 0, 0, 0];
        for (vrf, expected) in [(false, (IfIndex(3), true)), (true, (IfIndex(7), false))] {
            let datagram = datagram(&kernel, &octets);
            let one = Queued::read(&datagram, vrf).unwrap();
            assert_eq!((one.iif, one.marked), expected);
        }
        let octets = [queued(Hook::Forward as u8, &echo())].concat();
        assert_eq!(Queued::read(&datagram(&kernel, &octets), true).unwrap().iif, IfIndex::NONE);
    }

    #[test]
    fn a_changed_packet_has_its_length_and_checksum() {
        let packet = echo();
        let mut verdicts = Verdicts::new(7, 5);
        verdicts.release(9, true, &packet[..20], Some(&[8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]));
        let message = Messages(&verdicts.octets).next().unwrap();
        let (_, attributes) = message.split::<4>().unwrap();
        let changed = codec::find(attributes, NFQA_PAYLOAD).unwrap();
        assert_eq!((changed.len(), &changed[2..4]), (31, &[0, 31][..]));
        let (words, _) = changed[..20].as_chunks::<2>();
        let sum: u32 = words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert!(codec::find(attributes, NFQA_MARK).is_none(), "its own mark stays");
        verdicts.octets.clear();
        verdicts.release(9, false, &packet[..20], None);
        let message = Messages(&verdicts.octets).next().unwrap();
        let (_, attributes) = message.split::<4>().unwrap();
        assert_eq!(codec::find(attributes, NFQA_MARK), Some(&[0, 0, 0, 5][..]));
    }

    #[test]
    fn the_message_that_releases_many_is_whole() {
        let octets = release(0x4711, 77);
        let message = Messages(&octets).next().unwrap();
        assert_eq!(message.kind, NFQNL_MSG_VERDICT_BATCH);
        let (head, attributes) = message.split::<4>().unwrap();
        assert_eq!(*head, [0, 0, 0x47, 0x11]);
        let verdict = codec::find(attributes, NFQA_VERDICT_HDR).unwrap();
        assert_eq!(verdict, [0, 0, 0, 1, 0, 0, 0, 77]);
    }
}
