//! The test vectors, and small tools.

use signalbox_casp::wire::{DecodeError, FlowId, Message, Signaling};
use signalbox_core::SessionId;
use signalbox_wire::parse_hex;

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    parse_hex(&digits).unwrap()
}

pub(crate) const V1: &str = "00000002 00000000 00000000 00000000 00000000 000c0501 a1a2a3a4 a5a6a7a8";

pub(crate) const V2: &str = "
    00000003 00000000 00000000 00000000 00000000 000c0501 a1a2a3a4 a5a6a7a8
    000c0601 b1b2b3b4 b5b6b7b8";

/// With Length Header, as all vectors of streams.
pub(crate) const V3: &str = "
    0000004c 10400001 00010203 04050607 08090a0b 0c0d0e0f 00140101 c0000201
    c6336407 138c138e 11000000 00080201 0000005a 000c0601 b1b2b3b4 b5b6b7b8
    00090301 68656c6c 6f000000";

pub(crate) const V4: &str = "
    00000040 103f0101 00010203 04050607 08090a0b 0c0d0e0f 00140101 c0000201
    c6336407 138c138e 11000000 00080201 0000005a 00090301 68656c6c 6f000000";

pub(crate) const V5: &str = "
    90400001 00010203 04050607 08090a0b 0c0d0e0f 00140101 c0000201 c6336407
    138c138e 11000000 00080401 00000001";

pub(crate) const V6: &str = "
    50400001 00010203 04050607 08090a0b 0c0d0e0f 00140101 c0000201 c6336407
    138c138e 11000000";

pub(crate) const V7: &str = "
    00000040 20400001 00010203 04050607 08090a0b 0c0d0e0f 00280103 20010db8
    00000000 00000000 00000001 20010db8 00010000 00000000 00000007 00012345";

pub(crate) const V8: &str = "00140102 c0000201 c6336407 0000c0de 32000000";

pub(crate) const V9: &str = "
    00000044 10400001 00010203 04050607 08090a0b 0c0d0e0f 00140101 c0000201
    c6336407 138c138e 11000000 00090301 68656c6c 6f000000 000cf001 0406c353 c0000201";

pub(crate) const V10: &str = "
    0000004c 103f0101 00010203 04050607 08090a0b 0c0d0e0f 00140101 c0000201
    c6336407 138c138e 11000000 00090301 68656c6c 6f000000 0014f001 0406c353 c0000201
    0406c353 c00002fe";

pub(crate) const V11: &str = "
    0000004c 90400001 00010203 04050607 08090a0b 0c0d0e0f 00140101 c0000201
    c6336407 138c138e 11000000 00090301 68656c6c 6f000000 0014f101 0406c353 c0000201
    0406c353 c00002fe";

/// The octets behind the Length Header of a vector.
pub(crate) fn body(text: &str) -> Vec<u8> {
    hex(text).split_off(4)
}

pub(crate) fn session() -> SessionId {
    SessionId(core::array::from_fn(|at| u8::try_from(at).unwrap()))
}

pub(crate) fn flow() -> FlowId {
    FlowId::V4Ports {
        src: "192.0.2.1".parse().unwrap(),
        dst: "198.51.100.7".parse().unwrap(),
        src_port: 5004,
        dst_port: 5006,
        protocol: 17,
    }
}

pub(crate) fn signaling(octets: &[u8]) -> Signaling<'_> {
    match Message::parse(octets).unwrap() {
        Message::Signaling(message) => message,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn error(octets: &[u8]) -> DecodeError {
    Message::parse(octets).unwrap_err()
}

pub(crate) fn composed(message: &Signaling<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    message.encode(&mut octets).unwrap();
    octets
}

/// A message of these objects behind the header of the vectors.
pub(crate) fn with_objects(objects: &[&str]) -> Vec<u8> {
    let mut octets = body(V3);
    octets.truncate(20);
    for object in objects {
        octets.extend(hex(object));
    }
    octets
}

pub(crate) const FLOW: &str = "00140101 c0000201 c6336407 138c138e 11000000";
pub(crate) const TIMEOUT: &str = "00080201 0000005a";
pub(crate) const PROOF: &str = "000c0601 b1b2b3b4 b5b6b7b8";
pub(crate) const DATA: &str = "00090301 68656c6c 6f000000";
pub(crate) const ERROR: &str = "00080401 00000001";
pub(crate) const COOKIE_I: &str = "000c0501 a1a2a3a4 a5a6a7a8";
