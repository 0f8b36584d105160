//! Control messages of a datagram, and the headers that this crate writes for the raw sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use signalbox_core::IfIndex;
use signalbox_core::packet::Transmit;

use crate::sys::cmsg;

const UDP: u8 = 17;
/// What follows the IP header.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inner {
    /// A UDP header, and the payload.
    Udp,
    /// The payload, of this IP protocol.
    Raw(u8),
}

impl Inner {
    const fn protocol(self) -> u8 {
        match self {
            Self::Udp => UDP,
            Self::Raw(protocol) => protocol,
        }
    }

    /// Octets of the header that this module writes.
    const fn header(self) -> usize {
        match self {
            Self::Udp => UDP_HEADER,
            Self::Raw(_) => 0,
        }
    }
}

/// Octets of the UDP header.
const UDP_HEADER: usize = 8;
/// The control message that cuts a payload into datagrams of one size (linux/udp.h).
const UDP_SEGMENT: i32 = 103;
/// The control message with the flow label, in network order (linux/in6.h). The kernel accepts any label, unless a
/// process in the network namespace holds an exclusive lease of labels: it then refuses labels without a lease.
const IPV6_FLOWINFO: i32 = 11;
/// The bits of a flow label.
const FLOW_LABEL: u32 = 0x000f_ffff;

/// Appends the control messages that make a socket send `transmit` as requested. The kernel writes the next header of
/// IPv6's hop-by-hop options itself.
pub(super) fn control(transmit: &Transmit<'_>, buffer: &mut Vec<u8>) {
    let ttl = i32::from(transmit.ttl).to_ne_bytes();
    let tos = i32::from(transmit.tos).to_ne_bytes();
    packet_info(transmit.src.ip(), transmit.ifindex, buffer);
    if transmit.dst.is_ipv4() {
        cmsg::push(buffer, libc::IPPROTO_IP, libc::IP_TTL, &ttl);
        cmsg::push(buffer, libc::IPPROTO_IP, libc::IP_TOS, &tos);
        if !transmit.options.is_empty() {
            cmsg::push(buffer, libc::IPPROTO_IP, libc::IP_RETOPTS, transmit.options);
        }
    } else {
        cmsg::push(buffer, libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &ttl);
        cmsg::push(buffer, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &tos);
        if !transmit.options.is_empty() {
            cmsg::push(buffer, libc::IPPROTO_IPV6, libc::IPV6_HOPOPTS, transmit.options);
        }
        if transmit.flow_label & FLOW_LABEL != 0 {
            let label = (transmit.flow_label & FLOW_LABEL).to_be_bytes();
            cmsg::push(buffer, libc::IPPROTO_IPV6, IPV6_FLOWINFO, &label);
        }
        if transmit.dont_fragment {
            cmsg::push(buffer, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, &1_i32.to_ne_bytes());
        }
    }
}

