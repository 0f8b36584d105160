//! Messages that are cut at every length, changed at every octet, or made of anything.

use proptest::prelude::*;
use signalbox_boomerang::fuzz;
use signalbox_boomerang::wire::Message;

use crate::support::*;

fn samples() -> Vec<Vec<u8>> {
    vec![
        hex(REQUEST),
        hex(REFUSED),
        hex(REQUEST_6),
        [hex(REQUEST), hex(ALICE), hex(AGGREGATION)].concat(),
        request(0x32, "02000000 0001f400 0000fa00 0000fa00 00007d00"),
        request(0x22, "00000000 00000000"),
    ]
}

/// BOOM-G30-04: no length reads beyond the packet.
#[test]
fn a_cut_message_is_an_error_or_a_shorter_message() {
    for octets in samples() {
        for length in 0..octets.len() {
            fuzz::message(&octets[..length]);
            if length < 72 {
                let error = Message::parse(&octets[..length], octets[0] == 128).unwrap_err();
                assert!(error.offset() <= length && !error.field().is_empty(), "{length}: {error}");
            }
        }
    }
}

/// BOOM-G30-04: nor does any changed octet.
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
    fn any_octets_after_a_header_are_survived(tail in prop::collection::vec(any::<u8>(), 0..200), format: u8) {
        let mut octets = hex(REQUEST);
        octets.truncate(32);
        octets[17] = format;
        octets.extend(tail);
        fuzz::message(&octets);
    }
}
