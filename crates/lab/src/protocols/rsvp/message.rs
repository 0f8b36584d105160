//! A reader of RSVP messages (RFC 2205 §3.1, appendix A), written for the lab: what a check finds on the wire must not
//! rest on the code that is checked.

use std::net::IpAddr;
use std::time::Duration;

use crate::protocols::frame::Frame;
use crate::protocols::packet::{Ip, u16_at};

const PROTOCOL: u8 = 46;
const HEADER: usize = 8;
const BUNDLE: u8 = 12;

/// Alters one bit of the refresh period (TIME_VALUES, RFC 2205 §A.4) of the message in a frame and corrects the
/// checksum; `None` if the message has no refresh period.
pub(crate) fn alter(frame: &mut [u8]) -> Option<()> {
    let payload = Ip::read(frame)?.carries(PROTOCOL)?;
    let start = payload.as_ptr() as usize - frame.as_ptr() as usize;
    let end = start + payload.len();
    let message = frame.get_mut(start..end)?;
    let mut at = HEADER;
    // TIME_VALUES
    while *message.get(at + 2)? != 5 {
        at += usize::from(u16_at(message, at)?).max(4);
    }
    *message.get_mut(at + 7)? ^= 1;
    message.get_mut(2..4)?.fill(0);
    let sum: u32 =
        message.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    let sum = !u16::try_from((folded >> 16) + (folded & 0xffff)).unwrap_or(0);
    message.get_mut(2..4)?.copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// The message types that checks distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RsvpType {
    Path,
    Resv,
    PathErr,
    ResvErr,
    PathTear,
    ResvTear,
    ResvConf,
    Dreq,
    Drep,
    /// Messages of refresh reduction, integrity and Hello.
    Other,
}

impl RsvpType {
    fn of(number: u8) -> Self {
        match number {
            1 => Self::Path,
            2 => Self::Resv,
            3 => Self::PathErr,
            4 => Self::ResvErr,
            5 => Self::PathTear,
            6 => Self::ResvTear,
            7 => Self::ResvConf,
            8 => Self::Dreq,
            9 => Self::Drep,
            _ => Self::Other,
        }
    }
}

/// Reservation styles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RsvpStyle {
    Wf,
    Ff,
    Se,
}

/// Destination, protocol and port.
pub(crate) type RsvpSession = (IpAddr, u8, u16);

/// An RSVP message on a link.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RsvpMessage {
    /// Since 1970.
    pub(crate) at: Duration,
    /// The link's first end sent it.
    pub(crate) outgoing: bool,
    /// The number of its frame in the capture of the link.
    pub(crate) frame: usize,
    pub(crate) kind: RsvpType,
    /// TTL of the IP packet, and Send_TTL of the message (RFC 2205 §3.1.1).
    pub(crate) ttl: u8,
    pub(crate) sent_ttl: u8,
    pub(crate) session: Option<RsvpSession>,
    pub(crate) style: Option<RsvpStyle>,
    /// Token rates of flowspecs and of the sender, octets a second.
    pub(crate) rates: Vec<f32>,
    /// Sources of filters and of the sender.
    pub(crate) senders: Vec<IpAddr>,
    pub(crate) scope: Option<Vec<IpAddr>>,
    /// Code, value and flags.
    pub(crate) error: Option<(u8, u16, u8)>,
    /// The global break bit of the ADSPEC: a hop on the path lacks integrated services (RFC 2210 §3.3.2).
    pub(crate) broken: Option<bool>,
}

/// Reads the messages of an IP packet, those of a Bundle one by one; none if it does not carry RSVP.
pub(crate) fn messages(frame: &Frame, ip: &Ip<'_>) -> Vec<RsvpMessage> {
    let mut found = Vec::new();
    let mut rest = ip.carries(PROTOCOL).unwrap_or_default();
    if rest.get(1) == Some(&BUNDLE) {
        rest = rest.get(HEADER..).unwrap_or_default();
    }
    while let Some(length) = u16_at(rest, 6).map(usize::from).filter(|length| *length >= HEADER) {
        let Some(message) = rest.get(..length) else { break };
        found.push(message_of(frame, ip.ttl, message));
        rest = &rest[length..];
    }
    found
}

fn message_of(frame: &Frame, ttl: u8, octets: &[u8]) -> RsvpMessage {
    let mut message = RsvpMessage {
        at: frame.at,
        outgoing: frame.outgoing,
        frame: frame.number,
        kind: RsvpType::of(octets[1]),
        ttl,
        sent_ttl: octets[4],
        session: None,
        style: None,
        rates: Vec::new(),
        senders: Vec::new(),
        scope: None,
        error: None,
        broken: None,
    };
    let mut rest = &octets[HEADER..];
    while let Some(length) = u16_at(rest, 0).map(usize::from).filter(|length| *length >= 4) {
        let Some(object) = rest.get(..length) else { break };
        // An object that is cut short is ignored.
        let _ = take(&mut message, object[2], object[3], &object[4..]);
        rest = &rest[length..];
    }
    message
}

