//! Changes of a passing message, in place. Offsets are those of a message that was parsed; nothing happens to octets that
//! are too short.

use signalbox_wire::Writer;

use super::checksum::{Ends, checksum};
use super::code_points::{Family, Flags, Pass};
use super::intserv::{PEAK_RATE, TOKEN_RATE};
use super::option::Known;
use super::qos::IntServ;

const CHECKSUM: usize = 2;
const FLAGS: usize = 18;
const REFRESH: usize = 20;
const KEY: usize = 24;
const FLOW: usize = 32;

fn put<const N: usize>(message: &mut [u8], at: usize, octets: [u8; N]) {
    if let Some(to) = message.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<N>) {
        *to = octets;
    }
}

/// Offset of the QoS specification. BOOM-G29-02.
fn qos(family: Family) -> usize {
    FLOW + if family == Family::IPV6 { 80 } else { 32 }
}

/// Writes both signs of a refusal: NACK, and a KEY of 0. BOOM-3.1-10, BOOM-3.2.1-12, BOOM-G9-01.
pub fn refuse(message: &mut [u8], flags: Flags) {
    put(message, FLAGS, flags.with(Flags::NACK).0.to_be_bytes());
    put(message, KEY, [0; 8]);
}

/// Writes the refresh interval.
pub fn set_refresh(message: &mut [u8], refresh: u8) {
    put(message, REFRESH, [refresh]);
}

/// Writes the KEY. BOOM-3.2.1-11.
pub fn set_key(message: &mut [u8], key: u64) {
    put(message, KEY, key.to_be_bytes());
}

/// Writes the rate of element `element` of a DOWNGRADE list (0: the first), or with `None` that of a QOSFMT_BITRATE
/// specification, in the direction of the pass.
pub fn set_rate(message: &mut [u8], family: Family, element: Option<usize>, pass: Pass, rate: u32) {
    let pair = element.map_or(0, |element| 4 + 8 * element);
    let side = match pass {
        Pass::Request => 0,
        Pass::Reply => 4,
    };
    put(message, qos(family) + pair + side, rate.to_be_bytes());
}

/// Lowers the token rate and the peak rate of the IntServ message in the direction of the pass to `rate`, octets a second.
/// Whether any changed.
pub fn lower_intserv(message: &mut [u8], family: Family, specs: &IntServ<'_>, pass: Pass, rate: f32) -> bool {
    let start = qos(family) + if pass == Pass::Reply { specs.forward.len() } else { 0 };
    let mut changed = false;
    for at in [TOKEN_RATE, PEAK_RATE] {
        let octets = specs.of(pass).get(at..).and_then(<[u8]>::first_chunk::<4>);
        if octets.is_some_and(|octets| f32::from_be_bytes(*octets) > rate) {
            put(message, start + at, rate.to_be_bytes());
            changed = true;
        }
    }
    changed
}

/// Turns a request into the reply of its far end.
pub fn turn_round(message: &mut [u8], ipv6: bool) {
    put(message, 0, [Pass::Reply.icmp_type(ipv6)]);
}

/// Writes octets at an offset, such as the digest of an authentication.
pub fn set_octets<const N: usize>(message: &mut [u8], at: usize, octets: [u8; N]) {
    put(message, at, octets);
}

/// Appends an option to the whole message.
pub fn append(message: &mut Vec<u8>, option: &Known) {
    append_with(message, 0, option);
}

/// Appends an option with these option flags to the whole message.
pub fn append_with(message: &mut Vec<u8>, flags: u16, option: &Known) {
    option.encode(flags, &mut Writer::new(message));
}

/// Takes an option of this length out of the message.
pub fn remove(message: &mut Vec<u8>, at: usize, length: usize) {
    if at + length <= message.len() {
        message.drain(at..at + length);
    }
}

/// Writes the checksum of the message. BOOM-G3-01.
pub fn set_checksum(message: &mut [u8], ends: &Ends) {
    put(message, CHECKSUM, [0, 0]);
    let sum = checksum(ends, message);
    put(message, CHECKSUM, sum.to_be_bytes());
}
