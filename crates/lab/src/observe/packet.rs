//! A small reader of packets, independent of the suite's own codecs: what a check says about the wire must not
//! rest on the code that is checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// GIST's UDP port (RFC 5971 §8).
pub(crate) const GIST_PORT: u16 = 270;
/// In front of every GIST message in a datagram (RFC 5971 §5.3.1).
const MAGIC: [u8; 4] = [0x4e, 0x04, 0xbd, 0xa5];
/// "No Routing State" (RFC 5971 A.4.4.5).
pub(crate) const NO_ROUTING_STATE: u16 = 5;

/// Length of the common header (RFC 5971 A.1).
const HEADER: usize = 8;

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const OBJECT_SESSION: u16 = 1;
const OBJECT_STACK_PROPOSAL: u16 = 3;
const OBJECT_STACK_CONFIGURATION: u16 = 4;
const OBJECT_ERROR: u16 = 9;

/// Message types (RFC 5971 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Query,
    Response,
    Confirm,
    Data,
    Error,
    MaHello,
    Unknown,
}

/// An IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ip<'a> {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// TTL or hop limit.
    pub(crate) ttl: u8,
    /// Value of the Router Alert option (RFC 2113, RFC 2711).
    pub(crate) router_alert: Option<u16>,
    protocol: u8,
    /// Behind the IP headers.
    payload: &'a [u8],
    /// The whole IP packet.
    pub(crate) packet: &'a [u8],
}

/// A UDP datagram in its IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Datagram<'a> {
    pub(crate) ip: Ip<'a>,
    pub(crate) dst_port: u16,
    pub(crate) payload: &'a [u8],
}

/// A TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    pub(crate) src: SocketAddr,
    pub(crate) dst: SocketAddr,
    /// Of the SYN, or of the first octet of the payload.
    pub(crate) sequence: u32,
    pub(crate) syn: bool,
    pub(crate) ack: bool,
    pub(crate) payload: &'a [u8],
}

/// A GIST message, as far as the checks look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gist<'a> {
    pub(crate) kind: Kind,
    /// GIST hop count.
    pub(crate) hops: u8,
    /// C-flag: can be interpreted without routing state.
    pub(crate) c_flag: bool,
    /// S-flag: the IP source address is the signaling source address.
    pub(crate) s_flag: bool,
    pub(crate) session: Option<[u8; 16]>,
    /// Stack-Proposal and Stack-Configuration-Data are there: an association is negotiated.
    pub(crate) negotiates: bool,
    /// Code of the Error object (RFC 5971 A.4.1).
    pub(crate) error: Option<u16>,
    /// The message from its common header on.
    pub(crate) octets: &'a [u8],
}

impl<'a> Ip<'a> {
    /// Reads an Ethernet frame; `None` if it is no unfragmented IP packet.
    pub(crate) fn read(frame: &'a [u8]) -> Option<Self> {
        match u16_at(frame, 12)? {
            0x0800 => Self::read_v4(frame.get(14..)?),
            0x86dd => Self::read_v6(frame.get(14..)?),
            _ => None,
        }
    }

    fn read_v4(packet: &'a [u8]) -> Option<Self> {
        let header = 4 * usize::from(packet.first()? & 0x0f);
        let total = usize::from(u16_at(packet, 2)?);
        let packet = packet.get(..total)?;
        let fragmented = u16_at(packet, 6)? & 0x3fff != 0;
        if fragmented || header < 20 {
            return None;
        }
        let address = |at: usize| Some(Ipv4Addr::from(*packet.get(at..at + 4)?.first_chunk::<4>()?).into());
        Some(Self {
            src: address(12)?,
            dst: address(16)?,
            ttl: *packet.get(8)?,
            router_alert: option(packet.get(20..header)?, 148, &[0, 1], true),
            protocol: *packet.get(9)?,
            payload: packet.get(header..)?,
            packet,
        })
    }