/// Reads an object; `None` if it is too short.
fn take(message: &mut RsvpMessage, class: u8, kind: u8, body: &[u8]) -> Option<()> {
    let width = if kind == 2 { 16 } else { 4 };
    match class {
        1 => {
            let dest = address(body, width)?;
            message.session = Some((dest, *body.get(width)?, u16_at(body, width + 2)?));
        }
        6 => {
            message.error = Some((*body.get(width + 1)?, u16_at(body, width + 2)?, *body.get(width)?));
        }
        7 => message.scope = body.chunks(width).map(|chunk| address(chunk, width)).collect(),
        8 => {
            message.style = match body.get(3)? & 0x1f {
                0b10001 => Some(RsvpStyle::Wf),
                0b01010 => Some(RsvpStyle::Ff),
                0b10010 => Some(RsvpStyle::Se),
                _ => None,
            }
        }
        // Behind the headers of the object's content, of the service and of the parameter.
        9 | 12 => message.rates.push(f32::from_bits(u32_at(body, 12)?)),
        10 | 11 => message.senders.push(address(body, if matches!(kind, 1 | 4) { 4 } else { 16 })?),
        13 => message.broken = Some(body.get(5)? & 0x80 != 0),
        _ => {}
    }
    Some(())
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

    fn frame(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([
            8,
            0,
            0x45,
            0,
            0,
            20 + u8::try_from(payload.len()).unwrap(),
            0,
            0,
            0,
            0,
            62,
            protocol,
            0,
            0,
        ]);
        frame.extend([10, 0, 2, 2, 10, 0, 2, 1]);
        frame.extend(payload);
        frame
    }

    /// A Resv with SCOPE for 10.0.1.1 and 1000 octets a second, written by hand.
    fn resv() -> Vec<u8> {
        let mut message = vec![0x10, 2, 0, 0, 63, 0, 0, 8 + 12 + 8 + 8 + 36];
        message.extend([0, 12, 1, 1, 232, 1, 1, 1, 17, 0, 0x13, 0x89]);
        message.extend([0, 8, 7, 1, 10, 0, 1, 1]);
        message.extend([0, 8, 8, 1, 0, 0, 0, 0x11]);
        message.extend([0, 36, 9, 2, 0, 0, 0, 7, 5, 0, 0, 6, 127, 0, 0, 5]);
        message.extend(1000.0_f32.to_be_bytes());
        message.extend([0; 16]);
        message
    }

    fn read(frame: &[u8]) -> Vec<RsvpMessage> {
        let octets = Vec::new();
        let at = Frame { number: 1, at: Duration::ZERO, outgoing: true, octets };
        messages(&at, &Ip::read(frame).unwrap())
    }

    #[test]
    fn a_resv_says_what_it_is_for() {
        let found = read(&frame(46, &resv()));
        let one = &found[0];
        assert_eq!((found.len(), one.kind, one.ttl, one.sent_ttl), (1, RsvpType::Resv, 62, 63));
        assert_eq!(one.session, Some(([232, 1, 1, 1].into(), 17, 5001)));
        assert_eq!((one.style, &one.rates[..]), (Some(RsvpStyle::Wf), &[1000.0][..]));
        assert_eq!(one.scope.as_deref(), Some(&[IpAddr::from([10, 0, 1, 1])][..]));
        assert!(read(&frame(17, &resv())).is_empty(), "no RSVP");
    }

    #[test]
    fn errors_and_broken_paths_are_seen() {
        let mut message = vec![0x10, 4, 0, 0, 63, 0, 0, 8 + 12 + 12];
        message.extend([0, 12, 6, 1, 10, 0, 2, 1, 1, 1, 0, 2]);
        message.extend([0, 12, 13, 2, 0, 0, 0, 1, 1, 0x80, 0, 0]);
        let found = read(&frame(46, &message));
        assert_eq!((found[0].kind, found[0].error), (RsvpType::ResvErr, Some((1, 2, 1))));
        assert_eq!(found[0].broken, Some(true));
    }

    #[test]
    fn what_a_bundle_holds_counts_by_itself() {
        let one = resv();
        let length = u8::try_from(HEADER + 2 * one.len()).unwrap();
        let bundle = [&[0x10, BUNDLE, 0, 0, 63, 0, 0, length][..], &one, &one].concat();
        assert_eq!(read(&frame(46, &bundle)).len(), 2);
    }

    #[test]
    fn an_altered_message_is_another_with_a_right_checksum() {
        let mut message = vec![0x10, 1, 0xd9, 0x6b, 63, 0, 0, 8 + 12 + 8];
        message.extend([0, 12, 1, 1, 10, 0, 3, 2, 17, 0, 0x13, 0x89]);
        message.extend([0, 8, 5, 1, 0, 0, 0x75, 0x30]);
        let frame = frame(46, &message);
        let mut altered = frame.clone();
        alter(&mut altered).unwrap();
        let changed: Vec<_> = (0..frame.len()).filter(|at| frame[*at] != altered[*at]).collect();
        assert_eq!(changed.last(), Some(&(frame.len() - 1)));
        assert!(changed[..changed.len() - 1].iter().all(|at| [36, 37].contains(at)), "{changed:?}");
        let words = altered[34..].chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let sum: u32 = words.sum();
        assert_eq!((sum >> 16) + (sum & 0xffff), 0xffff);
        assert_eq!(alter(&mut frame_of_resv()), None, "it has no refresh period");
    }

    fn frame_of_resv() -> Vec<u8> {
        frame(46, &resv())
    }

    #[test]
    fn no_cut_or_changed_octet_makes_it_panic() {
        let message = resv();
        for at in 0..message.len() {
            read(&frame(46, &message[..at]));
            for value in [0, 1, 3, 0x7f, 0xff] {
                let mut changed = message.clone();
                changed[at] = value;
                let mut frame = frame(46, &changed);
                read(&frame);
                let _ = alter(&mut frame);
            }
        }
    }
}
