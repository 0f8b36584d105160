//! A reader of Boomerang messages (docs/wire/boomerang.md), written for the lab: what a check finds on the wire must not
//! rest on the code that is checked.

use std::net::IpAddr;
use std::time::Duration;

use crate::protocols::frame::Frame;
use crate::protocols::packet::{Ip, u16_at};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Behind the ICMP header.
const MAGIC: [u8; 4] = [0x47, 0x11, 0x47, 0x11];
/// The type of a reservation, and the version.
const RESERVATION: u8 = 0x10;
const VERSION: u8 = 1;
/// The option of a refusal.
const REFUSAL: u16 = 0x8001;

/// A Boomerang message on a link.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BoomerangMessage {
    /// Since 1970.
    pub(super) at: Duration,
    /// The link's first end sent it.
    pub(super) outgoing: bool,
    /// The number of its frame in the capture of the link.
    pub(super) frame: usize,
    /// Echo Reply, otherwise Echo Request.
    pub(super) reply: bool,
    /// TTL or hop limit of the IP packet.
    pub(super) ttl: u8,
    /// The IP packet has a Router Alert.
    pub(super) alert: bool,
    pub(super) sequence: u16,
    pub(super) transaction: u32,
    pub(super) nack: bool,
    pub(super) refresh: u8,
    pub(super) key: u64,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
    pub(super) tos: u8,
    /// Forward and reverse rates, bit/s; of a list the first pair. Nothing with IntServ parameters.
    pub(super) rates: Option<(u32, u32)>,
    /// The node that refused, and its reason.
    pub(super) refusal: Option<(IpAddr, u8)>,
}

impl BoomerangMessage {
    pub(super) fn is_refused(&self) -> bool {
        self.nack || self.key == 0
    }
}

/// Reads the message of an IP packet; `None` if it is no reservation of Boomerang.
pub(super) fn read(frame: &Frame, ip: &Ip<'_>) -> Option<BoomerangMessage> {
    let (octets, reply) = match (ip.carries(ICMP), ip.carries(ICMPV6)) {
        (Some(octets), _) => (octets, 0),
        (_, Some(octets)) => (octets, 129),
        (None, None) => return None,
    };
    let kind = *octets.first()?;
    let echo = [reply, if reply == 0 { 8 } else { 128 }].contains(&kind);
    if !echo || octets.get(8..12)? != MAGIC || octets.get(16) != Some(&RESERVATION) {
        return None;
    }
    let [refresh, VERSION, ..] = octets.get(20..)? else { return None };
    let format = *octets.get(17)?;
    let width = match format & 0x0f {
        2 => 4,
        10 => 16,
        _ => return None,
    };
    let flow = octets.get(32..)?;
    let ports = flow.get(2 * width..)?;
    let qos = 32 + 2 * (2 * width + 8);
    let (rates, end) = match format & 0xf0 {
        0x10 => (Some((u32_at(octets, qos)?, u32_at(octets, qos + 4)?)), Some(qos + 8)),
        0x30 => {
            let pairs = usize::from(*octets.get(qos)?);
            (Some((u32_at(octets, qos + 4)?, u32_at(octets, qos + 8)?)), Some(qos + 4 + 8 * pairs))
        }
        _ => (None, None),
    };
    Some(BoomerangMessage {
        at: frame.at,
        outgoing: frame.outgoing,
        frame: frame.number,
        reply: kind == reply,
        ttl: ip.ttl,
        alert: ip.router_alert.is_some(),
        sequence: u16_at(octets, 6)?,
        transaction: u32_at(octets, 12)?,
        nack: u16_at(octets, 18)? & 1 != 0,
        refresh: *refresh,
        key: u64::from(u32_at(octets, 24)?) << 32 | u64::from(u32_at(octets, 28)?),
        source: address(flow, width)?,
        destination: address(flow.get(width..)?, width)?,
        source_port: u16_at(ports, 0)?,
        destination_port: u16_at(ports, 2)?,
        tos: *ports.get(5)?,
        rates,
        refusal: end.and_then(|end| refusal(octets.get(end..)?, width)),
    })
}

