//! UDP datagrams, and IP packets of other protocols, in the packets of a capture.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::io::{BufRead, Read};

use pcap_file::pcap::{PcapReader, RawPcapPacket};
use pcap_file::{PcapError, TsResolution};
use signalbox_core::packet::router_alert;
use signalbox_wire::Reader;

use crate::pcapng::Blocks;

signalbox_wire::code_points! {
    /// The link layer of a capture: what each packet begins with (numbers of the pcap format).
    pub struct LinkType(u32) {
        /// Ethernet, with VLAN tags or without.
        ETHERNET = 1, "Ethernet";
        /// An IP packet.
        RAW = 101, "raw IP";
        /// Linux "cooked" capture, version 1.
        LINUX_SLL = 113, "Linux cooked";
        /// An IPv4 packet.
        IPV4 = 228, "raw IPv4";
        /// An IPv6 packet.
        IPV6 = 229, "raw IPv6";
        /// Linux "cooked" capture, version 2.
        LINUX_SLL2 = 276, "Linux cooked v2";
    }
}

/// A UDP datagram with the values of its IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpPacket<'a> {
    /// Source address and port.
    pub src: SocketAddr,
    /// Destination address and port.
    pub dst: SocketAddr,
    /// IPv4 TTL or IPv6 hop limit.
    pub ttl: u8,
    /// IPv4 options, or the whole IPv6 hop-by-hop options header; empty if there are none.
    pub options: &'a [u8],
    /// UDP payload, as far as it was captured.
    pub payload: &'a [u8],
}

impl UdpPacket<'_> {
    /// Returns the value of its Router Alert option (RFC 2113, RFC 2711), if it has one.
    #[must_use]
    pub fn router_alert(&self) -> Option<u16> {
        router_alert(self.options, self.src.is_ipv6())
    }
}

/// An IP packet, whole or cut short, with the values of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpPacket<'a> {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// IPv4 TTL or IPv6 hop limit.
    pub ttl: u8,
    /// IPv4 options, or the whole IPv6 hop-by-hop options header; empty if there are none.
    pub options: &'a [u8],
    /// Protocol of the payload, IPv6's extension headers skipped.
    pub protocol: u8,
    /// Payload, as far as it was captured.
    pub payload: &'a [u8],
}

impl<'a> IpPacket<'a> {
    /// Returns the value of its Router Alert option (RFC 2113, RFC 2711), if it has one.
    #[must_use]
    pub fn router_alert(&self) -> Option<u16> {
        router_alert(self.options, self.src.is_ipv6())
    }

    fn udp(&self) -> Option<UdpPacket<'a>> {
        if self.protocol != 17 {
            return None;
        }
        let mut r = Reader::new(self.payload);
        let (src_port, dst_port) = (r.u16().ok()?, r.u16().ok()?);
        let length = usize::from(r.u16().ok()?).checked_sub(8)?;
        r.take(2).ok()?;
        let rest = r.take_rest();
        let payload = rest.get(..length).unwrap_or(rest);
        Some(UdpPacket {
            src: SocketAddr::new(self.src, src_port),
            dst: SocketAddr::new(self.dst, dst_port),
            ttl: self.ttl,
            options: self.options,
            payload,
        })
    }
}

/// Returns the UDP datagram in an Ethernet frame (802.1Q and 802.1ad tags are skipped), if there is one.
#[must_use]
pub fn parse_ethernet(frame: &[u8]) -> Option<UdpPacket<'_>> {
    parse_ip(in_ethernet(frame)?)
}

fn in_ethernet(frame: &[u8]) -> Option<&[u8]> {
    let mut r = Reader::new(frame);
    r.take(12).ok()?;
    let mut kind = r.u16().ok()?;
    while matches!(kind, 0x8100 | 0x88a8) {
        r.take(2).ok()?;
        kind = r.u16().ok()?;
    }
    matches!(kind, 0x0800 | 0x86dd).then(|| r.take_rest())
}

