//! A reader of GIST messages, written for the lab: what a check finds on the wire must not rest on the code that is
//! checked.

use crate::protocols::packet::u16_at;

/// GIST's UDP port (RFC 5971 §8).
pub(crate) const GIST_PORT: u16 = 270;
/// In front of every GIST message in a datagram (RFC 5971 §5.3.1).
const MAGIC: [u8; 4] = [0x4e, 0x04, 0xbd, 0xa5];

/// Length of the common header (RFC 5971 A.1).
const HEADER: usize = 8;

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

/// The parts of a GIST message that checks need (RFC 5971 A.1).
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

impl<'a> Gist<'a> {
    /// Reads the payload of a datagram; `None` if it is no GIST message.
    pub(crate) fn read(payload: &'a [u8]) -> Option<Self> {
        Self::read_bare(payload.strip_prefix(&MAGIC)?)
    }

    /// Reads the first message of what an association carries, where there is no magic number; returns it and the
    /// number of its octets. `None` if it is not complete.
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// "No Routing State" (RFC 5971 A.4.4.5).
    const NO_ROUTING_STATE: u16 = 5;

    use crate::protocols::packet::{Datagram, Ip, Segment};

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