/// Finds the option of a refusal behind other options.
fn refusal(mut options: &[u8], width: usize) -> Option<(IpAddr, u8)> {
    loop {
        let body = match u16_at(options, 0)? {
            1 => 16,
            2 => width + 8 + 2 * (2 * width + 8),
            REFUSAL => {
                let body = options.get(4..)?;
                return Some((address(body, width)?, *body.get(width)?));
            }
            0x8002 => 36,
            0x8003 => 12,
            0x8004 => 60,
            0x8005 => 4 + 8 * width,
            _ => return None,
        };
        options = options.get(4 + body..)?;
    }
}

fn address(octets: &[u8], width: usize) -> Option<IpAddr> {
    let octets = octets.get(..width)?;
    match octets.first_chunk::<16>() {
        Some(octets) => Some((*octets).into()),
        None => octets.first_chunk::<4>().map(|octets| (*octets).into()),
    }
}

fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*octets.get(at..at + 4)?.first_chunk::<4>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frame of an IPv4 packet with a Router Alert.
    fn frame(payload: &[u8]) -> Vec<u8> {
        let total = u8::try_from(24 + payload.len()).unwrap();
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x46, 0, 0, total, 0, 0, 0, 0, 63, ICMP, 0, 0]);
        frame.extend([192, 0, 2, 1, 198, 51, 100, 2, 0x94, 4, 0, 0]);
        frame.extend(payload);
        frame
    }

    /// A refused request as in docs/wire/boomerang.md, with the user "alice" and the option of a refusal.
    fn refused() -> Vec<u8> {
        let words = [
            0x0800_0f8a,
            0x1234_0001,
            0x4711_4711,
            1,
            0x1012_0001,
            0x1401_0000,
            0,
            0,
            0xc000_0201,
            0xc633_6402,
            0x138c_138c,
            0x11b8_0000,
            0,
            0,
            0,
            0x00ff_ffff,
            48_000,
            64_000,
        ];
        let mut octets: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        octets.extend([0, 1, 0, 0]);
        octets.extend(*b"alice\0\0\0\0\0\0\0\0\0\0\0");
        octets.extend([0x80, 1, 0, 0, 192, 0, 2, 77, 3, 0, 0, 0]);
        octets
    }

    fn read_frame(frame: &[u8]) -> Option<BoomerangMessage> {
        let at = Frame { number: 1, at: Duration::ZERO, outgoing: true, octets: Vec::new() };
        read(&at, &Ip::read(frame)?)
    }

    #[test]
    fn a_refused_request_shows_who_refused() {
        let one = read_frame(&frame(&refused())).unwrap();
        assert!(!one.reply && one.alert && one.nack && one.is_refused());
        assert_eq!((one.transaction, one.refresh, one.key, one.sequence, one.ttl), (1, 20, 0, 1, 63));
        assert_eq!((one.source_port, one.destination_port, one.tos), (5004, 5004, 0xb8));
        assert_eq!(one.rates, Some((48_000, 64_000)));
        assert_eq!(one.refusal, Some(([192, 0, 2, 77].into(), 3)));
        // Behind an authentication, a proof of return and the list of nodes.
        for (kind, body) in [(2, 36), (3, 12), (5, 36)] {
            let mut before = refused();
            let at = before.len() - 12;
            before.splice(at..at, [&[0x80, kind, 0, 0][..], &vec![0; body]].concat());
            assert_eq!(read_frame(&frame(&before)).unwrap().refusal, one.refusal, "{kind}");
        }
        let mut reply = refused();
        reply[0] = 0;
        assert!(read_frame(&frame(&reply)).unwrap().reply);
    }

    #[test]
    fn pings_are_no_messages() {
        for (at, value) in [(0, 3), (8, 0), (16, 0x20), (21, 2)] {
            let mut octets = refused();
            octets[at] = value;
            assert_eq!(read_frame(&frame(&octets)), None, "octet {at}");
        }
    }

    #[test]
    fn no_cut_or_changed_octet_makes_it_panic() {
        let message = refused();
        for at in 0..message.len() {
            read_frame(&frame(&message[..at]));
            for value in [0, 1, 3, 0x7f, 0xff] {
                let mut changed = message.clone();
                changed[at] = value;
                read_frame(&frame(&changed));
            }
        }
    }
}