/// Returns the UDP datagram in an IP packet; `None` if there is no datagram or only a fragment.
#[must_use]
pub fn parse_ip(packet: &[u8]) -> Option<UdpPacket<'_>> {
    ip_packet(packet)?.udp()
}

/// Returns the parts of an IP packet (RFC 791 §3.1, RFC 8200 §3); `None` if it is not an IP packet or only a fragment.
#[must_use]
pub fn ip_packet(packet: &[u8]) -> Option<IpPacket<'_>> {
    match packet.first()? >> 4 {
        4 => parse_ipv4(packet),
        6 => parse_ipv6(packet),
        _ => None,
    }
}

fn parse_ipv4(packet: &[u8]) -> Option<IpPacket<'_>> {
    let mut r = Reader::new(packet);
    let [first, _tos, t1, t0, _, _, f1, f0, ttl, protocol, _, _] = r.array().ok()?;
    let (src, dst) = (r.array::<4>().ok()?, r.array::<4>().ok()?);
    let options = r.take((usize::from(first & 0x0f) * 4).checked_sub(20)?).ok()?;
    let fragment = u16::from_be_bytes([f1, f0]) & 0x3fff;
    if fragment != 0 {
        return None;
    }
    // A frame may be padded behind the packet, and a capture may have cut it.
    let total = usize::from(u16::from_be_bytes([t1, t0]));
    let rest = r.take_rest();
    let payload = rest.get(..total.checked_sub(20 + options.len())?).unwrap_or(rest);
    Some(IpPacket { src: src.into(), dst: dst.into(), ttl, options, protocol, payload })
}

fn parse_ipv6(packet: &[u8]) -> Option<IpPacket<'_>> {
    let mut r = Reader::new(packet);
    let [_, _, _, _, l1, l0, mut next, ttl] = r.array().ok()?;
    let (src, dst) = (r.array::<16>().ok()?, r.array::<16>().ok()?);
    let rest = r.take_rest();
    let mut r = Reader::new(rest.get(..usize::from(u16::from_be_bytes([l1, l0]))).unwrap_or(rest));
    let mut options: &[u8] = &[];
    loop {
        match next {
            // hop-by-hop, routing, destination options
            0 | 43 | 60 => {
                let header = r.peek_rest();
                let [following, length] = *header.first_chunk()?;
                let header = r.take((usize::from(length) + 1) * 8).ok()?;
                if next == 0 {
                    options = header;
                }
                next = following;
            }
            44 => {
                let [following, _, o1, o0] = r.array().ok()?;
                r.take(4).ok()?;
                if u16::from_be_bytes([o1, o0]) & 0xfff9 != 0 {
                    return None;
                }
                next = following;
            }
            protocol => {
                let payload = r.take_rest();
                return Some(IpPacket { src: src.into(), dst: dst.into(), ttl, options, protocol, payload });
            }
        }
    }
}

/// A captured packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its number in the capture, from 1.
    pub number: u64,
    /// When it was captured, since 1970.
    pub time: Duration,
    /// What its octets begin with.
    pub link: LinkType,
    /// Its octets, as many as were captured.
    pub octets: Vec<u8>,
    /// How many octets it had on the link.
    pub original: u32,
}

impl Packet {
    /// Whether the capture has only the begin of it.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        u32::try_from(self.octets.len()).is_ok_and(|captured| captured < self.original)
    }

    /// Returns the UDP datagram in it.
    #[must_use]
    pub fn udp(&self) -> Option<UdpPacket<'_>> {
        self.ip()?.udp()
    }

    /// Returns the IP packet in it.
    #[must_use]
    pub fn ip(&self) -> Option<IpPacket<'_>> {
        let mut r = Reader::new(&self.octets);
        match self.link {
            LinkType::ETHERNET => ip_packet(in_ethernet(&self.octets)?),
            LinkType::LINUX_SLL => {
                let kind = r.take(14).ok().and_then(|_| r.u16().ok())?;
                matches!(kind, 0x0800 | 0x86dd).then(|| ip_packet(r.take_rest())).flatten()
            }
            LinkType::LINUX_SLL2 => {
                let kind = r.u16().ok()?;
                r.take(18).ok()?;
                matches!(kind, 0x0800 | 0x86dd).then(|| ip_packet(r.take_rest())).flatten()
            }
            _ => ip_packet(&self.octets),
        }
    }
}