/// Appends source address and interface, where they are given.
fn packet_info(src: IpAddr, ifindex: Option<IfIndex>, buffer: &mut Vec<u8>) {
    let index = ifindex.map_or(0, |index| index.0);
    if src.is_unspecified() && index == 0 {
        return;
    }
    match src {
        IpAddr::V4(src) => {
            let mut info = [0; 12];
            info[..4].copy_from_slice(&index.to_ne_bytes());
            info[4..8].copy_from_slice(&src.octets()); // spec_dst: the kernel uses it as source
            cmsg::push(buffer, libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        }
        IpAddr::V6(src) => {
            let mut info = [0; 20];
            info[..16].copy_from_slice(&src.octets());
            info[16..].copy_from_slice(&index.to_ne_bytes());
            cmsg::push(buffer, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
        }
    }
}

/// Appends the control messages for the raw socket: only the interface, because the packet holds all other fields.
pub(super) fn raw_control(transmit: &Transmit<'_>, buffer: &mut Vec<u8>) {
    interface(transmit.dst.is_ipv4(), transmit.ifindex.map_or(0, |index| index.0), buffer);
}

/// Appends the control message with the interface by which a whole packet leaves; none for 0.
pub(crate) fn interface(v4: bool, index: u32, buffer: &mut Vec<u8>) {
    let unspecified: IpAddr = if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    packet_info(unspecified, Some(IfIndex(index)), buffer);
}

/// Appends the control message that cuts a run into datagrams of `size` octets.
pub(super) fn segment(size: u16, buffer: &mut Vec<u8>) {
    cmsg::push(buffer, libc::SOL_UDP, UDP_SEGMENT, &size.to_ne_bytes());
}

/// Appends the whole IP packet of `transmit`, a datagram of UDP, for the raw socket; false if it does not fit into one.
pub(super) fn packet(transmit: &Transmit<'_>, buffer: &mut Vec<u8>) -> bool {
    whole(transmit, Inner::Udp, buffer)
}

/// The same for a packet of another IP protocol, whose payload follows the IP header.
pub(super) fn packet_of(protocol: u8, transmit: &Transmit<'_>, buffer: &mut Vec<u8>) -> bool {
    whole(transmit, Inner::Raw(protocol), buffer)
}

/// Writes the checksum into the header of a whole packet of IPv4 that does not pass the raw socket. IPv6 has none.
pub(super) fn seal(packet: &mut [u8]) {
    let header =
        packet.first().filter(|first| *first >> 4 == 4).map_or(0, |first| usize::from(first & 0x0f) * 4);
    let mut sum = Sum::default();
    sum.add(packet.get(..header).unwrap_or_default());
    if let Some(checksum) = packet.get_mut(10..12).filter(|_| header > 0) {
        checksum.copy_from_slice(&sum.complement().to_be_bytes());
    }
}

fn whole(transmit: &Transmit<'_>, inner: Inner, buffer: &mut Vec<u8>) -> bool {
    match (transmit.src, transmit.dst) {
        (SocketAddr::V4(src), SocketAddr::V4(dst)) => {
            packet_v4(transmit, inner, *src.ip(), *dst.ip(), buffer)
        }
        (SocketAddr::V6(src), SocketAddr::V6(dst)) => {
            packet_v6(transmit, inner, *src.ip(), *dst.ip(), buffer)
        }
        _ => false,
    }
}

fn packet_v4(
    transmit: &Transmit<'_>,
    inner: Inner,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    buffer: &mut Vec<u8>,
) -> bool {
    let options = transmit.options.len().next_multiple_of(4);
    let header = 20 + options;
    let Ok(total) = u16::try_from(header + inner.header() + transmit.payload.len()) else { return false };
    if options > 40 {
        return false;
    }
    let words = (header / 4) as u8; // at most 15
    buffer.extend_from_slice(&[0x40 | words, transmit.tos]);
    buffer.extend_from_slice(&total.to_be_bytes());
    // The kernel fills in identification and header checksum.
    buffer.extend_from_slice(&[
        0,
        0,
        if transmit.dont_fragment { 0x40 } else { 0 },
        0,
        transmit.ttl,
        inner.protocol(),
        0,
        0,
    ]);
    buffer.extend_from_slice(&src.octets());
    buffer.extend_from_slice(&dst.octets());
    buffer.extend_from_slice(transmit.options);
    buffer.resize(buffer.len() + options - transmit.options.len(), 0);
    after_header(transmit, inner, &src.octets(), &dst.octets(), buffer)
}

fn packet_v6(
    transmit: &Transmit<'_>,
    inner: Inner,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    buffer: &mut Vec<u8>,
) -> bool {
    let length = transmit.options.len() + inner.header() + transmit.payload.len();
    let Ok(length) = u16::try_from(length) else { return false };
    let next = if transmit.options.is_empty() { inner.protocol() } else { 0 };
    let class = u32::from(transmit.tos) << 20;
    let label = transmit.flow_label & FLOW_LABEL;
    buffer.extend_from_slice(&(0x6000_0000 | class | label).to_be_bytes());
    buffer.extend_from_slice(&length.to_be_bytes());
    buffer.extend_from_slice(&[next, transmit.ttl]);
    buffer.extend_from_slice(&src.octets());
    buffer.extend_from_slice(&dst.octets());
    if let Some((_, rest)) = transmit.options.split_first() {
        buffer.push(inner.protocol());
        buffer.extend_from_slice(rest);
    }
    after_header(transmit, inner, &src.octets(), &dst.octets(), buffer)
}

fn after_header(transmit: &Transmit<'_>, inner: Inner, src: &[u8], dst: &[u8], buffer: &mut Vec<u8>) -> bool {
    if inner == Inner::Udp {
        return udp(transmit, src, dst, buffer);
    }
    buffer.extend_from_slice(transmit.payload);
    true
}

fn udp(transmit: &Transmit<'_>, src: &[u8], dst: &[u8], buffer: &mut Vec<u8>) -> bool {
    let Ok(length) = u16::try_from(8 + transmit.payload.len()) else { return false };
    let (sport, dport) = (transmit.src.port().to_be_bytes(), transmit.dst.port().to_be_bytes());
    let mut sum = Sum::default();
    sum.add(src);
    sum.add(dst);
    sum.add(&[0, UDP]);
    sum.add(&length.to_be_bytes());
    sum.add(&sport);
    sum.add(&dport);
    sum.add(&length.to_be_bytes());
    sum.add(transmit.payload);
    buffer.extend_from_slice(&sport);
    buffer.extend_from_slice(&dport);
    buffer.extend_from_slice(&length.to_be_bytes());
    buffer.extend_from_slice(&sum.udp().to_be_bytes());
    buffer.extend_from_slice(transmit.payload);
    true
}

/// The Internet checksum (RFC 1071); only the last piece may be of odd length.
#[derive(Default)]
struct Sum(u64);

impl Sum {
    fn add(&mut self, octets: &[u8]) {
        for pair in octets.chunks(2) {
            let word = [pair.first().copied().unwrap_or(0), pair.get(1).copied().unwrap_or(0)];
            self.0 += u64::from(u16::from_be_bytes(word));
        }
    }

    /// The checksum for a header.
    fn complement(mut self) -> u16 {
        while self.0 > 0xffff {
            self.0 = (self.0 & 0xffff) + (self.0 >> 16);
        }
        !(self.0 as u16)
    }

    /// The checksum for a UDP header: never 0, which would mean that there is no checksum.
    fn udp(self) -> u16 {
        match self.complement() {
            0 => 0xffff,
            sum => sum,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    use signalbox_core::Entry;
    use signalbox_core::packet::{router_alert_v4, router_alert_v6};

    fn transmit<'a>(src: &str, dst: &str, options: &'a [u8], payload: &'a [u8]) -> Transmit<'a> {
        let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
        let (ttl, tos, flow_label) = (9, 0xb8, 0xf_edcb);
        let entry = Entry::Udp(270);
        Transmit {
            entry,
            src,
            dst,
            ifindex: None,
            gateway: None,
            ttl,
            tos,
            dont_fragment: true,
            flow_label,
            unproved: false,
            options,
            payload,
        }
    }

    /// GISTNAT-P5.2-01: the checksum is right for every length of a message.
    #[test]
    fn headers_are_what_an_independent_parser_reads() {
        for payload in [&b"odd"[..], b"even", b"", &[0xff; 200]] {
            let mut octets = Vec::new();
            let alert = router_alert_v4(3);
            let t = transmit("192.0.2.1:4711", "198.51.100.2:270", &alert, payload);
            assert!(packet(&t, &mut octets));
            let parsed = SlicedPacket::from_ip(&octets).unwrap();
            let Some(NetSlice::Ipv4(ip)) = &parsed.net else { panic!("not IPv4") };
            assert_eq!(ip.header().options(), router_alert_v4(3));
            assert_eq!((ip.header().ttl(), ip.header().dont_fragment()), (9, true));
            let right = ip.header().to_header().calc_header_checksum();
            let mut sealed = octets.clone();
            seal(&mut sealed);
            assert_eq!(sealed[10..12], right.to_be_bytes());
            let Some(TransportSlice::Udp(udp)) = &parsed.transport else { panic!("not UDP") };
            let checksum = udp.to_header().calc_checksum_ipv4(&ip.header().to_header(), payload).unwrap();
            assert_eq!((udp.checksum(), udp.payload()), (checksum, payload));

            let mut octets = Vec::new();
            let alert = router_alert_v6(3);
            let t = transmit("[2001:db8::1]:4711", "[2001:db8:1::2]:270", &alert, payload);
            assert!(packet(&t, &mut octets));
            let parsed = SlicedPacket::from_ip(&octets).unwrap();
            let Some(NetSlice::Ipv6(ip)) = &parsed.net else { panic!("not IPv6") };
            let header = ip.header();
            assert_eq!((header.hop_limit(), header.traffic_class()), (9, 0xb8));
            assert_eq!(header.flow_label().value(), 0xf_edcb);
            let Some(TransportSlice::Udp(udp)) = &parsed.transport else { panic!("not UDP") };
            let checksum = udp.to_header().calc_checksum_ipv6(&ip.header().to_header(), payload).unwrap();
            assert_eq!((udp.checksum(), udp.payload()), (checksum, payload));
        }
    }

    #[test]
    fn what_fits_into_no_packet_is_refused() {
        let mut octets = Vec::new();
        let large = vec![0; 65_536];
        assert!(!packet(&transmit("192.0.2.1:1", "192.0.2.2:2", &[], &large), &mut octets));
        assert!(!packet(&transmit("[::1]:1", "[::2]:2", &[], &large), &mut octets));
        assert!(!packet(&transmit("192.0.2.1:1", "192.0.2.2:2", &[1; 44], b""), &mut octets));
        assert!(!packet(&transmit("192.0.2.1:1", "[::2]:2", &[], b""), &mut octets));
    }
}
