//! Messages that are cut at every length, changed at every octet, or made of anything.

use proptest::prelude::*;
use signalbox_casp::fuzz;
use signalbox_casp::wire::Message;

use crate::support::*;

fn samples() -> Vec<Vec<u8>> {
    vec![
        hex(V1),
        hex(V2),
        body(V3),
        body(V4),
        hex(V5),
        hex(V6),
        body(V7),
        with_objects(&[V8, "00096301 01020304 05000000", "00080209 00000001"]),
    ]
}

/// CASP-G-03: a cut message is an error or a shorter message.
#[test]
fn no_length_reads_beyond_the_message() {
    for octets in samples() {
        for length in 0..octets.len() {
            fuzz::message(&octets[..length]);
            if length < 32 {
                let error = Message::parse(&octets[..length]).unwrap_err();
                assert!(error.offset() <= length.max(20), "{length}: {error}");
            }
        }
    }
}

#[test]
fn a_changed_octet_never_panics() {
    for octets in samples() {
        for at in 0..octets.len() {
            for change in 1..=255u8 {
                let mut changed = octets.clone();
                changed[at] ^= change;
                fuzz::message(&changed);
            }
        }
    }
}

proptest! {
    #[test]
    fn any_octets_behind_a_header_are_survived(tail in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..5) {
        let mut octets = hex(V6);
        octets.truncate(20);
        octets[3] = kind;
        octets.extend(tail);
        fuzz::message(&octets);
    }
}

#[cfg(feature = "kit")]
proptest! {
    /// Any sequence of messages, requests, pauses and failures is survived.
    #[test]
    fn any_sequence_is_survived(octets in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzz::casp_engine(&octets);
    }
}