/// A capture that cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// No header of a pcap or pcapng file.
    #[error("no capture: {0}")]
    Header(PcapError),
    /// The link layer of the packets is not supported.
    #[error("link type {0} of this capture is not supported")]
    LinkType(LinkType),
    /// A packet header is invalid, or the file ends within a packet.
    #[error("frame {frame}: broken capture: {cause}")]
    Broken {
        /// Number of the packet, from 1.
        frame: u64,
        /// The message of the pcap reader.
        cause: PcapError,
    },
}

/// The packets of a pcap or pcapng file.
#[derive(Debug)]
pub struct Packets<R: Read> {
    file: File<R>,
    number: u64,
    broken: bool,
}

#[derive(Debug)]
enum File<R: Read> {
    Pcap { reader: PcapReader<R>, link: LinkType, nanoseconds: bool },
    PcapNg(Blocks<R>),
}

/// Whether a file that begins with these octets is a capture.
#[must_use]
pub const fn is_capture(start: [u8; 4]) -> bool {
    matches!(u32::from_be_bytes(start), 0xa1b2_c3d4 | 0xd4c3_b2a1 | 0xa1b2_3c4d | 0x4d3c_b2a1 | PCAPNG)
}

const PCAPNG: u32 = 0x0a0d_0d0a;

impl<R: BufRead> Packets<R> {
    /// Reads the file header.
    ///
    /// # Errors
    /// [`CaptureError`] if this is not a capture, or its link type is not supported. The packets of a pcapng file can have
    /// different ones, so that those are refused one by one.
    pub fn open(mut reader: R) -> Result<Self, CaptureError> {
        let start = reader.fill_buf().map_err(|error| CaptureError::Header(PcapError::IoError(error)))?;
        let file = if start.first_chunk().is_some_and(|start| u32::from_be_bytes(*start) == PCAPNG) {
            File::PcapNg(Blocks::open(reader).map_err(CaptureError::Header)?)
        } else {
            let reader = PcapReader::new(reader).map_err(CaptureError::Header)?;
            let header = reader.header();
            // The upper half says how long the frame check sequence is, which stands behind the packet.
            let link = known(LinkType(u32::from(header.datalink) & 0xffff))?;
            let nanoseconds = header.ts_resolution == TsResolution::NanoSecond;
            File::Pcap { reader, link, nanoseconds }
        };
        Ok(Self { file, number: 0, broken: false })
    }
}

fn known(link: LinkType) -> Result<LinkType, CaptureError> {
    link.name().map(|_| link).ok_or(CaptureError::LinkType(link))
}

impl<R: Read> Iterator for Packets<R> {
    type Item = Result<Packet, CaptureError>;

    /// The iterator ends after a broken packet, since the place of the next one is unknown.
    fn next(&mut self) -> Option<Self::Item> {
        if self.broken {
            return None;
        }
        self.number += 1;
        let number = self.number;
        let packet = match &mut self.file {
            File::PcapNg(blocks) => blocks.next(number)?,
            // Not `next_packet`: it refuses packets that the snap length cut.
            File::Pcap { reader, link, nanoseconds } => {
                reader.next_raw_packet()?.map(|RawPcapPacket { ts_sec, ts_frac, orig_len, data, .. }| {
                    let fraction = u64::from(ts_frac) * if *nanoseconds { 1 } else { 1000 };
                    let time = Duration::from_secs(ts_sec.into()) + Duration::from_nanos(fraction);
                    Packet { number, time, link: *link, octets: data.into_owned(), original: orig_len }
                })
            }
        };
        match packet {
            Ok(packet) => Some(known(packet.link).map(|_| packet)),
            Err(cause) => {
                self.broken = true;
                Some(Err(CaptureError::Broken { frame: self.number, cause }))
            }
        }
    }
}
