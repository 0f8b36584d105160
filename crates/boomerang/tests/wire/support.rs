//! Octets written by hand.

use signalbox_boomerang::wire::{DecodeError, Ends, Message};
use signalbox_wire::parse_hex;

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    parse_hex(&digits).unwrap()
}

pub(crate) fn ends(src: &str, dst: &str) -> Ends {
    Ends { src: src.parse().unwrap(), dst: dst.parse().unwrap() }
}

/// The ends of the vectors' requests.
pub(crate) fn there() -> Ends {
    ends("192.0.2.1", "198.51.100.2")
}

pub(crate) fn back() -> Ends {
    ends("198.51.100.2", "192.0.2.1")
}

pub(crate) fn parse(octets: &[u8]) -> Message<'_> {
    Message::parse(octets, false).unwrap()
}

pub(crate) fn error(octets: &[u8]) -> DecodeError {
    Message::parse(octets, false).unwrap_err()
}

pub(crate) fn composed(message: &Message<'_>, ends: &Ends) -> Vec<u8> {
    let mut octets = Vec::new();
    message.encode(ends, &mut octets);
    octets
}

pub(crate) const REQUEST: &str = "
    08000f8a 12340001 47114711 00000001 10120000 1e010000 00000000 00000001
    c0000201 c6336402 138c138c 11b80000 00000000 00000000 00000000 00ffffff
    0000fa00 0000fa00";

pub(crate) const REFUSED: &str = "
    0000600a 12340001 47114711 00000001 10120001 14010000 00000000 00000000
    c0000201 c6336402 138c138c 11b80000 00000000 00000000 00000000 00ffffff
    0000bb80 0000fa00";

pub(crate) const LOCKED: &str = "
    0000d787 12340001 47114711 00000001 10120000 1e010000 00000000 40000003
    c0000201 c6336402 138c138c 11b80000 00000000 00000000 00000000 00ffffff
    0000fa00 0000fa00";

pub(crate) const TEAR: &str = "
    0800038b 12340001 47114711 00000002 10120000 1e010000 00000000 00000001
    c0000201 c6336402 138c138c 11b80000 00000000 00000000 00000000 00ffffff
    00000000 00000000";

/// AN 203.0.113.9, id 7, 192.0.2.0/24 to 198.51.100.0/24, tos EF, 192 kbit/s.
pub(crate) const AGGREGATION: &str = "
    00020000 cb007109 00000007 c0000200 c6336400 00000000 00b80000 000000ff
    000000ff ffffffff ff00ffff 0002ee00";

pub(crate) const ALICE: &str = "00010000 616c6963 65000000 00000000 00000000";

/// An IPv6 request: 2001:db8::1 to 2001:db8:1::2, UDP 5004 to 5004, EF, 64 kbit/s both ways.
pub(crate) const REQUEST_6: &str = "
    80000000 12340001 47114711 00000001 101a0000 1e010000 00000000 00000001
    20010db8000000000000000000000001 20010db8000100000000000000000002 138c138c 11b80000
    00000000000000000000000000000000 00000000000000000000000000000000 00000000 00ffffff
    0000fa00 0000fa00";

/// The request without its QoS specification, in this format and with this body.
pub(crate) fn request(format: u8, body: &str) -> Vec<u8> {
    let mut octets = hex(REQUEST);
    octets.truncate(64);
    octets[17] = format;
    octets.extend(hex(body));
    octets
}