    fn read_v6(packet: &'a [u8]) -> Option<Self> {
        let packet = packet.get(..40 + usize::from(u16_at(packet, 4)?))?;
        let address = |at: usize| Some(Ipv6Addr::from(*packet.get(at..at + 16)?.first_chunk::<16>()?).into());
        let mut protocol = *packet.get(6)?;
        let mut at = 40;
        let mut router_alert = None;
        if protocol == 0 {
            protocol = *packet.get(at)?;
            let length = 8 * (usize::from(*packet.get(at + 1)?) + 1);
            router_alert = option(packet.get(at + 2..at + length)?, 5, &[0], false);
            at += length;
        }
        let (src, dst, ttl) = (address(8)?, address(24)?, *packet.get(7)?);
        Some(Self { src, dst, ttl, router_alert, protocol, payload: packet.get(at..)?, packet })
    }
}

impl<'a> Ip<'a> {
    /// What stands behind the IP headers, if it is of this protocol.
    pub(super) fn carries(&self, protocol: u8) -> Option<&'a [u8]> {
        (self.protocol == protocol).then_some(self.payload)
    }
}

impl<'a> Datagram<'a> {
    /// Reads what an IP packet carries; `None` if it is no UDP.
    pub(crate) fn read(ip: Ip<'a>) -> Option<Self> {
        if ip.protocol != PROTOCOL_UDP {
            return None;
        }
        let dst_port = u16_at(ip.payload, 2)?;
        let payload = ip.payload.get(8..usize::from(u16_at(ip.payload, 4)?))?;
        Some(Self { ip, dst_port, payload })
    }
}

impl<'a> Segment<'a> {
    /// Reads what an IP packet carries; `None` if it is no TCP.
    pub(crate) fn read(ip: Ip<'a>) -> Option<Self> {
        if ip.protocol != PROTOCOL_TCP {
            return None;
        }
        let sequence = u32::from_be_bytes(*ip.payload.get(4..8)?.first_chunk::<4>()?);
        let header = 4 * usize::from(*ip.payload.get(12)? >> 4);
        let flags = *ip.payload.get(13)?;
        Some(Self {
            src: SocketAddr::new(ip.src, u16_at(ip.payload, 0)?),
            dst: SocketAddr::new(ip.dst, u16_at(ip.payload, 2)?),
            sequence,
            syn: flags & 0x02 != 0,
            ack: flags & 0x10 != 0,
            payload: ip.payload.get(header..)?,
        })
    }
}

impl<'a> Gist<'a> {
    /// Reads the payload of a datagram; `None` if it is no GIST message.
    pub(crate) fn read(payload: &'a [u8]) -> Option<Self> {
        Self::read_bare(payload.strip_prefix(&MAGIC)?)
    }

    /// Cuts the first message off what an association carries, where there is no magic number; gives it and the
    /// number of its octets. `None` if it is not whole.
    pub(crate) fn cut(stream: &'a [u8]) -> Option<(Self, usize)> {
        let length = HEADER + 4 * usize::from(u16_at(stream, 2)?);
        Some((Self::read_bare(stream.get(..length)?)?, length))
    }

    fn read_bare(octets: &'a [u8]) -> Option<Self> {
        let [_version, hops, _, _, _, _, kind, flags, objects @ ..] = octets else { return None };
        let mut message = Self {
            kind: match kind & 0x7f {
                0 => Kind::Query,
                1 => Kind::Response,
                2 => Kind::Confirm,
                3 => Kind::Data,
                4 => Kind::Error,
                5 => Kind::MaHello,
                _ => Kind::Unknown,
            },
            hops: *hops,
            c_flag: kind & 0x80 != 0,
            s_flag: flags & 0x80 != 0,
            session: None,
            negotiates: false,
            error: None,
            octets,
        };
        let (mut proposal, mut configuration) = (false, false);
        let mut rest = objects;
        while let (Some(object), Some(words)) = (u16_at(rest, 0), u16_at(rest, 2)) {
            let Some(value) = rest.get(4..4 + 4 * usize::from(words & 0x0fff)) else { break };
            match object & 0x0fff {
                OBJECT_SESSION => message.session = value.first_chunk::<16>().copied(),
                OBJECT_STACK_PROPOSAL => proposal = true,
                OBJECT_STACK_CONFIGURATION => configuration = true,
                OBJECT_ERROR => {
                    message.error = u16_at(value, 1);
                    // With the S-flag, the session of the message in question follows the latter's header.
                    if value.get(4).is_some_and(|flags| flags & 0x80 != 0) {
                        let session = value.get(16..).and_then(|rest| rest.first_chunk::<16>());
                        message.session = message.session.or(session.copied());
                    }
                }
                _ => {}
            }
            rest = &rest[4 + value.len()..];
        }
        message.negotiates = proposal && configuration;
        Some(message)
    }
}

