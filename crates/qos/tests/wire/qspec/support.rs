//! Octets written by hand.

use signalbox_qos::wire::qspec::{
    Composer, EncodeError, Flags, Header, ObjectComposer, ObjectType, Procedure, Qspec, Tmod, Value,
};
use signalbox_wire::{Writer, parse_hex};

/// The TMOD-1 of RFC 5975 Appendix B: voice over IPv4, with unknown peak rate.
pub(crate) const VOICE: Tmod =
    Tmod { rate: 10_000.0, bucket: 2_000.0, peak: f32::INFINITY, min_policed: 200, max_packet: 200 };

/// [`VOICE`] as a whole parameter.
pub(crate) const VOICE_HEX: &str = "80010005 461c4000 44fa0000 7f800000 000000c8 000000c8";

pub(crate) fn hex(text: &str) -> Vec<u8> {
    parse_hex(text).unwrap()
}

/// A QSPEC with this first word, these words, and the correct length.
pub(crate) fn qspec_of(first: u32, words: &str) -> Vec<u8> {
    let body = hex(words);
    let length = u32::try_from(body.len() / 4).unwrap();
    [&(first | length).to_be_bytes()[..], &body].concat()
}

/// An object with these first 16 bits around these words.
pub(crate) fn object_of(first: u16, words: &str) -> String {
    format!("{first:04x}{:04x} {words}", hex(words).len() / 4)
}

/// An Initiator QSPEC with QoS Desired only.
pub(crate) fn desired_of(parameters: &str) -> Vec<u8> {
    qspec_of(0, &object_of(0, parameters))
}

/// One parameter, with all flags clear except M of TMOD-1.
pub(crate) fn parameter_of(id: u16, words: &str) -> String {
    let m = if id == 1 { 0x8000 } else { 0 };
    object_of(m | id, words)
}

/// Composes with the objects that `objects` appends.
pub(crate) fn compose(
    header: Header,
    objects: impl FnOnce(&mut Composer<'_, '_>) -> Result<(), EncodeError>,
) -> Result<Vec<u8>, EncodeError> {
    let mut octets = Vec::new();
    let mut w = Writer::new(&mut octets);
    let mut composer = Composer::new(header, &mut w)?;
    objects(&mut composer)?;
    composer.finish(None)?;
    Ok(octets)
}

/// Composes QoS Desired only.
pub(crate) fn compose_desired(
    parameters: impl FnOnce(&mut ObjectComposer<'_, '_>) -> Result<(), EncodeError>,
) -> Result<Vec<u8>, EncodeError> {
    compose(Header::initiator(Procedure::DESIRED), |c| c.object(ObjectType::DESIRED, false, parameters))
}

/// Composes QoS Desired with one value.
pub(crate) fn compose_one(value: &Value<'_>) -> Result<Vec<u8>, EncodeError> {
    compose_desired(|o| o.put(Flags::default(), value))
}

pub(crate) fn encode(qspec: &Qspec<'_>) -> Result<Vec<u8>, EncodeError> {
    let mut octets = Vec::new();
    qspec.encode(&mut Writer::new(&mut octets)).map(|()| octets)
}

/// All known parameters in one object.
pub(crate) const ALL_PARAMETERS: &str = "80010005 461c4000 44fa0000 7f800000 000000c8 000005dc \
     20020005 4b000000 44fa0000 4b800000 00000040 000005dc \
     00030001 000003e8 40040004 00000001 00000002 00000003 00000000 00050001 3727c5ac 00060001 00000000 \
     00070001 ffffffff 00080001 00070008 80090001 02020000 000a0001 00060400 000b0001 02280000 \
     000c0001 b8000000 000d0001 07000000 000e0001 06000000 000f0001 7f800000 00100001 02150000 \
     01000000 e1010002 01020304 05060708";

/// Valid QSPECs of all kinds.
pub(crate) fn all() -> Vec<Vec<u8>> {
    let voice = object_of(0, VOICE_HEX);
    let available = object_of(1, &format!("{VOICE_HEX} 80030001 00000000"));
    let minimum = object_of(3, VOICE_HEX);
    let reserved = object_of(0x8002, VOICE_HEX);
    let initiator = format!("00000007 {voice}");
    vec![
        qspec_of(0, &voice),
        qspec_of(0x1000, &format!("{voice} {available}")),
        qspec_of(0x2000, &format!("{minimum} {available} {voice}")),
        qspec_of(0x0001_0000, &format!("{voice} {}", object_of(0x43, "00070001 00000000"))),
        qspec_of(0x0041_1000, &format!("{reserved} {available}")),
        qspec_of(0x0002_0000, &available),
        qspec_of(0x0880_0000, &format!("{} {initiator}", object_of(0, "000c0001 b8000000"))),
        desired_of(ALL_PARAMETERS),
    ]
}
