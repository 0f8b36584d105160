//! Messages composed by hand: the header here is written without the crate's writer.

use signalbox_rsvp::wire::{DecodeError, Fault, HeaderFlags, Message, MessageType, Writer};
use signalbox_wire::parse_hex;

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    parse_hex(&digits).unwrap()
}

/// A message of these objects, with TTL 63 and without checksum.
pub(crate) fn message(kind: u8, objects: &[&str]) -> Vec<u8> {
    let body: Vec<u8> = objects.iter().flat_map(|object| hex(object)).collect();
    let length = u16::try_from(body.len() + 8).unwrap().to_be_bytes();
    [&[0x10, kind, 0, 0, 63, 0], &length[..], &body].concat()
}

/// The fault of a message with these objects.
pub(crate) fn fault(kind: u8, objects: &[&str]) -> Fault {
    Message::parse(&message(kind, objects)).map(|_| ()).unwrap_err().fault
}

/// Whether a message with these objects parses and is not rejected.
pub(crate) fn accepts(kind: u8, objects: &[&str]) -> bool {
    Message::parse(&message(kind, objects)).is_ok_and(|message| message.refusal.is_none())
}

pub(crate) fn error(octets: &[u8]) -> DecodeError {
    Message::parse(octets).map(|_| ()).unwrap_err()
}

/// The octets that the writer composes, with TTL 63.
pub(crate) fn written(kind: MessageType, compose: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut writer = Writer::new(&mut octets, kind, HeaderFlags::default(), 63);
    compose(&mut writer);
    writer.finish().unwrap();
    octets
}

/// The same without checksum, to compare it with octets composed by hand.
pub(crate) fn unsummed(mut octets: Vec<u8>) -> Vec<u8> {
    octets[2..4].copy_from_slice(&[0, 0]);
    octets
}

pub(crate) const SESSION: &str = "000c0101 0a00000a 11001388";
pub(crate) const HOP: &str = "000c0301 0a000101 00000002";
pub(crate) const TIME: &str = "00080501 00007530";
pub(crate) const TEMPLATE: &str = "000c0b01 0a000001 00000fa0";
pub(crate) const TSPEC: &str =
    "00240c02 00000007 01000006 7f000005 47f42400 461c4000 7f800000 00000040 000005dc";
pub(crate) const WF: &str = "00080801 00000011";
pub(crate) const FF: &str = "00080801 0000000a";
pub(crate) const SE: &str = "00080801 00000012";
pub(crate) const CONTROLLED: &str =
    "00240902 00000007 05000006 7f000005 47f42400 461c4000 47f42400 00000040 000005dc";
pub(crate) const GUARANTEED: &str = "00300902 0000000a 02000009 7f000005 47f42400 461c4000 47f42400 00000040 \
                                     000005dc 82000002 48742400 000003e8";
pub(crate) const FILTER: &str = "000c0a01 0a000001 00000fa0";
pub(crate) const FILTER_2: &str = "000c0a01 0a000002 00000fa0";
pub(crate) const ERROR: &str = "000c0601 0a000102 00010002";
pub(crate) const SCOPE: &str = "000c0701 0a000001 0a000002";
pub(crate) const CONFIRM: &str = "00080f01 0a00000a";
pub(crate) const POLICY: &str = "00100e01 00080000 00080001 cafe0000";
pub(crate) const ACK: &str = "000c1801 00abcdef 00000005";
pub(crate) const MESSAGE_ID: &str = "000c1701 01abcdef 00000006";
pub(crate) const INTEGRITY: &str = "00240401 80000000 00000007 00000001 00000002 \
                                    00000000 00000000 00000000 00000000";
