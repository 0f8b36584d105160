//! Messages that are cut at every length, changed at every octet, or made of anything.

use proptest::prelude::*;
use signalbox_natfw::fuzz;
use signalbox_natfw::wire::{Info, Message};
use signalbox_wire::parse_hex;

use crate::vectors::ALL;

/// A message that is cut inside an object does not parse.
#[test]
fn a_cut_message_is_an_error_inside_of_it() {
    for text in ALL {
        let octets = parse_hex(text).unwrap();
        for length in 0..octets.len() {
            match Message::parse(&octets[..length]) {
                Ok(_) => assert!(ends_of_objects(&octets).contains(&length), "{length}"),
                Err(error) => {
                    let expected = [Info::MESSAGE_LENGTH, Info::OBJECT_LENGTH, Info::MISSING_OBJECT];
                    assert!(expected.contains(&error.info), "{length}: {error}");
                    assert!(error.offset <= length, "{length}: {error}");
                }
            }
        }
    }
}

fn ends_of_objects(octets: &[u8]) -> Vec<usize> {
    let mut ends = vec![4];
    while let Some(header) = octets.get(ends[ends.len() - 1]..).filter(|rest| !rest.is_empty()) {
        let words = usize::from(u16::from_be_bytes([header[2], header[3]]) & 0xfff);
        ends.push(ends[ends.len() - 1] + 4 + 4 * words);
    }
    ends
}

#[test]
fn a_changed_octet_never_panics_and_composes_as_it_was_read() {
    for text in ALL {
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

proptest! {
    #[test]
    fn anything_is_survived(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
        fuzz::message(&octets);
    }

    #[test]
    fn anything_behind_a_good_header_is_survived(
        kind in 1..5u8,
        objects in proptest::collection::vec((0x0bu16..0x16, proptest::collection::vec(any::<u8>(), 0..16)), 0..8),
    ) {
        let mut octets = vec![kind, 0, 0, 0];
        for (object, mut value) in objects {
            value.truncate(value.len() / 4 * 4);
            octets.extend(object.to_be_bytes());
            octets.extend(u16::try_from(value.len() / 4).unwrap().to_be_bytes());
            octets.extend(value);
        }
        fuzz::message(&octets);
    }
}
