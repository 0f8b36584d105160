//! The octets of a message that the digest of the authentication option is made over: those that no node changes on the way,
//! up to the digest.

use core::ops::Range;

use super::code_points::{Family, Format, QosFormat};
use super::intserv::{PEAK_RATE, TOKEN_RATE};

/// Offset of the digest in the option, header included.
pub const DIGEST: usize = 24;

/// Octets of an IntServ message up to and with its peak rate.
const RATES: usize = PEAK_RATE + 4;

/// The parts of a message or list of this length that begins at `at`, without what nodes may change in it.
fn kept(format: QosFormat, at: usize, length: usize) -> [Range<usize>; 3] {
    let end = at + length;
    match format {
        QosFormat::BITRATE => [end..end, end..end, end..end],
        QosFormat::DOWNGRADE => [at..at + 4, end..end, end..end],
        _ if length >= RATES => [at..at + TOKEN_RATE, at + TOKEN_RATE + 4..at + PEAK_RATE, at + RATES..end],
        _ => [at..end, end..end, end..end],
    }
}

/// The signed parts of a message with the option at `offset`. Left out are the octets that nodes may change: ICMP type,
/// code and checksum, the flags, the refresh interval, the KEY, and the rates.
pub fn parts(message: &[u8], ipv6: bool, offset: usize) -> impl Iterator<Item = &[u8]> {
    let octet = |at: usize| message.get(at).copied().map_or(0, usize::from);
    let format = Format(message.get(17).copied().unwrap_or(0));
    let qos = if format.family() == Family::IPV6 { 112 } else { 64 };
    let words = |at: usize| 4 + 4 * (octet(at + 2) << 8 | octet(at + 3));
    let (first, second) = match format.qos() {
        QosFormat::BITRATE => (8, 0),
        QosFormat::DOWNGRADE => (4 + 8 * octet(qos), 0),
        // Two IntServ messages.
        _ => (words(qos), words(qos + words(qos))),
    };
    let [a, b, c] = kept(format.qos(), qos, first);
    let rest = qos + first;
    let [d, e, f] =
        if second > 0 { kept(format.qos(), rest, second) } else { [rest..rest, rest..rest, rest..rest] };
    let version = if ipv6 { &[6][..] } else { &[4] };
    let part = |range: Range<usize>| message.get(range).unwrap_or_default();
    let tail = rest + second..offset + DIGEST;
    let parts = [4..18, 21..24, 32..qos, a, b, c, d, e, f, tail].map(part);
    core::iter::once(version).chain(parts)
}
