//! Messages that are cut at every length, changed at every octet, or made of anything.

use proptest::prelude::*;
use signalbox_ping::fuzz;
use signalbox_ping::wire::{DecodeError, Message};
use signalbox_wire::parse_hex;

use crate::vectors::{ONE_HOP, PADDED, REPLY, REQUEST};

#[test]
fn a_cut_message_names_the_field_that_is_cut() {
    for text in [REQUEST, ONE_HOP, REPLY, PADDED] {
        let octets = parse_hex(text).unwrap();
        for length in 0..octets.len() {
            let error = Message::parse(&octets[..length]).unwrap_err();
            assert!(matches!(error, DecodeError::Short { .. }), "{length}: {error}");
            assert!(error.offset() <= length && !error.field().is_empty());
        }
    }
}

#[test]
fn a_changed_octet_never_panics_and_composes_as_it_was_read() {
    for text in [REQUEST, ONE_HOP, REPLY, PADDED] {
        let octets = parse_hex(text).unwrap();
        for at in 0..octets.len() {
            for change in 1..=255u8 {
                let mut changed = octets.clone();
                changed[at] ^= change;
                fuzz::message(&changed);
            }
        }
    }
}

#[test]
fn each_fault_has_its_name() {
    let octets = parse_hex(ONE_HOP).unwrap();
    let with = |at: usize, value: u8| {
        let mut changed = octets.clone();
        changed[at] = value;
        Message::parse(&changed).unwrap_err()
    };
    assert_eq!(with(0, 0x21), DecodeError::Version { found: 2 });
    assert_eq!(with(24, 0x50), DecodeError::Family { found: 5, offset: 24 });
    assert_eq!(with(2, 0), DecodeError::Trailing { offset: 24, octets: 16 });
    assert_eq!(with(1, 0x10).to_string(), "length of the padding: 4 octets needed at offset 40, 0 left");
    let mut odd = parse_hex(PADDED).unwrap();
    odd[43] = 7;
    assert_eq!(Message::parse(&odd), Err(DecodeError::Padding { found: 7, offset: 40 }));
    assert_eq!(with(3, 1).to_string(), "received: 8 octets needed at offset 40, 0 left");
}

proptest! {
    #[test]
    fn anything_is_survived(octets in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzz::message(&octets);
    }

    #[test]
    fn anything_behind_a_good_header_is_survived(
        counts in any::<(u8, u8)>(),
        rest in proptest::collection::vec(any::<u8>(), 20..600),
    ) {
        let mut octets = vec![0x11, 0, counts.0 % 8, counts.1 % 8];
        octets.extend(rest);
        fuzz::message(&octets);
    }
}