/// The value of an option with a 16-bit value; `single` are the options of one octet, and an IPv4 option's length
/// counts its own two first octets.
fn option(mut options: &[u8], wanted: u8, single: &[u8], counts_itself: bool) -> Option<u16> {
    loop {
        let kind = *options.first()?;
        if single.contains(&kind) {
            options = &options[1..];
            continue;
        }
        let length = usize::from(*options.get(1)?) + if counts_itself { 0 } else { 2 };
        let value = options.get(2..length)?;
        if kind == wanted {
            return u16_at(value, 0);
        }
        options = options.get(length..)?;
    }
}

fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*octets.get(at..at + 2)?.first_chunk::<2>()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A Query with a session and a Router Alert of value 0x1234, written by hand.
    pub(crate) fn query_v4() -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00]);
        frame.extend([0x46, 0, 0, 64, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 1, 1, 10, 0, 3, 2]);
        frame.extend([148, 4, 0x12, 0x34]);
        frame.extend([0xc0, 0, 1, 14, 0, 40, 0, 0]);
        frame.extend(MAGIC);
        frame.extend([1, 10, 0, 5, 0x7f, 0xc0, 0x80, 0x40]);
        frame.extend([0, 1, 0, 4]);
        frame.extend([7; 16]);
        frame
    }

    fn query_v6() -> Vec<u8> {
        let v4 = query_v4();
        let udp = &v4[14 + 24..];
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd]);
        frame.extend([0x60, 0, 0, 0, 0, 48, 0, 63]);
        frame.extend([0xfd; 16]);
        frame.extend([0xfc; 16]);
        frame.extend([17, 0, 5, 2, 0x12, 0x34, 1, 0]);
        frame.extend(udp);
        frame
    }

    #[test]
    fn queries_of_both_versions() {
        for (frame, ttl) in [(query_v4(), 64), (query_v6(), 63)] {
            let datagram = Ip::read(&frame).and_then(Datagram::read).expect("sound");
            assert_eq!((datagram.ip.ttl, datagram.dst_port), (ttl, GIST_PORT));
            assert_eq!(datagram.ip.router_alert, Some(0x1234));
            let message = Gist::read(datagram.payload).expect("sound");
            assert_eq!(
                (message.kind, message.hops, message.c_flag, message.s_flag),
                (Kind::Query, 10, true, false)
            );
            assert_eq!(message.session, Some([7; 16]));
        }
    }

    #[test]
    fn an_error_shows_its_code() {
        let payload = [
            &MAGIC[..],
            &[1, 1, 0, 9, 0, 0, 4, 0x80, 0, 9, 0, 8, 1, 0, 5, 0, 0x90, 0, 0, 0],
            &[0; 8],
            &[7; 16],
        ]
        .concat();
        let message = Gist::read(&payload).expect("sound");
        assert_eq!((message.kind, message.error), (Kind::Error, Some(NO_ROUTING_STATE)));
        assert_eq!(message.session, Some([7; 16]));
    }

    #[test]
    fn no_cut_or_changed_octet_makes_it_panic() {
        for frame in [query_v4(), query_v6()] {
            for at in 0..frame.len() {
                let read = |frame: &[u8]| {
                    let ip = Ip::read(frame)?;
                    Segment::read(ip);
                    Gist::read(Datagram::read(ip)?.payload).map(|gist| gist.hops)
                };
                read(&frame[..at]);
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut changed = frame.clone();
                    changed[at] = value;
                    read(&changed);
                }
            }
        }
    }
}
