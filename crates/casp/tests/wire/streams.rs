//! The Length Header.

use signalbox_casp::wire::{FramingError, Message, frame, framed};

use crate::support::*;

/// CASP-4.1-01, CASP-4.1-02, CASP-4.4-03: the same message differs by the four octets only.
#[test]
fn a_stream_has_the_length_header_and_a_datagram_does_not() {
    let octets = body(V4);
    let message = signaling(&octets);
    let mut stream = Vec::new();
    framed(&mut stream, |octets| message.encode(octets)).unwrap();
    assert_eq!(stream, hex(V4));
    assert_eq!(stream[4..], composed(&message));
}

/// CASP-4.1-04: three messages at once, and one in single octets.
#[test]
fn a_stream_is_split_by_the_length_header() {
    let mut octets = [hex(V3), hex(V4), hex(V7)].concat();
    let mut lengths = Vec::new();
    while let Some(length) = frame(&octets, 70_000).unwrap() {
        octets.drain(..length);
        lengths.push(length);
    }
    assert_eq!(lengths, [76, 64, 64]);
    assert!(octets.is_empty());
    let message = hex(V3);
    for end in 0..4 {
        assert_eq!(frame(&message[..end], 70_000), Ok(None));
    }
    for end in 4..=message.len() {
        assert_eq!(frame(&message[..end], 70_000), Ok(Some(76)));
    }
}

/// CASP-G-02: lengths that no message has.
#[test]
fn wrong_lengths_end_the_stream() {
    for length in [0u32, 4, 20, 23, 26, 70_004, u32::MAX] {
        assert_eq!(frame(&length.to_be_bytes(), 70_000), Err(FramingError { length, max: 70_000 }));
    }
    for length in [24u32, 28, 70_000] {
        assert_eq!(frame(&length.to_be_bytes(), 70_000), Ok(Some(length as usize)));
    }
}

/// CASP-G-03: a datagram with a Length Header is no message.
#[test]
fn a_length_header_in_a_datagram_is_malformed() {
    for vector in [V3, V4, V7] {
        assert!(Message::parse(&hex(vector)).is_err());
    }
}
