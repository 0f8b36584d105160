//! Messages composed by hand.

pub(crate) use signalbox_wire::Writer;

/// Octets of text in hexadecimal.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    signalbox_wire::parse_hex(text).unwrap()
}

/// What a function appends.
pub(crate) fn composed(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut octets = Vec::new();
    write(&mut Writer::new(&mut octets));
    octets
}

/// The header of a request of 192.0.2.1: opcode and lifetime are to be filled in.
pub(crate) fn header(opcode: u8, lifetime: u32) -> Vec<u8> {
    let mut octets = vec![2, opcode, 0, 0];
    octets.extend(lifetime.to_be_bytes());
    octets.extend(hex("00000000 00000000 0000ffff c0000201"));
    octets
}

/// Nonce, TCP, internal port 80, suggested 203.0.113.9 port 8080.
pub(crate) const MAP: &str = "0102030405060708090a0b0c 06000000 0050 1f90 00000000000000000000ffffcb007109";
/// The remote peer 198.51.100.7 port 443.
pub(crate) const REMOTE: &str = "01bb0000 00000000000000000000ffffc6336407";

/// A MAP request for an hour.
pub(crate) fn map() -> Vec<u8> {
    [header(1, 3_600), hex(MAP)].concat()
}

/// A MAP request with options.
pub(crate) fn map_with(options: &str) -> Vec<u8> {
    [map(), hex(options)].concat()
}
